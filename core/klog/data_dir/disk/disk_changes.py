"""Every call that changes something on a disk."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import BinaryIO, NamedTuple

from klog.data_dir.disk.range_copy import copy_range, share_blocks
from klog.data_dir.disk.refused_outputs import check_directory, check_output, is_stream
from klog.data_dir.disk.written_ranges import WRITTEN
from klog.kernel import begin_sync, set_aside, sync_file_system

_CREATE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE_BYTES = 1 << 18
"""For an aligned write of a MiB, Linux searches for one contiguous piece of memory, which takes three times as long."""
_MANY = 64
"""From this number of items on, one sync of the whole file system is cheaper."""
_NO_ATTRIBUTE = (errno.ENOTSUP, errno.EPERM, errno.EACCES, errno.ENODATA)


class OpenFile(NamedTuple):
    """A file open for writing, and its name, for messages."""

    descriptor: int
    path: str


class Disk:
    """The calls by which a repair changes files: each is one step that may fail, or be the last one before a power cut.

    Tests replace it by one that loses power.  All calls raise OSError with the name of the file.
    """

    file_mode, directory_mode = 0o600, 0o700
    """The modes of new files and directories: access for their owner alone."""

    def create(self, path: str) -> OpenFile:
        """Make a new file; it must not be there yet."""
        return OpenFile(os.open(path, _CREATE, self.file_mode), path)

    def open(self, path: str) -> OpenFile:
        """Open a file that is there; never through a symbolic link."""
        return OpenFile(os.open(path, _OPEN), path)

    def open_end(self, path: str) -> OpenFile:
        """Open a file that is there, to append to it; never through a symbolic link."""
        return OpenFile(os.open(path, _OPEN | os.O_APPEND), path)

    def open_lock(self, path: str) -> OpenFile:
        """Open a lock file; create an empty one if there is none."""
        return OpenFile(os.open(path, _LOCK, 0o644), path)

    def write(self, file: OpenFile, data: bytes | bytearray | memoryview) -> None:
        """Write all of *data* at the file's current position."""
        view = memoryview(data)
        with _named(file.path):
            while len(view):
                view = view[os.write(file.descriptor, view[:_WRITE_BYTES]) :]
            WRITTEN.wrote(file.descriptor, memoryview(data).nbytes)

    def copy(self, source: str, start: int, end: int, file: OpenFile) -> None:
        """Append bytes *start* to *end* of the file *source* to a new file; holes stay holes.

        If a whole file is copied and the file system supports it, the blocks are shared.
        """
        with _opened(source, os.O_NOFOLLOW) as descriptor, _named(file.path):
            at = os.lseek(file.descriptor, 0, os.SEEK_END)
            whole = start == at == 0 and end == os.fstat(descriptor).st_size
            if not (whole and share_blocks(descriptor, file.descriptor)):
                copy_range(descriptor, start, end, file.descriptor, at)
                os.ftruncate(file.descriptor, at + end - start)
            os.lseek(file.descriptor, 0, os.SEEK_END)

    def share(self, source: str, file: OpenFile) -> bool:
        """Let a new file share the blocks of the file *source*; return False if the file system cannot."""
        with _opened(source, os.O_NOFOLLOW) as descriptor:
            return share_blocks(descriptor, file.descriptor)

    def begin_sync(self, file: OpenFile, start: int, size: int) -> None:
        """Ask the system to start writing a range to the disk, if it can: a later `sync` then waits for less."""
        begin_sync(file.descriptor, start, size)

    def truncate(self, file: OpenFile, size: int) -> None:
        """Cut the file to *size* bytes."""
        with _named(file.path):
            os.ftruncate(file.descriptor, size)

    def set_metadata(self, file: OpenFile, mode: int, uid: int, gid: int, modified_ns: int) -> None:
        """Set the file's permission bits, owner, group and modification time (ns), as far as they differ."""
        with _named(file.path):
            status = os.fstat(file.descriptor)
            if (status.st_uid, status.st_gid) != (uid, gid):
                os.fchown(file.descriptor, uid, gid)
            if stat.S_IMODE(os.fstat(file.descriptor).st_mode) != mode:
                os.fchmod(file.descriptor, mode)
            if status.st_mtime_ns != modified_ns:
                os.utime(file.descriptor, ns=(modified_ns, modified_ns))

    def copy_attributes(self, source: str, file: OpenFile) -> None:
        """Give the file the extended attributes of *source* (labels, ACLs), as far as its file system allows them.

        Call this before `set_metadata`: an ACL also changes the mode.
        """
        if not hasattr(os, "listxattr"):
            return
        for name in _attributes(source):
            try:
                os.setxattr(file.descriptor, name, os.getxattr(source, name, follow_symlinks=False))
            except OSError as error:
                if error.errno not in _NO_ATTRIBUTE:
                    error.filename = file.path
                    raise

    def close(self, file: OpenFile) -> None:
        """Close the file; this does not sync it."""
        WRITTEN.close(file.descriptor)
        os.close(file.descriptor)

    @contextmanager
    def closing(self, file: OpenFile) -> Iterator[OpenFile]:
        """Yield the file, and close it at the end of the block."""
        try:
            yield file
        finally:
            self.close(file)

    @contextmanager
    def whole_file(self, path: str) -> Iterator[OpenFile]:
        """Yield a new file, and close it at the end of the block; it is removed if the block raises."""
        file = self.create(path)
        try:
            with self.closing(file):
                yield file
        except BaseException:
            self.unlink(path)
            raise

    def sync(self, paths: Sequence[str]) -> None:
        """Return when the content and metadata of these files, and the names in these directories, are on the disk."""
        if len(paths) >= _MANY:
            # The syncs of single files below then have little to write, and each reports its own write errors.
            for path in {os.stat(path).st_dev: path for path in paths}.values():
                _sync_file_system(path)
        for path in paths:
            with _opened(path, os.O_NONBLOCK) as descriptor, _named(path):
                os.fsync(descriptor)

    def make_directory(self, path: str, like: str | None = None) -> None:
        """Make a directory; it must not exist.  It gets mode and owner of the directory *like*."""
        os.mkdir(path, self.directory_mode)
        if like is not None:
            self.make_like(path, like)

    def make_like(self, directory: str, other: str) -> bool:
        """Give a directory mode and owner of another; False if it has them."""
        wanted, status = os.stat(other), os.stat(directory)
        owner, mode = (wanted.st_uid, wanted.st_gid), stat.S_IMODE(wanted.st_mode)
        if ((status.st_uid, status.st_gid), stat.S_IMODE(status.st_mode)) == (owner, mode):
            return False
        os.chmod(directory, mode)
        if (status.st_uid, status.st_gid) != owner:
            os.chown(directory, *owner)
        return True

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(path)

    def link(self, source: str, target: str) -> None:
        """Give the file *source* a second name."""
        os.link(source, target, follow_symlinks=False)

    def rename(self, source: str, target: str) -> None:
        """Give the file *source* the name *target* instead, which may be another file's: that one loses it."""
        os.replace(source, target)

    def unlink(self, path: str) -> None:
        """Take away a file's name."""
        os.unlink(path)

    def set_directory_time(self, path: str, modified_ns: int) -> None:
        """Give a directory a modification time in ns."""
        with _named(path):  # Python leaves the name out
            os.utime(path, ns=(modified_ns, modified_ns))

    def private_directory(self) -> str:
        """Create a private directory for temporary files; raises UsageError if it would be in a log dir."""
        import tempfile

        _check_temporary()
        return tempfile.mkdtemp(prefix="klog-")

    def unnamed_file(self) -> BinaryIO:
        """Create a temporary file without a name; raises UsageError if it would be in a log dir."""
        import tempfile

        _check_temporary()
        return tempfile.TemporaryFile(prefix="klog-")

    def free_bytes(self, path: str) -> int:
        """Return how much room there is for this user on the file system of *path*."""
        return (facts := os.statvfs(path)).f_bavail * facts.f_frsize


