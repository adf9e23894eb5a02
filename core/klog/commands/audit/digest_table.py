"""The table of digests: entries of all batches in bounded memory, to find those that share their digest.

Entries that do not fit into memory are written to a file without a name, in buckets by eight bits of their digests; the
buckets are then read back one after the other.  A bucket that is still too large is split by the next bits; if equal
digests alone overflow it, a thousand entries of each log are kept, and the others counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import BinaryIO, Final

from klog.base.errors import KlogError
from klog.data_dir.disk.disk_changes import Disk
from klog.kernel import EntryList

ENTRY_BYTES: Final = 24
Entry = tuple[int, int, int, int, int]
"""Digest, log, position, CRC, tag."""
MOST_PLACES: Final = 1000
"""The limit of places of one digest in one log: further ones are counted."""
_TOP_SHIFT: Final = 56
_BITS: Final = 8
_BUCKETS: Final = 1 << _BITS
_PIECE_BYTES: Final = 1 << 20
_LEAST_FREE_BYTES: Final = 16 << 20
"""The space that is left free on the file system of the spill files."""


class SpillFile:
    """A file without a name, in the directory for temporary files, for entries in buckets; runs of all buckets.

    It stays in the page cache, since it is read soon, and then freed.      Raises KlogError when there is no room.
    """

    def __init__(self, disk: Disk) -> None:
        self._file: BinaryIO = disk.unnamed_file()
        self._runs: list[list[int]] = []
        self.bytes = 0

    def append(self, size: int, buckets: Iterable[memoryview]) -> None:
        """Append the entries of all *buckets*, *size* bytes in all."""
        facts = os.fstatvfs(self._file.fileno())
        free = facts.f_bavail * facts.f_frsize
        if free < size + _LEAST_FREE_BYTES:
            raise KlogError(
                f"no room for {size} bytes of digests in the directory of temporary files ({free} bytes are free);"
                " TMPDIR names another place, --memory keeps more in memory"
            )
        ends = [self.bytes]
        try:
            for content in buckets:
                self._file.write(content)
                ends.append(ends[-1] + len(content))
            self._file.flush()
        except OSError as error:
            raise KlogError(f"cannot write digests to a temporary file: {error.strerror}") from error
        self._runs.append(ends)
        self.bytes += size

    def pieces(self, bucket: int) -> Iterator[memoryview]:
        """Yield a bucket in pieces of whole entries; each counts until the next one."""
        piece = memoryview(bytearray(_PIECE_BYTES // ENTRY_BYTES * ENTRY_BYTES))
        for run in self._runs:
            for at in range(run[bucket], run[bucket + 1], len(piece)):
                content = piece[: run[bucket + 1] - at]
                self._fill(content, at)
                yield content

    def _fill(self, view: memoryview, at: int) -> None:
        while view:
            done = os.preadv(self._file.fileno(), [view], at)
            view, at = view[done:], at + done

    def close(self) -> None:
        """Free the space."""
        self._file.close()


class DigestTable:
    """Entries of batches, up to *memory* bytes of them in memory.

    *thinned*: by digest and log how many entries were left out, because there are `MOST_PLACES` others.  *shift*: the
    lowest of the eight bits of digests by which entries are put into buckets; the bits above them are equal.
    """

    def __init__(self, memory: int, disk: Disk | None = None, shift: int = _TOP_SHIFT) -> None:
        self._memory, self._shift = memory, shift
        self._disk = disk or Disk()
        self._rows = EntryList(max(memory // ENTRY_BYTES, 2 * MOST_PLACES))
        self._spill: SpillFile | None = None
        self._lost: Counter[tuple[int, int]] = Counter()
        self.thinned: Counter[tuple[int, int]] = Counter()

    @property
    def spilled_bytes(self) -> int:
        """How much was written to files."""
        return self._spill.bytes if self._spill is not None else 0

    def add(self, entries: bytes | memoryview) -> None:
        """Add entries.  Raises KlogError when there is no room for those that do not fit into memory."""
        at = 0
        while at < len(entries):
            at = self._rows.add(entries, at)
            if at < len(entries):
                self._make_room()

    def _make_room(self) -> None:
        if self._shift < _TOP_SHIFT:  # a bucket that does not fit: perhaps one digest fills it
            for digest, log, count in self._rows.thin(MOST_PLACES):
                self._lost[digest, log] += count
            if 2 * len(self._rows) <= self._rows.most:
                return
        if self._shift < 0:  # all bits are used: the entries have one digest
            self._rows.grow()
        else:
            self._flush()

    def _buckets(self) -> Iterator[tuple[int, int]]:
        """Put the entries into buckets; yield the numbers of the first entry of each, and of the one behind it."""
        return pairwise([0, *self._rows.arrange(self._shift)]) if self._shift >= 0 else iter([(0, len(self._rows))])

    def _flush(self) -> None:
        """Write the entries out, bucket after bucket."""
        if self._spill is None:
            self._spill = SpillFile(self._disk)
        size = len(self._rows) * ENTRY_BYTES
        self._spill.append(size, (self._rows.content(first, end) for first, end in self._buckets()))
        self._rows.clear()

    def repeated(self) -> Iterator[bytes]:
        """Yield the entries whose digest another has, by digest, log and position; all of a digest come together.

        May be called again.
        """
        self.thinned = Counter(self._lost)
        if self._spill is None:
            for first, end in self._buckets():
                yield self._rows.repeated(first, end, self._shift - _BITS)
            return
        if len(self._rows):
            self._flush()
            self._rows = EntryList(1)  # the memory is for the entries of a bucket
        for bucket in range(_BUCKETS):
            part = DigestTable(self._memory, self._disk, self._shift - _BITS)
            try:
                for piece in self._spill.pieces(bucket):
                    part.add(piece)
                yield from part.repeated()
                self.thinned += part.thinned
            finally:
                part.close()

    def close(self) -> None:
        """Free the space on the disk."""
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
