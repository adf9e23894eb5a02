"""`klog schemas list` and `show`: what a lost registry had, from the disk of a broker."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from klog.schemas.avro import AvroSchema
from klog.schemas.references import resolved_avro

from tests.commands.schemas.test_check import TEXT, framed
from tests.commands.schemas.test_check_command import log_dir, stored
from tests.conftest import FIXTURES, Ran, run_klog, writable_copy
from tests.schemas.corpus import Image, data, sides, truth

STATES = ("live", "deleted", "hard-deleted")


def listed(*arguments: str | Path) -> Any:
    return json.loads(run_klog("schemas", "list", *arguments, "--output", "json").stdout)


def shown(*arguments: str | Path) -> Any:
    return json.loads(run_klog("schemas", "show", *arguments, "--output", "json").stdout)


def records_file(folder: Path, *versions: tuple[str, int, int, str], **more: Any) -> Path:
    """Write records of `_schemas` as JSON lines: subject, version, id and text of each version."""
    path = folder / "schemas.jsonl"
    lines = [
        {
            "key": json.dumps({"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}),
            "value": json.dumps({"subject": subject, "version": version, "id": number, "schema": text} | more),
        }
        for subject, version, number, text in versions
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["confluent", "karapace"])
def test_the_list_has_every_schema_of_the_corpus(image: Image, name: str) -> None:
    """The registry's own lists are in the truth beside it."""
    found = listed(data(image, name), "--deleted")
    right = {(one["subject"], one["version"]): one for one in truth(name)["schemas"]}
    assert {(row["subject"], row["version"]) for row in found["schemas"]} == set(right)
    for row in found["schemas"]:
        one = right[row["subject"], row["version"]]
        for member in ("context", "id", "guid", "type", "state", "offset"):
            assert row[member] == one[member]
        assert (row["error"] is not None) == (one["broken"] is not None)
        assert row["deleted"] == (row["state"] != "live")
    assert [one["bad_records"] for one in found["sources"]] == [truth(name)["bad_schema_records"]]
    assert found["sources"][0]["kind"] == name
    rows = listed(data(image, name))["schemas"]
    assert {row["state"] for row in rows} == {"live", "deleted"}
    live = {row["subject"] for row in rows if row["state"] == "live" and not row["error"]}
    # a registry that meets an id for the second time keeps the first or the last
    assert live - {f"{truth(name)['twice']['topic']}-value"} <= set(truth(name)["registry_says"]["subjects"])


@pytest.mark.corpora
def test_the_list_is_narrowed_by_subject_and_context(image: Image) -> None:
    """A glob fits the subject with its context or without."""
    path = data(image, "confluent")
    name = truth("confluent")["topics"]["evolved"]
    assert [row["version"] for row in listed(path, "--subject", f"{name}-*")["schemas"]] == [1, 2, 3, 4]
    in_context = listed(path, "--context", ".meter")["schemas"]
    assert {row["context"] for row in in_context} == {".meter"}
    assert len(in_context) == 3
    done = run_klog("schemas", "list", path / "_schemas-0", "--subject", f"{name}-value")
    assert done.stdout.decode().startswith("4 schemas of 1 subject in ")
    assert done.exit_code == 4
    assert b"offset 70: no registry can read this record: its key is no JSON" in done.stderr


@pytest.mark.corpora
def test_apicurios_schemas_are_listed_with_the_counted_ids(image: Image) -> None:
    """Its journal has no ids."""
    rows = {(row["subject"], row["version"]): row["id"] for row in listed(data(image, "apicurio"))["schemas"]}
    assert all(rows[one["subject"], one["version"]] == one["id"] for one in truth("apicurio")["schemas"])


@pytest.mark.corpora
def test_an_id_of_two_schemas_shows_both(image: Image) -> None:
    """Two leaders handed it out; a registry shows one of them."""
    twice = truth("confluent")["twice"]["id"]
    done = run_klog("schemas", "show", data(image, "confluent"), "--id", str(twice))
    assert done.exit_code == 4
    assert done.stdout.count(b"version 1, id 5021") == 2
    found = shown(data(image, "confluent"), "--id", str(twice))
    assert len({one["schema"] for one in found["claimants"]}) == 2
    assert found["schema"] == found["claimants"][0]["schema"]


@pytest.mark.corpora
def test_a_schema_is_shown_as_it_is_stored_and_with_its_references(image: Image) -> None:
    """A text with the references put in decodes alone what the stored text decodes with them."""
    path, topic = data(image, "confluent"), truth("confluent")["topics"]["refs"]
    found = shown(path, "--subject", f"{topic}-value", "--resolved")
    (right,) = [one for one in truth("confluent")["schemas"] if one["subject"] == f"{topic}-value"]
    assert found["schema"] == right["text"]
    assert shown(path, "--guid", right["guid"])["schema"] == right["text"]
    decoder, judged = AvroSchema(found["resolved"], {}), 0
    for one in sides("confluent"):
        if one.topic == topic and one.right["framed"] and one.raw is not None:
            assert decoder.decode(one.raw[5:]).value == one.right["plain"]
            judged += 1
    assert judged > 5
    files = shown(path, "--subject", f"{truth('confluent')['topics']['proto']}-value", "--resolved")["resolved"]
    assert len(files) == 2


