"""The typed column of a topic's keys or values: each value by the schema that it names, read by the topic's own ones.

    side = SideColumn("orders", "value", members)
    decoders = SchemaDecoders(registries, make=side.make)
    found = decoders.side("orders", "value").decode(value, headers)
    pa.array([found.decoded.value], side.type)

With several types of record the column is a struct of one member for each, of which one has a value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from klog.log.arrow import import_pyarrow
from klog.schemas.avro_plan import AvroPlan, Change
from klog.schemas.avro_resolution import ReaderForm
from klog.schemas.columns import Column, field_name, struct_type
from klog.schemas.decoded import INCOMPATIBLE, BadValueError, BrokenSchemaError, Decoded, Decoder
from klog.schemas.json_values import json_bytes
from klog.schemas.reader_schemas import AVRO, JSON, PROTOBUF, RecordMember, avro_name
from klog.schemas.registry import Registry
from klog.schemas.schema_version import SchemaVersion
from klog.schemas.side_decoder import make_decoder

if TYPE_CHECKING:
    import pyarrow as pa

Read = Callable[["bytes | memoryview"], Any]


class SideColumn:
    """The column of one side of a topic.  *type*: Arrow's; binary if there are no schemas."""

    def __init__(self, topic: str, side: str, members: Sequence[RecordMember], for_spark: bool = False) -> None:
        self.topic, self.side, self._for_spark = topic, side, for_spark
        self._members = list(members)
        self._names = _distinct([field_name(one.name) for one in members])
        self._avro: dict[int, ReaderForm] = {}
        self._messages: dict[int, tuple[Read, Change]] = {}
        types = [self._type(number) for number in range(len(members))]
        self.type: pa.DataType = import_pyarrow().binary()
        if len(types) == 1:
            self.type = types[0]
        elif types:
            self.type = struct_type(list(zip(self._names, types, strict=True)))

    def _type(self, number: int) -> pa.DataType:
        member = self._members[number]
        if member.kind == AVRO:
            from klog.schemas.avro_columns import AvroColumn

            column = AvroColumn(member.avro, self._for_spark)
            self._avro[number] = column if len(self._members) == 1 else _Named(column, self._names[number])
            return column.type
        if member.kind == PROTOBUF:
            read, made = _message_column(member, self._for_spark)
            self._messages[number] = read, self._named(number, made.change)
            return made.type
        return import_pyarrow().string()

    def _named(self, number: int, change: Change | None) -> Change:
        """Return the change whose values are in the member of the struct, where there is one."""
        if len(self._members) == 1:
            return change or (lambda value: value)
        name = self._names[number]
        return lambda value: {name: value if change is None else change(value)}

    def make(self, row: SchemaVersion, registry: Registry) -> Decoder:
        """Return a decoder for the schema of *row* whose values fit the column.  Raises BrokenSchemaError."""
        references = registry.references(row)
        if row.type == AVRO:
            from klog.schemas.avro import AvroSchema

            number = self._number(AVRO, avro_name(AvroSchema(row.text, references).type), row.subject)
            return _NoReader() if number is None else AvroSchema(row.text, references, False, self._avro[number])
        if row.type == PROTOBUF:
            from klog.schemas.protobuf import ProtobufSchema

            return ProtobufSchema(row.text, references, False, self)
        if row.type == JSON:
            from klog.schemas.json_schema import JsonSchema

            number, schema = self._number(JSON, row.name, row.subject), JsonSchema(row.text, references)
            return _NoReader() if number is None else _JsonMember(schema, self._named(number, None))
        raise BrokenSchemaError(f"klog does not know the type {row.type[:100]}")

    def read_by(self, name: str) -> tuple[Read, Change]:
        """Return what reads and what converts a Protobuf message; see `protobuf.MessageReader`."""
        number = self._number(PROTOBUF, name, "")
        if number is None:
            raise BadValueError(INCOMPATIBLE)
        return self._messages[number]

    def _number(self, kind: str, name: str, subject: str) -> int | None:
        """Return the number of the member for a type of record: that of its subject, else the first with the name."""
        found = [
            (one.subject != subject, number)
            for number, one in enumerate(self._members)
            if one.kind == kind and (name == one.name or name in one.aliases)
        ]
        return min(found)[1] if found else None


def _distinct(names: list[str]) -> list[str]:
    seen: Counter[str] = Counter()
    found = []
    for name in names:
        seen[name] += 1
        found.append(name if seen[name] == 1 else f"{name}_{seen[name]}")
    return found


def _message_column(member: RecordMember, for_spark: bool) -> tuple[Read, Column]:
    """Return what reads messages of a type, and their column; text that cannot be used is a column of bytes."""
    from klog.schemas.proto_columns import MessageColumns
    from klog.schemas.protobuf import ProtobufSchema

    messages = ProtobufSchema(member.text, dict(member.references)).messages
    found = messages.message_class(member.name)
    return found.FromString, MessageColumns(messages, for_spark).column(found.DESCRIPTOR)


class _Named:
    """A form whose values are in the member of a struct."""

    def __init__(self, form: ReaderForm, name: str) -> None:
        self._form, self._name = form, name

    def change_from(self, plan: AvroPlan) -> Change:
        change, name = self._form.change_from(plan), self._name
        return lambda value: {name: value if change is None else change(value)}


class TextColumn:
    """The column of one side of any topic as JSON, each value by the schema that wrote it."""

    def __init__(self, canonical: bool) -> None:
        self._canonical = canonical
        self.type: pa.DataType = import_pyarrow().string()

    def make(self, row: SchemaVersion, registry: Registry) -> Decoder:
        """Return a decoder of JSON texts.  Raises BrokenSchemaError."""
        return _JsonMember(make_decoder(row, registry, self._canonical), json_bytes)


class _NoReader:
    """Decodes nothing: the topic had no record of this type when its columns were chosen."""

    def decode(self, payload: bytes | memoryview) -> Decoded:
        return Decoded(None, None, INCOMPATIBLE)


class _JsonMember:
    def __init__(self, decoder: Decoder, change: Change) -> None:
        self._decoder, self._change = decoder, change

    def decode(self, payload: bytes | memoryview) -> Decoded:
        found = self._decoder.decode(payload)
        return found if found.error is not None else found._replace(value=self._change(found.value))
