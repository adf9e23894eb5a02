"""File descriptors of logs that many threads read: opened at first use, idle ones closed when there are many."""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from typing import Final

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile

_MOST: Final = 4096


class _OpenLog(ReadOnlyFile):
    """Closed as soon as nothing refers to it: using it costs nothing, and each fetch does so several times."""

    _descriptor = -1

    def __del__(self) -> None:
        self.close()


class OpenFiles:
    """Open files by their paths.  The most recently used stay open, by default half as many as the process may have.

    A path that now names another file is not opened again: the known positions do not apply to it.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = _allowed() if most is None else most
        self._open: OrderedDict[str, ReadOnlyFile] = OrderedDict()
        self._identities: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def opened(self, path: str) -> ReadOnlyFile:
        """Return the file at *path*, which stays open as long as something refers to it; callers do not close it.

        Raises UnreadableError, NotKafkaError.
        """
        found = self._open.get(path)
        if found is None:
            return self._newly_opened(path)
        try:
            self._open.move_to_end(path)
        except KeyError:  # it was closed just now
            pass
        return found

    def _newly_opened(self, path: str) -> ReadOnlyFile:
        with self._lock:
            found = self._open.get(path)
            if found is None:
                found = self._open[path] = self._same(self._source(path))
                while len(self._open) > self._most:
                    self._open.popitem(last=False)
            return found

    def _source(self, path: str) -> ReadOnlyFile:
        try:
            return _OpenLog(path)
        except UnreadableError as error:
            if not is_lack(error):
                raise
        self._open.clear()  # connections use the other descriptors
        return _OpenLog(path)

    def _same(self, source: ReadOnlyFile) -> ReadOnlyFile:
        identity = source.identity()
        if self._identities.setdefault(source.path, identity) != identity:
            raise UnreadableError(f"{source.path}: it is another file now")
        return source

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """Close the files that are not in use, and the others after their use."""
        with self._lock:
            self._open.clear()


def is_lack(error: Exception) -> bool:
    """Whether it is not the file that cannot be read, but this process or the system that has too much open."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def _allowed() -> int:
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if soft == resource.RLIM_INFINITY else max(1, min(soft // 2, _MOST))
