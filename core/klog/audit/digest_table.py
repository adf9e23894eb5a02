"""The table of digests: entries of all batches in bounded memory, of which those are wanted that share their digest.

What does not fit is ordered by eight bits of the digests and written to a file without a name; later one bucket after
the other is read back.  A bucket that is still too large is split by the next bits; where equal digests alone overflow
it, a thousand entries of each log are kept, and the others counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import BinaryIO, Final

from klog.disk.disk import Disk
from klog.errors import KlogError
from klog.kernel import BatchEntries

ENTRY_BYTES: Final = 24
Entry = tuple[int, int, int, int, int]
"""Digest, log, position, CRC, tag."""
MOST_PLACES: Final = 1000
"""Of one digest in one log: further places are counted."""
_TOP_SHIFT: Final = 56
_BITS: Final = 8
_PIECE_BYTES: Final = 1 << 20
_LEAST_FREE_BYTES: Final = 16 << 20
"""So much room is left on the file system of the spill files."""


class SpillFile:
    """A file without a name, in the directory for temporary files; each run in it has the buckets in order.

    Raises KlogError when there is no room.
    """

    def __init__(self, disk: Disk) -> None:
        self._file: BinaryIO = disk.unnamed_file()
        self.bytes = 0

    def append(self, content: memoryview) -> int:
        """Write *content* behind what is there; return where it begins."""
        facts = os.fstatvfs(self._file.fileno())
        free = facts.f_bavail * facts.f_frsize
        if free < len(content) + _LEAST_FREE_BYTES:
            raise KlogError(
                f"no room for {len(content)} bytes of digests where temporary files go ({free} bytes are free);"
                " TMPDIR names another place, --memory keeps more in memory"
            )
        at = self.bytes
        try:
            self._file.write(content)
            self._file.flush()
        except OSError as error:
            raise KlogError(f"cannot write digests to a temporary file: {error.strerror}") from error
        self.bytes += len(content)
        return at

    def read(self, start: int, end: int) -> Iterator[bytes]:
        """Yield the bytes from *start* to *end*, in pieces of whole entries."""
        piece = _PIECE_BYTES // ENTRY_BYTES * ENTRY_BYTES
        for at in range(start, end, piece):
            yield os.pread(self._file.fileno(), min(piece, end - at), at)

    def close(self) -> None:
        """Give the room back."""
        self._file.close()


class DigestTable:
    """Entries of batches, up to *memory* bytes of them in memory.

    *thinned*: by digest and log how many entries went, because `MOST_PLACES` others are there.  *shift*: the lowest of
    the eight bits by which a part of another table is split; None: of a whole one.
    """

    def __init__(self, memory: int, disk: Disk | None = None, shift: int | None = None) -> None:
        self._memory = memory
        self._disk = disk or Disk()
        self._rows = BatchEntries(max(memory // ENTRY_BYTES, MOST_PLACES))
        self._is_part = shift is not None
        self._shift = _TOP_SHIFT if shift is None else shift
        self._spill: SpillFile | None = None
        self._runs: list[list[int]] = []
        self._found: list[bytes] | None = None
        self.thinned: Counter[tuple[int, int]] = Counter()

    @property
    def spilled_bytes(self) -> int:
        """How much was written to files."""
        return self._spill.bytes if self._spill is not None else 0

    def add(self, entries: bytes) -> None:
        """Take entries.  Raises KlogError when there is no room for what does not fit into memory."""
        self._found = None
        at = 0
        while at < len(entries):
            at = self._rows.add(entries, at)
            if at < len(entries):
                self._make_room()

    def _make_room(self) -> None:
        if self._is_part:
            self._thin(MOST_PLACES)
            if 2 * len(self._rows) <= self._rows.most:
                return
            if self._shift < 0:  # all bits are used: what is here has one digest
                self._rows.grow()
                return
        self._flush()

    def _thin(self, most: int) -> None:
        for digest, log, count in self._rows.thin(most):
            self.thinned[digest, log] += count

    def _flush(self) -> None:
        """Write the entries out, bucket after bucket."""
        if self._spill is None:
            self._spill = SpillFile(self._disk)
        ends = self._rows.arrange(self._shift)
        start = self._spill.append(self._rows.content(0, len(self._rows)))
        self._runs.append([start, *(start + end * ENTRY_BYTES for end in ends)])
        self._rows.clear()

    def repeated(self) -> Iterator[bytes]:
        """Yield the entries whose digest another has, by digest, log and position; all of a digest come together.

        May be called again; when they are few, they are not looked for again.
        """
        if self._found is not None:
            yield from self._found
            return
        found, size = list[bytes](), 0
        for content in self._look():
            size += len(content)
            if size <= _PIECE_BYTES:
                found.append(content)
            yield content
        if size <= _PIECE_BYTES:
            self._found = found

    def _look(self) -> Iterator[bytes]:
        if self._spill is None:
            yield self._rows.repeated(self._shift)
            return
        if len(self._rows):
            self._flush()
        for bucket in range(1 << _BITS):
            extents = [(run[bucket], run[bucket + 1]) for run in self._runs if run[bucket] < run[bucket + 1]]
            if sum(end - start for start, end in extents) <= self._rows.most * ENTRY_BYTES:
                self._rows.clear()
                self._load(extents, self)
                yield self._rows.repeated(self._shift - _BITS)
            else:
                yield from self._split(extents)
        self._rows.clear()

    def _load(self, extents: list[tuple[int, int]], table: DigestTable) -> None:
        assert self._spill is not None
        for start, end in extents:
            for piece in self._spill.read(start, end):
                table.add(piece)

    def _split(self, extents: list[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the same of a bucket that is too large, in a table of its own."""
        self._rows = BatchEntries(self._rows.most)  # its memory is the part's now
        part = DigestTable(self._memory, self._disk, self._shift - _BITS)
        try:
            self._load(extents, part)
            yield from part.repeated()
            self.thinned |= part.thinned
        finally:
            part.close()

    def close(self) -> None:
        """Give back what is on the disk."""
        if self._spill is not None:
            self._spill.close()


def entries_of(content: bytes) -> Iterator[Entry]:
    """Return an iterator over entries; `batch_number` and `codec_of` read their tags."""
    from struct import iter_unpack

    return iter_unpack("=QIIII", content)


def batch_number(tag: int) -> int:
    """Return the number of a batch among the data batches of its log."""
    return tag >> 3


def codec_of(tag: int) -> int:
    """Return the codec of a batch."""
    return tag & 7
