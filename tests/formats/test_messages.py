"""Requests and responses: the same bytes as from another codec, and bytes that are no request end it."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from klog.formats.error_codes import ErrorCode
from klog.formats.structs.read import decode
from klog.formats.structs.schema import Data, Schema
from klog.formats.structs.write import Hole, encode
from klog.formats.wire_messages import (
    Api,
    ApiRequest,
    WireError,
    api,
    body_size,
    offered,
    read_request,
    versions_response,
    write_response,
)

from tests.formats.struct_writer import made_up_struct

KEYS = [one["apiKey"] for one in offered()]


def known(key: int) -> Api:
    found = api(key)
    assert found is not None
    return found


def without_tags(value: Any) -> Any:
    """Return *value* without unknown tagged fields: the other codec drops them."""
    if isinstance(value, dict):
        return {key: without_tags(one) for key, one in value.items() if key != "_unknownTaggedFields"}
    return [without_tags(one) for one in value] if isinstance(value, list) else value


def made_up(one: Api, schema: Schema, version: int, chance: random.Random) -> Data:
    """Return a struct with random content that the other codec reads as it is."""
    value = without_tags(made_up_struct(schema.struct, version, chance))
    if one.name == "ApiVersions" and schema is one.response:
        value["errorCode"] = 0  # after an error it continues in version 0, as clients do
    found: Data = value
    return found


def peer(name: str) -> Any:
    """Return kafka-python's class for a message."""
    from kafka.protocol import admin, consumer, metadata, producer, sasl

    return next(found for room in (admin, consumer, metadata, producer, sasl) if (found := getattr(room, name, None)))


def read_by_peer(name: str, data: bytes, version: int) -> Any:
    """Return what kafka-python makes of a message without its header."""
    found = peer(name).decode(data, version=version)
    found._header = None  # its own decoder leaves it unset, and its encoder asks for it
    found.API_VERSION = version
    return found


def test_what_is_offered_is_all_that_kafka_has() -> None:
    """A missing Produce makes old librdkafka give up with a riddle, and a low maximum costs features."""
    versions = {known(one["apiKey"]).name: (one["minVersion"], one["maxVersion"]) for one in offered()}
    assert len(versions) == 29
    assert (versions["Fetch"], versions["Produce"], versions["ApiVersions"]) == ((4, 18), (3, 13), (0, 4))
    assert versions["InitProducerId"] == (0, 5), "the version that Kafka calls unstable is left out"
    assert api(71) is None


@pytest.mark.parametrize("key", KEYS)
def test_every_version_is_read_and_written_as_by_another_codec(key: int) -> None:
    """kafka-python has the definitions as well, and a codec of its own: it writes the same bytes that it read."""
    one, chance = known(key), random.Random(key)
    for schema in (one.request, one.response):
        for version in range(one.lowest, one.highest + 1):
            for _ in range(10):
                value = made_up(one, schema, version, chance)
                data = encode(schema, value, version)
                assert bytes(read_by_peer(schema.name, data, version).encode()) == data, (version, value)
                assert decode(schema, data, version) == (value, len(data))


@pytest.mark.parametrize("key", KEYS)
def test_headers_are_those_of_another_codec(key: int) -> None:
    one, chance = known(key), random.Random(key)
    for version in range(one.lowest, one.highest + 1):
        value = made_up(one, one.request, version, chance)
        theirs = read_by_peer(one.request.name, encode(one.request, value, version), version)
        theirs.with_header(correlation_id=77, client_id="me")
        data = bytes(theirs.encode(header=True, framed=True))
        assert body_size(data[:4]) == len(data) - 4
        request = read_request(data[4:], 10_000)
        assert request == ApiRequest(one, version, 77, "me", value)
        answer = made_up(one, one.response, version, chance)
        written = b"".join(bytes(piece) for piece in write_response(request, answer) if not isinstance(piece, Hole))
        back = peer(one.response.name).decode(written, version=version, header=True, framed=True)
        assert back.header.correlation_id == 77
        assert read_by_peer(one.response.name, encode(one.response, answer, version), version) == back


def header(key: int, version: int, rest: bytes = b"") -> bytes:
    return struct.pack(">hhih", key, version, 7, 1) + b"k" + rest


def test_a_version_of_api_versions_that_nobody_knows_is_answered_in_version_0() -> None:
    """Newer clients begin with their newest version; error 35 and the list let them continue (KIP-511)."""
    request = read_request(header(18, 99, b"\x00whatever comes then"), 100)
    assert request.body is None
    (data,) = write_response(request, versions_response(ErrorCode.UNSUPPORTED_VERSION))
    assert data[:14] == bytes.fromhex("000000b8 00000007 0023 0000001d")
    assert len(data) == 4 + 0xB8


def test_a_response_of_api_versions_has_the_oldest_header() -> None:
    """A client cannot know the header's version yet."""
    request = read_request(header(18, 3, b"\x00\x02a\x02b\x00"), 100)
    assert request.body == {"clientSoftwareName": "a", "clientSoftwareVersion": "b"}
    (data,) = write_response(request, versions_response(ErrorCode.NONE))
    assert data[4:10] == bytes.fromhex("00000007 0000")


def test_records_stay_out_of_the_message() -> None:
    request = read_request(header(1, 4, struct.pack(">iiiibi", -1, 1, 1, 1, 0, 0)), 10)
    rows: Data = {"partitions": [{"records": Hole(1000, "here"), "abortedTransactions": None}]}
    front, hole, back = write_response(request, {"responses": [rows | {"topic": "t"}]})
    assert isinstance(front, bytearray)
    assert (hole, bytes(back) if isinstance(back, bytearray) else back) == (Hole(1000, "here"), b"")
    assert struct.unpack(">i", front[:4])[0] == len(front) - 4 + 1000
    assert front[-4:] == struct.pack(">i", 1000)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "a request of 0 bytes"),
        (header(99, 0), "API 99, which is not offered"),
        (header(-1, 0), "API -1, which is not offered"),
        (header(1, 3), "Fetch in version 3, which is not offered"),
        (header(1, 19), "Fetch in version 19, which is not offered"),
        (header(3, 1, b"\x7f\xff\xff\xff"), "Metadata in version 1: Tried to allocate a collection of size 2147483647"),
        (header(3, 1, b"\0\0\0\1"), "Metadata in version 1: Tried to allocate"),
        (header(3, 9, b"\0\2\5"), "Metadata in version 9: Error reading byte array of 4 byte"),
        (struct.pack(">hhih", 3, 1, 7, 500), "Metadata in version 1: Error reading byte array"),
        (header(3, 1, b"\0\0\0\x0b" + b"\0\0" * 11), "Metadata in version 1: too many elements"),
    ],
)
def test_what_is_no_request_ends_the_connection(data: bytes, said: str) -> None:
    with pytest.raises(WireError) as caught:
        read_request(data, 10)
    assert str(caught.value).startswith(said)
