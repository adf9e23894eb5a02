"""Record rows as the buffers of Arrow arrays."""

from __future__ import annotations

import struct

import pytest
from klog.kernel import COLUMNS, Window

from tests.kernel.windows import filled, plain_batches, rows
from tests.plain import dump_text, shapes
from tests.plain.encode import Record, batch, message
from tests.plain.shapes import MS, some_records

LOGS = shapes.all_logs()


def numbers(window: Window, name: str) -> list[int]:
    buffer = bytearray(8 * max(1, window.records))
    window.numbers(COLUMNS.index(name), memoryview(buffer).cast("q"))
    return list(memoryview(buffer).cast("q"))[: window.records]


def binary(window: Window, values: bool) -> list[bytes | None]:
    """Return the keys or values that the buffers of a binary array say there are."""
    count = window.records
    data = bytearray(b"\xee" * max(1, window.binary_bytes(values)))
    offsets, validity = bytearray(b"\xee" * (4 * (count + 1))), bytearray(b"\xff" * (count // 8 + 1))
    nulls = window.binary(values, data, memoryview(offsets).cast("i"), validity)
    at = memoryview(offsets).cast("i")
    assert at[0] == 0
    assert at[count] == window.binary_bytes(values)
    found = [bytes(data[at[i] : at[i + 1]]) if validity[i // 8] >> i % 8 & 1 else None for i in range(count)]
    assert found.count(None) == nulls
    assert all(at[i] == at[i + 1] for i in range(count) if found[i] is None)
    return found


def headers(window: Window) -> list[list[tuple[str, bytes | None]]]:
    count, key_bytes, value_bytes = window.header_sizes()
    lists = bytearray(4 * (window.records + 1))
    keys, key_offsets = bytearray(key_bytes + 1), bytearray(4 * (count + 1))
    values, value_offsets = bytearray(value_bytes + 1), bytearray(4 * (count + 1))
    validity = bytearray(count // 8 + 1)
    ints = [memoryview(buffer).cast("i") for buffer in (lists, key_offsets, value_offsets)]
    nulls = window.headers(ints[0], keys, ints[1], values, ints[2], validity)
    pairs = [
        (
            keys[ints[1][i] : ints[1][i + 1]].decode(),
            bytes(values[ints[2][i] : ints[2][i + 1]]) if validity[i // 8] >> i % 8 & 1 else None,
        )
        for i in range(count)
    ]
    assert sum(value is None for _, value in pairs) == nulls
    return [pairs[ints[0][i] : ints[0][i + 1]] for i in range(window.records)]


@pytest.mark.parametrize("name", LOGS)
def test_every_column_says_what_the_record_and_its_batch_say(name: str) -> None:
    data = LOGS[name]
    window = filled(data)
    expected: dict[str, list[int]] = {column: [] for column in COLUMNS}
    for plain in plain_batches(data):
        for record in plain.records:
            attributes = data[plain.position + 22] if plain.magic == 2 else data[plain.position + 17]
            control = struct.unpack_from(">h", record.key or b"", 2)[0] if plain.control else -1
            row = (
                record.offset, record.timestamp, plain.leader_epoch, plain.producer_id, plain.producer_epoch,
                record.sequence, attributes if plain.magic else -1, plain.position, control,
            )  # fmt: skip
            for column, value in zip(COLUMNS, row, strict=True):
                expected[column].append(value)
    assert {column: numbers(window, column) for column in COLUMNS} == expected


@pytest.mark.parametrize("name", LOGS)
def test_keys_values_and_headers_come_back_from_their_buffers(name: str) -> None:
    """A control record's are Kafka's own, and count as null; header keys become valid UTF-8, which Arrow demands."""
    window = filled(LOGS[name])
    controls = [value != -1 for value in numbers(window, "control")]
    found = rows(window)
    assert binary(window, False) == [None if control else row[2] for row, control in zip(found, controls, strict=True)]
    assert binary(window, True) == [None if control else row[3] for row, control in zip(found, controls, strict=True)]
    assert headers(window) == [[(dump_text.java_text(key), value) for key, value in row[4]] for row in found]


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


def test_a_control_record_whose_key_is_too_short_has_no_type() -> None:
    short = batch([Record(0, MS, b"\0\0\0", b"")], control=True)
    assert numbers(filled(short), "control") == [-1]
    assert numbers(filled(message(0, 1, b"\0\0\0\1", b"", attributes=0x20)), "control") == [-1]


def test_buffers_that_are_too_small_are_refused() -> None:
    """Writing beyond them would be our own mistake, and a crash."""
    window = filled(batch([Record(i, MS, b"key", b"value", ((b"h", b"v"),)) for i in range(16)]))
    ints = memoryview(bytearray(4 * 16)).cast("i")
    fit = memoryview(bytearray(4 * 17)).cast("i")
    with pytest.raises(ValueError, match="16 rows into 15"):
        window.numbers(0, memoryview(bytearray(8 * 15)).cast("q"))
    for column in (-1, len(COLUMNS)):
        with pytest.raises(ValueError, match="column"):
            window.numbers(column, memoryview(bytearray(8 * 16)).cast("q"))
    for data, offsets, validity in ((47, fit, 3), (48, ints, 3), (48, fit, 2)):
        with pytest.raises(ValueError, match="too small"):
            window.binary(False, bytearray(data), offsets, bytearray(validity))
    assert window.binary(False, bytearray(48), fit, bytearray(3)) == 0
    sizes = [
        (17, 17, 17, 17, 17, 3),
        (16, 17, 17, 17, 17, 3),
        (17, 16, 17, 17, 17, 3),
        (17, 17, 16, 17, 17, 3),
        (17, 17, 17, 16, 17, 3),
        (17, 17, 17, 17, 16, 3),
        (17, 17, 17, 17, 17, 2),
    ]
    for lists, keys, key_offsets, values, value_offsets, validity in sizes:
        arguments = (
            memoryview(bytearray(4 * lists)).cast("i"), bytearray(keys),
            memoryview(bytearray(4 * key_offsets)).cast("i"),
            bytearray(values), memoryview(bytearray(4 * value_offsets)).cast("i"), bytearray(validity),
        )  # fmt: skip
        if (lists, keys, key_offsets, values, value_offsets, validity) == sizes[0]:
            assert window.headers(*arguments) == 0
            continue
        with pytest.raises(ValueError, match="too small"):
            window.headers(*arguments)


def test_columns_are_of_the_rows_at_hand_and_of_no_earlier_ones() -> None:
    window = filled(batch(some_records(0, 9)))
    window.cut_records(2)
    assert numbers(window, "offset") == [0, 1]
    assert len(binary(window, True)) == 2
