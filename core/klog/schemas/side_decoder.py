"""Keys and values by the schemas of registries: from the bytes and headers of a record to its value.

    decoders = SchemaDecoders([read_schemas_topic(partition)])
    values = decoders.side("orders", "value")
    found = values.decode(record.value, record.headers)
    if found is not None:
        print(found.schema_id, found.decoded.value, found.decoded.error)

A schema is parsed when it is first met.  An id can stand for several schemas: in other contexts, after a failover with
two leaders, or after a deletion.  The first that fits a value exactly is taken, the likeliest being tried first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Final, NamedTuple
from weakref import WeakSet

from klog.base.errors import UnsupportedError
from klog.schemas.decoded import (
    BAD_HEADER,
    SCHEMA_BROKEN,
    UNKNOWN_ID,
    BrokenSchemaError,
    Decoded,
    Decoder,
    JsonDecoder,
    MakeDecoder,
)
from klog.schemas.framing import Framed, Headers, read_framing
from klog.schemas.registry import Registry, guid_text
from klog.schemas.schema_version import SchemaVersion

_MOST_BYTES: Final = 48 << 20
"""Memory for schemas that are kept parsed; beyond it all are forgotten, and parsed again when they are met again."""
_BYTES_A_DECODER, _BYTES_A_LETTER = 8 << 10, 32
"""The memory that a parsed schema takes, as measured with Avro and Protobuf: a JSON Schema takes far less."""
NEEDED: Final = "pip install 'klog[schemas]'"


class DecodedSide(NamedTuple):
    """A key or value that names a schema.  *schema_id*: None if only a GUID is known; *guid*: None if none is named.

    *row*: the schema that it was decoded by; None if there is none.
    """

    decoded: Decoded
    schema_id: int | None
    guid: str | None = None
    row: SchemaVersion | None = None


class UsualDecoder(NamedTuple):
    """Decodes the bytes behind the framing of one id.  *fact*: the member of a JSON line that tells the id.

    *json_texts*: see `decoded.JsonDecoder`.
    """

    decode: Callable[[bytes], Decoded]
    json_texts: Callable[[list[bytes]], list[bytes | None]]
    fact: bytes
    schema_id: int


Candidates = list[tuple[SchemaVersion, "Decoder | None"]]


Make = Callable[[SchemaVersion, Registry], Decoder]
"""Makes a decoder of a schema.  Raises BrokenSchemaError."""


class SchemaDecoders:
    """Decoders of all schemas of some registries, in one form.  *context*: the one to prefer.

    *make*: makes them, in a form of its own.
    """

    def __init__(
        self,
        registries: Sequence[Registry],
        canonical: bool = False,
        context: str | None = None,
        make: Make | None = None,
    ) -> None:
        self.registries, self.context = registries, context
        self._make = make or (lambda row, registry: make_decoder(row, registry, canonical))
        self._decoders: dict[tuple[int, str, str, str], Decoder | None] = {}
        self._held = 0
        self._sides: WeakSet[SideDecoder] = WeakSet()
        self._lock = Lock()

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to make the same without what it has parsed, in another process."""
        return type(self), (self.registries, False, self.context, self._make)

    def side(self, topic: str, side: str) -> SideDecoder:
        """Return the decoder of a topic's keys or values; *side*: `key`, `value`."""
        found = SideDecoder(self, topic, side)
        with self._lock:
            self._sides.add(found)
        return found

    def is_known(self, schema_id: int | bytes) -> bool:
        """Whether a registry has an id, or a GUID of 16 bytes."""
        return any(registry.with_id(schema_id) for registry in self.registries)

    def candidates(self, schema_id: int | bytes, topic: str, side: str) -> Candidates:
        """Return the schemas that an id can stand for, the likeliest first; without a decoder if one is broken."""
        return [
            (row, self.decoder(row, number))
            for number, registry in enumerate(self.registries)
            for row in registry.candidates(schema_id, topic, side, self.context)
        ]

    def decoder(self, row: SchemaVersion, number: int = 0) -> Decoder | None:
        """Return the decoder of a schema of registry *number*; None if it is broken."""
        registry = self.registries[number]
        key = number, row.subject, row.type, row.guid
        if key in self._decoders:
            return self._decoders[key]
        size = _size(row, registry)
        if self._held + size > _MOST_BYTES:
            self._forget()
        try:
            made: Decoder | None = self._make(row, registry)
        except BrokenSchemaError:
            made = None
        self._held += size
        self._decoders[key] = made
        return made

    def _forget(self) -> None:
        """Give back the memory of all decoders, also of those that a topic's side still has."""
        self._decoders, self._held = {}, 0
        with self._lock:
            sides = list(self._sides)
        for one in sides:
            one.forget()


