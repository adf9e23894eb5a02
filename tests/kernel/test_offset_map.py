"""The offset map: digests with published values, a broker's probing, and never a key or a word more than fits."""

from __future__ import annotations

import hashlib
import resource
import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.kernel import DONE, OffsetMap

from tests.kernel.windows import begun, filled
from tests.oracles.plain import decode, shapes
from tests.oracles.plain.encode import Record, batch, marker, message, wrapper
from tests.oracles.plain.shapes import MS
from tests.support.examples import examples

ENTRY = 24
NEAR_MOST, NEAR_ZERO = b"key-9870926", b"key-31657659"  # last windows: 2^31 - 169 and -46
SECRET = bytes(range(16))
BOTH = pytest.mark.parametrize("md5", [False, True], ids=["siphash", "md5"])


def a_map(slots: int, *, md5: bool = False, load_factor: float = 0.9) -> OffsetMap:
    return OffsetMap(slots * ENTRY, SECRET, md5=md5, load_factor=load_factor)


# ---------------------------------------------------------------- digests


def rotated(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & 2**64 - 1


def plain_siphash(secret: bytes, data: bytes) -> bytes:
    """SipHash-2-4 with 128 bits of output, as Aumasson and Bernstein describe it, one sum at a time."""
    keys = [int.from_bytes(secret[at : at + 8], "little") for at in (0, 8)]
    v = [keys[i & 1] ^ int.from_bytes(b"somepseudorandomlygeneratedbytes"[8 * i : 8 * i + 8], "big") for i in range(4)]
    v[1] ^= 0xEE

    def rounds(count: int) -> None:
        for _ in range(count):
            for x, y, by in ((0, 1, 13), (2, 3, 16), (0, 3, 21), (2, 1, 17)):
                v[x] = (v[x] + v[y]) & 2**64 - 1
                v[y] = rotated(v[y], by) ^ v[x]
                if (x, y) in ((0, 1), (2, 1)):
                    v[x] = rotated(v[x], 32)

    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = int.from_bytes(padded[at : at + 8], "little")
        v[3] ^= word
        rounds(2)
        v[0] ^= word
    halves = []
    for index, mark in ((2, 0xEE), (1, 0xDD)):
        v[index] ^= mark
        rounds(4)
        halves.append((v[0] ^ v[1] ^ v[2] ^ v[3]).to_bytes(8, "little"))
    return b"".join(halves)


@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (2, "8177228da4a45dc7fca38bdef60affe4"),
        (7, "a1f1ebbed8dbc153c0b84aa61ff08239"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (9, "264499060ad9baabc47f8b02bb6d71ed"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
        (16, "6ee2a4ca67b054bbfd3315bf85230577"),
        (17, "473d06e8738db89854c066c47ae47740"),
        (31, "2939b0183223fafc1723de4f52c43d35"),
        (32, "7c3956ca5eeafc3e363e9d556546eb68"),
        (63, "5150d1772f50834a503e069a973fbd7c"),
    ],
)
def test_siphash_has_its_published_values(size: int, digest: str) -> None:
    """`vectors_sip128` of the reference implementation: the secret counts from 0 to 15, the input from 0 on."""
    assert a_map(3).digest_of(bytes(range(size))).hex() == digest
    assert plain_siphash(SECRET, bytes(range(size))).hex() == digest


def test_siphash_agrees_with_the_slow_way_on_any_secret_and_length() -> None:
    """The length counts modulo 256."""
    chance = Random(5)
    for length in (*range(80), 255, 256, 257, 1000, 70_000):
        secret, data = chance.randbytes(16), chance.randbytes(length)
        assert OffsetMap(99, secret).digest_of(data) == plain_siphash(secret, data)


def test_md5_is_that_of_everybody_else_at_every_length() -> None:
    """A message and its length share the last block, up to 55 bytes of it; beyond, the length has its own."""
    chance = Random(6)
    for length in (*range(200), 511, 512, 1 << 20):
        data = chance.randbytes(length)
        assert a_map(3, md5=True).digest_of(data) == hashlib.md5(data).digest()


def test_a_secret_that_is_not_given_is_drawn_anew() -> None:
    """Whoever writes the records could else look for keys that share a digest."""
    assert len({OffsetMap(99).digest_of(b"key") for _ in range(20)}) == 20
    assert len({OffsetMap(99, md5=True).digest_of(b"key") for _ in range(20)}) == 1


# ---------------------------------------------------------------- probing


def broker_slots(key: bytes, attempts: int, slots: int) -> list[int]:
    """SkimpyOffsetMap.positionOf with Java's int spelled out."""
    digest = hashlib.md5(key).digest()
    found = []
    for attempt in range(attempts):
        at = min(attempt, 12)
        number = (int.from_bytes(digest[at : at + 4], "big") + max(0, attempt - 12) + 2**31) % 2**32 - 2**31
        found.append(0 if number == -(2**31) else abs(number) % slots)
    return found


@pytest.mark.parametrize(
    ("key", "slots", "first", "expected"),
    [
        (b"a", 10, 0, [7, 4, 5, 6, 8, 1, 7, 1, 8, 7, 3, 8, 9, 0, 1, 2, 3, 4]),
        (b"key-1", 10, 0, [9, 6, 4, 6, 7, 4, 1, 1, 3, 6, 5, 9, 2, 1, 0, 9, 8, 7]),
        (b"key-1", 5592405, 12, [5569657, 5569656, 5569655]),
        (b"a", 5592405, 0, [1493787, 3469609, 988860, 4132496, 936343, 4806621, 162097, 2331156]),
        (b"a", 5592405, 8, [1634153, 1099902, 1939183, 4273058, 2216309, 2216310]),
    ],
)
def test_a_broker_looks_at_these_slots(key: bytes, slots: int, first: int, expected: list[int]) -> None:
    """Thirteen windows of the digest, then one on at a time: downwards where the last window is negative."""
    assert a_map(slots, md5=True).slots_of(key, first + len(expected))[first:] == expected


def test_a_brokers_slots_follow_java_at_the_ends_of_its_int() -> None:
    """Each key takes the last window over an edge: past -1 to 0, past 2^31 - 1 to -2^31, which counts as 0."""
    for slots in (7, 1000, 5592405):
        for key in (*(b"key-%d" % i for i in range(200)), NEAR_MOST, NEAR_ZERO):
            assert a_map(slots, md5=True).slots_of(key, 400) == broker_slots(key, 400, slots)


def test_nine_keys_fill_a_brokers_ten_slots_as_they_do_there() -> None:
    """Slot 1 stays empty; the seventh key finds a place at its fifth attempt, the ninth at its third."""
    table, collisions = a_map(10, md5=True), []
    for offset, key in enumerate(b"abcdefghi"):
        before = table.collisions
        table.put(bytes([key]), offset)
        collisions.append(table.collisions - before)
    assert collisions == [0, 0, 0, 0, 0, 0, 4, 0, 2]
    assert table.probes == 9 + 6
    found = {
        table.slots_of(bytes([key]), n + 1)[n]: at
        for at, (key, n) in enumerate(zip(b"abcdefghi", collisions, strict=True))
    }
    assert found == {0: 2, 2: 7, 3: 3, 4: 6, 5: 5, 6: 1, 7: 0, 8: 8, 9: 4}
    assert [table.get(bytes([key])) for key in b"abcdefghij"] == [*range(9), -1]


def test_our_own_slots_are_neighbours_and_go_round() -> None:
    """One after the other in memory, so a long search is a short read."""
    table = a_map(10)
    starts = set()
    for i in range(200):
        slots = table.slots_of(b"%d" % i, 10)
        assert slots == [(slots[0] + k) % 10 for k in range(10)]
        starts.add(slots[0])
    assert starts == set(range(10))


# ---------------------------------------------------------------- as a map


@pytest.mark.parametrize(
    ("memory", "load_factor", "slots", "usable"),
    [
        (134_217_728, 0.9, 5_592_405, 5_033_164),
        (240, 0.9, 10, 9),
        (263, 0.9, 10, 9),
        (48, 0.9, 2, 1),
        (48, 1.0, 2, 2),
        (2400, 0.57, 100, 56),  # in binary a little less than 57
    ],
)
@BOTH
def test_so_much_memory_holds_so_many_keys(memory: int, load_factor: float, slots: int, usable: int, md5: bool) -> None:
    table = OffsetMap(memory, md5=md5, load_factor=load_factor)
    assert (table.slots, table.usable, table.memory) == (slots, usable, slots * ENTRY)
    assert (table.entries, table.latest, table.last_put, table.probes) == (0, -1, -1, 0)


def test_a_broker_uses_no_more_than_an_array_of_java_holds() -> None:
    """The part of `log.cleaner.dedupe.buffer.size` above that is ignored there."""
    table = OffsetMap(2**33, md5=True)
    assert (table.slots, table.usable) == (89_478_485, 80_530_636)


@pytest.mark.parametrize("memory", [-(2**63), -1, 0, 23, 24, 47, 2**37, 2**63 - 1])
def test_memory_that_makes_no_map_is_refused(memory: int) -> None:
    """A broker needs more than one slot after the load factor; beyond 96 GiB keys would no longer spread."""
    with pytest.raises(ValueError, match=f"offset map of {memory} bytes"):
        OffsetMap(memory)


@pytest.mark.parametrize("load_factor", [-1.0, 0.0, 1e-9, 1.001, float("inf"), float("nan")])
def test_a_load_factor_that_makes_no_map_is_refused(load_factor: float) -> None:
    with pytest.raises(ValueError, match="offset map"):
        OffsetMap(1 << 20, load_factor=load_factor)


def test_a_secret_has_sixteen_bytes() -> None:
    for secret in (b"", bytes(15), bytes(17)):
        with pytest.raises(ValueError, match="SipHash"):
            OffsetMap(1 << 20, secret)


@BOTH
def test_a_later_put_of_a_key_replaces_the_earlier(md5: bool) -> None:
    """For any offsets: callers use their order.  Offset 0 and the largest are offsets like others."""
    table = a_map(10, md5=md5)
    for offset in (5, 0, 2**63 - 1, 7, 0):
        table.put(b"key", offset)
        assert (table.get(b"key"), table.latest, table.last_put, table.entries) == (offset, offset, offset, 1)
    table.latest = 99
    assert (table.latest, table.last_put, table.get(b"key")) == (99, 0, 0)
    with pytest.raises(ValueError, match="offset -1"):
        table.put(b"key", -1)


@BOTH
def test_a_full_map_takes_nothing_more_and_forgets_nothing(md5: bool) -> None:
    """Not even a key that is there: the broker's cleaner asks before it looks."""
    table = a_map(100, md5=md5)
    for i in range(90):
        table.put(b"%d" % i, i)
    for key in (b"0", b"another"):
        with pytest.raises(ValueError, match="full: 90 keys"):
            table.put(key, 1000)
    assert [table.get(b"%d" % i) for i in range(91)] == [*range(90), -1]
    assert (table.entries, table.latest) == (90, 89)
    table.clear()
    assert [table.get(b"%d" % i) for i in range(90)] == [-1] * 90
    assert (table.entries, table.latest, table.last_put, table.probes, table.collisions) == (0, -1, -1, 0, 0)
    table.put(b"0", 3)
    assert table.get(b"0") == 3


@BOTH
def test_a_search_in_a_map_without_a_free_slot_ends(md5: bool) -> None:
    """With a load factor of 1 every slot may be taken, and there is no limit."""
    for slots in range(2, 40):
        table = a_map(slots, md5=md5, load_factor=1.0)
        for i in range(slots):
            table.put(b"key %d" % i, i)
        assert table.entries == slots
        assert table.get(b"absent") == -1
        assert [table.get(b"key %d" % i) for i in range(slots)] == [*range(slots)]


def test_a_broker_may_not_find_again_what_it_put_last() -> None:
    """Its search ends after as many attempts as there are slots, and 12; its put continues until there is room.

    The walk of this key turns at 0, so it comes by the lower slots twice before it reaches the last.
    """
    slots = 61
    table = a_map(slots, md5=True, load_factor=1.0)
    for slot in range(slots - 1):
        table.put(next(key for i in range(10**6) if broker_slots(key := b"%d" % i, 1, slots) == [slot]), slot)
    walk = broker_slots(NEAR_ZERO, 200, slots)
    assert walk.index(slots - 1) >= slots + 12
    table.put(NEAR_ZERO, 1000)
    assert table.collisions == walk.index(slots - 1)
    assert (table.entries, table.get(NEAR_ZERO)) == (slots, -1)


@BOTH
def test_keys_that_resemble_each_other_are_told_apart(md5: bool) -> None:
    """Empty, of one byte, of a megabyte but for the last bit; a key and its beginnings."""
    long = bytes(1 << 20)
    keys = [b"", b"\0", b"\1", bytes(16), long, long[:-1], long[:-1] + b"\1", *(b"x" * n for n in range(1, 300))]
    table = a_map(1000, md5=md5)
    for i, key in enumerate(keys):
        table.put(key, i)
    assert [table.get(key) for key in keys] == [*range(len(keys))]
    assert table.get(bytearray(b"x")) == table.get(memoryview(b"xx")[:1]) == keys.index(b"x")


@BOTH
@given(
    slots=st.integers(2, 40),
    load_factor=st.sampled_from([0.51, 0.75, 0.9, 1.0]),
    steps=st.lists(
        st.one_of(
            st.tuples(st.binary(max_size=1), st.integers(0, 2**63 - 1)),
            st.tuples(st.binary(max_size=40), st.integers(0, 9)),
            st.none(),
        ),
        max_size=120,
    ),
)
@examples(300)
def test_it_is_a_dictionary_until_it_is_full(
    md5: bool, slots: int, load_factor: float, steps: list[tuple[bytes, int] | None]
) -> None:
    table = a_map(slots, md5=md5, load_factor=load_factor)
    model: dict[bytes, int] = {}
    seen = {b"never"}
    for step in steps:
        if step is None:
            table.clear()
            model.clear()
            continue
        key, offset = step
        seen.add(key)
        if len(model) >= table.usable:
            with pytest.raises(ValueError, match="full"):
                table.put(key, offset)
            continue
        table.put(key, offset)
        model[key] = offset
        assert (table.entries, table.latest) == (len(model), offset)
    assert table.probes - table.collisions >= table.entries
    assert {key: table.get(key) for key in seen} == {key: model.get(key, -1) for key in seen}


def test_keys_that_share_half_a_digest_are_told_apart() -> None:
    """Ten billion digests were looked at to find these two; a log of so many keys has such a pair."""
    one, other = bytes.fromhex("cfbc50665706121c"), bytes.fromhex("02053ae98ff8c172")
    table = a_map(10)
    assert table.digest_of(one)[:8] == table.digest_of(other)[:8]
    table.put(one, 3)
    assert table.get(other) == -1
    table.put(other, 8)
    assert (table.get(one), table.get(other), table.entries) == (3, 8, 2)


def test_two_keys_with_one_md5_are_one_key_as_they_are_to_a_broker() -> None:
    """Wang, Feng, Lai and Yu found them in 2004.  The older record is lost there; under a secret they differ."""
    one = bytes.fromhex(
        "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f8955ad340609f4b30283e488832571415a"
        "085125e8f7cdc99fd91dbdf280373c5bd8823e3156348f5bae6dacd436c919c6dd53e2b487da03fd02396306d248cda0"
        "e99f33420f577ee8ce54b67080a80d1ec69821bcb6a8839396f9652b6ff72a70"
    )
    other = bytes(byte ^ 0x80 if at in (19, 45, 59, 83, 109, 123) else byte for at, byte in enumerate(one))
    for md5, expected in ((True, [(8, 8), 1]), (False, [(3, 8), 2])):
        table = a_map(10, md5=md5)
        table.put(one, 3)
        table.put(other, 8)
        assert [(table.get(one), table.get(other)), table.entries] == expected


# ---------------------------------------------------------------- filled from a log


def expected_rows(data: bytes, start: int) -> list[tuple[int, bytes, int]]:
    """Return row, key and offset of what belongs into a map."""
    found, row = [], 0
    for one in decode.scan(data):
        assert isinstance(one, decode.Batch)
        for record in one.records:
            if record.key is not None and record.offset >= start and not one.control:
                found.append((row, record.key, record.offset))
            row += 1
    return found


LOGS = shapes.all_logs()


@BOTH
@pytest.mark.parametrize("name", LOGS)
def test_keys_of_any_log_are_put_with_their_offsets(name: str, md5: bool) -> None:
    """Logs of every format and codec; a marker's key is Kafka's own."""
    data = LOGS[name]
    window = filled(data)
    for start in (-5, 0, 2, 103, 2**31 - 1):
        table = a_map(10_000, md5=md5)
        rows = expected_rows(data, start)
        assert table.fill(window, 0, start) == window.records
        model = {key: offset for _, key, offset in rows}
        assert {key: table.get(key) for key in model} == model
        assert table.entries == len(model)
        assert table.latest == table.last_put == (rows[-1][2] if rows else -1)


@BOTH
def test_the_first_key_that_finds_the_map_full_stops_it(md5: bool) -> None:
    """Also one that is there; records without a key, or below the start, are not asked.  spec: nine keys, not ten."""
    records = [Record(10 + i, MS, b"%d" % i, b"v") for i in range(9)]
    records += [Record(19, MS, None, b"v"), Record(20, MS, b"0", b"again"), Record(21, MS, b"1", b"")]
    window = filled(batch(records[:4]) + batch(records[4:]))
    table = a_map(10, md5=md5)
    assert table.fill(window, 0, 0) == 10
    assert (table.entries, table.latest, table.get(b"0"), table.get(b"1")) == (9, 18, 10, 11)
    assert table.fill(window, 10, 0) == 10
    assert table.fill(window, 10, 22) == 12
    table.clear()
    assert table.fill(window, 10, 0) == 12
    assert (table.entries, table.latest, table.get(b"0"), table.get(b"1")) == (2, 21, 20, 21)


@BOTH
@pytest.mark.parametrize("full_at", [1, 62, 63, 64, 65, 127, 128, 129, 640, 1000])
def test_it_stops_at_that_key_wherever_it_stands(full_at: int, md5: bool) -> None:
    """Rows are hashed many at a time; those behind the one that stopped are as if they had not been."""
    chance = Random(full_at)
    records = [Record(2 * i, MS, b"%d" % i if chance.random() < 0.8 else None, b"") for i in range(2000)]
    data = b"".join(batch(records[at : at + 300]) for at in range(0, 2000, 300))
    rows = expected_rows(data, 0)
    table = OffsetMap(ENTRY * 2 * full_at, SECRET, md5=md5, load_factor=0.5 if full_at > 1 else 0.6)
    stop = table.fill(filled(data), 0, 0)
    assert (stop, table.entries, table.latest) == (rows[full_at][0], full_at, rows[full_at - 1][2])
    assert [table.get(key) for _, key, _ in rows[:full_at]] == [offset for _, _, offset in rows[:full_at]]
    assert {table.get(key) for _, key, _ in rows[full_at:]} == {-1}


@BOTH
def test_keys_of_every_length_get_their_own_digest_side_by_side(md5: bool) -> None:
    """Eight short keys are hashed at once, long ones alone: 55 bytes are the last that are short."""
    lengths = [*range(140), *range(55, 47, -1), *range(49, 57), *[56, 1, 2, 3, 4, 5, 6, 7]]
    keys = [bytes([at]) * length for at, length in enumerate(lengths)]
    table = a_map(1000, md5=md5)
    window = filled(batch([Record(at, MS, key, b"") for at, key in enumerate(keys)]))
    assert table.fill(window, 0, 0) == len(keys)
    assert [table.get(key) for key in keys] == [*range(len(keys))]


@BOTH
def test_an_offset_below_zero_is_none_even_where_the_start_is_lower(md5: bool) -> None:
    """Only a broken log has them."""
    window = filled(batch([Record(at, MS, b"%d" % at, b"") for at in range(-3, 2)]))
    table = a_map(10, md5=md5)
    assert table.fill(window, 0, -(2**63)) == 5
    assert [table.get(b"%d" % at) for at in range(-3, 2)] == [-1, -1, -1, 0, 1]
    assert table.entries == 2


def test_rounds_with_a_small_map_come_to_the_end() -> None:
    """A cleaner with more keys than fit: each round continues at the end of the one before."""
    records = [Record(i, MS, b"%d" % (i % 700), b"") for i in range(2000)]
    window = filled(batch(records))
    table, row, rounds = a_map(100), 0, []
    while row < window.records:
        table.clear()
        row = table.fill(window, row, 0)
        rounds.append(table.entries)
    assert rounds == [90] * 22 + [20]


def test_rows_are_those_that_there_are() -> None:
    window, table = filled(LOGS["plain"]), a_map(10)
    assert table.fill(window, window.records, 0) == window.records
    for first in (-1, window.records + 1):
        with pytest.raises(IndexError, match=f"row {first} of"):
            table.fill(window, first, 0)
    with pytest.raises(TypeError):
        table.fill(None, 0, 0)  # type: ignore[arg-type]


@BOTH
def test_many_keys_keep_their_last_offset(md5: bool) -> None:
    """A map at nine tenths, where searches are long."""
    chance = Random(11)
    numbers = [chance.randrange(20_000) for _ in range(60_000)]
    model = {b"user-%08d" % n: i for i, n in enumerate(numbers)}
    table = a_map(len(model) * 10 // 9 + 2, md5=md5)
    for at in range(0, 60_000, 5000):
        records = [Record(at + i, MS, b"user-%08d" % n, b"") for i, n in enumerate(numbers[at : at + 5000])]
        assert table.fill(filled(batch(records)), 0, 0) == 5000
    assert table.entries == len(model)
    assert all(table.get(key) == offset for key, offset in model.items())
    assert table.probes == 60_000 + table.collisions
    assert 0.5 < table.collisions / 60_000 < 10


@BOTH
def test_a_large_map_is_emptied_as_fast_as_little_was_put(md5: bool) -> None:
    """A log dir has thousands of small partitions, and one map: 128 MiB of zeros for each would take a minute."""
    table = OffsetMap(128 << 20, md5=md5)
    window = filled(batch([Record(i, MS, b"key-%d" % i, b"") for i in range(100)]))
    began = time.process_time()
    for _ in range(5000):
        assert table.fill(window, 0, 0) == 100
        table.clear()
    assert time.process_time() - began < 1.5
    assert table.get(b"key-7") == -1


@BOTH
def test_a_map_that_held_much_is_as_empty_as_one_that_held_little(md5: bool) -> None:
    """Few slots are remembered one by one; beyond, all are swept."""
    table = a_map(6400, md5=md5)
    for count in (1, 99, 100, 101, 102, 103, 5000, 5, 200):
        keys = [b"%d of %d" % (i, count) for i in range(count)]
        for key in keys:
            table.put(key, 1)
        assert table.entries == count
        table.clear()
        assert {table.get(key) for key in keys} == {-1}


def test_a_map_of_our_own_takes_memory_only_as_it_fills() -> None:
    """The size is a limit: a hundred keys in a map of a gigabyte are no gigabyte."""
    before = resident_bytes()
    table = OffsetMap(1 << 30)
    for i in range(100):
        table.put(b"key-%d" % i, i)
    assert resident_bytes() - before < 8 << 20


def resident_bytes() -> int:
    with open("/proc/self/statm") as said:
        return int(said.read().split()[1]) * resource.getpagesize()


def test_no_key_is_lost_when_a_map_spreads() -> None:
    """From 1562 slots to 25 000 to 400 000, in the midst of a window; a search behind the last slot begins anew."""
    records = [Record(i, MS, b"user-%06d" % (i * 7 % 100_003), b"") for i in range(120_000)]
    table = a_map(400_000)
    model: dict[bytes | None, int] = {}
    for at in range(0, len(records), 5000):
        some = records[at : at + 5000]
        window = filled(batch(some))
        assert table.fill(window, 0, 0) == 5000
        model |= {record.key: record.offset for record in some}
        if at in (0, 15_000, 100_000, 115_000):
            assert all(table.get(key or b"") == offset for key, offset in model.items())
            assert table.get(b"user") == -1
        assert (table.entries, table.latest) == (len(model), some[-1].offset)
    assert (table.slots, table.entries) == (400_000, 100_003)
    table.clear()
    assert {table.get(key or b"") for key in model} == {-1}


@pytest.mark.parametrize("usable", [2, 700, 780, 781, 782, 1000, 12_499, 12_500, 12_501])
def test_a_map_is_full_at_its_load_factor_also_before_it_has_spread(usable: int) -> None:
    """It begins with one slot in 256, and spreads when half of them are taken; a low load factor is reached before."""
    table = a_map(400_000, load_factor=usable / 400_000 + 1e-9)
    assert table.usable == usable
    for i in range(usable):
        table.put(b"%d" % i, i)
    with pytest.raises(ValueError, match=f"full: {usable} keys"):
        table.put(b"0", 1)
    table.clear()
    window = begun(batch([Record(i, MS, b"%d" % i, b"") for i in range(usable + 9)]), records=usable + 9)
    assert window.decode() == DONE
    assert table.fill(window, 0, 0) == table.entries == usable


def test_old_formats_and_wrappers_are_read_like_new_ones() -> None:
    """Positions of keys have another origin in compressed data."""
    records = [Record(10 + i, MS, b"key-%d" % i, b"value") for i in range(5)]
    data = wrapper(records, 1, "gzip") + message(15, 0, b"key-0", b"") + batch(records, base_offset=16, codec="lz4")
    data += marker(40, commit=True, timestamp=MS, producer_id=7, producer_epoch=1, coordinator_epoch=2)
    window = filled(message(9, 1, b"first", None, timestamp=MS) + data)
    table = a_map(20)
    assert table.fill(window, 0, 0) == window.records
    assert table.entries == 6


# ---------------------------------------------------------------- the last of each key


def last_rows(data: list[bytes], tombstones: bool) -> list[tuple[int, bytes | None]]:
    """Return offset and key of the last record of each key."""
    every = [
        r for one in data for b in decode.scan(one) if isinstance(b, decode.Batch) and not b.control for r in b.records
    ]
    last = {r.key: at for at, r in enumerate(every) if r.key is not None}
    return [
        (r.offset, r.key) for at, r in enumerate(every) if last.get(r.key) == at and (tombstones or r.value is not None)
    ]


def kept(data: list[bytes], offsets: OffsetMap, tombstones: bool) -> list[tuple[int, bytes | None]]:
    for one in data:
        window = filled(one)
        assert offsets.fill(window, 0, 0) == window.records
    found = []
    for one in data:
        window = filled(one)
        count = offsets.keep_latest(window, tombstones)
        assert count == window.records
        found += [(window.record(i)[0], window.record(i)[2]) for i in range(count)]
    return found


def some_data(chance: Random, start: int) -> list[bytes]:
    """Return batches of few keys, tombstones, records without a key, and a marker."""
    made, offset = list[bytes](), start
    for _ in range(12):
        records = []
        for _ in range(chance.randrange(1, 90)):
            key = chance.choice([None, b"", *(b"key-%d" % i for i in range(60))])
            records.append(Record(offset, MS, key, chance.choice([None, b"", b"value"])))
            offset += chance.randrange(1, 3)
        made.append(batch(records))
    made.append(marker(offset, commit=True, timestamp=MS, producer_id=1, producer_epoch=0, coordinator_epoch=0))
    return made


@BOTH
@pytest.mark.parametrize("tombstones", [False, True])
@pytest.mark.parametrize("start", [0, 1 << 40], ids=["noted", "beyond-notes"])
def test_what_is_the_last_of_its_key_stays(start: int, tombstones: bool, md5: bool) -> None:
    """The notes decide, or digests without notes; records without a key and markers never do."""
    for seed in range(10):
        data = some_data(Random(seed), start)
        assert kept(data, a_map(200, md5=md5), tombstones) == last_rows(data, tombstones)


@pytest.mark.parametrize("parts", [2, 3, 64])
def test_parts_of_the_keys_are_all_of_them_once(parts: int) -> None:
    """A map too small for all keys takes them part by part."""
    data, offsets = some_data(Random(1), 0), a_map(200)
    found = []
    for part in range(parts):
        offsets.clear(0, part, parts)
        found.append(kept(data, offsets, True))
    assert sorted(row for some in found for row in some) == last_rows(data, True)
    assert sum(1 for some in found if some) > 1
    for part in ((0, 0), (2, 2), (-1, 3)):
        with pytest.raises(ValueError, match="part"):
            offsets.clear(0, *part)


def test_of_records_with_one_offset_one_stays() -> None:
    """Overlapping segments have an offset twice; a key has one last record all the same."""
    data = [batch([Record(5, MS, b"k", b"v"), Record(6, MS, b"other", b"v")])] * 2
    assert sorted(kept(data, a_map(200), True)) == [(5, b"k"), (6, b"other")]
