"""The table of digests: entries of all batches in bounded memory; it returns those that share their digest.

Entries are in buckets by eight bits of their digests.  The excess is written to a file without a name, bucket after
bucket, and later read back one after the other.  A bucket that is still too large is split by the next bits; if equal
digests alone overflow it, a thousand entries of each log are kept, and the others counted.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import BinaryIO, Final

from klog.base.errors import KlogError
from klog.data_dir.disk.disk import Disk
from klog.kernel import BatchEntries, EntryList, repeated_entries

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

    Raises KlogError when there is no room.
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
                f"no room for {size} bytes of digests where temporary files go ({free} bytes are free);"
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

    def size(self, bucket: int) -> int:
        """Return how many bytes a bucket has in all runs."""
        return sum(run[bucket + 1] - run[bucket] for run in self._runs)

    def read(self, bucket: int, view: memoryview) -> None:
        """Fill *view*, which is as large, with a bucket."""
        for run in self._runs:
            size = run[bucket + 1] - run[bucket]
            self._fill(view[:size], run[bucket])
            view = view[size:]

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
        """Give the room back."""
        self._file.close()


class DigestTable:
    """Entries of batches, up to *memory* bytes of them in memory.

    *thinned*: by digest and log the number of entries that were dropped beyond `MOST_PLACES`.
    """

    def __init__(self, memory: int, disk: Disk | None = None) -> None:
        self._memory = memory
        self._disk = disk or Disk()
        self._rows = BatchEntries(max(memory // ENTRY_BYTES, MOST_PLACES))
        self._spill: SpillFile | None = None
        self._found: list[bytes] | None = None
        self.thinned: Counter[tuple[int, int]] = Counter()

    @property
    def spilled_bytes(self) -> int:
        """How much was written to files."""
        return self._spill.bytes if self._spill is not None else 0

    def add(self, entries: bytes) -> None:
        """Add entries.  Raises KlogError when there is no room for the entries that do not fit into memory."""
        self._found = None
        at = 0
        while at < len(entries):
            at = self._rows.add(entries, at)
            if at < len(entries):
                self._flush()

    def _flush(self) -> None:
        """Write the entries out, bucket after bucket."""
        if self._spill is None:
            self._spill = SpillFile(self._disk)
        self._spill.append(len(self._rows) * ENTRY_BYTES, map(self._rows.content, range(_BUCKETS)))
        self._rows.clear()

    def repeated(self) -> Iterator[bytes]:
        """Yield the entries whose digest another has, by digest, log and position; all of a digest together.

        It may be called again; a small result is kept.
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
            yield from map(self._rows.repeated, range(_BUCKETS))
            return
        if len(self._rows):
            self._flush()
        self._rows.clear(release=True)  # a bucket from the file takes its place
        kept = bytearray()
        for bucket in range(_BUCKETS):
            size = self._spill.size(bucket)
            if 2 * size > self._rows.most * ENTRY_BYTES:
                yield from self._split(self._spill.pieces(bucket))
                continue
            kept = kept if size <= len(kept) else bytearray(size)
            content = memoryview(kept)[:size]
            self._spill.read(bucket, content)
            yield repeated_entries(content)

    def _split(self, pieces: Iterable[memoryview]) -> Iterator[bytes]:
        """Yield the same of a bucket that is too large."""
        part = _LargeBucket(self._memory // 2, self._disk, _TOP_SHIFT - _BITS)
        try:
            for piece in pieces:
                part.add(piece)
            yield from part.repeated()
            self.thinned |= part.thinned
        finally:
            part.close()

    def close(self) -> None:
        """Free the space on the disk."""
        if self._spill is not None:
            self._spill.close()


class _LargeBucket:
    """The entries of a bucket that is too large for the memory: split by other bits, from *shift* on."""

    def __init__(self, memory: int, disk: Disk, shift: int) -> None:
        self._memory, self._disk, self._shift = memory, disk, shift
        self._rows = EntryList(max(memory // ENTRY_BYTES, 2 * MOST_PLACES))
        self._spill: SpillFile | None = None
        self.thinned: Counter[tuple[int, int]] = Counter()

    def add(self, entries: memoryview) -> None:
        """Take entries."""
        at = 0
        while at < len(entries):
            at = self._rows.add(entries, at)
            if at < len(entries):
                self._make_room()

    def _make_room(self) -> None:
        for digest, log, count in self._rows.thin(MOST_PLACES):
            self.thinned[digest, log] += count
        if 2 * len(self._rows) > self._rows.most:
            if self._shift < 0:  # all bits are used: the rest has one digest
                self._rows.grow()
            else:
                self._flush()

    def _flush(self) -> None:
        if self._spill is None:
            self._spill = SpillFile(self._disk)
        ends = [0, *self._rows.arrange(self._shift)]
        self._spill.append(ends[-1] * ENTRY_BYTES, (self._rows.content(*some) for some in pairwise(ends)))
        self._rows.clear()

    def repeated(self) -> Iterator[bytes]:
        """Yield the entries whose digest another has, as DigestTable does."""
        if self._spill is None:
            yield self._rows.repeated()
            return
        self._flush()
        self._rows = EntryList(1)  # its memory is the parts' now
        for bucket in range(_BUCKETS):
            part = _LargeBucket(self._memory, self._disk, self._shift - _BITS)
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
