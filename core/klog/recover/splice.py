"""A log put together from pieces of files, with bytes put right, as if it were a file already."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Mapping, Sequence

from klog.bits import Patch
from klog.recover.broker_files import Piece
from klog.source import Source


class Spliced(Source):
    """What *pieces* of files in *folder* come to, one behind the other; *patches*: of each file, by its name.

    Raises UnreadableError as any source does.
    """

    def __init__(self, folder: str, name: str, pieces: Sequence[Piece], patches: Mapping[str, Sequence[Patch]]) -> None:
        self.path = os.path.join(folder, name)
        self._pieces = pieces
        self._patches = patches
        self._starts = [0]
        for _, start, end in pieces:
            self._starts.append(self._starts[-1] + end - start)
        self.size = self._starts[-1]
        self._files: dict[str, Source] = {}
        for piece in pieces:
            if piece.name not in self._files:
                self._files[piece.name] = Source(os.path.join(folder, piece.name))

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* with the bytes from *position* on; return how many there were."""
        done = 0
        at = max(bisect_right(self._starts, position) - 1, 0)
        while done < len(view) and at < len(self._pieces):
            name, start, end = self._pieces[at]
            first = start + position + done - self._starts[at]
            part = view[done : done + end - first]
            count = self._files[name].read_into(first, part)
            for patch in self._patches.get(name, ()):
                _put_right(part, first, patch)
            done += count
            if count < len(part):
                break
            at += 1
        return done

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on."""
        data = bytearray(max(min(size, self.size - position), 0))
        return bytes(data[: self.read_into(position, memoryview(data))])

    def next_data(self, position: int) -> int:
        """Return *position*: holes are not looked for."""
        return position

    def close(self) -> None:
        """Close all files."""
        for file in self._files.values():
            file.close()


def _put_right(part: memoryview, position: int, patch: Patch) -> None:
    """Write what falls of *patch* into *part*, which stands at *position* of its file."""
    first, last = max(patch.position, position), min(patch.position + len(patch.new), position + len(part))
    if first < last:
        part[first - position : last - position] = patch.new[first - patch.position : last - patch.position]
