"""The fields of a record's key or value: of control records and of the records of internal topics, by their schemas.

Content that these do not describe is one field.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from klog.commands.bytes.byte_field import ByteField, BytePart, ContentBytes, Fields, is_time_field, plain
from klog.formats.layout import Layout
from klog.formats.names import CLUSTER_METADATA, INTERNAL

if TYPE_CHECKING:
    from klog.commands.bytes.framing_fields import FramedContents, SchemaHeaders
    from klog.formats.structs.read import Reader
    from klog.formats.structs.spans import StructSpan

    Spans = Iterator[tuple[StructSpan, str]]
    """Values, each with its text for people."""

_MOST_BYTES: Final = 128 << 20
_LONGEST_NAME: Final = 32
_DECODED: Final = frozenset((*INTERNAL, CLUSTER_METADATA, "__remote_log_metadata"))


class ContentOwner:
    """The record whose key and value are shown.  *key*: its bytes, once they have been shown; the value needs them.

    *schemas*: they are decoded by these; *headers*: those of the record that name schemas.
    """

    def __init__(
        self, topic: str | None, is_control: bool, schemas: FramedContents | None = None, headers: SchemaHeaders = ()
    ) -> None:
        self.topic, self.is_control = topic, is_control
        self.schemas, self.headers = schemas, headers
        self.key: bytes | None = None

    @property
    def has_schema(self) -> bool:
        """Whether key and value have a structure of Kafka's."""
        return self.is_control or self.topic in _DECODED

    def side_of(self, header_key: ContentBytes) -> str | None:
        """Return the side whose schema a header with this key names; None for another header."""
        at, size = header_key.content_at, header_key.end - (header_key.content_at or 0)
        if self.schemas is None or at is None or size > _LONGEST_NAME:
            return None
        from klog.schemas.framing import HEADERS

        name = header_key.source.read(at, size)
        return next((side for side, one in HEADERS.items() if one == name), None)


class _UnknownStructError(Exception):
    """A type or version that this klog does not know: no fault of the record."""


def content_fields(found: ContentBytes, part: BytePart, owner: ContentOwner) -> Fields:
    """Yield the fields of a key or value, which may be one."""
    source, start, at, end = found.source, found.start, found.content_at, found.end
    if at is not None and owner.schemas is not None and not owner.has_schema and 0 < end - at <= _MOST_BYTES:
        yield from owner.schemas.fields(found, part, owner.headers)
        return
    if at is None or not owner.has_schema or end - at > _MOST_BYTES:
        if end > start:
            yield found.field(part)
        return
    from klog.formats.structs.read import StructError

    content = source.read(at, end - at)
    if at > start:
        meaning = f"bytes of the {found.name}, which follows"
        yield ByteField(source, start, at - start, f"{found.name}_length", end - at, meaning, part)
    reached = at
    try:
        for span, text in _spans(owner, found.name, content):
            content_at = None if span.content_at is None else at + span.content_at
            reached, size = at + span.end, span.end - span.start
            if not size:
                continue  # an unknown tagged field without content
            name = f"{found.name}.{span.name}"
            yield ByteField(
                source, at + span.start, size, name, span.value, span.type, part, text,
                is_time_field(span.name) and isinstance(span.value, int), content_at,
            )  # fmt: skip
    except StructError as error:
        yield from plain(source, reached, end, part, _reason(error))
    except _UnknownStructError as unknown:
        yield from plain(source, reached, end, part, text=str(unknown))
    else:
        yield from plain(source, reached, end, part, text="left over; Kafka ignores these bytes")


def _reason(error: Exception) -> str:
    text = str(error)
    return "the value ends too early" if text.startswith("java.nio.") else text.rpartition("Exception: ")[2]


def _spans(owner: ContentOwner, name: str, content: bytes) -> Spans:
    """Yield the values of a key or value.  Raises StructError, and _UnknownStructError."""
    from klog.formats.structs.read import RECORD_ELEMENTS, Reader

    if name == "key":
        owner.key = content
    reader = Reader(content, elements=RECORD_ELEMENTS)
    if owner.is_control:
        return _control(owner, name, reader)
    from klog.formats.internal_topics import COORDINATORS, FRAMED

    if owner.topic in COORDINATORS:
        return _coordinator(owner.topic or "", owner.key, name, reader)
    if name == "value":
        return _framed(FRAMED[owner.topic or ""], reader)
    raise _UnknownStructError("Kafka ignores this key")


def _control(owner: ContentOwner, name: str, reader: Reader) -> Spans:
    from klog.formats.control import END_TXN_MARKER, KEY, TYPES, kraft_schema
    from klog.formats.structs.spans import struct_spans

    if name == "key":
        for span in _layout(KEY, reader):
            yield span, f"{span.value} {TYPES.get(span.value, 'unknown')}" if span.name == "type" else ""
        return
    if owner.key is None or len(owner.key) < KEY.size:
        raise _UnknownStructError("the key has no type")
    _, type_id = KEY.read(owner.key)
    kraft = kraft_schema(type_id)
    if kraft is not None:
        yield from ((span, "") for span in struct_spans(*kraft, reader))
    elif type_id in TYPES:
        yield from ((span, "") for span in _layout(END_TXN_MARKER, reader))
    else:
        raise _UnknownStructError(f"control records of type {type_id} are not known")


