"""A finding, the table of all that `klog verify` can find, and the facts that the checks turn into findings.

Ids never change and are never reused; `docs/findings.md` is generated from this table.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import cached_property
from typing import Final, NamedTuple

from klog.base.errors import UnreadableError
from klog.cluster.metadata.topic_config import SettingOrigin, TopicConfig
from klog.data_dir.partition import Partition
from klog.formats.names import CLUSTER_METADATA, PartitionState
from klog.formats.producer_snapshot import PRODUCER_ID_EXPIRATION_MS, Snapshot
from klog.partition.start.start_files import ReadSettings, StartOutcome
from klog.partition.start.start_reasons import REASONS
from klog.partition.transactions.producer_replay import ProducerReplay
from klog.partition.transactions.producer_state import snapshots_of
from klog.partition.verify.segment_pass import NO_NEXT, SegmentFacts


class Severity(StrEnum):
    """How bad it is: a note does not affect the exit code, the others add 4."""

    NOTE = "note"
    WARNING = "warning"
    DAMAGE = "damage"


class FindingKind(NamedTuple):
    """A kind of finding.

    *meaning*: a description.  *broker*: the reaction of a broker of 4.x at its next start, as far as that does not
    depend on the rest of the partition.  *fix*: the command that repairs it, with `{partition}` and `{log_dir}`, after
    a warning if it may lose intact data; empty if no command repairs it.
    """

    id: str
    severity: Severity
    meaning: str
    broker: str
    fix: str = ""


class Finding(NamedTuple):
    """Something that was found: its kind, its place, and a message.

    *file* is relative to the log dir.  *position* is the first byte of the batch, entry or line that is wrong, *offset*
    Kafka's; None if it has none.
    """

    kind: FindingKind
    topic: str | None
    partition: int | None
    file: str
    position: int | None
    offset: int | None
    message: str
    broker: str
    fix: str

    @property
    def id(self) -> str:
        """The kind's id."""
        return self.kind.id

    @property
    def severity(self) -> Severity:
        """The kind's severity."""
        return self.kind.severity

    def json(self) -> dict[str, object]:
        """Return the finding as the members of a JSON object."""
        return {
            "id": self.kind.id,
            "severity": self.kind.severity.value,
            "topic": self.topic,
            "partition": self.partition,
            "file": self.file,
            "position": self.position,
            "offset": self.offset,
            "message": self.message,
            "broker": self.broker,
            "fix": self.fix or None,
        }


def quoted(path: str) -> str:
    """Return *path* quoted for a shell."""
    from shlex import quote

    return quote(path)


def _start(reason: str) -> str:
    """Return a broker's reaction to a reason in the doctor's table."""
    return REASONS[reason].broker


_RECOVER = "klog recover {partition}"
SALVAGE = "klog recover {partition} --salvage"
CUTS_OUT = "may cut out intact batches (the plan lists them): klog recover {partition} --salvage"
_INDEXES = "klog recover {partition} --indexes-only"
_ROOT = "klog recover {log_dir}"
_LOOKED = "truncates the segment here and deletes all later ones, if it recovers the segment; does not check this after a clean stop or below the recovery point"
_NOT_LOOKED = "does not check this"
_SERVED = "does not check this: keeps the batch and serves it as it is"
_N, _W, _D = Severity.NOTE, Severity.WARNING, Severity.DAMAGE