def _size(row: SchemaVersion, registry: Registry) -> int:
    """Return about so many bytes as a decoder takes in memory."""
    if row.type not in ("AVRO", "PROTOBUF"):
        return _BYTES_A_DECODER // 8
    try:
        letters = sum(map(len, registry.references(row).values()))
    except BrokenSchemaError:
        letters = 0
    return _BYTES_A_DECODER + _BYTES_A_LETTER * (len(row.text) + letters)


def make_decoder(row: SchemaVersion, registry: Registry, canonical: bool = False) -> Decoder:
    """Return a decoder for the schema of *row*.  Raises BrokenSchemaError; UnsupportedError without klog[schemas]."""
    with needed_packages():
        return _maker(row.type)(row.text, registry.references(row), canonical)


@contextmanager
def needed_packages() -> Iterator[None]:
    """Raise UnsupportedError where a package of klog[schemas] is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"schemas need {error.name}: {NEEDED}") from error


def _maker(kind: str) -> MakeDecoder:
    if kind == "AVRO":
        import fastavro  # noqa: F401  # needed with the first value: it is missed here

        from klog.schemas.avro import AvroSchema

        return AvroSchema
    if kind == "PROTOBUF":
        from klog.schemas.protobuf import ProtobufSchema

        return ProtobufSchema
    if kind == "JSON":
        from klog.schemas.json_schema import JsonSchema

        return JsonSchema
    raise BrokenSchemaError(f"klog does not know the type {kind[:100]}")


class SideDecoder:
    """Decodes the keys, or the values, of one topic.

    *usual*: decoders of ids that were met and stand for one schema, by the first five bytes; without a header of the
    record, the decoder and the bytes behind those give what `decode` would.
    """

    def __init__(self, decoders: SchemaDecoders, topic: str, side: str) -> None:
        self._decoders, self._topic, self._side = decoders, topic, side
        self._known: dict[int | bytes, Candidates] = {}
        self.usual: dict[bytes, UsualDecoder] = {}

    def decode(self, content: bytes | None, headers: Headers) -> DecodedSide | None:
        """Return the value of *content*; None if it names no schema.  Content raises nothing."""
        framed = read_framing(content, headers, self._side, self._decoders.is_known)
        if framed is None:
            return None
        if framed.schema_id is None:
            return DecodedSide(Decoded(None, None, BAD_HEADER), None)
        candidates = self._known.get(framed.schema_id)
        if candidates is None:
            candidates = self._candidates(framed.schema_id)
            if not candidates:
                return _named(framed, Decoded(None, None, UNKNOWN_ID), None)
        row, decoder = candidates[0]
        found = _decode(row, decoder, framed)
        if len(candidates) > 1 and (found.error or found.trailing):
            row, found = self._best(candidates, framed)
        return _named(framed, found, row)

    def forget(self) -> None:
        """Forget the decoders that were met."""
        self._known.clear()
        self.usual.clear()

    def _candidates(self, schema_id: int | bytes) -> Candidates:
        """Return the candidates of an id, and keep them: ids that are not known could be endlessly many."""
        found = self._decoders.candidates(schema_id, self._topic, self._side)
        if found:
            self._known[schema_id] = found
            if len(found) == 1 and found[0][1] is not None and isinstance(schema_id, int):
                fact = f',"{self._side}_schema_id":{schema_id}'.encode()
                begin = b"\0" + schema_id.to_bytes(4, "big", signed=True)
                decoder = found[0][1]
                json_texts = decoder.json_texts if isinstance(decoder, JsonDecoder) else _no_texts
                self.usual[begin] = UsualDecoder(decoder.decode, json_texts, fact, schema_id)
        return found

    @staticmethod
    def _best(candidates: Candidates, framed: Framed) -> tuple[SchemaVersion, Decoded]:
        """Return the first that fits exactly, else the first that leaves bytes over, else the first error."""
        results = [(row, _decode(row, decoder, framed)) for row, decoder in candidates]
        fitting = [one for one in results if not one[1].error]
        exact = [one for one in fitting if not one[1].trailing]
        return (exact or fitting or results)[0]


def _decode(row: SchemaVersion, decoder: Decoder | None, framed: Framed) -> Decoded:
    if decoder is None:
        return Decoded(None, None, SCHEMA_BROKEN)
    if framed.prefix and row.type == "PROTOBUF":
        return decoder.decode(framed.prefix + bytes(framed.payload))
    return decoder.decode(framed.payload)


def _no_texts(payloads: list[bytes]) -> list[bytes | None]:
    return [None] * len(payloads)


def _named(framed: Framed, found: Decoded, row: SchemaVersion | None) -> DecodedSide:
    if isinstance(framed.schema_id, bytes):
        return DecodedSide(found, row and row.id, guid_text(framed.schema_id), row)
    return DecodedSide(found, framed.schema_id, None, row)