def _check_temporary() -> None:
    """Raise UsageError if temporary files would be in a log dir; tempfile itself tests whether it may write."""
    for name in ("TMPDIR", "TEMP", "TMP"):
        if os.environ.get(name):
            check_directory(os.environ[name])


@contextmanager
def _opened(path: str, flags: int) -> Iterator[int]:
    """Open a file or a directory to read or sync it."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _named(path: str) -> Iterator[None]:
    """Put the name into errors of calls that receive only a descriptor."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or path
        raise


def _attributes(path: str) -> list[str]:
    """Return the names of a file's extended attributes; none if it cannot have any."""
    try:
        return os.listxattr(path, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_ATTRIBUTE:
            raise
        return []


def _sync_file_system(path: str) -> None:
    """Write out everything that a file system has not written yet, if there is a system call for it."""
    with _opened(path, os.O_NONBLOCK) as descriptor:
        sync_file_system(descriptor)


class NewFile:
    """A file that appears under its name only when it is complete.

    It is written under a temporary name beside it; `commit` syncs and renames it.  Without a commit it is removed. A
    pipe or a device is not replaced: the content is written into it at once. Raises UsageError, before anything is
    created, if no output may be written there (`klog.data_dir.disk.refused_outputs`).
    """

    descriptor, _temporary = -1, ""

    def __init__(self, path: str) -> None:
        check_output(path)
        self.path = path
        self._temporary = "" if is_stream(path) else f"{path}.{os.getpid()}.tmp"
        flags = os.O_WRONLY | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if self._temporary else 0)
        try:
            self.descriptor = os.open(self._temporary or path, flags, 0o666)
        except OSError:
            self._temporary = ""
            raise

    def commit(self) -> None:
        """Sync the content, give the file its name, sync the directory.  Raises OSError."""
        if not self._temporary:
            return
        os.fsync(self.descriptor)
        os.replace(self._temporary, self.path)
        self._temporary = ""
        with _opened(os.path.dirname(self.path) or ".", os.O_DIRECTORY) as directory:
            os.fsync(directory)

    def __enter__(self) -> NewFile:
        return self

    def __exit__(self, *_: object) -> None:
        if self.descriptor >= 0:
            WRITTEN.close(self.descriptor)
            os.close(self.descriptor)
            self.descriptor = -1
        if self._temporary:
            with suppress(FileNotFoundError):  # it has its name
                os.unlink(self._temporary)
            self._temporary = ""

    def __del__(self) -> None:
        with suppress(OSError):  # a signal kept the caller from entering the block, or disturbed its end
            self.__exit__()


