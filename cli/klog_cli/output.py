"""The only place that prints.  Results go to stdout, everything else to stderr."""

from __future__ import annotations

import os
import select
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress

from klog.base.unusable import UNUSABLE

from klog_cli.control_characters import printable as printable
from klog_cli.display import human_size as human_size
from klog_cli.display import range_text as range_text
from klog_cli.display import time_text as time_text

TYPE_CHECKING = False  # as in klog
if TYPE_CHECKING:
    from typing import Any

STDOUT, STDERR = 1, 2
WIDEST_PROSE = 100
"""Prose is not wider than this many columns: longer lines are hard to read."""
Cell = object


class ClosedPipeError(Exception):
    """The output has lost its reader.  This is no OSError, since Typer's parser handles that one in its own way."""


class OutputError(OSError):
    """The output cannot be written: a full disk, for example."""


class Stderr:
    """Whether a line for stderr was lost, by a full disk or a closed pipe, which the exit code reports."""

    is_incomplete = False


class Quiet:
    """Whether notes and progress bars are suppressed; set once, by --quiet."""

    on = False


class Colour:
    """When colours are used: auto, always or never; set once, by --color."""

    when = "auto"


class Screen:
    """The progress bar that is drawn on the terminal, or None: text of the same terminal takes its place."""

    bar: Any = None


def write(
    data: bytes | memoryview, descriptor: int = STDOUT, keep_colours: bool = False, name: str = "standard output"
) -> None:
    """Write all of *data*; a terminal gets no control characters.

    Raises ClosedPipeError if the reader has closed the pipe, else OutputError with *name*.  *keep_colours*: pass colour
    sequences to a terminal: klog itself has made the text.
    """
    on_terminal = is_terminal(descriptor)
    if on_terminal and Screen.bar is not None:
        Screen.bar.clear()
    view = memoryview(_for_terminal(data, keep_colours) if on_terminal else data)
    try:
        while len(view):
            view = view[os.write(descriptor, view) :]
    except BrokenPipeError:
        raise ClosedPipeError from None
    except OSError as error:
        raise OutputError(error.errno, error.strerror, name) from error


def _tell(data: bytes) -> None:
    """Write *data* to stderr.  The command continues without stderr; see Stderr."""
    if UNUSABLE.found:
        UNUSABLE.note_output(data)
    try:
        write(data, STDERR)
    except (OutputError, ClosedPipeError):
        Stderr.is_incomplete = True


def _for_terminal(data: bytes | memoryview, keep_colours: bool) -> bytes:
    r"""Return *data* with an escape for each control character but the newline: `\u009b`, as JSON has it.

    Control characters are those of ASCII and of Latin-1, and Unicode's marks that reverse text or end lines.  A byte
    that is not UTF-8 becomes `\x9b`: some terminals act on it.
    """
    import re

    kept = r"(?!\x1b\[[0-9;]*m)" if keep_colours else ""
    unsafe = kept + "[\0-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\udc80-\udcff]"
    text = bytes(data).decode("utf-8", "surrogateescape")
    return re.sub(unsafe, lambda found: _escape(found[0]), text).encode()


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code - 0xDC00:02x}" if code >= 0xDC80 else f"\\u{code:04x}"


def error(message: str) -> None:
    """Print one line about an error; --quiet does not silence it.  It may have marks of `style`."""
    from klog_cli.layout import wrap_line
    from klog_cli.style import rendered

    columns = screen_columns(STDERR)
    parts = [message] if columns is None else wrap_line(f"klog: {message}", min(columns, WIDEST_PROSE), hang=6)
    told = "\n".join(rendered(part, takes_colour(STDERR)) for part in parts)
    _tell(f"{'klog: ' if columns is None else ''}{told}\n".encode("utf-8", "replace"))


def note(message: str) -> None:
    """Print one line of information."""
    if not Quiet.on:
        error(message)


