"""Lines and tables for a screen of so many columns.  No word, id, time, size or number is broken over two lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from klog_cli.style import columns_of, faint, is_command, strong, without_marks

_UNIT: Final = r"(?:%|B|[KMGTP]iB|ms|s|min|h|d)"
_KEPT_TOGETHER: Final = re.compile(rf"(?<=\d{{4}}-\d\d-\d\d) (?=\d\d:\d\d)|(?<=\d) (?={_UNIT}(?:/s)?(?![A-Za-z]))")
"""The space within a time and before a unit."""
_GLUE: Final = chr(0xD807)
_WIDEST_COLUMN: Final = 250
"""A topic's name has 249 letters at most.  A longer cell moves its own row alone: thousands would be padded to it."""
_NARROWEST_PROSE: Final = 24
_NUMBER: Final = re.compile(rf"-|\?|-?\d[\d .,]*(?:–\d+)?(?: ?{_UNIT})?")
"""A cell that is right-aligned: `-` is for no number and `?` for one that is not known."""


def padded(text: str, width: int, *, right: bool = False) -> str:
    """Return *text* with spaces behind it up to *width* columns; *right*: in front of it."""
    space = " " * (width - columns_of(text))
    return space + text if right else text + space


def cut(text: str, most: int) -> str:
    """Return *text*, without marks, in at most *most* columns, with `…` at the end if it is longer."""
    if columns_of(text) <= most:
        return text
    at, left = 0, most - 1
    while at < len(text) and (left := left - columns_of(text[at])) >= 0:
        at += 1
    return f"{text[:at]}…" if most > 0 else ""


def wrap_line(line: str, width: int, hang: int | None = None) -> list[str]:
    """Return *line* in lines of at most *width* columns, broken at spaces.

    *hang*: the indentation of all lines but the first; by default two more than the line's own, or that of the text
    behind a number: `1. `.  A line that is a command is continued with a backslash, so that a shell reads it as one.
    """
    if columns_of(line) <= width:
        return [line]
    own = len(line) - len(line.lstrip(" "))
    if hang is None and (number := re.match(r" *\d+\. ", line)):
        hang = len(number[0])
    if hang is None or hang > width // 2:
        hang = min(own + 2, width // 2)
    return _filled(line, width, hang, " \\" if is_command(line) else "")


def _filled(line: str, width: int, hang: int, continued: str) -> list[str]:
    found = [""]
    at, room = 0, width - len(continued)
    for word in re.finditer(r" *[^ ]+", _KEPT_TOGETHER.sub(_GLUE, line)):
        size = columns_of(word[0].replace(_GLUE, " "))
        if at > hang and at + size > room:
            found[-1] += continued
            found.append(" " * hang + word[0].lstrip(" "))
            at = columns_of(found[-1].replace(_GLUE, " "))
        else:
            found[-1] += word[0]
            at += size
    return [one.replace(_GLUE, " ") for one in found]


class _Table(NamedTuple):
    """*widths*: of the columns.  *are_numbers*: whether all cells of a column are numbers, which are right-aligned."""

    columns: Sequence[str]
    widths: Sequence[int]
    are_numbers: Sequence[bool]

    def line(self, cells: Sequence[str]) -> str:
        """Return the first of the columns, as many as there are *cells*."""
        return "  ".join(
            padded(cell, width, right=is_number)
            for cell, width, is_number in zip(cells, self.widths, self.are_numbers, strict=False)
        ).rstrip(" ")


def table_lines(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int | None) -> Iterator[str]:
    """Yield a header and *rows* in aligned columns.

    *width*: the columns of the screen, where the header is bold; None for any number.  If a table is too wide, empty
    columns are left out, then the last column is wrapped, and if it is not prose, the columns that do not fit are
    named and shown below their row.
    """
    table = _measured(columns, rows)
    if width is None:
        yield table.line(columns)
        yield from map(table.line, rows)
        return
    if _sum(table.widths) > width:
        filled = [at for at in range(len(columns)) if any(row[at] for row in rows)]
        rows = [[row[at] for at in filled] for row in rows]
        table = _measured([columns[at] for at in filled], rows)
    titles = [strong(column) for column in table.columns]
    before = _sum(table.widths[:-1]) + 2
    if _sum(table.widths) <= width:
        yield table.line(titles)
        yield from map(table.line, rows)
    elif before + max([_NARROWEST_PROSE, *(_longest_word(row[-1]) for row in rows)]) <= width:
        yield table.line(titles)
        for row in rows:
            first, *others = wrap_line(row[-1], width - before, 0)
            yield table.line([*row[:-1], first])
            yield from (" " * before + other for other in others)
    else:
        yield from _stacked(table, rows, width)


def _measured(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> _Table:
    widths = [
        max(columns_of(column), *(min(columns_of(row[at]), _WIDEST_COLUMN) for row in rows), 0)
        for at, column in enumerate(columns)
    ]
    return _Table(columns, widths, [all(_is_number(row[at]) for row in rows) for at in range(len(columns))])


def _is_number(cell: str) -> bool:
    return not cell or _NUMBER.fullmatch(without_marks(cell)) is not None


def _sum(widths: Sequence[int]) -> int:
    return sum(widths) + 2 * max(0, len(widths) - 1)


def _longest_word(text: str) -> int:
    return max((columns_of(word) for word in _KEPT_TOGETHER.sub(_GLUE, text).split(" ")), default=0)


def _stacked(table: _Table, rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield as many columns as fit, and below each row the others, with their names."""
    most = max(1, next((at for at in range(len(table.widths), 0, -1) if _sum(table.widths[:at]) <= width), 1))
    yield table.line([strong(column) for column in table.columns[:most]])
    for row in rows:
        yield table.line(row[:most])
        named = [f"{faint(name)} {cell}" for name, cell in zip(table.columns[most:], row[most:], strict=True) if cell]
        line = ""
        for part in named:
            if line and columns_of(line) + 2 + columns_of(part) > width:
                yield from wrap_line(line, width, 6)
                line = ""
            line += f"  {part}" if line else f"    {part}"
        yield from wrap_line(line, width, 6) if line else ()
