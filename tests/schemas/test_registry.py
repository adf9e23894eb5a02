"""The state of a registry from its topic: what a replay gives, in whatever condition compaction and people left it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from klog.data_dir.partition import Partition
from klog.schemas.decoded import BrokenSchemaError
from klog.schemas.registry import Registry
from klog.schemas.schema_version import SchemaReference, schema_guid, split_subject
from klog.schemas.schemas_topic import SchemasReplay, read_schemas_topic

from tests.schemas.corpus import REGISTRIES, Image, data, registry, truth


def replayed(*records: tuple[Any, Any]) -> Registry:
    """Return the state after *records*: keys and values, as JSON or as bytes."""
    replay = SchemasReplay()
    for offset, (key, value) in enumerate(records):
        sides = (one if one is None or isinstance(one, bytes) else json.dumps(one).encode() for one in (key, value))
        replay.take(offset, 1000 + offset, *sides)
    return replay.registry("_schemas-0")


def schema(subject: str, version: int, schema_id: int, text: str = '"string"', **more: Any) -> tuple[Any, Any]:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    return key, {"subject": subject, "version": version, "id": schema_id, "schema": text, "deleted": False} | more


def gone(subject: str, version: int, value: Any = None) -> tuple[Any, Any]:
    return schema(subject, version, 0)[0], value


def states(found: Registry) -> list[tuple[str, int, int, str]]:
    return [(row.subject, row.version, row.id, row.state) for row in found.rows]


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["confluent", "karapace"])
def test_every_schema_of_the_corpora_is_found_in_its_state(image: Image, name: str) -> None:
    """Ids, versions, states, references, texts, offsets and GUIDs: a registry that is gone is known only from here."""
    found = registry(image, name)
    assert found.kind == name
    assert found.notes == []
    assert [offset for offset, _ in found.bad_records] == truth(name)["bad_schema_records"]
    rows = [
        {
            "context": row.context, "subject": row.subject, "version": row.version, "id": row.id, "type": row.type,
            "state": row.state, "guid": row.guid, "offset": row.offset, "text": row.text,
            "references": [one._asdict() for one in row.references],
        }
        for row in found.rows
    ]  # fmt: skip
    wanted = [{key: value for key, value in one.items() if key != "broken"} for one in truth(name)["schemas"]]
    assert rows == sorted(wanted, key=lambda one: int(one["offset"]))


@pytest.mark.corpora
def test_settings_and_contexts_of_the_corpus_are_found(image: Image) -> None:
    """A rebuilt registry without them takes schemas that the lost one refused."""
    found = registry(image, "confluent")
    topics = truth("confluent")["topics"]
    assert found.config[""] == {"compatibilityLevel": "NONE"}
    assert found.config[f"{topics['refs']}-value"] == {"compatibilityLevel": "FULL"}
    assert found.mode[f"{topics['json']}-value"] == {"mode": "READONLY"}
    assert found.contexts == [".", ".meter"]


@pytest.mark.corpora
def test_the_ids_of_an_apicurio_journal_are_counted(image: Image) -> None:
    """No record of the journal has an id; every version that the registry named has the one that it gave."""
    found = {(row.subject, row.version): row for row in registry(image, "apicurio").rows}
    for one in truth("apicurio")["schemas"]:
        row = found[one["subject"], one["version"]]
        assert (row.id, row.type, row.text) == (one["id"], one["type"], one["text"])
        assert [reference._asdict() for reference in row.references] == one["references"]
    said = {row.subject: row.state for row in found.values() if ".del." in row.subject}
    assert {name.rpartition(".")[2]: state for name, state in said.items()} == {
        "soft": "deleted", "hard": "hard-deleted", "subject": "deleted", "live": "live"
    }  # fmt: skip


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_broken_schemas_of_the_corpora_are_those_that_registries_cannot_use(image: Image, name: str) -> None:
    """A reference to nothing is found by its row, before any value is decoded."""
    found = registry(image, name)
    broken = {one["subject"]: one["broken"] for one in truth(name)["schemas"] if one["broken"]}
    for row in found.rows:
        if broken.get(row.subject, "").startswith("no "):
            with pytest.raises(BrokenSchemaError, match="no lost-subject version 3"):
                found.references(row)
        else:
            assert len(found.references(row)) >= len(row.references)


def test_a_tombstone_leaves_the_version_hard_deleted() -> None:
    """Values still decode by it, which no registry does.  Karapace's tombstones are empty and not null."""
    for value in (None, b""):
        found = replayed(schema("a", 1, 5), schema("a", 1, 5, deleted=True), gone("a", 1, value))
        assert states(found) == [("a", 1, 5, "hard-deleted")]
        assert found.rows[0].offset == 1


