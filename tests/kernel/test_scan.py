"""From bytes to batch rows: the end of the walk and its reason, the checksums, the next position."""

from __future__ import annotations

import struct
import time
from dataclasses import replace

import pytest
from klog.kernel import BAD_LENGTH, BAD_MAGIC, DONE, MORE, SHORT_HEADER, Window, ascending_run

from tests.kernel.windows import loaded, plain_batches, scanned
from tests.oracles.plain import compress, encode, shapes
from tests.oracles.plain.encode import BatchHeader, Record, batch, message, raw_batch, wrapper
from tests.oracles.plain.shapes import MS, some_records

LOGS = shapes.all_logs()
BATCH = batch(some_records(7), leader_epoch=3, producer=(9, 1, 5))
HIGHEST = 2**63 - 1


def entry(size: int, magic: int, body: int = 100) -> bytes:
    """Return 17 bytes of an entry that claims *size* and *magic*, and *body* bytes of nothing much."""
    return struct.pack(">qiib", 5, size, 0, magic) + b"\x01" * body


# the walk


@pytest.mark.parametrize("name", LOGS)
def test_every_field_of_every_shape_is_read(name: str) -> None:
    """Each batch row holds what an independent decoder reads there."""
    data = LOGS[name]
    window = scanned(data, position=4096)
    found = [window.batch(i) for i in range(window.count)]
    expected = list(plain_batches(data))
    assert window.next_at == len(data)
    assert len(found) == len(expected)
    for facts, plain in zip(found, expected, strict=True):
        assert facts.crc_checked
        assert facts.crc_holds
        assert facts.computed_crc == facts.crc == plain.crc
        assert facts.position == plain.position + 4096
        assert (facts.size, facts.magic, facts.attributes & 7) == (plain.size, plain.magic, plain.codec)
        assert (facts.last_offset, facts.max_timestamp) == (plain.last_offset, plain.max_timestamp)
        assert facts.records_count == (-1 if plain.count is None else plain.count)
        assert facts.leader_epoch == plain.leader_epoch
        assert (facts.producer_id, facts.producer_epoch) == (plain.producer_id, plain.producer_epoch)
        assert facts.base_sequence == plain.base_sequence
        if plain.magic == 2:
            assert (facts.base_offset, facts.base_timestamp) == (plain.base_offset, plain.base_timestamp)
            assert facts.last_offset_delta == plain.last_offset - plain.base_offset


def test_nothing_is_a_whole_log() -> None:
    window = loaded(b"")
    assert (window.scan(0), window.count, window.next_at) == (DONE, 0, 0)


@pytest.mark.parametrize("left", range(1, 18))
def test_a_rest_too_short_to_say_anything_waits_for_more(left: int) -> None:
    """Kafka reads no entry with 17 bytes or less, whatever these contain."""
    window = loaded(BATCH + entry(0, 99)[:left])
    assert (window.scan(0), window.count, window.next_at) == (MORE, 1, len(BATCH))


@pytest.mark.parametrize("missing", [1, 2, 40, len(BATCH) - 18])
def test_an_entry_beyond_the_end_waits_for_more(missing: int) -> None:
    window = loaded(BATCH + BATCH[:-missing])
    assert (window.scan(0), window.count, window.next_at) == (MORE, 1, len(BATCH))


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize("size", [13, 1, 0, -1, -(2**31)])
def test_a_size_that_no_entry_has_ends_the_walk(size: int, lenient: bool) -> None:
    window = loaded(BATCH + entry(size, 2))
    assert (window.scan(0, lenient), window.count, window.next_at) == (BAD_LENGTH, 1, len(BATCH))


def test_the_largest_size_is_only_too_long() -> None:
    """2^31 - 1 and the overhead do not fit into 32 bits together."""
    window = loaded(entry(2**31 - 1, 2))
    assert (window.scan(0), window.count) == (MORE, 0)


