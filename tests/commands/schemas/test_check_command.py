"""`klog schemas check` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from klog.schemas.schemas_topic import SCHEMAS_TOPIC

from tests.commands.schemas.test_check import TEXT, framed
from tests.conftest import Ran, run_klog
from tests.oracles.plain.encode import Record, batch
from tests.schemas.corpus import Image, data


def stored(subject: str, version: int, schema_id: int, text: str, deleted: bool = False) -> Record:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    value = {"subject": subject, "version": version, "id": schema_id, "schemaType": "PROTOBUF", "schema": text}
    return Record(0, key=json.dumps(key).encode(), value=json.dumps(value | {"deleted": deleted}).encode())


def log_dir(folder: Path, schemas: list[Record], **topics: list[bytes | None]) -> Path:
    """Make a log dir with a registry's topic, and topics of one partition with values."""
    logs = {name: [Record(0, value=one) for one in values] for name, values in topics.items()}
    for name, records in ({SCHEMAS_TOPIC: schemas} | logs).items():
        numbered = [Record(offset, 1000, one.key, one.value) for offset, one in enumerate(records)]
        (folder / f"{name}-0").mkdir(parents=True)
        (folder / f"{name}-0" / f"{0:020}.log").write_bytes(batch(numbered) if numbered else b"")
    return folder


def check(*words: object) -> Ran:
    return run_klog("schemas", "check", *words)


def test_a_clean_log_dir_is_0_and_has_a_line_of_counts(tmp_path: Path) -> None:
    folder = log_dir(tmp_path, [stored("t-value", 1, 1, TEXT.format("M"))], t=[framed(1), framed(1), None])
    done = check(folder)
    assert (done.exit_code, done.stderr) == (0, b"")
    assert done.stdout.decode() == "1 schema, 1 topic, 2 keys and values: 2 decode, 0 do not, 0 have no framing\n"


def test_findings_are_lines_and_unused_versions_of_a_subject_are_one(tmp_path: Path) -> None:
    schemas = [stored("t-value", 1, 1, TEXT.format("M"))]
    schemas += [stored("old", version, 10 + version, TEXT.format(f"O{version}")) for version in (1, 2, 3, 5)]
    schemas.append(stored("new", 1, 12, TEXT.format("O2")))
    done = check(log_dir(tmp_path, schemas, t=[framed(1), framed(7), b"text"]))
    assert done.exit_code == 4
    assert done.stdout.decode().splitlines() == [
        "damage   t value  id 7 is not in _schemas: 1 record, t-0 @ 1",
        "warning  t value  1 of 3 values has no framing (text): first at t-0 @ 2",
        "note              new 1 is used by no record",
        "note              old 1–3, 5 are used by no record",
        "6 schemas, 1 topic, 3 keys and values: 1 decode, 1 do not, 1 have no framing",
    ]


def test_the_registrys_topic_may_be_elsewhere_and_be_chosen(tmp_path: Path) -> None:
    schemas = [stored("t-value", 1, 1, TEXT.format("M"))]
    log_dir(tmp_path / "registry", schemas)
    folder = log_dir(tmp_path / "data", [], t=[framed(1)])
    assert check(folder).exit_code == 4
    assert check(folder, "--schemas", tmp_path / "registry").exit_code == 0
    done = check(folder / "t-0")
    assert done.exit_code == 8
    assert b"no _schemas" in done.stderr
    assert b"--schemas PATH" in done.stderr


def test_what_is_asked_for_alone_is_looked_at(tmp_path: Path) -> None:
    """Schemas of other topics are not called unused then, and internal topics are read only when they are named."""
    schemas = [stored("t-value", 1, 1, TEXT.format("M")), stored("u-value", 1, 2, TEXT.format("U"))]
    folder = log_dir(tmp_path, schemas, t=[framed(1)], u=[framed(2), framed(9)])
    done = check(folder, "--topic", "t", "--output", "json")
    assert done.exit_code == 0
    assert {one["topic"] for one in json.loads(done.stdout)["topics"]} == {"t"}
    assert json.loads(done.stdout)["findings"] == []
    broken = log_dir(tmp_path / "broken", [stored("u-value", 1, 2, "message {")], t=[b"text"], u=[framed(2)])
    done = check(broken, "--topic", "t")
    assert b"(seen by none)" in done.stdout  # topics that were not looked at may use it
    assert b"used by no record" not in done.stdout
    topics = {one["topic"] for one in json.loads(check(folder, "--internal", "--output", "json").stdout)["topics"]}
    assert topics == {"t", "u", "_schemas"}


def test_json_and_jsonl_have_the_same_findings(tmp_path: Path) -> None:
    folder = log_dir(tmp_path, [], t=[framed(7)])
    found: dict[str, Any] = json.loads(check(folder, "--output", "json").stdout)
    lines = [json.loads(line) for line in check(folder, "--output", "jsonl").stdout.splitlines()]
    assert found["findings"] == lines
    (one,) = [one for one in lines if one["severity"] == "damage"]
    assert (one["id"], one["schema_id"], one["partition"], one["offset"]) == ("id-missing", 7, 0, 0)
    assert found["sampled"] is None
    assert json.loads(check(folder, "--sample", "1/16", "--output", "json").stdout)["sampled"] == "1/16"


def test_a_damaged_batch_is_named_and_the_rest_is_checked(tmp_path: Path) -> None:
    folder = log_dir(tmp_path, [stored("t-value", 1, 1, TEXT.format("M"))], t=[framed(1)])
    log = folder / "t-0" / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[-1] ^= 0xFF
    log.write_bytes(bytes(content))
    done = check(folder)
    assert done.exit_code == 4
    assert b"t-0" in done.stderr


@pytest.mark.corpora
def test_processes_give_the_same_answer_as_one(image: Image) -> None:
    folder = data(image, "confluent")
    alone, three = (check(folder, "--jobs", jobs, "--output", "json") for jobs in ("1", "3"))
    assert alone == three


def test_topics_of_brokers_are_left_out(tmp_path: Path) -> None:
    """Metadata of remote storage begins with bytes that look like an id; no id is missing for that."""
    folder = log_dir(
        tmp_path, [stored("t-value", 1, 1, TEXT.format("M"))], t=[framed(1)], __remote_log_metadata=[framed(9)]
    )
    assert check(folder).exit_code == 0
    assert b"id 9 is not in _schemas" in check(folder, "--internal").stdout
