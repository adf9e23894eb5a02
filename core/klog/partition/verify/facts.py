"""The input of the checks: a partition with all facts that a pass over it collected."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.cluster.metadata.topic_config import SettingOrigin, TopicConfig
from klog.data_dir.partition import Partition
from klog.formats.names import CLUSTER_METADATA, PartitionState
from klog.formats.snapshot import PRODUCER_ID_EXPIRATION_MS, Snapshot
from klog.partition.start.start_files import ReadSettings, StartOutcome
from klog.partition.transactions.producer_replay import ProducerReplay
from klog.partition.transactions.producer_state import snapshots_of
from klog.partition.verify.findings import KINDS, Finding, quoted
from klog.partition.verify.segment_pass import NO_NEXT, SegmentFacts

StartPlay = Callable[[], StartOutcome]
"""Plays a broker's next start.  Raises UnreadableError."""

_OF_INDEXES = ("index.interval.bytes", "segment.index.bytes")


class LogDirFacts(NamedTuple):
    """The facts about the log dir that the checks of a partition need.

    *path*: None if the partition is in no log dir.  *clean*: it has the clean-shutdown marker.  *live*: a broker holds
    the lock.  *kraft*: formatted by a KRaft node (None: not known).  *settings*: of its topics; the metadata log is
    read only on request of a check, after a finding.
    """

    path: str | None = None
    clean: bool = False
    live: bool = False
    kraft: bool | None = None
    settings: TopicConfig = TopicConfig()


def is_left_alone(partition: Partition) -> bool:
    """Whether no repair touches a partition: the metadata log, a directory set aside or marked for deletion."""
    return partition.topic == CLUSTER_METADATA or partition.state in (PartitionState.DELETE, PartitionState.STRAY)


class PartitionFacts:
    """A partition after a pass over its segments, ascending by base offset.

    `replay` is None when the pass skipped segments.  *play* plays the broker's next start, on request of a check; None:
    with the topic's settings in the log dir, now.
    """

    def __init__(self, partition: Partition, log_dir: LogDirFacts, play: StartPlay | None = None) -> None:
        self.partition = partition
        self.log_dir = log_dir
        self._play = play or self._play_now
        self.segments: list[SegmentFacts] = []
        self.replay: ProducerReplay | None = None
        self._fixes = {"": ""}

    @cached_property
    def snapshots(self) -> list[tuple[str, int, Snapshot]]:
        """The name, the offset and the content of each producer snapshot, by offset."""
        return snapshots_of(self.partition)

    @cached_property
    def next_start(self) -> StartOutcome | None:
        """The partition after a broker's next start; None when the pass skipped segments.

        It costs a second pass over the part that a broker would recover, and only checks with a finding request it.
        """
        if len(self.segments) != len(self.partition.segments):
            return None
        try:
            return self._play()
        except UnreadableError as error:
            return None if self.log_dir.live else StartOutcome(fails=str(error))

    def _play_now(self) -> StartOutcome:
        from klog.partition.start.log_loader import next_start
        from klog.partition.start.producer_recovery import BrokerClock

        of = self.log_dir.settings.value
        interval, index_bytes = (of(self.partition.topic, name).number for name in _OF_INDEXES)
        settings = ReadSettings(interval, index_bytes, with_files=False)
        clock = BrokerClock(int(time.time() * 1000), PRODUCER_ID_EXPIRATION_MS)
        return next_start(self.partition, self.log_dir.clean, settings, clock)

    @property
    def end_offset(self) -> int | None:
        """The offset after the last intact batch of the last segment; None when that was not looked at."""
        return self.segments[-1].end_offset if self.segments and self.is_active(self.segments[-1]) else None

    @cached_property
    def is_current(self) -> bool:
        """Whether the directory is in use: neither set aside nor on its way out."""
        return self.partition.state in (PartitionState.CURRENT, PartitionState.FUTURE)

    @cached_property
    def is_compacted(self) -> bool | None:
        """Whether the topic is compacted, or was; None if unknown.

        If no policy is set, the broker's own file decides, which is not here.
        """
        topic = self.partition.topic
        if topic == CLUSTER_METADATA:
            return False
        if self.partition.cleaner_offset is not None:
            return True
        metadata = self.log_dir.settings.metadata
        id_there = metadata.topic_ids.get(topic or "") if metadata is not None else None
        if id_there is not None and self.partition.topic_id not in (None, id_there):
            return None  # the metadata log speaks of another topic, of the same name
        policy = self.log_dir.settings.value(topic, "cleanup.policy")
        if "compact" in policy.words:
            return True
        return (
            False if policy.origin is not SettingOrigin.DEFAULT and metadata is not None and metadata.complete else None
        )

    @cached_property
    def gaps(self) -> list[tuple[int, int]]:
        """The offsets that no batch has, inside segments and between them: the first, and the one after the last."""
        found = []
        for segment in self.segments:
            survey = segment.survey
            found += [(first, end) for event, _, first, end in survey.events if event == "gap"]
            if segment.end_offset < survey.next_base < NO_NEXT:
                found.append((segment.end_offset, survey.next_base))
        return found

    def has_gap(self, first: int, last: int) -> bool:
        """Whether an offset from *first* to *last* is in a gap."""
        return any(start <= last and first < end for start, end in self.gaps)

    def is_active(self, segment: SegmentFacts) -> bool:
        """Whether *segment* is the last one, to which a broker appends."""
        return segment.files.base_offset == self.partition.segments[-1].base_offset

    def finding(
        self,
        kind: str,
        message: str,
        file: str = "",
        position: int | None = None,
        offset: int | None = None,
        broker: str | None = None,
        fix: str | None = None,
    ) -> Finding:
        """Return a finding about *file* of this partition (its directory when empty); *fix*: not that of its kind."""
        directory = self.partition.directory
        known = KINDS[kind]
        fix = "" if is_left_alone(self.partition) else known.fix if fix is None else fix
        if fix not in self._fixes:
            log_dir = self.log_dir.path or os.path.dirname(self.partition.path) or "."
            self._fixes[fix] = fix.format(partition=quoted(self.partition.path), log_dir=quoted(log_dir))
        name = f"{directory}/{file}" if file else directory
        topic, number = self.partition.topic, self.partition.number
        return Finding(known, topic, number, name, position, offset, message, broker or known.broker, self._fixes[fix])

    def batches_after(self, segment: SegmentFacts, batches: int, records: int) -> tuple[int, int]:
        """Return how many intact batches and records follow the first *batches* of *segment* in the partition."""
        at = self.segments.index(segment)
        later = self.segments[at + 1 :]
        return (
            segment.survey.batches - batches + sum(other.survey.batches for other in later),
            segment.survey.records - records + sum(other.survey.records for other in later),
        )


Findings = Iterator[Finding]
