"""Salvage splits a segment whose offsets it cannot hold, as a broker does; no batch is lost for its offset alone."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from klog.commands.recover import kept_batches
from klog.commands.recover.kept_ranges import FreeOffsets
from klog.partition.repair.recover_outcome import RecoverMode

from tests.commands.recover.salvaged import offsets, only, partition_of, result, salvage
from tests.commands.recover.test_power import repair_in
from tests.commands.recover.test_ranges import at_epoch, at_offset, with_bytes
from tests.conftest import Ran
from tests.oracles.broker_load import Loader, differences
from tests.oracles.plain.decode import Batch, scan
from tests.oracles.plain.encode import Producer, Record, aborted_entries, batch, marker, message, snapshot, wrapper
from tests.oracles.plain.shapes import MS
from tests.support.power import MODELS, DeadlyDisk, KilledError, SteppedDisk, copy_of, cut_everywhere, tree
from tests.support.samples import sampled

REACH = 2**31 - 1
FAR, FARTHER, FARTHEST = 2**31 + 10, 2**32 + 50, 3 * 2**33 + 7
UNMENDABLE = {"offset-gap", "snapshots-missing"}
NOW = f"--now={MS}"


def five(offset: int, **options: int) -> bytes:
    """Return a batch of five records that no other has."""
    return batch([Record(offset + i, MS + i, b"k", b"value %d" % (offset + i)) for i in range(5)], **options)


def broken(one: bytes) -> bytes:
    """Return a batch with a byte of its records flipped."""
    return one[:-3] + bytes((one[-3] ^ 0xFF,)) + one[-2:]


def cut_short(one: bytes) -> bytes:
    """Return a batch whose own size is misleading: the next one has to be searched for."""
    return one[:70]


class Case(NamedTuple):
    """A partition: *before*, its logs by base offset; *after*, the batches of each log that is to be there."""

    before: Mapping[int, list[bytes]]
    after: Mapping[int, list[bytes]]
    lost: tuple[int | None, ...] = ()


A, B, C, D = five(0), five(5), five(FAR), five(FAR + 5)
E, F, G = five(FARTHER), five(FARTHER + 5), five(FARTHEST)
GZIP = [batch([Record(o + i, MS, b"k", b"v" * 300) for i in range(9)], codec="gzip") for o in (0, FAR)]
SNAPPY = batch([Record(FARTHER + i, MS, b"k", b"v" * 300) for i in range(9)], codec="snappy")
OLD = [message(0, 1, b"k", b"v", timestamp=MS), message(1, 0, b"k", b"v"), message(FAR, 1, b"k", b"v", timestamp=MS)]
WRAPPED = wrapper([Record(FAR + i, MS, b"k", b"v" * 90) for i in range(1, 8)], 1, "gzip")
WRAPPED_V0 = wrapper([Record(FARTHER + i, -1, b"k", b"v" * 90) for i in range(1, 8)], 0, "gzip")

CASES = {
    "one jump": Case({0: [A, C]}, {0: [A], FAR: [C]}),
    "batches on both sides": Case({0: [A, B, C, D]}, {0: [A, B], FAR: [C, D]}),
    "the first offset that does not fit": Case({0: [A, five(REACH - 3)]}, {0: [A], REACH - 3: [five(REACH - 3)]}),
    "the last that fits": Case({0: [A, five(REACH - 4)]}, {0: [A, five(REACH - 4)]}),
    "several jumps": Case({0: [A, C, E, F]}, {0: [A], FAR: [C], FARTHER: [E, F]}),
    "each batch jumps": Case(
        {0: [five(i * 2**33) for i in range(6)]}, {i * 2**33: [five(i * 2**33)] for i in range(6)}
    ),
    "the first batch jumps": Case({0: [C, D]}, {0: [], FAR: [C, D]}),
    "between sound segments": Case({0: [A], 5: [B, C], FARTHER: [E, F]}, {0: [A], 5: [B], FAR: [C], FARTHER: [E, F]}),
    "two segments jump": Case(
        {0: [A, C], FAR + 5: [D, five(2**33)]}, {0: [A], FAR: [C], FAR + 5: [D], 2**33: [five(2**33)]}
    ),
    "up to where the next begins": Case({0: [A, C], FAR + 5: [D]}, {0: [A], FAR: [C], FAR + 5: [D]}),
    "behind a later segment": Case({0: [A, G], FAR: [C, D]}, {0: [A], FAR: [C, D], FARTHEST: [G]}),
    "one bit from where it stands": Case(
        {0: [A, at_offset(B, 5 + 2**40)], 10: [five(10)]}, {0: [A, B], 10: [five(10)]}
    ),
    "behind a later segment, and not far": Case(
        {0: [A, five(90)], 30: [five(30), five(40)]}, {0: [A], 30: [five(30), five(40)], 90: [five(90)]}
    ),
    "where nothing intact begins": Case({0: [A, C], FAR: [b"garbage" * 30]}, {0: [A], FAR: [C]}, (None,)),
    "over one with nothing intact": Case({0: [A, C, D], FAR + 5: [b"junk" * 30]}, {0: [A], FAR: [C, D]}, (None,)),
    "before one with nothing intact": Case(
        {0: [A, C], FAR + 9: [b"junk" * 30]}, {0: [A], FAR: [C], FAR + 9: []}, (None,)
    ),
    "a copy is kept once": Case({0: [A, C], FAR: [C, D]}, {0: [A], FAR: [C, D]}),
    "a hole before it": Case({0: [A, broken(B), five(10), C]}, {0: [A, five(10)], FAR: [C]}, (5,)),
    "a hole behind it": Case({0: [A, C, broken(D), five(FAR + 10)]}, {0: [A], FAR: [C, five(FAR + 10)]}, (5,)),
    "a hole at the jump": Case({0: [A, broken(B), C]}, {0: [A], FAR: [C]}, (None,)),
    "the batch that jumps is damaged": Case({0: [A, broken(C), D]}, {0: [A], FAR + 5: [D]}, (None,)),
    "the walk is lost at the jump": Case({0: [A, cut_short(B), C, D]}, {0: [A], FAR: [C, D]}, (None,)),
    "zeros at the jump": Case({0: [A, bytes(700), C]}, {0: [A], FAR: [C]}, (None,)),
    "a torn tail behind it": Case({0: [A, C, D[:-9]]}, {0: [A], FAR: [C]}, (None,)),
    "holes at several jumps": Case(
        {0: [broken(A), B, C, broken(D), E, F, b"\1" * 40]}, {0: [B], FAR: [C], FARTHER: [E, F]}, (5, None, None)
    ),
    "compressed": Case({0: [*GZIP, SNAPPY]}, {0: GZIP[:1], FAR: GZIP[1:], FARTHER: [SNAPPY]}),
    "old formats": Case({0: OLD}, {0: OLD[:2], FAR: OLD[2:]}),
    "old formats, compressed": Case(
        {0: [OLD[0], WRAPPED, WRAPPED_V0]}, {0: OLD[:1], FAR + 1: [WRAPPED], FARTHER + 1: [WRAPPED_V0]}
    ),
    "a new leader at the jump": Case(
        {0: [A, at_epoch(C, 3), at_epoch(D, 4)]}, {0: [A], FAR: [at_epoch(C, 3), at_epoch(D, 4)]}
    ),
}
cases = pytest.mark.parametrize("name", CASES)
some_cases = pytest.mark.parametrize("name", sampled(CASES, 3))


def make(folder: Path, logs: Mapping[int, list[bytes]]) -> Path:
    """Write a log dir with one partition."""
    place = folder / "data/orders-3"
    place.mkdir(parents=True)
    for base, blocks in logs.items():
        (place / f"{base:020}.log").write_bytes(b"".join(blocks))
    (place / "partition.metadata").write_text("version: 0\ntopic_id: " + "A" * 21 + "Q")
    (folder / "data/meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\n")
    return place


def logs_of(place: Path) -> dict[int, bytes]:
    return {int(path.stem): path.read_bytes() for path in sorted(place.glob("*.log"))}


def joined(logs: Mapping[int, list[bytes]]) -> dict[int, bytes]:
    return {base: b"".join(blocks) for base, blocks in logs.items()}


def problems(klog: Callable[..., Ran], data: Path) -> list[tuple[str, str]]:
    """Return the findings of verify, without missing data of which there is no other copy."""
    found = json.loads(klog("verify", "--deep", data, "--output=json").stdout)["findings"]
    return [(one["id"], one["file"]) for one in found if one["severity"] != "note" and one["id"] not in UNMENDABLE]


@pytest.mark.usefixtures("hasty")
@cases
def test_what_a_segment_cannot_hold_goes_into_one_of_its_own(
    name: str, tmp_path: Path, klog: Callable[..., Ran]
) -> None:
    """Every record is there, no fault is left, nothing remains to do, and undo restores the very tree."""
    case = CASES[name]
    place = make(tmp_path, case.before)
    data = place.parent
    whole = tree(data)
    done = json.loads(klog("recover", data, "--salvage", NOW, "--apply", "--output=json").stdout)
    assert logs_of(place) == joined(case.after)
    assert [one["records"] for one in done["lost"]] == list(case.lost)
    kept = [one for blocks in case.after.values() for one in blocks]
    records = sum(json.loads(klog("verify", data, "--output=json").stdout)[one] for one in ("records",))
    assert done["kept"]["bytes"] == sum(map(len, kept))
    if "old" not in name:  # unknown for messages before v2 from their headers
        assert done["kept"]["records"] == records
    assert done["left"] == []
    assert problems(klog, data) == []
    again = json.loads(klog("recover", data, "--salvage", NOW, "--output=json").stdout)
    assert again["actions"] == []
    assert klog("undo", done["backup"], "--apply").exit_code == 0
    assert {**tree(data), ".lock": None} == {**whole, ".lock": None}


@pytest.mark.usefixtures("hasty")
@some_cases
def test_the_default_leaves_it_alone_and_salvage_costs_no_more_than_it_says(
    name: str, tmp_path: Path, klog: Callable[..., Ran]
) -> None:
    case = CASES[name]
    place = make(tmp_path, case.before)
    (one,) = json.loads(klog("recover", place.parent, NOW, "--output=json").stdout)["partitions"]
    if not one["choices"]:
        assert name in ("the last that fits",)
        return
    done = json.loads(klog("recover", place.parent, "--salvage", NOW, "--output=json").stdout)
    assert one["choices"]["salvage"]["lost"] == done["lost"]
    assert one["choices"]["salvage"]["kept"] == done["kept"]
    assert done["broker_would_keep"] is None or done["kept"]["records"] >= done["broker_would_keep"]["records"]
    assert klog("recover", place.parent, NOW, "--apply").exit_code in (4, 5)
    # A later log without an intact batch is emptied.
    assert {base: log for base, log in logs_of(place).items() if log} == {
        base: log for base, log in joined(case.before).items() if not log.startswith((b"garbage", b"junk"))
    }


@some_cases
@pytest.mark.usefixtures("hasty")
def test_a_broker_keeps_no_batch_that_salvage_does_not(name: str, tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """The other way of repair has the same segments if it completes, except for the part that it cuts with damage."""
    case = CASES[name]
    place = make(tmp_path, case.before)
    klog("recover", place.parent, "--like-broker", NOW, "--apply")
    theirs = [one for log in logs_of(place).values() for one in scan(log)]
    ours = [one for blocks in case.after.values() for block in blocks for one in scan(block)]
    if logs_of(place) != joined(case.before):  # it comes through
        kept = {one.crc for one in ours if isinstance(one, Batch)}
        assert {one.crc for one in theirs if isinstance(one, Batch)} <= kept
    if not case.lost and name not in MISORDERED:
        assert {base: log for base, log in logs_of(place).items() if log} == {
            base: log for base, log in joined(case.after).items() if log
        }


MISORDERED = (
    "behind a later segment, and not far",  # a broker leaves it, and finds nothing there
    "one bit from where it stands",  # a broker makes it a segment of its own
    "a copy is kept once",  # a broker fails, or takes either
)


def test_batches_that_can_only_be_searched_for_count_as_intact(tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """Behind a misleading size, all of them beyond the segment's limit: no repair cuts in front of them."""
    place = make(tmp_path, {0: [A, bytes(700), C, D]})
    found = json.loads(klog("verify", place.parent, "--output=json").stdout)["findings"]
    (zeros,) = (one for one in found if one["position"] == len(A) and one["file"].endswith(".log"))
    assert "2 intact batches with 10 records follow" in zeros["message"]
    one = json.loads(klog("recover", place.parent, NOW, "--output=json").stdout)
    assert not any(action["file"].endswith(".log") for action in one["actions"])


