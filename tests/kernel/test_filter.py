"""Which rows stay: by offset, by time, by key; which batches need no look at all."""

from __future__ import annotations

from random import Random

import pytest
from klog.kernel import KeySet

from tests.kernel.windows import CODECS, filled, plain_rows, rows, scanned
from tests.oracles.plain import shapes
from tests.oracles.plain.encode import Record, batch, marker, message, wrapper
from tests.oracles.plain.shapes import MS, some_records

LOW, HIGH = -(2**63), 2**63 - 1
LOGS = shapes.all_logs()


def test_what_stays_lies_in_the_range() -> None:
    """From is included, to is not, for offsets and for times."""
    chance = Random(3)
    for name, data in LOGS.items():
        for _ in range(20):
            offsets = sorted(chance.sample([LOW, *range(120), 2002, 2005, 2010, HIGH], 2))
            times = sorted(chance.sample([LOW, -1, *range(MS - 2, MS + 60), HIGH], 2))
            window = filled(data)
            kept = window.keep(*offsets, *times, True, None)
            expected = [
                row for row in plain_rows(data) if offsets[0] <= row[0] < offsets[1] and times[0] <= row[1] < times[1]
            ]
            assert rows(window) == expected, (name, offsets, times)
            assert kept == window.records == len(expected)


@pytest.mark.parametrize(
    "keys", [[], [b""], [b"key-1"], [b"key-1", b"key-3", b"key"], [b"key-%d" % i for i in range(5)]]
)
def test_what_stays_has_one_of_the_keys(keys: list[bytes]) -> None:
    records = [
        *some_records(0, 20),
        Record(20, MS, None, b"null"),
        Record(21, MS, b"", b"empty"),
        Record(22, MS, b"key-10"),
    ]
    for codec in ("none", "lz4"):
        window = filled(batch(records, codec=codec))
        window.keep(LOW, HIGH, LOW, HIGH, True, KeySet(keys))
        assert [row[0] for row in rows(window)] == [r.offset for r in records if r.key in keys]


def test_many_keys_are_told_apart() -> None:
    """Keys that share a hash's slot are compared themselves."""
    records = [Record(i, MS, b"%d" % (i * 7919), b"") for i in range(20_000)]
    window = filled(b"".join(batch(records[at : at + 4000]) for at in range(0, 8000, 4000)))
    wanted = [record.key or b"" for record in records[::3]]
    kept = window.keep(LOW, HIGH, LOW, HIGH, True, KeySet(iter(wanted + wanted)))
    assert kept == len([i for i in range(8000) if i % 3 == 0])


def test_the_beginning_of_a_key_is_another_key() -> None:
    """Also one that falls into the same slot, as a third of these do."""
    key = bytes(range(200))
    window = filled(batch([Record(i, MS, key[:i], None) for i in range(201)]))
    assert window.keep(LOW, HIGH, LOW, HIGH, True, KeySet([key])) == 1
    assert rows(window)[0][0] == 200


def test_keys_are_bytes() -> None:
    with pytest.raises(TypeError):
        KeySet(["text"])  # type: ignore[list-item]


def test_markers_stay_only_where_they_are_wanted_and_no_key_is() -> None:
    """A marker's key is Kafka's own, not a user's."""
    data = LOGS["transaction"]
    for controls, keys, expected in ((True, None, 8), (False, None, 6), (True, KeySet([b"\0\0\0\0"]), 0)):
        window = filled(data)
        assert window.keep(LOW, HIGH, LOW, HIGH, controls, keys) == expected


def test_batches_outside_a_range_are_left_out_by_their_headers() -> None:
    """This makes ten records from the middle of a gigabyte cheap."""
    data = b"".join(batch(some_records(10 * i, 10)) for i in range(5))
    window = scanned(data)
    assert window.skip_outside(25, 30, LOW)
    window.begin(0, 5)
    window.decode()
    assert [row[0] for row in rows(window)] == list(range(20, 30))
    window = scanned(data)
    assert not window.skip_outside(25, HIGH, LOW), "nothing beyond was met: reading goes on"
    window = scanned(data)
    assert window.skip_outside(LOW, 0, LOW)


def test_a_batch_is_left_out_only_when_all_of_it_is_too_old() -> None:
    data = batch([Record(0, MS, None, b""), Record(1, MS + 9, None, b"")]) + batch([Record(2, MS + 3, None, b"")])
    for from_time, left in ((MS + 9, [0, 1]), (MS + 10, []), (MS + 3, [0, 1, 2]), (LOW, [0, 1, 2])):
        window = scanned(data)
        assert not window.skip_outside(LOW, HIGH, from_time)
        window.begin(0, 2)
        window.decode()
        assert [row[0] for row in rows(window)] == left


def test_a_wrapper_may_begin_before_its_offset() -> None:
    """Its header has only its last message's offset."""
    window = scanned(wrapper(some_records(10, 5), 1, "gzip") + message(15, 1, None, b"v"))
    assert window.skip_outside(LOW, 12, LOW), "the message behind it is beyond"
    window.check(0, 2)
    assert window.decompress(0, 2, CODECS) == 2
    window.begin(0, 2)
    window.decode()
    window.keep(LOW, 12, LOW, HIGH, True, None)
    assert [row[0] for row in rows(window)] == [10, 11]


def test_an_aborting_marker_keeps_its_place() -> None:
    end = marker(3, commit=False, timestamp=MS, producer_id=7, producer_epoch=1, coordinator_epoch=2)
    window = filled(end + batch(some_records(4)))
    assert window.keep(3, 5, LOW, HIGH, True, None) == 2


@pytest.mark.parametrize(
    "header", [(b"", None), (b"trace", None), (b"trace", b""), (b"trace", b"abc"), (b"trac", None), (b"h\xff", b"\x00")]
)
def test_what_stays_has_the_header(header: tuple[bytes, bytes | None]) -> None:
    """Names and values as a whole, one of several is enough; a message of v0 or v1 has none."""
    name, value = header
    of_records: list[tuple[tuple[bytes, bytes | None], ...]] = [
        (),
        ((b"trace", b"abc"),),
        ((b"x", b"trace"), (b"trace", None), (b"", b"")),
        ((b"trace", b""), (b"trace", b"abc")),
        ((b"tracer", b"abc"), (b"trac", b"")),
        ((b"h\xff", b"\x00"), (b"trace", b"abcd")),
    ]
    data = batch([Record(at, MS, b"k", b"v", headers) for at, headers in enumerate(of_records * 3)])
    for content in (data, *LOGS.values()):
        window = filled(content)
        kept = window.keep_with_header(name, value)
        expected = [
            row for row in plain_rows(content) if any(key == name and value in (None, found) for key, found in row[4])
        ]
        assert rows(window) == expected
        assert kept == window.records == len(expected)


def test_what_stays_has_a_value_that_is_taken() -> None:
    """Each value is shown as it is, alone; a record without one is not asked about."""
    for data in LOGS.values():
        window, shown = filled(data), list[bytes]()

        def takes(value: memoryview, shown: list[bytes] = shown) -> bool:
            shown.append(bytes(value))
            return len(shown) % 3 == 0

        values = [row for row in rows(window) if row[3] is not None]
        kept = window.keep_values(takes)
        assert shown == [row[3] for row in values]
        assert rows(window) == values[2::3]
        assert kept == window.records == len(values[2::3])


def test_an_exception_of_the_asker_comes_through() -> None:
    window = filled(batch(some_records(0, 5)))

    def fails(value: memoryview) -> bool:
        raise ValueError(bytes(value))

    with pytest.raises(ValueError, match="value"):
        window.keep_values(fails)
    assert window.records == 5
