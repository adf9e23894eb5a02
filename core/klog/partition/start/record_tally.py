"""Counts the data records of a partition that a start keeps, and those that become unreadable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import FileRange
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.data_dir.partition import Partition, segments_between
from klog.formats.batch import CODEC_BITS, CONTROL_BIT, BatchFacts
from klog.formats.damage import Damage
from klog.formats.java_integers import LONG_MAX
from klog.log.header_walk import walk_headers
from klog.log.segment import Segment


class OffsetSpan(NamedTuple):
    """Offsets from *start* on and below *end*."""

    start: int = 0
    end: int = LONG_MAX

    def contains(self, batch: BatchFacts) -> bool:
        """Whether all offsets of a batch are in it."""
        return self.start <= batch.base_offset and batch.last_offset < self.end

    def misses(self, batch: BatchFacts) -> bool:
        """Whether none of them is."""
        return batch.last_offset < self.start or self.end <= batch.base_offset


NOTHING: Final = OffsetSpan(0, 0)
EVERYTHING: Final = OffsetSpan()


class RecordTally(NamedTuple):
    """Intact data records of a log, markers not counted, and the bytes of batches that are lost."""

    records: int = 0
    lost_records: int = 0
    lost_bytes: int = 0

    def plus(self, records: int, lost: int, size: int) -> RecordTally:
        """Return the sum."""
        return RecordTally(self.records + records, self.lost_records + lost, self.lost_bytes + size)


class ServedLog(NamedTuple):
    """A log that must have the same batches: one with other batches at the same offsets is another history.

    *cleaned*: below it a cleaner may have made new batches of the records, and their offsets alone are compared.
    """

    partition: Partition
    cleaned: int = 0

    def cursor(self, first: int) -> Callable[[BatchFacts], bool]:
        """Return a function that answers whether it has a batch, for batches that ascend from offset *first* on.

        It raises UnreadableError.  The leader epoch does not count: no checksum covers it.
        """
        headers = (
            header
            for files in segments_between(self.partition.segments, first, LONG_MAX)
            for header in self._headers(files.log)
        )
        found: BatchFacts | None = next(headers, None)

        def has(batch: BatchFacts) -> bool:
            nonlocal found
            while found is not None and found.last_offset < batch.last_offset:
                found = next(headers, None)
            return batch.base_offset < self.cleaned or (found is not None and _identity(found) == _identity(batch))

        return has

    def _headers(self, name: str) -> Iterator[BatchFacts]:
        with ReadOnlyFile(self.partition.file(name)) as log:
            for header in walk_headers(log):
                if not isinstance(header, Damage):
                    yield header


def served_log(partition: Partition, cluster: ClusterMetadata | None) -> ServedLog | None:
    """Return the log that is served; None for a compacted one whose cleaner's progress is unknown."""
    policy = "" if cluster is None else cluster.topic_config(partition.topic or "").get("cleanup.policy", "")
    if partition.cleaner_offset is None and "compact" in policy:
        return None
    return ServedLog(partition, partition.cleaner_offset or 0)


def _identity(batch: BatchFacts) -> tuple[int, int, int, int]:
    return batch.base_offset, batch.last_offset, batch.crc, batch.size


def tally_records(
    partition: Partition,
    own: OffsetSpan,
    served: OffsetSpan,
    pieces: Mapping[str, Sequence[FileRange]] | None = None,
    unserved: FileRange | None = None,
    twin: ServedLog | None = None,
) -> RecordTally:
    """Count the records in *own*, and the lost ones: from its start on, those outside of *served*.

    *pieces*: the part of the logs that recovery keeps, None: all.  The part that it cuts is lost, whatever its offsets,
    and so is *unserved*, the end of a log.  *twin*: the log that is served; batches that it does not have are lost.
    Raises UnreadableError.
    """
    kept = None if pieces is None else [piece for one in pieces.values() for piece in one]
    tally = RecordTally()
    for files in partition.segments:
        ranges = None if kept is None else [(one.start, one.end) for one in kept if one.name == files.log]
        if unserved is not None and unserved.name == files.log:
            whole = [(0, unserved.end)] if ranges is None else ranges
            ranges = [(start, min(end, unserved.start)) for start, end in whole]
        if files.size:
            segment = Segment(partition.file(files.log), bounded=False)
            tally = _segment(segment, own, served, ranges, tally, twin and (twin, files.base_offset))
    return tally


def _segment(
    segment: Segment,
    own: OffsetSpan,
    served: OffsetSpan,
    ranges: Sequence[tuple[int, int]] | None,
    before: RecordTally,
    twin: tuple[ServedLog, int] | None,
) -> RecordTally:
    tally, has = before, _cursor(twin)
    for run in segment.runs():
        if isinstance(run, Damage):
            continue
        for i in range(run.first, run.end):
            batch = run.window.batch(i)
            if batch.attributes & CONTROL_BIT and batch.magic >= 2:
                continue
            if _needs_records(batch, own, served):
                return _records(segment, own, served, ranges, before, twin)
            count = batch.records_count if batch.magic >= 2 else 1
            if batch.last_offset < own.start:
                continue
            is_kept = _is_in(batch.position, ranges)
            is_lost = not (is_kept and served.contains(batch) and has(batch))
            is_counted = is_kept and own.contains(batch)
            tally = tally.plus(count * is_counted, count * is_lost, batch.size * is_lost)
    return tally


def _cursor(twin: tuple[ServedLog, int] | None) -> Callable[[BatchFacts], bool]:
    return (lambda _: True) if twin is None else twin[0].cursor(twin[1])


def _needs_records(batch: BatchFacts, own: OffsetSpan, served: OffsetSpan) -> bool:
    """Whether the header alone does not show how many records count."""
    if batch.magic < 2 and batch.attributes & CODEC_BITS:
        return True
    return any(not (span.contains(batch) or span.misses(batch)) for span in (own, served))


def _is_in(position: int, ranges: Sequence[tuple[int, int]] | None) -> bool:
    return ranges is None or any(start <= position < end for start, end in ranges)


def _records(
    segment: Segment,
    own: OffsetSpan,
    served: OffsetSpan,
    ranges: Sequence[tuple[int, int]] | None,
    tally: RecordTally,
    twin: tuple[ServedLog, int] | None,
) -> RecordTally:
    """Do the same record by record; the bytes of a batch that is lost in part are shared out among its records."""
    has = _cursor(twin)
    for rows in segment.record_windows():
        if isinstance(rows, Damage):
            continue
        for number in range(rows.records):
            offset, row = rows.record(number, False)[0], rows.record(number, False)[-1]
            batch = rows.batch(row)
            if offset < own.start or (batch.attributes & CONTROL_BIT and batch.magic >= 2):
                continue
            is_kept = _is_in(batch.position, ranges)
            is_lost = not (is_kept and served.start <= offset < served.end and has(batch))
            share = batch.size // max(batch.records_count, 1) if batch.magic >= 2 else batch.size
            tally = tally.plus(is_kept and offset < own.end, is_lost, share * is_lost)
    return tally
