"""The one place where klog opens and reads a broker's files, and lists directories.

Files are read by `preadv` into the caller's memory, never through mmap: a file that shrinks, or a bad sector, kills a
process that has it mapped, while a read returns less, or an error with a position.  Nothing is locked, created or
changed; not even the access time, if the system allows that.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from klog.base.closing import Closing
from klog.base.errors import NotKafkaError, UnreadableError
from klog.base.overlays import OVERLAYS, Overlay, OverlayFile, overlay_at, overlay_file
from klog.base.page_cache import POLICY
from klog.base.readable_log import ReadableLog as ReadableLog  # most import it from here
from klog.base.unusable import UNUSABLE

if TYPE_CHECKING:
    from klog.base.bulk_reads import BulkReads


class DirectoryListing(NamedTuple):
    """The names in a directory, by kind; a link has the kind of its target.

    *sizes*: of the files whose sizes were requested, in bytes.  *others*: neither regular files nor directories: a
    pipe, a dangling link, a link to itself.
    """

    files: tuple[str, ...]
    directories: tuple[str, ...]
    others: tuple[str, ...]
    sizes: dict[str, int]


def list_directory(path: str, sized: str | None = None) -> DirectoryListing:
    """List a directory; *sized*: the suffix of the files whose sizes are returned as well.  Raises OSError."""
    if OVERLAYS and (overlay := overlay_at(path)) is not None:
        on_disk = DirectoryListing((), (), (), {}) if overlay.is_alone else _list_disk(path, sized)
        return _with_overlay(on_disk, overlay, sized)
    return _list_disk(path, sized)


def _with_overlay(found: DirectoryListing, overlay: Overlay, sized: str | None) -> DirectoryListing:
    files = {*found.files, *overlay.files} - overlay.hidden
    sizes = {name: size for name, size in found.sizes.items() if name in files}
    if sized is not None:
        sizes |= {name: file.size for name, file in overlay.files.items() if name.endswith(sized)}
    directories = {*found.directories, *overlay.directories}
    return DirectoryListing(tuple(sorted(files)), tuple(sorted(directories)), found.others, sizes)


def is_directory(path: str) -> bool:
    """Whether there is a directory at *path*, on the disk or in an overlay."""
    return os.path.isdir(path) or overlay_at(path) is not None


def _list_disk(path: str, sized: str | None) -> DirectoryListing:
    files: list[str] = []
    directories: list[str] = []
    others: list[str] = []
    sizes: dict[str, int] = {}
    with scan_directory(path) as entries:
        for entry in entries:
            name = entry.name
            try:
                if entry.is_file():
                    files.append(name)
                    if sized is not None and name.endswith(sized):
                        sizes[name] = _size(path, entry)
                elif entry.is_dir():
                    directories.append(name)
                else:
                    others.append(name)
            except OSError as error:  # a link to itself is nothing else
                if error.errno != errno.ELOOP:
                    UNUSABLE.refuse(os.path.join(path, name), error, "look at")
                others.append(name)
    return DirectoryListing(tuple(sorted(files)), tuple(sorted(directories)), tuple(sorted(others)), sizes)


def names_if_there(path: str) -> list[str]:
    """Return the names in a directory; none if there is no such directory.  Raises OSError if it refuses."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextmanager
