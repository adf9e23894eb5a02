"""JSON Schema: values are JSON and stay as they were written, but for blanks."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from klog.schemas.decoded import BrokenSchemaError, Decoded
from klog.schemas.json_schema import JsonSchema
from klog.schemas.json_values import json_text

from tests.schemas.corpus import REGISTRIES, Image, registry, sides

SCHEMA = JsonSchema('{"title":"Order","type":"object"}', {})


def text_of(content: bytes) -> str:
    return json_text(SCHEMA.decode(content).value)


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b'{"a":1.10,"b":1E400,"c":10000000000000000000000}', '{"a":1.10,"b":1E400,"c":10000000000000000000000}'),
        (b' { "a b" : [ 1 , "x \\" y" ] ,\n\t"c\\\\" : "d" }\r\n', '{"a b":[1,"x \\" y"],"c\\\\":"d"}'),
        (b'"a"', '"a"'),
        (b" null ", "null"),
        ('{"é":"\\ud83d\u2028"}'.encode(), '{"é":"\\ud83d\u2028"}'),
        (b"9" * 10_000, "9" * 10_000),
    ],
)  # fmt: skip
def test_numbers_and_texts_stay_and_blanks_go(content: bytes, text: str) -> None:
    """1.10 is not 1.1 to somebody who compares prices as text, and a line of output is one line."""
    assert text_of(content) == text
    assert SCHEMA.decode(memoryview(content)).value == text


@pytest.mark.parametrize(
    "content",
    [
        b"", b" ", b"{", b'{"a":}', b"{'a':1}", b"NaN", b'{"a":-Infinity}', b"1 2", b'"\x01"', b'"\n"', b'"\xff"',
        b"01", b"\xef\xbb\xbf{}", b"[" * 100_000, b"[1,]", b'{"a":1}x', b"\xc0\x80", b"tru",
    ],
)  # fmt: skip
def test_what_is_no_json_is_an_error(content: bytes) -> None:
    """Embedded as it is, it would break the line that it is part of."""
    assert SCHEMA.decode(content) == Decoded(None, None, "invalid-json")


def test_random_json_is_the_same_without_blanks() -> None:
    """Blanks inside of texts stay, escapes stay, and damaged JSON is never embedded."""
    numbers = random.Random(41)
    for _ in range(5000):
        value = random_value(numbers, 0)
        written = json.dumps(value, indent=numbers.choice((None, 1)), ensure_ascii=numbers.random() < 0.5)
        text = text_of(written.encode())
        assert text == json.dumps(value, separators=(",", ":"), ensure_ascii="\\u" in text or text.isascii())
        broken = bytearray(written.encode())
        broken[numbers.randrange(len(broken))] ^= 1 << numbers.randrange(8)
        found = SCHEMA.decode(bytes(broken))
        if found.error is None:
            assert "\n" not in json_text(found.value)
            assert json.loads(json_text(found.value)) == json.loads(bytes(broken))


def random_value(numbers: random.Random, depth: int) -> Any:
    kind = numbers.randrange(8 if depth < 4 else 6)
    if kind == 6:
        return [random_value(numbers, depth + 1) for _ in range(numbers.randrange(4))]
    if kind == 7:
        return {numbers.choice(("a", "a b", 'q"', "\\", "ü", "")): random_value(numbers, depth + 1) for _ in range(3)}
    return (None, True, numbers.randrange(-999, 10**18), numbers.random(), ' a \\ " \t\n b', "ünï 😀")[kind]


@pytest.mark.parametrize("text", ["", "{", "7", '"x"', "[]", "[" * 100_000])
def test_a_schema_that_is_none_is_an_error(text: str) -> None:
    """Broken JSON, and JSON that is neither an object nor a boolean."""
    begun = time.process_time()
    with pytest.raises(BrokenSchemaError, match="no JSON"):
        JsonSchema(text, {})
    assert time.process_time() - begun < 1


def test_the_title_is_the_name() -> None:
    """It stands beside the record names of Avro and Protobuf."""
    assert SCHEMA.name == "Order"
    assert JsonSchema("true", {}).name is None
    assert JsonSchema('{"title":7}', {}).name is None


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_every_json_value_of_the_corpora_is_as_its_truth_says(image: Image, name: str) -> None:
    """Real serializers wrote them."""
    found = registry(image, name)
    for one in sides(name):
        if one.right.get("type") == "JSON":
            (row,) = found.candidates(one.right["id"], one.topic, one.side)
            assert one.raw is not None
            result = JsonSchema(row.text, found.references(row)).decode(one.raw[5:])
            assert result.error == one.right["error"], one
            if result.error is None:
                assert json.loads(json_text(result.value)) == one.form(canonical=False), one


def test_blanks_go_from_random_json_and_its_texts_stay() -> None:
    """With and without escapes, which take two ways through the text."""
    numbers = random.Random(5)
    texts = ('a "b" \\ c', " x\ty\n", '\0é"', "plain , text : ", "")
    for _ in range(2000):
        value = {
            numbers.choice(texts): [numbers.choice(texts), numbers.random(), None, {"n": numbers.randrange(10**20)}]
            for _ in range(numbers.randrange(4))
        }
        is_ascii = numbers.random() < 0.5
        text = json.dumps(value, indent=numbers.choice((None, 1, "\t")), ensure_ascii=is_ascii)
        found = JsonSchema("{}", {}).decode(text.encode()).value
        assert isinstance(found, str)
        assert json.loads(found) == value
        assert found == json.dumps(value, separators=(",", ":"), ensure_ascii=is_ascii), text
