"""Ranges: exactly the records that lie in them, and little else is read."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random

import pytest
from klog.commands.dump.dump_request import JSON_LINES, TEXT, DumpRequest, LogStyle
from klog.data_dir.partition import SegmentFiles, segments_between
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.kernel import KeySet, Window
from klog.log.json_lines import LineStyle
from klog.log.records import RecordFilter, RecordLimit

from tests.commands.dump.sinks import Kept, bytes_read, dump, dump_file
from tests.kernel.windows import filled
from tests.log.test_index import BASE, COUNT, Log, damaged
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record, batch, marker
from tests.oracles.plain.shapes import MS, some_records

LINES = DumpRequest(output=JSON_LINES)
CONTENT = Random(12).randbytes(20_000)


def lines(paths: list[Path], **wanted: object) -> Kept:
    code, kept = dump(paths, LINES._replace(wanted=RecordFilter(**wanted)))  # type: ignore[arg-type]
    assert (code, kept.reports) == (0, [])
    return kept


@pytest.fixture
def log(tmp_path: Path) -> Log:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    return Log(folder)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A segment of 16 MB with an index entry for every 4 KiB, as a broker writes them."""
    folder = tmp_path_factory.mktemp("large") / "orders-3"
    folder.mkdir()
    data, offsets, times, since = bytearray(), [], [], 0
    for i in range(8000):
        at = i * 131 % 18_000
        records = [Record(10 * i + j, MS + 1000 * i + j, b"key", CONTENT[at : at + 190]) for j in range(10)]
        one = batch(records)
        if since > 4096:
            offsets.append((10 * i + 9, len(data)))
            times.append((MS + 1000 * i + 9, 10 * i + 9))
            since = 0
        data += one
        since += len(one)
    (folder / f"{0:020}.log").write_bytes(data)
    (folder / f"{0:020}.index").write_bytes(encode.offset_entries(0, offsets))
    (folder / f"{0:020}.timeindex").write_bytes(encode.time_entries(0, times))
    return folder


# little is read


@pytest.mark.parametrize("output", [JSON_LINES, TEXT])
@pytest.mark.parametrize("first", [0, 1, 4095, 40_003, 79_990])
def test_ten_records_from_the_middle_cost_little(
    large: Path, monkeypatch: pytest.MonkeyPatch, first: int, output: str
) -> None:
    """A few windows of 16 MB are read, by either way of dumping."""
    counted = bytes_read(monkeypatch)
    request = DumpRequest(output=output, log_style=LogStyle(deep=True), wanted=RecordFilter(first, first + 10))
    code, kept = dump([large], request)
    assert code == 0
    found = [
        int(line.split()[2])
        for line in bytes(kept.data).decode("utf-8", "replace").splitlines()
        if line.startswith("| ")
    ]
    assert (found if output == TEXT else kept.offsets) == list(range(first, first + 10))
    assert sum(counted) < 200_000


