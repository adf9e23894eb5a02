"""`klog bytes`: finds the bytes, and shows their fields as text or JSON, or writes them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import ExitCode, UsageError
from klog.base.read_only import ReadOnlyFile
from klog.commands.bytes.byte_field import ByteSource, Fields
from klog.commands.bytes.byte_view import ByteChoice, ByteView, view_file
from klog.formats.names import FileKind, parse_file

from klog_cli import output, style

if TYPE_CHECKING:
    from klog.data_dir.selection import PartitionChoice
    from klog.schemas.decoded_rows import SchemaStyle

_STEP_BYTES = 1 << 16
_UNLIMITED = 1 << 16
_PARTS = 1000
_COUNTED_BYTES = 1 << 20
"""The problems of a file up to this size are counted before its fields are shown."""


class BytesRequest(NamedTuple):
    """The bytes that are wanted; at most one of *offset*, *position* and *entry* is set.

    *schemas*: how keys and values are decoded, None for bytes as they are.
    """

    offset: int | None
    position: int | None
    entry: int | None
    context: int
    is_full: bool
    topics: Sequence[str]
    partitions: Sequence[PartitionChoice]
    schemas: SchemaStyle | None = None


def show_bytes(path: str, request: BytesRequest, form: str, to: str | None) -> int:
    """Show the bytes in this *form*: text, json or raw; return the exit code.  *to*: the file to write, if any."""
    if form == "raw" and to is None and output.is_terminal():
        raise UsageError("--raw writes bytes, which are not for a terminal: redirect it, or add --to FILE")
    if to is not None:
        from klog.data_dir.disk.refused_outputs import check_output

        check_output(to, [path])
    file, position, note = _place(path, request)
    if to is not None and os.path.exists(to) and os.path.samefile(to, file):
        raise UsageError(f"--to {to}: that is the file to be read; name another one")
    choice = ByteChoice(position, request.entry, request.context, request.is_full)
    if request.schemas is not None:
        choice = choice._replace(schemas=request.schemas.decoders)
    with ReadOnlyFile(file) as source:
        view = view_file(source, parse_file(os.path.basename(os.path.abspath(file))), choice)
        problems = _shown(view, choice, form, to)
    if note is not None:
        output.note(note)
    is_damaged = request.schemas is not None and request.schemas.is_damaged
    return ExitCode.PROBLEMS_LEFT if problems or note is not None or is_damaged else ExitCode.CLEAN


def _place(path: str, request: BytesRequest) -> tuple[str, int | None, str | None]:
    """Return the file, the position in it (None: all of it), and a note about the offset.  Raises UsageError."""
    if request.offset is not None:
        from klog.commands.bytes.offset_place import find_offset

        return find_offset(path, request.topics, request.partitions, request.offset)
    is_known = os.path.isfile(path) and parse_file(os.path.basename(os.path.abspath(path))).kind is not FileKind.OTHER
    if not is_known:
        from klog.data_dir.selection import open_path

        open_path(path)  # which raises what is wrong with it, unless it is a directory
        raise UsageError(f"{path}: a directory: add --offset N, or name one of its files")
    return path, request.position, None


def _shown(view: ByteView, choice: ByteChoice, form: str, to: str | None) -> int:
    """Show *view*; return the number of problems."""
    if form == "raw":
        with output.Results(to) as results:
            for piece in _pieces(view.source, view.position, view.size):
                results.write(piece)
        return 0
    found = ProblemCount(view.fields)
    if form == "json":
        from klog_cli.views.bytes.json import json_parts

        _emit(json_parts(view, found.fields(), choice.is_full), to)
        return found.problems
    from klog_cli.views.bytes.hex_text import HANG, text_lines

    is_whole = choice.position is None and choice.entry is None
    before = found.count() if is_whole and view.size <= _COUNTED_BYTES else None
    on_terminal = to is None and output.is_terminal()
    width = output.width() if on_terminal else _UNLIMITED
    shown = text_lines(view, found.fields(), before, choice.is_full, width)
    lines = chain(shown, _next_lines(view.source.path, found))
    if on_terminal:
        output.lines(lines, hang=HANG)
    else:
        with_colours = to is None and output.takes_colour()
        _emit((f"{style.rendered(line, with_colours)}\n" for line in lines), to)
    return found.problems


def _next_lines(path: str, found: ProblemCount) -> Iterator[str]:
    """Yield the command that says what a broker makes of the problems and what repairs them, if there are any."""
    from shlex import quote

    if found.problems:
        folder = output.printable(quote(os.path.dirname(path) or "."))
        command = style.command(f"klog verify {folder}")
        yield from ("", "next: what a broker does with it, what repairs it", f"  {command}")


def _emit(parts: Iterator[str], to: str | None) -> None:
    """Print *parts*, or write them to the file *to*, many at a time: a large log has millions."""
    if to is None:
        for piece in _joined(parts):
            output.text(piece)
        return
    with output.Results(to) as results:
        for piece in _joined(parts):
            results.write(piece.encode("utf-8", "replace"))


def _joined(parts: Iterator[str]) -> Iterator[str]:
    """Yield *parts* in pieces of some kilobytes."""
    while piece := "".join(islice(parts, _PARTS)):
        yield piece


class ProblemCount:
    """The fields of a view, which can be had several times, and the number of problems among those that have passed."""

    def __init__(self, fields: Callable[[], Fields]) -> None:
        self._fields = fields
        self.problems = 0

    def fields(self) -> Fields:
        """Yield the fields anew."""
        self.problems = 0
        return self._passing(self._fields())

    def count(self) -> int:
        """Go through all fields, and return the number of problems."""
        for field in self.fields():
            for _ in field.inside.fields() if field.inside else ():
                pass
        return self.problems

    def _passing(self, fields: Fields) -> Fields:
        for field in fields:
            self.problems += field.problem is not None or field.wrong_bit is not None
            inside = field.inside
            yield (
                field if inside is None else field._replace(inside=inside._replace(fields=self._counted(inside.fields)))
            )

    def _counted(self, fields: Callable[[], Fields]) -> Callable[[], Fields]:
        return lambda: self._passing(fields())


def _pieces(source: ByteSource, position: int, size: int) -> Iterator[bytes]:
    """Yield the bytes, in parts."""
    end = position + size
    while position < end and (piece := source.read(position, min(_STEP_BYTES, end - position))):
        yield piece
        position += len(piece)
