"""The table of latest values: the same as a consumer that builds it record by record, in any amount of memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.commands.compact.compacting import batches, table
from tests.commands.compact.logs import Log, Segment, fresh, logs, old_logs
from tests.conftest import FIXTURES
from tests.jobs.pieces import Export, folder_of, partitions, parts_of, pieces_of, rows
from tests.oracles.plain.encode import Record, batch, marker
from tests.support.examples import examples
from tests.support.lookup_logs import of_records, write_segment

LOG_DIRS = [FIXTURES / name for name in ("modern", "legacy", "v39/data", "compaction/before")]
Table = dict[bytes, tuple[bytes, list[object]]]


def made(to: Path, log_dir: Path, memory: int = 128 << 20, split_bytes: int = 20_000) -> dict[str, Table]:
    """Return the tables of a log dir's partitions; of each key there may be one row, rows ascend in each part."""
    found = partitions(log_dir)
    Export(to, pieces_of(parts_of(found, split_bytes, "read_committed")), table=True, map_memory=memory).run()
    tables: dict[str, Table] = {}
    for one in found:
        read = rows(folder_of(to, one))
        tables[one.directory] = {
            row["key"]: (
                row["value"],
                [row["offset"], row["timestamp"], [(head["key"], head["value"]) for head in row["headers"] or []]],
            )
            for row in read
        }
        assert len(tables[one.directory]) == len(read), one.directory
    return tables


def offsets(tables: dict[str, Table]) -> dict[str, dict[bytes, object]]:
    return {name: {key: row[1][0] for key, row in rows.items()} for name, rows in tables.items()}


def values(tables: dict[str, Table]) -> dict[str, dict[bytes, bytes]]:
    return {name: {key: row[0] for key, row in rows.items()} for name, rows in tables.items()}


@pytest.mark.parametrize("log_dir", LOG_DIRS, ids=[path.name for path in LOG_DIRS])
def test_the_table_is_a_consumers(log_dir: Path, tmp_path: Path) -> None:
    """Active segment and all; tombstones have no row, nor have aborted or undecided records."""
    tables = made(tmp_path / "out", log_dir)
    for one in partitions(log_dir):
        if one.topic == "tx-open":
            continue  # undecided data is in the other's table
        expected = table(batches(Path(one.path)))
        start = one.log_start_offset or 0
        assert values(tables)[one.directory] == {k: v for k, (v, rest) in expected.items() if rest[0] >= start}  # type: ignore[operator]
        assert offsets(tables)[one.directory] == {k: rest[0] for k, (v, rest) in expected.items() if rest[0] >= start}  # type: ignore[operator]
    assert sum(map(len, tables.values())) > 10


def many_keys(folder: Path, keys: int, records: int) -> dict[bytes, tuple[bytes, int]]:
    """Write a partition of random keys; return the last value and offset of each."""
    chance = random.Random(keys)
    last: dict[bytes, tuple[bytes, int]] = {}
    every = []
    for offset in range(records):
        key, value = b"%d" % chance.randrange(keys), chance.randbytes(20)
        every.append(Record(offset, 1_750_000_000_000 + offset, key, value))
        last[key] = value, offset
    folder.mkdir(parents=True)
    write_segment(folder, 0, of_records(every[at : at + 50] for at in range(0, records, 50)))
    return last


@pytest.mark.parametrize("memory", [2400, 24_000, 240_000])
def test_keys_that_do_not_fit_are_parted(memory: int, tmp_path: Path) -> None:
    """Bounded memory costs more passes, never a row; 2400 bytes are ninety keys of a thousand."""
    expected = many_keys(tmp_path / "data/t-0", 1000, 4000)
    (tmp_path / "data/meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    tables = made(tmp_path / "out", tmp_path / "data", memory)
    assert {key: (row[0], row[1][0]) for key, row in tables["t-0"].items()} == expected


def transactional(offset: int, producer_id: int) -> bytes:
    return batch([Record(offset, 10**12, b"k", b"v")], producer=(producer_id, 0, 0), transactional=True)


ABORTED_BEHIND_AN_OPEN_ONE = Log(
    [
        Segment(
            0,
            [
                transactional(0, 8),
                transactional(1, 9),
                marker(2, commit=False, timestamp=10**12, producer_id=8, producer_epoch=0, coordinator_epoch=1),
            ],
            aborted=[(8, 0, 2, 1)],
        ),
        Segment(3, [batch([Record(3, 10**12, b"active", b"x")])]),
    ]
)
"""The marker that aborts the first transaction lies behind the last stable offset, and counts."""


@examples(40)
@example(log=ABORTED_BEHIND_AN_OPEN_ONE, memory=120)
@given(log=st.one_of(logs(), old_logs()), memory=st.sampled_from((120, 1 << 20)))
def test_of_any_log_the_table_is_a_consumers(log: Log, memory: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Codecs, transactions, gaps, empty batches, keys that repeat within a batch."""
    folder = tmp_path_factory.mktemp("drawn")
    data = fresh(folder / "in", log.write)
    tables = made(folder / "out", data, memory)
    found = batches(data / "t-0")
    expected = table(found, end=_undecided(found))
    assert offsets(tables)["t-0"] == {key: rest[0] for key, (_, rest) in expected.items()}


def _undecided(found: list[object]) -> int | None:
    """Return the first offset of the earliest transaction without a marker."""
    open_since: dict[int, int] = {}
    for one in found:
        if one.control:  # type: ignore[attr-defined]
            open_since.pop(one.producer_id, None)  # type: ignore[attr-defined]
        elif one.transactional:  # type: ignore[attr-defined]
            open_since.setdefault(one.producer_id, one.base_offset)  # type: ignore[attr-defined]
    return min(open_since.values(), default=None)


def test_damage_is_told_once_however_often_it_is_read(tmp_path: Path) -> None:
    found = partitions(FIXTURES / "crash/flip-middle")
    pieces = pieces_of(parts_of(found))
    once = Export(tmp_path / "once", pieces).run()
    often = Export(tmp_path / "often", pieces, table=True, map_memory=2400).run()
    assert often["damage"] == once["damage"] != []


def test_an_offset_that_is_there_twice_gives_one_row(tmp_path: Path) -> None:
    """Two segments that overlap: a key has one row all the same, and it is the later one's offset."""
    folder = tmp_path / "data/t-0"
    folder.mkdir(parents=True)
    (tmp_path / "data/meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
    for base in (0, 2):
        write_segment(folder, base, of_records([[Record(at, 10**12, b"k", b"v%d" % base) for at in range(2, 4)]]))
    tables = made(tmp_path / "out", tmp_path / "data")
    assert offsets(tables) == {"t-0": {b"k": 3}}