@pytest.mark.parametrize(
    ("magic", "careful", "lenient"), [(3, BAD_MAGIC, DONE), (127, BAD_MAGIC, DONE), (-1, BAD_MAGIC, BAD_MAGIC)]
)
def test_a_format_of_the_future_is_taken_only_by_kafkas_own_tools(magic: int, careful: int, lenient: int) -> None:
    """The dump tool reads any format above 2 as 2; everybody else had better not."""
    data = entry(105, magic)
    assert loaded(data).scan(0) == careful
    window = loaded(data)
    assert window.scan(0, True) == lenient
    assert window.count == (lenient == DONE)


@pytest.mark.parametrize(("magic", "smallest"), [(1, 34), (2, 61)])
def test_an_entry_smaller_than_its_own_header_is_none(magic: int, smallest: int) -> None:
    """Reading its fields would read the bytes behind it; Kafka's own tools do just that."""
    data = entry(smallest - 12 - 1, magic, smallest - 17 - 1)
    assert loaded(data).scan(0) == SHORT_HEADER
    assert loaded(entry(smallest - 12, magic, smallest - 17)).scan(0) == DONE
    window = loaded(data + bytes(60))
    assert window.scan(0, True) == BAD_LENGTH
    assert (window.count, window.next_at) == (1, len(data))


def test_a_lenient_walk_wants_a_whole_header_all_the_same() -> None:
    assert loaded(entry(14, 2, 9)).scan(0, True) == MORE
    assert loaded(entry(14, 0, 9)).scan(0, True) == DONE


def test_batches_without_end_make_rows_without_end() -> None:
    """Room for rows grows with the rows: one-record batches of some 70 bytes are common."""
    data = b"".join(batch([Record(i, MS, None, b"%d" % i)]) for i in range(3000))
    window = scanned(data)
    assert window.count == 3000
    assert [window.batch(i).base_offset for i in (0, 255, 256, 2999)] == [0, 255, 256, 2999]
    assert window.check(0, 3000) == 0


def test_a_walk_may_be_taken_up_again() -> None:
    window = loaded(BATCH * 3)
    assert window.scan(len(BATCH)) == DONE
    assert [window.at(i) for i in range(window.count)] == [len(BATCH), 2 * len(BATCH)]
    window.drop(1)
    assert window.count == 1
    window.drop(0)
    assert window.scan(0) == DONE
    assert window.count == 3


def test_offsets_wrap_as_javas_do() -> None:
    """A crafted header must not be undefined behaviour."""
    header = BatchHeader(base_offset=2**63 - 1, last_offset_delta=2**31 - 1, count=0)
    window = scanned(raw_batch(header, b""))
    assert window.batch(0).last_offset == -(2**63) + 2**31 - 2


# checksums


@pytest.mark.parametrize("data", [BATCH, message(5, 0, b"k", b"v"), message(5, 1, b"k", b"v", timestamp=MS)])
def test_every_flipped_byte_that_the_checksum_covers_is_noticed(data: bytes) -> None:
    """Offset, size, epoch and format version are outside it; a broker sets these without touching the rest."""
    outside = range(17) if data[16] == 2 else range(12)
    for at in range(len(data)):
        if at in range(8, 12) or at == 16:
            continue
        broken = data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]
        window = loaded(BATCH + broken + BATCH)
        assert window.scan(0) == DONE
        bad = 0 if at in outside else 1
        assert window.check(0, 3) == bad, at
        assert window.first_bad(0, 3) == (1 if bad else 3)
        assert window.check(0, 3) == bad, "a second look must say the same"
        assert (window.batch(1).crc_holds, window.batch(0).crc_holds) == (not bad, True)


def test_what_was_not_checked_is_neither_good_nor_bad() -> None:
    broken = BATCH[:-1] + bytes((BATCH[-1] ^ 0xFF,))
    window = loaded(broken * 3)
    window.scan(0)
    window.check(1, 2)
    assert [window.batch(i).crc_checked for i in range(3)] == [False, True, False]
    assert not any(window.batch(i).crc_holds for i in range(3))
    assert (window.first_bad(0, 3), window.first_bad(2, 3)) == (1, 3)


def test_a_batch_that_is_left_out_is_not_checked() -> None:
    """Reading a range must not complain about what lies outside it."""
    broken = BATCH[:-1] + bytes((BATCH[-1] ^ 0xFF,))
    window = loaded(broken * 2)
    window.scan(0)
    window.skip(0)
    assert window.check(0, 2) == 1
    assert window.first_bad(0, 2) == 1
    assert not window.batch(0).crc_checked


