"""The handful of calls that change anything on a disk."""

from __future__ import annotations

import os
import stat
from types import TracebackType


class NewFile:
    """A file that appears under its name whole or not at all.

    Written under a temporary name beside it; `commit` syncs and renames it.  Left without a commit, it is gone.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self._temporary = f"{path}.{os.getpid()}.tmp"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.descriptor = os.open(self._temporary, flags, 0o666)

    def commit(self) -> None:
        """Sync the content, give the file its name, sync the directory.  Raises OSError."""
        os.fsync(self.descriptor)
        os.replace(self._temporary, self.path)
        self._temporary = ""
        directory = os.open(os.path.dirname(self.path) or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def __enter__(self) -> NewFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        if self._temporary:
            os.unlink(self._temporary)
            self._temporary = ""


class Room:
    """Blocks of the disk set aside ahead of a long output, which halves what writing into a file costs.

    Only for a regular file that is written from its end on, and not by others at once as far as can be seen (O_APPEND).
    Its size stays that of what has been written; `release` gives back what is left over.
    """

    STEP_BYTES = 64 << 20
    """So much is set aside at a time; an output of less than this gets nothing."""

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
        """See to it that *size* bytes more have room; where the system has no way for it, they find it themselves."""
        self._written += size
        while self._is_wanted and self._written > self._set_aside:
            self._is_wanted = _set_aside(self._descriptor, self._set_aside, self.STEP_BYTES)
            self._set_aside += self.STEP_BYTES * self._is_wanted

    def release(self) -> None:
        """Give back what has not been used, if nobody else has written meanwhile.  Raises OSError."""
        if self._set_aside > self._start and os.fstat(self._descriptor).st_size == self._written:
            os.ftruncate(self._descriptor, self._written)


def _set_aside(descriptor: int, start: int, size: int) -> bool:
    """Allocate blocks without a change of the file's size (fallocate of Linux); False where that cannot be."""
    import ctypes

    allocate = getattr(ctypes.CDLL(None), "fallocate64", None)
    keep_size = ctypes.c_int(1)
    return allocate is not None and allocate(descriptor, keep_size, ctypes.c_int64(start), ctypes.c_int64(size)) == 0
