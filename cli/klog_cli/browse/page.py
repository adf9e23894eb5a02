"""A page of `klog browse`: rows that are made when they are shown, and the command that prints the same.

A page knows nothing of Textual.  `load` and `fill` run in a thread of their own; they change the page and add one to
`version`, and the screen looks at that number.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Sequence
from typing import ClassVar

from klog.data_dir.partition import Partition

from klog_cli.control_characters import printable
from klog_cli.display import time_text
from klog_cli.layout import cut, padded


class Jump(Exception):  # noqa: N818  # a result, not an error
    """A key needs another page, or the command has nothing to go to; the message is for the screen."""


class Page:
    """A page.  *words* follow `klog` in its command; *watched* is the file or directory that it is about.

    *problem*: the reason why a part of it is missing.  *status*: the work that goes on, or its result.
    """

    has_cursor: ClassVar[bool] = True

    def __init__(self, title: str, words: Sequence[str], watched: str) -> None:
        self.title, self.words, self.watched = title, tuple(words), watched
        self.version = 0
        self.problem = self.status = ""
        self.stop = threading.Event()
        self.goal: int | None = None
        """The row to which the cursor has to go; the screen takes it."""

    @property
    def command(self) -> str:
        """The command that prints the same, as one types it."""
        return " ".join(["klog", *map(shell_word, self.words)])

    def changed(self) -> None:
        """Tell the screen that there is something new to draw."""
        self.version += 1

    def leave(self) -> None:
        """End the work of the page."""
        self.stop.set()

    def load(self, columns: int) -> None:
        """Read the page; *columns*: of the screen."""

    def fill(self, first: int, end: int) -> bool:
        """Read details of the rows that are shown; return whether there was any to read."""
        return False

    def heading(self, columns: int) -> str:
        """Return the names of the columns; empty if there is no such line."""
        return ""

    def __len__(self) -> int:
        return 0

    def line(self, row: int, columns: int) -> str:
        """Return a row, which may have marks of `style`."""
        raise NotImplementedError

    def panel(self, row: int, columns: int) -> list[str]:
        """Return lines about a row, for below the list."""
        return []

    def enter(self, row: int) -> Page | None:
        """Return the page of a row, None if there is none."""
        return None

    def paths(self, row: int) -> tuple[str, str]:
        """Return the log dir, and the partition or again the log dir, that the keys for other commands are about."""
        raise Jump("choose a log dir or a partition first")

    def bytes_words(self, row: int) -> tuple[str, ...] | None:
        """Return the arguments of `klog bytes` for a row."""
        return None

    def at_offset(self, row: int, offset: int) -> Page | None:
        """Go to an offset: return a new page, or set `goal` and return None.  Raises Jump."""
        raise Jump("choose a partition first")

    def at_time(self, row: int, timestamp: int) -> Page | None:
        """Go to a time (ms), as `at_offset`."""
        raise Jump("choose a partition first")

    def reorder(self) -> None:
        """Sort the rows by the next order.  Raises Jump."""
        raise Jump("only partitions have another order")


def shell_word(text: str) -> str:
    """Return *text* as a shell takes it; control characters and undecodable bytes are escapes of `$'…'`."""
    if re.fullmatch(r"[\w@%+=:,./-]+", text, re.ASCII):
        return text
    if text.isprintable():
        return "'" + text.replace("'", "'\"'\"'") + "'"
    escaped = "".join(
        char if char.isprintable() and char not in "'\\" else "".join(f"\\x{byte:02x}" for byte in os.fsencode(char))
        for char in text
    )
    return f"$'{escaped}'"


def fitted(text: str, columns: int, *, right: bool = False) -> str:
    """Return *text*, without marks, in exactly so many columns: padded, or cut with `…`."""
    return padded(cut(printable(text), columns), columns, right=right)


def offset_at_time(partition: Partition, timestamp: int) -> int:
    """Return the offset of the first record at or after a time (ms).  Raises Jump if there is none."""
    from klog.partition.lookup.lookup import Lookup

    with Lookup(partition) as lookup:
        offset = lookup.timestamp(timestamp).offset
    if offset is None:
        raise Jump(f"{os.path.basename(partition.path)} has no record at {time_text(timestamp)} or later")
    return offset
