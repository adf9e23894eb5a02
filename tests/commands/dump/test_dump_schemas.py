"""`klog dump --schemas`: keys and values in JSON lines by their schemas."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import FIXTURES, Ran, run_klog, writable_copy
from tests.oracles.plain.encode import Record, batch
from tests.schemas.corpus import REGISTRIES, Image, data, truth
from tests.schemas.random_avro import zigzag

ORDER = {
    "type": "record",
    "name": "x.Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string"}],
}
FRAME = b"\0\0\0\0\7"


def dump(*arguments: str | Path) -> Ran:
    return run_klog("dump", *arguments, "--output", "jsonl")


def lines(*arguments: str | Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in dump(*arguments).stdout.splitlines()]


@pytest.mark.corpora
@pytest.mark.parametrize("canonical", [False, True], ids=["plain", "canonical"])
@pytest.mark.parametrize("name", REGISTRIES)
def test_every_line_of_the_corpora_has_what_the_truth_says(image: Image, name: str, canonical: bool) -> None:
    """Decoded members take the place of the bytes; everything else is as without --schemas."""
    path, form = data(image, name), ["--json-form", "canonical"] if canonical else []
    records = {(one["topic"], one["partition"], one["offset"]): one for one in truth(name)["records"]}
    done = dump(path, "--schemas", "auto", *form)
    assert done.exit_code == 4
    judged = 0
    for line, plain in zip(done.stdout.splitlines(), dump(path).stdout.splitlines(), strict=True):
        found, as_it_was = json.loads(line), json.loads(plain)
        right = records.get((found.get("topic"), found.get("partition"), found.get("offset")))
        if right is None:
            assert name == "apicurio" or line == plain  # Kafka's own topics, and the registry's
            continue
        judged += 1
        assert {key: found[key] for key in ("headers", "position", "timestamp")} == {
            key: as_it_was[key] for key in ("headers", "position", "timestamp")
        }
        for side in ("key", "value"):
            assert facts(found, side) == wanted(right[side], side, canonical, as_it_was), line
    assert judged == len(records)


def facts(line: dict[str, Any], side: str) -> dict[str, Any]:
    names = (side, *(f"{side}_{one}" for one in ("base64", "schema_id", "schema_guid", "message", "error")))
    return {name: line[name] for name in names if name in line}


def wanted(right: dict[str, Any], side: str, canonical: bool, as_it_was: dict[str, Any]) -> dict[str, Any]:
    if not right["framed"]:
        return facts(as_it_was, side)
    found = {
        "schema_id": right["id"],
        "schema_guid": right["guid"],
        "message": right.get("message"),
        "error": right["error"],
    }
    named = {f"{side}_{name}": one for name, one in found.items() if one is not None}
    if "plain" not in right:
        return facts(as_it_was, side) | named
    return named | {side: right.get("canonical", right["plain"]) if canonical else right["plain"]}


@pytest.mark.corpora
def test_members_have_the_order_of_the_contract(image: Image) -> None:
    """Readers of lines by eye, and those that compare text, have one order."""
    guid = truth("confluent")["topics"]["guid"]
    found = lines(data(image, "confluent") / f"{guid}-0", "--schemas", "auto")
    messages = next(list(line) for line in found if "value_message" in line)
    assert [name for name in messages if name.startswith("value")] == [
        "value", "value_schema_id", "value_schema_guid", "value_message"
    ]  # fmt: skip
    assert messages.index("headers") > messages.index("value_message")
    cut = next(list(line) for line in found if "key_error" in line)
    assert cut.index("key_error") < cut.index("headers")


@pytest.mark.corpora
def test_schemas_of_another_place_and_one_side_alone(image: Image, tmp_path: Path) -> None:
    """The data is on another disk than the registry's topic."""
    path, topic = data(image, "confluent"), truth("confluent")["topics"]["all"]
    shutil.copytree(path / f"{topic}-0", tmp_path / f"{topic}-0")
    none = dump(tmp_path / f"{topic}-0", "--schemas", "auto")
    assert (none.exit_code, none.stdout) == (8, b"")
    assert b"no _schemas beside the data; --schemas PATH names where it is" in none.stderr
    for schemas in (path, path / "_schemas-0"):
        found = lines(tmp_path / f"{topic}-0", "--schemas", schemas, "--decode", "value")
        assert all("key_schema_id" not in line for line in found)
        assert sum("value_schema_id" in line for line in found) > 10