@pytest.mark.corpora
def test_an_id_that_is_not_there_names_the_nearest(image: Image) -> None:
    """An id that is off by a few is the sign of a registry that was restored too old."""
    done = run_klog("schemas", "show", data(image, "confluent"), "--id", "40")
    assert (done.exit_code, done.stdout) == (4, b"")
    assert done.stderr.decode().strip() == "klog: no schema has the id 40; the nearest ids are 36, 37, 38"


@pytest.mark.corpora
def test_copies_of_two_clusters_are_refused_and_of_one_are_one(image: Image, tmp_path: Path) -> None:
    """Schemas of another cluster decode values without an error now and then."""
    confluent, karapace = data(image, "confluent"), data(image, "karapace")
    done = run_klog("schemas", "list", confluent, karapace)
    assert done.exit_code == 8
    assert b"_schemas-0 is two things" in done.stderr
    behind = writable_copy(confluent, tmp_path / "behind")
    last = sorted((behind / "_schemas-0").glob("*.log"))[-1]
    for part in (behind / "_schemas-0").glob(f"{last.stem}.*"):
        part.unlink()
    copies = listed(behind, confluent)
    assert copies["schemas"] == listed(confluent)["schemas"]
    assert [one["path"] for one in copies["sources"]] == [str(confluent / "_schemas-0")]


@pytest.mark.corpora
def test_a_damaged_topic_lists_the_schemas_that_are_left(image: Image, tmp_path: Path) -> None:
    """The damage is said, and the exit code tells."""
    topic = writable_copy(data(image, "karapace") / "_schemas-0", tmp_path / "_schemas-0")
    log = sorted(topic.glob("*.log"))[0]
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    done = run_klog("schemas", "list", topic, "--output", "jsonl")
    assert done.exit_code == 4
    assert b"bad CRC" in done.stderr
    whole = len(listed(data(image, "karapace"))["schemas"])
    assert whole - 3 < done.stdout.count(b"\n") < whole


@pytest.mark.corpora
def test_a_dump_of_the_topic_lists_the_same(image: Image, tmp_path: Path) -> None:
    """A file of records is what is left where somebody saved nothing else."""
    path = data(image, "karapace") / "_schemas-0"
    dumped = tmp_path / "saved.jsonl"
    dumped.write_bytes(run_klog("dump", path, "--output", "jsonl").stdout)
    assert listed(dumped, "--deleted")["schemas"] == listed(path, "--deleted")["schemas"]


def test_a_file_of_records_may_have_lines_that_are_none(tmp_path: Path) -> None:
    """They are bad records, by their number; control characters of names do not reach the terminal."""
    path = records_file(tmp_path, ("a\x1b[31m", 1, 1, '"int"'), ("b", 1, 2, "{"))
    with path.open("a") as more:
        more.write('7\n{"key":5}\n{"key_base64":"?"}\nnot json\n')
    done = run_klog("schemas", "list", path)
    assert done.exit_code == 4
    assert b"\x1b" not in done.stdout
    assert b"2 schemas of 2 subjects" in done.stdout
    assert b"1 cannot be used" in done.stdout
    assert done.stderr.count(b"no registry can read this record") == 4
    csv = run_klog("schemas", "list", path, "--output", "csv").stdout.decode().splitlines()
    assert csv[0] == "context,subject,version,id,guid,type,deleted,references,state,offset,timestamp,record,error"
    assert len(csv) == 3


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["list"], 16, "no registry: name log dirs"),
        (["list", FIXTURES / "modern"], 8, "no _schemas and no kafkasql-journal"),
        (["list", FIXTURES / "modern/meta.properties"], 8, "no record is one of a registry's topic"),
        (["show", "x.jsonl"], 16, "one of --id N, --guid GUID and --subject NAME is needed"),
        (["show", "x.jsonl", "--id", "1", "--subject", "a"], 16, "one of --id N, --guid GUID and --subject NAME"),
        (["show", "x.jsonl", "--id", "1", "--version", "2"], 16, "--version is one of a subject"),
        (["show", "x.jsonl", "--guid", "1"], 16, "expected a GUID"),
        (["show", "x.jsonl", "--subject", "a", "--version", "x"], 16, "expected a number, or latest"),
    ],
)
def test_what_is_missing_is_said(arguments: list[str | Path], code: int, said: str) -> None:
    """One line, with what to do."""
    done = run_klog("schemas", *arguments)
    assert (done.exit_code, done.stdout) == (code, b"")
    assert said in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_versions_of_a_subject_are_chosen(tmp_path: Path) -> None:
    """The latest live one, or the one that is named; a subject with a typing error gets a near miss."""
    path = records_file(tmp_path, ("orders", 1, 1, '"int"'), ("orders", 2, 2, '"long"'))

    def show(*more: str) -> Ran:
        return run_klog("schemas", "show", path, *more)

    assert show("--subject", "orders").stdout.decode().splitlines()[1:] == ['"long"']
    assert show("--subject", "orders", "--version", "1").stdout.decode().splitlines()[1:] == ['"int"']
    assert show("--subject", "orders", "--version", "latest").exit_code == 0
    missing = show("--subject", "orders", "--version", "3")
    assert (missing.exit_code, missing.stderr) == (4, b"klog: orders has no version 3\n")
    near = show("--subject", "order")
    assert near.exit_code == 4
    assert b"did you mean orders?" in near.stderr


