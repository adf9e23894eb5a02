"""The examples that the project was given, where a compaction has to come to the same numbers."""

from __future__ import annotations

import struct
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest
from klog.commands.compact.cleaned_segments import SourceSegment, grouped, sources
from klog.commands.compact.log_cleaner import CleanerOptions, CompactionResult
from klog.commands.compact.log_to_clean import DirtyStart, LogSections
from klog.commands.compact.offset_map_filling import OffsetMapping
from klog.commands.compact.record_retention import Rewriting, RoundParameters, SegmentGroup
from klog.data_dir.log_dir import LogDir
from klog.formats.codec import Decompressor
from klog.kernel import OffsetMap
from klog.log.segment import Batch, Segment

from tests.commands.compact.recorded import Compactor
from tests.commands.compact.test_selection import Log
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record

ENTRIES = [(54 * i, 4158 * i) for i in range(1, 10)]
EAGER = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"}
NOW_MS = 1_000_000
GB = 1 << 30

COLLIDING = bytes.fromhex(
    "d131dd02c5e6eec4693d9a0698aff95c2fcab58712467eab4004583eb8fb7f8955ad340609f4b30283e488832571415a"
    "085125e8f7cdc99fd91dbdf280373c5bd8823e3156348f5bae6dacd436c919c6dd53e2b487da03fd02396306d248cda0"
    "e99f33420f577ee8ce54b67080a80d1ec69821bcb6a8839396f9652b6ff72a70"
)
"""With bit 7 of six bytes flipped its MD5 is the same: X. Wang and others, 2004."""


def record(offset: int, key: str | None, value: str | None) -> Record:
    return Record(offset, NOW_MS - 10_000, None if key is None else key.encode(), value and value.encode())


def of_producer(producer_id: int, sequence: int, one: Record, transactional: bool = False) -> bytes:
    return encode.batch([one], producer=(producer_id, 0, sequence), transactional=transactional)


