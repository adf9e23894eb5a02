"""The parts of a disk that clients see, and notes that are reported once."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final, Literal

from klog.data_dir.partition_identity import IdentityChoice
from klog.data_dir.selection import PartitionChoice
from klog.partition.fetch import Damaged, UnservedRange

End = Literal["log", "checkpoint"]
OpenTransactions = Literal["abort", "hide"]
Missing = Literal["empty", "offline", "omit"]

_MOST_LINES: Final = 1000


@dataclass(frozen=True)
class ServeOptions:
    """The part of the data that clients see.

    *topics*: globs, *numbers*: partitions, none for all; *internal*: Kafka's own topics too.  *end*: the log end, or
    the high watermark checkpoint; *until_ms*: nothing from the first batch on with this timestamp or a later one.
    *open_transactions*: treat them as aborted, as after their timeout on a broker, or hide everything behind them.
    *missing*: partitions on other disks are empty, have no leader, or are not listed.  *identity*: the log dirs and
    topics to use if several have one name.
    """

    topics: tuple[str, ...] = ()
    numbers: tuple[PartitionChoice, ...] = ()
    end: End = "log"
    until_ms: int | None = None
    open_transactions: OpenTransactions = "abort"
    damaged: Damaged = "skip"
    missing: Missing = "empty"
    internal: bool = False
    identity: IdentityChoice = IdentityChoice()  # noqa: RUF009  # immutable


class OnceReporter:
    """Reports each line once, and counts skipped parts.  Any number of threads may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[str] = []
        self._reported: set[str] = set()
        self.stretches = 0
        self.bytes = 0
        self.partitions: set[str] = set()

    def say(self, line: str) -> None:
        """Report *line*, unless it was reported before."""
        with self._lock:
            if line not in self._reported and len(self._reported) < _MOST_LINES:
                self._reported.add(line)
                self._waiting.append(line)
                if len(self._reported) == _MOST_LINES:
                    self._waiting.append("further messages of this kind are not shown")

    def lost(self, partition: str, loss: UnservedRange) -> None:
        """Note a damaged range that is skipped."""
        with self._lock:
            self.stretches += 1
            self.bytes += loss.size
            self.partitions.add(partition)
        behind = "" if loss.after is None else f" behind offset {loss.after}"
        self.say(f"{partition}: {loss.size} bytes{behind} are left out: {loss.damage}")

    def take(self) -> list[str]:
        """Return the lines since the last call."""
        if not self._waiting:
            return []
        with self._lock:
            lines, self._waiting = self._waiting, []
            return lines