class TerminalReporter:
    """Shows the reports of a plan session: lines on stderr, a bar while the plan is carried out."""

    def note(self, message: str) -> None:
        """Print one line of information."""
        note(message)

    def error(self, message: str) -> None:
        """Print one line about something that was not done."""
        error(message)

    def progress(self) -> AbstractContextManager[Results]:
        """Return a bar."""
        return Results()


def plain(line: str) -> None:
    """Print a line to stderr unchanged."""
    _tell(f"{line}\n".encode("utf-8", "surrogateescape"))


def text(content: str) -> None:
    """Print *content* to stdout: data from a disk is made printable, or is JSON."""
    data = content.encode("utf-8", "surrogateescape")
    if UNUSABLE.found:
        UNUSABLE.note_output(data)
    write(data, keep_colours=True)


def is_terminal(descriptor: int = STDOUT) -> bool:
    """Whether a person is looking at it."""
    return os.isatty(descriptor)


def is_read(descriptor: int = STDOUT) -> bool:
    """Whether anybody can still read what is written; False once the reader of a pipe has closed it."""
    poll = select.poll()
    poll.register(descriptor, 0)
    return not any(event & select.POLLERR for _, event in poll.poll(0))


def width(at_most: int = WIDEST_PROSE) -> int:
    """Return the columns of the terminal, between 60 and *at_most*; *at_most* if stdout is no terminal."""
    return min(at_most, screen_columns() or at_most)


def screen_columns(descriptor: int = STDOUT) -> int | None:
    """Return the columns of the terminal, 60 at least; None if it is no terminal."""
    if not is_terminal(descriptor):
        return None
    with suppress(OSError):
        return max(60, os.get_terminal_size(descriptor).columns or 80)
    return 80


def takes_colour(descriptor: int = STDOUT) -> bool:
    """Whether to use colours: on a terminal that shows them, unless --color or NO_COLOR says otherwise.

    https://no-color.org has the rule for NO_COLOR.
    """
    if Colour.when != "auto":
        return Colour.when == "always"
    return is_terminal(descriptor) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def emit_json(value: object) -> None:
    """Print *value* as one JSON document, in parts: the output for thousands of partitions is large."""
    import json
    from itertools import islice

    parts = json.JSONEncoder(ensure_ascii=True, indent=2).iterencode(value)
    while part := "".join(islice(parts, 10_000)):
        text(part)
    text("\n")


def emit_jsonl(rows: Iterable[object]) -> None:
    """Print each of *rows* as a line of JSON."""
    import json

    for row in rows:
        text(json.dumps(row, ensure_ascii=True, separators=(",", ":")) + "\n")


def emit_json_rows(name: str, rows: Iterable[object]) -> None:
    """Print the JSON object whose member *name* is the array of *rows*, each as it comes."""
    import json

    text(f'{{\n  "{name}": [')
    mark = "\n    "
    for row in rows:
        text(mark + json.dumps(row, ensure_ascii=True, indent=2).replace("\n", "\n    "))
        mark = ",\n    "
    text("]\n}\n" if mark == "\n    " else "\n  ]\n}\n")


def emit_csv_rows(rows: Iterable[Mapping[str, object]], columns: Sequence[str] = ()) -> None:
    """Print *rows* as CSV, with a header of *columns* (none: those of the first row).  A nested value becomes JSON."""
    import json

    def cell(value: object) -> object:
        if isinstance(value, bool) or (value is not None and not isinstance(value, str | int | float)):
            return json.dumps(value, ensure_ascii=True, separators=(",", ":"))
        return value

    header: Sequence[str] = columns
    if columns:
        emit_csv(None, columns)
    for row in rows:
        if not header:
            header = tuple(row)
            emit_csv(None, header)
        emit_csv(None, [cell(row.get(name)) for name in header])


def emit_csv(header: Sequence[str] | None, cells: Sequence[Cell]) -> None:
    """Print a CSV line, below *header* if one is given; None is an empty field."""
    write(csv_lines([cells] if header is None else [header, cells]))


