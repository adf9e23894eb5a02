"""Descriptors of logs that many threads read: each opened at its first use, idle ones closed when there are many."""

from __future__ import annotations

import errno
import threading
from collections import OrderedDict
from contextlib import AbstractContextManager
from typing import Final

from klog.errors import UnreadableError
from klog.source import Source

_MOST: Final = 4096


class _Open:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.users = 0


class _Use:
    """A use of a file.  A class, since there are several for each fetch, and generators take three times as long."""

    def __init__(self, files: Files, path: str) -> None:
        self._files, self._path = files, path

    def __enter__(self) -> Source:
        self._used = self._files.take(self._path)
        return self._used.source

    def __exit__(self, *exc: object) -> None:
        self._files.give_back(self._used)


class Files:
    """Open files by their paths.  At most *most* of them stay open, by default half of what the process may have.

    A path under which another file stands by now is not opened again: positions would lead astray.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = _allowed() if most is None else most
        self._open: OrderedDict[str, _Open] = OrderedDict()
        self._identities: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()

    def opened(self, path: str) -> AbstractContextManager[Source]:
        """Give the file at *path*, which stays open inside of the `with`.  Raises UnreadableError, NotKafkaError."""
        return _Use(self, path)

    def take(self, path: str) -> _Open:
        """Open a file, or use it with others; see `opened`."""
        with self._lock:
            used = self._open.get(path)
            if used is None:
                used = self._open[path] = _Open(self._same(self._source(path)))
            self._open.move_to_end(path)
            used.users += 1
            return used

    def give_back(self, used: _Open) -> None:
        """End a use."""
        with self._lock:
            used.users -= 1
            self._close_idle()

    def _source(self, path: str) -> Source:
        try:
            return Source(path)
        except UnreadableError as error:
            if not is_lack(error):
                raise
        self._close_idle(0)  # connections took what was left
        return Source(path)

    def _same(self, source: Source) -> Source:
        identity = source.identity()
        if self._identities.setdefault(source.path, identity) != identity:
            source.close()
            raise UnreadableError(f"{source.path}: another file stands there by now")
        return source

    def _close_idle(self, most: int | None = None) -> None:
        while len(self._open) > (self._most if most is None else most):
            idle = next((path for path, one in self._open.items() if not one.users), None)
            if idle is None:
                return
            self._open.pop(idle).source.close()

    def __len__(self) -> int:
        return len(self._open)

    def close(self) -> None:
        """Close what nobody uses."""
        with self._lock:
            for path, one in list(self._open.items()):
                if not one.users:
                    del self._open[path]
                    one.source.close()


def is_lack(error: Exception) -> bool:
    """Whether it is not the file that cannot be read, but this process or the system that has too much open."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def _allowed() -> int:
    import resource

    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _MOST if soft == resource.RLIM_INFINITY else max(1, min(soft // 2, _MOST))
