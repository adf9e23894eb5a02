"""Values of schemas, many at a time: the check that they are JSON, their rows, and lines with them."""

from __future__ import annotations

import json
import random

import pytest
from klog.kernel import Window, framed_run, json_values
from klog.schemas.json_schema import JsonSchema

from tests.kernel.windows import filled
from tests.oracles.plain.encode import Record, batch, marker
from tests.schemas.random_json import damaged, random_text

DEEPEST = 256
SCHEMA = JsonSchema("{}", {})


def by_python(content: bytes) -> bytes | None:
    """Return the JSON as Python's own reader judges it."""
    found = SCHEMA.decode(content)
    return None if found.error else str(found.value).encode()


@pytest.mark.parametrize("seed", range(4))
def test_random_texts_get_the_verdict_of_pythons_reader(seed: int) -> None:
    """Valid ones and damaged ones: numbers, escapes, surrogates, blanks, bytes that are no UTF-8."""
    numbers = random.Random(seed)
    contents = [random_text(numbers) for _ in range(1500)]
    contents += [damaged(numbers, numbers.choice(contents)) for _ in range(8000)]
    expected = [by_python(content) for content in contents]
    assert json_values(contents) == expected
    assert 2000 < expected.count(None) < 7500


@pytest.mark.parametrize(
    "content",
    [
        b"", b" ", b"1", b"-", b"-0", b"-1", b"+1", b"01", b"1.", b".5", b"1.5", b"1e", b"1e+", b"1E-07", b"1e5.",
        b"0x1", b"9" * 9999, b"nul", b"nulll", b"true", b"True", b"NaN", b"-Infinity", b"Infinity", b"/**/1",
        b'"', b'"\\', b'"\\"', b'"\\u12', b'"\\u12"', b'"\\u123g"', b'"\\uD83D"', b'"\\ud83d\\u12"',
        b'"\\ud83d\\ude00"', b'"\\x41"', b'"\\\0"', b'"\x7f"', b'"\x1f"', b'"\xed\xa0\x80"', b'"\xf4\x90\x80\x80"',
        b"\xef\xbb\xbf1", b"[", b"]", b"[]", b"[ ]", b"[,]", b"[1,]", b"[1 2]", b"[1}", b"{", b"{}", b"{ }", b"{,}",
        b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1 "b":2}', b"{1:2}", b'{"a" : 1 }', b'{"a":1,"a":2}', b"{}{}",
        b'{"a":[{"b":[]}]}', b"[] []", b"\x0b1", b"1\x0c", b"1\0", b"\xa01",
    ],
)  # fmt: skip
def test_each_rule_of_json_is_pythons(content: bytes) -> None:
    """One by one, behind other values and before them."""
    assert json_values([b"[1]", content, b"{}"]) == [b"[1]", by_python(content), b"{}"]


@pytest.mark.parametrize("levels", [DEEPEST, DEEPEST + 1])
def test_a_value_nested_too_deep_is_for_pythons_reader(levels: int) -> None:
    """Its limit is another one, and nothing is a matter of the stack here."""
    objects, arrays = b'{"a": ' * levels + b"1" + b"}" * levels, b"[" * levels + b"]" * levels
    is_known = levels == DEEPEST
    assert json_values([objects, arrays]) == ([objects.replace(b" ", b""), arrays] if is_known else [None, None])
    assert by_python(arrays) == arrays
    assert json_values([b"[" * 1_000_000]) == [None]


