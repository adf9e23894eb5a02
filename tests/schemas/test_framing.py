"""Framed or not: a value whose first bytes are somebody's own data is never taken for one of a registry."""

from __future__ import annotations

import random
import struct
from uuid import UUID

import pytest
from klog.schemas.framing import Framed, by_prefix, read_framing

from tests.schemas.corpus import REGISTRIES, Image, data, registry, sides

GUID = UUID("22f9df82-b3e3-6cf9-bf64-8d8571983ff8").bytes
KNOWN = {7, 0, -5, GUID}
VALUE = b"__value_schema_id"


@pytest.mark.parametrize(
    ("content", "framed"),
    [
        (b"\0\0\0\0\7abc", Framed(7, b"abc")),
        (b"\0\0\0\0\7", Framed(7, b"")),
        (b"\0\0\0\x9c\x40abc", Framed(40000, b"abc")),  # not known: a schema that is lost
        (b"\0\0\0\0\0abc", Framed(0, b"abc")),
        (b"\0\xff\xff\xff\xfbabc", Framed(-5, b"abc")),
        (b"\0\xff\xff\xff\xfcabc", None),
        (b"\1" + GUID + b"abc", Framed(GUID, b"abc")),
        (b"\1" + GUID[::-1] + b"abc", None),
        (b"\1" + GUID[:15], None),
        (b"\0\0\0\0", None),
        (b"\0", None),
        (b"", None),
        (b"\2\0\0\0\7", None),
        (b'{"a":1}', None),
    ],
)
def test_the_first_bytes_name_the_schema(content: bytes, framed: Framed | None) -> None:
    """Data of other serializers has such bytes, too: a GUID that is not known, an id that is not positive."""
    assert by_prefix(content, KNOWN.__contains__) == framed
    assert read_framing(content, (), "value", KNOWN.__contains__) == framed


def test_long_keys_are_not_framed_by_a_zero_id() -> None:
    """Keys of LongSerializer begin with eight bytes of which the first ones are zero."""
    for number in (0, 1, 42, 2**24 - 1):
        assert by_prefix(struct.pack(">q", number), {1, 42}.__contains__) is None


def test_a_header_names_the_schema_and_the_bytes_are_the_data() -> None:
    """Confluent's deserializers look there first, and take the last header of that name."""
    headers = [(VALUE, b"\0\0\0\0\7"), (b"other", None), (VALUE, b"\1" + GUID + b"\2\2")]
    assert read_framing(b"\0\0\0\0\7x", headers, "value", KNOWN.__contains__) == Framed(
        GUID, b"\0\0\0\0\7x", b"\2\2"
    )  # fmt: skip
    assert read_framing(b"x", headers[:1], "value", KNOWN.__contains__) == Framed(7, b"x")
    assert read_framing(b"", headers[:1], "value", KNOWN.__contains__) == Framed(7, b"")
    assert read_framing(b"\0\0\0\0\7x", headers, "key", KNOWN.__contains__) == Framed(7, b"x")
    assert read_framing(None, headers, "value", KNOWN.__contains__) is None


@pytest.mark.parametrize("header", [None, b"", b"\1" + GUID[:15], b"\0\0\0\0", b"\2\0\0\0\7", b"text of a header"])
def test_a_header_of_another_form_is_an_error(header: bytes | None) -> None:
    """The record means to be framed; its bytes stay as they are."""
    found = read_framing(b"x", [(VALUE, header)], "value", KNOWN.__contains__)
    assert found == Framed(None, b"x", error="bad-header")


def test_any_bytes_are_framed_or_not() -> None:
    """No content raises, and the payload is always the rest of the bytes."""
    numbers = random.Random(41)
    for _ in range(20_000):
        content = bytes(numbers.choices((0, 1, 2, 7, 255), k=3)) + numbers.randbytes(numbers.randrange(30))
        content = content[: numbers.randrange(len(content) + 1)]
        header = numbers.choice(((), [(VALUE, content)], [(VALUE, None)]))
        found = read_framing(content, header, "value", KNOWN.__contains__)
        if found is not None:
            assert content.endswith(bytes(found.payload))


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_every_side_of_the_corpora_is_framed_as_its_truth_says(image: Image, name: str) -> None:
    """Text, int64 keys, int32 values, Glue and eight-byte ids are not framed; lost ids and cut headers are."""
    known = registry(image, name).with_id
    headers = stored_headers(image, name)
    for one in sides(name):
        found = read_framing(one.raw, headers[one.topic, one.partition, one.offset], one.side, known)
        assert (found is not None) == one.right["framed"], one
        if found is None:
            continue
        assert found.error == ("bad-header" if one.right["error"] == "bad-header" else None), one
        if isinstance(found.schema_id, bytes):
            assert str(UUID(bytes=found.schema_id)) == one.right["guid"], one
        else:
            assert (found.schema_id, None) == (one.right["id"], one.right["guid"]), one


def stored_headers(image: Image, name: str) -> dict[tuple[str, int, int], list[tuple[bytes, bytes | None]]]:
    from klog.cluster.coordinator.coordinator_records import record_windows
    from klog.data_dir.log_dir import LogDir

    found = {}
    for partition in LogDir(str(data(image, name))).partitions:
        if partition.topic is not None and partition.number is not None:
            for rows in record_windows(partition):
                for row in (rows.record(i) for i in range(rows.records)):
                    found[partition.topic, partition.number, row[0]] = list(row[4] or ())
    return found
