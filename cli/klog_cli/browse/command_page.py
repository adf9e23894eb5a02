"""A page with the output of another command, and the page with the keys."""

from __future__ import annotations

from collections.abc import Sequence

from klog_cli.browse.command_run import CommandRun
from klog_cli.browse.page import Page
from klog_cli.style import bad

_MOST_LINES = 100_000


class CommandPage(Page):
    """The output of a command, as on a terminal of the screen's width.

    *where*: log dir and partition, as in `paths`.
    """

    has_cursor = False

    def __init__(self, words: Sequence[str], watched: str, where: tuple[str, str]) -> None:
        super().__init__(f"klog {words[0]}", words, watched)
        self._where = where
        self._lines: list[str] = []
        self._rest = b""
        self._run = CommandRun(words)

    def load(self, columns: int) -> None:
        """Run the command and take its lines as it prints them."""
        self.status = "running; Esc cancels"
        self.changed()
        code = self._run.on_terminal(columns, self._take)
        self._lines += self._rest.decode("utf-8", "replace").splitlines()
        self._lines += [bad(one) for one in self._run.errors.decode("utf-8", "replace").splitlines()]
        self.status = "cancelled" if code < 0 else f"exit code {code}"
        if len(self._lines) >= _MOST_LINES:
            self.status = f"the first {_MOST_LINES} lines; the command prints all"
        self.changed()

    def _take(self, data: bytes) -> bool:
        *whole, self._rest = (self._rest + data).split(b"\n")
        self._lines += [line.decode("utf-8", "replace").rstrip("\r") for line in whole]
        self.changed()
        return len(self._lines) < _MOST_LINES and not self.stop.is_set()

    def leave(self) -> None:
        """End the command."""
        super().leave()
        self._run.cancel()

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, row: int, columns: int) -> str:
        """Return a line of the output."""
        return self._lines[row]

    def paths(self, row: int) -> tuple[str, str]:
        """Return the log dir and the partition that the command is about."""
        return self._where


KEYS = (
    ("enter", "go in", "Enter, double click"),
    ("out", "go out; work in progress ends", "Esc"),
    ("search", "search in this screen; n finds the next one", "/"),
    ("offset", "go to an offset; a negative one counts from the log end", "g"),
    ("time", "go to a time: 2025-06-15T15:06, 14:03, 2h", "t"),
    ("bytes", "the bytes of the batch", "b"),
    ("doctor", "what a broker does with this log dir at its next start", "d"),
    ("space", "what uses the disk, and why", "s"),
    ("verify", "check the partition, or all of the log dir", "v"),
    ("groups", "consumer groups", "G"),
    ("transactions", "transactions", "T"),
    ("timeline", "events, in order", "L"),
    ("replicas", "how the copies on several disks differ", "r"),
    ("order", "sort partitions by size, damage, age, name", "o"),
    ("copy", "copy the command below", "y"),
    ("reload", "read the screen again", "R"),
    ("leave", "quit", "q"),
)
"""The action, its meaning and its key."""


class KeysPage(Page):
    """The keys; Enter or a click does what the key does."""

    def __init__(self) -> None:
        super().__init__("keys", ("help", "browse"), ".")

    def __len__(self) -> int:
        return len(KEYS)

    def line(self, row: int, columns: int) -> str:
        """Return a key and its meaning."""
        _, meaning, key = KEYS[row]
        return f"{key:22}{meaning}"
