"""The answer of a fetch: limits, whole batches, damage, searches; against the rules, and against a plain walk."""

from __future__ import annotations

import errno
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
from klog.base.errors import UnreadableError
from klog.base.progress import Silence
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.formats.error_codes import ErrorCode
from klog.log.segment import Segment
from klog.partition.fetch import (
    Damaged,
    FetchLog,
    FetchRequest,
    FetchResult,
    OffsetBounds,
    OpenFiles,
    PartialBatch,
    UnservedRange,
    fetch,
    list_batches,
)
from klog.partition.fetch.open_logs import _OpenLog
from klog.partition.verify.segment_pass import NO_NEXT, SurveyOptions, survey_segment

from tests.conftest import CORPORA, FIXTURES, writable_copy
from tests.oracles.plain.encode import Record, batch, message
from tests.support.lookup_logs import MS, batches_of, of_records, write_segment


class Fetches:
    """A partition, fetched from as a broker would with its high watermark at the log's end."""

    def __init__(self, folder: Path, damaged: Damaged = "serve") -> None:
        self.losses: list[UnservedRange] = []
        self.problems: list[str] = []
        self.files = OpenFiles()
        self.log = FetchLog(
            Partition(str(folder)),
            self.files,
            damaged=damaged,
            report=self.losses.append,
            problem=self.problems.append,
        )
        start, end = self.log.partition.log_start_offset or 0, self.log.end
        self.bounds = OffsetBounds(start, end, end, end)

    def get(self, offset: int, max_bytes: int, up_to: int | None = None, **how: bool) -> FetchResult:
        asked = FetchRequest(offset, max_bytes, self.log.end if up_to is None else up_to, **how)  # type: ignore[arg-type]
        return fetch(self.log, self.bounds, asked)

    def offsets(self, fetched: FetchResult) -> list[tuple[int, int]]:
        return [(one.base_offset, one.last_offset) for one in list_batches(self.files, fetched).batches]

    def all(self, max_bytes: int, start: int = 0) -> Iterator[FetchResult]:
        """Read on as a consumer does: from behind the last whole batch."""
        offset = start
        while (fetched := self.get(offset, max_bytes)).size:
            assert fetched.error is ErrorCode.NONE
            yield fetched
            assert fetched.next_offset is not None
            assert fetched.next_offset > offset
            offset = fetched.next_offset

    def placed(self, max_bytes: int) -> list[tuple[str, int]]:
        return [
            (fetched.pieces[0].path, one.position)
            for fetched in self.all(max_bytes)
            for one in list_batches(self.files, fetched).batches
        ]


def single(count: int, size: int = 1094) -> list[tuple[int, int, bytes]]:
    return batches_of((offset, offset, size) for offset in range(count))


@pytest.fixture
def five(tmp_path: Path) -> Path:
    """Five batches of one record of 1 KB, as a Java producer writes them: 1094 bytes each."""
    path = tmp_path / "five-0"
    write_segment(path, 0, of_records([[Record(i, MS, None, b"v" * 1024)] for i in range(5)]))
    assert path.joinpath("00000000000000000000.log").stat().st_size == 5 * 1094
    return path


# limits


def test_a_limit_cuts_the_fourth_batch_and_the_next_fetch_brings_it_whole(five: Path) -> None:
    """The documented example: 3500 bytes come, three whole batches and a part that the consumer drops."""
    fetches = Fetches(five)
    first = fetches.get(0, 3500, partial=True)
    assert (first.size, fetches.offsets(first)) == (3500, [(0, 0), (1, 1), (2, 2)])
    assert list_batches(fetches.files, first).partial == PartialBatch(3, 218)
    second = fetches.get(3, 3500, partial=True)
    assert (second.size, fetches.offsets(second)) == (2188, [(3, 3), (4, 4)])
    assert list_batches(fetches.files, second).partial is None


@pytest.mark.parametrize("damaged", ["serve", "skip", "stop"])
def test_without_partial_only_whole_batches_come(five: Path, damaged: Damaged) -> None:
    """Bytes that a client throws away need not be sent."""
    fetches = Fetches(five, damaged)
    assert [fetches.get(0, limit).size for limit in (1094, 2187, 2188, 3500, 10**9)] == [1094, 1094, 2188, 3282, 5470]


