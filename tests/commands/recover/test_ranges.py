"""Salvage: every intact batch is kept once and in order, and every dropped part is named, with its reason."""

from __future__ import annotations

import shutil
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.commands.recover import kept_batches
from klog.commands.recover.segment_ranges import DroppedBytes, SegmentRanges, salvage_ranges
from klog.data_dir.partition import Partition
from klog.log import reader
from klog.log.segment import Batch, Segment
from klog.partition.repair import recover_outcome
from klog.partition.repair.recover_outcome import SalvageOptions

from tests.commands.recover.salvaged import offsets, only, partition_of, result, salvage
from tests.conftest import CORPORA, FIXTURES, extract
from tests.oracles.plain.encode import BatchHeader, Record, batch, message, raw_batch, wrapper
from tests.oracles.plain.shapes import MS, some_records
from tests.support.bad_sectors import spoil
from tests.support.examples import examples
from tests.support.measure import measured

COUNT = 12


def ten(offset: int, **options: int) -> bytes:
    """Return a batch of ten records that no other batch has; all are of one size."""
    return batch([Record(offset + i, MS, b"k", b"value %09d" % (offset + i)) for i in range(10)], **options)


LOG = [ten(10 * i, leader_epoch=2) for i in range(COUNT)]
WHOLE = b"".join(LOG)
EACH = len(LOG[1])
ALL = [10 * i for i in range(COUNT)]


