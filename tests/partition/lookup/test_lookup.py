"""Lookups by offset: the awkward places, and indexes or logs that are wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from klog.base.errors import UnreadableError, UsageError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition
from klog.partition.lookup import Lookup, LookupOutcome, Trail, TrailDetail

from tests.oracles.lookup_slow import SlowPartition
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record, batch, empty_batch, marker, message, wrapper
from tests.oracles.plain.shapes import all_logs
from tests.support.lookup_logs import MS, batches_of, of_records, write_segment

BASE, COUNT, SIZE = 1000, 400, 200
STEM = f"{BASE:020}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A clean log dir with one partition: 400 batches of one record, 200 bytes each, an entry every 21 of them."""
    path = tmp_path / "data" / "orders-3"
    path.parent.mkdir()
    write_segment(path, BASE, batches_of((BASE + i, BASE + i, SIZE) for i in range(COUNT)))
    (path.parent / ".kafka_cleanshutdown").write_text('{"version":0}')
    return path


def look_up(folder: Path, offset: int) -> Trail:
    with Lookup(Partition(str(folder))) as lookup:
        return lookup.offset(offset)


def said(trail: Trail) -> str:
    return " | ".join(trail.notes)


# where things are


def test_the_trail_names_every_step(folder: Path) -> None:
    trail = look_up(folder, BASE + 100)
    assert (trail.outcome, trail.offset, trail.position) == (LookupOutcome.RECORD, BASE + 100, 100 * SIZE)
    assert trail.segment == (f"{STEM}.log", BASE, None, 1)
    assert trail.offset_index == (f"{STEM}.index", 3, 19, BASE + 84, 84 * SIZE, 5, 0, None)
    assert trail.scan == (84 * SIZE, 17)
    assert trail.batch == (100 * SIZE, SIZE, BASE + 100, BASE + 100, True, "none")
    assert (trail.notes, trail.problems) == ((), ())


def test_the_ends_of_the_log_are_said_in_words(folder: Path) -> None:
    """At three in the morning `not found` is not enough: the reason, and a broker's answer."""
    first, last, end, beyond, below = (look_up(folder, BASE + i) for i in (0, COUNT - 1, COUNT, COUNT + 1, -1))
    assert (first.outcome, said(first)) == (LookupOutcome.RECORD, f"the log start offset, {BASE}")
    assert last.outcome is LookupOutcome.RECORD
    assert (end.outcome, end.found, end.position) == (LookupOutcome.AT_END, False, None)
    assert said(end) == f"the log end offset {BASE + COUNT}: the next record to be written gets it"
    assert beyond.outcome is LookupOutcome.BEYOND_END
    assert "OffsetOutOfRange" in said(beyond)
    assert below.outcome is LookupOutcome.BELOW_START
    assert "OffsetOutOfRange" in said(below)
    assert all(not trail.problems for trail in (first, last, end, beyond, below))


def test_below_the_checkpointed_log_start_nothing_is_found(folder: Path) -> None:
    """Deleted records stay on disk until their segment is deleted, but no broker returns them."""
    (folder.parent / "log-start-offset-checkpoint").write_text(f"0\n1\norders 3 {BASE + 50}\n")
    trail = look_up(folder, BASE + 49)
    assert trail.outcome is LookupOutcome.BELOW_START
    assert "may still be in" in said(trail)
    assert look_up(folder, BASE + 50).notes == (f"the log start offset, {BASE + 50}",)


def test_beyond_the_high_watermark_is_said(folder: Path) -> None:
    (folder.parent / "replication-offset-checkpoint").write_text(f"0\n1\norders 3 {BASE + 300}\n")
    assert said(look_up(folder, BASE + 299)) == ""
    trail = look_up(folder, BASE + 300)
    assert trail.outcome is LookupOutcome.RECORD
    assert "high watermark" in said(trail)


