"""What is shown of a disk, and what has to be told about it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final, Literal

from klog.fetch import Damaged, UnservedRange

End = Literal["log", "checkpoint"]
OpenTransactions = Literal["abort", "hide"]
Missing = Literal["empty", "offline", "omit"]

_MOST_LINES: Final = 1000


@dataclass(frozen=True)
class ServeOptions:
    """What clients see.

    *topics*: globs, none for all; *internal*: Kafka's own topics too.  *end*: of the log, or of what the checkpointed
    high watermark covers; *until_ms*: and nothing from the first batch on that is as late.  *open_transactions*: come
    to nothing, as they would have on a broker that waited for their timeout, or hide all behind them.  *missing*:
    what becomes of partitions that are elsewhere: shown empty, without a leader, or not at all.
    """

    topics: tuple[str, ...] = ()
    end: End = "log"
    until_ms: int | None = None
    open_transactions: OpenTransactions = "abort"
    damaged: Damaged = "skip"
    missing: Missing = "empty"
    internal: bool = False


class OnceReporter:
    """Lines for people, each told once, and the sum of what was left out.  Any number of threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._told: set[str] = set()
        self.stretches = 0
        self.bytes = 0
        self.partitions: set[str] = set()

    def say(self, line: str) -> None:
        """Have *line* told, unless it was."""
        with self._lock:
            if line not in self._told and len(self._told) < _MOST_LINES:
                self._told.add(line)
                self._waiting.append(line)
                if len(self._told) == _MOST_LINES:
                    self._waiting.append("more of the like is not told any more")

    def lost(self, partition: str, loss: UnservedRange) -> None:
        """Hear of a damaged stretch that is left out."""
        with self._lock:
            self.stretches += 1
            self.bytes += loss.size
            self.partitions.add(partition)
        behind = "" if loss.after is None else f" behind offset {loss.after}"
        self.say(f"{partition}: {loss.size} bytes{behind} are left out: {loss.damage}")

    def take(self) -> list[str]:
        """Return the lines that nobody has taken yet."""
        if not self._waiting:
            return []
        with self._lock:
            lines, self._waiting = self._waiting, []
            return lines
