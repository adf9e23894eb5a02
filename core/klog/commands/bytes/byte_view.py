"""Finds the bytes that a path, an offset, a position or an entry means, and their fields."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import DamagedError, UsageError
from klog.base.read_only import ReadOnlyFile
from klog.commands.bytes.byte_field import ByteField, BytePart, Fields, plain
from klog.commands.bytes.index_fields import LAYOUTS, index_faults, index_fields
from klog.commands.bytes.log_context import LogContext
from klog.formats.names import FileKind, FileName, Stage, file_name

if TYPE_CHECKING:
    from klog.schemas.side_decoder import SchemaDecoders

LOGS = (FileKind.LOG, FileKind.KRAFT_SNAPSHOT, FileKind.BOOTSTRAP)


class ByteChoice(NamedTuple):
    """The bytes that are wanted of a file: those around *position*, or entry number *entry*; None, None: all.

    *context*: bytes before and after.  *is_full*: show every field, however many.  *faults*: those of batches among
    the others, by position; None: look for them.  *schemas*: keys and values are decoded by these.
    """

    position: int | None = None
    entry: int | None = None
    context: int = 0
    is_full: bool = False
    faults: Mapping[int, str] | None = None
    schemas: SchemaDecoders | None = None


class ByteView(NamedTuple):
    """*size* bytes of *source* from *position* on, and their fields.

    *kind*: of the file if it is all of one, else `batch`, `damage`, `entry` or `line`.
    """

    source: ReadOnlyFile
    position: int
    size: int
    kind: str
    fields: Callable[[], Fields]


def view_file(source: ReadOnlyFile, name: FileName, choice: ByteChoice) -> ByteView:
    """Return the view of *source*, a file called *name*.  Raises UsageError for a place that is not in it."""
    is_whole = choice.position is None and choice.entry is None
    if choice.position is not None and not 0 <= choice.position < source.size:
        raise UsageError(f"{source.path}: no byte {choice.position}: the file has {source.size} bytes")
    if name.kind in LOGS:
        view = _log(source, name, choice)
    elif name.kind in LAYOUTS:
        view = _index(source, name, choice)
    elif is_whole:
        view = ByteView(source, 0, source.size, name.kind.value, _small(source, name))
    else:
        view = _part_of_small(source, name, choice)
    return _with_context(view, choice.context)


def _log(source: ReadOnlyFile, name: FileName, choice: ByteChoice) -> ByteView:
    from klog.commands.bytes.log_fields import log_context, log_fields, stretch_at, stretch_fields

    if choice.entry is not None:
        raise UsageError(f"{source.path}: --entry goes with an index or a snapshot; for a log, --offset or --position")
    log = log_context(source, name, choice.is_full)
    if choice.schemas is not None:
        from klog.commands.bytes.framing_fields import FramedContents

        log.schemas = FramedContents(choice.schemas, log.topic or "", choice.is_full)
    if choice.position is None:
        _note_faults(log, name, small_only=False)
        return ByteView(source, 0, source.size, name.kind.value, lambda: log_fields(log))
    stretch, before = stretch_at(source, choice.position, _index_of(source.path, name))
    if stretch is None:
        raise UsageError(f"{source.path}: no byte {choice.position}")
    if choice.faults is not None:
        log.problems |= choice.faults
    else:
        is_unfinished = stretch.damage is not None and stretch.damage.is_unfinished
        _note_faults(log, name, small_only=not is_unfinished)
    kind = "batch" if stretch.damage is None else "damage"

    def fields() -> Fields:
        log.previous = before
        return stretch_fields(log, stretch)

    return ByteView(source, stretch.start, stretch.end - stretch.start, kind, fields)


def _note_faults(log: LogContext, name: FileName, *, small_only: bool) -> None:
    if name.kind is FileKind.LOG and name.stage is Stage.IN_USE:
        from klog.commands.bytes.log_faults import note_faults

        note_faults(log, name, small_only=small_only)


def _index_of(path: str, name: FileName) -> str | None:
    """Return the path of the offset index of a log, None if there is none."""
    if name.kind is not FileKind.LOG or name.offset is None:
        return None
    path = os.path.join(os.path.dirname(path), file_name(name.offset, FileKind.INDEX))
    return path if os.path.isfile(path) else None


def _index(source: ReadOnlyFile, name: FileName, choice: ByteChoice) -> ByteView:
    size = LAYOUTS[name.kind].size
    if choice.position is None and choice.entry is None:
        faults = index_faults(source.path, name)
        return ByteView(source, 0, source.size, name.kind.value, lambda: index_fields(source, name, faults))
    number = choice.entry if choice.position is None else choice.position // size
    assert number is not None
    start, end = number * size, min((number + 1) * size, source.size)
    if choice.entry is not None and not 0 <= start <= source.size - size:
        raise _no_entry(source.path, choice.entry, source.size // size)
    faults = index_faults(source.path, name)
    return ByteView(source, start, end - start, "entry", lambda: index_fields(source, name, faults, start, end))


def _no_entry(path: str, number: int, entries: int) -> DamagedError:
    return DamagedError(f"{path}: no entry {number}: it has {entries}, and the first is entry 0")


def _small(source: ReadOnlyFile, name: FileName) -> Callable[[], Fields]:
    """Return the fields of a text file or a snapshot."""
    from klog.data_dir.root_files import SMALL_FILE_BYTES

    if source.size > SMALL_FILE_BYTES:
        problem = f"{source.size} bytes are far too many for a file of this name"
        return lambda: plain(source, 0, source.size, BytePart("bytes", problem), problem)
    content = source.read(0, source.size)
    if name.kind is FileKind.SNAPSHOT:
        from klog.commands.bytes.snapshot_fields import snapshot_fields

        return lambda: snapshot_fields(content)
    from klog.commands.bytes.text_fields import text_fields

    return lambda: text_fields(name.kind, content)


def _part_of_small(source: ReadOnlyFile, name: FileName, choice: ByteChoice) -> ByteView:
    """Return the view of one line of a text file, or of one producer of a snapshot."""
    is_snapshot = name.kind is FileKind.SNAPSHOT
    wanted = f"{'producer' if is_snapshot else 'entry'} {choice.entry}"
    here: list[ByteField] = []
    entries = 0
    for _, group in groupby(_small(source, name)(), lambda field: field.part.title if is_snapshot else field.position):
        fields = list(group)
        title = fields[0].part.title if is_snapshot else fields[0].name
        entries += title.startswith(("entry ", "producer "))
        at = choice.position
        if title == wanted if at is None else fields[0].position <= at < fields[-1].end:
            here = fields
            break
    if not here:
        raise _no_entry(source.path, choice.entry or 0, entries)
    start, end = here[0].position, here[-1].end
    return ByteView(source, start, end - start, "entry" if is_snapshot else "line", lambda: iter(here))


def _with_context(view: ByteView, context: int) -> ByteView:
    """Return *view* with so many bytes before and after it."""
    start, end = max(view.position - context, 0), min(view.position + view.size + context, view.source.size)
    if not context or (start, end) == (view.position, view.position + view.size):
        return view

    def fields() -> Fields:
        yield from plain(view.source, start, view.position, BytePart("bytes before it"))
        yield from view.fields()
        yield from plain(view.source, view.position + view.size, end, BytePart("bytes after it"))

    return view._replace(position=start, size=end - start, fields=fields)