def with_bytes(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def flipped(data: bytes, at: int, bit: int = 0) -> bytes:
    return with_bytes(data, at, bytes((data[at] ^ 1 << bit,)))


def at_offset(data: bytes, offset: int) -> bytes:
    return with_bytes(data, 0, struct.pack(">q", offset))


def at_epoch(data: bytes, epoch: int) -> bytes:
    return with_bytes(data, 12, struct.pack(">i", epoch))


def without(*numbers: int) -> list[int]:
    return [10 * i for i in range(COUNT) if i not in numbers]


def offsets_of(segment: SegmentRanges) -> tuple[int, int]:
    return segment.kept.firsts[0], segment.kept.lasts[-1]


def loss(cut: DroppedBytes) -> tuple[str, int | None, int | None, int | None]:
    return cut.reason, cut.before, cut.after, cut.offsets_lost


# damage


def test_a_healthy_log_is_kept_as_it_is(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, _0=WHOLE)
    found = only(partition)
    assert found.is_whole
    assert list(found.kept.pairs()) == [(0, len(WHOLE))]
    assert (found.batches, found.records, found.last_offset) == (COUNT, 10 * COUNT, 10 * COUNT - 1)


@pytest.mark.parametrize("name", [entry.name for entry in sorted((FIXTURES / "modern").iterdir()) if entry.is_dir()])
def test_what_real_brokers_wrote_is_kept_as_it_is(name: str) -> None:
    """Compressed, transactional, compacted, with gaps: nothing of it looks like damage."""
    for segment in salvage(Partition(str(FIXTURES / "modern" / name)), repair_bits=True).segments:
        assert segment.is_whole


@pytest.mark.parametrize("folder", ["legacy", "v39/data", "compaction/before", "compaction/after"])
def test_old_formats_and_compacted_logs_are_kept_as_they_are(folder: str) -> None:
    for entry in sorted((FIXTURES / folder).iterdir()):
        if entry.is_dir() and any(entry.glob("*.log")):
            for segment in salvage(Partition(str(entry))).segments:
                assert segment.is_whole, entry


@pytest.mark.parametrize("number", range(COUNT))
def test_a_batch_with_a_bad_checksum_costs_itself_only(tmp_path: Path, number: int) -> None:
    """A broker would drop all later batches."""
    partition = partition_of(tmp_path, _0=with_bytes(WHOLE, number * EACH + 100, b"\xff\xff"))
    found = only(partition)
    assert offsets(partition, found) == without(number)
    (cut,) = found.cuts
    before = 10 * number - 1 if number else None
    after, lost = (10 * number + 10, 10) if number < COUNT - 1 else (None, None)
    assert loss(cut) == ("bad-crc", before, after, lost)
    assert (cut.start, cut.end) == (sum(map(len, LOG[:number])), sum(map(len, LOG[: number + 1])))
    assert not cut.is_duplicate


@pytest.mark.parametrize(
    ("junk", "reason"),
    [(b"\xde\xad\xbe\xef" * 300, "bad-length"), (bytes(1000), "bad-length"), (LOG[5][40:], None), (b"\xaa", None)],
)
def test_what_is_no_batch_is_cut_out(tmp_path: Path, junk: bytes, reason: str | None) -> None:
    at = 5 * EACH
    partition = partition_of(tmp_path, _0=WHOLE[:at] + junk + WHOLE[at:])
    found = only(partition)
    assert offsets(partition, found) == ALL
    (cut,) = found.cuts
    assert (cut.start, cut.end, cut.offsets_lost) == (at, at + len(junk), 0)
    assert reason in (None, cut.reason)


def test_each_of_two_damages_in_a_row_is_told(tmp_path: Path) -> None:
    partition = partition_of(
        tmp_path, _0=with_bytes(with_bytes(WHOLE, 5 * EACH + 100, b"\xff\xff"), 6 * EACH + 100, b"\xff\xff")
    )
    found = only(partition)
    assert offsets(partition, found) == without(5, 6)
    assert [(cut.start, cut.end, cut.reason, cut.offsets_lost) for cut in found.cuts] == [
        (5 * EACH, 6 * EACH, "bad-crc", 20),
        (6 * EACH, 7 * EACH, "bad-crc", 0),
    ]


@pytest.mark.parametrize(("tail", "reason"), [(bytes(5000), "zero-tail"), (LOG[0][:200], "torn-tail")])
def test_tails_are_cut_off(tmp_path: Path, tail: bytes, reason: str) -> None:
    found = only(partition_of(tmp_path, _0=WHOLE + tail))
    assert [loss(cut) for cut in found.cuts] == [(reason, 119, None, None)]


def test_zeros_at_the_end_of_an_inner_segment_bound_what_is_lost(tmp_path: Path) -> None:
    """The next segment's base does; and zeros there were batches once."""
    first, second = salvage(partition_of(tmp_path, _0=WHOLE[: 5 * EACH] + bytes(EACH), _60=b"".join(LOG[6:]))).segments
    assert [loss(cut) for cut in first.cuts] == [("zeroed", 49, None, 10)]
    assert second.is_whole


def test_a_log_that_is_all_damage_keeps_nothing(tmp_path: Path) -> None:
    for data in (Random(1).randbytes(100_000), b"\xff" * 100, b"x"):
        found = only(partition_of(tmp_path, _0=data))
        assert not found.kept
        assert sum(cut.bytes for cut in found.cuts) == len(data)
    assert only(partition_of(tmp_path, _0=b"")).is_whole


def test_bad_sectors_cost_what_stands_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = b"".join(ten(10 * i) for i in range(200))
    partition = partition_of(tmp_path, _0=log)
    spoil(monkeypatch, range(20_000, 20_001))
    (found,) = salvage_ranges(partition, SalvageOptions()).segments
    (cut,) = found.cuts
    assert cut.reason == "unreadable"
    assert cut.start <= 20_000 < cut.end <= cut.start + 3 * 4096
    assert cut.after is not None
    assert cut.before is not None
    assert cut.offsets_lost == cut.after - cut.before - 1


def test_a_log_that_cannot_be_opened_is_left_alone_and_still_has_its_offsets(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, _0=WHOLE, _60=b"")
    assert len(partition.segments) == 2
    log = tmp_path / "orders-3" / f"{60:020}.log"
    log.unlink()
    first, second = salvage(partition).segments
    assert second.unreadable is not None
    assert not second.kept
    assert first.last_offset == 59


def test_records_that_do_not_decode_are_kept_where_the_checksum_holds(tmp_path: Path) -> None:
    """They are intact to a broker; what to do about them is for their consumers."""
    odd = raw_batch(BatchHeader(base_offset=10, leader_epoch=2, last_offset_delta=9, count=10, codec=1), b"no gzip")
    found = only(partition_of(tmp_path, _0=LOG[0] + odd + LOG[2]))
    assert found.is_whole


# header fields that no checksum covers


@pytest.mark.parametrize("number", range(COUNT - 1))
@pytest.mark.parametrize("bit", [3, 6, 9, 20, 30, 33, 62, 63])
def test_a_flipped_bit_of_a_base_offset_is_put_right(tmp_path: Path, number: int, bit: int) -> None:
    """Its neighbours leave room for one value only."""
    wrong = (10 * number ^ 1 << bit) - (1 << 64 if bit == 63 else 0)
    partition = partition_of(tmp_path, _0=b"".join([*LOG[:number], at_offset(LOG[number], wrong), *LOG[number + 1 :]]))
    found = only(partition)
    assert result(partition, found) == WHOLE
    (patch,) = found.patches
    assert patch.old == struct.pack(">q", wrong)
    assert patch.new == struct.pack(">q", 10 * number)
    assert str(wrong) in patch.what


def test_a_base_offset_that_is_garbage_is_put_right_when_it_fills_the_room(tmp_path: Path) -> None:
    for number in range(COUNT - 1):
        for wrong in (0x7123456789ABCDEF, 0x65432, 3):  # 3: another batch has it, but does not begin there
            partition = partition_of(
                tmp_path, _0=b"".join([*LOG[:number], at_offset(LOG[number], wrong), *LOG[number + 1 :]])
            )
            assert result(partition, only(partition)) == WHOLE, (number, wrong)


def test_a_base_offset_that_is_not_proven_is_damage(tmp_path: Path) -> None:
    """In a log with gaps garbage could be anything between its neighbours."""
    sparse = [ten(100 * i) for i in range(6)]
    partition = partition_of(tmp_path, _0=b"".join([*sparse[:3], at_offset(sparse[3], 200), *sparse[4:]]))
    found = only(partition)
    assert offsets(partition, found) == [0, 100, 200, 400, 500]
    (cut,) = found.cuts
    assert (cut.batches, cut.records, cut.copies) == (1, 10, 0)
    assert loss(cut) == ("offsets-backwards", 209, 400, 190)
    partition = partition_of(tmp_path, _0=b"".join([*sparse[:3], at_offset(sparse[3], 7777), *sparse[4:]]))
    found = only(partition)
    assert offsets(partition, found) == [0, 100, 200, 400, 500]
    assert [loss(cut) for cut in found.cuts] == [("odd-offset", 209, 400, 190)]


def test_one_flipped_bit_of_an_offset_in_a_log_with_gaps_is_put_right(tmp_path: Path) -> None:
    """The only value one bit away that has room."""
    sparse = [ten(100 * i) for i in range(6)]
    for wrong in (300 ^ 1 << 40, 300 ^ 1 << 9):
        partition = partition_of(tmp_path, _0=b"".join([*sparse[:3], at_offset(sparse[3], wrong), *sparse[4:]]))
        assert result(partition, only(partition)) == b"".join(sparse)


def test_the_last_batch_of_an_inner_segment_is_bounded_by_the_next(tmp_path: Path) -> None:
    wrong = at_offset(LOG[5], 50 ^ 1 << 34)
    partition = partition_of(tmp_path, _0=b"".join([*LOG[:5], wrong]), _60=b"".join(LOG[6:]))
    first, second = salvage(partition).segments
    assert result(partition, first) == b"".join(LOG[:6])
    assert second.is_whole


def test_the_last_batch_of_a_log_has_nothing_behind_it_to_prove_its_offset(tmp_path: Path) -> None:
    found = only(partition_of(tmp_path, _0=b"".join([*LOG[:-1], at_offset(LOG[-1], 3)])))
    assert [(cut.reason, cut.records) for cut in found.cuts] == [("offsets-backwards", 10)]


@pytest.mark.parametrize("number", range(COUNT))
@pytest.mark.parametrize("epoch", [3, 0, 2 | 1 << 20, -2, 2 - 2**31])
def test_an_epoch_between_equal_ones_is_put_right(tmp_path: Path, number: int, epoch: int) -> None:
    partition = partition_of(tmp_path, _0=b"".join([*LOG[:number], at_epoch(LOG[number], epoch), *LOG[number + 1 :]]))
    found = only(partition)
    if number == COUNT - 1:  # nothing behind it proves another one: it is kept, as a broker does
        assert found.is_whole
    elif number == 0:  # nothing before it: a lower one may be right, and -1 is none at all
        assert offsets(partition, found) == ALL
        assert [patch.new for patch in found.patches] == {0: [], -2: [struct.pack(">i", -1)]}.get(
            epoch, [LOG[0][12:16]]
        )
    else:
        assert result(partition, found) == WHOLE
        assert [patch.new for patch in found.patches] == [struct.pack(">i", 2)]


def test_an_epoch_on_the_border_between_two_is_put_right_only_by_one_bit(tmp_path: Path) -> None:
    log = [ten(10 * i, leader_epoch=2 if i < 5 else 7) for i in range(COUNT)]
    broken = b"".join([*log[:5], at_epoch(log[5], 7 | 1 << 12), *log[6:]])
    partition = partition_of(tmp_path, _0=broken)
    assert result(partition, only(partition)) == b"".join(log)
    partition = partition_of(tmp_path, _0=b"".join([*log[:5], at_epoch(log[5], 0x5550), *log[6:]]))
    assert only(partition).is_whole


def test_an_epoch_that_could_be_two_stays(tmp_path: Path) -> None:
    """2 and 4 are one bit from 0, and both lie between the neighbours'; no record is cut for a field."""
    log = [ten(10 * i, leader_epoch=2 if i < 5 else 7) for i in range(COUNT)]
    partition = partition_of(tmp_path, _0=b"".join([*log[:5], at_epoch(log[5], 0), *log[6:]]))
    assert only(partition).is_whole


def test_of_two_epochs_that_do_not_fit_the_one_between_equal_ones_is_odd(tmp_path: Path) -> None:
    """A new leader's first batch is right, its second is wrong."""
    log = [ten(10 * i, leader_epoch=2 if i < 4 else 5) for i in range(8)]
    partition = partition_of(tmp_path, _0=b"".join([*log[:5], at_epoch(log[5], 3), *log[6:]]))
    assert result(partition, only(partition)) == b"".join(log)


def test_the_first_batch_of_a_segment_may_have_an_epoch_of_its_own(tmp_path: Path) -> None:
    """No batch before it shows that it is the odd one; more than one bit off, it may be as its leader wrote it."""
    assert only(partition_of(tmp_path, _0=at_epoch(LOG[0], 5) + WHOLE[len(LOG[0]) :])).is_whole


def test_epochs_that_fall_for_good_are_what_their_leader_wrote(tmp_path: Path) -> None:
    """No bit turns over in batch after batch; a broker ignores it, and half the log is no price for a field."""
    log = b"".join(ten(10 * i, leader_epoch=5 if i < 6 else 3) for i in range(COUNT))
    assert only(partition_of(tmp_path, _0=log)).is_whole


@pytest.mark.parametrize("torn", [0, 7])
@pytest.mark.parametrize("lower", [1, 2, 5])
@pytest.mark.parametrize(("epochs", "last"), [((6,), 2), ((2, 4, 6), 2), ((2, 4, 6), 5), ((6,), 5), ((1, 9), 3)])
def test_lower_epochs_at_the_end_stay(
    tmp_path: Path, epochs: tuple[int, ...], last: int, lower: int, torn: int
) -> None:
    """A leader that counts on from a metadata log that was rolled back: its records were acknowledged."""
    log = [ten(10 * i, leader_epoch=epochs[min(i // 2, len(epochs) - 1)]) for i in range(8)]
    log += [ten(80 + 10 * i, leader_epoch=last) for i in range(lower)]
    whole = b"".join(log)
    partition = partition_of(tmp_path, _0=whole + (ten(80 + 10 * lower, leader_epoch=last)[:-torn] if torn else b""))
    found = only(partition)
    assert result(partition, found) == whole
    assert not found.patches
    assert [cut.batches for cut in found.cuts] == [0] * (torn > 0)


def test_epochs_that_rise_again_behind_a_fall_stay(tmp_path: Path) -> None:
    log = b"".join(ten(10 * i, leader_epoch=epoch) for i, epoch in enumerate([2, 6, 6, 3, 4, 5, 7, 7]))
    found = only(partition_of(tmp_path, _0=log))
    assert found.is_whole
    assert not found.patches


def test_a_wrong_format_version_is_put_right_by_the_checksum(tmp_path: Path) -> None:
    for magic in (0, 1, 3, 66, 130, 255):
        partition = partition_of(tmp_path, _0=with_bytes(WHOLE, 5 * EACH + 16, bytes((magic,))))
        found = only(partition)
        assert result(partition, found) == WHOLE
        assert [patch.position for patch in found.patches] == [5 * EACH + 16]


# bits


@pytest.mark.parametrize("number", [0, 1, COUNT - 1])
def test_single_bits_are_put_right_only_when_that_is_asked_for(tmp_path: Path, number: int) -> None:
    chance = Random(number)
    start = sum(map(len, LOG[:number]))
    for at in [8, 9, 10, 11, 17, 18, 19, 20, 21, 26, 60, 61, EACH - 1, *chance.sample(range(61, EACH), 20)]:
        bit = chance.randrange(8)
        partition = partition_of(tmp_path, _0=flipped(WHOLE, start + at, bit))
        plain = only(partition)
        assert offsets(partition, plain) == without(number)
        assert not plain.patches
        found = only(partition, repair_bits=True)
        assert result(partition, found) == WHOLE, (at, bit)
        (patch,) = found.patches
        assert (patch.position, f"bit {bit} of byte {start + at} " in patch.what) == (start + at, True)
        assert not found.cuts


@pytest.mark.parametrize("bit", range(32))
def test_every_bit_of_the_size_is_put_right_in_a_small_log(tmp_path: Path, bit: int) -> None:
    """A damaged size leads into the middle of a batch, whose content may claim to be larger than the log."""
    broken = flipped(LOG[1], 11 - bit // 8, bit % 8)
    data = b"".join([LOG[0], broken, LOG[2]])
    partition = partition_of(tmp_path, _0=data)
    assert result(partition, only(partition, repair_bits=True)) == b"".join(LOG[:3])


def test_bits_in_batch_after_batch_are_put_right(tmp_path: Path) -> None:
    """The search behind the first finds nothing intact up to the end: its stretch is all of them."""
    chance = Random(5)
    data = WHOLE
    for number in range(3, COUNT):
        data = flipped(data, number * EACH + chance.choice([9, 10, 18, 100, 200]), chance.randrange(8))
    partition = partition_of(tmp_path, _0=data)
    found = only(partition, repair_bits=True)
    assert result(partition, found) == WHOLE
    assert len(found.patches) == COUNT - 3


def test_a_bit_is_put_right_behind_what_cannot_be(tmp_path: Path) -> None:
    data = flipped(with_bytes(WHOLE, 10 * EACH + 100, b"\xff\xff"), 11 * EACH + 100)
    partition = partition_of(tmp_path, _0=data)
    found = only(partition, repair_bits=True)
    assert offsets(partition, found) == without(10)
    assert len(found.patches) == 1
    partition = partition_of(tmp_path, _0=data + LOG[0][:100])  # now the walk sees one stretch of damage
    found = only(partition, repair_bits=True)
    assert offsets(partition, found) == without(10)
    assert [cut.bytes for cut in found.cuts] == [EACH, 100]


def test_a_batch_is_put_right_in_one_place_only(tmp_path: Path) -> None:
    """Two errors that explain each other could be anything."""
    broken = flipped(at_offset(LOG[5], 50 | 1 << 20), 100)
    partition = partition_of(tmp_path, _0=b"".join([*LOG[:5], broken, *LOG[6:]]))
    found = only(partition, repair_bits=True)
    assert offsets(partition, found) == without(5)
    assert not found.patches


# twice the same


def test_a_repeated_run_is_kept_once(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, _0=b"".join([*LOG[:8], *LOG[3:8], *LOG[8:]]))
    found = only(partition)
    assert result(partition, found) == WHOLE
    (cut,) = found.cuts
    assert cut.is_duplicate
    assert (cut.batches, cut.records, cut.copies, cut.copied_records, cut.offsets_lost) == (5, 50, 5, 50, 0)


@pytest.mark.parametrize("number", range(COUNT))
def test_a_batch_written_twice_in_a_row_is_kept_once(tmp_path: Path, number: int) -> None:
    partition = partition_of(tmp_path, _0=b"".join([*LOG[: number + 1], *LOG[number:]]))
    found = only(partition)
    assert result(partition, found) == WHOLE
    assert [(cut.is_duplicate, cut.batches) for cut in found.cuts] == [(True, 1)]


def test_copies_at_the_end_of_a_segment_lose_no_offset_of_the_hole_behind_it(tmp_path: Path) -> None:
    first, _ = salvage(partition_of(tmp_path, _0=b"".join([*LOG[:5], LOG[3]]), _100=b"".join(LOG[10:]))).segments
    assert [(cut.is_duplicate, cut.offsets_lost) for cut in first.cuts] == [(True, 0)]


def test_a_block_of_later_batches_in_the_wrong_place_does_not_cost_those_it_stands_before(tmp_path: Path) -> None:
    for at, first, end in ((3, 7, 9), (0, 5, 12), (3, 4, 5), (3, 4, 6), (1, 2, 11), (5, 11, 12)):
        partition = partition_of(tmp_path, _0=b"".join([*LOG[:at], *LOG[first:end], *LOG[at:]]))
        found = only(partition)
        assert result(partition, found) == WHOLE, (at, first, end)
        assert all(cut.is_duplicate for cut in found.cuts)


def test_a_batch_alone_that_comes_too_late_does_not_cost_those_it_should_stand_before(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, _0=b"".join([*LOG[:4], LOG[7], LOG[8], LOG[4], *LOG[9:]]))
    found = only(partition)
    assert offsets(partition, found) == without(4, 5, 6)
    assert [(cut.batches, cut.copies, cut.offsets_lost) for cut in found.cuts] == [(1, 0, 0)]


def test_a_copy_in_a_hole_of_its_size_is_not_taken_for_what_is_missing(tmp_path: Path) -> None:
    """It would become records that never were."""
    partition = partition_of(tmp_path, _0=b"".join([*LOG[:6], LOG[2], *LOG[7:]]))
    found = only(partition)
    assert offsets(partition, found) == without(6)
    assert [(cut.is_duplicate, cut.reason) for cut in found.cuts] == [(True, "offsets-backwards")]
    assert not found.patches


def test_what_the_next_segment_has_too_is_kept_there(tmp_path: Path) -> None:
    """A broker looks for these offsets in the next segment only."""
    first, second = salvage(partition_of(tmp_path, _0=WHOLE, _60=b"".join(LOG[6:]))).segments
    assert first.last_offset == 59
    assert second.is_whole
    assert [(cut.reason, cut.batches, cut.copies) for cut in first.cuts] == [("segments-overlap", 6, 6)]


def test_what_the_next_segment_should_have_and_does_not_is_lost_and_told(tmp_path: Path) -> None:
    first, second = salvage(partition_of(tmp_path, _0=WHOLE, _60=b"".join(LOG[8:]))).segments
    (cut,) = first.cuts
    assert (cut.batches, cut.copies, cut.records, cut.copied_records) == (6, 4, 60, 40)
    assert not cut.is_duplicate
    assert second.is_whole


@pytest.mark.parametrize("content", [b"", bytes(500), b"garbage" * 100])
def test_a_segment_with_nothing_intact_limits_none(tmp_path: Path, content: bytes) -> None:
    """A stray file with the right name must not cost half a log."""
    found = salvage(partition_of(tmp_path, _0=WHOLE, _50=content, _120=batch(some_records(120))))
    first, second, third = found.segments
    assert first.is_whole
    assert third.is_whole
    assert not second.kept
    assert found.in_the_way == (second,)


def test_of_two_that_claim_an_offset_the_first_stays(tmp_path: Path) -> None:
    """Readers from below have received it."""
    other = [batch(some_records(10 * i, 10, words=9), leader_epoch=2) for i in range(4, 8)]
    partition = partition_of(tmp_path, _0=b"".join([*LOG[:8], *other, *LOG[8:]]))
    found = only(partition)
    assert result(partition, found) == WHOLE
    assert [(cut.reason, cut.batches, cut.copies) for cut in found.cuts] == [("offsets-backwards", 4, 0)]


def test_a_batch_that_was_written_first_stays_also_when_small_ones_share_its_offsets(tmp_path: Path) -> None:
    large = batch([Record(40 + i, MS, None, b"large") for i in range(40)], leader_epoch=2)
    partition = partition_of(tmp_path, _0=b"".join([*LOG[:4], large, *LOG[4:]]))
    assert result(partition, only(partition)) == b"".join([*LOG[:4], large, *LOG[8:]])


def test_a_later_leader_s_log_replaces_the_end_of_an_earlier_one_s(tmp_path: Path) -> None:
    """From its first offset on: so a follower would have cut."""
    newer = [batch(some_records(10 * i, 10, words=9), leader_epoch=4) for i in range(4, 10)]
    partition = partition_of(tmp_path, _0=b"".join([*LOG[:8], *newer]))
    found = only(partition)
    assert result(partition, found) == b"".join([*LOG[:4], *newer])
    (cut,) = found.cuts
    assert (cut.reason, cut.batches, cut.records, cut.copies, cut.offsets_lost) == ("offsets-backwards", 4, 40, 0, 0)
    assert (cut.before, cut.after) == (39, 40)
    assert "epoch 4" in cut.detail
    assert (found.batches, found.records) == (10, 100)


def test_a_later_leader_s_log_may_begin_inside_of_an_older_batch(tmp_path: Path) -> None:
    newer = [ten(45 + 10 * i, leader_epoch=4) for i in range(3)]
    partition = partition_of(tmp_path, _0=b"".join([*LOG[:8], *newer]))
    found = only(partition)
    assert result(partition, found) == b"".join([*LOG[:4], *newer])
    assert [loss(cut) for cut in found.cuts] == [("offsets-backwards", 39, 45, 5)]


def test_what_was_put_right_goes_with_what_is_replaced(tmp_path: Path) -> None:
    newer = [ten(10 * i, leader_epoch=4) for i in range(4, 10)]
    broken = [flipped(one, 100) if i in (2, 6) else one for i, one in enumerate(LOG[:8])]
    partition = partition_of(tmp_path, _0=b"".join([*broken, *newer]))
    found = only(partition, repair_bits=True)
    assert result(partition, found) == b"".join([*LOG[:4], *newer])
    assert len(found.patches) == 1


def test_later_leaders_replace_one_another_again_and_again(tmp_path: Path) -> None:
    log = [ten(10 * i, leader_epoch=epoch) for epoch in range(5) for i in range(epoch, 9)]
    partition = partition_of(tmp_path, _0=b"".join(log))
    found = only(partition)
    assert offsets(partition, found) == ALL[:9]
    assert found.batches == 9


def test_one_batch_alone_displaces_nothing(tmp_path: Path) -> None:
    """The first batch of a new leader, with one bit of its offset flipped: half the log is not its price."""
    last = at_offset(ten(120, leader_epoch=3), 120 ^ 64)
    found = only(partition_of(tmp_path, _0=WHOLE + last))
    assert (found.batches, [cut.batches for cut in found.cuts]) == (COUNT, [1])
    found = only(partition_of(tmp_path, _0=WHOLE + last + ten(130, leader_epoch=3)))
    assert offsets_of(found) == (0, 139)
    assert len(found.patches) == 1
    found = only(partition_of(tmp_path, _0=WHOLE + at_offset(last, 17) + ten(150, leader_epoch=3)))
    assert (found.batches, found.patches, [cut.batches for cut in found.cuts]) == (COUNT + 1, (), [1])


def test_a_repeated_run_with_a_flipped_epoch_is_no_new_leader_s(tmp_path: Path) -> None:
    """The batch behind it has to have that epoch, too."""
    partition = partition_of(tmp_path, _0=b"".join([*LOG[:8], at_epoch(LOG[3], 6), LOG[4], *LOG[8:]]))
    found = only(partition)
    assert result(partition, found) == WHOLE
    assert [cut.is_duplicate for cut in found.cuts] == [True]


def test_what_claims_another_s_offset_is_not_taken_for_what_is_missing(tmp_path: Path) -> None:
    """Other records for offsets 20 to 29, in a hole of ten."""
    other = batch([Record(20 + i, MS, b"other") for i in range(10)], leader_epoch=2)
    found = only(partition_of(tmp_path, _0=b"".join([*LOG[:6], other, *LOG[7:]])))
    assert not found.patches
    assert [(cut.batches, cut.copies) for cut in found.cuts] == [(1, 0)]


def test_one_flipped_bit_is_put_right_though_another_batch_has_that_offset(tmp_path: Path) -> None:
    """In a log of single records every offset is a batch's."""
    log = [batch([Record(i, MS, b"k", b"%05d" % i)], leader_epoch=2) for i in range(200)]
    partition = partition_of(tmp_path, _0=b"".join([*log[:150], at_offset(log[150], 150 ^ 16), *log[151:]]))
    assert result(partition, only(partition)) == b"".join(log)


def test_a_log_in_which_nothing_can_be_searched_any_more_still_has_its_single_bits_put_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_batches, "_WALKS", 0)
    for wrong, patches in ((50 ^ 32, 1), (3, 0)):
        found = only(partition_of(tmp_path, _0=b"".join([*LOG[:5], at_offset(LOG[5], wrong), *LOG[6:]])))
        assert len(found.patches) == patches
    newer = [ten(10 * i, leader_epoch=4) for i in range(4, 10)]
    assert only(partition_of(tmp_path, _0=b"".join([*LOG[:8], *newer]))).batches == 10


def test_a_copy_of_a_large_batch_is_known(tmp_path: Path) -> None:
    large = batch([Record(60, MS, None, bytes(3 << 20))], leader_epoch=2)
    (cut,) = only(partition_of(tmp_path, _0=b"".join([*LOG[:6], large, large, *LOG[7:]]))).cuts
    assert cut.is_duplicate


def test_a_copy_one_bit_off_a_hole_stays_a_copy(tmp_path: Path) -> None:
    """Offsets 0 to 9 written again in a hole where 64 would be the only value one flipped bit away."""
    log = b"".join([*LOG[:6], LOG[0], *LOG[8:]])
    partition = partition_of(tmp_path, _0=log)
    found = only(partition)
    assert offsets(partition, found) == without(6, 7)
    assert [cut.is_duplicate for cut in found.cuts] == [True]


# batches inside of records


def embedding(offset: int, inner: bytes) -> bytes:
    return batch([Record(offset + i, MS, b"k", inner if i == 1 else b"v") for i in range(10)], leader_epoch=2)


@pytest.mark.parametrize("first", [0, 33, 40, 45, 52, 90, 5000])
@pytest.mark.parametrize("is_last", [False, True])
def test_a_batch_in_a_record_of_a_damaged_batch_is_not_taken_for_one_of_the_log(
    tmp_path: Path, first: int, is_last: bool
) -> None:
    """A topic of backups holds logs; to take their batches for its own would make up records."""
    inner = b"".join(batch(some_records(first + 3 * i), leader_epoch=2) for i in range(3))
    holder = with_bytes(embedding(50, inner), 22, b"\0\x10")
    log = [*LOG[:5], holder, *([] if is_last else LOG[6:])]
    partition = partition_of(tmp_path, _0=b"".join(log))
    found = only(partition)
    assert offsets(partition, found) == (ALL[:5] if is_last else without(5))
    (cut,) = found.cuts
    assert (cut.start, cut.end) == (sum(map(len, LOG[:5])), sum(map(len, LOG[:5])) + len(holder))


@pytest.mark.parametrize("first", [45, 52, 5000])
def test_batches_far_apart_in_a_large_damaged_batch_are_not_taken_for_the_log_s(tmp_path: Path, first: int) -> None:
    """The walk stops at each of them and continues behind it; still one batch is lost, and reported once."""
    inner = [batch([Record(first + i, MS, None, b"x" * 50)], leader_epoch=2) for i in range(3)]
    value = b"".join(Random(i).randbytes(90_000) + one for i, one in enumerate(inner)) + b"end"
    holder = batch([Record(50 + i, MS, b"k", value if i == 1 else b"v") for i in range(10)], leader_epoch=2)
    for broken in (with_bytes(holder, 300, b"\xff\xff"), with_bytes(holder, 24, b"\x10")):
        partition = partition_of(tmp_path, _0=b"".join([*LOG[:5], broken, *LOG[6:]]))
        found = only(partition)
        assert offsets(partition, found) == without(5)
        assert [(cut.bytes, cut.batches) for cut in found.cuts] == [(len(holder), 0)]


def test_a_bit_of_a_batch_with_a_batch_in_it_is_put_right(tmp_path: Path) -> None:
    holder = embedding(50, LOG[5])
    log = b"".join([*LOG[:5], flipped(holder, len(holder) - 3), *LOG[6:]])
    partition = partition_of(tmp_path, _0=log)
    assert result(partition, only(partition, repair_bits=True)) == b"".join([*LOG[:5], holder, *LOG[6:]])


def test_what_a_damaged_size_swallows_up_to_the_start_of_a_batch_is_kept(tmp_path: Path) -> None:
    """That looks much like a batch in a record; but its offsets follow those that the damaged batch claims."""
    size = len(LOG[5]) + len(LOG[6]) + len(LOG[7]) - 12
    partition = partition_of(tmp_path, _0=with_bytes(WHOLE, 5 * EACH + 8, struct.pack(">i", size)))
    found = only(partition)
    assert offsets(partition, found) == without(5)


# old formats


def test_message_sets_are_salvaged_too(tmp_path: Path) -> None:
    log = [
        message(i, 1, b"k%d" % i, b"value", timestamp=MS) if i % 4 else wrapper(some_records(i), 1, "gzip", offset=i)
        for i in range(1, 20)
    ]
    partition = partition_of(tmp_path, _0=b"".join([*log[:5], flipped(log[5], 20), *log[6:8], *log[6:9], *log[9:]]))
    found = only(partition)
    assert len(found.cuts) == 2
    assert found.cuts[0].reason == "bad-crc"
    assert found.cuts[1].is_duplicate
    assert result(partition, found) == b"".join([*log[:5], *log[6:]])
    assert result(partition, only(partition, repair_bits=True)) == b"".join(log)


# whatever happens to a log

ODD_OFFSETS = (0, 5, 70, 119, 10**6, 2**31, 2**40, 2**63 - 5, -1, -(2**63))


@st.composite
def events(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """The events of a log, by batch: each is damaged at most once; copies are later than their originals."""
    victims = draw(st.lists(st.integers(0, COUNT - 1), max_size=4, unique=True))
    ways = ["flip", "zeros", "cut", "grow", "tear", "gone", "garbage", "copy"]
    return [(draw(st.sampled_from(ways)), victim, draw(st.integers(0, 2**32))) for victim in victims]


def happened(what: list[tuple[str, int, int]]) -> tuple[bytes, list[int]]:
    """Return the log after all that, and the offsets of the untouched batches."""
    blocks = list(LOG)
    intact = set(range(COUNT))
    behind: dict[int, list[bytes]] = {}
    for way, victim, seed in what:
        chance = Random(seed)
        data = LOG[victim]
        at = chance.randrange(8, len(data) - 1)
        some = chance.randrange(1, len(data) - at + 1)
        if way == "copy":
            behind.setdefault(chance.randrange(victim, COUNT), []).append(data)
            continue
        intact.discard(victim)
        if way == "flip":
            at = chance.randrange(17, len(data))
            data = with_bytes(data, at, bytes((data[at] ^ chance.randrange(1, 256),)))
        elif way == "zeros":
            data = with_bytes(data, at, bytes(some))
            if data == LOG[victim]:
                intact.add(victim)
        elif way == "cut":
            data = data[:at] + data[at + some :]
        elif way == "grow":
            data = data[:at] + b"\xa5" * chance.randrange(1, 200) + data[at:]
        elif way == "tear":
            data = data[:at]
        elif way == "gone":
            data = b""
        else:
            data = chance.randbytes(chance.randrange(1, 2000))
        blocks[victim] = data
    log = b"".join(block + b"".join(behind.get(i, [])) for i, block in enumerate(blocks))
    return log, [10 * i for i in sorted(intact)]


@examples(150)
@given(what=events())
def test_whatever_happens_every_intact_batch_is_kept_once_and_in_order(
    tmp_path: Path, what: list[tuple[str, int, int]]
) -> None:
    log, intact = happened(what)
    partition = partition_of(tmp_path, _0=log)
    found = only(partition)
    kept = offsets(partition, found)
    assert set(kept) >= set(intact)
    assert kept == sorted(set(kept))
    assert len(set(kept) - set(intact)) == len(found.patches), "what else is kept was put right"
    assert set(offsets(partition, only(partition, repair_bits=True))) >= set(intact)


REAL = sorted(path for path in FIXTURES.glob("modern/*-[0-9]/*.log") if path.stat().st_size > 2000)


@examples(150)
@given(
    log=st.sampled_from(REAL),
    damages=st.lists(st.tuples(st.integers(0, 2**32), st.sampled_from(["flip", "zeros", "noise"])), max_size=5),
    repair_bits=st.booleans(),
)
def test_of_real_logs_all_is_kept_that_no_damage_touches(
    tmp_path: Path, log: Path, damages: list[tuple[int, str]], repair_bits: bool
) -> None:
    """Compressed, transactional, of one record or hundreds: as brokers wrote them."""
    data = bytearray(log.read_bytes())
    whole = [part for part in Segment(str(log)).batches() if isinstance(part, Batch)]
    for seed, way in damages:
        chance = Random(seed)
        at = chance.randrange(len(data))
        size = 1 if way == "flip" else min(chance.choice((4, 512, 4096)), len(data) - at)
        new = {
            "flip": bytes((data[at] ^ 1 << chance.randrange(8),)),
            "zeros": bytes(size),
            "noise": chance.randbytes(size),
        }
        data[at : at + size] = new[way]
    original = log.read_bytes()
    untouched = [
        b for b in whole if data[b.position : b.position + b.size] == original[b.position : b.position + b.size]
    ]
    partition = partition_of(tmp_path, **{f"_{int(log.stem)}": bytes(data)})
    segment = only(partition, repair_bits=repair_bits)
    kept = offsets(partition, segment)
    assert set(kept) >= {batch.base_offset for batch in untouched}
    assert kept == sorted(set(kept))
    if damages and all(way == "flip" for _, way in damages) and repair_bits and len(kept) == len(whole):
        assert len(segment.patches) <= len(damages)


@examples(100)
@given(seed=st.integers(0, 2**32), cut=st.integers(1, COUNT - 1))
def test_batches_in_any_order_with_any_headers_give_a_log_in_order(tmp_path: Path, seed: int, cut: int) -> None:
    """Nothing is promised of such a log but that the result is one, and that all of it is accounted for."""
    chance = Random(seed)
    blocks = [chance.choice(LOG) for _ in range(30)]
    for i in range(30):
        if chance.random() < 0.3:
            blocks[i] = at_offset(
                blocks[i], chance.choice([0, 5, 70, 119, 10**6, 2**31, 2**40, 2**63 - 5, -1, -(2**63)])
            )
        if chance.random() < 0.3:
            blocks[i] = at_epoch(blocks[i], chance.choice([-2, -1, 0, 1, 3, 7, 2**31 - 1]))
        if chance.random() < 0.1:
            blocks[i] = flipped(blocks[i], chance.randrange(len(blocks[i])))
    partition = partition_of(tmp_path, _0=b"".join(blocks[:cut]), **{f"_{10 * cut}": b"".join(blocks[cut:])})
    for segment in salvage(partition, repair_bits=bool(seed % 2)).segments:
        assert segment.records >= segment.batches - segment.batches // 2


# hostile logs


def fake_headers(count: int, claim: int) -> bytes:
    """Headers of batches that claim so many bytes each, one behind the other; no checksum holds."""
    one = raw_batch(BatchHeader(base_offset=0, leader_epoch=0, count=1), b"", crc=0, length=claim)
    between, behind = one[8:17], one[21:]
    return b"".join(i.to_bytes(8, "big") + between + i.to_bytes(4, "big") + behind for i in range(count))


@pytest.mark.parametrize("times", [1, pytest.param(4, marks=pytest.mark.long)])
@pytest.mark.parametrize("repair_bits", [False, True])
@pytest.mark.parametrize("claim", [49, 1 << 20])
def test_a_log_full_of_headers_takes_time_in_proportion(
    tmp_path: Path, claim: int, repair_bits: bool, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With windows of a quarter of their size, and as they are."""
    monkeypatch.setattr(reader, "LARGE_WINDOW_BYTES", times << 20)
    monkeypatch.setattr(reader, "REACH_BYTES", times << 20)

    def seconds(count: int) -> float:
        partition = partition_of(tmp_path, _0=fake_headers(count, claim))
        began = time.process_time()
        only(partition, repair_bits=repair_bits)
        return time.process_time() - began

    small = seconds(17_500 * times)  # both longer than the reach of one window
    assert seconds(35_000 * times) < 3 * small + 0.1 * times


SALVAGED = """
import sys
from klog.data_dir.partition import Partition
from klog.partition.repair.recover_outcome import SalvageOptions
from klog.commands.recover.segment_ranges import salvage_ranges
salvage_ranges(Partition(sys.argv[1]), SalvageOptions(False))
"""


@pytest.mark.parametrize(
    ("pairs", "most_bytes"), [(8_000, 28_000_000), pytest.param(30_000, 60_000_000, marks=pytest.mark.long)]
)
def test_many_odd_batches_take_little_memory(tmp_path: Path, pairs: int, most_bytes: int) -> None:
    """All of them backwards, each second one of another epoch, a damaged byte between."""
    one = raw_batch(BatchHeader(base_offset=5), b"")
    other = raw_batch(BatchHeader(base_offset=3, leader_epoch=1), b"")
    partition = partition_of(tmp_path, _0=(one + b"x" + other) * pairs)
    done = measured([sys.executable, "-c", SALVAGED, partition.path], tmp_path)
    assert done.exit_code == 0, done
    assert done.rss < most_bytes, f"{done.rss >> 20} MiB"
    found = only(partition)
    assert len(found.cuts) <= recover_outcome.MOST_LEFT + 1 + 2
    assert sum(cut.batches for cut in found.cuts) + found.batches == 2 * pairs


def test_more_damaged_places_than_are_told_are_summed_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recover_outcome, "MOST_LEFT", 3)
    monkeypatch.setattr(kept_batches, "MOST_LEFT", 3)
    monkeypatch.setattr("klog.commands.recover.segment_ranges.MOST_LEFT", 3)
    (found,) = salvage_ranges(partition_of(tmp_path, _0=b"junk".join(LOG)), SalvageOptions()).segments
    assert (found.batches, len(found.cuts)) == (COUNT, 4)
    assert found.cuts[-1].reason == "more-damage"
    assert found.cuts[-1].bytes == 4 * (COUNT - 1 - 3)


def test_a_log_with_too_many_stretches_is_kept_up_to_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_batches, "MOST_STRETCHES", 4)
    found = only(partition_of(tmp_path, _0=b"junk".join(LOG)))
    assert (len(found.kept), found.batches, found.last_offset) == (4, 4, 39)
    assert found.cuts[-1].reason == "more-damage"


# real damage


@pytest.mark.corpora
def test_real_crashes_lose_nothing_that_is_intact(tmp_path: Path) -> None:
    """Neither do the broker's own leftovers look like damage."""
    for archive in sorted((CORPORA / "crash").glob("*/before.tar.gz")):
        folder = tmp_path / archive.parent.name
        extract(archive, folder)
        for log in sorted({path.parent for path in folder.rglob("*-[0-9]*/*.log")}):
            found = salvage(Partition(str(log)))
            lost = [cut for segment in found.segments for cut in segment.cuts if cut.batches and not cut.is_duplicate]
            assert lost == [], log
            patches = sum(len(segment.patches) for segment in found.segments)
            assert patches == ("flip-epoch-and-offset" in archive.parent.name and log.name == "torn-0"), log
        shutil.rmtree(folder)


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["flip-middle", "flip-active", "flip-flushed"])
def test_the_bit_that_was_flipped_in_a_real_log_is_put_right(image: Callable[[str], Path], name: str) -> None:
    log = next(image(f"crash/v4.3.1-{name}/before.tar.gz").rglob("torn-0"))
    (cut,) = (cut for segment in salvage(Partition(str(log))).segments for cut in segment.cuts)
    assert cut.reason == "bad-crc"
    found = salvage(Partition(str(log)), repair_bits=True).segments
    assert not any(segment.cuts for segment in found)
    (patch,) = (patch for segment in found for patch in segment.patches)
    assert patch.old[0] ^ patch.new[0] == 0x10, "the corpus flips this bit"
    assert cut.start <= patch.position < cut.end


@pytest.mark.corpora
def test_a_replica_with_bits_put_right_is_what_the_others_have(image: Callable[[str], Path]) -> None:
    """Three brokers hold the same batches, byte for byte; on one of them bits were flipped."""
    root = image("replicas/damage.tar.xz")
    repaired = 0
    for log in sorted({path.parent for path in root.rglob("broker-2/*/*.log")}):
        partition = Partition(str(log))
        for segment in salvage(partition, repair_bits=True).segments:
            others = [path.read_bytes() for path in root.rglob(f"broker-[13]/{log.name}/{segment.files.log}")]
            repaired += len(segment.patches)
            if segment.patches:
                assert others
                assert result(partition, segment) in [other[: segment.kept.bytes] for other in others]
    assert repaired == 3