def test_an_entry_too_small_for_a_checksum_has_none_that_holds() -> None:
    """Only a lenient walk meets it; nothing may be read behind it."""
    window = loaded(entry(14, 2, 9) + BATCH[: 61 - 26])
    window.scan(0, True)
    assert window.check(0, 1) == 1
    assert (window.batch(0).crc_holds, window.batch(0).computed_crc) == (False, 0)


def test_batches_of_a_kind_are_found() -> None:
    transactional = batch(some_records(0), transactional=True, producer=(1, 0, 0))
    unknown = raw_batch(BatchHeader(codec=5, count=1), b"xx")
    window = scanned(BATCH + transactional + unknown + message(9, 1, None, b"v", attributes=0x18))
    assert window.transactional(0, window.count) == [1]
    assert window.transactional(2, window.count) == []
    assert window.first_unknown_codec(0, window.count) == 2
    assert window.first_unknown_codec(0, 2) == 2
    assert window.first_unknown_codec(3, window.count) == 4


# the search behind damage


def find(
    data: bytes, start: int = 0, readable: int | None = None, floor: int = 0, ceiling: int = HIGHEST
) -> tuple[int, int]:
    return loaded(data).find(start, len(data) if readable is None else readable, floor, ceiling)


@pytest.mark.parametrize(
    "wanted",
    [
        BATCH,
        message(7, 0, None, None),
        message(7, 1, None, None, timestamp=MS),
        wrapper(some_records(5), 1, "gzip"),
        batch(some_records(7), codec="zstd", delete_horizon_ms=5),
        encode.empty_batch(7, 9),
    ],
    ids=["v2", "v0", "v1", "wrapper", "compressed", "empty"],
)
@pytest.mark.parametrize("garbage", [b"", b"\x01", b"\x00" * 7, b"torn " * 50, BATCH[:100], BATCH[1:]])
def test_an_intact_entry_is_found_behind_anything(wanted: bytes, garbage: bytes) -> None:
    """Also at the very end, where less than a batch's header follows."""
    assert find(garbage + wanted) == (DONE, len(garbage))
    assert find(garbage + wanted + b"more") == (DONE, len(garbage))


@pytest.mark.parametrize("count", [*range(60), 1000, 100_003])
def test_zeros_are_passed_over_in_leaps_that_land_right(count: int) -> None:
    """Offset 0 begins with zeros itself: a leap too far would lose the batch."""
    first = batch(some_records(0))
    assert find(bytes(count) + first) == (DONE, count)


def test_only_offsets_that_the_log_can_hold_count() -> None:
    """A message may carry a whole log in its value."""
    assert find(BATCH, floor=7, ceiling=7) == (DONE, 0)
    assert find(BATCH, floor=8)[0] == BAD_LENGTH
    assert find(BATCH, ceiling=6)[0] == BAD_LENGTH
    assert find(BATCH + batch(some_records(10)), floor=8) == (DONE, len(BATCH))


@pytest.mark.parametrize(
    "header",
    [
        BatchHeader(base_offset=7, codec=5),
        BatchHeader(base_offset=7, last_offset_delta=-1),
        BatchHeader(base_offset=7, count=-1),
        BatchHeader(base_offset=7, last_offset_delta=1, count=3),
        BatchHeader(base_offset=7, producer_id=-2),
        BatchHeader(base_offset=7, producer_epoch=-2),
    ],
    ids=lambda header: str(header)[12:],
)
def test_a_header_that_makes_no_sense_is_passed_over(header: BatchHeader) -> None:
    """No broker writes these, and garbage in which a 32-bit checksum holds by chance does."""
    assert find(raw_batch(header, b""))[0] == BAD_LENGTH
    assert (
        find(raw_batch(replace(header, codec=0, last_offset_delta=9, count=0, producer_id=-1, producer_epoch=-1), b""))[
            0
        ]
        == DONE
    )


