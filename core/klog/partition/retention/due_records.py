"""The records that the first retention pass removes from a partition, and the notes that name them.

orders = RetainedPartition("orders", 3, "data/orders-3", segments, OffsetSpan(0, 1841))
due_notes([due_records(orders, topics, now_ms, count_in(partition))], "records")

A broker takes the last entry of a segment's time index, and the modification time of the log if that has none.  The
time index of a segment that it recovers is rebuilt from the batches.  Kafka: LogSegment.largestTimestamp, sanityCheck.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from shlex import join
from typing import Final, NamedTuple

from klog.base.errors import counted
from klog.base.read_only import ReadOnlyFile
from klog.cluster.metadata.topic_config import TopicConfig
from klog.data_dir.partition import Partition, SegmentFiles, segments_between
from klog.formats.batch import CONTROL_BIT, BatchFacts
from klog.formats.damage import Damage
from klog.formats.index import TIME_ENTRY
from klog.log.header_walk import walk_headers, walk_windows
from klog.log.index import largest_timestamp, modified_ms
from klog.partition.retention.first_pass import (
    BY_BYTES,
    BY_MS,
    BY_START,
    AgedSegment,
    SegmentAge,
    TopicRetention,
    due_segments,
    topic_retention,
)
from klog.partition.start.record_tally import EVERYTHING, OffsetSpan, tally_records


class StoredSegment:
    """An `AgedSegment` in a directory; its timestamp is read at the first access.

    *size*: the size of the log in bytes after the start.  *is_recovered*: whether the start rebuilds the indexes.
    """

    def __init__(self, partition: Partition, files: SegmentFiles, size: int, is_recovered: bool) -> None:
        self.base_offset, self.bytes = files.base_offset, size
        self._is_cut = size < files.size
        self._log = partition.file(files.log)
        self._time_index = None if files.time_index is None else partition.file(files.time_index)
        # Kafka: LogSegment.sanityCheck, which recovers a segment without an offset index.
        self._is_recovered = is_recovered or files.offset_index is None

    @cached_property
    def largest_timestamp(self) -> int:
        """The largest timestamp, ms, as a broker takes it.  Raises UnreadableError."""
        if self._is_recovered and not self._is_cut:
            return largest_timestamp(self._log, None)
        if self._is_recovered:
            largest = self._of_kept_batches()
        else:
            largest = -1 if self._time_index is None else _last_entry(self._time_index)
        return largest if largest >= 0 else modified_ms(self._log)

    def _of_kept_batches(self) -> int:
        with ReadOnlyFile(self._log) as log:
            kept = (one for one in walk_headers(log, 0) if not isinstance(one, Damage) and one.position < self.bytes)
            return max((one.max_timestamp for one in kept), default=-1)


def _last_entry(time_index: str) -> int:
    """Return the timestamp of the last entry, even one of zeros as in a broker; -1 without one."""
    with ReadOnlyFile(time_index) as index:
        whole = index.size - index.size % TIME_ENTRY.size
        return TIME_ENTRY.read(index.read(whole - TIME_ENTRY.size, TIME_ENTRY.size))[0] if whole else -1


def stored_segments(
    partition: Partition, is_clean: bool, sizes: Mapping[str, int] | None = None
) -> list[StoredSegment]:
    """Return the segments of *partition* as a start leaves them.

    *is_clean*: the log dir has the clean-shutdown marker; without it a broker recovers the segment of the recovery
    point and those behind it.  *sizes*: the bytes that the start leaves of each log, by name; None: all.
    """
    files = partition.segments
    bases = [one.base_offset for one in files]
    first = len(bases) if is_clean else max(bisect_right(bases, partition.recovery_point or 0) - 1, 0)
    return [
        StoredSegment(partition, one, one.size if sizes is None else sizes[one.log], number >= first)
        for number, one in enumerate(files)
        if sizes is None or one.log in sizes
    ]


COPIED: Final = "of the records that are copied"
"""The records that are the subject of the notes of a plan that makes copies equal."""

_WITH_COUNTS: Final = 2
"""From this format on a header contains the number of records."""


class RetainedPartition(NamedTuple):
    """A partition as a broker will have it.  *path*: of its directory.  *offsets*: from its log start to its end."""

    topic: str
    number: int
    path: str
    segments: Sequence[AgedSegment]
    offsets: OffsetSpan


class DueRecords(NamedTuple):
    """Records that the first pass removes from a partition.

    *records*: those that the caller counts.  *segments*, *bytes*: of everything removed.  *rules*: by which settings.
    *is_exact*: they were counted, otherwise they are the offsets: some may be gaps or markers.  *early*: those of them
    that would stay by the timestamps of their batches.
    """

    topic: str
    partition: int
    path: str
    records: int
    segments: int
    bytes: int
    rules: tuple[str, ...]
    retention: TopicRetention
    is_exact: bool = True
    early: int = 0

    def json(self) -> dict[str, object]:
        """Return it as JSON has it."""
        settings = {name: self.retention.settings[name] for name in ("cleanup.policy", BY_MS, BY_BYTES)}
        return {
            "topic": self.topic,
            "partition": self.partition,
            "directory": self.path,
            "records": self.records,
            "exact": self.is_exact,
            "segments": self.segments,
            "bytes": self.bytes,
            "by": list(self.rules),
            "known": self.retention.is_known,
            "settings": {
                name: {"value": one.value, "origin": one.origin.value, "name": one.name}
                for name, one in settings.items()
            },
        }


def due_records(
    partition: RetainedPartition, topics: TopicConfig, now_ms: int, count: Callable[[OffsetSpan], int]
) -> DueRecords | None:
    """Return the records that the first pass removes from *partition* at *now_ms*; None if it has none.

    *topics*: the settings that apply to it.  *count*: returns the number of records in an offset span that concern the
    caller.  Segments of a topic with remote storage are kept until they have been copied.  Raises UnreadableError.
    """
    retention = topic_retention(topics, partition.topic)
    start, log_end = partition.offsets
    if retention.is_remote:
        return None
    due = due_segments(partition.segments, retention.limits, start, now_ms)
    rules = tuple(sorted({one.rule for one in due} - {BY_START}))
    if not rules:
        return None
    end = partition.segments[len(due)].base_offset if len(due) < len(partition.segments) else log_end
    records = count(OffsetSpan(start, end))
    if not records:
        return None
    size = sum(one.bytes for one in due)
    return DueRecords(partition.topic, partition.number, partition.path, records, len(due), size, rules, retention)


def early_records(found: RetainedPartition, due: DueRecords, partition: Partition, now_ms: int) -> int:
    """Return how many of the *due* records are removed only because a time index has older times than the batches.

    All logs are whole.  Raises UnreadableError.
    """
    pairs = list(zip(found.segments, partition.segments, strict=True))
    ages = [
        SegmentAge(one.base_offset, one.bytes, largest_timestamp(partition.file(files.log), None))
        for one, files in pairs[: due.segments]
    ]
    left = found.segments[due.segments :]
    expired = due_segments([*ages, *left], due.retention.limits, found.offsets.start, now_ms)
    if len(expired) >= due.segments:
        return 0
    end = left[0].base_offset if left else found.offsets.end
    return count_in(partition)(OffsetSpan(max(ages[len(expired)].base_offset, found.offsets.start), end))


def count_in(partition: Partition) -> Callable[[OffsetSpan], int]:
    """Return a function that counts the data records of a directory in an offset span, by the headers of batches.

    The logs are read if these are not enough, over damage and in the old formats.  Raises UnreadableError.
    """

    def count(span: OffsetSpan) -> int:
        found = 0
        for files in segments_between(partition.segments, *span):
            with ReadOnlyFile(partition.file(files.log)) as log:
                for window in walk_windows(log):
                    batches = [] if isinstance(window, Damage) else list(map(window.batch, range(window.count)))
                    if not batches or any(one.magic < _WITH_COUNTS for one in batches):
                        return tally_records(partition, span, EVERYTHING).records
                    found += sum(_records_in(one, span) for one in batches)
        return found

    return count


def _records_in(batch: BatchFacts, span: OffsetSpan) -> int:
    """Return how many data records of a batch are in a span; of one that the log starts inside of at most so many."""
    if batch.attributes & CONTROL_BIT or span.misses(batch):
        return 0
    inside = min(batch.last_offset + 1, span.end) - max(batch.base_offset, span.start)
    return min(batch.records_count, inside)


def due_notes(found: Iterable[DueRecords], whose: str, most: int = 10) -> list[str]:
    """Return a sentence for each topic, with the command that keeps the records.  *whose*: "of the records that …".

    If there are more than *most* topics, those that lose most are named.
    """
    by_topic: dict[str, list[DueRecords]] = {}
    for one in found:
        by_topic.setdefault(one.topic, []).append(one)
    lost = {topic: sum(one.records for one in rows) for topic, rows in by_topic.items()}
    named = sorted(by_topic, key=lambda topic: (-lost[topic], topic))[:most]
    notes = [_note(topic, by_topic[topic], whose) for topic in named]
    if more := len(by_topic) - len(named):
        rest = sum(lost.values()) - sum(lost[topic] for topic in named)
        notes.append(f"{counted(more, 'more topic')}: it removes {rest} {whose} (--output json names them)")
    return notes


def _note(topic: str, rows: Sequence[DueRecords], whose: str) -> str:
    retention = rows[0].retention
    records, segments = sum(one.records for one in rows), sum(one.segments for one in rows)
    at_most = "" if all(one.is_exact for one in rows) else "up to "
    partitions = {one.partition for one in rows}
    where = counted(segments, "segment") + (f" of {len(partitions)} partitions" if len(partitions) > 1 else "")
    rules = sorted({rule for one in rows for rule in one.rules})
    said = " and ".join(retention.settings[rule].told(retention.knows_file) for rule in rules)
    unknown = "" if retention.is_known else "; the topic's own settings are not known"
    what = f"{at_most}{records} {whose} ({where}), by {said}{unknown}"
    command = keep_command(topic, retention)
    return f"{topic}: the first retention pass of the broker removes {what}; to keep them, first: {command}"


def keep_command(topic: str, retention: TopicRetention) -> str:
    """Return the command after which retention removes nothing from a topic."""
    limits = {BY_MS: retention.limits.retention_ms, BY_BYTES: retention.limits.retention_bytes}
    return config_command(topic, {name: "-1" for name, limit in limits.items() if limit >= 0})


def config_command(topic: str, settings: Mapping[str, str]) -> str:
    """Return the command that changes *settings* of a topic."""
    words = ["kafka-configs", "--bootstrap-server", "HOST:PORT", "--alter", "--entity-type", "topics"]
    changes = ",".join(f"{name}={value}" for name, value in settings.items())
    return join([*words, "--entity-name", topic, "--add-config", changes])