# transactions, producers, epochs


def produced(offset: int, sequence: int, *, transactional: bool = True) -> bytes:
    records = [Record(offset + i, MS + i, b"k", b"value") for i in range(5)]
    return batch(records, transactional=transactional, producer=(9, 0, sequence))


def abort(offset: int) -> bytes:
    return marker(offset, commit=False, timestamp=MS, producer_id=9, producer_epoch=0, coordinator_epoch=1)


TXN = [produced(0, 0), produced(FAR, 5), abort(FAR + 5), produced(FARTHER, 10), abort(FARTHER + 5)]
ABORTED = [(9, 0, FAR + 5, FAR + 6), (9, FARTHER, FARTHER + 5, FARTHER + 6)]


def entries_of(place: Path) -> dict[int, bytes]:
    return {int(path.stem): path.read_bytes() for path in place.glob("*.txnindex")}


@pytest.mark.usefixtures("hasty")
def test_transactions_and_producers_go_with_their_batches(tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """Each new segment gets the aborted transactions whose markers it has; the old one's index had all of them."""
    place = make(tmp_path, {0: TXN})
    (place / f"{0:020}.txnindex").write_bytes(aborted_entries(ABORTED))
    first = snapshot([Producer(9, 0, 4, 4, 4, MS + 4, -1, 0)])
    (place / f"{5:020}.snapshot").write_bytes(first)
    assert klog("recover", place.parent, "--salvage", NOW, "--apply").exit_code == 1
    assert logs_of(place) == {0: TXN[0], FAR: TXN[1] + TXN[2], FARTHER: TXN[3] + TXN[4]}
    assert entries_of(place) == {0: b"", FAR: aborted_entries(ABORTED[:1]), FARTHER: aborted_entries(ABORTED[1:])}
    assert problems(klog, place.parent) == []
    assert (place / f"{5:020}.snapshot").read_bytes() == first
    assert sorted(int(path.stem) for path in place.glob("*.snapshot")) == [5, FARTHER + 6]


@pytest.mark.usefixtures("hasty")
def test_an_aborted_transaction_whose_marker_is_lost_behind_the_jump_is_still_known(
    tmp_path: Path, klog: Callable[..., Ran]
) -> None:
    """From the old segment's index; it is the new segment's that a broker asks about it now."""
    place = make(tmp_path, {0: [*TXN[:2], broken(TXN[2]), *TXN[3:]]})
    (place / f"{0:020}.txnindex").write_bytes(aborted_entries(ABORTED))
    klog("recover", place.parent, "--salvage", NOW, "--apply")
    found = entries_of(place)
    assert (found[0], found[FAR]) == (b"", aborted_entries(ABORTED[:1]))
    assert found[FARTHER].endswith(aborted_entries(ABORTED[1:])[18:26] + found[FARTHER][26:])


@pytest.mark.usefixtures("hasty")
def test_leader_epochs_begin_where_their_batches_do(tmp_path: Path, klog: Callable[..., Ran]) -> None:
    log = [A, at_epoch(C, 2), at_epoch(D, 2), at_epoch(E, 5)]
    place = make(tmp_path, {0: log})
    (place / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    klog("recover", place.parent, "--salvage", NOW, "--apply")
    lines = (place / "leader-epoch-checkpoint").read_text().splitlines()
    assert lines == ["0", "3", "0 0", f"2 {FAR}", f"5 {FARTHER}"]


@pytest.mark.usefixtures("hasty")
def test_indexes_of_the_new_segments_lead_to_their_batches(tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """Long ones, with many entries; the old index had entries up to the jump, which are as they were."""
    near = [five(5 * i) for i in range(300)]
    far = [five(FAR + 5 * i) for i in range(300)]
    place = make(tmp_path, {0: near + far})
    klog("recover", place.parent, "--salvage", NOW, "--index-interval=512", "--apply")
    assert (place / f"{0:020}.index").stat().st_size > 8 * 50
    assert (place / f"{FAR:020}.index").stat().st_size > 8 * 50
    for offset in (0, 777, FAR, FAR + 777):
        found = json.loads(klog("lookup", place, "--offset", str(offset), "--output=json").stdout)
        assert found["record"]["offset"] == offset
    assert problems(klog, place.parent) == []


@pytest.mark.usefixtures("hasty")
def test_the_segment_that_was_the_active_one_gets_the_end_of_its_time_index(
    tmp_path: Path, klog: Callable[..., Ran]
) -> None:
    """A broker writes that when it closes the segment; now others follow, and retention goes by it."""
    place = make(tmp_path, {0: [A, E, F], 100: [five(100)]})
    for kind in ("index", "timeindex"):
        (place / f"{100:020}.{kind}").touch()
    klog("recover", place.parent, "--salvage", NOW, "--apply")
    assert sorted(logs_of(place)) == [0, 100, FARTHER]
    assert (place / f"{100:020}.timeindex").stat().st_size == 12
    assert problems(klog, place.parent) == []
    assert json.loads(klog("recover", place.parent, "--salvage", NOW, "--output=json").stdout)["actions"] == []


# odd offsets that are no jump


def test_one_odd_offset_between_neighbours_is_no_jump(tmp_path: Path) -> None:
    """A base offset has no checksum: a flipped bit must not make a segment, nor cost the batches behind it."""
    log = [five(10 * i, leader_epoch=2) for i in range(12)]
    for number in range(12):
        wrong = at_offset(log[number], 10 * number + 2**40 + 2**35)
        partition = partition_of(tmp_path, _0=b"".join([*log[:number], wrong, *log[number + 1 :]]))
        found = only(partition)
        if number < 11:
            assert not found.is_split
            assert offsets(partition, found) == [10 * i for i in range(12) if i != number]
        else:  # no later batch contradicts it, and no other one has its offsets
            assert [part.base for part in found.parts] == [0, 110 + 2**40 + 2**35]


def test_a_flipped_bit_at_the_beginning_of_a_jump_is_put_right(tmp_path: Path) -> None:
    log = [five(5 * i) for i in range(4)] + [at_offset(C, FAR ^ 1 << 40), D, five(FAR + 10)]
    partition = partition_of(tmp_path, _0=b"".join(log))
    found = only(partition)
    assert [part.base for part in found.parts] == [0, FAR]
    assert (len(found.patches), found.cuts) == (1, ())


def test_a_flipped_bit_in_the_first_batch_behind_a_jump_is_put_right(tmp_path: Path) -> None:
    flipped = C[:90] + bytes((C[90] ^ 4,)) + C[91:]
    partition = partition_of(tmp_path, _0=b"".join([A, B, flipped, D]))
    found = only(partition, repair_bits=True)
    assert [part.base for part in found.parts] == [0, FAR]
    assert result(partition, found) == b"".join([A, B, C, D])


@pytest.mark.parametrize("epoch", [0, 1, 2 | 1 << 20])
def test_an_odd_epoch_at_a_jump_is_put_right(epoch: int, tmp_path: Path) -> None:
    whole = [at_epoch(one, 2) for one in (A, B, C, D, five(FAR + 10))]
    partition = partition_of(tmp_path, _0=b"".join([*whole[:2], at_epoch(C, epoch), *whole[3:]]))
    found = only(partition)
    assert [part.base for part in found.parts] == [0, FAR]
    assert result(partition, found) == b"".join(whole)


@pytest.mark.parametrize("count", [3, 60, 70, 200])
def test_a_block_of_another_log_costs_nothing_of_this_one(tmp_path: Path, count: int) -> None:
    """A block written to the wrong place, with higher offsets: the batches behind it seem to go backwards."""
    log = [five(5 * i) for i in range(500)]
    other = [five(2**34 + 5 * i) for i in range(count)]
    partition = partition_of(tmp_path, _0=b"".join([*log[:100], *other, *log[100:]]))
    found = only(partition)
    assert offsets(partition, found) == [5 * i for i in range(500)]
    assert not found.is_split


@pytest.mark.parametrize("first", [2**33, 2**45])
def test_a_batch_of_far_offsets_in_a_record_of_a_damaged_batch_is_no_jump(tmp_path: Path, first: int) -> None:
    inner = b"".join(five(first + 5 * i) for i in range(3))
    holder = batch([Record(50 + i, MS, b"k", inner if i == 1 else b"v") for i in range(10)])
    log = [five(5 * i) for i in range(10)] + [with_bytes(holder, 22, b"\0\x10")]
    for behind in ([], [five(60), five(65)]):
        partition = partition_of(tmp_path, _0=b"".join([*log, *behind]))
        found = only(partition)
        assert not found.is_split
        assert [(cut.batches, cut.bytes) for cut in found.cuts] == [(0, len(holder))]


def test_an_older_leader_s_log_does_not_come_back_behind_a_newer_one_s(tmp_path: Path) -> None:
    """An old segment's records of a deposed leader, beyond the end of the new leader's records, were cut everywhere."""
    old = [five(5 * i, leader_epoch=2) for i in range(20)]
    new = [five(50 + 5 * i, leader_epoch=3) for i in range(4)]
    first, second = salvage(partition_of(tmp_path, _0=b"".join(old), _50=b"".join(new))).segments
    assert (first.last_offset, first.is_split, second.is_whole) == (49, False, True)
    (cut,) = first.cuts
    assert (cut.reason, cut.batches, cut.copies) == ("segments-overlap", 10, 4)
    same = [five(50 + 5 * i, leader_epoch=2) for i in range(4)]
    first, second = salvage(partition_of(tmp_path, _0=b"".join(old), _50=b"".join(same))).segments
    assert [part.base for part in first.parts] == [0, 70]
    assert [(cut.batches, cut.copies) for cut in first.cuts] == [(4, 4)]


def test_a_log_that_would_become_too_many_segments_is_kept_up_to_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_batches, "MOST_PARTS", 4)
    found = only(partition_of(tmp_path, _0=b"".join(five(i * 2**33) for i in range(9))))
    assert len(found.parts) == 4
    assert found.batches == 4
    assert found.cuts[-1].reason == "more-damage"


def test_what_is_taken_is_not_free() -> None:
    free = FreeOffsets()
    free.take(100, 199, 4)
    free.take(20, 29, 2)
    assert [free.limit(offset) for offset in (0, 20, 29, 99, 100, 500)] == [20, 100, 100, 100, 2**63 - 1, 2**63 - 1]


# whatever the log


def random_log(chance: Random) -> tuple[dict[int, bytes], list[bytes]]:
    """Return logs by base offset, and their intact batches: offsets ascend throughout, by ones, gaps and jumps."""
    logs: dict[int, list[bytes]] = {}
    claims: list[tuple[int, int]] = []
    intact, offset, base = [], chance.choice((0, 0, 7, 2**31)), -1
    for _ in range(chance.randrange(2, 14)):
        if base < 0 or chance.random() < 0.2:
            base = offset
            logs[base] = []
        offset += chance.choice((0, 0, 0, 3, 2**31 - 20, 2**31, FAR, 2**33, 2**40))
        one = batch(
            [Record(offset + i, MS + i, b"k", b"v%d" % offset * 3) for i in range(chance.randrange(1, 9))],
            codec=chance.choice(("none", "none", "gzip", "zstd")),
            producer=(9, 0, 0) if chance.random() < 0.1 else (-1, -1, -1),
        )
        offset = offset + (int.from_bytes(one[23:27], "big")) + 1
        damage = chance.choice((None,) * 7 + ("broken", "short", "zeros", "junk"))
        if damage in ("zeros", "junk"):
            logs[base].append(bytes(chance.randrange(20, 300)) if damage == "zeros" else chance.randbytes(50))
        if damage == "short":
            claims.append((base, sum(map(len, logs[base])) + len(one)))
        if damage in ("broken", "short"):
            logs[base].append(broken(one) if damage == "broken" else one[: chance.randrange(62, len(one) - 8)])
        else:
            logs[base].append(one)
            intact.append(one)
    whole = joined(logs)
    if any(len(whole[base]) == end for base, end in claims):
        return random_log(chance)  # what follows seems to be inside of that one: a difference cannot be seen
    return whole, intact


EXAMPLES = int(os.environ.get("KLOG_EXAMPLES", "120"))


def test_no_batch_is_lost_where_the_offsets_allow_an_order(tmp_path: Path) -> None:
    """Jumps, gaps, holes and segments in their order: every intact batch is kept, in order, in segments that hold
    it."""
    for seed in range(EXAMPLES):
        logs, intact = random_log(Random(seed))
        partition = partition_of(tmp_path, **{f"_{base}": log for base, log in logs.items()})
        found = salvage(partition)
        parts = sorted((part.base, part.kept) for segment in found.segments for part in segment.parts if part.kept)
        kept = []
        for segment in found.segments:
            data = (Path(partition.path) / segment.files.log).read_bytes()
            pairs = [pair for part in segment.parts for pair in part.kept.pairs()]
            kept += [one.crc for start, end in pairs for one in scan(data[start:end]) if isinstance(one, Batch)]
        assert kept == [int.from_bytes(one[17:21], "big") for one in intact], seed
        assert all(before.lasts[-1] < base for (_, before), (base, _) in pairwise(parts)), seed
        assert all(base <= kept.firsts[0] and kept.lasts[-1] - base <= REACH for base, kept in parts), seed


@pytest.mark.usefixtures("hasty")
def test_random_logs_are_whole_after_a_salvage(tmp_path: Path, klog: Callable[..., Ran]) -> None:
    for seed in range(max(EXAMPLES // 10, 1)):
        logs, intact = random_log(Random(seed))
        place = make(tmp_path / str(seed), {base: [log] for base, log in logs.items()})
        whole = tree(place.parent)
        done = json.loads(klog("recover", place.parent, "--salvage", NOW, "--apply", "--output=json").stdout)
        assert b"".join(logs_of(place).values()) == b"".join(intact), seed
        assert not {one for one, _ in problems(klog, place.parent)} - {"sequence-gap"}, seed
        assert not json.loads(klog("recover", place.parent, "--salvage", NOW, "--output=json").stdout)["actions"], seed
        if done["actions"]:
            assert klog("undo", done["backup"], "--apply").exit_code == 0
        assert {**tree(place.parent), ".lock": None} == {**whole, ".lock": None}, seed
        shutil.rmtree(tmp_path / str(seed))


# interrupted


def disordered(folder: Path) -> Path:
    """A log dir with everything that a split can meet: several jumps, a hole, aborted transactions, sound segments
    around."""
    place = make(folder, {0: [A, B], 10: [five(10), *TXN[1:3], broken(five(FAR + 6)), *TXN[3:]], FARTHEST: [G]})
    (place / f"{10:020}.txnindex").write_bytes(aborted_entries(ABORTED))
    for base in (0, 10, FARTHEST):
        for kind in ("index", "timeindex"):
            (place / f"{base:020}.{kind}").write_bytes(b"")
    return place.parent


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that has no other to take after is of now."""
    monkeypatch.setattr(time, "time_ns", lambda: MS * 1_000_000)


@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize("model", MODELS)
def test_power_cut_in_the_middle_of_a_split(model: str, tmp_path: Path) -> None:
    """Before any call of the repair and of its undo; a seventh of them in one run, all of them in the next test."""
    original = disordered(tmp_path / "original")
    assert cut_everywhere(original, tmp_path, repair_in(RecoverMode.SALVAGE), models=(model,), every=7) > 10


@pytest.mark.long
@pytest.mark.usefixtures("stopped")
def test_power_cut_before_any_call_of_a_split(tmp_path: Path) -> None:
    assert cut_everywhere(disordered(tmp_path / "original"), tmp_path, repair_in(RecoverMode.SALVAGE)) > 200


def steps(original: Path, folder: Path, mode: RecoverMode) -> Iterator[Path]:
    """Yield a log dir as a repair leaves it after each of its changes, the very last one too."""
    whole = SteppedDisk(folder / "whole")
    repair_in(mode)(copy_of(original, folder / "whole"), whole)
    before: dict[str, object] | None = None
    for at in range(len(whole.calls) + 1):
        data = copy_of(original, folder / "step")
        try:
            repair_in(mode)(data, DeadlyDisk(folder / "step", at))
        except KilledError:
            pass
        now = {name: content for name, (content, _) in tree(data).items()}
        if now != before:
            yield data
        before = dict(now)


def readable(place: Path) -> list[int]:
    """Return the offsets that a broker finds by looking in the last segment that begins at or below each."""
    logs = logs_of(place)
    bases, found = sorted(logs), set()
    for base, behind in zip(bases, [*bases[1:], 2**63], strict=True):
        for one in scan(logs[base]):
            if isinstance(one, Batch):
                found |= {record.offset for record in one.records if base <= record.offset < behind}
    return sorted(found)


@pytest.mark.parametrize("mode", [RecoverMode.SALVAGE, RecoverMode.LIKE_BROKER])
@pytest.mark.parametrize(
    "name", sampled(["several jumps", "between sound segments", "the first batch jumps", "two segments jump"], 2)
)
def test_between_any_two_steps_of_a_split_all_is_found_and_the_log_ends_where_it_did(
    name: str, mode: RecoverMode, tmp_path: Path
) -> None:
    """A broker may start there; an end that is restored would be written once more."""
    original = make(tmp_path / "original", CASES[name].before).parent
    expected, ends = readable(original / "orders-3"), set()
    for number, data in enumerate(steps(original, tmp_path, mode)):
        place = data / "orders-3"
        assert readable(place) == expected, number
        last = max(logs_of(place))
        ends.add([one for one in scan(logs_of(place)[last]) if isinstance(one, Batch)][-1].last_offset)
    assert number > 3
    assert ends == {max(expected)}


# a broker's own code


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    with Loader() as one:
        yield one


@pytest.mark.kafka
@cases
@pytest.mark.usefixtures("hasty")
def test_kafka_loads_what_was_split_and_leaves_it(
    name: str, loader: Loader, tmp_path: Path, klog: Callable[..., Ran]
) -> None:
    """After a start that trusts nothing: every byte of every log is as it was."""
    place = make(tmp_path, CASES[name].before)
    klog("recover", place.parent, "--salvage", NOW, "--apply")
    (place.parent / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    theirs = shutil.copytree(place.parent, tmp_path / "theirs")
    outcome = loader.load(theirs, now_ms=MS)
    assert outcome.ok, outcome
    changed = [line.split(":")[0] for line in differences(place.parent, theirs)]
    assert not [file for file in changed if file.endswith((".log", ".txnindex"))]
    assert logs_of(theirs / "orders-3") == joined(CASES[name].after)


@pytest.mark.kafka
@pytest.mark.parametrize("is_clean", [False, True], ids=["after a kill", "after a clean stop"])
@pytest.mark.parametrize("name", sampled(["several jumps", "between sound segments", "the first batch jumps"], 2))
def test_kafka_that_starts_between_two_steps_of_a_split_keeps_all(
    name: str, is_clean: bool, loader: Loader, tmp_path: Path
) -> None:
    """It splits the old segment itself, over the segments that are there already; or leaves all as it is."""
    original = make(tmp_path / "original", CASES[name].before).parent
    expected = readable(original / "orders-3")
    for number, data in enumerate(steps(original, tmp_path, RecoverMode.SALVAGE)):
        theirs = shutil.copytree(data, tmp_path / f"theirs-{number}")
        for path in theirs.glob("*-checkpoint"):
            path.unlink()
        if is_clean:
            (theirs / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":-1}')
        outcome = loader.load(theirs, now_ms=MS)
        assert outcome.ok, (number, outcome)
        assert readable(theirs / "orders-3") == expected, number