def test_an_empty_log_has_an_end(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    write_segment(folder, 7, [])
    assert [look_up(folder, offset).outcome for offset in (6, 7, 8)] == [
        LookupOutcome.BELOW_START,
        LookupOutcome.AT_END,
        LookupOutcome.BEYOND_END,
    ]
    assert look_up(folder, 7).problems == ()


def test_a_directory_without_a_segment_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no segment"):
        look_up(tmp_path, 0)


def test_offsets_of_64_bits_are_no_trouble(folder: Path) -> None:
    assert look_up(folder, 2**63 - 1).outcome is LookupOutcome.BEYOND_END
    assert look_up(folder, -(2**63)).outcome is LookupOutcome.BELOW_START


# gaps


@pytest.fixture
def compacted(tmp_path: Path) -> Path:
    """A compacted log: gaps inside batches and between them, empty batches, a segment with nothing left."""
    folder = tmp_path / "orders-3"
    kept = [Record(2, MS, b"a", b"1"), Record(5, MS + 1, b"b", b"2")]
    first = [(9, MS + 1, batch(kept, base_offset=0, last_offset=9)), (14, MS, empty_batch(10, 14, max_timestamp=MS))]
    write_segment(folder, 0, first + of_records([[Record(20, MS + 2, b"c", b"3")]]))
    write_segment(folder, 30, [])
    write_segment(folder, 50, of_records([[Record(60, MS + 3, b"d", b"4")], [Record(61, MS + 4, b"e", b"5")]]))
    return folder


@pytest.mark.parametrize(
    ("offset", "position", "following"),
    [(0, 0, 2), (3, 0, 5), (6, 0, 20), (11, "empty", 20), (15, "last", 20), (21, 0, 60), (35, 0, 60), (55, 0, 60)],
)
def test_in_a_gap_the_next_record_is_shown(compacted: Path, offset: int, position: int | str, following: int) -> None:
    """Compaction leaves gaps; the answer is the batch a broker reads from, and the record that a consumer gets next."""
    trail = look_up(compacted, offset)
    assert (trail.outcome, trail.found, trail.offset) == (LookupOutcome.GAP, True, following)
    assert trail.record
    assert trail.record.offset == following
    assert trail.batch
    assert isinstance(position, str) or trail.position == position
    assert trail.batch.last_offset >= offset
    assert f"the next record is {following}" in said(trail)
    assert trail.problems == ()
    assert (trail.segment and trail.segment.base_offset) == (50 if offset > 20 else 0)


def test_a_record_beside_gaps_is_a_record(compacted: Path) -> None:
    found = {offset: look_up(compacted, offset).outcome for offset in (2, 5, 20, 60, 61, 62)}
    assert found == {**dict.fromkeys((2, 5, 20, 60, 61), LookupOutcome.RECORD), 62: LookupOutcome.AT_END}


def test_a_gap_at_the_end_has_no_next_record(compacted: Path) -> None:
    """An empty last segment whose base offset is beyond the rest: the log end is its base offset."""
    write_segment(compacted, 90, [])
    trail = look_up(compacted, 70)
    assert (trail.outcome, trail.found, trail.record) == (LookupOutcome.GAP, False, None)
    assert "below the log end offset 90, but no record follows" in said(trail)
    assert look_up(compacted, 90).outcome is LookupOutcome.AT_END


# transactions


def transaction(first: int, *, commit: bool, producer_id: int) -> list[tuple[int, int, bytes]]:
    records = [Record(first, MS, b"k", b"v"), Record(first + 1, MS, b"k", b"v")]
    data = batch(records, transactional=True, producer=(producer_id, 0, 0))
    end = marker(first + 2, commit=commit, timestamp=MS, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1)
    return [(first + 1, MS, data), (first + 2, MS, end)]


def test_the_fate_of_a_transaction_is_said(tmp_path: Path) -> None:
    """`My record is there, but no consumer receives it` is the question that brings people here."""
    folder = tmp_path / "orders-3"
    aborted, committed = transaction(0, commit=False, producer_id=7), transaction(3, commit=True, producer_id=8)
    undecided = transaction(6, commit=True, producer_id=9)[:1]
    write_segment(folder, 0, aborted + committed + undecided)
    (folder / f"{0:020}.txnindex").write_bytes(encode.aborted_entries([(7, 0, 2, 3)]))
    words = {offset: said(look_up(folder, offset)) for offset in range(8)}
    assert "producer 7 that was aborted at 2: read_committed consumers do not receive it" in words[1]
    assert "in a transaction of producer 8, committed at 5" in words[3]
    assert "producer 9 that has no end in the log" in words[7]
    assert "a marker, which consumers do not receive" in words[2]
    assert [look_up(folder, offset).outcome for offset in (1, 2)] == [LookupOutcome.RECORD, LookupOutcome.CONTROL]
    (folder / f"{0:020}.txnindex").unlink()
    assert "aborted at 2, but no transaction index has this" in said(look_up(folder, 1))


def test_a_marker_may_be_in_a_later_segment(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    data, end = transaction(0, commit=False, producer_id=7)
    write_segment(folder, 0, [data])
    write_segment(folder, 2, [end])
    assert "aborted at 2, but no transaction index" in said(look_up(folder, 0))
    (folder / f"{2:020}.txnindex").write_bytes(encode.aborted_entries([(7, 0, 2, 3)]))
    assert "aborted at 2: read_committed" in said(look_up(folder, 0))


# formats


@pytest.mark.parametrize("name", all_logs())
def test_every_shape_of_batch_is_searched(name: str, tmp_path: Path) -> None:
    """Compressed, message sets of magic 0 and 1, all in one log: the result of a slow scan."""
    folder = tmp_path / "orders-3"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(all_logs()[name])
    (folder / f"{0:020}.index").write_bytes(b"")
    slow = SlowPartition(folder)
    records = [record for batch in slow.segments[0].batches for record in batch.records]
    with Lookup(Partition(str(folder))) as lookup:
        for expected in [record for record in records if 0 <= record.offset < 2**31][:: max(1, len(records) // 60)]:
            trail = lookup.offset(expected.offset)
            there = slow.record(expected.offset)
            assert there
            assert trail.outcome in (LookupOutcome.RECORD, LookupOutcome.CONTROL)
            assert (trail.position, trail.record and trail.record.value) == (there.position, there.record.value)


def test_an_index_of_first_offsets_is_as_good(tmp_path: Path) -> None:
    """Until 1.1 brokers indexed the first offset of an append; of wrappers, too, whose header has only the last."""
    folder = tmp_path / "orders-3"
    groups = [[Record(10 * i + j, MS, None, bytes(30)) for j in range(10)] for i in range(40)]
    contents = [wrapper(records, 1, "gzip") for records in groups]
    positions = [sum(map(len, contents[:i])) for i in range(40)]
    write_segment(folder, 0, [(10 * i + 9, MS, content) for i, content in enumerate(contents)])
    entries = [(10 * i, positions[i]) for i in range(5, 40, 5)]
    (folder / f"{0:020}.index").write_bytes(encode.offset_entries(0, entries))
    with Lookup(Partition(str(folder))) as lookup:
        for offset in range(400):
            trail = lookup.offset(offset)
            assert (trail.position, trail.outcome, trail.problems) == (
                positions[offset // 10],
                LookupOutcome.RECORD,
                (),
            )
            assert trail.scan
            assert trail.scan.batches <= 5
            assert trail.batch
            assert (trail.batch.base_offset, trail.batch.last_offset) == (offset // 10 * 10, offset // 10 * 10 + 9)


def test_an_entry_may_be_about_a_whole_append(tmp_path: Path) -> None:
    """Followers and the cleaner write many batches at once: the entry has the last offset and the first position."""
    folder = tmp_path / "orders-3"
    write_segment(folder, 0, batches_of((i, i, 200) for i in range(60)))
    (folder / f"{0:020}.index").write_bytes(encode.offset_entries(0, [(39, 4000), (59, 8000)]))
    with Lookup(Partition(str(folder))) as lookup:
        for offset in range(60):
            trail = lookup.offset(offset)
            assert (trail.position, trail.problems) == (200 * offset, ())


# wrong indexes


def wrong_indexes(good: bytes, chance: Random) -> dict[str, bytes]:
    """Return indexes that are wrong for most offsets, by their faults."""
    entries = [struct.unpack_from(">ii", good, at) for at in range(0, len(good), 8)]

    def made(change: Callable[[int, int], tuple[int, int]]) -> bytes:
        return b"".join(struct.pack(">ii", *change(*entry)) for entry in entries)

    return {
        "garbage": chance.randbytes(len(good)),
        "shifted": made(lambda relative, position: (relative, position + 7)),
        "short": good[:16],
        "ragged": good[:-3],
        "of another segment": made(lambda relative, position: (3 * relative, position // 3 + 11)),
        "a batch too far": made(lambda relative, position: (relative, position + 2 * SIZE)),
        "beyond the log": made(lambda relative, position: (relative, position + COUNT * SIZE)),
        "backwards": b"".join(good[at : at + 8] for at in range(len(good) - 8, -1, -8)),
        "positions below zero": made(lambda relative, position: (relative, -position)),
        "offsets below zero": made(lambda relative, position: (-relative, position)),
        "emptied": b"",
    }


@pytest.mark.parametrize("name", wrong_indexes(bytes(80), Random(1)))
def test_a_wrong_index_is_told_and_costs_no_answer(name: str, folder: Path) -> None:
    """When index and log disagree, the log answers, and the trail reports it."""
    path = folder / f"{STEM}.index"
    path.write_bytes(wrong_indexes(path.read_bytes(), Random(1))[name])
    with Lookup(Partition(str(folder))) as lookup:
        trails = [lookup.offset(BASE + i) for i in range(COUNT)]
    assert [trail.position for trail in trails] == [SIZE * i for i in range(COUNT)]
    assert trails[-1].problems
    assert all(problem.startswith(f"{STEM}.index: ") for trail in trails for problem in trail.problems)


def test_a_missing_index_is_told(folder: Path) -> None:
    (folder / f"{STEM}.index").unlink()
    trail = look_up(folder, BASE + 399)
    assert (trail.position, trail.problems) == (399 * SIZE, (f"{STEM}.log: there is no offset index",))
    assert trail.offset_index == (None, None, 0, BASE, 0, 0, None, "there is no offset index")


def test_an_unreadable_index_is_told(folder: Path) -> None:
    (folder / f"{STEM}.index").unlink()
    (folder / f"{STEM}.index").symlink_to(folder)
    assert look_up(folder, BASE + 399).position == 399 * SIZE


def test_zeros_behind_the_entries_are_no_problem(folder: Path) -> None:
    """Preallocated: every live broker's active index looks like that."""
    expected = [look_up(folder, BASE + i) for i in range(0, COUNT, 7)]
    with open(folder / f"{STEM}.index", "ab") as file:
        file.truncate(10 << 20)
    assert [look_up(folder, BASE + i) for i in range(0, COUNT, 7)] == expected


def test_entries_that_a_truncation_left_are_a_problem_only_after_a_clean_stop(folder: Path) -> None:
    """A broker that truncates does not zero the slots; it trims them when it stops."""
    with open(folder / f"{STEM}.index", "ab") as file:
        file.write(struct.pack(">iiii", COUNT + 5, (COUNT + 5) * SIZE, COUNT + 30, (COUNT + 30) * SIZE))
    assert "beyond the log's end" in look_up(folder, BASE + 390).problems[0]
    (folder.parent / ".kafka_cleanshutdown").unlink()
    trail = look_up(folder, BASE + 390)
    assert (trail.problems, trail.position) == ((), 390 * SIZE)
    assert trail.offset_index
    assert trail.offset_index.slot == 17


def test_one_wrong_entry_costs_no_more_than_the_one_before_it(folder: Path) -> None:
    data = bytearray((folder / f"{STEM}.index").read_bytes())
    data[8 * 9 + 7] ^= 0x10
    (folder / f"{STEM}.index").write_bytes(data)
    trail = look_up(folder, BASE + 215)
    assert trail.position == 215 * SIZE
    assert trail.offset_index
    assert trail.offset_index.slot == 8
    assert "entry 9 (offset 1210, position" in trail.problems[0]


def test_an_entry_about_a_damaged_batch_is_not_believed(folder: Path) -> None:
    """Its content may be anything; the entry before it leads as far."""
    flip(folder / f"{STEM}.log", 210 * SIZE + 150)
    trail = look_up(folder, BASE + 215)
    assert (trail.outcome, trail.position) == (LookupOutcome.RECORD, 215 * SIZE)
    assert trail.offset_index
    assert trail.offset_index.slot == 8
    assert "entry 9 (offset 1210, position 42000) points at a batch whose checksum does not match" in trail.problems[0]


def test_a_log_inside_a_message_is_not_taken_for_the_log(tmp_path: Path) -> None:
    """An index of another copy may point into a batch, to a batch that somebody has stored as a value."""
    folder = tmp_path / "orders-3"
    inside = batch([Record(2, MS, b"not", b"of this log")])
    first = batch([Record(0, MS, b"k", b"v"), Record(1, MS, None, b"x" * 30 + inside)])
    write_segment(folder, 0, [(1, MS, first), (9, MS, batch([Record(9, MS, b"k", b"v")]))])
    (folder / f"{0:020}.index").write_bytes(encode.offset_entries(0, [(5, first.index(inside))]))
    trail = look_up(folder, 9)
    assert trail.position == len(first)
    assert "does not point at the beginning of a batch" in trail.problems[0]


# damaged logs


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0xFF
    path.write_bytes(data)


def test_an_offset_in_a_damaged_batch_is_damaged_not_missing(folder: Path) -> None:
    flip(folder / f"{STEM}.log", 100 * SIZE + 150)
    before, hit, after = (look_up(folder, BASE + i) for i in (99, 100, 101))
    assert (before.outcome, after.outcome) == (LookupOutcome.RECORD, LookupOutcome.RECORD)
    assert (hit.outcome, hit.found) == (LookupOutcome.DAMAGED, False)
    assert hit.batch == (100 * SIZE, SIZE, BASE + 100, BASE + 100, False, "none")
    assert "bad CRC" in hit.problems[0]
    assert f"the next intact batch is at {101 * SIZE}" in said(hit)


@pytest.mark.parametrize("at", [8, 9, 10, 11, 16])
def test_a_damaged_length_hides_nothing(at: int, folder: Path) -> None:
    """The walk is misled there; the later part is intact and has to be found."""
    flip(folder / f"{STEM}.log", 105 * SIZE + at)
    with Lookup(Partition(str(folder))) as lookup:
        for i in range(COUNT):
            trail = lookup.offset(BASE + i)
            assert (trail.position, trail.found) == ((SIZE * i, True) if i != 105 else (None, False)), i
            if i in (105, 106):
                assert trail.problems


def test_an_offset_out_of_order_hides_nothing(folder: Path) -> None:
    """No checksum covers a batch's own offset: one that is too high is not the answer for all later ones."""
    data = bytearray((folder / f"{STEM}.log").read_bytes())
    struct.pack_into(">q", data, 100 * SIZE, BASE + 300)
    (folder / f"{STEM}.log").write_bytes(data)
    with Lookup(Partition(str(folder))) as lookup:
        for i in (99, 101, 102, 110, 299, 301):
            trail = lookup.offset(BASE + i)
            assert (trail.outcome, trail.position) == (LookupOutcome.RECORD, SIZE * i), i
        assert "offset backwards" in lookup.offset(BASE + 102).problems[0]


def test_a_length_that_swallows_whole_batches_hides_nothing(folder: Path) -> None:
    """Bytes 8 to 11 are outside the checksum's range: a plausible length may end at the beginning of another batch."""
    data = bytearray((folder / f"{STEM}.log").read_bytes())
    struct.pack_into(">i", data, 200 * SIZE + 8, 5 * SIZE - 12)
    (folder / f"{STEM}.log").write_bytes(data)
    with Lookup(Partition(str(folder))) as lookup:
        for i in (199, 201, 202, 203, 204, 205):
            assert lookup.offset(BASE + i).position == SIZE * i
        assert lookup.offset(BASE + 200).outcome is LookupOutcome.DAMAGED


def test_a_torn_tail_after_a_crash_is_a_note(folder: Path) -> None:
    """A broker cuts it off at its next start: nothing to repair by hand."""
    path = folder / f"{STEM}.log"
    path.write_bytes(path.read_bytes()[:-50])
    clean = look_up(folder, BASE + COUNT - 1)
    assert clean.outcome is LookupOutcome.AT_END
    assert "does not point at the beginning of a batch" in clean.problems[0]
    assert "torn tail" in clean.problems[1]
    (folder.parent / ".kafka_cleanshutdown").unlink()
    killed = look_up(folder, BASE + COUNT - 1)
    assert (killed.outcome, killed.problems) == (LookupOutcome.AT_END, ())
    assert f"torn tail from {SIZE * (COUNT - 1)} on" in said(killed)


def test_a_log_that_vanished_is_an_error(folder: Path) -> None:
    partition = Partition(str(folder))
    assert partition.segments
    (folder / f"{STEM}.log").unlink()
    with pytest.raises(UnreadableError), Lookup(partition) as lookup:
        lookup.offset(BASE)


def test_mutated_logs_and_indexes_never_lie(folder: Path) -> None:
    """Any bytes at all: a result is intact and in its place, and no intact batch is missing."""
    chance = Random(11)
    log, index = (folder / f"{STEM}.{kind}" for kind in ("log", "index"))
    good = {path: path.read_bytes() for path in (log, index)}
    for _ in range(60):
        for path in (log, index):
            data = bytearray(good[path])
            for _ in range(chance.randrange(4)):
                at = chance.randrange(len(data))
                # no checksum covers a batch's own offset; a log out of order is another test
                data[at + 8 if path is log and at % SIZE < 8 else at] ^= 1 << chance.randrange(8)
            path.write_bytes(data[: len(data) - chance.choice((0, 0, 0, chance.randrange(500)))])
        slow = SlowPartition(folder)
        intact = {record.offset: b.position for b in slow.segments[0].batches for record in b.records}
        with Lookup(Partition(str(folder))) as lookup:
            for i in chance.sample(range(COUNT), 40):
                trail = lookup.offset(BASE + i)
                if BASE + i in intact:
                    assert (trail.outcome, trail.position) == (LookupOutcome.RECORD, intact[BASE + i])
                else:
                    assert trail.outcome is not LookupOutcome.RECORD


# the cost


def read_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that will hold the size of each read."""
    sizes: list[int] = []
    read, read_into = ReadOnlyFile.read, ReadOnlyFile.read_into

    def one(self: ReadOnlyFile, position: int, size: int) -> bytes:
        sizes.append(size)
        return read(self, position, size)

    def other(self: ReadOnlyFile, position: int, view: memoryview) -> int:
        sizes.append(len(view))
        return read_into(self, position, view)

    monkeypatch.setattr(ReadOnlyFile, "read", one)
    monkeypatch.setattr(ReadOnlyFile, "read_into", other)
    return sizes


def test_a_lookup_reads_a_few_kilobytes(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = read_bytes(monkeypatch)
    look_up(folder, BASE + 200)
    assert sum(sizes) < 20_000


def test_without_an_index_only_headers_of_large_batches_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A walk, not a full read: of 50 MB little more than the headers."""
    folder = tmp_path / "orders-3"
    value = bytes(1 << 20)
    write_segment(folder, 0, of_records([[Record(i, MS, None, value)] for i in range(50)]))
    (folder / f"{0:020}.index").unlink()
    sizes = read_bytes(monkeypatch)
    assert look_up(folder, 49).problems
    assert sum(sizes) < 3 << 20


def test_many_lookups_read_each_window_about_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "orders-3"
    path = write_segment(folder, 0, batches_of((i, i, 200) for i in range(20_000)))
    sizes = read_bytes(monkeypatch)
    offsets = [Random(3).randrange(20_000) for _ in range(3000)]
    with Lookup(Partition(str(folder)), wanted=TrailDetail(records=False, explains=False)) as lookup:
        found = dict(lookup.many(offsets))
    assert [found[place].position for place in range(3000)] == [200 * offset for offset in offsets]
    assert sum(sizes) < 2 * path.stat().st_size


def test_many_lookups_answer_as_single_ones_do(compacted: Path) -> None:
    """Sharing windows must not change a trail."""
    offsets = [*range(-2, 70), *range(30, 0, -3)]
    with Lookup(Partition(str(compacted))) as lookup:
        shared = dict(lookup.many(offsets))
    for place, offset in enumerate(offsets):
        assert shared[place] == look_up(compacted, offset)


def test_messages_without_compression_are_batches_of_one(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    write_segment(folder, 5, [(5 + i, -1, message(5 + i, 0, b"k", b"v" * i)) for i in range(9)])
    with Lookup(Partition(str(folder)), wanted=TrailDetail(records=False)) as lookup:
        trail = lookup.offset(9)
    assert (trail.outcome, trail.record and trail.record.value) == (LookupOutcome.RECORD, b"vvvv")
