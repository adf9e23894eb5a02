"""`klog dump` as CSV and Parquet, and `klog export`, with `--schemas`: columns of the schemas."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import FIXTURES, Ran, run_klog
from tests.oracles.plain.encode import Record, batch
from tests.schemas import small_registry
from tests.schemas.column_values import plain, same
from tests.schemas.corpus import REGISTRIES, Image, data, truth
from tests.schemas.random_avro import zigzag

csv.field_size_limit(1 << 24)
BEYOND_NS = ("0001-", "9999-")
"""Years of the corpora's timestamps in nanoseconds that 64 bits cannot hold."""


def dump(*arguments: str | Path) -> Ran:
    return run_klog("dump", *arguments, "--schemas", "auto")


def table_of(path: Path, *arguments: str | Path, code: int = 0) -> pa.Table:
    done = dump(*arguments, "--output", "parquet", "--to", path)
    assert done.exit_code == code, done.stderr
    return pq.read_table(path)


# the corpora


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_every_csv_line_of_the_corpora_has_what_the_truth_says(image: Image, name: str) -> None:
    """A text as it is, anything else as JSON; the bytes of a side that does not decode, with the reason."""
    records = {(one["topic"], str(one["partition"]), str(one["offset"])): one for one in truth(name)["records"]}
    topics = [word for topic in {one["topic"] for one in truth(name)["records"]} for word in ("-t", topic)]
    done = dump(data(image, name), *topics, "--output", "csv")
    assert done.exit_code == (0 if name == "apicurio" else 4)
    judged = 0
    for line in csv.DictReader(io.StringIO(done.stdout.decode("utf-8", "surrogateescape"), newline="")):
        right = records[line["topic"], line["partition"], line["offset"]]
        judged += 1
        for side in ("key", "value"):
            one = right[side]
            assert line[f"{side}_error"] == (one["error"] or ""), line
            shown = one["id"] if one["framed"] else None
            assert line[f"{side}_schema_id"] == ("" if shown is None else str(shown)), line
            if "plain" in one:
                found = line[side]
                assert found == one["plain"] or json.loads(found) == one["plain"], line
                assert line[f"{side}_base64"] == ""
            else:
                raw = line[f"{side}_base64"]
                assert one.get("null") or (raw or line[side]) in (one["raw"], decoded(one["raw"])), line
    assert judged == len(records)


def decoded(raw: str) -> str:
    import base64

    return base64.b64decode(raw).decode("utf-8", "replace")


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_every_column_of_the_corpora_has_what_the_truth_says(image: Image, name: str, tmp_path: Path) -> None:
    """All types, Protobuf and JSON Schema, topics of several types of record, lost ids, bytes without schema."""
    topics = [word for topic in {one["topic"] for one in truth(name)["records"]} for word in ("-t", topic)]
    done = run_klog("export", data(image, name), "--to", tmp_path / "out", "--schemas", "auto", *topics)
    assert done.exit_code == (0 if name == "apicurio" else 4)
    latest = resolved(data(image, name), topics)
    records = {(one["topic"], one["partition"], one["offset"]): one for one in truth(name)["records"]}
    judged = decoded_sides = 0
    for path in sorted((tmp_path / "out").rglob("*.parquet")):
        topic, partition = (part.partition("=")[2] for part in path.parts[-3:-1])
        table = pq.read_table(path, partitioning=None)
        offsets = table.column("offset").to_pylist()
        judged += len(offsets)
        for side in ("key", "value"):
            if f"{side}_schema_id" not in table.column_names:
                assert table.schema.field(side).type == pa.binary()
                continue
            columns = {one: table.column(f"{side}_{one}").to_pylist() for one in ("raw", "schema_id", "error")}
            for i, (offset, value) in enumerate(zip(offsets, plain(table.column(side)), strict=True)):
                place = topic, int(partition), offset
                right = records[place][side]
                found = {one: column[i] for one, column in columns.items()}
                decoded_sides += check(value, found, right, latest.get(place, {}).get(side, right.get("plain")))
    assert judged == len(records)
    assert decoded_sides > 250


def resolved(path: Path, topics: list[str]) -> dict[tuple[str, int, int], dict[str, Any]]:
    """Return the values that the latest schemas have in JSON, which are compared with Java's elsewhere."""
    done = dump(path, *topics, "--output", "jsonl", "--reader-schema", "latest")
    lines = map(json.loads, done.stdout.splitlines())
    return {(line["topic"], line["partition"], line["offset"]): line for line in lines}