_TABLE: Final = (
    # the log
    FindingKind("torn-tail", _D, "the log ends inside a batch: a crash interrupted the write", _LOOKED, _RECOVER),
    FindingKind("zero-tail", _N, "zeros after the last batch of the last segment: preallocated, or never written", _LOOKED, _RECOVER),
    FindingKind("zeroed", _D, "zeros in place of batches: blocks that never reached the disk, or that the disk lost", _LOOKED, SALVAGE),
    FindingKind("garbage-tail", _D, "bytes after the last batch that were never part of one", _LOOKED, _RECOVER),
    FindingKind("unfinished-append", _N, "the running broker is writing a batch", "continues to write"),
    FindingKind("bad-crc", _D, "a batch whose checksum does not match its bytes", _LOOKED, SALVAGE),
    FindingKind("bad-length", _D, "a size that no batch can have", _LOOKED, SALVAGE),
    FindingKind("more-damage", _D, "more damaged places in the log than klog reports one by one", _LOOKED, SALVAGE),
    FindingKind("bad-magic", _D, "a format version that does not exist", _LOOKED, SALVAGE),
    FindingKind("short-header", _D, "a size too small for the batch's own header", _LOOKED, SALVAGE),
    FindingKind("bad-compression", _D, "a batch whose checksum matches, but which cannot be decompressed", _SERVED),
    FindingKind("bad-record", _D, "a batch whose checksum matches, but whose records are broken", _SERVED),
    FindingKind("bad-counts", _D, "a batch whose number of records contradicts its offsets", _SERVED),
    FindingKind("unknown-codec", _D, "a batch with a compression type that no version knows", _SERVED),
    FindingKind("odd-offset", _D, "a base offset, which no checksum covers, that fits neither neighbour", "accepts it; may empty the segment if an index entry points to the batch", CUTS_OUT),
    FindingKind("odd-epoch", _D, "a leader epoch, which no checksum covers, that fits neither neighbour", "accepts it; adds it to the epoch checkpoint if it is higher", SALVAGE),
    FindingKind("epochs-fall", _N, "leader epochs that are lower from a batch on: the metadata log was rolled back, and the leader continued from its older epochs", "keeps and serves the batches; adds only rising epochs to the epoch checkpoint"),
    FindingKind("offsets-backwards", _D, "a batch with the offsets of an earlier batch, or lower ones", "accepts it, or empties the segment if an index entry points to the batch", CUTS_OUT),
    FindingKind("offset-overflow", _D, "a batch whose offsets its segment cannot hold", "splits the segment, or does not start", SALVAGE),
    FindingKind("segments-overlap", _D, "offsets that the next segment also has", "does not check this; consumers see records twice", CUTS_OUT),
    FindingKind("offset-gap", _W, "offsets that no batch has; legal if the topic was compacted", _NOT_LOOKED),
    FindingKind("offsets-missing", _D, "offsets that no batch has, in a topic that is not compacted", _NOT_LOOKED),
    FindingKind("oversized-log", _D, "a log of more than 2 GiB", "does not start", ""),
    FindingKind("unreadable", _D, "the operating system cannot read it", _start("unreadable"), ""),
    FindingKind("vanished", _N, "deleted by the running broker after klog had listed it", "has deleted it already"),
    # indexes
    FindingKind("index-missing", _W, "a segment without .index", "recovers the segment: rebuilds it, and truncates the log at the first damage", _INDEXES),
    FindingKind("index-ragged", _D, "a size that is not a multiple of an entry's", _NOT_LOOKED, _INDEXES),
    FindingKind("index-order", _D, "entries that do not ascend", _NOT_LOOKED, _INDEXES),
    FindingKind("index-hole", _D, "entries behind zeros: a page that never reached the disk", _NOT_LOOKED, _INDEXES),
    FindingKind("index-zero-tail", _W, "zeros at the end of an index that should have been trimmed", "lookups become slow; treats the index as full", _INDEXES),
    FindingKind("index-disagrees", _D, "an entry that contradicts the log: lookups miss records or fail", _NOT_LOOKED, _INDEXES),
    FindingKind("index-beyond-log", _W, "entries for positions that the log does not have: it was longer, or has been truncated", "rebuilds it if it recovers the segment; otherwise assigns offsets to new records that were already used", _INDEXES),
    FindingKind("index-sparse", _N, "long stretches of the log without an entry: lookups there are slow", _NOT_LOOKED, _INDEXES),
    FindingKind("index-inexact", _N, "an entry of an offset or time index that no broker writes, though lookups come out right: no batch ends with its offset", _NOT_LOOKED, _INDEXES),
    FindingKind("time-index-missing", _W, "a segment without .timeindex", "creates an empty one; retention and lookups by time then use the file's modification time", _INDEXES),
    FindingKind("time-index-ragged", _D, "a size that is not a multiple of an entry's", _NOT_LOOKED, _INDEXES),
    FindingKind("time-index-order", _D, "entries that do not ascend", _NOT_LOOKED, _INDEXES),
    FindingKind("time-index-hole", _D, "entries behind zeros: a page that never reached the disk", _NOT_LOOKED, _INDEXES),
    FindingKind("time-index-zero-tail", _W, "zeros at the end: the segment's largest timestamp reads as 1970", "deletes the segment by retention time", _INDEXES),
    FindingKind("time-index-disagrees", _D, "an entry that contradicts the log: lookups by time miss records", _NOT_LOOKED, _INDEXES),
    FindingKind("time-index-ahead", _W, "a timestamp that no batch up to its offset has: retention by time is wrong", _NOT_LOOKED, _INDEXES),
    FindingKind("time-index-short", _W, "the largest timestamp is missing: retention by time deletes too early", _NOT_LOOKED, _INDEXES),
    FindingKind("time-index-beyond-log", _W, "entries for offsets that the log does not have", "rebuilds it if it recovers the segment", _INDEXES),
    FindingKind("txn-index-ragged", _D, "a size that is not a multiple of an entry's", "ignores the rest; entries that it appends later are unreadable", _INDEXES),
    FindingKind("txn-index-version", _D, "an entry of a version that does not exist", "does not start", _INDEXES),
    FindingKind("txn-index-order", _D, "entries that do not ascend, or lie outside the segment", "recovers the segment", _INDEXES),
    FindingKind("txn-index-disagrees", _D, "aborted transactions without markers, or abort markers without entries: consumers see aborted records, or miss committed ones", _NOT_LOOKED, _INDEXES),
    # producers, epochs
    FindingKind("snapshot-corrupt", _W, "a producer snapshot that a broker would delete", "deletes it and replays from an older one", _RECOVER),
    FindingKind("snapshot-disagrees", _W, "a producer snapshot that contradicts the log", "uses it as it is", _RECOVER),
    FindingKind("snapshots-missing", _W, "batches with producers, and no producer snapshot", "forgets the producers after a clean stop; otherwise reads the complete log", _RECOVER),
    FindingKind("hanging-transaction", _N, "a transaction without a marker, although its producer has not written for a long time", "keeps it open: neither the last stable offset nor the cleaner advances"),
    FindingKind("sequence-gap", _W, "missing sequence numbers of a producer", _NOT_LOOKED),
    FindingKind("txn-conflict", _D, "a batch outside a transaction while its producer has one open", "does not start if it replays this"),
    FindingKind("bad-marker", _D, "an invalid transaction marker", "does not start, or truncates the log here"),
    FindingKind("epochs-missing", _W, "no leader-epoch-checkpoint, though batches have epochs", "writes the epochs of the segments that it recovers", _RECOVER),
    FindingKind("epochs-malformed", _D, "a leader-epoch-checkpoint that a broker refuses", _start("epochs-malformed"), _RECOVER),
    FindingKind("epochs-disagree", _W, "leader epochs that contradict the batches", "uses them as they are; followers may truncate at the wrong offset", _RECOVER),
    # names
    FindingKind("foreign-log-name", _D, "a file with the suffix of a segment file, but without an offset as its name", _start("foreign-log-name")),
    FindingKind("duplicate-segment", _D, "two files for one segment", "uses the one that it lists last"),
    FindingKind("odd-name", _N, "a name that no broker would have written", "loads it anyway"),
    FindingKind("orphan-index", _N, "an index without its log", "deletes it", _RECOVER),
    FindingKind("leftover", _N, "a file of an operation that was interrupted or is in progress", "finishes it or undoes it", _RECOVER),
    FindingKind("metadata-missing", _D, "no partition.metadata", _start("topic-id-missing"), ""),
    FindingKind("metadata-malformed", _D, "a partition.metadata that cannot be read", _start("metadata-malformed"), ""),
    FindingKind("partition-empty", _N, "a partition without segments", "creates an empty one"),
    FindingKind("foreign-directory", _D, "a directory whose name is not a partition's", _start("foreign-directory"), "move {path} out of the log dir"),
    FindingKind("duplicate-partition", _D, "the same partition twice", _start("duplicate-partition")),
    FindingKind("stray-directory", _N, "a partition that a broker has set aside or will delete", "keeps or deletes it"),
    # the log dir's own files
    FindingKind("checkpoint-malformed", _D, "a checkpoint file that a broker refuses", _start("checkpoint-malformed"), _ROOT),
    FindingKind("meta-properties-missing", _D, "no meta.properties, though there are partitions", _start("meta-properties-missing"), ""),
    FindingKind("meta-properties-malformed", _D, "a meta.properties that cannot be read", _start("meta-properties-malformed"), ""),
    FindingKind(
        "follow-file-malformed",
        _W,
        "a klog-follow.json that cannot be read: topic settings of the copied cluster are unknown",
        "ignores it: the file is klog's own",
        "",
    ),
    FindingKind("recovery-point-beyond-end", _W, "a recovery point beyond the end of the log: records that had reached the disk are gone", "lowers it", _RECOVER),
    FindingKind("high-watermark-beyond-end", _W, "a high watermark beyond the end of the log: replicated records are gone", "lowers it", _RECOVER),
    FindingKind("high-watermark-below-start", _N, "a high watermark below the start of the log", "raises it", _RECOVER),
    FindingKind("log-start-beyond-end", _D, "a log start beyond the end of the log", _start("log-start-beyond-end"), _RECOVER),
    FindingKind("log-start-raised", _W, "a log start above that of the leader epochs: no broker has raised it, and intact records are below it", _start("log-start-raised"), ""),
    FindingKind("cleaner-offset-outside", _N, "a cleaner checkpoint outside the log", "cleans from the start again"),
)  # fmt: skip

KINDS: Final = {kind.id: kind for kind in _TABLE}
"""Every kind by its id, in the order of the table."""


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