class Table:
    """A partition `t-0` that is compacted with *settings*, pass by pass."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.log = Log(folder / "data")
        given = {name.replace("_", "."): text for name, text in settings.items()}
        self._topics, self._broker = {"t": {**EAGER, **given}}, {"producer.id.expiration.ms": "3600000"}

    def compact(self, now_ms: int = NOW_MS, choices: CleanerOptions = CleanerOptions(1 << 16)) -> CompactionResult:  # noqa: B008
        return Compactor(self.log.data, choices, self._topics, self._broker).compact(now_ms, "t-0")

    def batches(self) -> list[Batch]:
        found = [one for path in sorted(self.log.path.glob("*.log")) for one in Segment(str(path)).batches()]
        assert all(isinstance(one, Batch) and one.crc_holds for one in found)
        return [one for one in found if isinstance(one, Batch)]

    def offsets(self) -> list[int]:
        """Return the offsets of the records that are left."""
        return [each.offset for one in self.batches() for each in one.records()]  # type: ignore[union-attr]

    def spans(self) -> list[str]:
        """Return the batches that are left, first and last offset, `-` before one without records."""
        return [
            f"{'-' * (not one.records_count)}{one.base_offset}"
            + (f"-{one.last_offset}" if one.last_offset > one.base_offset else "")
            for one in self.batches()
        ]


# 4: the index of a segment that was compacted


def test_4_what_is_compacted_has_the_index_entries_of_an_append(tmp_path: Path) -> None:
    """500 batches of 77 bytes stay, and one that goes with the next segment makes the log another."""
    table = Table(tmp_path)
    batches = [encode.batch([record(at, f"{at:04}", "value")]) for at in range(500)]
    assert {len(one) for one in batches} == {77}
    table.log.segment(*batches, encode.batch([record(500, "twice", "old")]), base=0)
    table.log.segment(encode.batch([record(501, "twice", "new")]), base=501)
    table.log.segment(base=502)
    assert table.compact().rounds[0].groups[0].bases == (0, 501)
    index = (table.log.path / f"{0:020}.index").read_bytes()
    assert list(struct.iter_unpack(">ii", index)) == ENTRIES
    assert table.offsets() == [*range(500), 501]


# 6: which part of a log is cleaned, and which log first


def sized(base: int, last: int, size: int) -> bytes:
    """Return a batch of *size* bytes."""
    empty = len(encode.batch([Record(base, 1, b"k", b"")], last_offset=last))
    made = [encode.batch([Record(base, 1, b"k", bytes(size - empty - more))], last_offset=last) for more in range(5)]
    return next(one for one in made if len(one) == size)  # lengths take a byte or more


def sections(folder: Path, sizes: dict[int, int], active: int, checkpoint: int | None) -> LogSections:
    """Return the sections of a log of segments, their size by base offset, below an empty active one."""
    log = Log(folder)
    bases = [*sizes, active]
    for base, following in pairwise(bases):
        log.segment(sized(base, following - 1, sizes[base]), base=base, times=[(1, base)])
    log.segment(base=active)
    log.end = active
    if checkpoint is not None:
        log.says("cleaner-offset", checkpoint)
    return log.sections()


SCENARIO = [
    # checkpoint, active, sizes of segments before, where the dirty section begins, groups of segments
    (None, 13, {0: 10, 6: 10}, 0, [[0], [6]]),
    (13, 20, {0: 4, 6: 7, 13: 10, 17: 10}, 13, [[0], [6], [13], [17]]),
    (20, 28, {0: 2, 6: 4, 13: 5, 17: 6, 20: 10, 24: 10}, 20, [[0, 6], [13], [17], [20], [24]]),
]


@pytest.mark.parametrize(("checkpoint", "active", "sizes", "first_dirty", "groups"), SCENARIO)
def test_6_the_checkpoint_goes_from_0_over_13_and_20_to_28(
    tmp_path: Path, checkpoint: int | None, active: int, sizes: dict[int, int], first_dirty: int, groups: object
) -> None:
    """Head and tail of three cleanings; the active segment never."""
    found = sections(tmp_path / "data", {base: size * 1000 for base, size in sizes.items()}, active, checkpoint)
    assert found.because is (DirtyStart.NO_CHECKPOINT if checkpoint is None else DirtyStart.CHECKPOINT)
    assert (found.clean.first_offset, found.clean.end_offset) == (0, first_dirty)
    assert (found.dirty.first_offset, found.dirty.end_offset) == (first_dirty, active)
    assert (found.first_uncleanable, found.active.first_offset) == (active, active)
    dirty = sum(size for base, size in sizes.items() if base >= first_dirty)
    assert found.dirty_ratio == dirty / sum(sizes.values())
    assert found.eligible


def test_6_half_is_not_dirty_enough(tmp_path: Path) -> None:
    """Above 0.5, according to it."""
    assert not sections(tmp_path / "half", {0: 1000, 10: 1000}, 20, 10).eligible
    assert sections(tmp_path / "more", {0: 1000, 10: 1001}, 20, 10).eligible


# 7: which record stays


def test_7_a_record_stays_where_its_offset_is_not_below_its_keys_in_the_map(tmp_path: Path) -> None:
    """Below, at, and above; and a key that the map has never seen."""
    table = Table(tmp_path)
    log = [("other", 0), ("k", 1), ("k", 2), ("k", 3)]
    table.log.segment(*[encode.batch([record(at, key, "v")]) for key, at in log], base=0)
    table.log.segment(base=4)
    table.log.says("cleaner-offset", 1)
    table.compact()
    assert table.offsets() == [0, 3]


@pytest.mark.parametrize(("like_broker", "left"), [(False, [0, 1]), (True, [1])])
def test_7_two_keys_of_one_md5_are_one_only_to_a_broker(tmp_path: Path, like_broker: bool, left: list[int]) -> None:
    """Whoever can choose keys could have a broker delete the records of others."""
    other = bytearray(COLLIDING)
    for at in (19, 45, 59, 83, 109, 123):
        other[at] ^= 0x80
    table = Table(tmp_path)
    keys = (COLLIDING, bytes(other))
    table.log.segment(*[encode.batch([Record(at, NOW_MS, key, b"v")]) for at, key in enumerate(keys)], base=0)
    table.log.segment(base=2)
    table.compact(choices=CleanerOptions(1 << 16, like_broker=like_broker))
    assert table.offsets() == left


# 8: grouping


@pytest.mark.parametrize(("checkpoint", "active", "sizes", "first_dirty", "groups"), SCENARIO)
def test_8_small_neighbours_become_one_of_a_gigabyte_at_most(
    checkpoint: int | None, active: int, sizes: dict[int, int], first_dirty: int, groups: list[list[int]]
) -> None:
    """Sizes are those before the round, so merging begins a round after segments have shrunk."""
    given = [SourceSegment(base, "", size * GB // 10, 0, 8, 12, (), (base,)) for base, size in sizes.items()]
    made = grouped(given, GB, 10 << 20, active)
    assert [[one.base for one in group] for group in made] == groups


def test_8_segments_of_the_fourth_round(tmp_path: Path) -> None:
    """In order, each as full as may be: 17 never goes with 13, though it would fit."""
    given = [
        SourceSegment(base, "", size * GB // 10, 0, 8, 12, (), (base,))
        for base, size in {0: 5, 13: 4, 17: 5, 20: 7, 24: 8}.items()
    ]
    made = [[one.base for one in group] for group in grouped(given, GB, 10 << 20, 28)]
    assert made == [[0, 13], [17], [20], [24]]


def test_8_the_second_cleaning_merges_what_the_first_has_made_small(tmp_path: Path) -> None:
    """On files: full segments, half of each overwritten by the next."""
    table = Table(tmp_path, internal_segment_bytes="1000")
    for number in range(4):
        keys = [f"{number}-{at}" for at in range(5)] + [f"same-{at}" for at in range(5)]
        table.log.segment(
            *[encode.batch([record(number * 10 + at, key, "v" * 20)]) for at, key in enumerate(keys)], base=number * 10
        )
    table.log.segment(base=40)
    sizes = {path.name: path.stat().st_size for path in table.log.path.glob("*.log")}
    assert sorted(sizes.values()) == [0, 925, 925, 925, 925]
    first = table.compact()
    assert [group.bases for group in first.rounds[0].groups] == [(0,), (10,), (20,), (30,)]
    assert [group.bytes_out for group in first.rounds[0].groups] == [455, 455, 455, 925]
    (table.log.path / f"{40:020}.log").write_bytes(encode.batch([record(40, "another", "v")]))
    table.log.segment(base=41)
    second = table.compact()
    assert [group.bases for group in second.rounds[0].groups] == [(0, 10), (20,), (30,), (40,)]
    assert table.offsets() == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, *range(30, 41)]


# a whole log, pass by pass


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Three segments and an active one: superseded, keyless, aborted, tombstones, an idempotent producer."""
    made = Table(tmp_path, delete_retention_ms="1000")
    made.log.segment(
        encode.batch([record(0, "A", "a1"), record(1, "B", "b1")]),
        encode.batch([record(2, None, "x")]),
        encode.batch([record(3, "C", "c1"), record(4, "A", "a2")]),
        base=0,
    )
    made.log.segment(
        of_producer(7, 0, record(5, "B", "b2"), transactional=True),
        of_producer(7, 1, record(6, "D", "d1"), transactional=True),
        encode.batch([record(7, "C", None)]),
        encode.marker(8, commit=False, timestamp=NOW_MS - 10_000, producer_id=7, producer_epoch=0, coordinator_epoch=0),
        encode.batch([record(9, "E", "e1")]),
        base=5,
    )
    (made.log.path / f"{5:020}.txnindex").write_bytes(encode.aborted_entries([(7, 5, 8, 9)]))
    made.log.segment(
        encode.batch([record(10, "A", "a3"), record(11, "F", None)]),
        of_producer(9, 0, record(12, "G", "g1")),
        encode.batch([record(13, "G", "g2")]),
        base=10,
    )
    made.log.segment(encode.batch([record(14, "H", "h1")]), base=14)
    made.log.end = 15
    return made


