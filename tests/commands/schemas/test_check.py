"""`klog schemas check` names the planted faults of the corpora with the right counts, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from klog.base.progress import Silence
from klog.commands.schemas.check import SchemaCheck, check_schemas
from klog.commands.schemas.usage import MOST_UNKNOWN, UsageOptions, kind_of
from klog.data_dir.partition import Partition
from klog.jobs.runner import Processes, Runner, Threads
from klog.schemas.registry import Registry
from klog.schemas.schema_version import SchemaReference, SchemaVersion

from tests.oracles.plain.encode import Record, batch
from tests.schemas.corpus import REGISTRIES, Image, Truth, data, registry, sides, truth

Finding = tuple[str, str, str | None, str | None, Any, int]
"""Id, severity, topic, side, id or GUID or subject or offset, records."""
BAD_VALUES = {"truncated", "bad-value", "bad-message-index", "invalid-json"}


def found(check: SchemaCheck) -> list[Finding]:
    rows = []
    for one in check.findings:
        name: Any = one.schema_id if one.schema_id is not None else one.guid
        if one.id == "unused":
            name = one.subject, one.version
        if one.id == "bad-record":
            assert one.place is not None
            name = one.place.offset
        rows.append((one.id, one.severity, one.topic, one.side, name, one.records))
    return sorted(rows, key=repr)


def expected(name: str) -> Iterator[Finding]:
    """Yield the findings by the truth alone."""
    known = truth(name)
    uses = Counter[tuple[str, str, str, Any]]()
    totals: dict[tuple[str, str], Counter[str]] = {}
    for one in sides(name):
        at, counts = (one.topic, one.side), totals.setdefault((one.topic, one.side), Counter())
        counts["records"] += 1
        if one.right.get("null"):
            continue
        counts["framed" if one.right["framed"] else "unframed"] += 1
        if one.right["framed"]:
            for kind in kinds(known, one):
                uses[kind, *at, one.right["id"] if one.right["id"] is not None else one.right["guid"]] += 1
    for (kind, topic, side, key), count in uses.items():
        yield kind, "warning" if kind in ("trailing-bytes", "deleted-in-use") else "damage", topic, side, key, count
    live = {one["subject"] for one in known["schemas"] if one["state"] == "live"}
    for (topic, side), counts in totals.items():
        if counts["unframed"]:
            severity = "warning" if counts["framed"] else "note"
            yield "unframed", severity, topic, side, None, counts["unframed"]
        if counts["framed"] and f"{topic}-{side}" not in {subject.rpartition(":")[2] for subject in live}:
            yield "no-schema-subject", "note", topic, side, None, counts["framed"]
    for offset in known["bad_schema_records"]:
        yield "bad-record", "warning", None, None, offset, 1
    yield from unused(known)


def kinds(known: dict[str, Any], one: Truth) -> Iterator[str]:
    """Yield the findings that a framed key or value counts for."""
    right = one.right
    if right["error"] == "unknown-id":
        yield "id-missing"
    elif right["error"] in BAD_VALUES or right["error"] == "bad-header":
        yield "undecodable"
    elif right["error"] == "trailing-bytes":
        yield "trailing-bytes"
    elif right["error"] == "schema-broken":
        (why,) = [row["broken"] for row in known["schemas"] if row["id"] == right["id"]]
        yield "reference-missing" if why.startswith("no ") else "schema-broken"
    if known["twice"] and right["id"] == known["twice"]["id"]:
        yield "id-claimed-twice"
    elif right.get("state") == "deleted":
        yield "deleted-in-use"
    elif right.get("state") == "hard-deleted":
        yield "hard-deleted-in-use"


def unused(known: dict[str, Any]) -> Iterator[Finding]:
    if known["flavour"] == "apicurio":
        return
    rows = {(row["subject"], row["version"]): row for row in known["schemas"]}
    framed_sides = [one.right for one in sides(known["flavour"]) if "subject" in one.right]
    named = {(side["subject"], side["version"]) for side in framed_sides}
    texts = {(rows[place]["id"], rows[place]["text"]) for place in named}
    waiting = [place for place, row in rows.items() if (row["id"], row["text"]) in texts]
    used = set(waiting)
    while waiting:
        for reference in rows[waiting.pop()]["references"]:
            place = reference["subject"], reference["version"]
            if place in rows and place not in used:
                used.add(place)
                waiting.append(place)
    for place, row in rows.items():
        if row["state"] == "live" and place not in used:
            yield "unused", "note", None, None, place, 0


def partitions(image: Image, name: str) -> list[Partition]:
    topics = {record["topic"] for record in truth(name)["records"]}
    every = [Partition(str(path)) for path in sorted(data(image, name).glob("*-*")) if path.is_dir()]
    return [one for one in every if one.topic in topics]


@pytest.mark.corpora
@pytest.mark.parametrize("runner", [Threads(1), Processes(2)], ids=["alone", "two processes"])
@pytest.mark.parametrize("name", REGISTRIES)
def test_the_findings_of_the_corpora_are_the_planted_ones(name: str, runner: Runner, image: Image) -> None:
    """Missing, doubled, broken, deleted and unused schemas, undecodable and unframed values; first places too."""
    chosen = partitions(image, name)
    check = check_schemas(registry(image, name), chosen, UsageOptions(), runner, Silence(), name == "apicurio")
    assert found(check) == sorted(expected(name), key=repr)
    assert check.damage == []
    first: dict[Any, Any] = {}
    for one in sides(name):
        if one.right["error"] == "unknown-id":
            key = one.topic, one.side, one.right["id"]
            first[key] = min(first.get(key, (1 << 62, 0)), (one.partition, one.offset))
    places = {(one.topic, one.side, one.schema_id): one.place for one in check.findings if one.id == "id-missing"}
    assert places == first


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_the_counts_of_each_side_are_those_of_the_truth(name: str, image: Image) -> None:
    check = check_schemas(registry(image, name), partitions(image, name), UsageOptions(), Threads(1), Silence())
    counts: dict[tuple[str, str], Counter[str]] = {}
    for one in sides(name):
        here = counts.setdefault((one.topic, one.side), Counter())
        here["records"] += 1
        here["null"] += bool(one.right.get("null"))
        here["framed"] += one.right["framed"]
        here["decoded"] += one.right["framed"] and "plain" in one.right
    for side, use in check.usage.items():
        assert {name: getattr(use, name) for name in ("records", "null", "framed", "decoded")} == counts[side]
    assert set(check.usage) == set(counts)


# by hand

TEXT = 'syntax = "proto3"; message {} {{ int32 a = 1; }}'


def row(subject: str, schema_id: int, text: str = "", **more: Any) -> SchemaVersion:
    given = {"context": ".", "version": 1, "type": "PROTOBUF", "state": "live", "references": (), "offset": 0}
    given |= {"subject": subject, "id": schema_id, "text": text or TEXT.format("M"), "timestamp": 0}
    given["guid"] = f"{abs(hash((given['text'], schema_id))) % (1 << 127):032x}"
    return SchemaVersion(**given | more)


def check(
    folder: Path, rows: Sequence[SchemaVersion], topics: dict[str, Sequence[bytes | None]], **options: Any
) -> SchemaCheck:
    """Check logs of values without keys."""
    logs = []
    for name, values in topics.items():
        (folder / name).mkdir()
        records = [Record(offset, value=value) for offset, value in enumerate(values)]
        (folder / name / f"{0:020}.log").write_bytes(batch(records))
        logs.append(Partition(str(folder / name)))
    return check_schemas(Registry("confluent", "x", rows), logs, UsageOptions(**options), Threads(1), Silence())


def framed(schema_id: int, message: bytes = b"\0\x08\5") -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + message


def test_a_clean_registry_and_its_topic_have_no_finding(tmp_path: Path) -> None:
    made = check(tmp_path, [row("t-value", 1)], {"t-0": [framed(1), None]})
    assert made.findings == []
    assert made.is_clean


def test_a_side_of_many_unknown_ids_is_binary_data(tmp_path: Path) -> None:
    """Integers in eight bytes begin with zeros; thousands of lost schemas would be no answer."""
    made = check(tmp_path, [], {"t-0": [framed(number) for number in range(1, MOST_UNKNOWN + 500)]})
    assert found(made) == [("unframed", "note", "t", "value", None, MOST_UNKNOWN + 499)]
    assert len(made.usage["t", "value"].ids) == MOST_UNKNOWN
    assert made.is_clean


def test_many_lost_ids_beside_known_ones_are_counted_together_beyond_the_most(tmp_path: Path) -> None:
    values = [framed(number) for number in range(1, MOST_UNKNOWN + 10)]
    made = check(tmp_path, [row("t-value", 1)], {"t-0": values})
    missing = [one for one in made.findings if one.id == "id-missing"]
    assert sum(one.records for one in missing) == MOST_UNKNOWN + 8
    assert len(missing) == MOST_UNKNOWN
    assert not made.is_clean


def test_counts_of_several_partitions_are_added(tmp_path: Path) -> None:
    """The first place is in the lowest partition, whatever is read first."""
    made = check(tmp_path, [row("t-value", 1)], {"t-0": [framed(1), framed(7)], "t-1": [framed(7), framed(7)]})
    (one,) = made.findings
    assert (one.id, one.records, one.place) == ("id-missing", 3, (0, 1))
    assert one.message == "id 7 is not in _schemas: 3 records, t-0 @ 1 and in other partitions"


def test_an_id_that_two_schemas_claim_names_both_and_what_fits(tmp_path: Path) -> None:
    rows = [row("u-value", 1, TEXT.format("U")), row("t-value", 1, TEXT.format("T"), offset=1)]
    made = check(tmp_path, rows, {"t-0": [framed(1)]})
    (one,) = [one for one in made.findings if one.severity == "damage"]
    assert one.id == "id-claimed-twice"
    assert one.message == "id 1 is claimed by two schemas: u-value 1, t-value 1 (t-value 1 fits all 1 record)"
    (tmp_path / "other").mkdir()
    (one,) = [one for one in check(tmp_path / "other", rows, {}).findings if one.severity == "damage"]
    assert one.message == "id 1 is claimed by two schemas: u-value 1, t-value 1 (used by no record)"


def test_a_broken_schema_that_no_record_uses_is_a_warning(tmp_path: Path) -> None:
    gone = row("a-value", 1, references=(SchemaReference("x.proto", "x", 3),))
    made = check(tmp_path, [gone, row("b-value", 2, "message {")], {})
    assert [(one.id, one.severity, one.subject) for one in made.findings if one.severity != "note"] == [
        ("reference-missing", "warning", "a-value"),
        ("schema-broken", "warning", "b-value"),
    ]


def test_a_deleted_version_whose_schema_lives_under_another_subject_is_no_finding(tmp_path: Path) -> None:
    """The registry still has the id."""
    rows = [row("t-value", 1, state="hard-deleted"), row("r", 1)]
    assert [one.id for one in check(tmp_path, rows, {"t-0": [framed(1)]}).findings] == ["no-schema-subject"]


def test_an_id_of_another_topic_is_noted(tmp_path: Path) -> None:
    made = check(tmp_path, [row("t-value", 1), row("u-value", 2)], {"t-0": [framed(1), framed(2)], "u-0": [framed(2)]})
    assert [(one.id, one.topic, one.schema_id) for one in made.findings] == [("subject-foreign", "t", 2)]


def test_messages_with_unknown_fields_alone_are_counted(tmp_path: Path) -> None:
    """Protobuf almost never fails: that is the one sign of a wrong schema."""
    made = check(tmp_path, [row("t-value", 1)], {"t-0": [framed(1), framed(1, b"\0\x10\5"), framed(1, b"\0")]})
    assert made.usage["t", "value"].ids[1].strangers == 1
    assert made.findings == []


def test_a_sample_decodes_one_record_in_so_many(tmp_path: Path) -> None:
    made = check(tmp_path, [row("t-value", 1), row("x", 2)], {"t-0": [framed(1)] * 64}, sample=16)
    assert made.usage["t", "value"].records == 4
    assert [one.message for one in made.findings] == ["x 1 is seen by none"]


def test_a_damaged_batch_is_said(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    content = bytearray(batch([Record(0, value=framed(1))]))
    content[-1] ^= 0xFF
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(content)
    logs = [Partition(str(tmp_path / "t-0"))]
    made = check_schemas(Registry("confluent", "x", []), logs, UsageOptions(), Threads(1), Silence())
    assert len(made.damage) == 1
    assert not made.is_clean


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"\3\0" + bytes(17), "glue"),
        (b"\3\5" + bytes(17), "glue"),
        (b"\3\0", "binary"),
        (b' {"a": 1}', "json"),
        (b"[1]", "json"),
        ("grün".encode(), "text"),
        (b"x" * 63 + "ü".encode(), "text"),
        (b"", "text"),
        (b"\xff\xfe", "binary"),
        (bytes(8), "binary"),
    ],
)
def test_the_form_of_an_unframed_value(content: bytes, kind: str) -> None:
    assert kind_of(content) == kind