def test_a_hard_deleted_version_that_comes_back_is_live_once() -> None:
    """An import brings a subject back with its old ids; two rows for it would look like two schemas."""
    found = replayed(schema("a", 1, 5), gone("a", 1), schema("a", 1, 5))
    assert states(found) == [("a", 1, 5, "live")]
    other = replayed(schema("a", 1, 5), gone("a", 1), schema("a", 1, 6, '"long"'))
    assert states(other) == [("a", 1, 5, "hard-deleted"), ("a", 1, 6, "live")]


def test_a_deleted_subject_is_deleted_at_that_point_of_the_log() -> None:
    """Versions that are registered later are live, though the record that deleted the subject is still there."""
    delete = {"keytype": "DELETE_SUBJECT", "subject": "a", "magic": 0}, {"subject": "a", "version": 2}
    found = replayed(schema("a", 1, 5), schema("a", 2, 6), schema("a", 3, 7), delete, schema("a", 1, 5))
    assert states(found) == [("a", 2, 6, "deleted"), ("a", 3, 7, "live"), ("a", 1, 5, "live")]


def test_a_version_with_another_text_replaces_the_former() -> None:
    """Records written before still have the former schema."""
    found = replayed(schema("a", 1, 5), schema("a", 1, 5, '"long"'))
    assert states(found) == [("a", 1, 5, "replaced"), ("a", 1, 5, "live")]


def test_records_that_nobody_can_read_are_named_and_passed_over() -> None:
    """One of them stops a Confluent registry; the schemas behind it are still needed."""
    deep = b"[" * 100_000
    found = replayed(
        (b"not json", {}), (b"[]", {}), ({"keytype": "FUTURE", "magic": 9}, {}), (deep, deep), (None, {}),
        ({"keytype": "SCHEMA", "subject": "a", "magic": 1}, schema("a", 1, 5)[1]), ({"keytype": []}, {}),
        schema("a", 1, 5, "text", id="5"), schema("a", 1, True), schema("a", 1, 5, references=[{"name": "x"}]),
        schema("a", 1, 5, references=7), schema("a", 1, 5, metadata=[]), schema("a", 1, 5, schema=None),
        (b"\xff", {}), ({"keytype": "CONFIG", "subject": 7}, {}), schema("a", 1, 5),
    )  # fmt: skip
    assert [offset for offset, _ in found.bad_records] == list(range(15))
    assert found.bad_records[5][1] == "without version"
    assert found.bad_records[2][1] == "key type 'FUTURE' is unknown"
    assert states(found) == [("a", 1, 5, "live")]
    assert found.records == 16


def test_records_that_change_no_schema_are_no_problem() -> None:
    """Registries write signs of life and associations; a setting with the value null is taken back."""
    found = replayed(
        ({"keytype": "NOOP", "magic": 0}, None), ({"keytype": "ASSOC", "tenant": "default"}, {"a": 1}),
        ({"keytype": "CLEAR_SUBJECT", "subject": "a", "magic": 0}, {"subject": "a"}),
        ({"keytype": "CONFIG", "subject": "a", "magic": 0}, {"subject": "a", "compatibilityLevel": "FULL"}),
        ({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "NONE"}),
        ({"keytype": "CONFIG", "subject": "a", "magic": 0}, None),
        ({"keytype": "CONTEXT", "tenant": "default", "context": ".eu", "magic": 0}, {"context": ".eu"}),
    )  # fmt: skip
    assert found.bad_records == []
    assert found.config == {"": {"compatibilityLevel": "NONE"}}
    assert found.contexts == [".eu"]