def _layout(layout: Layout, reader: Reader) -> Iterator[StructSpan]:
    from klog.formats.structs.read import FIXED
    from klog.formats.structs.spans import StructSpan

    for field in layout.fields:
        start = reader.position
        value = reader.fixed(FIXED[field.type])
        yield StructSpan(field.name, start, reader.position, value, field.meaning)


def _number(name: str, reader: Reader, text: str) -> StructSpan:
    from klog.formats.structs.read import FIXED
    from klog.formats.structs.spans import StructSpan

    start = reader.position
    return StructSpan(name, start, start + 2, reader.fixed(FIXED["int16"]), text)


def _coordinator(topic: str, key: bytes | None, name: str, reader: Reader) -> Spans:
    """Kafka: CoordinatorRecordSerde.deserialize."""
    from klog.formats.internal_topics import PREFIX_BYTES, coordinator_schemas
    from klog.formats.structs.spans import struct_spans

    record_type = int.from_bytes((key or b"")[:PREFIX_BYTES], "big", signed=True)
    schemas = coordinator_schemas(topic, record_type)
    if name == "key":
        found = schemas[0] if schemas else "unknown"
        yield _number("type", reader, "type of the record"), f"{record_type} {found}"
    if schemas is None:
        raise _UnknownStructError(f"records of type {record_type} are not known")
    if name == "key":
        yield from ((span, "") for span in struct_spans(schemas[1], record_type, reader))
        return
    version = _number("version", reader, "version of the value")
    yield version, ""
    if not schemas[2].lowest <= version.value <= schemas[2].highest:
        raise _UnknownStructError(f"version {version.value} of {schemas[0]} is not known")
    spans = struct_spans(schemas[2], version.value, reader)
    for span in _with_embedded(topic, record_type, spans, reader):
        yield span, _status(span.value) if span.name == "transactionStatus" else ""


def _status(value: int) -> str:
    from klog.formats.transaction_state import TransactionStatus

    known = {int(status): status.name for status in TransactionStatus}
    return f"{value} {known.get(value, 'unknown')}"


def _with_embedded(topic: str, record_type: int, spans: Iterator[StructSpan], reader: Reader) -> Iterator[StructSpan]:
    """Yield *spans*; those of the structs in the metadata of consumers instead of their bytes."""
    from klog.formats.internal_topics import CONSUMER_OFFSETS, EMBEDDED, GROUP_METADATA

    is_consumers = False
    for span in spans:
        last = span.name.rpartition(".")[2]
        if (topic, record_type, span.name) == (CONSUMER_OFFSETS, GROUP_METADATA, "protocolType"):
            is_consumers = span.value == "consumer"
        nested = _embedded(span, EMBEDDED[last], reader) if is_consumers and last in EMBEDDED else None
        yield from [span] if nested is None else nested


def _embedded(span: StructSpan, schema_name: str, reader: Reader) -> list[StructSpan] | None:
    """Return the values of a struct in a byte string behind those of its length; None if it is no such struct."""
    from klog.formats.structs.read import Reader, StructError
    from klog.formats.structs.schema import load
    from klog.formats.structs.spans import StructSpan, struct_spans

    at = span.content_at
    if at is None:
        return None
    inside = Reader(memoryview(reader.data)[: span.end], 0, at, reader.elements)
    try:
        version = _number(f"{span.name}.version", inside, "version of the struct")
        spans = list(struct_spans(load("consumer_protocol", schema_name), version.value, inside, f"{span.name}."))
    except StructError:
        return None
    found = [StructSpan(f"{span.name}.length", span.start, at, span.end - at, "bytes that follow"), version, *spans]
    if found[-1].end < span.end:
        found.append(StructSpan(f"{span.name}.rest", found[-1].end, span.end, None, "left over", found[-1].end))
    return found


def _framed(file: str, reader: Reader) -> Spans:
    """Kafka: AbstractApiMessageSerde.read."""
    from klog.formats.internal_topics import FRAME, FRAME_VERSION
    from klog.formats.structs.read import StructError
    from klog.formats.structs.schema import load, names_by_key
    from klog.formats.structs.spans import StructSpan, struct_spans

    values: list[int] = []
    for name in FRAME:
        start = reader.position
        values.append(reader.unsigned_varint())
        known = names_by_key(file).get(values[-1], ("unknown",))[0]
        span = StructSpan(name, start, reader.position, values[-1], "unsigned varint in front of the record")
        yield span, f"{values[-1]} {known}" if name == "type" else ""
    frame, record_type, version = values
    names = names_by_key(file).get(record_type)
    if frame != FRAME_VERSION or names is None:
        raise _UnknownStructError(f"frame {frame}, type {record_type} is not known")
    yield from ((span, "") for span in struct_spans(load(file, names[0]), version, reader))
    if reader.remaining:
        raise StructError("bytes behind the record")
