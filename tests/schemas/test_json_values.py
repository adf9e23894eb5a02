"""Numbers keep their shortest digits, and values of any depth become JSON."""

from __future__ import annotations

import json
import math
import random
import struct

import pytest
from klog.schemas.decoded import JsonText
from klog.schemas.json_values import double_value, float_value, json_text


def single(bits: int) -> float:
    return float(struct.unpack("<f", struct.pack("<I", bits))[0])


def shortest(value: float) -> float:
    """All lengths from one digit on: the slow way."""
    texts = (f"{value:.{digits}g}" for digits in range(1, 18))
    for text in texts:
        try:
            if struct.pack("<f", float(text)) == struct.pack("<f", value):
                return float(text)
        except OverflowError:
            pass
    raise AssertionError(value)


@pytest.mark.parametrize("seed", range(4))
def test_a_float_has_the_shortest_digits_that_give_it_back(seed: int) -> None:
    """0.1 as a float32 is not 0.10000000149011612 to anybody who wrote 0.1."""
    numbers = random.Random(seed)
    edges = [0, 1, 2, 0x7FFFFF, 0x800000, 0x7F7FFFFF, 0x80000000, 0x3DCCCCCD, 0xFF7FFFFF]
    bits = edges + [numbers.getrandbits(32) for _ in range(5000)] + [numbers.getrandbits(23) for _ in range(500)]
    for each in bits:
        value = single(each)
        if math.isfinite(value):
            found = float_value(value)
            assert isinstance(found, float)
            assert repr(found) == repr(shortest(value)), hex(each)


def test_what_json_has_no_number_for_is_text() -> None:
    """A bare NaN is no JSON: jq and most parsers stop there."""
    assert [float_value(one) for one in (math.nan, math.inf, -math.inf)] == ["NaN", "Infinity", "-Infinity"]
    assert [double_value(one) for one in (math.nan, math.inf, -math.inf, 0.1)] == ["NaN", "Infinity", "-Infinity", 0.1]
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_text([math.nan])


def test_values_are_one_line_without_blanks() -> None:
    """Text beyond ASCII stays readable, control characters are escaped, and JSON that exists already is not touched."""
    value = {"a": [1, 2.5, None, True, "é\n\0"], "": {}, "n": 10**18}
    assert json_text(value) == '{"a":[1,2.5,null,true,"é\\n\\u0000"],"":{},"n":1000000000000000000}'
    assert json_text(JsonText('{"a":1.10}')) == '{"a":1.10}'
    assert json_text("text") == '"text"'
    assert json_text(0.1) == "0.1"


def test_a_value_deeper_than_pythons_encoder_goes_becomes_json() -> None:
    """A tree may be 2000 deep: Python's encoder stops at about 1000."""
    value: object = {"leaf": [1, "é", {}], "empty": []}
    for depth in range(3000):
        value = {"a": depth, "in": value, "z": None} if depth % 2 else [value, "x"]
    text = json_text(value)
    shallow = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
    assert text.startswith('{"a":2999,"in":[{"a":2997,"in":[')
    inner = value
    for _ in range(2900):
        inner = inner["in"] if isinstance(inner, dict) else inner[0]  # type: ignore[index]
    assert shallow.encode(inner) in text
    assert text.count("[") == text.count("]") == 1500 + 2
