"""Files of records by topic and partition, each of about the requested size at most."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from klog.data_dir.disk.disk_changes import Disk, OpenFile
from klog.data_dir.disk.written_ranges import WRITTEN
from klog.formats.damage import Damage
from klog.jobs.output_commit import Facts
from klog.jobs.slices import LogSlice
from klog.kernel import Window
from klog.log.arrow import Table
from klog.log.json_lines import LineStyle, RecordOrigin, damage_json, record_lines
from klog.log.records import drop_crowded

if TYPE_CHECKING:
    from klog.jobs.schema_output import SchemaOutput

FILE_BYTES = 256 << 20
Format = Literal["parquet", "jsonl"]
_NOWHERE = "__HIVE_DEFAULT_PARTITION__"  # what Hive and Spark read as null
_STYLE = LineStyle()


class _Writer(Protocol):
    """Writes one file; `bytes` counts the written ones."""

    @property
    def bytes(self) -> int: ...

    def add(self, rows: Window) -> None: ...
    def damage(self, damage: Damage) -> None: ...
    def close(self) -> None: ...
    def abandon(self) -> None: ...


class _Origin(NamedTuple):
    topic: str | None
    partition: int | None


class _Parquet:
    """Topic and partition are in the names of the directories, not in the file."""

    def __init__(self, file: OpenFile, origin: _Origin, disk: Disk, schemas: SchemaOutput | None) -> None:
        others = None if schemas is None else schemas.columns(origin.topic)
        self._table, self._origin = Table(file.descriptor, ("topic", "partition"), others=others), origin
        self._descriptor = file.descriptor

    @property
    def bytes(self) -> int:
        return self._table.bytes

    def add(self, rows: Window) -> None:
        self._table.add(rows, *self._origin)
        WRITTEN.grew(self._descriptor)

    def damage(self, damage: Damage) -> None:
        """It has no place among columns."""

    def close(self) -> None:
        self._table.close()
        WRITTEN.grew(self._descriptor)

    def abandon(self) -> None:
        self._table.abandon()


class _Lines:
    """As `klog dump --output jsonl` has them, damage in its place."""

    def __init__(self, file: OpenFile, origin: _Origin, disk: Disk, schemas: SchemaOutput | None) -> None:
        self._file, self._disk, self.bytes = file, disk, 0
        self._fields = RecordOrigin("", *origin).json()
        self._decoded = None if schemas is None else schemas.rows(*origin)

    def _write(self, content: bytes | memoryview) -> None:
        self._disk.write(self._file, content)
        self.bytes += len(content)

    def add(self, rows: Window) -> None:
        if self._decoded is not None:
            for piece in self._decoded.lines(rows, 0, rows.records, self._fields, _STYLE):
                self._write(piece)
            return
        for piece in record_lines(rows, 0, rows.records, self._fields, _STYLE):
            self._write(piece)
        self._write(rows.output())
        rows.flushed()

    def damage(self, damage: Damage) -> None:
        self._write(damage_json(damage))

    def close(self) -> None:
        """All is written."""

    def abandon(self) -> None:
        """All is written."""


_MakeWriter = Callable[[OpenFile, _Origin, Disk, "SchemaOutput | None"], _Writer]
_WRITERS: dict[Format, _MakeWriter] = {"parquet": _Parquet, "jsonl": _Lines}


class _OpenOutput(NamedTuple):
    file: OpenFile
    writer: _Writer
    facts: Facts


class OutputFiles:
    """Writes files into *directory*, of piece *number*; `files` says of each what it has and what it is to be called.

    To be used as a context; after an exception what was written is good for nothing.  *schemas*: decodes keys
    and values.
    """

    def __init__(
        self,
        directory: str,
        number: int,
        form: Format,
        file_bytes: int,
        disk: Disk,
        schemas: SchemaOutput | None = None,
    ) -> None:
        self.files: list[Facts] = []
        self._directory, self._number, self._form, self._file_bytes = directory, number, form, file_bytes
        self._disk, self._schemas = disk, schemas
        self._origin: _Origin | None = None
        self._path = ""
        self._open: _OpenOutput | None = None

    @property
    def paths(self) -> list[str]:
        """The files that were written."""
        return [os.path.join(self._directory, facts["name"]) for facts in self.files]

    def begin(self, part: LogSlice) -> None:
        """Begin what comes from *part*: a file has one topic-partition."""
        origin = _Origin(part.topic, part.partition)
        if origin != self._origin:
            self._close()
        self._origin, self._path = origin, part.path

    def add(self, rows: Window) -> list[Damage]:
        """Write record rows; return those that the format has no place for, which are left out."""
        left_out = drop_crowded(rows, self._path) if self._form == "parquet" else []
        if not rows.records:
            return left_out
        first, last = rows.ends()
        opened = self._current(first)
        opened.writer.add(rows)
        facts = opened.facts
        facts["records"] += rows.records
        facts["last_offset"] = max(facts["last_offset"], last)
        if opened.writer.bytes >= self._file_bytes:
            self._close()
        return left_out

    def damage(self, damage: Damage) -> None:
        """Write *damage* where the format has a place for it."""
        if self._form == "jsonl":
            self._current(damage.place.offset or 0).writer.damage(damage)

    def _current(self, offset: int) -> _OpenOutput:
        if self._open is None:
            assert self._origin is not None
            name = f"{offset:020}-{self._number:06}-{len(self.files):04}.{self._form}"
            topic, partition = self._origin
            facts: Facts = {"name": name, "file": f"{folder(topic, partition)}/{name}"}
            facts |= {"topic": topic, "partition": partition, "records": 0}
            facts |= {"first_offset": offset, "last_offset": offset}
            self.files.append(facts)
            file = self._disk.create(os.path.join(self._directory, name))
            self._open = _OpenOutput(file, self._writer(file), facts)
        return self._open

    def _writer(self, file: OpenFile) -> _Writer:
        assert self._origin is not None
        return _WRITERS[self._form](file, self._origin, self._disk, self._schemas)

    def _close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            try:
                opened.writer.close()
                opened.facts["bytes"] = os.fstat(opened.file.descriptor).st_size
            finally:
                self._disk.close(opened.file)

    def __enter__(self) -> OutputFiles:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and self._open is not None:
            self._open.writer.abandon()
            self._disk.close(self._open.file)
            return
        self._close()


def folder(topic: str | None, partition: int | None) -> str:
    """Return the directory of a topic-partition, as Hive and Spark name it; bytes that are no letters are escaped."""
    from urllib.parse import quote

    shown = _NOWHERE if topic is None else quote(os.fsencode(topic), safe="")
    return f"topic={shown}/partition={_NOWHERE if partition is None else partition}"