def test_a_checksum_that_does_not_hold_is_passed_over() -> None:
    broken = BATCH[:-1] + bytes((BATCH[-1] ^ 0xFF,))
    assert find(broken + BATCH) == (DONE, len(broken))
    status, at = find(broken)
    assert status == BAD_LENGTH
    assert len(broken) - 17 <= at <= len(broken)


def test_large_entries_are_left_to_somebody_who_keeps_count() -> None:
    """A checksum over 100 MB at every byte of a hostile file would take days."""
    large = batch([Record(7, MS, None, bytes(5000))])
    assert find(b"x" * 10 + large) == (MORE, 10)


def test_an_entry_that_goes_on_beyond_the_window_may_be_one() -> None:
    """Not if it extends beyond the end of the log as well."""
    cut = b"x" * 10 + BATCH[:-1]
    assert loaded(cut).find(0, len(cut) + 1, 0, HIGHEST) == (MORE, 10)
    assert loaded(cut).find(0, len(cut), 0, HIGHEST)[0] == BAD_LENGTH


def test_where_the_search_gave_up_it_can_be_taken_up_again() -> None:
    """With the next window from there on, nothing that begins near the seam is missed."""
    data = b"\x01" * 500 + BATCH
    for cut in range(480, len(data)):
        window = loaded(data[:cut])
        status, at = window.find(0, len(data), 0, HIGHEST)
        assert at <= 500
        if status != MORE:
            assert status == BAD_LENGTH
            status, more = loaded(data[at:]).find(0, len(data) - at, 0, HIGHEST)
            assert (status, at + more) == (DONE, 500)


def test_a_hostile_stretch_is_searched_in_no_time() -> None:
    """A plausible small header at every 26th byte: each costs a checksum of at most 4 KiB."""
    fake = struct.pack(">qiIbbq", 7, 4000, 0, 1, 0, -1)
    data = fake * 8000
    window, at, met = loaded(data), 0, 0
    began = time.process_time()
    while (found := window.find(at, len(data), 0, HIGHEST))[0] == MORE:
        at, met = found[1] + 1, met + 1
    assert found[0] == BAD_LENGTH
    assert found[1] >= len(data) - 61
    assert met <= 8000
    assert time.process_time() - began < 3


def test_checksums_on_the_way_are_those_computed_afterwards() -> None:
    """One pass instead of two, for a caller that needs all checksums: nothing else about it may differ."""
    damaged = bytearray(BATCH)
    damaged[-1] ^= 0xFF
    data = BATCH + bytes(damaged) + BATCH
    once, later = loaded(data), loaded(data)
    assert once.scan(0, check=True) == later.scan(0) == DONE
    assert once.first_bad(0, 3) == 1, "it is known without `check`"
    assert once.check(0, 3) == later.check(0, 3) == 1
    assert once.check(0, 1) == 0
    assert [once.batch(i) for i in range(3)] == [later.batch(i) for i in range(3)]
    assert [once.first_bad(i, 3) for i in range(4)] == [later.first_bad(i, 3) for i in range(4)] == [1, 1, 3, 3]
    once.drop(1)
    once.scan(once.at(0) + len(BATCH))
    assert once.check(0, 3) == 1, "what was dropped and is found once more is checked once more"


# the buffer


def test_a_window_keeps_to_its_bytes() -> None:
    window = loaded(BATCH, position=100)
    assert (window.position, window.size) == (100, len(BATCH))
    assert window.copy(0, len(BATCH)) == BATCH
    assert window.copy(5, 5) == b""
    for start, end in ((-1, 4), (5, 4), (0, len(BATCH) + 1)):
        with pytest.raises(IndexError):
            window.copy(start, end)
    with pytest.raises(IndexError):
        window.scan(len(BATCH) + 1)
    with pytest.raises(ValueError, match="a window of"):
        window.load(0, len(BATCH) + 1)
    with pytest.raises(ValueError, match="a window of"):
        window.load(0, -1)