def test_without_the_extra_the_list_is_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Which schemas are lost is known without the libraries; whether they can be used is not, and it is said."""
    import sys

    monkeypatch.setitem(sys.modules, "fastavro", None)
    done = run_klog("schemas", "list", records_file(tmp_path, ("a", 1, 1, '"int"'), ("b", 1, 2, '"long"')))
    assert done.exit_code == 0
    assert b"2 schemas of 2 subjects" in done.stdout
    assert done.stderr.decode() == "klog: AVRO is not checked: schemas need fastavro: pip install 'klog[schemas]'\n"


def test_resolved_schemas_define_each_type_once() -> None:
    """Later uses have the full name; names are found in the namespace around them."""
    base = '{"type":"enum","name":"E","namespace":"x","symbols":["A"]}'
    middle = '{"type":"record","name":"x.M","fields":[{"name":"e","type":["null","E"],"default":null}]}'
    top = (
        '{"type":"record","name":"T","namespace":"x","fields":[{"name":"m","type":{"type":"array","items":"M"}},'
        '{"name":"e","type":{"type":"map","values":"x.E"}},{"name":"t","type":["null","T"]},{"name":"s","type":"string"}]}'
    )
    found = resolved_avro(top, {"x.E": base, "x.M": middle})
    assert found.count('"symbols"') == 1
    alone, together = AvroSchema(found, {}), AvroSchema(top, {"x.E": base, "x.M": middle})
    content = b"\2\2\0\0\2\2k\0\0\2\2\0\0\0\0\2s\2s"
    assert alone.decode(content) == together.decode(content)
    assert alone.decode(content).error is None


def test_an_archived_copy_under_another_name_needs_it(tmp_path: Path) -> None:
    """`kafkastore.topic` names the topic."""
    source = FIXTURES / "modern" / "plain-1"
    shutil.copytree(source, tmp_path / "registry-0")
    assert run_klog("schemas", "list", tmp_path / "registry-0").exit_code == 8
    done = run_klog("schemas", "list", tmp_path / "registry-0", "--schemas-topic", "registry")
    assert done.exit_code == 4
    assert b"0 schemas of 0 subjects" in done.stdout


@pytest.mark.parametrize("form", ["text", "json", "jsonl", "csv"])
def test_no_schema_that_meets_the_conditions_is_one_line_and_4(tmp_path: Path, form: str) -> None:
    """A typing error in a subject; a registry without schemas is no error."""
    path = records_file(tmp_path, ("orders", 1, 1, '"int"'))
    for words in (["--subject", "order"], ["--context", ".eu"]):
        done = run_klog("schemas", "list", path, *words, "--output", form)
        assert (done.exit_code, done.stderr.decode()) == (4, f"klog: no schema in {path} meets the conditions\n")
        assert len(done.stdout.splitlines()) == {"text": 0, "jsonl": 0, "csv": 1}.get(form, 16)
    path.write_text("")
    assert run_klog("schemas", "list", path, "--output", form).exit_code == 0


def test_a_copy_under_any_name_is_read(tmp_path: Path) -> None:
    """A directory that somebody has saved, or a log of it alone; another log is none."""
    made = log_dir(tmp_path / "data", [stored("t-value", 1, 1, TEXT.format("M"))], t=[framed(1)])
    log = made / "_schemas-0" / f"{0:020}.log"
    saved, alone = shutil.copytree(log.parent, tmp_path / "saved"), shutil.copy(log, tmp_path / "saved.bin")
    for path in (saved, log, alone):
        assert [row["subject"] for row in listed(path)["schemas"]] == ["t-value"]
        done = run_klog("dump", made, "-t", "t", "--output", "jsonl", "--schemas", path)
        assert (done.exit_code, json.loads(done.stdout)["value"]) == (0, {"a": 5})
    exported = run_klog("schemas", "export", alone, "--to", "-")
    assert (exported.exit_code, exported.stdout.count(b"\n")) == (0, 1)
    shutil.copytree(made / "t-0", tmp_path / "other")
    for path in (tmp_path / "other", made / "t-0" / log.name):
        done = run_klog("dump", made, "-t", "t", "--output", "jsonl", "--schemas", path)
        assert (done.exit_code, done.stdout) == (8, b"")
    Path(alone).write_bytes(log.read_bytes()[:-1])
    done = run_klog("schemas", "list", alone)
    assert (done.exit_code, b"torn tail" in done.stderr) == (4, True)
