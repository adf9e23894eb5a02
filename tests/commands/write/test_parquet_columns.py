"""Columns of Parquet files, whatever Arrow type they have, become the same records."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.commands.write.sources import lines
from tests.conftest import Ran, run_klog

Klog = Callable[..., Ran]
ROWS = 3000


def columns() -> dict[str, Any]:
    """Return columns with nulls in each that may have some."""
    import pyarrow as pa

    chance = Random(5)
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = [
        None if i % 3 == 0 else [{"key": f"k{k}", "value": None if k == 1 else b"\xff%d" % i} for k in range(i % 4)]
        for i in range(ROWS)
    ]
    return {
        "topic": pa.array(["t"] * ROWS),
        "partition": pa.array([chance.randrange(3) for _ in range(ROWS)], pa.int32()),
        "timestamp": pa.array([1_700_000_000_000 + 1000 * i for i in range(ROWS)], pa.int64()),
        "transactional": pa.array([None if i % 2 else False for i in range(ROWS)]),
        "key": pa.array([None if i % 5 == 0 else b"key-%d" % (i % 7) for i in range(ROWS)], pa.binary()),
        "value": pa.array([None if i % 4 == 0 else chance.randbytes(i % 50) for i in range(ROWS)], pa.binary()),
        "headers": pa.array(headers, pa.list_(header)),
    }


def changes() -> dict[str, dict[str, Any]]:
    """Return columns of the same content in other types."""
    import pyarrow as pa

    plain = columns()
    number, time = plain["partition"], plain["timestamp"].cast(pa.timestamp("ms"))
    kinds = (pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float64())
    return {
        **{f"partition {kind}": {"partition": number.cast(kind)} for kind in kinds},
        "codes": {name: plain[name].dictionary_encode() for name in ("topic", "key", "value")},
        "large": {"key": plain["key"].cast(pa.large_binary()), "value": plain["value"].cast(pa.large_binary())},
        "seconds": {"timestamp": time.cast(pa.timestamp("s"))},
        "nanoseconds, Berlin": {"timestamp": time.cast(pa.timestamp("ns", "Europe/Berlin"))},
        "large lists": {"headers": plain["headers"].cast(pa.large_list(plain["headers"].type.value_type))},
    }


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("plain")
    return printed(run_klog, columns(), folder)


def printed(klog: Klog, table: dict[str, Any], folder: Path) -> list[dict[str, Any]]:
    """Write the columns, in row groups that batches of rows do not fit, and return what dump prints."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(table), folder / "in.parquet", row_group_size=1300)
    done = klog("write", folder / "in.parquet", "--to", folder / "out", "--partitions", "3")
    assert done.exit_code == 0, done.stderr
    return lines(klog, [folder / "out" / f"t-{number}" for number in range(3)])


def test_columns_are_read_where_they_lie(expected: list[dict[str, Any]]) -> None:
    """Rows keep their order, and each its own nulls: one bit too far and keys would move to other records."""
    table = {
        name: column.to_pylist() for name, column in columns().items() if name in ("partition", "timestamp", "key")
    }
    wanted = [row for number in range(3) for row in zip(*table.values(), strict=True) if row[0] == number]
    assert [(one["partition"], one["timestamp"], one["key"] and one["key"].encode()) for one in expected] == wanted


@pytest.mark.parametrize("name", sorted(changes()))
def test_any_type_that_can_be_cast_is_the_same(
    name: str, expected: list[dict[str, Any]], klog: Klog, tmp_path: Path
) -> None:
    """Data teams write int64 for everything, or a dictionary."""
    found = printed(klog, columns() | changes()[name], tmp_path)
    assert found == expected


@pytest.mark.parametrize("pairs", [[None], [{"key": None, "value": b"v"}]])
def test_a_header_that_is_none_is_a_bad_record(pairs: list[Any], klog: Klog, tmp_path: Path) -> None:
    """Named with its row and its column; the records around it can be written."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = {name: column.slice(0, 3) for name, column in columns().items()}
    kind = table["headers"].type
    table["headers"] = pa.array([[], pairs, []], kind)
    pq.write_table(pa.table(table), tmp_path / "in.parquet")
    options = ("--to", tmp_path / "out", "--partitions", "3")
    done = klog("write", tmp_path / "in.parquet", *options)
    assert (done.exit_code, b"row 2: headers: a value of another type" in done.stderr) == (8, True)
    done = klog("write", tmp_path / "in.parquet", *options, "--skip-bad", "--output", "json")
    assert (done.exit_code, b'"records":2' in done.stdout.replace(b" ", b"")) == (4, True)


def test_the_command_does_without_numpy(tmp_path: Path) -> None:
    """pyarrow takes it along when it finds it: 12 MB and a tenth of a second, for nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table(columns()), tmp_path / "in.parquet")
    words = [sys.executable, "-X", "importtime", "-m", "klog_cli.app", "write", "in.parquet", "--to", "out"]
    done = subprocess.run([*words, "--partitions", "3"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr[-500:]
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "pyarrow._parquet" in imported
    assert not {name for name in imported if name.split(".")[0] in ("numpy", "pandas")}


@pytest.mark.parametrize("size", [700, ROWS])
@pytest.mark.parametrize("often", ["once", "one more", "null", "all"])
def test_what_statistics_tell_is_what_the_column_has(often: str, size: int, klog: Klog, tmp_path: Path) -> None:
    """A column of one value is not read if statistics show it; one other value, or a null, anywhere must count."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    plain = columns()
    del plain["headers"]
    constant = {"topic": ["t"], "partition": [2], "leader_epoch": [1], "timestamp_type": ["LogAppendTime"]}
    others = {"topic": "u", "partition": 1, "leader_epoch": 2, "timestamp_type": "CreateTime"}
    for name, value in constant.items():
        rows: list[Any] = value * ROWS
        if often == "null" and name != "topic":
            rows[ROWS - 5] = None
        elif often in ("once", "one more"):
            rows[-1] = others[name]
            rows[-2] = value[0] if often == "once" else others[name]
        plain[name] = pa.array(rows)
    plain["transactional"] = pa.array([False] * ROWS)
    plain["producer_id"] = pa.nulls(ROWS, pa.int64())
    told = []
    for has_statistics in (True, False):
        path = tmp_path / f"{has_statistics}.parquet"
        pq.write_table(pa.table(plain), path, row_group_size=size, write_statistics=has_statistics)
        done = klog("write", path, "--to", tmp_path / f"to-{has_statistics}", "--partitions", "3", "--now", "5")
        made = sorted((tmp_path / f"to-{has_statistics}").rglob("*.log"))
        told.append((done.exit_code, [(file.parent.name, file.read_bytes()) for file in made]))
    assert told[0] == told[1]
    assert told[0][0] == 0
