"""The rate of a replication quota: the number of bytes sent recently, measured as in Kafka."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

WINDOW_MS: Final = 1000
"""`replica.quota.window.size.seconds`, at its default, in ms."""

WINDOWS: Final = 11
"""`replica.quota.window.num`, at its default."""


@dataclass
class QuotaWindow:
    """The bytes recorded in one window; times in ms.  Kafka: SampledStat.Sample."""

    start: int
    last_event: int
    recorded: int = 0


class ReplicationQuota:
    """Bytes sent or received against a limit in bytes a second; a limit of None is never exceeded.

    Kafka: ReplicationQuotaManager with SimpleRate, whose ring has one window more than are measured, for the one that
    the measured period cuts.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._windows: list[QuotaWindow] = []
        self._current = 0

    def record(self, size: int, now: int) -> None:
        """Count *size* bytes at the time *now*, in ms."""
        self._begin(now)
        if now - self._windows[self._current].start >= WINDOW_MS:
            self._current = (self._current + 1) % (WINDOWS + 1)
            self._windows[self._current : self._current + 1] = [QuotaWindow(now, now)]
        window = self._windows[self._current]
        window.recorded += size
        window.last_event = now

    def _begin(self, now: int) -> None:
        """Begin the first window at the first question, or the first bytes."""
        if not self._windows:
            self._windows.append(QuotaWindow(now, now))

    def rate(self, now: int) -> float:
        """Return the bytes a second at the time *now*: of the windows left, since the oldest of them began."""
        self._begin(now)
        for window in self._windows:
            if now - window.last_event >= WINDOWS * WINDOW_MS:
                window.start = window.last_event = now
                window.recorded = 0
        oldest = min(window.start for window in self._windows)
        recorded = sum(window.recorded for window in self._windows)
        return recorded * 1000 / max(now - oldest, WINDOW_MS)

    def is_exceeded(self, now: int) -> bool:
        """Whether the rate at the time *now* is above the limit."""
        return self.limit is not None and self.rate(now) > self.limit
