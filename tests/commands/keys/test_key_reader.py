"""Keys taken from whole batches, and from record rows if a batch is not taken: the result is the same table."""

from __future__ import annotations

import random
import struct

import pytest
from klog.formats.java_integers import LONG_MAX
from klog.kernel import DONE, KeyPlaces, KeyReader

from tests.kernel.windows import CODECS, scanned
from tests.oracles.plain.encode import Record, batch, marker, message

TIME_MS = 1_750_000_000_000
Counted = tuple[int, int, int, list[int], list[int]]


def records(start: int, keys: list[bytes | None]) -> list[Record]:
    return [Record(start + i, TIME_MS, key, b"value") for i, key in enumerate(keys)]


def random_keys(count: int, chance: random.Random) -> list[bytes | None]:
    return [chance.choice((None, b"", b"k%d" % chance.randrange(50), chance.randbytes(9))) for _ in range(count)]


def taken(data: bytes, *, from_offset: int = 0, to_offset: int = LONG_MAX, rows_only: bool = False) -> Counted:
    """Read all batches, by `take` as far as that goes, the others by their rows."""
    table = KeyPlaces(7)
    reader = KeyReader(table)
    window = scanned(data, records=100_000)
    assert window.decompress(0, window.count, CODECS, 1 << 30) == window.count
    first = 0
    while first < window.count:
        if not rows_only:
            first = reader.take(window, first, window.count, 3, from_offset, to_offset)
        if first < window.count:
            window.begin(first, first + 1)
            window.decode()
            window.keep(from_offset, to_offset, -LONG_MAX, LONG_MAX, True, None)
            reader.add(window, 3)
            first += 1
    counts = reader.take_counts()
    reader.close()
    return (*counts[:3], [*counts[3:], table.keys, table.several], [*table.places_by_rules, *table.records_by_rules])


@pytest.mark.parametrize("codec", ["none", "lz4", "gzip"])
def test_batches_and_rows_give_the_same_table(codec: str) -> None:
    """Also where only some of a batch's records are wanted, and between markers."""
    chance = random.Random(1)
    data, offset = b"", 0
    for _ in range(30):
        count = chance.randrange(1, 200)
        data += batch(records(offset, random_keys(count, chance)), codec=codec)
        data += marker(
            offset + count, commit=True, timestamp=TIME_MS, producer_id=7, producer_epoch=0, coordinator_epoch=0
        )
        offset += count + 1
    assert taken(data) == taken(data, rows_only=True)
    some = {"from_offset": offset // 3 + 1, "to_offset": offset // 2 + 1}
    assert taken(data, **some) == taken(data, **some, rows_only=True) != taken(data)


def test_a_batch_that_is_broken_or_old_is_not_taken_in_part() -> None:
    """Its checksum matches and its records do not fill it; nothing is counted twice."""
    good = batch(records(0, [b"a", b"b"]))
    broken = bytearray(batch(records(2, [b"c", b"d", b"e"])))
    struct.pack_into(">i", broken, 57, 4)  # one more record than there is
    old = message(5, 1, b"f", b"value", timestamp=TIME_MS)
    last = batch(records(6, [b"g"]))
    window = scanned(good + bytes(broken) + old + last)
    reader = KeyReader(KeyPlaces(7))
    assert window.decompress(0, 4, CODECS, 1 << 30) == 4
    assert reader.take(window, 0, 4, 0, 0, LONG_MAX) == 1
    assert reader.take_counts()[0] == 2
    assert reader.take(window, 1, 4, 0, 0, LONG_MAX) == 1
    assert reader.take(window, 2, 4, 0, 0, LONG_MAX) == 2
    assert (reader.take(window, 3, 4, 0, 0, LONG_MAX), reader.take_counts()[0]) == (4, 1)


def test_a_very_large_batch_is_read_by_its_rows() -> None:
    """More records than wait at a time."""
    data = batch(records(0, [b"k%d" % (i % 1000) for i in range(40_000)]))
    window = scanned(data, records=50_000)
    assert window.decompress(0, 1, CODECS, 1 << 30) == 1
    reader = KeyReader(KeyPlaces(7))
    assert reader.take(window, 0, 1, 0, 0, LONG_MAX) == 0
    window.begin(0, 1)
    assert window.decode() == DONE
    reader.add(window, 0)
    assert reader.take_counts()[0] == 40_000


def test_full_rows_are_placed_between_batches() -> None:
    keys: list[bytes | None] = [b"k%d" % (i % 900) for i in range(9_000)]
    data = b"".join(batch(records(9_000 * i, keys)) for i in range(5))
    assert taken(data) == taken(data, rows_only=True)


@pytest.mark.parametrize(("size", "different", "count"), [(9, 3, 4_000), (900, 70, 6_000), (1100, 70, 200)])
def test_keys_that_wait_are_counted_whatever_room_runs_out(size: int, different: int, count: int) -> None:
    """Room for the keys of a shard, for the bytes of all keys, for a single key; and the next partition is read."""
    keys = [b"%d " % i + bytes(size) for i in range(different)]
    table = KeyPlaces(7)
    reader = KeyReader(table)
    for partition in (3, 5, 3):
        for start in range(0, count, 1_000):
            some: list[bytes | None] = [keys[i % different] for i in range(start, min(start + 1_000, count))]
            window = scanned(batch(records(start, some)), records=1)
            assert window.decompress(0, 1, CODECS, 1 << 30) == 1
            assert reader.take(window, 0, 1, partition, 0, LONG_MAX) == 1
    reader.close()
    assert (table.keys, table.several) == (different, different)
    assert (sum(table.places_by_rules), sum(table.records_by_rules)) == (2 * different, 3 * count)
