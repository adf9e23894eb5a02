"""Apicurio's journal: ids are counted from a whole journal, and not at all from any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from klog.data_dir.partition import Partition
from klog.schemas.apicurio import BrokenJournalError, read_journal
from klog.schemas.registry import Registry

from tests.conftest import writable_copy
from tests.oracles.plain.encode import Record, batch
from tests.schemas.corpus import Image, data, registry

BOOTSTRAP: tuple[str, Any] = ("Bootstrap", None)


def call(message: str, **arguments: Any) -> tuple[str, Any]:
    return message, arguments


def create(artifact: str, content: Any = '"string"', **more: Any) -> tuple[str, Any]:
    return call(
        "CreateArtifact11Message", artifactId=artifact, artifactType="AVRO", content=content, references=[], **more
    )


def version(artifact: str, content: Any = '"long"', **more: Any) -> tuple[str, Any]:
    return call("CreateArtifactVersion10Message", artifactId=artifact, artifactType="AVRO", content=content, **more)


def stored(arguments: Any) -> bytes | None:
    return None if arguments is None else json.dumps(arguments).encode()


def journal(folder: Path, *calls: tuple[str, Any], first: int = 0) -> Partition:
    """Write a journal of *calls*: message types, and the arguments as JSON."""
    topic = folder / "kafkasql-journal-0"
    topic.mkdir()
    records = [
        Record(first + i, key=json.dumps({"messageType": name}).encode(), value=stored(arguments))
        for i, (name, arguments) in enumerate(calls)
    ]
    (topic / f"{first:020}.log").write_bytes(batch(records, base_offset=first))
    return Partition(str(topic))


def ids(found: Registry) -> list[tuple[str, int, int, str]]:
    return [(row.subject, row.version, row.id, row.state) for row in found.rows]


def test_equal_contents_share_an_id_and_versions_have_numbers(tmp_path: Path) -> None:
    """The registry hands out content ids in the order of the journal, and numbers the versions of an artifact."""
    found = read_journal(
        journal(
            tmp_path, BOOTSTRAP, create("a"), create("b", '"int"'), version("a"), version("b", '"string"'),
            create("c", '"string"', groupId="eu"), call("DeleteArtifactRule3Message", artifactId="a"), BOOTSTRAP,
            call("UpdateArtifactVersionState5Message", artifactId="a", version="1", newState="DISABLED"),
            call("DeleteArtifactVersion3Message", artifactId="b", version="1"), version("b", '"double"'),
            call("DeleteArtifact2Message", artifactId="a"), create("a", '"float"'),
        )
    )  # fmt: skip
    assert sorted(ids(found)) == [
        (":.eu:c", 1, 1, "live"), ("a", 1, 1, "hard-deleted"), ("a", 1, 7, "live"), ("a", 2, 3, "hard-deleted"),
        ("b", 1, 2, "hard-deleted"), ("b", 2, 1, "live"), ("b", 3, 6, "live"),
    ]  # fmt: skip
    assert found.kind == "apicurio"
    assert found.records == 13


def test_ids_are_those_that_a_real_registry_handed_out(tmp_path: Path) -> None:
    """Apicurio 3.0.9 with these calls in its journal answered with these ids.

    An equal content keeps its id and uses up a number; the last version of a content takes it away.
    """
    calls: list[tuple[str, Any]] = [BOOTSTRAP]
    answers = []
    for subject, content, content_id in (
        ("a", "A", 1), ("b", "B", 2), ("same", "A", 1), ("c", "C", 4), ("c2", "C", 4), ("c2", 1, None), ("c3", "C", 4),
        ("c", 1, None), ("c3", 1, None), ("c4", "C", 7), ("c", "C", 7), ("c2", "X", 9), ("e", "E1", 10),
        ("e", "E2", 11), ("e", "E3", 12), ("e", 2, None), ("e2", "E2", 13), ("e", "E2", 13), ("e", 3, None),
        ("e", "Q", 15), ("b2", "B", 2), ("b", None, None), ("b3", "B", 2), ("f", "F", 18),
        ("g", "F", 18), ("h", "H", 20),
    ):  # fmt: skip
        if content_id is None and content is None:
            calls.append(call("DeleteArtifact2Message", artifactId=subject))
        elif content_id is None:
            calls.append(call("DeleteArtifactVersion3Message", artifactId=subject, version=str(content)))
        else:
            is_new = not any(subject == one for one, _ in answers)
            calls.append((create if is_new else version)(subject, f'"{content}"'))
            answers.append((subject, content_id))
    found = read_journal(journal(tmp_path, *calls))
    assert [(row.subject, row.id) for row in found.rows] == answers


@pytest.mark.corpora
def test_the_id_behind_an_equal_content_is_the_one_that_records_name(image: Image) -> None:
    """A content that is registered twice lies before this schema, whose values name id 36."""
    (row,) = [row for row in registry(image, "apicurio").rows if row.subject == "ledger.rough-value"]
    assert row.id == 36


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([create("a")], "no first start of a registry at offset 0"),
        ([BOOTSTRAP, create("a", dryRun=True)], "a dry run at offset 1"),
        ([BOOTSTRAP, create("a"), create("a")], "must have failed, for a at offset 2"),
        ([BOOTSTRAP, version("a")], "must have failed, for a at offset 1"),
        ([BOOTSTRAP, create("a"), version("a", version="1")], "must have failed, for a at offset 2"),
        ([BOOTSTRAP, call("CreateSnapshot1Message", location="x")], "a call CreateSnapshot1Message at offset 1"),
        ([BOOTSTRAP, call("ImportContent1Message")], "a call ImportContent1Message at offset 1"),
        ([BOOTSTRAP, ("CreateArtifact11Message", [])], "a record that is no JSON object at offset 1"),
        ([BOOTSTRAP, create("a", 7)], "a schema of another form at offset 1"),
        ([BOOTSTRAP, call("UpdateArtifactVersionContent5Message")], "a draft with new content at offset 1"),
    ],
)
def test_a_journal_whose_count_is_not_certain_is_refused(tmp_path: Path, calls: Any, reason: str) -> None:
    """Ids that are off by one decode values by wrong schemas, mostly without an error."""
    with pytest.raises(BrokenJournalError, match=reason):
        read_journal(journal(tmp_path, *calls))


def test_a_journal_without_its_beginning_is_refused(tmp_path: Path) -> None:
    """Retention takes the beginning away where a topic was made without the registry's settings."""
    with pytest.raises(BrokenJournalError, match="a record is missing at offset 0"):
        read_journal(journal(tmp_path, BOOTSTRAP, create("a"), first=7))


@pytest.mark.corpora
def test_a_damaged_journal_is_refused(image: Image, tmp_path: Path) -> None:
    """One lost call shifts all ids behind it."""
    topic = writable_copy(data(image, "apicurio") / "kafkasql-journal-0", tmp_path / "kafkasql-journal-0")
    log = next(topic.glob("*.log"))
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    with pytest.raises(BrokenJournalError, match="the journal is damaged"):
        read_journal(Partition(str(topic)))