def check(value: Any, found: dict[str, Any], right: dict[str, Any], wanted: Any) -> bool:
    """Compare one side; True if it was decoded."""
    if not right["framed"]:
        assert (value, found["schema_id"], found["error"]) == (None, None, None)
        assert (found["raw"] is None) == bool(right.get("null"))
        return False
    if right["id"] is not None:
        assert found["schema_id"] == right["id"]
    if "plain" not in right:
        assert (value, found["error"]) == (None, right["error"])
        assert found["raw"] is not None
        return False
    if found["error"] == "out-of-range":
        assert any(year in json.dumps(wanted) for year in BEYOND_NS), wanted
        return False
    assert found["error"] == right["error"]
    assert same(value, wanted), (value, wanted)
    assert (found["raw"] is None) == (right["error"] is None)
    return True


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_a_topic_with_four_versions_has_the_columns_of_the_latest(image: Image, name: str, tmp_path: Path) -> None:
    """A field with a default, one with a new name, one that is gone: pyarrow and DuckDB read one table."""
    topic, path = truth(name)["topics"]["evolved"], tmp_path / "evolved.parquet"
    table = table_of(path, data(image, name), "-t", topic)
    kind = table.schema.field("value").type
    assert [field.name for field in kind] == ["id", "title", "added", "flags"]
    assert kind.field("id").type == pa.int64()
    records = [one for one in truth(name)["records"] if one["topic"] == topic]
    assert len({one["value"]["version"] for one in records}) == 4
    assert table.column("value").to_pylist() == [line["value"] for line in lines(image, name, topic)]
    query = "select count(*), count(distinct value_schema_id), sum(value.id), count(value.title), max(len(value.flags))"
    found = duckdb.sql(f"{query} from '{path}'").fetchall()[0]
    values = table.column("value").to_pylist()
    assert found == (
        len(records), 4, sum(one["id"] for one in values), len(records), max(len(one["flags"]) for one in values)
    )  # fmt: skip


def lines(image: Image, name: str, topic: str) -> list[dict[str, Any]]:
    done = dump(data(image, name), "-t", topic, "--output", "jsonl", "--reader-schema", "latest")
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.corpora
def test_a_named_reader_schema_reads_what_it_can(image: Image, tmp_path: Path) -> None:
    """An older program's view: the field of the last version has a name that version 3 does not know."""
    topic = truth("confluent")["topics"]["evolved"]
    path, place = data(image, "confluent"), ("-t", topic)
    table = table_of(tmp_path / "a.parquet", path, *place, "--reader-schema", f"{topic}-value:3", code=4)
    assert [field.name for field in table.schema.field("value").type] == ["id", "label", "added"]
    done = dump(path, *place, "--output", "jsonl", "--reader-schema", f"{topic}-value:3")
    assert done.exit_code == 4
    assert b"12 records of schema id 6 cannot be read by the reader schema: incompatible" in done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    wanted = [None if "value_error" in line else line["value"] for line in found]
    assert table.column("value").to_pylist() == wanted
    assert wanted.count(None) == table.column("value_error").to_pylist().count("incompatible") == 12
    lost = dump(path, *place, "--output", "jsonl", "--reader-schema", f"{topic}-value:9")
    assert (lost.exit_code, lost.stdout) == (16, b"")
    assert b"no such schema; expected latest, each, an id or SUBJECT:VERSION" in lost.stderr


def test_an_id_of_a_reader_schema_is_that_of_the_context(tmp_path: Path) -> None:
    """As in JSON lines: an id is another schema in each context."""
    text = small_registry.ORDER
    wider = json.loads(text)
    wider["fields"].append({"name": "note", "type": "string", "default": "-"})
    schemas = [("orders-value", 1, 7, text), ("x", 1, 9, text), (":.eu:x", 1, 9, json.dumps(wider))]
    made = tmp_path / "data"
    made.mkdir()
    small_registry.make(made, schemas, [Record(0, value=small_registry.order(1))])
    words = ("-t", "orders", "--reader-schema", "9", "--context", ".eu")
    (line,) = dump(made, *words, "--output", "jsonl").stdout.splitlines()
    assert json.loads(line)["value"] == {"id": 1, "tags": [], "note": "-"}
    table = table_of(tmp_path / "a.parquet", made, *words)
    assert table.column("value").to_pylist() == [{"id": 1, "tags": [], "note": "-"}]


# small logs

