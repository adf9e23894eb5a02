"""Summarises one log from its headers, and one index: how many entries it has before its zeros."""

from __future__ import annotations

from dataclasses import dataclass

from klog.base.errors import UnsupportedError
from klog.base.read_only import ReadOnlyFile
from klog.formats.batch import CODEC_NAMES, Attributes, BatchFacts
from klog.formats.damage import Damage
from klog.formats.layout import Layout
from klog.log.header_walk import walk_headers
from klog.log.segment import Segment


@dataclass(frozen=True)
class LogSummary:
    """A summary of a log's headers.

    *records*: None if it is known only after decompressing (v0, v1).  *damaged*: the number of damaged ranges that a
    deep read found, None without a deep read; *records* then counts the intact ones.  *first_timestamp* is that of the
    first batch, *last_timestamp* the largest one.  *damage* is the damage behind the last whole entry, None for none.
    """

    size: int
    batches: int
    records: int | None
    first: BatchFacts | None
    last: BatchFacts | None
    first_timestamp: int | None
    last_timestamp: int | None
    codecs: tuple[str, ...]
    flags: tuple[str, ...]
    damage: Damage | None
    damaged: int | None


def summarize(path: str, deep: bool = False) -> LogSummary:
    """Walk a log and sum it up; with *deep*, decode every record to count them.  Raises UnreadableError."""
    first = last = damage = None
    batches = records = 0
    largest = -1
    shapes: set[tuple[int, int, bool]] = set()
    with ReadOnlyFile(path) as log:
        for found in walk_headers(log):
            if isinstance(found, Damage):
                damage = found
                continue
            first, last = first or found, found
            batches += 1
            records += max(found.records_count, 0)
            largest = max(largest, found.max_timestamp)
            shapes.add((found.magic, found.attributes, found.producer_id >= 0))
        size = log.size
    known = records if all(magic == 2 for magic, _, _ in shapes) else None
    totals = Segment(path).totals(deep=True) if deep else None
    return LogSummary(
        size=size,
        batches=batches,
        records=totals.records if totals else known,
        first=first,
        last=last,
        first_timestamp=_first_timestamp(first) if first else None,
        last_timestamp=largest if largest >= 0 else None,
        codecs=_codecs(shapes),
        flags=_flags(shapes),
        damage=damage,
        damaged=totals.damaged if totals else None,
    )


def first_offset(header: BatchFacts) -> int | None:
    """Return the offset of an entry's first record; None for a compressed one of v0 or v1, which lacks it."""
    return None if header.is_wrapper else header.base_offset


def _first_timestamp(header: BatchFacts) -> int | None:
    # With these flags the base timestamp is not that of a record.
    stands_for_all = header.attributes & (Attributes.LOG_APPEND_TIME | Attributes.DELETE_HORIZON)
    timestamp = header.max_timestamp if stands_for_all else header.base_timestamp
    return timestamp if timestamp >= 0 else None


def _codecs(shapes: set[tuple[int, int, bool]]) -> tuple[str, ...]:
    numbers = sorted({attributes & Attributes.CODEC for _, attributes, _ in shapes})
    return tuple(CODEC_NAMES[number] if number < len(CODEC_NAMES) else f"codec {number}" for number in numbers)


def _flags(shapes: set[tuple[int, int, bool]]) -> tuple[str, ...]:
    """Return words for special features of a batch: old formats, transactions, markers, LogAppendTime."""
    flags = [f"v{magic}" for magic in (0, 1) if any(shape[0] == magic for shape in shapes)]
    v2 = [(Attributes(attributes & 0xFF), produced) for magic, attributes, produced in shapes if magic == 2]
    if any(Attributes.TRANSACTIONAL in attributes for attributes, _ in v2):
        flags.append("transactional")
    if any(Attributes.CONTROL in attributes for attributes, _ in v2):
        flags.append("control")
    if any(produced and Attributes.TRANSACTIONAL not in attributes for attributes, produced in v2):
        flags.append("idempotent")
    if any(magic and attributes & Attributes.LOG_APPEND_TIME for magic, attributes, _ in shapes):
        flags.append("log-append-time")
    if any(Attributes.DELETE_HORIZON in attributes for attributes, _ in v2):
        flags.append("delete-horizon")
    return tuple(flags)


_CHUNK_BYTES = 1 << 20
_MAX_BYTES = 2**31 - 1


@dataclass(frozen=True)
class IndexSummary:
    """An index file.  *entries* are those up to the last one that is not all zeros; *zeros* is how many follow.

    *ragged_bytes*: bytes of an incomplete entry at the end.  *first* and *last*: the fields of these entries, None if
    there is no entry.
    """

    size: int
    entries: int
    zeros: int
    ragged_bytes: int
    first: tuple[int, ...] | None
    last: tuple[int, ...] | None


def summarize_index(path: str, layout: Layout) -> IndexSummary:
    """Sum up an index file of *layout*'s entries; of a preallocated one only the zeros at its end are read in full.

    Raises UnreadableError, and UnsupportedError for a size no broker can have mapped.
    """
    with ReadOnlyFile(path) as index:
        if index.size > _MAX_BYTES:
            raise UnsupportedError(f"{path}: {index.size} bytes, an index has at most {_MAX_BYTES}")
        slots = index.size // layout.size
        entries = min(-(-_end_of_content(index) // layout.size), slots)
        ends = [index.read(slot * layout.size, layout.size) for slot in (0, entries - 1)] if entries else []
        first, last = (layout.read(end) if len(end) == layout.size else None for end in ends or (b"", b""))
        return IndexSummary(index.size, entries, slots - entries, index.size % layout.size, first, last)


def _end_of_content(index: ReadOnlyFile) -> int:
    """Return the position of the zeros at the end of the file, in bytes."""
    end = index.size
    while end > 0:
        start = max(end - _CHUNK_BYTES, 0)
        content = index.read(start, end - start).rstrip(b"\0")
        if content:
            return start + len(content)
        end = start
    return 0


def entries_in_use(path: str, layout: Layout) -> int:
    """Return how many entries an index file has before its zeros.  Raises as `summarize_index` does."""
    return summarize_index(path, layout).entries
