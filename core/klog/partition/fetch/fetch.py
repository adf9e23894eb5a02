"""A fetch: from an offset and limits to a range of bytes in a file.

Kafka: UnifiedLog.read, LocalLog.read, LogSegment.read, FileRecords.slice; clients: CompletedFetch.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final, TypeAlias

from klog.base.errors import KlogError
from klog.base.read_only import ReadOnlyFile
from klog.formats.batch import ENTRY
from klog.formats.damage import Damage
from klog.formats.error_codes import ErrorCode
from klog.formats.index import OFFSET_ENTRY
from klog.kernel import Window
from klog.log.header_walk import header_at, read_window, walk_headers
from klog.log.index import IndexEntries
from klog.partition.fetch.fetch_answer import (
    AbortedTransaction,
    BatchExtent,
    FetchListing,
    FetchRequest,
    FetchResult,
    FileBytes,
    OffsetBounds,
    PartialBatch,
)
from klog.partition.fetch.fetched_log import CorruptError, FetchLog, FirstBatch, SegmentLog
from klog.partition.fetch.open_logs import OpenFiles
from klog.partition.fetch.read_slices import Slice
from klog.partition.fetch.verified_ranges import VerifiedRanges

_POSITION: Final = OFFSET_ENTRY.names.index("position")
_MOST_LEGACY_BYTES: Final = 4 << 20
"""The size limit of an answer from a log with old formats, all of which is checked for a change of format."""


def fetch(log: FetchLog, bounds: OffsetBounds, request: FetchRequest) -> FetchResult:
    """Return the answer to *request*; no content of the disk raises an error."""
    offset = request.offset
    if not bounds.log_start_offset <= offset <= bounds.log_end_offset:
        return _failed(ErrorCode.OFFSET_OUT_OF_RANGE)
    try:
        readable = offset < min(request.up_to, bounds.log_end_offset)
        first = log.first(offset, max(request.max_bytes, 1)) if readable else None
        return _nothing(bounds, offset) if first is None else _handed(log, bounds, request, first)
    except CorruptError:
        return _failed(ErrorCode.CORRUPT_MESSAGE)
    except KlogError as error:
        log.problem(str(error))
        return _failed(ErrorCode.KAFKA_STORAGE_ERROR)


def _failed(error: ErrorCode) -> FetchResult:
    return FetchResult(error, -1, -1, -1)


def _nothing(bounds: OffsetBounds, offset: int) -> FetchResult:
    _, _, high, stable = bounds
    return FetchResult(ErrorCode.NONE, high, stable, bounds.log_start_offset, next_offset=offset)


def _handed(log: FetchLog, bounds: OffsetBounds, request: FetchRequest, first: FirstBatch) -> FetchResult:
    """Return the batches from *first* on, within the limits."""
    start, size, limit = first.position, first.size, first.end
    if request.up_to < log.end:  # the whole batch with the first invisible offset is withheld
        number, position = log.edge(request.up_to)
        limit = limit if number > first.number else min(limit, position) if number == first.number else start
    most = max(request.max_bytes, size) if request.at_least_one else request.max_bytes
    if start >= limit or most < size:
        return _nothing(bounds, request.offset)  # from version 3 on the first batch is never cut
    segment, following = log.segments[first.number], None
    end = min(start + most, limit)
    if end == limit or not request.partial:
        end, following, known = _whole(log, segment, first, end)
        log.remember(following, first, end, known)
    piece = FileBytes(segment.path, start, end - start)
    aborted = () if request.aborted is None else _aborted(log, request, first.number, end, following)
    start_offset, _, high, stable = bounds
    return FetchResult(ErrorCode.NONE, high, stable, start_offset, (piece,), aborted, following)


# ---------------------------------------------------------------- whole batches


_Whole: TypeAlias = "tuple[int, int, Slice | None]"
"""The end of the last batch that ends at or before some byte, the offset after it, and its slice, if any."""


def _whole(log: FetchLog, segment: SegmentLog, first: FirstBatch, limit: int) -> _Whole:
    """Return where to end at byte *limit* at most."""
    end, known = first.position + first.size, first.known
    if end >= limit:
        return end, first.last_offset + 1, known
    if known is not None and limit <= known.ends[-1]:
        return *known.whole(limit), known
    source = log.files.opened(segment.path)
    if segment.sound is None:
        return *_scanned(log, segment, source, first, limit), None
    return _sliced(segment.sound, source, first, limit)


def _sliced(sound: VerifiedRanges, source: ReadOnlyFile, first: FirstBatch, limit: int) -> _Whole:
    """Do as `_whole` where all up to *limit* is known to be intact.  Raises UnreadableError."""
    end = first.position + first.size
    if first.magic < 2:
        return _of_one_format(sound, source, first, max(min(limit, first.position + _MOST_LEGACY_BYTES), end))
    last = sound.slice_at(source, limit - 1)
    if last is not None and limit < last.ends[0]:
        last = sound.slice_at(source, last.start - 1)
    return (end, first.last_offset + 1, None) if last is None else (*last.whole(limit), last)


def _of_one_format(sound: VerifiedRanges, source: ReadOnlyFile, first: FirstBatch, limit: int) -> _Whole:
    """Do as `_whole`, but end at a change of format: some clients cannot read on."""
    end, following, known = first.position + first.size, first.last_offset + 1, first.known
    while end < limit:
        known = sound.slice_at(source, end)
        if known is None or known.magic != first.magic or limit < end + known.batch(end)[0]:
            break
        end, following = known.whole(limit)
    return end, following, known


def _scanned(
    log: FetchLog, segment: SegmentLog, source: ReadOnlyFile, first: FirstBatch, limit: int
) -> tuple[int, int]:
    end = first.position + first.size
    if first.magic < 2:
        limit = max(min(limit, first.position + _MOST_LEGACY_BYTES), end)
        starts = [first.position]
    else:
        starts = [first.position, *_starts(segment, source, first.position, limit)]
    with log.slices.windows.borrowed() as window:
        for start in reversed(starts):
            rows = _loaded(window, source, start, limit)
            if rows and first.magic < 2:
                rows = bisect_left(range(rows), first.magic + 1, key=lambda row: window.batch(row).magic)
            if rows:
                last = window.batch(rows - 1)
                return last.position + last.size, last.last_offset + 1
    return end, first.last_offset + 1


def _loaded(window: Window, source: ReadOnlyFile, start: int, limit: int) -> int:
    """Load the log from *start* to *limit*; return how many whole batches there are, which follow each other."""
    try:
        read_window(source, window, start, limit - start)
    except OSError:
        return 0
    window.scan(0)
    return window.count


def _starts(segment: SegmentLog, source: ReadOnlyFile, after: int, limit: int) -> list[int]:
    """Return positions of batches between *after* and *limit* from which to walk to the last one, ascending."""
    found: list[int] = []
    if segment.index is not None:
        with IndexEntries(segment.index, OFFSET_ENTRY) as entries:
            slot = entries.search(limit - 1, _POSITION).slot
            found = [entries[each][1] for each in range(max(slot - 1, 0), slot + 1)]
    return [position for position in found if after < position < limit and header_at(source, position) is not None]


# ---------------------------------------------------------------- transactions


def _aborted(
    log: FetchLog, request: FetchRequest, number: int, end: int, following: int | None
) -> tuple[AbortedTransaction, ...]:
    """Return the aborted transactions that may have data in the answer, up to byte *end* of a segment.

    Kafka: LocalLog.addAbortedTransactions, which also takes the upper bound from the index.
    """
    aborted = () if request.aborted is None else request.aborted(number)
    later = bisect_left(aborted, request.offset, key=lambda txn: txn[2])
    if later == len(aborted):
        return ()
    upper = max(_upper_bound(log, number, end), following or 0)
    return tuple(AbortedTransaction(producer, first) for producer, first, _ in aborted[later:] if first < upper)


def _upper_bound(log: FetchLog, number: int, end: int) -> int:
    segment = log.segments[number]
    try:
        if segment.index is not None:
            entries = IndexEntries(log.files.opened(segment.index), OFFSET_ENTRY)
            slot = entries.upper_bound(end, _POSITION)
            relative = entries[slot][0] if slot < entries.count else 0
            if slot < entries.count and entries.unreadable is None:
                return segment.files.base_offset + relative
    except KlogError:
        pass  # otherwise up to the end of the segment: additional transactions are harmless
    behind = log.segments[number + 1 : number + 2]
    return behind[0].files.base_offset if behind else log.end


# ---------------------------------------------------------------- the end of the answer


def list_batches(files: OpenFiles, fetched: FetchResult) -> FetchListing:
    """Return the batches in the ranges of *fetched*.  Raises UnreadableError, NotKafkaError."""
    batches: list[BatchExtent] = []
    for piece in fetched.pieces:
        end = piece.position + piece.size
        source = files.opened(piece.path)
        for found in walk_headers(source, piece.position):
            if isinstance(found, Damage) or found.position + found.size > end:
                break
            batches.append(BatchExtent(found.base_offset, found.last_offset, found.position, found.size))
            if found.position + found.size == end:
                return FetchListing(tuple(batches))
        position = batches[-1].position + batches[-1].size if batches else piece.position
        head = source.read(position, min(ENTRY.size, end - position))
        told = int.from_bytes(head[:8], "big", signed=True) if len(head) >= 8 else None
        return FetchListing(tuple(batches), PartialBatch(told, end - position))
    return FetchListing()