@pytest.mark.corpora
def test_a_damaged_registry_topic_is_said_and_the_rest_is_used(image: Image, tmp_path: Path) -> None:
    """Values of the schemas that are left are decoded."""
    path = writable_copy(data(image, "karapace"), tmp_path / "data")
    log = sorted((path / "_schemas-0").glob("*.log"))[0]
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    topic = truth("karapace")["topics"]["all"]
    done = dump(path / f"{topic}-0", "--schemas", "auto")
    assert done.exit_code == 4
    assert b"bad CRC" in done.stderr
    assert b'"value_schema_id"' in done.stdout


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A log dir with a registry of one schema, id 7, and a topic for records."""
    (tmp_path / "_schemas-0").mkdir()
    key = {"keytype": "SCHEMA", "subject": "orders-value", "version": 1, "magic": 1}
    value = {"subject": "orders-value", "version": 1, "id": 7, "schema": json.dumps(ORDER), "deleted": False}
    stored = Record(0, key=json.dumps(key).encode(), value=json.dumps(value).encode())
    (tmp_path / "_schemas-0" / f"{0:020}.log").write_bytes(batch([stored]))
    (tmp_path / "orders-0").mkdir()
    return tmp_path


def write(place: Path, *records: Record) -> None:
    (place / "orders-0" / f"{0:020}.log").write_bytes(batch(records))


def order(number: int, note: str) -> bytes:
    return FRAME + zigzag(number) + zigzag(len(note.encode())) + note.encode()


def test_texts_that_look_like_members_do_not_mislead(small: Path) -> None:
    """Keys and headers with quotes and names of members; control characters; no key at all."""
    odd = b',"value":"x","headers":[]'
    write(
        small, Record(0, key=odd, value=order(1, ',"headers":[]\n\0é')),
        Record(1, key=None, value=order(2, ""), headers=((odd, odd), (b"h", None))),
        Record(2, key=odd, value=odd), Record(3, key=b'\\"', value=None), Record(4, key=FRAME + b"\2\0", value=b""),
        Record(5, key=b"\0\0", value=order(-(2**63), "x")),
    )  # fmt: skip
    found = lines(small / "orders-0", "--schemas", "auto")
    text = odd.decode()
    assert [line["key"] for line in found] == [text, None, text, '\\"', {"id": 1, "note": ""}, "\0\0"]
    assert [line["value"] for line in found] == [
        {"id": 1, "note": ',"headers":[]\n\0é'}, {"id": 2, "note": ""}, text, None, "", {"id": -(2**63), "note": "x"},
    ]  # fmt: skip
    assert [line.get("value_schema_id") for line in found] == [7, 7, None, None, None, 7]
    assert found[1]["headers"] == [[text, text], ["h", None]]


def test_errors_are_one_line_each_and_the_bytes_stay(small: Path) -> None:
    """A million of them are one line, with the first place."""
    lost = b"\0\0\0\x9c\x40x"
    write(
        small, Record(0, value=lost), Record(1, value=order(1, "a")), Record(2, value=lost),
        Record(3, value=FRAME + b"\2\1"), Record(4, value=order(1, "a") + b"x"), Record(5, value=FRAME),
    )  # fmt: skip
    done = dump(small / "orders-0", "--schemas", "auto")
    assert done.exit_code == 4
    assert set(done.stderr.decode().splitlines()) == {
        "klog: orders value: 1 record of schema id 7 cannot be decoded: bad-value (first at orders-0 @ 3)",
        "klog: orders value: 1 record with bytes left over behind the data of schema id 7: trailing-bytes"
        " (first at orders-0 @ 4)",
        "klog: orders value: 1 record of schema id 7 cannot be decoded: truncated (first at orders-0 @ 5)",
        "klog: orders value: 2 records name schema id 40000, which is not in _schemas (first at orders-0 @ 0)",
    }
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert found[0]["value_base64"] == "AAAAnEB4"
    assert (found[0]["value_schema_id"], found[0]["value_error"]) == (40000, "unknown-id")
    assert (found[4]["value"], found[4]["value_error"]) == ({"id": 1, "note": "a"}, "trailing-bytes")


def test_a_log_dir_without_errors_exits_0(small: Path) -> None:
    """Bytes without framing are no error, and --schemas alone is no reason for an exit code."""
    write(small, Record(0, key=b"k", value=order(1, "a")), Record(1, key=b"\0" * 8, value=b"text"))
    done = dump(small / "orders-0", "--schemas", "auto")
    assert (done.exit_code, done.stderr) == (0, b"")


def test_a_value_that_is_larger_than_the_output_is_decoded(small: Path) -> None:
    """The kernel makes such a line in pieces."""
    large = "é" * 3_000_000
    write(small, Record(0, key=b"k" * 4_000_000, value=order(1, large)))
    (found,) = lines(small / "orders-0", "--schemas", "auto")
    assert found["value"] == {"id": 1, "note": large}
    assert len(found["key"]) == 4_000_000
    write(small, Record(0, key=b"k", value=b"v" * 4_000_000))
    assert dump(small / "orders-0", "--schemas", "auto").stdout == dump(small / "orders-0").stdout


def test_a_deep_value_and_odd_names_are_one_line(small: Path) -> None:
    """Names of fields are data: half a surrogate pair has no UTF-8, and 1000 levels exceed Python's encoder."""
    node = {"type": "record", "name": "N", "fields": [{"name": "\ud800", "type": ["null", "N"]}]}
    key = {"keytype": "SCHEMA", "subject": "n", "version": 1, "magic": 1}
    value = {"subject": "n", "version": 1, "id": 7, "schema": json.dumps(node)}
    stored = Record(0, key=json.dumps(key).encode(), value=json.dumps(value).encode())
    (small / "_schemas-0" / f"{0:020}.log").write_bytes(batch([stored]))
    write(small, Record(0, value=FRAME + b"\2" * 900 + b"\0"), Record(1, value=FRAME + b"\0"))
    done = dump(small / "orders-0", "--schemas", "auto")
    assert done.exit_code == 0
    first, second = done.stdout.splitlines()
    assert first.count(b'{"\\ud800":') == 901
    assert json.loads(second)["value"] == {"\ud800": None}


