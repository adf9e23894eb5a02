"""How a key or a value names its schema: in front of its data, or in a header of the record; or that it names none.

    framed = read_framing(value, headers, "value", registry.with_id)
    if framed is not None:
        print(framed.schema_id, bytes(framed.payload))

Text never begins with a zero byte, but binary data of other serializers does: an id that is not positive and a GUID
that is not known are taken for data.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from klog.schemas.decoded import BAD_HEADER

Headers = Sequence[tuple[bytes, "bytes | None"]]
Lookup = Callable[["int | bytes"], object]
"""Tells for an id, or a GUID of 16 bytes, whether it is known: something that is true."""

_ID: Final = 0
_GUID: Final = 1
_ID_BYTES: Final = 5
_GUID_BYTES: Final = 17
HEADERS: Final = {"key": b"__key_schema_id", "value": b"__value_schema_id"}
"""The headers that name the schema of a side."""


class Framed(NamedTuple):
    """A key or value that names a schema.  *schema_id*: an id, or a GUID of 16 bytes; None with *error* `bad-header`.

    *payload*: the data alone.  *prefix*: bytes of a header behind the GUID: the message indexes of Protobuf.
    """

    schema_id: int | bytes | None
    payload: bytes | memoryview
    prefix: bytes = b""
    error: str | None = None


def read_framing(content: bytes | None, headers: Headers, side: str, is_known: Lookup) -> Framed | None:
    """Return how *content*, the *side* `key` or `value` of a record, names its schema; None if it does not."""
    if content is None:
        return None
    if headers:
        name = HEADERS[side]
        for key, value in reversed(headers):
            if key == name:
                return by_header(content, value)
    return by_prefix(content, is_known)


def by_prefix(content: bytes, is_known: Lookup) -> Framed | None:
    """Return how *content* names its schema by its first bytes; None if it does not."""
    if not content or content[0] > _GUID:
        return None
    if content[0] == _ID:
        if len(content) < _ID_BYTES:
            return None
        schema_id = int.from_bytes(content[1:_ID_BYTES], "big", signed=True)
        return Framed(schema_id, content[_ID_BYTES:]) if schema_id > 0 or is_known(schema_id) else None
    guid = content[1:_GUID_BYTES]
    return Framed(guid, content[_GUID_BYTES:]) if len(content) >= _GUID_BYTES and is_known(guid) else None


def by_header(content: bytes, header: bytes | None) -> Framed:
    """Return the schema that a header names: an id, or a GUID and for Protobuf the message indexes."""
    if header and header[0] == _GUID and len(header) >= _GUID_BYTES:
        return Framed(header[1:_GUID_BYTES], content, header[_GUID_BYTES:])
    if header and header[0] == _ID and len(header) >= _ID_BYTES:
        schema_id = int.from_bytes(header[1:_ID_BYTES], "big", signed=True)
        return Framed(schema_id, content, header[_ID_BYTES:])
    return Framed(None, content, error=BAD_HEADER)