def append(table: Table, active: int, offset: int, key: str, value: str) -> None:
    """Append to the active segment, and begin another."""
    with (table.log.path / f"{active:020}.log").open("ab") as log:
        log.write(encode.batch([record(offset, key, value)]))
    table.log.segment(base=offset + 1)


def horizons(table: Table) -> dict[int, int]:
    return {one.base_offset: one.base_timestamp for one in table.batches() if one.delete_horizon_ms is not None}


def test_a_log_is_cleaned_pass_by_pass_until_the_abort_marker_is_gone(table: Table) -> None:
    """Each decision of five passes: a marker outlives its data, and both phases of a tombstone take their time."""
    done = table.compact(NOW_MS)
    assert (len(done.rounds), done.cleaner_offset) == (1, 14)
    counts = done.rounds[0].counts
    # A broker counts the three of the aborted transaction as well.
    assert (done.rounds[0].mapped_records, counts.keyless) == (11, 1)
    assert (counts.records_in, counts.records_out) == (14, 7)
    assert table.offsets() == [1, 7, 8, 9, 10, 11, 13, 14]
    assert table.spans() == ["0-1", "-6", "7", "8", "9", "10-11", "-12", "13", "14"]
    assert horizons(table) == {7: 1_001_000, 10: 1_001_000}
    entry = struct.pack(">hqqqq", 0, 7, 5, 8, 9)
    assert (table.log.path / f"{0:020}.txnindex").read_bytes() == entry

    append(table, 14, 15, "B", "b3")
    assert table.compact(1_002_000).cleaner_offset == 16
    assert table.offsets() == [8, 9, 10, 13, 14, 15]
    assert table.spans() == ["-6", "8", "9", "10-11", "-12", "13", "14", "15"]
    assert horizons(table) == {10: 1_001_000}

    later = NOW_MS + 2 * 3_600_000
    append(table, 16, 16, "E", "e2")
    table.log.snapshot(17)  # as a stop leaves it once both producers are forgotten
    table.compact(later)
    assert table.offsets() == [8, 10, 13, 14, 15, 16]
    assert table.spans() == ["8", "10-11", "13", "14", "15", "16"]
    append(table, 17, 17, "I", "i1")
    table.log.snapshot(18)
    table.compact(later)
    assert table.offsets() == [8, 10, 13, 14, 15, 16, 17]
    assert horizons(table)[8] == later + 1000
    assert not list(table.log.path.glob("*.txnindex"))
    append(table, 18, 18, "J", "j1")
    table.log.snapshot(19)
    table.compact(later + 1001)
    assert table.offsets() == [10, 13, 14, 15, 16, 17, 18]


