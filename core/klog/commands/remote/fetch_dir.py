"""The directory that a fetch fills: a log dir of klog's own, which an interrupted fetch can be continued in.

`klog-fetch.jsonl` in it lists the segments that are there with all of their files, on the disk: a line for each, behind
one about the fetch itself.  Everything else is removed when a fetch goes on.  It is deleted at the end, after
`meta.properties` was written: until then no broker takes the directory for a log dir.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from sys import intern
from typing import Any, Final

from klog.base.errors import KlogError, UsageError
from klog.base.read_only import ReadOnlyFile, normalized
from klog.change.plan.model import TEMPORARY
from klog.commands.remote.fetch_options import CopiedSegment
from klog.data_dir.disk.directory_tree import make_directories, naming, remove_made, remove_tree, write_file
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.disk.refused_outputs import check_directory
from klog.data_dir.locks import Locks
from klog.formats.names import NUMBERED, SEGMENT_KINDS, FileKind, Stage, file_name, parse_file

JOURNAL: Final = "klog-fetch.jsonl"
_PIECE_BYTES: Final = 64 << 10
_STANDING: Final = "the segments fetched so far are kept; make room, and run the command again"
_IN_USE: Final = (FileKind.LOCK.value, JOURNAL)


class FetchDir:
    """The directory at *path*, under its lock.

    *done*: the segments that are there with all of their files, by folder and base offset.  *now_ms*: when the first
    run began.
    """

    def __init__(self, path: str, disk: Disk, now_ms: int) -> None:
        self.path, self._disk, self.now_ms = path, disk, now_ms
        self.done: dict[str, dict[int, CopiedSegment]] = {}

    @property
    def _journal(self) -> str:
        return os.path.join(self.path, JOURNAL)

    # the beginning

    def begin(self, asked: Mapping[str, Any]) -> None:
        """Begin, or go on.  *asked*: what is fetched.  Raises UsageError if the directory has the beginning of another
        fetch, OSError."""
        lines = self._read()
        if first := next(lines, None):
            if first.get("fetch") != asked:
                raise UsageError(f"--to {self.path}: has an unfinished fetch of something else; name another directory")
            self.now_ms = first["now_ms"]
            for one in map(_segment, lines):
                if one is not None and self._is_there(one):
                    self._add(one)
        self._write({"fetch": asked, "now_ms": self.now_ms})
        self._clear()

    def _add(self, one: CopiedSegment) -> None:
        self.done.setdefault(one.folder, {})[one.base] = one

    def _read(self) -> Iterator[dict[str, Any]]:
        """Yield the lines of the journal, up to one that was not written to its end."""
        if not os.path.lexists(self._journal):
            return
        with ReadOnlyFile(self._journal) as file:
            rest = b""
            for position in range(0, file.size, _PIECE_BYTES):
                *lines, rest = (rest + file.read(position, _PIECE_BYTES)).split(b"\n")
                for line in lines:
                    try:
                        yield json.loads(line)
                    except ValueError:
                        return

    def _is_there(self, one: CopiedSegment) -> bool:
        try:
            return os.path.getsize(os.path.join(self.path, one.folder, file_name(one.base, FileKind.LOG))) == one.size
        except OSError:
            return False

    def _write(self, first: Mapping[str, Any]) -> None:
        """Write the journal anew: its first line, and a line for each segment that is there."""
        temporary = f"{self._journal}{TEMPORARY}"
        if os.path.lexists(temporary):
            self._disk.unlink(temporary)
        lines = (one._asdict() for segments in self.done.values() for one in segments.values())
        write_file(temporary, (_line(one) for one in chain([first], lines)), self._disk)
        self._disk.sync([temporary])
        self._disk.rename(temporary, self._journal)
        self._disk.sync([self.path])

    def _clear(self, folder: str = "") -> bool:
        """Remove all but the segments that are there, with their indexes; return whether anything remains."""
        path = os.path.join(self.path, folder)
        is_own = self._is_own(self.done.get(folder, {})) if folder else _IN_USE.__contains__
        is_left, others = False, []
        with os.scandir(path) as entries:
            for one in entries:
                if is_own(one.name):
                    is_left = True
                else:
                    others.append((one.name, one.is_dir(follow_symlinks=False)))
        for name, is_directory in others:
            if not is_directory:
                self._disk.unlink(os.path.join(path, name))
            elif self._clear(os.path.join(folder, name)):
                is_left = True
            else:
                self._disk.remove_directory(os.path.join(path, name))
        return is_left

    def _is_own(self, segments: Mapping[int, CopiedSegment]) -> Callable[[str], bool]:
        """Return a function that tells whether a file of a partition is one of these segments'."""
        by_end = {one.end: one for one in segments.values()}

        def is_own(name: str) -> bool:
            _, kind, stage, offset, *_ = parse_file(name)
            if kind not in NUMBERED or stage is not Stage.IN_USE or offset is None:
                return False
            one = by_end.get(offset) if kind is FileKind.SNAPSHOT else segments.get(offset)
            return one is not None and kind.value not in one.lacks

        return is_own

    # segments

    def folder(self, name: str) -> str:
        """Return the path of a partition's directory, which is made if it is missing.  Raises OSError."""
        path = os.path.join(self.path, name)
        make_directories(path, self._disk)
        return path

    def keep(self, segments: Sequence[CopiedSegment]) -> None:
        """Return when all files of these segments are on the disk, and listed.  Raises OSError."""
        paths: list[str] = []
        for one in segments:
            offsets = [(one.base, kind) for kind in SEGMENT_KINDS] + [(one.end, FileKind.SNAPSHOT)]
            names = (os.path.join(self.path, one.folder, file_name(*named)) for named in offsets)
            paths += filter(os.path.lexists, names)
        for folder in dict.fromkeys(one.folder for one in segments):
            path = os.path.join(self.path, folder)
            while path != self.path:
                paths.append(path)
                path = os.path.dirname(path)
        self._disk.sync([*paths, self.path])
        file = self._disk.open_end(self._journal)
        try:
            self._disk.write(file, b"".join(_line(one._asdict()) for one in segments))
        finally:
            self._disk.close(file)
        self._disk.sync([self._journal])
        for one in segments:
            self._add(one)

    def put(self, name: str, content: bytes) -> str:
        """Give a small file this content; return its path, which is not on the disk yet.  Raises OSError."""
        path = os.path.join(self.path, name)
        if os.path.lexists(path):
            self._disk.unlink(path)
        return write_file(path, [content], self._disk)

    def finish(self, written: Sequence[str]) -> None:
        """Return when the files *written*, and their names, are on the disk, and the fetch is over.  Raises OSError."""
        folders = {os.path.dirname(path) for path in written}
        self._disk.sync([*written, *sorted(folders | {os.path.dirname(path) for path in folders} | {self.path})])
        self._disk.unlink(self._journal)
        self._disk.sync([self.path])

    def remove(self) -> None:
        """Remove everything.  Raises OSError."""
        for name in os.listdir(self.path):
            path = os.path.join(self.path, name)
            if os.path.isdir(path):
                remove_tree(path, self._disk)
            elif name != FileKind.LOCK.value:
                self._disk.unlink(path)


