"""Counts the data records of a partition that a start keeps, and those that become unreadable."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import FileRange
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.data_dir.partition import Partition, SegmentFiles, segments_between
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


Pieces = Mapping[str, Sequence[FileRange]]


class ServedLog(NamedTuple):
    """A log that must have the same batches: one with other batches at the same offsets is another history.

    *cleaned*: below it a cleaner may have made new batches of the records, and their offsets alone are compared.
    """

    partition: Partition
    cleaned: int = 0

    def has(self, segment: SegmentFiles) -> Callable[[BatchFacts], bool]:
        """Return a function that answers whether it has a batch, for the batches of *segment* in their order.

        It raises UnreadableError.  The leader epoch does not count: no checksum covers it.
        """
        reach = _reach(self.partition, segment)
        return lambda batch: batch.base_offset < self.cleaned or _identity(reach(batch)) == _identity(batch)


class CopiedLog(NamedTuple):
    """A copy of the log, from its log start to its log end; the rest is copied later.  *pieces*: see `tally_records`.

    A cleaner may have made new batches of the log since: a batch counts as copied if one of the copy spans its offsets.
    """

    partition: Partition
    span: OffsetSpan
    pieces: Pieces | None = None

    def has(self, segment: SegmentFiles) -> Callable[[BatchFacts], bool]:
        """Return a function as that of `ServedLog`, for the batches of a segment of the log that is copied."""
        reach = _reach(self.partition, segment, self.pieces)

        def has(batch: BatchFacts) -> bool:
            if self.span.misses(batch):
                return batch.base_offset >= self.span.end
            found = reach(batch)
            return found is not None and found.base_offset <= batch.base_offset

        return has


Twin = ServedLog | CopiedLog


def _reach(
    partition: Partition, segment: SegmentFiles, pieces: Pieces | None = None
) -> Callable[[BatchFacts], BatchFacts | None]:
    """Return a function that finds the first batch that ends where a batch of *segment* ends or later, if one does."""
    headers = _reached(partition, segment.base_offset, pieces)
    found: BatchFacts | None = next(headers, None)

    def reach(batch: BatchFacts) -> BatchFacts | None:
        nonlocal found
        while found is not None and found.last_offset < batch.last_offset:
            found = next(headers, None)
        return found

    return reach


def _reached(partition: Partition, first: int, pieces: Pieces | None) -> Iterator[BatchFacts]:
    """Yield the headers of intact batches that a reader meets, from the segment that contains offset *first* on.

    Behind bytes that are no header, or a batch with too high offsets, it meets no more of that segment.
    """
    kept = _kept(pieces)
    segments = segments_between(partition.segments, first, LONG_MAX)
    for files, next_base in zip(segments, [*(one.base_offset for one in segments[1:]), LONG_MAX], strict=False):
        path = partition.file(files.log)
        bad = {one.place.position for one in Segment(path, bounded=False).runs() if isinstance(one, Damage)}
        ranges = _ranges(kept, files.log)
        with ReadOnlyFile(path) as log:
            for header in walk_headers(log):
                if isinstance(header, Damage) or header.last_offset >= next_base:
                    break
                if header.position not in bad and _is_in(header.position, ranges):
                    yield header


def served_log(partition: Partition, cluster: ClusterMetadata | None) -> ServedLog | None:
    """Return the log that is served; None for a compacted one whose cleaner's progress is unknown."""
    policy = "" if cluster is None else cluster.topic_config(partition.topic or "").get("cleanup.policy", "")
    if partition.cleaner_offset is None and "compact" in policy:
        return None
    return ServedLog(partition, partition.cleaner_offset or 0)


def _identity(batch: BatchFacts | None) -> tuple[int, int, int, int] | None:
    return None if batch is None else (batch.base_offset, batch.last_offset, batch.crc, batch.size)


def tally_records(
    partition: Partition,
    own: OffsetSpan,
    served: OffsetSpan,
    pieces: Pieces | None = None,
    unserved: FileRange | None = None,
    twin: Twin | None = None,
) -> RecordTally:
    """Count the records in *own*, and the lost ones: from its start on, those outside of *served*.

    *pieces*: the part of the logs that recovery keeps, None: all.  The part that it cuts is lost, whatever its offsets,
    and so is *unserved*, the end of a log.  *twin*: the log that is served; batches that it does not have are lost.
    Segments from the end of a copy on are not read.
    Raises UnreadableError.
    """
    kept = _kept(pieces)
    tally = RecordTally()
    for files in partition.segments:
        ranges = _ranges(kept, files.log)
        if unserved is not None and unserved.name == files.log:
            whole = [(0, unserved.end)] if ranges is None else ranges
            ranges = [(start, min(end, unserved.start)) for start, end in whole]
        if files.size and not (isinstance(twin, CopiedLog) and files.base_offset >= twin.span.end):
            segment = Segment(partition.file(files.log), bounded=False)
            tally = _segment(segment, own, served, ranges, tally, twin and (twin, files))
    return tally


def _segment(
    segment: Segment,
    own: OffsetSpan,
    served: OffsetSpan,
    ranges: Sequence[tuple[int, int]] | None,
    before: RecordTally,
    twin: tuple[Twin, SegmentFiles] | None,
) -> RecordTally:
    tally, has = before, _has(twin)
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


def _has(twin: tuple[Twin, SegmentFiles] | None) -> Callable[[BatchFacts], bool]:
    return (lambda _: True) if twin is None else twin[0].has(twin[1])


def _needs_records(batch: BatchFacts, own: OffsetSpan, served: OffsetSpan) -> bool:
    """Whether the header alone does not show how many records count."""
    if batch.magic < 2 and batch.attributes & CODEC_BITS:
        return True
    return any(not (span.contains(batch) or span.misses(batch)) for span in (own, served))


def _kept(pieces: Pieces | None) -> list[FileRange] | None:
    return None if pieces is None else [piece for one in pieces.values() for piece in one]


def _ranges(kept: Sequence[FileRange] | None, name: str) -> list[tuple[int, int]] | None:
    """Return the positions of the remaining parts of a log; None: all of it remains."""
    return None if kept is None else [(one.start, one.end) for one in kept if one.name == name]


def _is_in(position: int, ranges: Sequence[tuple[int, int]] | None) -> bool:
    return ranges is None or any(start <= position < end for start, end in ranges)


def _records(
    segment: Segment,
    own: OffsetSpan,
    served: OffsetSpan,
    ranges: Sequence[tuple[int, int]] | None,
    tally: RecordTally,
    twin: tuple[Twin, SegmentFiles] | None,
) -> RecordTally:
    """Do the same record by record; the bytes of a batch that is lost in part are shared out among its records."""
    has = _has(twin)
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
