"""What has to be known of a log to append to it: where it ends, and what its last segment and its producers are.

    log = empty_log(settings, base=0)
    log = open_log(partition, settings)

The active segment of a log that is there is read once, from its beginning, so its indexes are made anew: those of one
pass.  A broker that reopens a log counts the bytes since the last entry from 0; both are right.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from shlex import quote
from typing import NamedTuple

from klog.data_dir.partition import Partition
from klog.errors import DamagedError
from klog.files.read_only import ReadOnlyFile
from klog.formats.names import Stage, belongs
from klog.kernel import ActiveSegment, Window
from klog.log.txn_index import AbortedTxn
from klog.metadata.topic_config import TopicConfig
from klog.partition_plan.strict_reader import StrictReader
from klog.plan.file_state import Digest
from klog.replication.epoch_cache import EpochCache
from klog.transactions.markers import CompletedTxn
from klog.transactions.producer_state import ProducerState
from klog.transactions.replay import nearest_state, replay

_REFUSED = "nothing is appended"


class AppendSettings(NamedTuple):
    """The settings of a topic that decide how its log is laid out: bytes and ms."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    index_interval: int = 4096
    index_bytes: int = 10 << 20

    @classmethod
    def of(cls, topics: TopicConfig, topic: str) -> AppendSettings:
        """Return those of *topic*.  Kafka: LogConfig.maxSegmentMs."""

        def number(name: str) -> int:
            return topics.value(topic, name).number

        segment_ms = number("segment.ms")
        if "compact" in topics.value(topic, "cleanup.policy").words:
            segment_ms = min(segment_ms, number("max.compaction.lag.ms"))
        interval, index_bytes = number("index.interval.bytes"), number("segment.index.bytes")
        return cls(number("segment.bytes"), segment_ms, interval, index_bytes)

    def segment(self, base: int, latest_epoch: int) -> ActiveSegment:
        """Return an empty segment from offset *base* on."""
        roll = {"segment_bytes": self.segment_bytes, "segment_ms": self.segment_ms}
        return ActiveSegment(base, self.index_interval, self.index_bytes, latest_epoch, **roll)


@dataclass
class LogState:
    """A log as an appender continues it.

    *segment*: the active one; *is_there*: it has files; *digest*: of its log, None where nobody asked for it.
    *end*: the log end offset.  *start*: the log start offset.  *aborted*: the entries of the active segment's
    transaction index.
    """

    settings: AppendSettings
    segment: ActiveSegment
    start: int
    end: int
    producers: ProducerState
    epochs: EpochCache = field(default_factory=EpochCache)
    aborted: list[AbortedTxn] = field(default_factory=list)
    digest: Digest | None = None
    is_there: bool = False


def empty_log(settings: AppendSettings, base: int = 0) -> LogState:
    """Return a log without files, which begins at offset *base*."""
    return LogState(settings, settings.segment(base, -1), base, base, ProducerState(base))


def open_log(partition: Partition, settings: AppendSettings) -> LogState:
    """Return what is needed to go on where *partition* ends.

    Raises DamagedError where it must be recovered first, UnreadableError.
    """
    epochs = known_epochs(partition)
    files = partition.segments[-1]
    segment, digest = settings.segment(files.base_offset, epochs.latest), Digest(files.size)
    _walk(partition.file(files.log), segment, digest)
    end = segment.last_offset + 1 if segment.batches else files.base_offset
    # What starts at the end was a leader that wrote nothing.  Kafka: LogLoader.load.
    epochs.truncate_end(end)
    start = partition.log_start_offset or 0
    log = LogState(settings, segment, start, end, ProducerState(), epochs, digest=digest, is_there=True)
    _replay(partition, log)
    return log


def known_epochs(partition: Partition) -> EpochCache:
    """Return the leader epochs of a log that can be continued.  Raises DamagedError where it must be recovered."""
    recover = f"first: klog recover {quote(partition.path)}"
    # What a broker deletes soon is none of the log any more.
    if any(belongs(file) and file.stage not in (Stage.IN_USE, Stage.DELETED) for file in partition.files):
        raise DamagedError(f"{partition.path}: an operation did not end there; {recover}")
    if partition.epochs is not None and partition.epochs.malformed is not None:
        raise DamagedError(f"{partition.path}: leader-epoch-checkpoint, {partition.epochs.malformed}; {recover}")
    return EpochCache(partition.epochs.entries if partition.epochs is not None else ())


def _walk(path: str, segment: ActiveSegment, digest: Digest) -> None:
    window = Window(output=0)
    with ReadOnlyFile(path) as source:
        reader = StrictReader(source, path, segment.base, _REFUSED, digest=digest)
        while reader.next(window):
            if segment.resume(window, 0, window.count) < window.count:
                raise DamagedError(f"{path}: batches are not in order; {_REFUSED}")


def _replay(partition: Partition, log: LogState) -> None:
    """Find the producers at the end of the log, and the aborted transactions of its last segment."""
    base = log.segment.base
    log.producers = nearest_state(partition, base)
    if log.producers.end < base:
        for _ in replay(log.producers, partition.path, partition.segments[:-1], end=base):
            pass
    for event in replay(log.producers, partition.path, partition.segments[-1:], end=log.end):
        if isinstance(event, CompletedTxn) and event.index_entry is not None:
            log.aborted.append(event.index_entry)