def scan_directory(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """List a directory without changing its access time, if the system allows that.  Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NOATIME", 0))
    except PermissionError:  # O_NOATIME is for a file's owner only
        descriptor = os.open(path, flags)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


def _size(path: str, entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError as error:  # if it has vanished, opening it reports that
        UNUSABLE.refuse(os.path.join(path, entry.name), error, "look at")
        return 0


def normalized(path: str) -> str:
    """Return *path*, or its real path if `..` follows a link in it: without `..` the text would lead elsewhere."""
    if os.pardir not in path.split(os.sep):
        return path
    real = os.path.realpath(path)
    return path if os.path.realpath(os.path.abspath(path)) == real else real


def is_missing(path: str) -> bool:
    """Whether there is no such file or directory; a path that the system refuses to look up is not missing."""
    if OVERLAYS and (overlay_file(path) or overlay_at(path)):
        return False
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def inode_of(status: os.stat_result) -> tuple[int, int]:
    """Return the device and the inode of a file, which all its names share."""
    return status.st_dev, status.st_ino


_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
_NO_ATIME: int = getattr(os, "O_NOATIME", 0)


def _open(path: str) -> int:
    """Open without waiting (it may be a FIFO), and without a change of the access time if permitted."""
    try:
        return os.open(path, _FLAGS | _NO_ATIME)
    except PermissionError:
        return os.open(path, _FLAGS)  # only the owner may request O_NOATIME


class ReadOnlyFile(Closing):
    """A regular file.  *size* is its size in bytes when it was opened; it may have grown or shrunk since.

    *until*: the position up to which the caller reads, None for the end of the file.  *again*: the command reads it
    twice: it stays in the page cache.  Several threads may read at once.  Raises UnreadableError if the system refuses,
    NotKafkaError for anything that is not a regular file.  *missing_bytes*: so many should follow, but its object in
    remote storage is too short.
    """

    missing_bytes = 0
    _overlaid: ReadableLog | None = None

    def __init__(self, path: str, *, until: int | None = None, again: bool = False) -> None:
        self.path = path
        if OVERLAYS and (found := overlay_file(path)) is not None:
            self._open_overlay(found)
            return
        try:
            self._descriptor = _open(path)
        except OSError as error:
            UNUSABLE.refuse(path, error, "open")
            raise UnreadableError(f"{path}: cannot open: {error.strerror}") from error
        facts = os.fstat(self._descriptor)
        if not stat.S_ISREG(facts.st_mode):
            os.close(self._descriptor)
            self._descriptor = -1
            raise NotKafkaError(f"{path}: {_kind(facts.st_mode)}, where a regular file was expected")
        self.size = facts.st_size
        self._bulk = _bulk_reads(self._descriptor, facts, until, again) if POLICY.concerns(self.size) else None

    def _open_overlay(self, found: OverlayFile) -> None:
        self._descriptor, self._bulk = -1, None
        self._overlaid = source = found.open()
        self.path, self.size, self._modified_ms = source.path, source.size, found.modified_ms
        self.missing_bytes = getattr(source, "missing_bytes", 0)

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* with the bytes from *position* on; return how many there were: fewer only at the end of the file.

        Raises OSError (EIO …) as the system gave it.
        """
        try:
            if self._bulk is not None:
                return self._bulk.read_into(position, view)
            if self._overlaid is not None:
                return self._overlaid.read_into(position, view)
            done = os.preadv(self._descriptor, [view], position) if view else 0
            while 0 < done < len(view) and (more := os.preadv(self._descriptor, [view[done:]], position + done)):
                done += more
        except OSError as error:
            if self._overlaid is None:
                UNUSABLE.refuse(self.path, error, f"read at byte {position}")
            raise
        return done

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on; fewer only at the end of the file.

        Raises UnreadableError.
        """
        try:
            if self._bulk is not None:
                view = memoryview(bytearray(max(min(size, self.current_size() - position), 0)))
                return bytes(view[: self._bulk.read_into(position, view)])
            if self._overlaid is not None:
                return self._overlaid.read(position, size)
            data = os.pread(self._descriptor, size, position)
            while len(data) < size and (more := os.pread(self._descriptor, size - len(data), position + len(data))):
                data += more
        except OSError as error:
            UNUSABLE.refuse(self.path, error, f"read at byte {position}")
            raise UnreadableError(f"{self.path} @ {position}: cannot read: {error.strerror}") from error
        return data

    def next_data(self, position: int) -> int:
        """Return the position of the next byte, from *position* on, that is not in a hole; the size if there is none.

        The result is *position* itself if the file system does not report holes.
        """
        try:
            return os.lseek(self._descriptor, position, os.SEEK_DATA)
        except (OSError, AttributeError) as error:
            return self.size if getattr(error, "errno", None) == errno.ENXIO else position

    def current_size(self) -> int:
        """Return the size of the file now, in bytes."""
        if self._descriptor < 0:
            return self.size
        return os.lseek(self._descriptor, 0, os.SEEK_END)  # no read depends on the file position

    def fileno(self) -> int:
        """Return the descriptor, for the kernel to send from; it ends with the source.  -1 for an object."""
        return self._descriptor

    @property
    def piece_bytes(self) -> int | None:
        """The most that the kernel may read through the descriptor before it calls `passed`; None for any number."""
        return None if self._bulk is None else self._bulk.piece_bytes

    def passed(self, start: int, end: int, size: int) -> None:
        """Take note that the kernel has read *size* bytes between *start* and *end* through the descriptor."""
        if self._bulk is not None:
            self._bulk.passed(start, end, size)

    def identity(self) -> tuple[int, int]:
        """Return which file it is, whatever it is called by now: device and inode; zeros for an object."""
        if self._descriptor < 0:
            return 0, 0
        facts = os.fstat(self._descriptor)
        return inode_of(facts)

    def modified_ms(self) -> int:
        """Return when the file was last written, in ms since the epoch, rounded as a broker rounds it."""
        if self._descriptor < 0:
            return self._modified_ms
        return os.fstat(self._descriptor).st_mtime_ns // 1_000_000

    def close(self) -> None:
        """Close the file; a second time does nothing."""
        if self._overlaid is not None:
            self._overlaid.close()
        if self._descriptor >= 0:
            if self._bulk is not None:
                self._bulk.close()
            os.close(self._descriptor)
            self._descriptor = -1


def _bulk_reads(descriptor: int, status: os.stat_result, until: int | None, again: bool) -> BulkReads:
    from klog.base.bulk_reads import BulkReads

    return BulkReads(descriptor, status, until, again=again)


def _kind(mode: int) -> str:
    for test, name in (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a character device"),
        (stat.S_ISBLK, "a block device"),
    ):
        if test(mode):
            return name
    return "something"
