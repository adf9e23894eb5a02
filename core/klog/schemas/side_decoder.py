"""Keys and values of topics, decoded by the schemas of a registry.

    decoder = SchemaDecoder(registry)
    values = decoder.side("orders", "value")
    found = values.decode(record.value, record.headers)
    if found is not None:
        print(found.row, found.decoded)

An id may stand for several schemas: contexts hand out the same numbers, and two leaders at once have done so, too.  The
first candidate that decodes all bytes is the one, then the first that leaves bytes over.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final, NamedTuple

from klog.base.errors import UnsupportedError
from klog.schemas.decoded import BAD_HEADER, SCHEMA_BROKEN, UNKNOWN_ID, BrokenSchemaError, Decoded, Decoder
from klog.schemas.framing import Framed, Headers, read_framing
from klog.schemas.registry import Registry
from klog.schemas.schema_version import SchemaVersion

_MAKERS: Final = {
    "AVRO": ("klog.schemas.avro", "AvroSchema"),
    "PROTOBUF": ("klog.schemas.protobuf", "ProtobufSchema"),
    "JSON": ("klog.schemas.json_schema", "JsonSchema"),
}
_MOST_TEXT: Final = 3 << 20
"""Characters of the schemas whose decoders are kept; a decoder takes up to 30 times the bytes of its text."""
_BROKEN: Final = Decoded(None, None, SCHEMA_BROKEN)
_UNKNOWN: Final = Decoded(None, None, UNKNOWN_ID)
_BAD_HEADER: Final = Decoded(None, None, BAD_HEADER)


class DecodedSide(NamedTuple):
    """A key or value that names a schema.  *schema_id*: the id or GUID; None if the header with it cannot be read.

    *row*: the schema that decodes it, or else the likeliest; None for an unknown id.
    """

    schema_id: int | bytes | None
    row: SchemaVersion | None
    decoded: Decoded


class _Candidate(NamedTuple):
    row: SchemaVersion
    decoder: Decoder | None


class SchemaDecoder:
    """Decoders of the schemas in *registry*, made when they are first needed.

    *canonical*: the form of each format's own tools.  *context*: the one to prefer.
    """

    def __init__(self, registry: Registry, canonical: bool = False, context: str | None = None) -> None:
        self.registry = registry
        self._canonical, self._context = canonical, context
        self._decoders: dict[SchemaVersion, tuple[Decoder | str, int]] = {}
        self._sides: dict[tuple[str, str], SideDecoder] = {}
        self._left = _MOST_TEXT

    def side(self, topic: str, side: str) -> SideDecoder:
        """Return the decoder for the *side* `key` or `value` of a topic."""
        return self._sides.setdefault((topic, side), SideDecoder(self, topic, side))

    def why_broken(self, row: SchemaVersion) -> str | None:
        """Return the reason why no value decodes by a schema, or None."""
        found = self._decoder(row)
        return found if isinstance(found, str) else None

    def candidates(self, schema_id: int | bytes, topic: str, side: str) -> list[_Candidate]:
        """Return the schemas that an id may stand for, the likeliest first."""
        rows = self.registry.candidates(schema_id, topic, side, self._context)
        found = [(row, self._decoder(row)) for row in rows]
        return [_Candidate(row, None if isinstance(decoder, str) else decoder) for row, decoder in found]

    def _decoder(self, row: SchemaVersion) -> Decoder | str:
        found = self._decoders.get(row)
        if found is None:
            found = self._make(row)
            self._left -= found[1]
            while self._left < 0 and self._decoders:
                self._left += self._decoders.pop(next(iter(self._decoders)))[1]
                for side in self._sides.values():
                    side.forget()
            self._decoders[row] = found
        return found[0]

    def _make(self, row: SchemaVersion) -> tuple[Decoder | str, int]:
        """Return the decoder of a schema, or the reason why there is none, and the characters of its texts."""
        if row.type not in _MAKERS:
            return f"schema type {row.type} is unknown", 100
        try:
            references = self.registry.references(row)
        except BrokenSchemaError as error:
            return str(error), 100
        module, name = _MAKERS[row.type]
        size = len(row.text) + sum(map(len, references.values()))
        try:
            return getattr(import_module(module), name)(row.text, references, self._canonical), size
        except BrokenSchemaError as error:
            return str(error), 100
        except ImportError as error:
            raise UnsupportedError("schemas need fastavro and protobuf: pip install 'klog[schemas]'") from error


class SideDecoder:
    """Decodes the keys or the values of a topic."""

    def __init__(self, decoders: SchemaDecoder, topic: str, side: str) -> None:
        self._decoders = decoders
        self._topic, self._side = topic, side
        self._known: dict[int | bytes, list[_Candidate]] = {}
        self._is_known = decoders.registry.with_id

    def decode(self, content: bytes | None, headers: Headers) -> DecodedSide | None:
        """Return the decoded *content* of a record with *headers*; None if it names no schema."""
        framed = read_framing(content, headers, self._side, self._is_known)
        return None if framed is None else self.decode_framed(framed)

    def decode_framed(self, framed: Framed) -> DecodedSide:
        """Return the decoded content behind a framing."""
        schema_id = framed.schema_id
        if schema_id is None:
            return DecodedSide(None, None, _BAD_HEADER)
        candidates = self._known.get(schema_id)
        if candidates is None:
            candidates = self._decoders.candidates(schema_id, self._topic, self._side)
            if not candidates:
                return DecodedSide(schema_id, None, _UNKNOWN)
            self._known[schema_id] = candidates
        best = None
        for row, decoder in candidates:
            found = _BROKEN if decoder is None else decoder.decode(_payload(row, framed))
            if found.error is None and not found.trailing:
                return DecodedSide(schema_id, row, found)
            if best is None or (best.decoded.error is not None and found.error is None):
                best = DecodedSide(schema_id, row, found)
        assert best is not None
        return best

    def forget(self) -> None:
        """Drop the decoders that are known here."""
        self._known.clear()


def _payload(row: SchemaVersion, framed: Framed) -> bytes | memoryview:
    """Return the bytes to decode: a header may have the message indexes of Protobuf, which else precede the message."""
    if framed.prefix and row.type == "PROTOBUF":
        return framed.prefix + bytes(framed.payload)
    return framed.payload