@pytest.mark.parametrize(
    ("text", "references", "metadata", "guid"),
    [
        (
            '{"type":"record","name":"A","namespace":"x","doc":"d","fields":[{"name":"x","type":"int"}]}',
            (), None, "0115cf37-f4c7-95ef-d6ba-4423751a48b9",
        ),
        (
            '{"type":"record","name":"A","namespace":"x","fields":[{"name":"x","type":"int"},'
            '{"name":"y","type":"string","default":"é"}]}',
            (), {"tags": {"A.x": ["PII"]}, "properties": {"owner": "ops"}}, "b3ee6b03-54b0-b92b-a697-00f78e08a615",
        ),
        (
            '{"type":"record","name":"R","namespace":"x","fields":[{"name":"b","type":"Base"}]}',
            (SchemaReference("x.Base", "base", 1),), None, "7bcd6afc-4543-aaaa-a40c-e27dde1d47a7",
        ),
    ],
)  # fmt: skip
def test_guids_are_those_that_a_registry_serves(text: str, references: Any, metadata: Any, guid: str) -> None:
    """Records with a GUID in a header name their schema by nothing else, and no topic has it."""
    assert schema_guid(text, references, metadata) == guid
    assert schema_guid(text, references, metadata, {"domainRules": []}) != guid


def test_a_subject_names_its_context() -> None:
    """The same id is handed out again in every context."""
    assert split_subject("orders-value") == (".", "orders-value")
    assert split_subject(":.eu:orders-value") == (".eu", "orders-value")
    assert split_subject(":.eu:") == (".eu", "")
    assert split_subject(":orders") == (".", ":orders")


def test_candidates_begin_with_the_topics_own_subject() -> None:
    """An id that two leaders handed out decodes for both topics: each has its own subject."""
    found = replayed(
        schema("other", 1, 5, '"int"'), schema(":.eu:orders-value", 1, 5, '"long"'), schema("orders-value", 9, 5),
        schema("gone", 1, 5, '"null"'), gone("gone", 1), schema("again", 1, 5),
    )  # fmt: skip
    texts = [row.text for row in found.candidates(5, "orders", "value")]
    assert texts == ['"string"', '"long"', '"int"', '"null"']
    assert [row.text for row in found.candidates(5, "sales", "value")] == ['"int"', '"string"', '"null"', '"long"']
    assert found.candidates(5, "orders", "value", ".eu")[0].text == '"long"'
    assert found.candidates(6, "orders", "value") == []
    assert found.near_ids(7) == [5]


def test_references_are_those_of_the_referrers_context_deeper_ones_first() -> None:
    """A schema of another context has the same subject and version, and other fields."""
    to = [{"name": "B", "subject": "b", "version": 1}, {"name": "C", "subject": "c", "version": -1}]
    found = replayed(
        schema("b", 1, 1, '"b"'), schema(":.eu:b", 1, 1, '"eu"', references=to[1:]), schema(":.eu:c", 1, 2, '"c1"'),
        schema(":.eu:c", 2, 3, '"c2"'), schema("a", 1, 4, references=to[:1]), schema(":.eu:a", 1, 5, references=to),
    )  # fmt: skip
    row = {row.subject: row for row in found.rows}
    assert list(found.references(row["a"]).items()) == [("B", '"b"')]
    assert list(found.references(row[":.eu:a"]).items()) == [("C", '"c2"'), ("B", '"eu"')]


def test_references_in_a_circle_are_an_error_and_many_shared_ones_are_not() -> None:
    """Neither may take for ever: a ladder of two references each has two to the power of its height of paths."""

    def to(*subjects: str) -> list[Any]:
        return [{"name": subject, "subject": subject, "version": 1} for subject in subjects]

    circle = replayed(schema("a", 1, 1, references=to("b")), schema("b", 1, 2, references=to("a")))
    with pytest.raises(BrokenSchemaError, match="refers to itself"):
        circle.references(circle.rows[0])
    ladder = [schema(f"{side}{i}", 1, i, references=to(f"a{i + 1}", f"b{i + 1}")) for i in range(500) for side in "ab"]
    found = replayed(*ladder, schema("a500", 1, 500), schema("b500", 1, 500))
    assert len(found.references(found.rows[0])) == 1000


@pytest.mark.corpora
def test_damage_in_the_topic_leaves_the_other_schemas(image: Image, tmp_path: Path) -> None:
    """A flipped bit in one batch is no reason to give up all values of a cluster."""
    topic = tmp_path / "_schemas-0"
    shutil.copytree(data(image, "confluent") / "_schemas-0", topic)
    log = sorted(topic.glob("*.log"))[0]
    whole = read_schemas_topic(Partition(str(topic)))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.chmod(0o644)
    log.write_bytes(content)
    found = read_schemas_topic(Partition(str(topic)))
    assert len(found.rows) == len(whole.rows) - 1
    assert len(found.notes) == 1
    assert "bad CRC" in found.notes[0]
