"""The result of a decoded key or value, and the errors, which are the same for Avro, Protobuf and JSON Schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol, runtime_checkable

UNKNOWN_ID: Final = "unknown-id"
"""No record of the registry's topic has the id or GUID."""
SCHEMA_BROKEN: Final = "schema-broken"
"""The schema's text cannot be read, or a reference is missing."""
TRUNCATED: Final = "truncated"
"""The bytes end inside the value."""
BAD_VALUE: Final = "bad-value"
"""The bytes cannot be a value of the schema: a branch that is none, a number out of range, text that is not UTF-8."""
BAD_MESSAGE_INDEX: Final = "bad-message-index"
"""The message indexes of Protobuf lead to no message of the schema."""
BAD_HEADER: Final = "bad-header"
"""The header with the schema's id or GUID has another length or form."""
INVALID_JSON: Final = "invalid-json"
INCOMPATIBLE: Final = "incompatible"
"""The value is whole and is none of the reader schema: a symbol or branch that is gone, a field without default."""
OUT_OF_RANGE: Final = "out-of-range"
"""The value was decoded, and a column cannot hold one of its numbers, which is null there."""
TRAILING_BYTES: Final = "trailing-bytes"
"""The value was decoded, and bytes are left over."""


class Decoded(NamedTuple):
    """A decoded key or value: *value* is what `json_text` takes, None if there is an *error*.

    *message*: the full name of a Protobuf message.  *trailing*: bytes are left over behind the value; that is no error
    here.
    """

    value: object
    message: str | None = None
    error: str | None = None
    trailing: bool = False


class JsonText(str):
    """A value that is JSON already: it goes into the output as it is, so that numbers keep their digits."""

    __slots__ = ()


class BadValueError(Exception):
    """The bytes are no value of the schema; *code* is one of the errors above."""

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(reason or code)
        self.code = code


class BrokenSchemaError(Exception):
    """A schema that no value can be decoded by; the message is the reason."""


class Decoder(Protocol):
    """Decodes values of one schema in one form."""

    def decode(self, payload: bytes | memoryview) -> Decoded:
        """Decode the bytes behind the framing; content raises nothing."""
        ...


@runtime_checkable
class JsonDecoder(Decoder, Protocol):
    """A decoder that also makes the JSON of many values at a time."""

    def json_texts(self, payloads: list[bytes]) -> list[bytes | None]:
        """Return the JSON of each value, in UTF-8; None for one that `decode` has to judge: for errors, at least."""
        ...


MakeDecoder = Callable[[str, Mapping[str, str], bool], Decoder]
"""Makes a decoder, once per schema: `AvroSchema(text, references, canonical)`.  Raises BrokenSchemaError.

*references*: the texts of all schemas that it refers to, directly or not, by the name of the reference; those that
others need come first.  *canonical*: the form of the format's own tools instead of klog's plain form.
"""
