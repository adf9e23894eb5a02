"""Reads a log as it will be after a repair: ranges of files, with bytes replaced."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType

from klog.errors import UnreadableError
from klog.files.read_only import ReadableLog, ReadOnlyFile
from klog.log.bit_flips import Patch
from klog.partition_plan.contents import FileRange

_LONGEST_PATCH = 8


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


class SplicedLog:
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

    def __enter__(self) -> SplicedLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