def test_rows_that_are_not_there_cannot_be_asked_for() -> None:
    """A mistake of ours is an exception, never a read beyond the rows."""
    window = scanned(BATCH)
    for call in (window.batch, window.at, window.skip, window.batch_head):
        for i in (-1, 1):
            with pytest.raises(IndexError):
                call(i)
    for ranged in (window.check, window.first_bad, window.first_unknown_codec, window.transactional, window.begin):
        for first, end in ((-1, 1), (0, 2), (1, 0)):
            with pytest.raises(IndexError):
                ranged(first, end)
    with pytest.raises(IndexError):
        window.drop(2)


def test_a_new_content_forgets_the_old() -> None:
    window = scanned(BATCH)
    room = window.buffer(2 * len(BATCH))
    assert len(room) >= 2 * len(BATCH)
    assert (window.count, window.size, window.records) == (0, 0, 0)


def test_zeros_are_told_from_almost_zeros() -> None:
    assert loaded(bytes(1000)).zeros(0)
    assert not loaded(bytes(999) + b"\1").zeros(0)
    assert loaded(b"\1" + bytes(999)).zeros(1)
    assert loaded(b"\1").zeros(1)
    assert Window(10).zeros(0)


def test_every_codec_has_its_number() -> None:
    """The encoder's and the kernel's idea of the attributes agree."""
    for number, codec in enumerate(compress.CODECS):
        assert scanned(batch(some_records(0), codec=codec)).batch(0).attributes & 7 == number


def test_an_entry_at_a_given_place_holds_or_does_not() -> None:
    """Asked of one place, whatever its size: the search leaves large entries to its caller."""
    large = batch([Record(7, MS, None, bytes(100_000))])
    data = b"##" + large + BATCH
    window = loaded(data)
    assert window.entry_holds(2)
    assert window.entry_holds(2 + len(large))
    for at in (-1, 0, 1, 3, len(data) - 17, len(data) - 1, len(data), len(data) + 1, 1 << 40):
        assert not window.entry_holds(at)
    assert not loaded(data[:-1]).entry_holds(2 + len(large))
    assert loaded(message(7, 0, None, b"v")).entry_holds(0)
    assert not loaded(message(7, 0, None, b"v", crc=5)).entry_holds(0)


# what producers wrote, and where offsets are


def test_batches_of_producers_are_those_that_hold_and_are_wanted() -> None:
    """A log without idempotent producers costs their bookkeeping nothing; a flipped batch must not count."""
    flipped = bytearray(batch(some_records(2), producer=(5, 0, 0)))
    flipped[-1] ^= 0xFF
    log = [BATCH, batch(some_records(3)), bytes(flipped), message(9, 1, b"k", b"v"), BATCH, BATCH]
    window = loaded(b"".join(log))
    window.scan(0)
    assert window.produced(0, window.count) == []  # nothing has been checked
    window.skip(4)
    window.check(0, window.count)
    assert window.produced(0, window.count) == [0, 5]
    assert window.produced(1, 5) == []
    with pytest.raises(IndexError):
        window.produced(0, 7)


def test_the_first_batch_that_reaches_an_offset() -> None:
    window = scanned(b"".join(batch([Record(n, MS), Record(n + 4, MS)]) for n in (10, 20, 30)))
    reached = [window.first_reaching(offset) for offset in (0, 14, 15, 24, 34, 35)]
    assert reached == [0, 0, 1, 1, 2, 3]


@pytest.mark.parametrize("check", [False, True])
@pytest.mark.parametrize("count", [1, 255, 256, 257, 511, 512, 513, 1025])
def test_how_many_batches_there_are_changes_nothing(count: int, check: bool) -> None:
    """A few are found and compared with the interpreter's lock kept, more without it, and rows grow by the hundred."""
    data = b"".join(batch(some_records(3 * i)) for i in range(count))
    for tail, status in ((b"", DONE), (b"\0" * 30, BAD_LENGTH), (data[:60], MORE)):
        window = loaded(data + tail)
        assert window.scan(0, check=check) == status
        assert (window.count, window.next_at) == (count, len(data))
        assert window.check(0, count) == 0
        assert ascending_run(window, 0, count, -1, -1, 1 << 40) == (count, 3 * count)
        assert ascending_run(window, 0, count, -1, -1, 3 * count - 2) == (count - 1, 3 * count - 3)
        assert window.first_reaching(3 * count - 1) == count - 1
