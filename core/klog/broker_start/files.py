"""The files of a partition as a broker's start changes them, in memory: nothing here touches a disk.

A file that will be there afterwards is either one that is there now, perhaps cut or under another name (`Stored`), or
a new one (`Made`).
"""

from __future__ import annotations

import os
from typing import NamedTuple

from klog.files.read_only import Source
from klog.formats.index import ABORTED_TXN, OFFSET_ENTRY


class ReadSettings(NamedTuple):
    """What of a broker's settings decides about indexes, and with how many threads a large log is read.

    *interval*: index.interval.bytes; *index_bytes*: segment.index.bytes.
    """

    interval: int = 4096
    index_bytes: int = 10 << 20
    jobs: int = 1


class FailsError(Exception):
    """The broker would not come through the start: an exception that ends it or takes the log dir offline."""


class Piece(NamedTuple):
    """Bytes *start* to *end* of a file of the partition's directory."""

    name: str
    start: int
    end: int


class Stored(NamedTuple):
    """The first *size* bytes of a file of the partition's directory."""

    name: str
    size: int


Content = Stored | bytes
"""What a small file is going to be."""


class Segment:
    """A segment on the way through a start.

    *log*: the pieces of which its log consists; one, but for the parts of a segment that was split.  *next_offset*:
    None until it is known.  *is_open*: its offset index was read, so that a clean stop trims it.
    """

    def __init__(self, base: int, log: tuple[Piece, ...]) -> None:
        self.base = base
        self.log = log
        self.offset_index: Content | None = None
        self.time_index: Content | None = None
        self.txn_index: Content | None = None
        self.next_offset: int | None = None
        self.is_open = False

    @property
    def size(self) -> int:
        """Bytes of the log."""
        return sum(piece.end - piece.start for piece in self.log)


def index_floor(folder: str, index: Content | None, base: int, offset: int) -> tuple[int, int]:
    """Return the entry of an offset index with the greatest offset up to *offset*: (offset, position).

    As a broker finds it, by a search that trusts the order.  Without one: (base, 0).  Kafka: OffsetIndex.lookup.
    """
    if not isinstance(index, Stored):
        return base, 0  # one that was just made leads to where a walk from the start leads
    from klog.lookup.entries import Entries

    entries = Entries(os.path.join(folder, index.name), OFFSET_ENTRY, lambda entry: True)
    try:
        slot = entries.floor(offset - base).slot
        if slot < 0:
            return base, 0
        relative, position = entries[slot]
        return base + relative, position
    finally:
        entries.close()


def index_last_offset(folder: str, index: Content | None, base: int) -> int:
    """Return the offset of the last entry of an offset index, zeros or not; the base without one."""
    content = tail(folder, index, OFFSET_ENTRY.size)
    return base + OFFSET_ENTRY.read(content)[0] if content else base


def tail(folder: str, content: Content | None, entry_bytes: int) -> bytes:
    """Return the last whole entry of an index; nothing when it has none."""
    size = content_size(content)
    whole = size - size % entry_bytes
    if not whole:
        return b""
    if isinstance(content, bytes):
        return content[whole - entry_bytes : whole]
    assert content is not None
    with Source(os.path.join(folder, content.name)) as source:
        return source.read(whole - entry_bytes, entry_bytes)


def content_size(content: Content | None) -> int:
    """Return how many bytes there are."""
    if content is None:
        return 0
    return content.size if isinstance(content, Stored) else len(content)


def txn_entries(folder: str, content: Content | None) -> list[tuple[int, ...]]:
    """Return the whole entries of a transaction index."""
    if content is None:
        return []
    if isinstance(content, Stored):
        with Source(os.path.join(folder, content.name)) as source:
            content = source.read(0, content.size - content.size % ABORTED_TXN.size)
    return list(ABORTED_TXN.read_all(content))