ORDER = {"type": "record", "name": "x.Order", "fields": [{"name": "id", "type": "int"}]}
FRAME = b"\0\0\0\0\1"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A log dir with a registry of one schema, id 1, and a topic for records."""
    for name in ("_schemas-0", "orders-0", "other-0"):
        (tmp_path / name).mkdir()
    key = {"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1}
    value = {"subject": "orders-value", "version": 1, "id": 1, "schema": json.dumps(ORDER), "deleted": False}
    write(tmp_path, "_schemas", Record(0, key=json.dumps(key).encode(), value=json.dumps(value).encode()))
    write(tmp_path, "other", Record(0, value=b"text"))
    return tmp_path


def write(place: Path, topic: str, *records: Record, **facts: Any) -> None:
    (place / f"{topic}-0" / f"{0:020}.log").write_bytes(batch(list(records), **facts))


def test_numbers_that_are_none_of_their_type_are_errors_of_their_rows(small: Path, tmp_path: Path) -> None:
    """Arrow converts many values at once: one that does not fit costs no other one."""
    values = [FRAME + zigzag(number) for number in (1, 2**40, 3)]
    write(small, "orders", *(Record(i, value=value) for i, value in enumerate(values)))
    table = table_of(tmp_path / "a.parquet", small / "orders-0", code=4)
    assert table.column("value").to_pylist() == [{"id": 1}, None, {"id": 3}]
    assert table.column("value_error").to_pylist() == [None, "bad-value", None]
    assert table.column("value_raw").to_pylist() == [None, values[1], None]


def test_control_records_are_no_values(small: Path) -> None:
    """The marker of the coordinator's epoch 300 has the bytes of schema id 1."""
    marker = Record(1, key=b"\0\0\0\1", value=b"\0\0\0\0\1\x2c")
    log = batch([Record(0, value=FRAME + zigzag(5))], producer=(1, 0, 0), transactional=True)
    log += batch([marker], producer=(1, 0, -1), transactional=True, control=True)
    (small / "orders-0" / f"{0:020}.log").write_bytes(log)
    for form in ("jsonl", "csv"):
        done = dump(small / "orders-0", "--output", form)
        assert (done.exit_code, done.stderr) == (0, b""), form
        assert done.stdout.count(b"COMMIT") == 1
    table = table_of(small / "a.parquet", small / "orders-0")
    assert table.column("value").to_pylist() == [{"id": 5}, None]
    assert table.column("value_schema_id").to_pylist() == [1, None]


def test_a_topic_without_schemas_has_the_columns_of_always(small: Path, tmp_path: Path) -> None:
    """A log dir has topics with schemas and others."""
    table = table_of(tmp_path / "a.parquet", small / "other-0")
    plain_one = run_klog("dump", small / "other-0", "--output", "parquet", "--to", tmp_path / "b.parquet")
    assert plain_one.exit_code == 0
    assert table.equals(pq.read_table(tmp_path / "b.parquet"))


def test_damage_has_as_many_fields_as_other_csv_lines(small: Path) -> None:
    """Readers of CSV refuse lines of another length."""
    done = run_klog("dump", FIXTURES / "crash/flip-middle/torn-0", "--output", "csv", "--schemas", small)
    rows = list(csv.reader(io.StringIO(done.stdout.decode())))
    assert {len(row) for row in rows} == {23}
    assert rows[0][-4:] == ["key_schema_id", "key_error", "value_schema_id", "value_error"]


def test_texts_with_quotes_commas_and_line_ends_are_one_field(small: Path) -> None:
    """Keys that are no schema's stay as they were, byte for byte."""
    odd = b'a,"b"\r\n,,c'
    write(small, "orders", Record(0, key=odd, value=FRAME + zigzag(1)), Record(1, key=b"\xff", value=odd))
    done = dump(small / "orders-0", "--output", "csv")
    first, second = csv.DictReader(io.StringIO(done.stdout.decode(), newline=""))
    assert (first["key"], first["value"]) == (odd.decode(), '{"id":1}')
    assert (second["key_base64"], second["value"], second["value_schema_id"]) == ("/w==", odd.decode(), "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--output", "parquet"], "the columns of one topic, and these are 2"),
        (["--output", "parquet", "-t", "orders", "--reader-schema", "each"], "each goes without Parquet"),
        (["--output", "parquet", "-t", "orders", "--json-form", "canonical"], "--json-form goes without Parquet"),
        (["--output", "jsonl", "--reader-schema", "77"], "--reader-schema 77: no such schema"),
    ],
)
def test_requests_that_cannot_be_met_are_16(
    small: Path, tmp_path_factory: pytest.TempPathFactory, arguments: list[str], said: str
) -> None:
    """Before anything is written."""
    write(small, "orders", Record(0, value=FRAME + zigzag(1)))
    out = tmp_path_factory.mktemp("out") / "out"
    done = dump(small, "-t", "o*", *arguments, "--to", out)
    assert done.exit_code == 16
    assert said in done.stderr.decode()
    assert not out.exists()