def test_the_records_since_a_time_cost_little(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = bytes_read(monkeypatch)
    kept = lines([large], from_time=MS + 7_990_004)
    assert kept.offsets == list(range(79_904, 80_000))
    assert sum(counted) < 200_000


def test_of_two_lower_ends_the_later_one_counts(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An offset and a time both show where reading may begin."""
    counted = bytes_read(monkeypatch)
    assert lines([large], from_offset=79_995, from_time=MS + 1000).offsets == list(range(79_995, 80_000))
    assert lines([large], from_offset=1, from_time=MS + 7_999_000).offsets == list(range(79_990, 80_000))
    assert sum(counted) < 400_000


def test_a_limit_costs_little(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = bytes_read(monkeypatch)
    assert lines([large], limit=5).offsets == [0, 1, 2, 3, 4]
    assert lines([large], from_offset=50_001, limit=5).offsets == list(range(50_001, 50_006))
    assert sum(counted) < 400_000


def test_the_newest_records_cost_little(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = bytes_read(monkeypatch)
    offsets = lines([large], tail=True).offsets
    assert offsets == list(range(int(str(offsets[0])), 80_000))
    assert 10 <= len(offsets) < 100
    assert lines([large], tail=True, limit=7).offsets == list(range(79_993, 80_000))
    assert lines([large], tail=True, limit=9, controls=False).offsets == list(range(79_991, 80_000))
    assert lines([large], tail=True, limit=7, from_offset=79_996).offsets == list(range(79_996, 80_000))
    assert sum(counted) < 400_000


def test_a_range_outside_everything_costs_little(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = bytes_read(monkeypatch)
    for wanted in (
        {"from_offset": 80_000},
        {"to_offset": 0},
        {"from_offset": 500, "to_offset": 500},
        {"from_time": MS + 10**8},
    ):
        assert lines([large], **wanted).offsets == []
    assert sum(counted) < 500_000


def test_reading_ends_behind_the_range(large: Path) -> None:
    """A progress bar is right, too: unread bytes were never expected."""
    _, kept = dump([large], LINES._replace(wanted=RecordFilter(0, 20)))
    assert kept.advanced < 100_000


# exactly the requested ones


def expected(from_offset: int, to_offset: int, from_time: int, to_time: int) -> list[int]:
    return [
        BASE + 4 * i + j
        for i in range(COUNT)
        for j in range(3)
        if from_offset <= BASE + 4 * i + j < to_offset and from_time <= MS + 100 * i + j < to_time
    ]


def test_any_range_is_exact_whatever_the_indexes_say(log: Log) -> None:
    """Wrong, torn, full of garbage or of zeros, missing: they cost time, never a record, never one too many."""
    chance = Random(7)
    path = Path(log.path)
    for name, index, times in [("good", log.index_bytes, log.time_bytes), *damaged(log, chance)]:
        Path(log.index).write_bytes(index)
        Path(log.time_index).write_bytes(times)
        for _ in range(6):
            offsets = sorted(chance.sample(range(BASE - 9, BASE + 4 * COUNT + 9), 2))
            moments = sorted(chance.sample(range(MS - 200, MS + 100 * COUNT + 200), 2))
            for ranges in (
                (*offsets, LONG_MIN, LONG_MAX),
                (LONG_MIN, LONG_MAX, *moments),
                (offsets[0], LONG_MAX, moments[0], LONG_MAX),
            ):
                code, kept = dump_file(path, LINES._replace(wanted=RecordFilter(*ranges)))
                assert (code, kept.offsets) == (0, expected(*ranges)), (name, ranges)
    Path(log.index).unlink()
    assert lines([path], from_offset=BASE + 400, to_offset=BASE + 404).offsets == [BASE + 400, BASE + 401, BASE + 402]
    Path(log.time_index).unlink()
    assert lines([path], from_time=MS + 100 * (COUNT - 1) + 1).offsets == [BASE + 4 * COUNT - 3, BASE + 4 * COUNT - 2]


def test_an_index_that_was_never_written_is_none(log: Log) -> None:
    """A broker makes it large and empty."""
    Path(log.index).write_bytes(bytes(10 << 20))
    Path(log.time_index).write_bytes(bytes(10 << 20))
    assert lines([Path(log.path)], from_offset=BASE + 404, to_offset=BASE + 408).offsets == [
        BASE + 404,
        BASE + 405,
        BASE + 406,
    ]
    assert lines([Path(log.path)], from_time=MS + 100 * (COUNT - 1)).offsets == expected(
        LONG_MIN, LONG_MAX, MS + 100 * (COUNT - 1), LONG_MAX
    )


def test_times_that_go_back_are_found_all_the_same(tmp_path: Path) -> None:
    """Producers set them: a younger record may come before an older one."""
    chance = Random(8)
    folder = tmp_path / "t-0"
    folder.mkdir()
    data, times, offsets, youngest = bytearray(), [], [], -1
    records = []
    for i in range(300):
        moments = [MS + chance.randrange(100_000) for _ in range(2)]
        rows = [Record(2 * i + j, moments[j], None, b"v") for j in range(2)]
        if max(moments) > youngest:
            youngest = max(moments)
            times.append((youngest, 2 * i + 1))
        if i:
            offsets.append((2 * i + 1, len(data)))
        data += batch(rows)
        records += rows
    (folder / f"{0:020}.log").write_bytes(data)
    (folder / f"{0:020}.index").write_bytes(encode.offset_entries(0, offsets))
    (folder / f"{0:020}.timeindex").write_bytes(encode.time_entries(0, times))
    for _ in range(60):
        first, last = sorted(chance.sample(range(MS - 10, MS + 100_010), 2))
        found = lines([folder], from_time=first, to_time=last).offsets
        assert found == [record.offset for record in records if first <= record.timestamp < last]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Three segments, from offsets 0, 30 and 60 on, three records a batch."""
    folder = tmp_path / "orders-3"
    folder.mkdir()
    for base in (0, 30, 60):
        (folder / f"{base:020}.log").write_bytes(b"".join(batch(some_records(base + i)) for i in range(0, 30, 3)))
    return folder


def test_a_range_over_several_segments(partition: Path) -> None:
    for first, last in ((0, 90), (29, 31), (30, 60), (59, 61), (0, 30), (85, 200), (0, 1)):
        assert lines([partition], from_offset=first, to_offset=last).offsets == list(range(first, min(90, last)))


def test_segments_that_cannot_hold_an_offset_are_not_opened(partition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = bytes_read(monkeypatch)
    lines([partition], from_offset=30, to_offset=60)
    assert sum(counted) < 1.5 * (partition / f"{30:020}.log").stat().st_size + 1000


def test_which_segments_can_hold_an_offset() -> None:
    segments = [SegmentFiles(base, 1, f"{base}.log", None, None, None) for base in (5, 30, 60)]

    def bases(first: int, last: int) -> list[int]:
        return [segment.base_offset for segment in segments_between(segments, first, last)]

    assert bases(LONG_MIN, LONG_MAX) == [5, 30, 60]
    assert bases(0, 5) == []
    assert bases(0, 6) == [5]
    assert bases(29, 30) == [5]
    assert bases(30, 31) == [30]
    assert bases(29, 61) == [5, 30, 60]
    assert bases(1000, LONG_MAX) == [60]
    assert segments_between([], LONG_MIN, LONG_MAX) == ()


def test_a_limit_counts_over_all_files(partition: Path) -> None:
    for limit in (1, 29, 30, 31, 89, 90, 1000):
        assert lines([partition], limit=limit).offsets == list(range(min(limit, 90)))
    assert lines([partition], from_offset=25, limit=10).offsets == list(range(25, 35))


def test_a_limit_gives_the_first_ones_however_many_may_work(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting is for one: of several workers, those ahead would use up what may still be given."""

    def slow(_wanted: RecordFilter, window: Window) -> bool:
        time.sleep((window.position >> 16) * 7 % 5 / 500)
        return False

    monkeypatch.setattr(RecordFilter, "skip", slow)
    request = LINES._replace(wanted=RecordFilter(limit=30_000), jobs=8)
    assert dump([large], request)[1].offsets == list(range(30_000))


def test_a_limit_on_batches_does_not_count_those_that_are_left_out(partition: Path) -> None:
    style = LineStyle(batches=True)
    request = LINES._replace(wanted=RecordFilter(from_offset=9, limit=4), line_style=style)
    assert [found["base_offset"] for found in dump([partition], request)[1].objects] == [9, 12, 15, 18]


def test_a_limit_on_batches_counts_batches(partition: Path) -> None:
    for limit in (1, 9, 10, 11, 30, 31):
        request = LINES._replace(wanted=RecordFilter(limit=limit), line_style=LineStyle(batches=True))
        _, kept = dump([partition], request)
        assert [found["base_offset"] for found in kept.objects] == list(range(0, 3 * min(limit, 30), 3))


def test_only_records_with_a_wanted_key(partition: Path) -> None:
    found = lines([partition], keys=KeySet([b"key-1"])).objects
    assert {one["key"] for one in found} == {"key-1"}
    assert [one["offset"] for one in found] == list(range(1, 90, 3))
    assert lines([partition], keys=KeySet([b"key-1"]), limit=2, from_offset=30).offsets == [31, 34]


def test_markers_are_left_out_where_they_are_not_wanted(tmp_path: Path) -> None:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    end = marker(3, commit=True, timestamp=MS, producer_id=1, producer_epoch=0, coordinator_epoch=0)
    (folder / f"{0:020}.log").write_bytes(batch(some_records(0)) + end + batch(some_records(4)))
    assert lines([folder]).offsets == list(range(7))
    assert lines([folder], controls=False).offsets == [0, 1, 2, 4, 5, 6]


def test_the_text_of_a_range_has_the_batches_that_touch_it(partition: Path) -> None:
    request = DumpRequest(output=TEXT, wanted=RecordFilter(31, 34))
    _, kept = dump([partition], request)
    found = [line.split()[1] for line in bytes(kept.data).decode().splitlines() if line.startswith("baseOffset")]
    assert found == ["30", "33"]


def test_damage_outside_the_range_is_not_complained_about(partition: Path) -> None:
    """Nor inside a batch that no record of is wanted."""
    path = partition / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 0xFF
    path.write_bytes(data)
    assert lines([path], from_offset=3).offsets == list(range(3, 30))
    code, kept = dump([path], LINES._replace(wanted=RecordFilter(0, 6)))
    assert (code, kept.offsets, len(kept.reports)) == (4, [3, 4, 5], 1)


# the parts


def test_what_limits_a_range() -> None:
    assert not RecordFilter().in_range
    for limited in (RecordFilter(0), RecordFilter(to_offset=9), RecordFilter(from_time=-1), RecordFilter(to_time=9)):
        assert limited.in_range
        assert not limited.all_records
    assert RecordFilter().all_records
    assert RecordFilter(tail=True).all_records
    for picked in (RecordFilter(keys=KeySet([])), RecordFilter(controls=False), RecordFilter(limit=5)):
        assert not picked.in_range
        assert not picked.all_records


def test_what_may_still_be_given_counts_down() -> None:
    data = batch(some_records(0))
    count = RecordLimit(7)
    assert [count.take(filled(data)) for _ in range(2)] == [False, False]
    window = filled(data)
    assert count.take(window)
    assert (window.records, count.left) == (1, 0)
    window = filled(data)
    assert count.take(window)
    assert window.records == 0
    endless = RecordLimit(None)
    assert not endless.take(window)
