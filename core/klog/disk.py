"""The handful of calls that change anything on a disk."""

from __future__ import annotations

import os
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
