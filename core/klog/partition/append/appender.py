"""Appends batches to one log, as a leader or a follower does: rolls segments, writes indexes, snapshots and epochs.

    appender = Appender(empty_log(settings), target)
    appender.append(window, 0, window.count)        # whole batches whose checksums were computed and match
    appender.close()

Batches are written unchanged: the caller has assigned their offsets and epochs.  The output is written to an
`AppendTarget`.  Afterwards the log is as after a clean stop.  The state of an existing
log is that of `klog.partition.append.log_resumption`.  Kafka: UnifiedLog.append, UnifiedLog.close.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from klog.base.errors import DamagedError
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.cluster.metadata.topic_config import TopicConfig
from klog.formats.checkpoint import write_epochs
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import SEGMENT_KINDS, FileKind, file_name
from klog.formats.producer_snapshot import write_snapshot
from klog.kernel import IndexBuilder, Window, ascending_run, crc32c
from klog.log.index import AbortedTxn, txn_index_content
from klog.partition.transactions.markers import CompletedTxn
from klog.partition.transactions.producer_replay import apply_window
from klog.partition.transactions.producer_state import ProducerState


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

    def segment(self, base: int, latest_epoch: int) -> IndexBuilder:
        """Return an empty segment from offset *base* on."""
        return IndexBuilder(
            base, self.index_interval, self.index_bytes, latest_epoch, self.segment_bytes, self.segment_ms
        )


@dataclass
class LogState:
    """A log as an appender continues it.

    *segment*: the active one; *is_there*: it has files.  *end*: the log end offset.  *start*: the log start offset.
    *aborted*: the entries of the active segment's transaction index.
    """

    settings: AppendSettings
    segment: IndexBuilder
    start: int
    end: int
    producers: ProducerState
    epochs: LeaderEpochCache = field(default_factory=LeaderEpochCache)
    aborted: list[AbortedTxn] = field(default_factory=list)
    is_there: bool = False


def empty_log(settings: AppendSettings, base: int = 0) -> LogState:
    """Return a log without files, which begins at offset *base*."""
    return LogState(settings, settings.segment(base, -1), base, base, ProducerState(base))


class AppendTarget(Protocol):
    """The destination of a partition's files.  Files are named as in their directory.  All calls raise OSError."""

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Append *data* to a log, which is made when it is first named."""

    def put(self, name: str, content: bytes) -> None:
        """Give a small file this *content*."""

    def remove(self, name: str) -> None:
        """Delete a file, if it exists."""


class WrittenSegment(NamedTuple):
    """A segment that has ended: bytes of its log, largest timestamp (ms, -1 for none), records that were appended."""

    base_offset: int
    bytes: int
    largest_timestamp: int
    records: int


class Appender:
    """Appends to one log.

    *records*, *batches*, *bytes*: appended so far.  *segments*: base offsets of the segments that received them.
    *first_offset*: of the first of them, None before.  *ended*: the finished segments, all after `close`.
    """

    def __init__(self, log: LogState, target: AppendTarget) -> None:
        self.log = log
        self._target = target
        self.records = self.batches = self.bytes = self._records_before = 0
        self.segments: list[int] = []
        self.ended: list[WrittenSegment] = []
        self.first_offset: int | None = None

    @property
    def end(self) -> int:
        """The log end offset."""
        return self.log.end

    def append(self, window: Window, first: int, end: int) -> None:
        """Append batches *first* to *end* of *window*; gaps between offsets are legal.

        Raises DamagedError, before anything is written, where offsets or leader epochs do not ascend; OSError.
        """
        log = self.log
        in_order, _ = ascending_run(window, first, end, log.end - 1, log.epochs.latest, LONG_MAX - 1)
        if in_order < end:
            facts = window.batch(in_order)
            where = f"batch {facts.base_offset} of leader epoch {facts.leader_epoch}"
            raise DamagedError(f"{where} cannot follow: the log ends at {log.end}, in leader epoch {log.epochs.latest}")
        while first < end:
            if not log.segment.size:
                self._name_segment(self._first_offset(window, first))
            records = log.segment.records
            taken = log.segment.walk(window, first, end)
            if taken > first:
                self.records += log.segment.records - records
                self._take(window, first, taken)
            if taken < end:
                if log.segment.stop != "roll":
                    raise DamagedError(f"batch {window.batch(taken).base_offset} does not fit a segment")
                self._roll(self._first_offset(window, taken))
            first = taken

    def _first_offset(self, window: Window, i: int) -> int:
        """Return the first offset that a batch, which follows the log's end, may have records of."""
        facts = window.batch(i)
        # The header of a message set has its last offset, not its first.
        return facts.base_offset if facts.magic >= 2 else self.log.end

    def skip_to(self, offset: int) -> None:
        """Continue at *offset*, above the log's end: an empty segment begins there.  Raises OSError."""
        log = self.log
        if log.segment.size:
            self._roll(offset)
        else:
            log.end = log.segment.base
            self._name_segment(offset)
        log.end = log.producers.end = offset
        self._target.write(self._name(FileKind.LOG), b"")
        log.is_there = True

    def _name_segment(self, base: int) -> None:
        """Rename an empty segment to the base offset *base* of its first batch.

        The name of the first segment is the start of the log: otherwise a broker shows offsets below the first batch.
        """
        log = self.log
        if log.segment.base == base or log.end > log.segment.base:
            return
        if log.is_there:
            for kind in SEGMENT_KINDS:
                self._target.remove(file_name(log.segment.base, kind))
        if log.start == log.segment.base:
            log.start = base
        log.segment, log.end, log.is_there = log.settings.segment(base, log.epochs.latest), base, False

    def _take(self, window: Window, first: int, end: int) -> None:
        """Write batches that the active segment has taken in."""
        log = self.log
        start = window.at(first)
        stop = window.at(end) if end < window.count else window.next_at
        self._target.write(self._name(FileKind.LOG), window.content()[start:stop])
        if self.first_offset is None:
            self.first_offset = window.batch(first).base_offset
        if log.segment.base not in self.segments[-1:]:
            self.segments.append(log.segment.base)
        for event in apply_window(log.producers, window, "", first, end, briefly=True):
            if isinstance(event, CompletedTxn) and event.index_entry is not None:
                log.aborted.append(event.index_entry)
        self.batches += end - first
        self.bytes += stop - start
        log.end = log.segment.last_offset + 1
        for epoch, offset in log.segment.epochs:
            log.epochs.assign(epoch, offset)

    def _name(self, kind: FileKind) -> str:
        return file_name(self.log.segment.base, kind)

    def _roll(self, base: int) -> None:
        """End the active segment, and begin the next one.  Kafka: UnifiedLog.roll."""
        log = self.log
        self._end_segment()
        log.producers.end = base
        self._snapshot()
        log.segment, log.aborted, log.is_there = log.settings.segment(base, log.epochs.latest), [], False

    def _end_segment(self) -> None:
        segment = self.log.segment
        segment.finish()
        if not segment.size and not self.log.is_there:
            self._target.write(self._name(FileKind.LOG), b"")
        self._target.put(self._name(FileKind.INDEX), segment.offset_entries)
        self._target.put(self._name(FileKind.TIME_INDEX), segment.time_entries)
        if self.log.aborted:
            self._target.put(self._name(FileKind.TXN_INDEX), txn_index_content(self.log.aborted))
        self.ended.append(
            WrittenSegment(segment.base, segment.size, segment.max_timestamp, self.records - self._records_before)
        )
        self._records_before = self.records

    def _snapshot(self) -> None:
        """Write the producers' state at the log's end; there is none at its start."""
        state = self.log.producers
        if state.end > self.log.start:
            content = write_snapshot(state.snapshot(), crc32c)
            self._target.put(file_name(state.end, FileKind.SNAPSHOT), content)

    def close(self) -> None:
        """Leave the log as after a clean stop: no more is appended.  Raises OSError."""
        self._end_segment()
        self._snapshot()
        if self.log.epochs.entries:
            self._target.put(FileKind.LEADER_EPOCHS.value, write_epochs(self.log.epochs.entries))
