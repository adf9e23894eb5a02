"""The counts of a Profile, against counting by hand."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from klog.jobs.stats import estimate
from klog.kernel import Profile

from tests.kernel.windows import filled
from tests.oracles.plain.encode import Record, batch, marker, message

SECRET = bytes(range(16))


def profiled(records: list[Record], a_batch: int = 1000) -> Profile:
    """Return a profile of *records*, so many a window."""
    profile = Profile(SECRET)
    for at in range(0, len(records), a_batch):
        profile.add(filled(batch(records[at : at + a_batch])))
    return profile


def keyed(keys: list[bytes]) -> list[Record]:
    return [Record(offset, 0, key, b"") for offset, key in enumerate(keys)]


def test_records_nulls_and_markers_are_counted() -> None:
    records = [Record(7, 50, None, b"v"), Record(8, 40, b"k", None), Record(9, 60, b"", b"")]
    profile = Profile(SECRET)
    profile.add(filled(batch(records, codec="gzip")))
    profile.add(filled(marker(10, commit=True, timestamp=9, producer_id=1, producer_epoch=0, coordinator_epoch=0)))
    assert (profile.records, profile.markers, profile.null_keys, profile.null_values) == (3, 1, 1, 1)
    assert (profile.first_offset, profile.last_offset) == (7, 9)
    assert (profile.first_timestamp, profile.last_timestamp) == (40, 60)
    assert profile.codecs == [0, 3, 0, 0, 0, 0, 0, 0]
    assert [key[:3] for key in profile.top(5)] == [(1, 1, b"k"), (1, 0, b"")] or [
        key[:3] for key in profile.top(5)
    ] == [(1, 0, b""), (1, 1, b"k")]
    assert estimate(profile.ranks_counted) == 2


def test_a_profile_begins_anew() -> None:
    """One serves thousands of partitions, one after the other."""
    profile = profiled(keyed([b"%d" % i for i in range(5000)]))
    assert profile.error > 0
    profile.clear()
    fresh = Profile(SECRET)
    for name in ("records", "error", "first_offset", "last_timestamp", "registers", "codecs", "largest"):
        assert getattr(profile, name) == getattr(fresh, name)
    assert profile.top(10) == []
    profile.add(filled(batch(keyed([b"again"]))))
    assert [key[:3] for key in profile.top(10)] == [(1, 5, b"again")]


def test_messages_of_old_formats_are_counted() -> None:
    """They have no length of their own that counts, and v0 has no time."""
    profile = Profile(SECRET)
    profile.add(filled(message(5, 0, b"key", b"value")))
    assert (profile.records, profile.first_timestamp, profile.largest) == (1, -1, [(8, 5, 0)])


@pytest.mark.parametrize("count", [1, 10, 1000, 30_000, 60_000, 120_000])
def test_different_keys_are_counted_within_three_percent(count: int) -> None:
    """Three standard deviations and a little; the textbook's estimate is off by more than that around 50,000."""
    keys = [b"user-%d" % i for i in range(count)]
    assert abs(estimate(profiled(keyed(keys + keys[:1000]), 5_000).ranks_counted) / count - 1) < 0.03


def test_few_keys_are_counted_exactly() -> None:
    assert [estimate(profiled(keyed([b"%d" % i for i in range(count)])).ranks_counted) for count in range(1, 20)] == [
        *range(1, 20)
    ]


def test_registers_of_two_are_put_together_by_the_larger() -> None:
    """Slices of one partition are counted on different machines."""
    both = [b"%d" % i for i in range(30_000)]
    left, right = profiled(keyed(both[:20_000])), profiled(keyed(both[10_000:]))
    left.absorb(right.registers)
    assert left.registers == profiled(keyed(both)).registers
    assert sum(left.ranks_counted) == len(left.registers) == 16384
    assert left.ranks_counted == [left.registers.count(rank) for rank in range(52)]
    with pytest.raises(ValueError, match="3 registers instead of 16384"):
        left.absorb(b"abc")


def test_frequent_keys_are_found_among_many() -> None:
    """Each count is too low by at most `error`, and no key that has more records than that is missed."""
    chance = random.Random(11)
    keys = [b"hot-%d" % (i % 7) for i in range(7000)] + [b"cold-%d" % i for i in range(60_000)]
    chance.shuffle(keys)
    profile = profiled(keyed(keys), 5_000)
    truth = Counter(keys)
    assert 0 < profile.error <= len(keys) / 1000
    top = profile.top(3000)
    for count, length, start, _ in top:
        assert len(start) == length
        assert truth[start] - profile.error <= count <= truth[start]
    assert {start for _, _, start, _ in top[:7]} == {b"hot-%d" % i for i in range(7)}
    assert {key for key, count in truth.items() if count > profile.error} <= {start for _, _, start, _ in top}


def test_of_a_long_key_the_start_is_kept() -> None:
    """Keys of a megabyte are legal; thousands of them would be gigabytes."""
    long = [b"x" * 200 + b"%d" % (i % 2) for i in range(6)] + [b"x" * 128]
    found = profiled(keyed(long)).top(5)
    assert [key[:3] for key in found] == [(3, 201, b"x" * 128), (3, 201, b"x" * 128), (1, 128, b"x" * 128)]
    assert len({digest for *_, digest in found}) == 3


def test_the_largest_records_come_first() -> None:
    sizes = [(i * 37) % 101 for i in range(101)]
    records = [Record(offset, 0, None, b"v" * size) for offset, size in enumerate(sizes)]
    found = profiled(records, 10).largest
    assert [offset for _, offset, _ in found] == [sizes.index(size) for size in range(100, 90, -1)]
    assert [size for size, _, _ in found] == sorted((size for size, _, _ in found), reverse=True)


def test_a_key_for_the_hash_has_sixteen_bytes() -> None:
    with pytest.raises(ValueError, match="a key of 3 bytes for SipHash"):
        Profile(b"abc")