def _line(found: Mapping[str, Any]) -> bytes:
    return json.dumps(found).encode() + b"\n"


def _segment(found: dict[str, Any]) -> CopiedSegment | None:
    try:
        return CopiedSegment(**found)._replace(folder=intern(found["folder"]), lacks=tuple(found["lacks"]))
    except (TypeError, KeyError):
        return None


def check_place(path: str, inputs: Sequence[str]) -> str:
    """Return the absolute path of the directory that a fetch may fill.  *inputs*: what is read.

    Raises UsageError for a place that is not empty, or in a log dir or a tier.
    """
    path = os.path.abspath(normalized(path))
    is_resumed = os.path.lexists(os.path.join(path, JOURNAL))
    check_directory(path, inputs, is_ours=is_resumed)
    for one in inputs:
        if os.path.isdir(one) and os.path.realpath(path).startswith(os.path.join(os.path.realpath(one), "")):
            raise UsageError(f"--to {path}: lies in {one}, which is only read; give a path outside of it")
    if os.path.lexists(path) and not os.path.isdir(path):
        raise UsageError(f"--to {path}: is no directory")
    if os.path.isdir(path) and not is_resumed:
        others = set(os.listdir(path)) - {FileKind.LOCK.value, f"{JOURNAL}{TEMPORARY}"}
        if others:
            raise UsageError(f"--to {path}: exists, and is neither an empty directory nor an unfinished fetch")
    return path


@contextmanager
def fetch_dir(path: str, disk: Disk, now_ms: int) -> Iterator[FetchDir]:
    """Yield the directory of a fetch, whose place was checked; it is made if it is missing.

    Raises LockedError, OSError.
    """
    with naming(path, disk, _STANDING):
        made = make_directories(path, disk)
        try:
            with Locks([path], disk):
                yield FetchDir(path, disk, now_ms)
        except KlogError:
            remove_made(made, disk)
            raise
        disk.sync([os.path.dirname(one) for one in made])
