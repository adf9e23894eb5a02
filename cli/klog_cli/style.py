"""Marks in a line of text for what a part of it means: damage, a command.  `rendered` makes colours of them.

Red is loss or damage, yellow a warning or doubt, green clean or kept, bold the name or number that counts, dim paths
and defaults, cyan a command to paste.  A mark is a high surrogate, which text decoded from bytes never contains.
"""

from __future__ import annotations

import re
from typing import Final
from unicodedata import combining, east_asian_width

from klog_cli.control_characters import printable

_END, _BAD, _WARNING, _GOOD, _STRONG, _FAINT, _COMMAND = map(chr, range(0xD800, 0xD807))
_CODES: Final = {_END: "0", _BAD: "31", _WARNING: "33", _GOOD: "32", _STRONG: "1", _FAINT: "2", _COMMAND: "36"}
_MARKS: Final = re.compile(f"[{_END}-{_COMMAND}]")


def bad(text: str) -> str:
    """Mark loss or damage."""
    return f"{_BAD}{text}{_END}"


def warning(text: str) -> str:
    """Mark a warning or a doubt."""
    return f"{_WARNING}{text}{_END}"


def good(text: str) -> str:
    """Mark something clean or kept."""
    return f"{_GOOD}{text}{_END}"


def strong(text: str) -> str:
    """Mark the name or number that counts."""
    return f"{_STRONG}{text}{_END}"


def faint(text: str) -> str:
    """Mark a path, a default or a detail."""
    return f"{_FAINT}{text}{_END}"


def command(text: str) -> str:
    """Mark a command that can be pasted."""
    return f"{_COMMAND}{text}{_END}"


def is_command(line: str) -> bool:
    """Whether *line* is one command and nothing else."""
    text = line.strip()
    return text.startswith(_COMMAND) and text.find(_END) == len(text) - 1


def without_marks(text: str) -> str:
    """Return *text* without marks."""
    return text if text.isascii() else _MARKS.sub("", text)


def columns_of(text: str) -> int:
    """Return the number of columns of a terminal that *text* takes once it is rendered."""
    if text.isascii():
        return len(printable(text))
    shown = printable(without_marks(text))
    return len(shown) if shown.isascii() else sum(map(_columns, shown))


def _columns(char: str) -> int:
    if combining(char):
        return 0
    return 2 if east_asian_width(char) in ("W", "F") else 1


def rendered(text: str, colours: bool) -> str:
    """Return *text* for a screen, with control characters escaped and marks removed, or as codes if *colours*."""
    if text.isascii():
        return printable(text)
    parts: list[str] = []
    at, within = 0, [_END]
    for mark in _MARKS.finditer(text):
        parts.append(printable(text[at : mark.start()]))
        at = mark.end()
        if mark[0] != _END:
            within.append(mark[0])
        elif len(within) > 1:
            within.pop()
        if colours:
            codes = within if mark[0] == _END else within[-1:]
            parts.append("".join(f"\x1b[{_CODES[one]}m" for one in codes))
    return "".join([*parts, printable(text[at:])])