def test_topics_of_brokers_have_formats_of_their_own(small: Path) -> None:
    """The records of remote storage begin with bytes that look like an id."""
    write(small, Record(0, value=order(1, "a")))
    (small / "orders-0").rename(small / "__remote_log_metadata-0")
    done = dump(small / "__remote_log_metadata-0", "--schemas", "auto")
    assert done.stdout == dump(small / "__remote_log_metadata-0").stdout


def test_control_records_and_damage_are_as_without(small: Path) -> None:
    """Markers have no value that names a schema."""
    for place in ("modern/tx-0", "crash/flip-middle/torn-0", "legacy"):
        path = FIXTURES / place
        assert dump(path, "--schemas", small / "_schemas-0").stdout == dump(path).stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "--schemas goes with --output jsonl or csv or parquet"),
        (["--output", "csv", "--batches"], "--batches goes without --schemas"),
        (["--output", "jsonl", "--values", "hex"], "--values goes without --schemas"),
        (["--output", "jsonl", "--batches"], "--batches goes without --schemas"),
        (["--output", "jsonl", "--json-form", "nice"], "--json-form nice: expected"),
        (["--output", "jsonl", "--decode", "all"], "--decode all: expected"),
    ],
)
def test_options_that_do_not_go_together_are_16(small: Path, arguments: list[str], said: str) -> None:
    """A form that would print bytes as before is refused, and not printed quietly."""
    done = run_klog("dump", FIXTURES / "modern/plain-1", "--schemas", small, *arguments)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert said in done.stderr.decode()
