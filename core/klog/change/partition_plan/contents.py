"""The desired content of one file of a partition: new bytes, or ranges of existing files.

A log of ranges, with bytes replaced, is read as it will be after a repair (`SplicedLog`).
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from klog.base.closing import Closing
from klog.base.errors import UnreadableError
from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.change.plan.model import Digest
from klog.formats.batch import ENTRY, OVERHEAD
from klog.formats.index import ABORTED_TXN
from klog.kernel import DONE, MORE
from klog.log.bit_flips import Patch
from klog.log.header_walk import window_of
from klog.log.index import AbortedTxn, aborted_txns


class FileRange(NamedTuple):
    """Bytes *start* to *end* of a file of the partition's directory."""

    name: str
    start: int
    end: int


class StoredContent(NamedTuple):
    """The first *size* bytes of a file of the partition's directory."""

    name: str
    size: int


Content = StoredContent | bytes
"""The future content of a small file."""


def tail(folder: str, content: Content | None, entry_bytes: int) -> bytes:
    """Return the last whole entry of an index; nothing when it has none."""
    size = content_size(content)
    whole = size - size % entry_bytes
    if not whole:
        return b""
    if isinstance(content, bytes):
        return content[whole - entry_bytes : whole]
    assert content is not None
    with ReadOnlyFile(os.path.join(folder, content.name)) as source:
        return source.read(whole - entry_bytes, entry_bytes)


def content_size(content: Content | None) -> int:
    """Return how many bytes there are."""
    if content is None:
        return 0
    return content.size if isinstance(content, StoredContent) else len(content)


def txn_entries(folder: str, content: Content | None) -> Iterator[AbortedTxn]:
    """Yield the whole entries of a transaction index.  Raises UnreadableError."""
    if isinstance(content, StoredContent):
        with ReadOnlyFile(os.path.join(folder, content.name)) as source:
            yield from aborted_txns(source, content.size)
    elif content is not None:
        yield from map(AbortedTxn._make, ABORTED_TXN.read_all(content))


_LONGEST_PATCH = 8
_STEP_BYTES = 1 << 20


class PatchedLog:
    """A ReadableLog: the bytes of *source* after *patches*, which do not overlap.  Closes *source*."""

    def __init__(self, source: ReadableLog, patches: Iterable[Patch]) -> None:
        self.path, self.size = source.path, source.size
        self._source = source
        self._patches = sorted(patches)
        self._positions = [patch.position for patch in self._patches]

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes.  Raises OSError."""
        count = self._source.read_into(position, view)
        self._put_right(view[:count], position)
        return count

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on.  Raises UnreadableError."""
        data = self._source.read(position, size)
        if not self._patches:
            return data
        copy = bytearray(data)
        self._put_right(memoryview(copy), position)
        return bytes(copy)

    def next_data(self, position: int) -> int:
        """Return the first position at or after *position* that is not in a hole of the source."""
        return self._source.next_data(position)

    def close(self) -> None:
        """Close the source."""
        self._source.close()

    def _put_right(self, part: memoryview, position: int) -> None:
        """Apply the patches to *part*, the bytes from *position* on."""
        end = position + len(part)
        first = bisect_right(self._positions, position - _LONGEST_PATCH)
        for patch in self._patches[first : bisect_right(self._positions, end)]:
            start, stop = max(patch.position, position), min(patch.position + len(patch.new), end)
            if start < stop:
                part[start - position : stop - position] = patch.new[start - patch.position : stop - patch.position]


class DigestedLog:
    """A ReadableLog that is read from its start to its end, once, while all bytes go through *digest*.

    As with SplicedLog, a file that has shrunk is no end: `read` raises UnreadableError.
    """

    def __init__(self, source: ReadableLog, digest: Digest) -> None:
        self.path, self.size = source.path, source.size
        self._source, self._digest = source, digest

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes.  Raises UnreadableError."""
        data = self.read(position, len(view))
        view[: len(data)] = data
        return len(data)

    def read(self, position: int, size: int) -> bytes:
        """Return *size* bytes from *position* on.  Raises UnreadableError."""
        data = self._source.read(position, size)
        if len(data) < size:
            raise UnreadableError(f"{self.path} @ {position + len(data)}: the file has shrunk; run this again")
        self._digest.update(data)
        return data

    def skip(self, start: int, end: int) -> None:
        """Pass bytes that are not requested to the digest.  If they cannot be read it stays incomplete."""
        with suppress(UnreadableError):
            for at in range(start, end, _STEP_BYTES):
                self.read(at, min(_STEP_BYTES, end - at))

    def next_data(self, position: int) -> int:
        """Return *position*: holes are read, for they belong to the digest."""
        return position

    def close(self) -> None:
        """Close the source."""
        self._source.close()


class SplicedLog(Closing):
    """A ReadableLog: *pieces* of files in *folder*, one behind the other.  *patches*: of each file, by its name.

    All of these bytes are to be kept.  A file that has shrunk, or a sector that can no longer be read, is therefore
    neither the end nor damage: every way of reading raises UnreadableError.
    """

    def __init__(
        self, folder: str, name: str, pieces: Sequence[FileRange], patches: Mapping[str, Sequence[Patch]]
    ) -> None:
        self.path = os.path.join(folder, name)
        self._pieces = pieces
        self._starts = [0]
        for _, start, end in pieces:
            self._starts.append(self._starts[-1] + end - start)
        self.size = self._starts[-1]
        self._files: dict[str, PatchedLog] = {}
        try:
            for piece in pieces:
                if piece.name not in self._files:
                    source = ReadOnlyFile(os.path.join(folder, piece.name))
                    self._files[piece.name] = PatchedLog(source, patches.get(piece.name, ()))
        except BaseException:
            self.close()
            raise

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* with the bytes from *position* on; return how many there were, fewer only at the end."""
        done = 0
        at = max(bisect_right(self._starts, position) - 1, 0)
        while done < len(view) and at < len(self._pieces):
            name, start, end = self._pieces[at]
            first = start + position + done - self._starts[at]
            part = view[done : done + end - first]
            self._fill(self._files[name], first, part)
            done += len(part)
            at += 1
        return done

    def _fill(self, file: ReadableLog, position: int, part: memoryview) -> None:
        try:
            count = file.read_into(position, part)
        except OSError as error:
            raise UnreadableError(f"{file.path} @ {position}: cannot read: {error.strerror}") from error
        if count < len(part):
            raise UnreadableError(f"{file.path} @ {position + count}: the file has shrunk; run this again")

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on."""
        data = bytearray(max(min(size, self.size - position), 0))
        return bytes(data[: self.read_into(position, memoryview(data))])

    def next_data(self, position: int) -> int:
        """Return *position*: the pieces are not searched for holes."""
        return position

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()


def intact(content: Iterable[bytes], path: str) -> Iterator[bytes]:
    """Yield *content*, piece by piece.  Raises UnreadableError if it is not all whole batches whose checksums match.

    *path*: the original, which was intact a moment ago, when indexes were made of it.
    """
    rest, needed, done = bytearray(), 0, 0
    for chunk in content:
        yield chunk
        rest += chunk
        if len(rest) < needed:
            continue
        window = window_of(bytes(rest), done)
        if window.scan(0) not in (DONE, MORE) or window.check(0, window.count):
            break
        done += window.next_at
        del rest[: window.next_at]
        needed = ENTRY.read(rest)[1] + OVERHEAD if len(rest) >= ENTRY.size else 0
    if rest:
        raise UnreadableError(f"{path}: it has changed while it was read; run this again")
