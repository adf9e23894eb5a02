"""New content waits here until it gets its name; and directories, which are made and emptied for it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable

from klog.digests import Digest
from klog.disk import Disk, OpenFile
from klog.plan import BACKUPS

_PIECE = 1 << 20
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)


class Staging:
    """Where new content waits: *directory*, made when it is needed; None when only digests are asked for.

    Threads may share one as long as they store under different names.
    """

    def __init__(self, directory: str | None, disk: Disk) -> None:
        self.directory = directory
        self._disk = disk

    def store(self, name: str, content: Iterable[bytes | bytearray | memoryview]) -> tuple[int, str]:
        """Stream *content* into the file *name*, over one that is there; return its size and its digest.

        Raises OSError; a file that could not be written whole is gone.
        """
        digest = Digest()
        if self.directory is None:
            for piece in in_pieces(content):
                digest.update(piece)
            return digest.size, digest.text()
        path = os.path.join(self.directory, name)
        make_directories(os.path.dirname(path), self._disk)
        self.drop(name)
        file = self._disk.create(path)
        is_whole = False
        try:
            self._write(file, content, digest)
            is_whole = True
        finally:
            self._disk.close(file)
            if not is_whole:
                self.drop(name)
        return digest.size, digest.text()

    def link(self, name: str, other: str) -> None:
        """Let what was stored as *name* be there as *other* too, over what is there: a second name, or else a copy."""
        if self.directory is None:
            return
        source, target = (os.path.join(self.directory, one) for one in (name, other))
        self.drop(other)
        link_or_copy(source, target, disk=self._disk)

    def _write(self, file: OpenFile, content: Iterable[bytes | bytearray | memoryview], digest: Digest) -> None:
        for piece in in_pieces(content):
            digest.update(piece)
            self._disk.write(file, piece)

    def drop(self, name: str) -> None:
        """Remove what was stored as *name*, if anything was."""
        if self.directory is None:
            return
        path = os.path.join(self.directory, name)
        if os.path.lexists(path):
            self._disk.unlink(path)

    def discard(self) -> None:
        """Remove all that was stored, and the directories above that are then empty: nothing will come of the plan."""
        if self.directory is not None:
            remove_tree(self.directory, self._disk)
            remove_empty(os.path.dirname(self.directory), self._disk)


def in_pieces(content: Iterable[bytes | bytearray | memoryview]) -> Iterable[bytes | bytearray | memoryview]:
    """Yield *content* in pieces that are worth a call each."""
    held = bytearray()
    for piece in content:
        if len(piece) >= _PIECE:
            if held:
                yield held
                held = bytearray()
            yield piece
            continue
        held += piece
        if len(held) >= _PIECE:
            yield held
            held = bytearray()
    if held:
        yield held


def make_directories(path: str, disk: Disk) -> list[str]:
    """Make a directory and those above it that are missing; return those that were made, the topmost first.

    Raises OSError.
    """
    missing: list[str] = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    made: list[str] = []
    for directory in reversed(missing):
        try:
            disk.make_directory(directory)
            made.append(directory)
        except FileExistsError:
            if not os.path.isdir(directory):
                raise
    return made


def remove_tree(path: str, disk: Disk) -> None:
    """Remove a directory and what is in it, if it is there.  Raises OSError."""
    if not os.path.isdir(path) or os.path.islink(path):
        return
    for folder, directories, files in os.walk(path, topdown=False):
        for name in files:
            disk.unlink(os.path.join(folder, name))
        for name in directories:
            inside = os.path.join(folder, name)
            disk.unlink(inside) if os.path.islink(inside) else disk.remove_directory(inside)
    disk.remove_directory(path)


def remove_empty(path: str, disk: Disk) -> None:
    """Remove a backup directory, and `klog-backup` above it, when there is nothing in them.  Raises OSError."""
    above = os.path.dirname(path)
    for directory in (path, *([above] if os.path.basename(above) == BACKUPS else ())):
        if not os.path.isdir(directory) or os.listdir(directory):
            return
        disk.remove_directory(directory)


def link(source: str, target: str, disk: Disk) -> bool:
    """Give *source* a second name; False where the file system, or this user, has no way for it."""
    try:
        disk.link(source, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def link_or_copy(source: str, target: str, disk: Disk) -> None:
    """Give *source* a second name, or else a copy that is like it.  Raises OSError."""
    if link(source, target, disk):
        return
    status = os.lstat(source)
    file = disk.create(target)
    try:
        disk.copy(source, 0, status.st_size, file)
        disk.set_metadata(file, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns)
    finally:
        disk.close(file)