def csv_lines(rows: Iterable[Sequence[Cell]]) -> bytes:
    """Return a CSV line for each of *rows*; None is an empty field."""
    import csv
    from types import SimpleNamespace

    lines: list[str] = []
    # With this end of line, the writer also quotes a cell that has a carriage return alone, which readers treat as one.
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator="\r\n")
    writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
    return "".join(f"{line[:-2]}\n" for line in lines).encode("utf-8", "surrogateescape")


def emit_table(titles: Sequence[str], columns: Sequence[str], cells: Iterable[Sequence[Cell]]) -> None:
    """Print *titles*, a line each, then a table, which fits a terminal's width.  A cell may have marks of `style`."""
    lines(titles)
    if not columns:
        return
    if titles and titles[-1]:
        text("\n")
    from klog_cli.layout import table_lines

    shown = [["" if cell is None else str(cell) for cell in row] for row in cells]
    rows(table_lines(columns, shown, screen_columns()))


def rows(found: Iterable[str]) -> None:
    """Print lines that fit the screen; each may have marks of `style`."""
    from klog_cli.style import rendered

    with_colours = takes_colour()
    for line in found:
        text(f"{rendered(line, with_colours)}\n")


def lines(found: Iterable[str], hang: int | None = None) -> None:
    """Print *found*, wrapped on a terminal; each may have marks of `style`.

    *hang*: the indentation of all lines of one but the first; by default two more than its own.
    """
    from klog_cli.layout import wrap_line
    from klog_cli.style import rendered

    columns, with_colours = screen_columns(), takes_colour()
    most = None if columns is None else min(columns, WIDEST_PROSE)
    for line in found:
        for part in [line] if most is None else wrap_line(line, most, hang):
            text(f"{rendered(part, with_colours)}\n")


def _widen_pipe(descriptor: int) -> None:
    """Give a pipe 1 MiB if the system can: with the usual 64 KiB, half of a dump's time is waking up the reader."""
    import fcntl

    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with suppress(OSError):  # no pipe, or more than this user may have
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 1 << 20)


class Results:
    """Receives the output of a dump: results to stdout or into a new file, damage to stderr, progress to a bar.

    The bar is on stderr if that is a terminal, until the results themselves are written to a terminal.

    A file appears under its name only if the block ends without an exception.
    """

    def __init__(self, path: str | None = None) -> None:
        from klog.data_dir.disk.disk_changes import NewFile, Preallocation
        from klog.data_dir.disk.written_ranges import WRITTEN

        from klog_cli.progress import Bar

        self._file, self._wrote = None, WRITTEN.wrote
        self.descriptor, self._name = STDOUT, "standard output"
        if path is not None:
            self._file = NewFile(path)
            self.descriptor, self._name = self._file.descriptor, path
        self._room = Preallocation(self.descriptor)
        _widen_pipe(self.descriptor)
        self._on_terminal = is_terminal(self.descriptor)
        self._bar = Screen.bar = Bar(shown=not Quiet.on and is_terminal(STDERR))
        self.expect, self.measure, self.advance = self._bar.expect, self._bar.measure, self._bar.advance
        self.found = self._bar.found

    def write(self, data: bytes | memoryview, keep_colours: bool = False) -> None:
        """Take a part of the result; *keep_colours*: as in the function `write`."""
        if self._on_terminal:
            self._bar.close()
        self._room.make(len(data))
        write(data, self.descriptor, keep_colours, self._name)
        self._wrote(self.descriptor, len(data))

    def write_line(self, line: str) -> None:
        """Take a line of text, which may have marks of `style`."""
        from klog_cli.style import rendered

        self.write(f"{rendered(line, takes_colour())}\n".encode("utf-8", "surrogateescape"), keep_colours=True)

    def report(self, line: str) -> None:
        """Take a line about damage."""
        self._bar.clear()
        self._bar.found(1)
        plain(printable(line))

    def __enter__(self) -> Results:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._bar.close()
        Screen.bar = None
        self._room.release()
        if self._file is not None:
            with self._file:
                if kind is None:
                    self._file.commit()
                    size = os.fstat(self.descriptor).st_size
                    if not Quiet.on:
                        plain(printable(f"wrote {self._name} ({human_size(size)})"))
