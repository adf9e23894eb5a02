"""Requests and responses on the wire, for both ends: the supported ones, their headers, their bytes.

A request is int32 size, header, body; a response the same.  All versions that Kafka has are supported; any other one
closes the connection, as at a broker.  Only ApiVersions is answered in any version, with the error that makes a client
retry in version 0 (KIP-511), and its response has the header that every client can read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple, cast

from klog.formats.error_codes import ErrorCode
from klog.formats.structs.read import Reader, StructError, struct_reader
from klog.formats.structs.schema import Data, Schema, load, names_by_key
from klog.formats.structs.write import Hole, Pieces, Writer, struct_writer

_FILE: Final = "wire"
_API_VERSIONS: Final = 18
_HEADER_START: Final = struct.Struct(">hhi")
"""API, version, correlation id: the same in every header."""
_SIZE: Final = struct.Struct(">i")
SIZE_BYTES: Final = _SIZE.size
SHORTEST_REQUEST: Final = _HEADER_START.size


_ERROR_OF_VERSIONS: Final = slice(4, 6)
"""The position of the error in ApiVersions, in every version."""
_UNSUPPORTED_VERSION: Final = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


class WireError(ValueError):
    """The bytes are no such request or response: the connection ends."""


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


class ApiRequest(NamedTuple):
    """One request.  *body* is None if its version is not offered and it asks for the offered ones."""

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
def api_named(name: str) -> Api:
    """Return the API of this name.  Raises KeyError for one that is not there: our mistake."""
    found = api({names[0]: key for key, names in _names().items()}[f"{name}Request"])
    assert found is not None, "it has been found by its number"
    return found


@cache
def offered() -> list[Data]:
    """Return the content of ApiVersions: each API with its versions."""
    apis = [one for one in map(api, sorted(_names())) if one is not None]
    return [{"apiKey": one.key, "minVersion": one.lowest, "maxVersion": one.highest} for one in apis]


def body_size(prefix: bytes | bytearray) -> int:
    """Return how many bytes follow the first four of a message; the caller checks that number."""
    size: int = _SIZE.unpack(prefix)[0]
    return size


def _header(known: Api, version: int, body: Schema) -> tuple[Schema, int]:
    """Return the schema of the header before *body*, the request or the response, and the header's version."""
    flexible = known.request.flexible.hold(version)
    if body is known.request:
        return load(_FILE, "RequestHeader"), 2 if flexible else 1
    return load(_FILE, "ResponseHeader"), int(flexible and known.key != _API_VERSIONS)


@cache
def _readers(known: Api, version: int, body: Schema) -> tuple[Callable[[Reader], Any], Callable[[Reader], Any]]:
    """Return the readers of a header and of its *body*."""
    return struct_reader(*_header(known, version, body)), struct_reader(body, version)


@cache
def _writers(
    known: Api, version: int, body: Schema
) -> tuple[Callable[[Writer, Any], None], Callable[[Writer, Any], None]]:
    """Return the writers of a header and of its *body*."""
    return struct_writer(*_header(known, version, body)), struct_writer(body, version)


def read_request(data: bytes, elements: int) -> ApiRequest:
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
        return ApiRequest(known, version, correlation_id, "", None)
    read_header, read_body = _readers(known, version, known.request)
    reader = Reader(data, version, 0, elements)
    try:
        client_id = read_header(reader)["clientId"] or ""
        return ApiRequest(known, version, correlation_id, client_id, read_body(reader))
    except StructError as error:
        raise WireError(f"{known.name} in version {version}: {error.message or 'cut off'}") from None


def write_response(request: ApiRequest, body: Data) -> Pieces:
    """Return the response to *request*, including size and header, with holes in place of records.

    Raises WireError if a text in it is too long: text of the request that is not UTF-8 grows when it is converted.
    """
    known, version = request.api, request.version if request.body is not None else 0
    write_header, write_body = _writers(known, version, known.response)
    writer = Writer()
    writer.tail += bytes(SIZE_BYTES)  # until it is known
    try:
        write_header(writer, {"correlationId": request.correlation_id})
        write_body(writer, body)
    except ValueError as error:
        raise WireError(f"{request.api.name} in version {request.version}: {error}") from None
    pieces: Pieces = [*writer.pieces, writer.tail]
    size = sum([piece.size if isinstance(piece, Hole) else len(piece) for piece in pieces])
    _SIZE.pack_into(cast(bytearray, pieces[0]), 0, size - SIZE_BYTES)
    return pieces


def write_request(known: Api, version: int, correlation_id: int, client_id: str, body: Data) -> bytearray:
    """Return a request, including size and header.  Raises WireError if a text in it is too long."""
    write_header, write_body = _writers(known, version, known.request)
    writer = Writer()
    writer.tail += bytes(SIZE_BYTES)  # until it is known
    header = {"requestApiKey": known.key, "requestApiVersion": version}
    try:
        write_header(writer, header | {"correlationId": correlation_id, "clientId": client_id})
        write_body(writer, body)
    except ValueError as error:
        raise WireError(f"{known.name} in version {version}: {error}") from None
    _SIZE.pack_into(writer.tail, 0, len(writer.tail) - SIZE_BYTES)
    return writer.tail


def read_response(known: Api, version: int, correlation_id: int, data: bytes | memoryview, elements: int) -> Data:
    """Return the body of the response in *data*, which lacks only the size field; records are slices of *data*.

    Arrays in it may have *elements* elements altogether. An ApiVersions response that refuses its version has version
    0, whatever version was requested. Raises WireError for anything else than a response to that request.  Kafka:
    NetworkClient.parseResponse.
    """
    if known.key == _API_VERSIONS and bytes(data[_ERROR_OF_VERSIONS]) == _UNSUPPORTED_VERSION:
        version = 0
    read_header, read_body = _readers(known, version, known.response)
    reader = Reader(data, version, 0, elements)
    try:
        told = read_header(reader)["correlationId"]
        if told != correlation_id:
            raise WireError(f"{known.name}: a response to request {told} instead of {correlation_id}")
        body: Data = read_body(reader)
    except StructError as error:
        raise WireError(f"{known.name} in version {version}: {error.message or 'cut off'}") from None
    if reader.remaining:
        raise WireError(f"{known.name} in version {version}: {reader.remaining} bytes follow it")
    return body


def versions_response(error: ErrorCode) -> Data:
    """Return the body with the supported APIs."""
    return {"errorCode": error, "apiKeys": offered()}
