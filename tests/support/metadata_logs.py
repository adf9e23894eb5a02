"""Metadata logs as a KRaft controller writes them, record by record; an encoder that shares nothing with the decoder
but the schemas."""

from __future__ import annotations

import base64
import struct
from pathlib import Path

from klog.formats.structs.schema import Data, Struct, StructField, load

from tests.oracles.plain.encode import Record, batch, unsigned_varint

_FIXED = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "uint16": "H", "float64": "d"}


def uuid(number: int) -> str:
    """Return a topic's or directory's id in its 22 letters."""
    return base64.urlsafe_b64encode(number.to_bytes(16, "big")).decode().rstrip("=")


def _scalar(field: StructField, value: object, version: int) -> bytes:
    if field.struct is not None:
        assert isinstance(value, dict)
        return _struct(field.struct, value, version)
    if field.type == "uuid":
        return base64.urlsafe_b64decode(f"{value}==")
    if isinstance(value, str | bytes):
        data = value.encode() if isinstance(value, str) else value
        return unsigned_varint(len(data) + 1) + data
    return struct.pack(">" + _FIXED[field.type], value)


def _field(field: StructField, value: object, version: int) -> bytes:
    if value is None:
        return b"\0"
    if field.array:
        assert isinstance(value, list)
        return unsigned_varint(len(value) + 1) + b"".join(_scalar(field, each, version) for each in value)
    return _scalar(field, value, version)


def _struct(schema: Struct, data: Data, version: int) -> bytes:
    body, tags = b"", []
    for field in schema.fields:
        value = data.get(field.name, field.default())
        if not field.exists.hold(version):
            continue
        if field.tag is None:
            body += _field(field, value, version)
        elif value != field.default():
            content = _field(field, value, version)
            tags.append((field.tag, unsigned_varint(field.tag) + unsigned_varint(len(content)) + content))
    return body + unsigned_varint(len(tags)) + b"".join(content for _, content in sorted(tags))


def value(name: str, /, **data: object) -> bytes:
    """Return the value of a metadata record: *name* as in Kafka's schema without "Record"; newest version."""
    schema = load("metadata", f"{name}Record")
    assert schema.key is not None
    frame = unsigned_varint(1) + unsigned_varint(schema.key) + unsigned_varint(schema.highest)
    return frame + _struct(schema.struct, data, schema.highest)


def control(type_id: int, body: bytes) -> tuple[bytes, bytes]:
    """Return key and value of a control record."""
    return struct.pack(">hh", 0, type_id), body


LEADER_CHANGE = control(2, b"\0\0\0\0\0\1\1\1\0")
SNAPSHOT_HEADER = control(3, b"\0\0" + bytes(8) + b"\0")
SNAPSHOT_FOOTER = control(4, b"\0\0\0")


class MetadataLog:
    """A log dir with `__cluster_metadata-0`, which is written from offset *start* on."""

    def __init__(self, folder: Path, start: int = 0) -> None:
        self.log_dir = folder
        self.path = folder / "__cluster_metadata-0"
        self.path.mkdir(parents=True)
        (folder / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
        self.end = start
        self.roll()

    def roll(self) -> None:
        """Begin a new segment."""
        self.log = self.path / f"{self.end:020d}.log"
        self.log.touch()

    def add(self, *values: bytes) -> int:
        """Append a batch of records; return the offset of its first."""
        first = self.end
        content = batch([Record(first + i, 1, None, each) for i, each in enumerate(values)])
        with self.log.open("ab") as log:
            log.write(content)
        self.end += len(values)
        return first

    def add_control(self, pair: tuple[bytes, bytes] = LEADER_CHANGE) -> None:
        """Append a control batch."""
        with self.log.open("ab") as log:
            log.write(batch([Record(self.end, 1, *pair)], control=True))
        self.end += 1

    def snapshot(self, offset: int, *values: bytes, finished: bool = True) -> Path:
        """Write a snapshot of *values*, as of *offset*."""
        content = batch([Record(0, 1, *SNAPSHOT_HEADER)], control=True)
        for i, each in enumerate(values):
            content += batch([Record(1 + i, 1, None, each)])
        if finished:
            content += batch([Record(1 + len(values), 1, *SNAPSHOT_FOOTER)], control=True)
        path = self.path / f"{offset:020d}-{1:010d}.checkpoint"
        path.write_bytes(content)
        return path


def topic(name: str, number: int) -> bytes:
    """Return a TopicRecord; *number* makes the topic's id."""
    return value("Topic", name=name, topicId=uuid(number))


def config(resource: int, name: str, key: str, text: str | None) -> bytes:
    """Return a ConfigRecord."""
    return value("Config", resourceType=resource, resourceName=name, name=key, value=text)