class Scratch:
    """A directory beside all results, for the lifetime of the process: only its owner may look into it.

    Its name is in `path`.  All calls raise OSError.
    """

    def __init__(self) -> None:
        self.path = Disk().private_directory()

    def create(self, name: str) -> BinaryIO:
        """Make a new file in it, to be written."""
        return open(os.path.join(self.path, name), "xb")

    def directory(self, *names: str) -> str:
        """Make a directory in it, and those above; return its path."""
        path = os.path.join(self.path, *names)
        os.makedirs(path, exist_ok=True)
        return path

    def link(self, target: str, *names: str) -> None:
        """Make a symbolic link in it that leads to *target*."""
        os.symlink(target, os.path.join(self.path, *names))

    def remove(self) -> None:
        """Remove it with everything in it, except files that another process has open."""
        import shutil

        shutil.rmtree(self.path, ignore_errors=True)


class Preallocation:
    """Disk blocks preallocated for a long output, which halves the cost of writing it.

    It is used only for a regular file that is written from its end on, and not opened for appending (O_APPEND), since
    others may then write to it as well.  The size of the file stays that of the written part; `release` frees the rest.
    """

    STEP_BYTES = 64 << 20
    """The number of bytes that are allocated at a time; a shorter output gets none."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._start = self._set_aside = self._written = 0
        self._is_wanted = self._is_alone()
        if self._is_wanted:
            self._written = os.lseek(descriptor, 0, os.SEEK_CUR)
            self._set_aside = self._start = self._written + self.STEP_BYTES

    def _is_alone(self) -> bool:
        import fcntl

        status = os.fstat(self._descriptor)
        if not stat.S_ISREG(status.st_mode) or fcntl.fcntl(self._descriptor, fcntl.F_GETFL) & os.O_APPEND:
            return False
        return os.lseek(self._descriptor, 0, os.SEEK_CUR) == status.st_size

    def make(self, size: int) -> None:
        """Preallocate blocks for *size* more bytes, if the system supports it."""
        self._written += size
        while self._is_wanted and self._written > self._set_aside:
            self._is_wanted = set_aside(self._descriptor, self._set_aside, self.STEP_BYTES)
            self._set_aside += self.STEP_BYTES * self._is_wanted

    def release(self) -> None:
        """Free the unused blocks, unless another process has written to the file meanwhile.  Raises OSError."""
        if self._set_aside > self._start and os.fstat(self._descriptor).st_size == self._written:
            os.ftruncate(self._descriptor, self._written)
