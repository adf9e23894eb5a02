"""The text of `klog bytes`: a line for each field, with its position, its bytes, its name and its value."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

from klog.base.errors import KlogError, counted
from klog.commands.bytes.byte_field import ByteField, BytePart, Fields, WrongBit
from klog.commands.bytes.byte_view import ByteView

from klog_cli import style
from klog_cli.display import human_size, time_text

_HEX_BYTES: Final = 8
_HEX_COLUMNS: Final = 3 * _HEX_BYTES + 1
_POSITION_COLUMNS: Final = 10
_NAME_COLUMNS: Final = 20
_NAME_LETTERS: Final = 100
"""Keys of properties are names, too."""
_DUMP_LINES: Final = 8
_TEXT_LETTERS: Final = 48
_LEAST_LETTERS: Final = 10
_COUNT_COLUMNS: Final = 14
"""Columns in front of a text: the number of its bytes."""
_LONGEST_VERDICT: Final = 24
_NARROW: Final = 80
"""In a narrower terminal the bytes are below name and value."""
_NAMES: Final = {"size": "length", "records_count": "records"}
"""Names of fields that are called otherwise in JSON."""
HANG: Final = _POSITION_COLUMNS + _HEX_COLUMNS + 2


class _Columns:
    """How lines are laid out in so many columns, with positions up to *last*."""

    def __init__(self, width: int, last: int) -> None:
        self.is_narrow = width < _NARROW
        self.position = _POSITION_COLUMNS if width > _NARROW else max(len(str(last)), 4) + 2
        before = self.position + 4 + _NAME_COLUMNS + (0 if self.is_narrow else _HEX_COLUMNS)
        self.letters = max(_LEAST_LETTERS, min(_TEXT_LETTERS, width - before - _COUNT_COLUMNS))

    def line(self, position: int, data: str, name: str, rest: str) -> Iterator[str]:
        """Yield the line of a field, or two."""
        place = style.faint(f"{position:>{self.position}}")
        if not self.is_narrow:
            yield f"{place}  {data:{_HEX_COLUMNS - 1}}  {name:{_NAME_COLUMNS}} {rest}".rstrip(" ")
            return
        yield f"{place}  {name:{_NAME_COLUMNS}} {rest}".rstrip(" ")
        yield f"{'':{self.position}}  {style.faint(data)}"


def text_lines(view: ByteView, fields: Fields, problems: int | None, is_full: bool, width: int) -> Iterator[str]:
    """Yield the lines of *view*, of which *width* columns are seen.

    *problems*: their number, if that is known before the fields are shown.
    """
    name = os.path.basename(view.source.path)
    is_whole = view.position == 0 and view.size == view.source.size
    if is_whole:
        verdict = f"   {style.bad(counted(problems, 'problem'))}" if problems else ""
        yield f"{style.strong(name)}   {human_size(view.size)}{verdict}"
    columns = _Columns(width, view.position + view.size)
    yield from _Lines(is_full, "" if is_whole else name, columns).of(fields, "")


class _Lines:
    """*start*: the name of the file, in front of the first heading."""

    def __init__(self, is_full: bool, start: str, columns: _Columns) -> None:
        self._is_full, self._start, self._columns = is_full, start, columns
        self._part: BytePart | None = None

    def of(self, fields: Fields, indent: str) -> Iterator[str]:
        """Yield the lines of *fields*, with a heading for each part."""
        for field in fields:
            if field.part is not self._part:
                self._part = field.part
                heading = self._heading(field)
                yield from [indent + heading] if heading else ()
            yield from self._field(field, indent)
            if field.inside is not None:
                size = counted(field.inside.size, "byte")
                yield f"{indent}  {style.faint(f'decompressed, {size}; these positions count from the first of them')}"
                yield from self.of(field.inside.fields(), f"{indent}  ")

    def _heading(self, field: ByteField) -> str:
        part, place = field.part, f" @ {field.position}"
        file, self._start = self._start, ""
        title = style.strong(part.title) if part.title else ""
        if part.title.startswith("record"):
            place = ""
        if file:
            title = f"{style.strong(file)}{place}   {title}".rstrip(" ")
        elif title:
            title += place
        problem = part.problem or ""
        verdict = problem.upper() if len(problem) <= _LONGEST_VERDICT else problem
        return f"{title}   {style.bad(verdict)}" if problem else title

    def _field(self, field: ByteField, indent: str) -> Iterator[str]:
        name = _clean(_NAMES.get(field.name, field.name[:_NAME_LETTERS]).replace("_", " "))
        if field.name == "crc" and field.meaning.startswith("CRC-32"):
            name = field.meaning.split(" ")[0]
        value = self._value(field)
        problem = f"{', ' if value else ''}{style.bad(field.problem)}" if field.problem is not None else ""
        data = _read(field, field.position, min(_HEX_BYTES, field.size)).hex(" ")
        data += "…" if field.size > _HEX_BYTES else ""
        for line in self._columns.line(field.position, data, name, f"{value}{problem}"):
            yield indent + line
        is_plain = field.name == "bytes" and field.size > _HEX_BYTES
        if is_plain or (self._is_full and field.size > _HEX_BYTES):
            yield from self._dump(field, indent)
        if field.wrong_bit is not None:
            for line in self._wrong_bit(field, field.wrong_bit, name):
                yield indent + line

    def _wrong_bit(self, field: ByteField, bit: WrongBit, name: str) -> Iterator[str]:
        """Yield the line of the byte that explains a wrong checksum."""
        is_content = field.content_at is not None and bit.position >= field.content_at
        start = field.content_at if is_content and field.content_at is not None else field.position
        data = _read(field, bit.position, 1).hex()
        return self._columns.line(bit.position, data, f"{name}, byte {bit.position - start}", style.bad(bit.text))

    def _dump(self, field: ByteField, indent: str) -> Iterator[str]:
        """Yield the bytes of a field behind those of its first line, with their letters."""
        for number, at in enumerate(range(field.position + _HEX_BYTES, field.end, _HEX_BYTES)):
            if number == _DUMP_LINES and not self._is_full:
                left = counted(field.end - at, "more byte")
                yield f"{indent}{'':{self._columns.position + 2}}{style.faint(f'{left}: --full shows them')}"
                return
            piece = _read(field, at, min(_HEX_BYTES, field.end - at))
            letters = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in piece)
            place = style.faint(f"{at:>{self._columns.position}}")
            yield f"{indent}{place}  {piece.hex(' '):{_HEX_COLUMNS - 1}}  {style.faint(letters)}"

    def _value(self, field: ByteField) -> str:
        if field.text:
            return _clean(field.text)
        if field.content_at is not None:
            return self._content(field, field.content_at)
        if field.is_time and isinstance(field.value, int) and field.value >= 0:
            return time_text(field.value)
        if field.value is None:
            return "null"
        if isinstance(field.value, bool):
            return str(field.value).lower()
        return self._quoted(field.value) if isinstance(field.value, str) else str(field.value)

    def _content(self, field: ByteField, at: int) -> str:
        size = field.end - at
        count = counted(size, "byte")
        if field.name == "bytes":
            return count
        shown = min(size, 4 * self._columns.letters)
        from klog_cli.views.bytes.json import text_or_base64

        text = text_or_base64(_read(field, at, shown), shown < size)
        return f"{count}  {self._quoted(text, shown < size)}" if isinstance(text, str) else count

    def _quoted(self, text: str, is_cut: bool = False) -> str:
        more = "…" if is_cut or len(text) > self._columns.letters else ""
        return f'"{_clean(text[: self._columns.letters])}{more}"'


def _read(field: ByteField, position: int, size: int) -> bytes:
    try:
        return field.source.read(position, size)
    except KlogError:
        return b""  # it is named at the end of the command


def _clean(text: str) -> str:
    """Return *text* without the surrogates that would be marks of a style."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
