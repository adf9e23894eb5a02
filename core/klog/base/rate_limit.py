"""A limit in bytes a second, over all threads that share it."""

from __future__ import annotations

import time
from threading import Lock
from typing import Final

BURST_S: Final = 0.25
"""Time without use is made up for by at most so much."""


class RateLimit:
    """At most *rate* bytes a second, over all threads that share it; None: no limit.  *taken*: bytes so far."""

    def __init__(self, rate: int | None) -> None:
        self.rate, self._due, self._lock, self.taken = rate, time.monotonic(), Lock(), 0

    def take(self, size: int) -> float:
        """Count *size* bytes; return when more may be taken (monotonic seconds)."""
        with self._lock:
            self.taken += size
            if self.rate is None:
                return 0.0
            self._due = max(self._due, time.monotonic() - BURST_S) + size / self.rate
            return self._due

    def wait(self, size: int) -> None:
        """Count *size* bytes, and return when more may be taken."""
        if (left := self.take(size) - time.monotonic()) > 0:
            time.sleep(left)

    def share(self, number: int) -> RateLimit:
        """Return a limit of one of *number* equal shares."""
        return RateLimit(self.rate and max(self.rate // number, 1))

    @property
    def piece_bytes(self) -> int:
        """The most that may be taken at once; with less the limit holds at any moment."""
        return max(int((self.rate or 0) * BURST_S), 1)
