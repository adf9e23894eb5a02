"""Exports with `--schemas`: the same records as a dump, from any number of processes, and the errors of all of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from klog.jobs.export import MANIFEST

from tests.conftest import run_klog
from tests.oracles.plain.encode import Record, batch
from tests.schemas.random_avro import zigzag

V1 = {"type": "record", "name": "x.Order", "fields": [{"name": "id", "type": "int"}]}
V2 = {"type": "record", "name": "x.Order", "fields": [*V1["fields"], {"name": "n", "type": "int", "default": 9}]}
LOST = b"\0\0\0\0\x2ax"


def schema(offset: int, subject: str, version: int, schema_id: int, text: str) -> Record:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": schema_id, "schema": text, "deleted": False}
    return Record(offset, key=json.dumps(key).encode(), value=json.dumps(value).encode())


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of a topic with two versions and lost ids, and a topic without schemas."""
    stored = [
        schema(0, "orders-value", 1, 1, json.dumps(V1)), schema(1, "orders-value", 2, 2, json.dumps(V2)),
        schema(2, "orders-key", 1, 3, '"string"'), schema(3, "other-value", 1, 4, '"long"'),
    ]  # fmt: skip
    write(tmp_path / "data" / "_schemas-0", stored)
    for partition in range(2):
        records = [
            Record(i, 7, b"\0\0\0\0\3\2k", value)
            for i, value in enumerate((b"\0\0\0\0\1" + zigzag(5), b"\0\0\0\0\2" + zigzag(6) + zigzag(7), LOST, None))
        ]
        write(tmp_path / "data" / f"orders-{partition}", records)
    write(tmp_path / "data" / "plain-0", [Record(0, 7, b"k", b"text")])
    return tmp_path / "data"


def write(place: Path, records: list[Record]) -> None:
    place.mkdir(parents=True)
    (place / f"{0:020}.log").write_bytes(batch(records))


def export(data: Path, to: Path, *words: str) -> dict[str, Any]:
    topics = ("-t", "orders", "-t", "plain")
    done = run_klog("export", data, "--to", to, "--schemas", "auto", *topics, *words)
    assert done.exit_code == 4
    assert b"orders value: 2 records name schema id 42, which is not in _schemas (first at orders-0 @ 2)" in done.stderr
    manifest: dict[str, Any] = json.loads((to / MANIFEST).read_bytes())
    return manifest


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_parquet_has_typed_columns_of_each_topic(data: Path, tmp_path: Path, jobs: str) -> None:
    """One process or several; a topic without schemas has bytes as ever."""
    manifest = export(data, tmp_path / "out", "--jobs", jobs)
    (lost,) = manifest["undecoded"]["kinds"]
    assert lost == {
        "topic": "orders", "side": "value", "identity": "schema id 42", "error": "unknown-id", "records": 2,
        "partition": 0, "offset": 2,
    }  # fmt: skip
    for partition in range(2):
        (path,) = (tmp_path / "out/topic=orders" / f"partition={partition}").iterdir()
        table = pq.read_table(path, partitioning=None)
        assert table.column("key").to_pylist() == ["k"] * 4
        assert table.column("value").to_pylist() == [{"id": 5, "n": 9}, {"id": 6, "n": 7}, None, None]
        assert table.column("value_raw").to_pylist() == [None, None, LOST, None]
        assert table.column("value_schema_id").to_pylist() == [1, 2, 42, None]
    (path,) = (tmp_path / "out/topic=plain/partition=0").iterdir()
    assert pq.read_table(path, partitioning=None).column("value").to_pylist() == [b"text"]


def test_json_lines_are_those_of_a_dump(data: Path, tmp_path: Path) -> None:
    """With the writer's schemas, and with the latest."""
    for number, words in enumerate(([], ["--reader-schema", "latest"], ["--json-form", "canonical"])):
        export(data, tmp_path / str(number), "--output", "jsonl", *words)
        for partition in range(2):
            (path,) = (tmp_path / str(number) / "topic=orders" / f"partition={partition}").iterdir()
            place = data / f"orders-{partition}"
            done = run_klog("dump", place, "--output", "jsonl", "--schemas", "auto", *words)
            assert path.read_bytes() == done.stdout


@pytest.mark.parametrize("odd", [0, 1])
def test_two_processes_have_half_of_a_log_each(data: Path, tmp_path: Path, odd: int) -> None:
    """An odd number of bytes is no reason for three parts, two of which one process would have."""
    batches = [batch([Record(i, 7, b"k", bytes(8000 + odd * (i == 0)))]) for i in range(1200)]
    place = data / "orders-0" / f"{0:020}.log"
    place.write_bytes(b"".join(batches))
    assert place.stat().st_size % 2 == odd
    words = ("-t", "orders", "-p", "0", "--output", "jsonl", "--schemas", "auto", "--jobs", "2")
    command = [sys.executable, "-m", "klog_cli.app", "export", data, "--to", tmp_path / "out", *words]
    subprocess.run(command, check=True)  # a process of its own: this one may have threads, and does not fork then
    files = json.loads((tmp_path / "out" / MANIFEST).read_bytes())["files"]
    assert [one["records"] for one in files] == [600, 600]


def test_only_the_schemas_that_are_named_are_sent_to_tasks(data: Path) -> None:
    """A registry may have ten thousand of them."""
    from klog.data_dir.partition import Partition
    from klog.jobs.export import ExportOptions, plan_tasks
    from klog.jobs.runner import Threads
    from klog.jobs.schema_output import ExportSchemas, choose_columns
    from klog.schemas.schemas_topic import read_schemas_topic

    registry = read_schemas_topic(Partition(str(data / "_schemas-0")))
    pieces = plan_tasks([Partition(str(data / "orders-0"))], ExportOptions("").wanted, "read_uncommitted")
    given = ExportSchemas((registry,), ("key", "value")), ExportOptions("").wanted, 1 << 20
    chosen = choose_columns(pieces, given, Threads(1), _Silence())
    assert [row.id for row in chosen.registries[0].rows] == [1, 2, 3]
    assert [(plan.topic, plan.side) for plan in chosen.plans] == [("orders", "key"), ("orders", "value")]


def test_the_library_decodes_records_without_json(data: Path) -> None:
    """As written, and as the latest version has them."""
    import klog

    log = klog.Segment(str(data / "orders-0" / f"{0:020}.log"))
    for reader, wanted in (
        ("each", [{"id": 5}, {"id": 6, "n": 7}]),
        ("latest", [{"id": 5, "n": 9}, {"id": 6, "n": 7}]),
    ):
        schemas = klog.open_schemas([str(data)], reader=reader)
        keys, values = schemas.side("orders", "key"), schemas.side("orders", "value")
        found = [
            (keys.decode(record.key, record.headers), values.decode(record.value, record.headers))
            for batch in log.batches() if not isinstance(batch, klog.Damage)
            for record in batch.records()
        ]  # fmt: skip
        assert [key.decoded.value for key, _ in found if key] == ["k"] * 4
        assert [value.decoded.value for _, value in found[:2] if value] == wanted
        assert [value and value.decoded.error for _, value in found] == [None, None, "unknown-id", None]


class _Silence:
    def __getattr__(self, _name: str) -> Any:
        return lambda *_: None
