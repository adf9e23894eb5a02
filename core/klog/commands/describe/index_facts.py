"""Summarises an index file: how many entries it has before its zeros."""

from __future__ import annotations

from dataclasses import dataclass

from klog.base.errors import UnsupportedError
from klog.base.read_only import ReadOnlyFile
from klog.formats.layout import Layout

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
