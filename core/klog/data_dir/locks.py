"""Locks log dirs: while klog holds a lock, no broker starts there; when a broker holds it, klog stops.

Kafka: LogManager.lockLogDirs, FileLock: a POSIX lock on all of `.lock`.  Closing any descriptor of the file in this
process drops such a lock: there is only one descriptor, and `klog.data_dir.log_dir` does not test locks that are held
here.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from klog.base.errors import KlogError
from klog.base.read_only import inode_of, names_if_there
from klog.data_dir.disk.disk_changes import Disk, OpenFile
from klog.data_dir.disk.refused_outputs import own_file
from klog.data_dir.log_dir import HELD_HERE, lock_holder, lock_state
from klog.formats.names import FileKind

_ATTEMPTS = 10


class LockedError(KlogError):
    """A broker, or another klog that repairs, has the lock of the log dir."""


class Locks:
    """The locks of these log dirs, taken at once or not at all, until the block ends.

    *made*: the log dirs, as absolute paths, whose `.lock` did not exist before; it is deleted at the end.  Raises
    LockedError, and OSError if a lock file cannot be made, or a log dir does not keep its modification time.
    """

    def __init__(self, log_dirs: Sequence[str], disk: Disk) -> None:
        self._disk = disk
        self._files: dict[str, OpenFile] = {}
        self.made: set[str] = set()
        is_done = False
        try:
            # They are always in one order: no two processes then wait for each other's.
            for log_dir in sorted({os.path.abspath(log_dir) for log_dir in log_dirs}, key=os.path.realpath):
                self._take(log_dir)
            is_done = True
        finally:
            if not is_done:
                self.release(is_done=False)

    def hold(self, log_dirs: Sequence[str]) -> bool:
        """Whether these log dirs are among those that are held."""
        return all(os.path.abspath(log_dir) in self._files for log_dir in log_dirs)

    def _take(self, log_dir: str) -> None:
        path = os.path.join(log_dir, FileKind.LOCK.value)
        for _ in range(_ATTEMPTS):
            file = self._open(log_dir, path)
            is_held = False
            try:
                _lock(file, log_dir)
                # A broker that stops removes its lock file (from 3.8 on): then the lock is one of nothing.
                is_held = _is_named(file, path)
            finally:
                if not is_held:
                    os.close(file.descriptor)
            if is_held:
                self._files[log_dir] = file
                HELD_HERE.add(inode_of(os.fstat(file.descriptor)))
                return
        raise LockedError(f"a broker is starting or stopping on {log_dir}; try again when it has")

    def _open(self, log_dir: str, path: str) -> OpenFile:
        """Open the lock file; if it has to be made, the directory's modification time is restored."""
        before = os.stat(log_dir).st_mtime_ns
        if os.path.lexists(path):
            if inode_of(os.lstat(path)) in HELD_HERE:
                raise LockedError(f"{log_dir} is being changed by this process itself")
            return self._disk.open_lock(path)
        file = self._disk.open_lock(path)
        self.made.add(log_dir)
        is_kept = False
        try:
            self._keep_time(log_dir, before)
            is_kept = True
        finally:
            if not is_kept:
                os.close(file.descriptor)
                self._remove(log_dir, before)
        return file

    def _keep_time(self, log_dir: str, modified_ns: int) -> None:
        try:
            self._disk.set_directory_time(log_dir, modified_ns)
        except PermissionError:
            pass  # only its owner may: the time is not essential

    def assure(self) -> None:
        """Take each lock once more, to see whether it is still held.  Raises LockedError."""
        for log_dir, file in self._files.items():
            _lock(file, log_dir)

    def release(self, is_done: bool = True) -> None:
        """Release the locks.  Lock files that klog created are removed before that.

        *is_done*: the work under them is complete.  It then raises OSError if a log dir does not keep its time.
        """
        try:
            for log_dir in self._files:
                if log_dir in self.made:
                    self._leave(log_dir, is_done)
        finally:
            for file in self._files.values():
                HELD_HERE.discard(inode_of(os.fstat(file.descriptor)))
                os.close(file.descriptor)
            self._files = {}

    def _leave(self, log_dir: str, is_done: bool) -> None:
        try:
            self._remove(log_dir, os.stat(log_dir).st_mtime_ns)
        except OSError as error:
            if is_done:
                why = f"{error.strerror}; all that was asked is done, but the directory has a new modification time"
                raise OSError(error.errno, why, log_dir) from error

    def _remove(self, log_dir: str, modified_ns: int) -> None:
        """Remove a lock file; the log dir then has this time.  Raises OSError."""
        try:
            self._disk.unlink(os.path.join(log_dir, FileKind.LOCK.value))
        except OSError:
            return  # it is empty: brokers before 3.8 always leave theirs
        self._keep_time(log_dir, modified_ns)

    def __enter__(self) -> Locks:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.release(is_done=kind is None)


def _lock(file: OpenFile, log_dir: str) -> None:
    import fcntl

    try:
        fcntl.lockf(file.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError) as error:
        lock = lock_holder(file.descriptor)
        what = "wait until it has ended" if lock.is_klog else "stop it first"
        raise LockedError(f"{lock.of(log_dir)}; {what}, nothing was changed") from error


def check_closed(directories: Iterable[str]) -> None:
    """Raise LockedError when another process has files open in one of these partitions without a lock.

    No lock guards a partition that is a link to another place, or that is outside of a log dir.  Processes that the
    system does not show (other users', systems without /proc) are not found.
    """
    files: dict[tuple[int, int], str] = {}
    sign = functools.cache(own_file)
    for directory in directories:
        is_link = os.path.islink(directory)
        log_dir = os.path.dirname(os.path.realpath(directory) if is_link else os.path.abspath(directory))
        if not is_link and sign(log_dir):
            continue
        if is_link:
            lock = lock_state(os.path.join(log_dir, FileKind.LOCK.value))
            if lock.held:
                raise LockedError(f"{lock.of(log_dir)}, where {directory} leads; nothing was changed")
        for name in names_if_there(directory):
            path = os.path.join(directory, name)
            with suppress(OSError):  # a link to nothing is open nowhere
                files[inode_of(os.stat(path))] = path
    for pid, inode in _open_files() if files else ():
        if inode in files and pid != os.getpid():
            raise LockedError(f"{files[inode]}: process {pid} has it open; stop it first, nothing was changed")


def _open_files() -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield the files that processes have open: a process's id, and the file's device and inode."""
    for pid in filter(str.isdigit, names_if_there("/proc")):
        descriptors: list[str] = []
        with suppress(OSError):  # another user's process does not show its files
            descriptors = names_if_there(f"/proc/{pid}/fd")
        for descriptor in descriptors:
            try:
                yield int(pid), inode_of(os.stat(f"/proc/{pid}/fd/{descriptor}"))
            except OSError:
                continue  # closed since


def _is_named(file: OpenFile, path: str) -> bool:
    """Whether the open file is still the one with its name."""
    try:
        return inode_of(os.lstat(path)) == inode_of(os.fstat(file.descriptor))
    except FileNotFoundError:
        return False