@pytest.mark.parametrize("partial", [True, False])
@pytest.mark.parametrize("limit", [10, 0])
def test_the_first_batch_comes_whole_however_small_the_limit(tmp_path: Path, limit: int, partial: bool) -> None:
    """The other documented example: a consumer must advance, or it would stop at a large batch for ever."""
    records = [Record(0, MS, None, b"a" * 1024), Record(1, MS, None, b"b" * 2048)]
    write_segment(tmp_path / "pair-0", 0, of_records([records]))
    fetches = Fetches(tmp_path / "pair-0")
    assert fetches.offsets(fetches.get(1, limit, partial=partial)) == [(0, 1)]
    assert fetches.get(1, limit, partial=partial).size == 3151


def test_of_further_partitions_a_first_batch_above_the_limit_does_not_come(five: Path) -> None:
    """From version 3 of the request on: only one batch of a response may exceed the requested size."""
    fetches = Fetches(five)
    assert fetches.get(0, 1093, at_least_one=False) == FetchResult(ErrorCode.NONE, 5, 5, 0, next_offset=0)
    assert fetches.get(0, 1094, at_least_one=False).size == 1094


@pytest.mark.parametrize(
    ("offset", "error"),
    [
        (-1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (5, ErrorCode.NONE),
        (6, ErrorCode.OFFSET_OUT_OF_RANGE),
        (2**63 - 1, 1),
        (-(2**63), 1),
    ],
)
def test_beyond_the_offsets_is_an_error_and_at_the_end_is_nothing(five: Path, offset: int, error: ErrorCode) -> None:
    """A consumer resets on the error and waits at the end: to mix them up is a loss or a loop."""
    fetched = Fetches(five).get(offset, 1000)
    expected = (5, 5, 0) if error is ErrorCode.NONE else (-1, -1, -1)
    assert (fetched.error, fetched.size) == (error, 0)
    assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == expected


def test_a_batch_that_holds_the_first_hidden_offset_is_withheld(tmp_path: Path) -> None:
    """The high watermark may lie within a batch, and nothing from it on is committed."""
    write_segment(tmp_path / "t-0", 0, batches_of([(0, 4, 300), (5, 9, 300), (10, 14, 300)]))
    fetches = Fetches(tmp_path / "t-0")
    sizes = {up_to: fetches.get(0, 10_000, up_to, partial=True).size for up_to in (0, 1, 5, 6, 10, 15)}
    assert sizes == {0: 0, 1: 0, 5: 300, 6: 300, 10: 600, 15: 900}


def test_a_response_never_crosses_a_segment_and_goes_on_in_the_next(tmp_path: Path) -> None:
    """A piece is of one file, and after the end of one no search may be needed."""
    folder = tmp_path / "t-0"
    for base in (0, 100, 250):
        write_segment(folder, base, batches_of((base + i, base + i, 173) for i in range(100)))
    fetches = Fetches(folder, "skip")
    pieces = [fetched.pieces[0] for fetched in fetches.all(1 << 20)]
    assert [(os.path.basename(piece.path)[17:20], piece.size) for piece in pieces] == [
        ("000", 17300),
        ("100", 17300),
        ("250", 17300),
    ]
    assert fetches.log.searches == 1


def test_in_a_gap_the_next_batch_comes(tmp_path: Path) -> None:
    """Compaction leaves gaps between batches and between segments; consumers step over them."""
    folder = tmp_path / "t-0"
    write_segment(folder, 0, batches_of([(0, 4, 200), (20, 24, 200)]))
    write_segment(folder, 100, batches_of([(120, 124, 200)]))
    fetches = Fetches(folder)
    assert [fetches.offsets(fetches.get(offset, 200)) for offset in (3, 5, 24, 25, 100, 124)] == [
        [(0, 4)],
        [(20, 24)],
        [(20, 24)],
        [(120, 124)],
        [(120, 124)],
        [(120, 124)],
    ]


def test_a_response_ends_where_the_format_changes(tmp_path: Path) -> None:
    """Some clients treat the rest of a message set as damage when it continues in another format."""
    folder = tmp_path / "t-0"
    old = [(i, MS, message(i, 1, None, b"old", timestamp=MS)) for i in range(3)]
    new = [(i, MS, batch([Record(i, MS, None, b"new")])) for i in range(3, 6)]
    write_segment(folder, 0, [*old, *new])
    for damaged in ("serve", "skip"):
        fetches = Fetches(folder, damaged)
        assert [fetches.offsets(fetched) for fetched in fetches.all(1 << 20)] == [
            [(0, 0), (1, 1), (2, 2)],
            [(3, 3), (4, 4), (5, 5)],
        ]


# searching


@pytest.mark.parametrize("damaged", ["serve", "skip"])
def test_who_reads_on_costs_no_search(tmp_path: Path, damaged: Damaged) -> None:
    """A consumer asks ten times a second and more; the index is for whoever jumps."""
    write_segment(tmp_path / "t-0", 0, single(400, 600))
    fetches = Fetches(tmp_path / "t-0", damaged)
    assert sum(fetched.size for fetched in fetches.all(5_000)) == 400 * 600
    assert fetches.log.searches == 1
    assert fetches.offsets(fetches.get(217, 600)) == [(217, 217)]
    assert fetches.log.searches == 2


def test_what_is_remembered_is_bounded(tmp_path: Path) -> None:
    """Clients that jump about must not fill the memory."""
    write_segment(tmp_path / "t-0", 0, single(400, 600))
    fetches = Fetches(tmp_path / "t-0")
    for offset in range(400):
        fetches.get(offset, 1)
    assert len(fetches.log._next) == 256


def test_a_log_without_its_index_is_read_all_the_same(tmp_path: Path) -> None:
    """An index only makes it faster."""
    log = write_segment(tmp_path / "t-0", 0, single(400, 600))
    for damaged in ("serve", "skip"):
        log.with_suffix(".index").write_bytes(bytes(80))
        fetches = Fetches(tmp_path / "t-0", damaged)
        assert fetches.offsets(fetches.get(300, 1800)) == [(300, 300), (301, 301), (302, 302)]


# damage


def flip(path: Path, position: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


def test_a_response_ends_before_damage_and_the_next_begins_behind_it(five: Path) -> None:
    """A flipped bit costs its batch, and is reported once; no client receives it."""
    flip(five / "00000000000000000000.log", 2 * 1094 + 500)
    fetches = Fetches(five, "skip")
    for _ in range(2):
        assert [fetches.offsets(one) for one in fetches.all(1 << 20)] == [[(0, 0), (1, 1)], [(3, 3), (4, 4)]]
    assert fetches.offsets(fetches.get(2, 10)) == [(3, 3)]
    assert [(loss.damage.place.position, loss.size, loss.after) for loss in fetches.losses] == [(2188, 1094, 1)]


def test_a_damaged_batch_can_be_where_reading_ends(five: Path) -> None:
    """A client that cannot accept a gap is informed, at the very place."""
    flip(five / "00000000000000000000.log", 2 * 1094 + 500)
    fetches = Fetches(five, "stop")
    assert fetches.offsets(fetches.get(0, 1 << 20)) == [(0, 0), (1, 1)]
    assert fetches.get(2, 1 << 20) == FetchResult(ErrorCode.CORRUPT_MESSAGE, -1, -1, -1)
    assert fetches.offsets(fetches.get(3, 1 << 20)) == [(3, 3), (4, 4)]
    assert Fetches(five, "stop").get(2, 1 << 20).error is ErrorCode.CORRUPT_MESSAGE  # also for who begins there


def test_a_broker_hands_damage_out(five: Path) -> None:
    """As a broker does, which looks at headers only."""
    flip(five / "00000000000000000000.log", 2 * 1094 + 500)
    fetches = Fetches(five, "serve")
    assert fetches.get(0, 1 << 20).size == 5470


def test_what_is_behind_the_last_intact_batch_does_not_count_as_log(five: Path) -> None:
    """Otherwise clients that read to the end would wait for offsets that do not exist."""
    flip(five / "00000000000000000000.log", 4 * 1094 + 500)
    assert [Fetches(five, damaged).log.end for damaged in ("serve", "skip", "stop")] == [5, 4, 4]


def test_damage_in_old_formats_is_left_out_too(tmp_path: Path) -> None:
    """Messages of v0 and v1 have a checksum of another kind."""
    rows = [(i, MS, message(i, 1, None, b"old" * 20, timestamp=MS)) for i in range(6)]
    log = write_segment(tmp_path / "t-0", 0, rows)
    flip(log, 3 * len(rows[0][2]) + 40)
    fetches = Fetches(tmp_path / "t-0", "skip")
    assert [fetches.offsets(one) for one in fetches.all(1 << 20)] == [[(0, 0), (1, 1), (2, 2)], [(4, 4), (5, 5)]]


def damaged_copy(folder: Path, chance: Random) -> None:
    """Flip, zero, cut or double parts of the logs of a partition."""
    logs = [log for log in sorted(folder.glob("*.log")) if log.stat().st_size > 100]
    for log in chance.sample(logs, min(2, len(logs))):
        content = bytearray(log.read_bytes())
        at, size = chance.randrange(len(content)), chance.randrange(1, 3000)
        kind = chance.choice(("flip", "zero", "remove", "double", "cut"))
        if kind == "flip":
            content[at] ^= 0xFF
        elif kind == "zero":
            content[at : at + size] = bytes(len(content[at : at + size]))
        elif kind == "remove":
            del content[at : at + size]
        elif kind == "double":
            content[at:at] = content[at : at + size]
        else:
            del content[at:]
        log.write_bytes(content)


@pytest.mark.parametrize("seed", range(24))
def test_all_that_is_intact_comes_once_and_nothing_else(tmp_path: Path, seed: int) -> None:
    """For any limit, a consumer receives the batches that a walk over the log finds, and the same damage is
    reported."""
    chance = Random(seed)
    name = chance.choice(
        ("modern/idempotent-0", "modern/tx-0", "modern/gzip-0", "legacy/v1-none-0", "legacy/changing-0")
    )
    folder = writable_copy(FIXTURES / name, tmp_path / name.rpartition("/")[2])
    damaged_copy(folder, chance)
    intact, lost, highest = [], 0, -1
    for log in sorted(folder.glob("*.log")):
        for found in Segment(str(log)).batches():
            if isinstance(found, Damage):
                lost += found.size or 0
            elif found.last_offset > highest:  # a doubled batch precedes by its offsets: consumers skip it
                highest = found.last_offset
                intact.append((found.file, found.position))
    for limit in (1, chance.randrange(100, 9000), 1 << 20):
        fetches = Fetches(folder, "skip")
        got = fetches.placed(limit)
        # Only the first batch of a piece has to be new; a repeated one may follow it.
        assert [place for place in got if place in set(intact)] == intact
        assert sum(loss.size for loss in fetches.losses) == lost
        assert fetches.get(fetches.log.end, limit).size == 0


@pytest.mark.corpora
def test_what_is_left_out_is_what_verify_finds(image: Callable[[str], Path]) -> None:
    """The final sum of a server and a check of the same disk have to agree."""
    names = sorted(path.parent.name for path in (CORPORA / "crash").glob("*/before.tar.gz"))
    told = 0
    for name in names:
        for partition in (
            each for path in image(f"crash/{name}/before.tar.gz").iterdir() for each in _partitions(path)
        ):
            surveyed = [
                survey_segment(partition, files, NO_NEXT, SurveyOptions(), Silence(), None)
                for files in partition.segments
            ]
            expected = sum(stretch.damage.size or 0 for facts in surveyed for stretch in facts.damages)
            fetches = Fetches(Path(partition.path), "skip")
            for _ in fetches.all(3000, partition.log_start_offset or 0):
                pass
            assert sum(loss.size for loss in fetches.losses) == expected, (name, partition.directory)
            told += len(fetches.losses)
    assert told > 20


def _partitions(path: Path) -> list[Partition]:
    partition = Partition(str(path))
    return [partition] if path.is_dir() and partition.segments else []


def test_a_partition_without_a_log_is_empty(tmp_path: Path) -> None:
    """A broker makes an empty segment there when it starts."""
    (tmp_path / "t-0").mkdir()
    fetches = Fetches(tmp_path / "t-0", "skip")
    assert fetches.get(0, 100) == FetchResult(ErrorCode.NONE, 0, 0, 0, next_offset=0)
    assert fetches.get(1, 100).error is ErrorCode.OFFSET_OUT_OF_RANGE


# many threads, files that change


def test_many_threads_get_what_one_gets(tmp_path: Path) -> None:
    """The state behind fetches is shared: no client may receive another one's bytes."""
    folder = writable_copy(FIXTURES / "modern/tx-0", tmp_path / "tx-0")
    flip(sorted(folder.glob("*.log"))[1], 1000)
    expected = {limit: Fetches(folder, "skip").placed(limit) for limit in (100, 3000, 1 << 20)}
    shared = Fetches(folder, "skip")
    wrong: list[object] = []

    def read(limit: int) -> None:
        try:
            if shared.placed(limit) != expected[limit]:
                wrong.append(limit)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=read, args=(limit,)) for limit in expected for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len({loss.damage.place for loss in shared.losses}) == len(shared.losses) > 0


@pytest.mark.parametrize("damaged", ["serve", "skip"])
def test_a_file_that_shrinks_ends_the_answer_and_is_said(five: Path, damaged: Damaged) -> None:
    """A broker that still runs, or a person, cut it: the missing part cannot be sent, and nothing may crash."""
    fetches = Fetches(five, damaged)
    assert fetches.get(0, 1 << 20).size == 5470
    os.truncate(five / "00000000000000000000.log", 2 * 1094 + 100)
    assert [fetches.get(offset, 1 << 20).size for offset in (0, 1, 2, 4, 5)] == [2188, 1094, 0, 0, 0]
    assert fetches.problems[0].endswith("it became shorter, 2288 bytes where there were 5470")


def test_a_file_that_vanishes_is_passed_over_and_said(tmp_path: Path) -> None:
    """Retention takes whole segments away, and bad disks too."""
    folder = tmp_path / "t-0"
    for base in (0, 100, 200):
        write_segment(folder, base, batches_of((base + i, base + i, 173) for i in range(100)))
    skipping, serving = Fetches(folder, "skip"), Fetches(folder, "serve")
    (folder / "00000000000000000100.log").unlink()
    assert skipping.offsets(skipping.get(100, 10)) == [(200, 200)]
    assert serving.get(100, 10).error is ErrorCode.KAFKA_STORAGE_ERROR
    assert "00000000000000000100.log" in skipping.problems[0]


def test_few_files_stay_open_and_those_in_use_do(tmp_path: Path) -> None:
    """Ten thousand segments, and a limit of 1024 descriptors."""
    paths = [tmp_path / str(number) for number in range(10)]
    for path in paths:
        path.write_bytes(path.name.encode())
    files = OpenFiles(most=3)
    first, used = files.opened(str(paths[0])), weakref.ref(files.opened(str(paths[1])))
    for path in paths[1:]:
        assert files.opened(str(path)).read(0, 9) == path.name.encode()
        assert files.opened(str(paths[1])).read(0, 9) == b"1"
        assert len(files) <= 3
    assert first.read(0, 9) == b"0"
    assert used() is not None, "it was never closed meanwhile"
    assert _descriptors(paths) == {str(paths[number]) for number in (0, 1, 8, 9)}, "those in use, and those last used"
    del first
    files.close()
    assert not _descriptors(paths)


def test_logs_are_closed_when_connections_took_the_other_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        (tmp_path / str(number)).write_bytes(b"%d" % number)
    files = OpenFiles(most=100)

    class Scarce(_OpenLog):
        def __init__(self, path: str) -> None:
            if len(files) >= 2:
                raise UnreadableError(path) from OSError(errno.EMFILE, "Too many open files")
            super().__init__(path)

    monkeypatch.setattr("klog.partition.fetch.open_logs._OpenLog", Scarce)
    assert [files.opened(str(tmp_path / str(number))).read(0, 9) for number in range(5)] == [
        b"%d" % i for i in range(5)
    ]
    assert len(files) == 1


def _descriptors(paths: list[Path]) -> set[str]:
    """Return those of *paths* that this process has open."""
    found = {os.path.realpath(entry.path) for entry in os.scandir("/proc/self/fd")}
    return found & set(map(str, paths))


def test_another_file_under_the_same_name_is_not_read(tmp_path: Path) -> None:
    """Compaction puts a new log in the place of an old one: positions of the old one mean nothing there."""
    path = tmp_path / "a.log"
    path.write_bytes(b"old")
    files = OpenFiles(most=0)
    assert files.opened(str(path)).read(0, 9) == b"old"
    (tmp_path / "b.log").write_bytes(b"new")
    (tmp_path / "b.log").rename(path)
    with pytest.raises(UnreadableError, match="another file"):
        files.opened(str(path))