def test_a_run_has_the_values_that_begin_alike() -> None:
    """A header or a key that can name a schema, a null, a short value and another id end it."""
    seven, eight = b"\0\0\0\0\7", b"\0\0\0\0\x08"
    header = ((b"__value_schema_id", seven),)
    pairs: list[tuple[bytes | None, bytes | None]] = [
        (None, seven), (b"k", seven + b"a"), (b"", seven + b"bc"), (b"\0", seven), (b"\1k", seven), (b"\2", eight),
        (b"k", None), (b"k", b"\0\0\0\0"), (b"k", seven + b"d"),
    ]  # fmt: skip
    records = [Record(i, 7, key, value, header if i == 8 else ()) for i, (key, value) in enumerate(pairs)]
    end = marker(9, commit=True, timestamp=7, producer_id=1, producer_epoch=0, coordinator_epoch=7 << 8)
    window = filled(batch(records) + end)
    assert window.record(9)[3] == seven + b"\0"
    assert window.records == 10
    runs = [framed_run(window, first, 10) for first in range(10)]
    none = b"", list[bytes]()
    assert runs[:3] == [(seven, [b"", b"a", b"bc"]), (seven, [b"a", b"bc"]), (seven, [b"bc"])]
    assert runs[3:] == [none, none, (eight, [b""]), none, none, none, none]
    assert framed_run(window, 0, 2) == (seven, [b"", b"a"])
    assert framed_run(window, 10, 10) == none
    for first, end in ((-1, 2), (0, 11), (3, 2)):
        with pytest.raises(IndexError):
            framed_run(window, first, end)


def test_contents_take_the_places_of_values_in_lines() -> None:
    """Texts that look like members do not mislead."""
    key = b'a,"value":1,"headers":'
    records = [
        Record(0, 7, key, key),
        Record(1, 7, b"k", b"\xff" * 50),
        Record(2, 7, None, None),
        Record(3, 7, b"k", b"v"),
    ]
    window = filled(batch(records))
    contents: list[bytes | None] = [b"[1]", b"{}", b"2", None]
    facts = [b',"id":7', b"", b',"id":9', b"x"]
    for values in range(5):
        before = _lines(window, 0, values)
        after = _lines(window, 0, values, contents, facts)
        expected = [({"value": [1]}, {"id": 7}), ({"value": {}}, {}), ({"value": 2}, {"id": 9})]
        for old, new, (value, fact) in zip(before, after, expected, strict=False):
            kept = {name: one for name, one in old.items() if not name.startswith("value")}
            assert new == (kept | value | fact if values != 4 else old)
            assert list(new)[:4] == ["offset", "timestamp", "key", "value" if values != 4 else "headers"]
        assert after[3] == before[3]
        assert _lines(window, 2, values, contents[2:], facts[2:]) == after[2:]


def _lines(
    window: Window, first: int, values: int, *others: list[bytes | None] | list[bytes]
) -> list[dict[str, object]]:
    window.flushed()
    assert window.json_lines(first, b',"topic":"t"', values, -1, *others) == window.records  # type: ignore[arg-type]
    return [json.loads(line) for line in bytes(window.output()).splitlines()]


def test_contents_that_are_larger_than_their_values_find_room() -> None:
    """The output grows for one line, and waits for `flushed` before another one."""
    window = filled(batch([Record(offset, 7, None, b"v") for offset in range(3)]))
    large = b'"' + b"a" * (1 << 19) + b'"'
    for at in range(3):
        assert window.json_lines(at, b"", 0, -1, [large] * (3 - at), [b',"id":7'] * (3 - at)) == at + 1
        line = bytes(window.output())
        assert large in line
        assert json.loads(line)["id"] == 7
        window.flushed()


def test_contents_of_other_rows_are_refused() -> None:
    """Neither a number of contents or facts that differs from that of the rows, nor content that is no bytes."""
    window = filled(batch([Record(offset, 7, None, b"v") for offset in range(3)]))
    for contents, facts in (([None] * 2, [b""] * 2), ([None] * 4, [b""] * 4), ([None] * 3, [b""] * 2)):
        with pytest.raises(ValueError, match="contents for 3 rows"):
            window.json_lines(0, b"", 0, -1, contents, facts)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        window.json_lines(0, b"", 0, -1, [b"", "", None], [b""] * 3)  # type: ignore[list-item]
    assert not window.output()


def test_a_large_value_is_in_no_run() -> None:
    """It is decoded by itself: a run of such values would be in memory three times."""
    small, large = b"\0\0\0\0\7[1]", b"\0\0\0\0\7" + b"1" * (1 << 20)
    window = filled(batch([Record(0, 7, None, small), Record(1, 7, None, large), Record(2, 7, None, large[:-5])]))
    assert framed_run(window, 0, 3) == (b"\0\0\0\0\7", [b"[1]"])
    assert framed_run(window, 1, 3) == (b"", [])
    assert framed_run(window, 2, 3) == (b"\0\0\0\0\7", [large[5:-5]])
