"""The JSON of `klog bytes`, in parts: no value and no list is in memory as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from klog.base.errors import KlogError
from klog.commands.bytes.byte_field import ByteField, Fields
from klog.commands.bytes.byte_view import ByteView

MOST_PROBLEMS: Final = 1000
"""Problems that are listed; each is also a member of its field."""
_STEP_BYTES: Final = 1 << 16
_SHOWN_BYTES: Final = 4096
_MOST_SHOWN_BYTES: Final = 1 << 20


def json_parts(view: ByteView, fields: Fields, is_full: bool) -> Iterator[str]:
    """Yield the JSON of *view* with these *fields*; with *is_full*, values and decompressed bytes are whole."""
    import json

    writer = _Writer(is_full)
    head = {"file": view.source.path, "position": view.position, "size": view.size, "kind": view.kind}
    yield json.dumps(head)[:-1] + ', "fields": ['
    yield from writer.fields(fields, "  ", is_inside=False)
    problems = ",\n  ".join(map(json.dumps, writer.problems))
    yield f'],\n"problems": [{problems}], "more_problems": {writer.more_problems}}}\n'


class _Writer:
    def __init__(self, is_full: bool) -> None:
        self._is_full = is_full
        self.problems: list[dict[str, object]] = []
        self.more_problems = 0

    def fields(self, fields: Fields, indent: str, is_inside: bool) -> Iterator[str]:
        """Yield the elements of an array of fields."""
        mark = "\n"
        for field in fields:
            yield f"{mark}{indent}"
            yield from self._field(field, indent, is_inside)
            mark = ",\n"

    def _field(self, field: ByteField, indent: str, is_inside: bool) -> Iterator[str]:
        import json

        yield f'{{"position": {field.position}, "size": {field.size}, "hex": "'
        is_cut = is_inside and not self._is_full
        yield from _hex(field, min(field.size, _SHOWN_BYTES) if is_cut else field.size)
        value, left_out = self._value(field)
        members = {"name": field.name, "value": value, "meaning": field.meaning, "part": field.part.title}
        if field.text:
            members["text"] = field.text
        if left_out:
            members["left_out"] = left_out
        problem = _problem(field)
        if problem is not None:
            members["problem"] = problem
            self._note(field, problem, is_inside)
        yield f'", {json.dumps(members)[1:-1]}'
        if field.inside is not None:
            yield f', "inside": {{"size": {field.inside.size}, "fields": ['
            yield from self.fields(field.inside.fields(), f"{indent}  ", is_inside=True)
            yield "]}"
        yield "}"

    def _note(self, field: ByteField, problem: str, is_inside: bool) -> None:
        if len(self.problems) == MOST_PROBLEMS:
            self.more_problems += 1
            return
        place = {"position": field.position, "name": field.name, "problem": problem, "decompressed": is_inside}
        self.problems.append(place)

    def _value(self, field: ByteField) -> tuple[object, int]:
        """Return the value, and how many bytes of it are left out."""
        if field.content_at is None:
            return field.value, 0
        size = field.end - field.content_at
        shown = min(size, _MOST_SHOWN_BYTES if self._is_full else _SHOWN_BYTES)
        try:
            content = field.source.read(field.content_at, shown)
        except KlogError:
            return None, size
        return text_or_base64(content, shown < size), size - shown


def _problem(field: ByteField) -> str | None:
    bit = field.wrong_bit
    told = [field.problem] if field.problem is not None else []
    return "; ".join([*told, *([f"byte {bit.position}: {bit.text}"] if bit else [])]) or None


def text_or_base64(content: bytes, is_cut: bool) -> object:
    """Return *content* as text, or as an object with its base64 if it is not UTF-8; its end may be cut."""
    import binascii
    import codecs

    try:
        return codecs.getincrementaldecoder("utf-8")().decode(content, final=not is_cut)
    except UnicodeDecodeError:
        return {"base64": binascii.b2a_base64(content, newline=False).decode("ascii")}


def _hex(field: ByteField, size: int) -> Iterator[str]:
    at, end = field.position, field.position + size
    while at < end:
        try:
            piece = field.source.read(at, min(_STEP_BYTES, end - at))
        except KlogError:
            return  # it is named at the end of the command
        if not piece:
            return
        yield piece.hex()
        at += len(piece)
