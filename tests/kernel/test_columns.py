"""Record rows as the buffers of Arrow arrays."""

from __future__ import annotations

import struct

import pytest
from klog.kernel import COLUMNS, Window

from tests.kernel.windows import filled, plain_batches, rows
from tests.oracles.plain import dump_text, shapes
from tests.oracles.plain.encode import Record, batch, message
from tests.oracles.plain.shapes import MS, some_records

LOGS = shapes.all_logs()


WIDTHS = {1: "b", 2: "h", 4: "i", 8: "q"}


def none_of(bits: bytearray, first: int, count: int) -> list[bool]:
    return [not bits[i // 8] >> i % 8 & 1 for i in range(first, first + count)]


def numbers(window: Window, name: str, width: int = 8, first: int = 0) -> list[int]:
    """Return a column, and hold its bits against it: none is -1."""
    rows = first + window.records
    buffer, bits = bytearray(b"\xee" * max(width, width * rows)), bytearray(b"\x55" * (rows // 8 + 1))
    nulls = window.numbers(COLUMNS.index(name), width, buffer, bits, first)
    assert buffer[: width * first] == b"\xee" * (width * first), "what was there stays"
    assert none_of(bits, 0, first) == [not 0x55 >> i % 8 & 1 for i in range(first)]
    found = list(memoryview(buffer[width * first :]).cast(WIDTHS[width]))[: window.records]
    assert none_of(bits, first, window.records) == [number == -1 for number in found]
    assert nulls == found.count(-1)
    return found


def binary(window: Window, values: bool, first: int = 0) -> list[bytes | None]:
    """Return the keys or values in the buffers of a binary array."""
    count = window.records
    size = window.content_sizes()[values]
    data = bytearray(b"\xee" * (5 + size))
    offsets, validity = bytearray(b"\xee" * (4 * (first + count + 1))), bytearray(b"\xff" * ((first + count) // 8 + 1))
    at = memoryview(offsets).cast("i")
    at[first] = 5
    nulls = window.binary(values, data, at, validity, first)
    assert (at[first], at[first + count], data[:5]) == (5, 5 + size, b"\xee" * 5)
    is_none = none_of(validity, first, count)
    found = [None if is_none[i] else bytes(data[at[first + i] : at[first + i + 1]]) for i in range(count)]
    assert found.count(None) == nulls
    assert all(at[first + i] == at[first + i + 1] for i in range(count) if found[i] is None)
    return found


def headers(window: Window, first: int = 0, before: int = 0) -> list[list[tuple[str, bytes | None]]]:
    """Return the headers; as if *first* rows with *before* headers were there already."""
    _, _, count, key_bytes, value_bytes = window.content_sizes()
    lists = bytearray(4 * (first + window.records + 1))
    count += before
    keys, key_offsets = bytearray(key_bytes + 1), bytearray(4 * (count + 1))
    values, value_offsets = bytearray(value_bytes + 1), bytearray(4 * (count + 1))
    validity = bytearray(count // 8 + 1)
    ints = [memoryview(buffer).cast("i") for buffer in (lists, key_offsets, value_offsets)]
    ints[0][first] = before
    nulls = window.headers(ints[0], keys, ints[1], values, ints[2], validity, first)
    is_none = none_of(validity, 0, count)
    pairs = [
        (
            keys[ints[1][i] : ints[1][i + 1]].decode(),
            None if is_none[i] else bytes(values[ints[2][i] : ints[2][i + 1]]),
        )
        for i in range(count)
    ]
    assert sum(value is None for _, value in pairs[before:]) == nulls
    return [pairs[ints[0][first + i] : ints[0][first + i + 1]] for i in range(window.records)]


@pytest.mark.parametrize("name", LOGS)
def test_every_column_says_what_the_record_and_its_batch_say(name: str) -> None:
    data = LOGS[name]
    window = filled(data)
    expected: dict[str, list[int]] = {column: [] for column in COLUMNS}
    for plain in plain_batches(data):
        for record in plain.records:
            attributes = data[plain.position + 22] if plain.magic == 2 else data[plain.position + 17]
            late = (attributes >> 3 & 1) if plain.magic else -1
            control = struct.unpack_from(">h", record.key or b"", 2)[0] if plain.control else -1
            is_end = control in (0, 1) and len(record.value or b"") >= 6
            coordinator_epoch = struct.unpack_from(">i", record.value or b"", 2)[0] if is_end else -1
            transactional = 1 if plain.magic == 2 and attributes & 0x10 else -1
            row = (
                record.offset, record.timestamp, late, plain.leader_epoch, plain.producer_id, plain.producer_epoch,
                record.sequence, transactional, min(control, 7), plain.position,
                1000 * record.timestamp if abs(record.timestamp) < 2**63 // 1000 else -1, coordinator_epoch,
                plain.base_offset if plain.magic == 2 else -1,
            )  # fmt: skip
            for column, value in zip(COLUMNS, row, strict=True):
                expected[column].append(value)
    for first in (0, 1, 7, 8, 21):
        assert {column: numbers(window, column, first=first) for column in COLUMNS} == expected
    for column, width in (("timestamp_type", 1), ("control", 1), ("producer_epoch", 2), ("leader_epoch", 4)):
        assert numbers(window, column, width) == expected[column]


@pytest.mark.parametrize("name", LOGS)
def test_keys_values_and_headers_come_back_from_their_buffers(name: str) -> None:
    """A control record's are Kafka's own, and count as null; header keys become valid UTF-8, which Arrow demands."""
    window = filled(LOGS[name])
    controls = [value != -1 for value in numbers(window, "control")]
    found = rows(window)
    keys = [None if control else row[2] for row, control in zip(found, controls, strict=True)]
    values = [None if control else row[3] for row, control in zip(found, controls, strict=True)]
    pairs = [[(dump_text.java_text(key), value) for key, value in row[4]] for row in found]
    for first in (0, 1, 8, 13):
        assert binary(window, False, first) == keys
        assert binary(window, True, first) == values
        assert headers(window, first, first // 2) == pairs


def test_a_window_without_rows_has_empty_columns() -> None:
    window = Window(10)
    assert numbers(window, "offset") == []
    assert binary(window, True) == []
    assert headers(window) == []


def test_what_a_filter_has_dropped_is_in_no_column() -> None:
    window = filled(batch([Record(i, MS, b"%d" % i, b"v", ((b"h", b"%d" % i),)) for i in range(20)]))
    window.keep(5, 8, 0, 2**62, True, None)
    assert numbers(window, "offset") == [5, 6, 7]
    assert binary(window, False) == [b"5", b"6", b"7"]
    assert headers(window) == [[("h", b"5")], [("h", b"6")], [("h", b"7")]]


def test_a_control_record_whose_type_has_no_name_is_of_an_unknown_one() -> None:
    """It must not look like a record of data."""
    for key in (b"\0\0\0", b"\0\0\0\7", b"\0\0\xff\xff", b"\0\0\x80\0"):
        assert numbers(filled(batch([Record(0, MS, key, b"")], control=True)), "control") == [7]
    assert numbers(filled(message(0, 1, b"\0\0\0\1", b"", attributes=0x20)), "control") == [-1]


def test_only_the_bits_are_written_when_only_they_are_wanted() -> None:
    window = filled(batch([Record(i, MS, b"k", b"v") for i in range(20)], transactional=True))
    bits = bytearray(3)
    assert window.numbers(COLUMNS.index("transactional"), 0, None, bits) == 0
    assert bits == b"\xff\xff\x0f"


def test_buffers_that_are_too_small_are_refused() -> None:
    """Writing beyond them would be our own mistake, and a crash."""
    window = filled(batch([Record(i, MS, b"key", b"value", ((b"h", b"v"),)) for i in range(16)]))
    for column, width, room, bits, first in (
        (0, 8, 8 * 16 - 1, 2, 0), (0, 8, 8 * 16, 1, 0), (0, 8, 8 * 16, 2, 1), (0, 4, 4 * 17, 2, 1),
        (0, 8, 8 * 40, 9, -1), (-1, 8, 999, 99, 0), (len(COLUMNS), 8, 999, 99, 0), (0, 3, 999, 99, 0),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"column|too small"):
            window.numbers(column, width, bytearray(room), bytearray(bits), first)
    with pytest.raises(ValueError, match="too small"):
        window.numbers(0, 8, None, None)
    for data, offsets, validity, first, at in (
        (47, 17, 3, 0, 0), (48, 16, 3, 0, 0), (48, 17, 2, 0, 0), (48, 17, 3, 1, 0), (48, 17, 3, -1, 0),
        (48, 17, 3, 0, 1), (48, 17, 3, 0, -1), (48, 17, 3, 0, 2**31 - 1), (0, 17, 3, 0, 0),
    ):  # fmt: skip
        ends = memoryview(bytearray(4 * offsets)).cast("i")
        ends[0] = at
        with pytest.raises(ValueError, match="too small"):
            window.binary(False, bytearray(data), ends, bytearray(validity), first)
    assert window.binary(False, bytearray(48), memoryview(bytearray(4 * 17)).cast("i"), bytearray(3)) == 0
    good = (17, 17, 17, 17, 17, 3, 0, 0)
    bad = [(*good[:i], good[i] - 1, *good[i + 1 :]) for i in (0, 2, 4, 5, 6, 7)]
    bad += [(*good[:i], 15, *good[i + 1 :]) for i in (1, 3)] + [(*good[:6], 1, 0), (*good[:6], 0, 1)]
    for lists, keys, key_offsets, values, value_offsets, validity, first, before in [good, *bad]:
        begins = memoryview(bytearray(4 * lists)).cast("i")
        begins[0] = before
        arguments = (
            begins, bytearray(keys), memoryview(bytearray(4 * key_offsets)).cast("i"),
            bytearray(values), memoryview(bytearray(4 * value_offsets)).cast("i"), bytearray(validity), first,
        )  # fmt: skip
        if (first, before, lists, keys, key_offsets, values, value_offsets, validity) == (0, 0, *good[:6]):
            assert window.headers(*arguments) == 0
            continue
        with pytest.raises(ValueError, match="too small"):
            window.headers(*arguments)


def test_columns_are_of_the_rows_at_hand_and_of_no_earlier_ones() -> None:
    window = filled(batch(some_records(0, 9)))
    window.cut_records(2)
    assert numbers(window, "offset") == [0, 1]
    assert len(binary(window, True)) == 2
