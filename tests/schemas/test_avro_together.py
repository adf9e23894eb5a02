"""Avro values that are read together have the JSON that each has by itself: no value takes bytes of others."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from typing import Any

import pytest
from klog.schemas.avro import AvroSchema
from klog.schemas.avro_plan import END, TOGETHER
from klog.schemas.decoded import BrokenSchemaError
from klog.schemas.json_values import json_bytes

from tests.schemas.corpus import reference
from tests.schemas.random_avro import SchemaMaker, ValueMaker, mutated, zigzag

RECORD = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}]}

TREE = {"type": "record", "name": "T", "fields": [{"name": "in", "type": ["null", "T"]}]}


def alone(schema: AvroSchema, content: bytes) -> bytes | None:
    found = schema.decode(content)
    return None if found.error or found.trailing else json_bytes(found.value)


def texts(schema: Any, contents: list[bytes]) -> list[bytes | None]:
    return AvroSchema(json.dumps(schema), {}).json_texts(contents)


@pytest.mark.corpora
@pytest.mark.parametrize("canonical", [False, True], ids=["plain", "canonical"])
@pytest.mark.parametrize("seed", range(3))
def test_random_values_have_the_same_json_together_and_alone(seed: int, canonical: bool) -> None:
    """None is for `decode`: a value that is damaged, or has bytes left over."""
    numbers = random.Random(seed)
    given = refused = 0
    for _ in range(300):
        text = json.dumps(SchemaMaker(numbers).schema())
        with suppress(BrokenSchemaError, RecursionError):
            schema, known = AvroSchema(text, {}, canonical), reference().Avro(json.loads(text))
            contents = [ValueMaker(numbers).value(known.schema) for _ in range(numbers.choice((1, 5, TOGETHER + 1)))]
            for place in numbers.sample(range(len(contents)), k=numbers.choice((0, 1, 1))):
                contents[place] = mutated(numbers, contents[place])
            expected = [alone(schema, content) for content in contents]
            assert schema.json_texts(contents) == expected, text
            given, refused = given + len(contents), refused + expected.count(None)
    assert given > 2000
    assert refused > 50


@pytest.mark.parametrize("count", [1, 2, TOGETHER, TOGETHER + 1, 3 * TOGETHER])
def test_any_number_of_whole_values_is_read_together(count: int) -> None:
    """A type without a name is read as well as a record."""
    contents = [zigzag(number) + b"\2x" for number in range(count)]
    assert texts(RECORD, contents) == [b'{"a":%d,"b":"x"}' % number for number in range(count)]
    assert texts("long", [zigzag(number) for number in range(count)]) == [b"%d" % number for number in range(count)]
    assert texts(["null", "long"], [b"\0"] * count) == [b"null"] * count


@pytest.mark.parametrize(
    "bad",
    [
        b"",  # ends before its beginning
        b"\2",  # ends inside, and could take END for its text
        b"\2" + zigzag(len(END) + 3),
        b"\2\2xy",  # a byte is left over
        b"\2\2x" + END,
        b"\2" + zigzag(len(END)) + END,  # END is its text
        b"\2\1x",
        b"\2\2\xff",
        zigzag(2**31) + b"\2x",  # no int
        b"\x80" * 9 + b"\2\2x",  # more than 64 bits
    ],
)
def test_a_value_that_is_not_whole_is_judged_by_itself(bad: bytes) -> None:
    """The values beside it are not mistaken for a part of it, and other groups are read together."""
    good, count = zigzag(7) + b"\2x", TOGETHER
    for place in (0, 1, count - 1):
        contents = [good] * 3 * count
        contents[count + place] = bad
        expected: list[bytes | None] = [b'{"a":7,"b":"x"}'] * len(contents)
        expected[count + place] = alone(AvroSchema(json.dumps(RECORD), {}), bad)
        assert texts(RECORD, contents) == expected


def test_one_value_cannot_take_the_bytes_of_the_next() -> None:
    """Its text reaches over END into the value behind it, whose rest looks whole."""
    longer = zigzag(1) + zigzag(len(END) + 4) + b"a"
    last = zigzag(3) + b"\2x"
    assert texts(RECORD, [longer, b"bcd" + zigzag(2) + b"\2x", last]) == [None, None, b'{"a":3,"b":"x"}']
    assert texts(RECORD, [last + END + last, last]) == [None, b'{"a":3,"b":"x"}']
    assert texts(RECORD, [longer, b"bcd", last]) == [None, None, b'{"a":3,"b":"x"}']


@pytest.mark.parametrize(
    ("schema", "contents", "expected"),
    [
        ("bytes", [b"\0", b"a"], [b'"AA=="', b'"YQ=="']),  # all bytes are its value
        # many values of few bytes
        ({"type": "array", "items": "null"}, [b"\4\0", b"\0", b"\4"], [b"[null,null]", b"[]", None]),
        (TREE, [b"\0", b"\2\0", b"\2"], [b'{"in":null}', b'{"in":{"in":null}}', None]),
        (TREE, [b"\2" * 1500] * TOGETHER, [None] * TOGETHER),
    ],
)  # fmt: skip
def test_values_that_fastavro_must_not_read_together_are_read_one_by_one(
    schema: Any, contents: list[bytes], expected: list[bytes | None]
) -> None:
    """Damaged ones in a row would be nested as deep as all of them together, and fastavro recurses in C."""
    assert texts(schema, contents) == expected
