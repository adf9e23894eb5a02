"""Views of whole files, and the rules that hold for each: all bytes once, in order, whatever they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.commands.bytes.byte_field import ByteField, Fields
from klog.commands.bytes.byte_view import ByteChoice, ByteView, view_file
from klog.formats.names import FileKind, parse_file

_ALL = ByteChoice()


class Shown(NamedTuple):
    """A field, the path of the fields that it is inside of, and its bytes."""

    field: ByteField
    inside: str
    data: bytes


def is_known(path: Path) -> bool:
    """Whether klog knows the kind of a file."""
    return path.is_file() and parse_file(path.name).kind is not FileKind.OTHER


@contextmanager
def opened(path: Path, choice: ByteChoice = _ALL) -> Iterator[ByteView]:
    """Open the view of a file."""
    with ReadOnlyFile(str(path)) as source:
        yield view_file(source, parse_file(path.name), choice)


def fields_of(path: Path, choice: ByteChoice = _ALL) -> list[Shown]:
    """Return the fields of a view, those inside of compressed ones after them, once their rules have been checked."""
    with opened(path, choice) as view:
        return list(checked(view.fields(), view.position, view.position + view.size))


def checked(fields: Fields, start: int, end: int, inside: str = "") -> Iterator[Shown]:
    """Yield *fields*, which must cover all bytes from *start* to *end* once, in order."""
    at = start
    for field in fields:
        assert field.position == at, (field, at)
        assert field.size > 0 or start == end, field
        assert field.name, field
        assert field.meaning, field
        at = field.end
        data = field.source.read(field.position, field.size)
        assert len(data) == field.size, field
        if field.wrong_bit is not None:
            assert field.position <= field.wrong_bit.position < field.end
        yield Shown(field, inside, data)
        if field.inside is not None:
            yield from checked(field.inside.fields(), 0, field.inside.size, f"{inside}/{field.position}")
    assert at == end, (at, end)


def problems(found: list[Shown]) -> list[tuple[int, str]]:
    """Return position and text of each problem among fields of the file itself."""
    return [(one.field.position, one.field.problem) for one in found if one.field.problem and not one.inside]


def content(one: Shown) -> bytes | None:
    """Return the content of a byte string, without its length."""
    at = one.field.content_at
    return None if at is None else one.data[at - one.field.position :]
