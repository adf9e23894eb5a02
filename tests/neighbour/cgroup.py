"""A memory cgroup: processes, and the part of the page cache that they fill, within a limit; version 1 and version 2.

with MemoryCgroup(256 << 20) as room:
    subprocess.run(room.inside("klog", "verify", path))
"""

from __future__ import annotations

import itertools
import os
import time
from contextlib import suppress
from pathlib import Path

MOUNTS = Path("/sys/fs/cgroup")
_NUMBERS = itertools.count(1)
_MOVE = 'echo $$ > "$1" || exit 99; shift; exec "$@"'


class NoCgroupError(Exception):
    """No memory cgroup can be made here; the message has the reason."""


class MemoryCgroup:
    """A cgroup that may use *limit* bytes, pages of files included.  Raises NoCgroupError."""

    def __init__(self, limit: int) -> None:
        self._folder, file = MOUNTS / "memory", "memory.limit_in_bytes"
        if not (self._folder / file).exists():
            self._folder, file = MOUNTS, "memory.max"
        self._folder /= f"klog-test-{os.getpid()}-{next(_NUMBERS)}"
        try:
            if file == "memory.max":
                (MOUNTS / "cgroup.subtree_control").write_text("+memory")
            self._folder.mkdir()
            (self._folder / file).write_text(str(limit))
        except OSError as error:
            self.__exit__()
            raise NoCgroupError(f"{error.filename or self._folder / file}: {error.strerror}") from error

    def inside(self, *words: str | os.PathLike[str]) -> list[str]:
        """Return the command line that runs *words* in it."""
        return ["sh", "-c", _MOVE, "sh", str(self._folder / "cgroup.procs"), *(os.fspath(word) for word in words)]

    def was_full(self) -> bool:
        """Return whether it has reached its limit so far."""
        times = self._folder / "memory.failcnt"
        if times.exists():
            return int(times.read_text()) > 0
        events = dict(line.split() for line in (self._folder / "memory.events").read_text().splitlines())
        return int(events["max"]) > 0

    def __enter__(self) -> MemoryCgroup:
        return self

    def __exit__(self, *exc: object) -> None:
        """Remove it; its processes must have ended, which the kernel notices a moment later."""
        until = time.monotonic() + 5
        while self._folder.exists() and time.monotonic() < until:
            with suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.02)
