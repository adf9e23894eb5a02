"""Requests and responses as they cross the wire: which are known, their headers, their bytes.

A request is int32 size, header, body; a response the same.  The versions offered are all that Kafka has; what lies
outside of them ends the connection, as it does at a broker.  ApiVersions alone is answered in any version, with the
error that makes a client ask again in version 0 (KIP-511), and its response has the header that every client can read.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Final, NamedTuple, cast

from klog.formats.schema import Data, Schema, load, names_by_key
from klog.formats.struct_bytes import StructError, decode
from klog.formats.struct_write import Hole, Pieces, Writer, write
from klog.serve.codes import Code

_FILE: Final = "wire"
_API_VERSIONS: Final = 18
_HEADER_START: Final = struct.Struct(">hhi")
"""API, version, correlation id: the same in every header."""
_SIZE: Final = struct.Struct(">i")
SIZE_BYTES: Final = _SIZE.size
SHORTEST_REQUEST: Final = _HEADER_START.size


class WireError(ValueError):
    """The bytes are no request that is answered: the connection ends."""


class Api(NamedTuple):
    """One API: its name without Request or Response, and its two schemas."""

    name: str
    key: int
    request: Schema
    response: Schema

    @property
    def lowest(self) -> int:
        """The lowest version offered."""
        return self.request.lowest

    @property
    def highest(self) -> int:
        """The highest version offered."""
        return self.request.highest


class Request(NamedTuple):
    """One request.  *body* None: it is of a version that is not offered, and asks which are."""

    api: Api
    version: int
    correlation_id: int
    client_id: str
    body: Data | None


@cache
def _names() -> dict[int, tuple[str, ...]]:
    return names_by_key(_FILE)


@cache
def api(key: int) -> Api | None:
    """Return the API of this number, None when it is not offered."""
    names = _names().get(key)
    if names is None:
        return None
    request, response = names
    return Api(request.removesuffix("Request"), key, load(_FILE, request), load(_FILE, response))


@cache
def offered() -> list[Data]:
    """Return what ApiVersions tells: each API with its versions."""
    apis = [one for one in map(api, sorted(_names())) if one is not None]
    return [{"apiKey": one.key, "minVersion": one.lowest, "maxVersion": one.highest} for one in apis]


def body_size(prefix: bytes | bytearray) -> int:
    """Return how many bytes follow the first four of a request; whether that makes sense, the caller judges."""
    size: int = _SIZE.unpack(prefix)[0]
    return size


def read_request(data: bytes, elements: int) -> Request:
    """Return the request in *data*, which is all but its size; arrays in it may have *elements* elements altogether.

    Raises WireError, which ends the connection.  Kafka: RequestContext.parseRequest.
    """
    if len(data) < SHORTEST_REQUEST:
        raise WireError(f"a request of {len(data)} bytes")
    key, version, correlation_id = _HEADER_START.unpack_from(data)
    known = api(key)
    if known is None:
        raise WireError(f"API {key}, which is not offered")
    if not known.lowest <= version <= known.highest:
        if key != _API_VERSIONS:
            raise WireError(f"{known.name} in version {version}, which is not offered")
        return Request(known, version, correlation_id, "", None)
    flexible = known.request.flexible.hold(version)
    try:
        header, position = decode(load(_FILE, "RequestHeader"), data, 2 if flexible else 1, 0, elements)
        body, _ = decode(known.request, data, version, position, elements)
    except StructError as error:
        raise WireError(f"{known.name} in version {version}: {error.message or 'cut off'}") from None
    return Request(known, version, correlation_id, header["clientId"] or "", body)


def write_response(request: Request, body: Data) -> Pieces:
    """Return the response to *request*, size and header included; where it has records, holes stand for them.

    Raises WireError when a text in it is too long: one of the request, that was no UTF-8, grows when it is made some.
    """
    version = request.version if request.body is not None else 0
    flexible = request.api.response.flexible.hold(version) and request.api.key != _API_VERSIONS
    writer = Writer()
    writer.tail += bytes(SIZE_BYTES)  # until it is known
    write(load(_FILE, "ResponseHeader"), {"correlationId": request.correlation_id}, int(flexible), writer)
    try:
        write(request.api.response, body, version, writer)
    except ValueError as error:
        raise WireError(f"{request.api.name} in version {version}: {error}") from None
    pieces: Pieces = [*writer.pieces, writer.tail]
    size = sum([piece.size if isinstance(piece, Hole) else len(piece) for piece in pieces])
    _SIZE.pack_into(cast(bytearray, pieces[0]), 0, size - SIZE_BYTES)
    return pieces


def versions_response(error: Code) -> Data:
    """Return the body that tells what is offered."""
    return {"errorCode": error, "apiKeys": offered()}
