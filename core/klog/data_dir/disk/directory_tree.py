"""Makes and removes directories, writes files, gives them second names, and names the place of a full file system.

`GrowingFiles` are new files that grow side by side, any number of them, only some of which are open at a time.
`FencedDisk` is a disk for work that may be abandoned while it runs.
"""

from __future__ import annotations

import errno
import os
import stat
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeGuard

from klog.data_dir.disk.disk_changes import Disk, OpenFile

_PIECE = 1 << 18
_NO_LINKS = (errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS)
_FULL = (errno.ENOSPC, errno.EDQUOT)


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
    """Remove a directory and its content, if it exists.  Raises OSError."""
    if not os.path.isdir(path) or os.path.islink(path):
        return
    for folder, directories, files in os.walk(path, topdown=False, onerror=_refuse):
        for name in files:
            disk.unlink(os.path.join(folder, name))
        for name in directories:
            inside = os.path.join(folder, name)
            disk.unlink(inside) if os.path.islink(inside) else disk.remove_directory(inside)
    disk.remove_directory(path)


def _refuse(error: OSError) -> None:
    raise error


def remove_emptied(path: str, files: Iterable[str], disk: Disk) -> None:
    """Remove these *files* below a directory, and the directories down to them that are empty then.  Raises OSError."""
    if os.path.islink(path) or not os.path.isdir(path):
        return
    directories = {path}
    for file in files:
        if os.path.lexists(os.path.join(path, file)):
            disk.unlink(os.path.join(path, file))
        while file := os.path.dirname(file):
            directories.add(os.path.join(path, file))
    remove_made(list(directories), disk)


def remove_made(directories: Sequence[str], disk: Disk) -> None:
    """Remove those of *directories* that are empty.  Raises OSError."""
    for directory in sorted(directories, key=len, reverse=True):
        if os.path.isdir(directory) and not os.listdir(directory):
            disk.remove_directory(directory)


def write_file(path: str, content: Iterable[bytes | bytearray | memoryview], disk: Disk) -> str:
    """Make a new file with *content*; return its path.  Raises OSError; the file is then removed."""
    with disk.whole_file(path) as file:
        for piece in content:
            disk.write(file, piece)
    return path


def link(source: str, target: str, disk: Disk) -> bool:
    """Give *source* a second name; False if the file system, or this user, has no way for it."""
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
    with disk.closing(disk.create(target)) as file:
        disk.copy(source, 0, status.st_size, file)
        disk.copy_attributes(source, file)
        disk.set_metadata(file, stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns)


def nearest_directory(path: str) -> str:
    """Return the directory *path*, which is absolute, or the nearest above it that is there."""
    assert os.path.isabs(path), path
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def device_of(path: str) -> int:
    """Return the file system on which *path* is, or is going to be."""
    return os.stat(path if os.path.exists(path) else nearest_directory(path)).st_dev


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


def is_full(error: BaseException | None) -> TypeGuard[OSError]:
    """Whether a file system has refused something for lack of space, and the file is known."""
    return isinstance(error, OSError) and error.errno in _FULL and error.filename is not None


def full_disk(error: OSError, place: str, disk: Disk, standing: str) -> OSError:
    """Return *error* as one that names *place*, the free space there, and the state of the work: *standing*.

    Call this after removing staged files there.  Raises OSError.
    """
    number = error.errno or errno.ENOSPC
    room = ""
    if number == errno.ENOSPC:  # a file system does not report quotas
        room = f", {disk.free_bytes(nearest_directory(os.path.abspath(place)))} bytes are free"
    return OSError(number, f"{os.strerror(number)}{room}; {standing}", place)


@contextmanager
def naming(place: str, disk: Disk, standing: str) -> Iterator[None]:
    """Make the error of a full file system in the block name *place*, as `full_disk` does.  Raises OSError."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise full_disk(error, place, disk, standing) from error
        raise


_MOST_OPEN = 128


class GrowingFiles:
    """Appends to files by their paths.  All calls raise OSError; call `close_all` at the end, also after an error."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._open: OrderedDict[str, OpenFile] = OrderedDict()

    def create(self, path: str) -> None:
        """Make a new file; it must not be there yet."""
        self._keep(path, self._disk.create(path))

    def write(self, path: str, data: bytes | memoryview) -> None:
        """Append *data* to a file that is there."""
        file = self._open.get(path)
        if file is None:
            file = self._keep(path, self._disk.open_end(path))
        else:
            self._open.move_to_end(path)
        self._disk.write(file, data)

    def _keep(self, path: str, file: OpenFile) -> OpenFile:
        self._open[path] = file
        if len(self._open) > _MOST_OPEN:
            self._disk.close(self._open.popitem(last=False)[1])
        return file

    def close(self, path: str) -> None:
        """Close a file, if it is open: nothing will be appended to it for a while."""
        file = self._open.pop(path, None)
        if file is not None:
            self._disk.close(file)

    def close_all(self) -> None:
        """Close all files."""
        while self._open:
            self._disk.close(self._open.popitem()[1])


class FencedDisk(Disk):
    """A disk for work that may be abandoned while it runs: directories are created only inside *fence*, which is not
    created.

    Otherwise a task that is still running would create directories again that others have removed. *shared*: new files
    get the permissions that the umask allows.
    """

    def __init__(self, fence: str, *, shared: bool = False) -> None:
        self._inside = os.path.join(fence, "")
        if shared:
            self.file_mode, self.directory_mode = 0o666, 0o777

    def make_directory(self, path: str, like: str | None = None) -> None:
        """Make a directory; FileNotFoundError for one that is not inside of the fence."""
        if not path.startswith(self._inside):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        super().make_directory(path, like)