class Round(NamedTuple):
    """The result of one round with a small map."""

    next_dirty: int
    is_full: bool
    offsets: list[int]
    rewritten: list[int]


def one_round(table: Table, memory: int, first_dirty: int, *, md5: bool) -> Round:
    segments = sources(LogDir(str(table.log.data)).partition("t-0"))
    offsets = OffsetMap(memory, md5=md5)
    mapped = OffsetMapping(offsets, Decompressor().functions).fill(segments, 0, first_dirty, 14)
    terms = RoundParameters(NOW_MS, 1000, 4096, {}, 0, 14, convert=False)
    below = [one for one in segments if one.base < mapped.next_dirty]
    log = table.log.data / "written.log"
    group = SegmentGroup(below, terms.index_interval)
    log.write_bytes(b"".join(bytes(piece) for piece in Rewriting(offsets, segments, 0, terms).rewrite(group)))
    (log.parent / f"{0:020}.log").write_bytes(log.read_bytes())
    left = [one for one in Segment(str(log.parent / f"{0:020}.log")).batches() if isinstance(one, Batch)]
    kept = [each.offset for one in left for each in one.records()]  # type: ignore[union-attr]
    return Round(mapped.next_dirty, mapped.is_full, kept, [one.base for one in below])


@pytest.mark.parametrize("md5", [False, True])
def test_a_map_for_three_keys_stops_in_the_middle_of_a_batch(table: Table, md5: bool) -> None:
    """Room is needed before each key, an existing one as well: A occurs twice below offset 4."""
    assert OffsetMap(96, md5=md5).usable == 3
    assert one_round(table, 96, 0, md5=md5) == Round(4, True, [0, 1, 3, 4], [0])


def test_rounds_with_a_map_for_three_keys_come_to_the_same_values(table: Table) -> None:
    done = table.compact(choices=CleanerOptions(96))
    assert [one.next_dirty for one in done.rounds][:1] == [4]
    assert done.cleaner_offset == 14
    assert all(one.is_full for one in done.rounds[:-1])
    assert table.offsets() == [1, 7, 8, 9, 10, 11, 13, 14]
