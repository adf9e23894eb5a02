"""`klog schemas export`: a registry that is made anew gives the answers of the lost one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from tests.conftest import Ran, run_klog
from tests.schemas.corpus import REGISTRIES, Image, data, truth

LIVE = ("live", "deleted")


def export(path: Path, *words: str | Path) -> Ran:
    return run_klog("schemas", "export", path, "--to", "-", *words)


def lines(done: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.stdout.splitlines()]


def answers(path: Path, *words: str) -> dict[str, Any]:
    """Return the rows, settings and contexts of a registry, without the places of its records."""
    found: dict[str, Any] = json.loads(
        run_klog("schemas", "list", path, "--deleted", *words, "--output", "json").stdout
    )
    rows = [row for row in found["schemas"] if row["state"] in LIVE]
    for row in rows:
        del row["offset"], row["timestamp"]
    return {"schemas": rows, "config": found["config"], "mode": found["mode"], "contexts": found["contexts"]}


def written(folder: Path, content: bytes) -> Path:
    """Make a new log dir of exported records."""
    (folder / "records.jsonl").write_bytes(content)
    done = run_klog("write", folder / "records.jsonl", "--to", folder / "new")
    assert done.exit_code == 0, done.stderr
    return folder / "new"


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_a_new_topic_of_the_records_gives_the_same_answers(image: Image, name: str, tmp_path: Path) -> None:
    """Ids, versions, GUIDs, texts, settings, contexts, deletions; and all values decode as before."""
    path = data(image, name)
    done = export(path)
    assert done.exit_code == (0 if name == "apicurio" else 4)
    new = written(tmp_path, done.stdout)
    assert answers(new) == answers(path)
    known = {row["guid"]: row for row in answers(path)["schemas"]}
    for one in truth(name)["schemas"]:
        if one["state"] in LIVE and one.get("guid"):
            shown = json.loads(run_klog("schemas", "show", new, "--guid", one["guid"], "--output", "json").stdout)
            assert (shown["schema"], shown["id"]) == (one["text"], one["id"])
            assert one["guid"] in known
    topic = truth(name)["topics"]["evolved"]
    decoded = [
        run_klog("dump", path, "-t", topic, "--output", "jsonl", "--schemas", schemas).stdout for schemas in (path, new)
    ]
    assert decoded[0] == decoded[1] != b""
    if name != "apicurio":
        again = export(new)
        keys = [(line["key"], line["value"]) for line in lines(done)]
        assert [(line["key"], line["value"]) for line in lines(again)] == keys


@pytest.mark.corpora
def test_records_are_as_they_are_stored_and_no_more_than_the_state(image: Image) -> None:
    """No tombstones, no former versions, no signs of life; each line is that of a dump."""
    path = data(image, "karapace")
    dumped = run_klog("dump", path / "_schemas-0", "--output", "jsonl").stdout.splitlines()
    stored = {(one["timestamp"], one["key"], one["value"]): one for one in map(json.loads, dumped)}
    found = lines(export(path))
    for line in found:
        own = stored[line["timestamp"], line["key"], line["value"]]
        assert {name: one for name, one in line.items() if name != "offset"} == {
            name: own[name] for name in line if name != "offset"
        }
        assert line["value"] is not None
    assert len({line["key"] for line in found}) == len(found)
    kinds = {json.loads(line["key"])["keytype"] for line in found}
    assert "NOOP" not in kinds
    assert {"SCHEMA"} <= kinds


# requests


class Registry:
    """A registry in mode IMPORT, as Confluent's takes requests: what it would refuse fails."""

    def __init__(self) -> None:
        self.modes: dict[str, str] = {}
        self.configs: dict[str, Any] = {}
        self.versions: dict[tuple[str, int], dict[str, Any]] = {}
        self.deleted: set[tuple[str, int]] = set()

    def take(self, method: str, path: str, body: Any) -> None:
        path, _, query = path.partition("?")
        place, *names = [unquote(part) for part in path[1:].split("/")]
        assert all(":" not in part for part in path.split("/")), path
        subject = names[0] if names else ""
        if place == "mode":
            self._mode(method, subject, body, query)
        elif place == "config":
            assert method == "PUT"
            assert "compatibilityLevel" not in body
            self.configs[subject] = body
        elif method == "DELETE":
            self._delete(subject, int(names[2]))
        else:
            assert (method, place, names[1:]) == ("POST", "subjects", ["versions"])
            self._register(subject, body)

    def _mode(self, method: str, subject: str, body: Any, query: str) -> None:
        if method == "DELETE":
            del self.modes[subject]
            return
        if body["mode"] == "IMPORT" and query != "force=true":
            assert not any(self.context(one) == self.context(subject) for one, _ in self.versions), "subjects exist"
        self.modes[subject] = body["mode"]

    @staticmethod
    def context(subject: str) -> str:
        return subject[1:].partition(":")[0] if subject.startswith(":.") else "."

    def _register(self, subject: str, body: dict[str, Any]) -> None:
        context = self.context(subject)
        assert self.modes.get("" if context == "." else f":{context}:") == "IMPORT", f"{subject} is not in import mode"
        assert (subject, body["version"]) not in self.versions
        for (other, _), one in self.versions.items():
            if self.context(other) == context and one["id"] == body["id"]:
                assert (one["schema"], one.get("references")) == (body["schema"], body.get("references")), "overwrite"
        for one in body.get("references", ()):
            name = (
                one["subject"] if context == "." or one["subject"].startswith(":.") else f":{context}:{one['subject']}"
            )
            assert (name, one["version"]) in self.versions, f"no reference {one}"
        self.versions[subject, body["version"]] = body

    def _delete(self, subject: str, version: int) -> None:
        for place, body in self.versions.items():
            if place not in self.deleted:
                for one in body.get("references", ()):
                    assert (one["subject"], one["version"]) != (subject, version), "referenced"
        assert (subject, version) in self.versions
        self.deleted.add((subject, version))


def replayed(done: Ran) -> Registry:
    registry = Registry()
    for line in lines(done):
        assert list(line) == ["method", "path", "body"]
        registry.take(line["method"], line["path"], line["body"])
    return registry


@pytest.mark.corpora
@pytest.mark.parametrize("name", REGISTRIES)
def test_a_registry_in_import_mode_takes_the_requests(image: Image, name: str) -> None:
    """In this order, without a refusal; afterwards it has all versions that can be read, and its modes as they were."""
    path = data(image, name)
    done = export(path, "--output", "requests")
    found, right = replayed(done), answers(path)
    losers = {("twice-loser", 0)}
    if name != "apicurio":
        twice = [row for row in right["schemas"] if row["id"] == truth(name)["twice"]["id"]]
        kept = {(row["subject"], row["version"]) for row in twice} & found.versions.keys()
        assert len(kept) == 1
        losers = {(row["subject"], row["version"]) for row in twice} - kept
        assert f"id {twice[0]['id']} is claimed by 2 schemas".encode() in done.stderr
    expected = {(row["subject"], row["version"]): row for row in right["schemas"] if row["error"] is None}
    assert found.versions.keys() == expected.keys() - losers
    for place, body in found.versions.items():
        assert (body["id"], body["schemaType"]) == (expected[place]["id"], expected[place]["type"])
    assert found.deleted == {place for place, row in expected.items() if row["deleted"]} - losers
    assert found.modes.pop("") == right["mode"].get("", {"mode": "READWRITE"})["mode"]
    assert found.modes == {subject: one["mode"] for subject, one in right["mode"].items() if subject}
    levels = {subject: one.get("compatibility") for subject, one in found.configs.items()}
    assert levels == {subject: one.get("compatibilityLevel") for subject, one in right["config"].items()}
    broken = [row for row in right["schemas"] if row["error"] is not None]
    assert done.stderr.count(b" is left out: ") == len(broken)
    assert done.exit_code == (4 if broken or name != "apicurio" else 0)


@pytest.mark.corpora
def test_metadata_makes_the_guid(image: Image) -> None:
    """Without its metadata a schema gets another GUID, and records that name the GUID are lost."""
    stored = [json.loads(line["value"]) for line in lines(export(data(image, "confluent")))]
    more = {(one["subject"], one["version"]): one["metadata"] for one in stored if one.get("metadata")}
    requests = lines(export(data(image, "confluent"), "--output", "requests"))
    bodies = {
        (unquote(one["path"]).split("/")[2], one["body"]["version"]): one["body"]
        for one in requests
        if one["method"] == "POST"
    }
    assert more
    assert {place: body["metadata"] for place, body in bodies.items() if "metadata" in body} == more


# small registries


def registry(folder: Path, *stored: tuple[dict[str, Any], Any]) -> Path:
    path = folder / "schemas.jsonl"
    records = [{"key": json.dumps(key), "value": None if value is None else json.dumps(value)} for key, value in stored]
    path.write_text("".join(f"{json.dumps(one)}\n" for one in records))
    return path


def schema(subject: str, version: int, number: int, text: str = '"int"', **more: Any) -> tuple[dict[str, Any], Any]:
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    return key, {"subject": subject, "version": version, "id": number, "schema": text, **more}


def gone(subject: str, version: int) -> tuple[dict[str, Any], Any]:
    return schema(subject, version, 0)[0], None


def refers(subject: str, version: int) -> list[dict[str, Any]]:
    return [{"name": subject, "subject": subject, "version": version}]


def deleted(subject: str, version: int) -> tuple[dict[str, Any], Any]:
    return {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}, {"subject": subject, "version": version}


def places(done: Ran) -> list[tuple[str, int]]:
    keys = [json.loads(line["key"]) for line in lines(done)]
    return [(key["subject"], key["version"]) for key in keys if key["keytype"] == "SCHEMA"]


def test_a_part_of_a_registry_has_all_that_it_needs(tmp_path: Path) -> None:
    """References are exported with what refers to them; settings of other subjects are not."""
    path = registry(
        tmp_path,
        schema("base", 1, 1),
        schema("b", 1, 2, '"long"', references=refers("base", 1)),
        schema("c", 1, 3, '"x"'),
        ({"keytype": "CONFIG", "subject": "b"}, {"compatibilityLevel": "FULL"}),
        ({"keytype": "CONFIG"}, {"compatibilityLevel": "NONE"}),
        schema(":.eu:b", 1, 1, '"float"'),
        ({"keytype": "CONTEXT", "context": ".eu"}, {"context": ".eu"}),
    )
    done = export(path, "--subject", "b")
    assert places(done) == [("base", 1), ("b", 1), (":.eu:b", 1)]
    assert b"base 1 is exported as well: a chosen schema refers to it" in done.stderr
    assert [one["key"] for one in lines(done) if "CONFIG" in one["key"]] == ['{"keytype": "CONFIG", "subject": "b"}']
    eu = export(path, "--context", ".eu")
    assert [json.loads(one["key"])["keytype"] for one in lines(eu)] == ["SCHEMA", "CONTEXT"]
    assert export(path, "--subject", "nothing").exit_code == 4


def test_deletions_and_what_compaction_has_not_removed(tmp_path: Path) -> None:
    """Soft-deleted ones stay soft-deleted, hard-deleted ones come back where they are asked for."""
    path = registry(
        tmp_path,
        schema("a", 1, 1),
        schema("a", 2, 2, '"long"'),
        deleted("a", 2),
        schema("a", 3, 3, '"float"'),
        schema("b", 1, 4, '"bytes"'),
        schema("b", 1, 4, '"bytes"', deleted=True),
        gone("b", 1),
        schema("c", 1, 5, '"null"'),
        gone("c", 1),
        schema("c", 1, 6, '"boolean"'),
    )
    every = export(path)
    assert (every.exit_code, places(every)) == (0, [("a", 1), ("a", 2), ("a", 3), ("c", 1)])
    assert answers(written(tmp_path, every.stdout)) == answers(path)
    assert places(export(path, "--no-deleted")) == [("a", 3), ("c", 1)]
    hard = export(path, "--hard-deleted")
    assert places(hard) == [("a", 1), ("a", 2), ("a", 3), ("b", 1), ("c", 1)]
    (tmp_path / "hard").mkdir()
    assert {row["id"]: row["state"] for row in answers(written(tmp_path / "hard", hard.stdout))["schemas"]} == {
        1: "deleted",
        2: "deleted",
        3: "live",
        4: "deleted",
        6: "live",
    }
    methods = [(one["method"], one["path"]) for one in lines(export(path, "--output", "requests"))]
    assert methods[0] == ("PUT", "/mode")
    assert methods[-3:] == [
        ("DELETE", "/subjects/a/versions/2"),
        ("DELETE", "/subjects/a/versions/1"),
        ("PUT", "/mode"),
    ]


@pytest.mark.parametrize("by", ["version", "subject"])
def test_a_deleted_schema_that_a_live_one_refers_to_is_exported(tmp_path: Path, by: str) -> None:
    """Without it no registry loads the export; it stays deleted, and other deleted ones stay away."""
    removal = deleted("base", 1) if by == "subject" else schema("base", 1, 1, deleted=True)
    path = registry(
        tmp_path,
        schema("base", 1, 1),
        schema("b", 1, 2, '"long"', references=refers("base", 1)),
        removal,
        schema("old", 1, 3, '"float"', deleted=True),
    )
    done = export(path, "--no-deleted")
    assert (done.exit_code, sorted(places(done))) == (0, [("b", 1), ("base", 1)])
    assert b"base 1 is exported as well: a chosen schema refers to it" in done.stderr
    shown = answers(written(tmp_path, done.stdout))["schemas"]
    assert {row["subject"]: (row["state"], row["error"]) for row in shown} == {
        "b": ("live", None),
        "base": ("deleted", None),
    }
    requests = [(one["method"], one["path"]) for one in lines(export(path, "--no-deleted", "--output", "requests"))]
    assert [one for one in requests if "/subjects/" in one[1]] == [
        ("POST", "/subjects/base/versions"),
        ("POST", "/subjects/b/versions"),
        ("DELETE", "/subjects/base/versions/1"),
    ]


@pytest.mark.parametrize("form", ["records", "files"])
def test_a_schema_that_refers_to_a_hard_deleted_one_is_told(tmp_path: Path, form: str) -> None:
    path = registry(
        tmp_path, schema("base", 1, 1), schema("b", 1, 2, '"long"', references=refers("base", 1)), gone("base", 1)
    )
    to = ("--to", tmp_path / "out", "--output", form)
    done = run_klog("schemas", "export", path, *to)
    assert done.exit_code == 4
    assert b"b 1 refers to base 1, which is hard-deleted: --hard-deleted exports it" in done.stderr
    assert export(path, "--hard-deleted").exit_code == 0


def test_references_in_any_order_come_first(tmp_path: Path) -> None:
    """A version that was registered again has a later record than those that refer to it."""
    path = registry(
        tmp_path,
        schema(
            "top",
            1,
            3,
            '{"type":"record","name":"T","fields":[{"name":"m","type":"mid"}]}',
            references=refers("mid", 1),
        ),
        schema("mid", 1, 2, '{"type":"enum","name":"mid","symbols":["x"]}', references=refers("z", 2)),
        schema("lost", 1, 9, '"x"', references=refers("no", 1)),
        schema("onlost", 1, 10, '"int"', references=refers("lost", 1)),
        schema("z", 2, 1, '"long"'),
        schema("z", 1, 4, '"string"'),
        schema("a/b é:c", 1, 5, '"double"'),
    )
    done = export(path, "--output", "requests")
    assert done.exit_code == 4
    posted = [(one["path"], one["body"]["id"]) for one in lines(done) if one["method"] == "POST"]
    assert ("/subjects/a%2Fb%20%C3%A9%3Ac/versions", 5) in posted
    ids = [number for _, number in posted]
    assert ids.index(1) < ids.index(2) < ids.index(3)
    assert set(ids) == {1, 2, 3, 4, 5}
    assert b"lost 1, id 9, is left out: no no version 1" in done.stderr
    assert b"onlost 1, id 10, is left out: no no version 1" in done.stderr
    replayed(done)


def test_the_claimant_of_an_id_is_chosen(tmp_path: Path) -> None:
    """Without data the first in the log, as a registry; records have both, the one that keeps the id in front."""
    path = registry(tmp_path, schema("a", 1, 7), schema("b", 1, 7, '"string"'), schema("c", 1, 7, '"string"'))
    first = export(path, "--output", "requests")
    assert [one["path"] for one in lines(first) if one["method"] == "POST"] == ["/subjects/a/versions"]
    assert b"id 7 is claimed by 2 schemas: a 1 keeps it (the first in the log, as a registry" in first.stderr
    assert b"b 1, c 1 are left out" in first.stderr
    chosen = export(path, "--output", "requests", "--choose", "7=c:1")
    assert [one["path"] for one in lines(chosen) if one["method"] == "POST"] == [
        "/subjects/b/versions",
        "/subjects/c/versions",
    ]
    records = export(path, "--choose", "7=b:1")
    assert records.exit_code == 4
    assert places(records) == [("b", 1), ("c", 1), ("a", 1)]
    assert [one["offset"] for one in lines(records)] == [0, 1, 2]
    for word, said in (
        ("7=x:1", "its claimants are a:1, b:1, c:1"),
        ("8=a:1", "no two schemas claim"),
        ("7", "expected an id"),
    ):
        refused = export(path, "--choose", word)
        assert (refused.exit_code, refused.stdout) == (16, b"")
        assert said in refused.stderr.decode()


@pytest.mark.corpora
def test_the_claimant_that_fits_more_records_keeps_the_id(image: Image) -> None:
    """The data decides, as the check counts it."""
    done = export(data(image, "confluent"), "--output", "requests")
    number = truth("confluent")["twice"]["id"]
    right = [
        one for one in truth("confluent")["records"] if one["value"].get("id") == number and not one["value"]["error"]
    ]
    counts: dict[str, int] = {}
    for one in right:
        counts[one["value"]["subject"]] = counts.get(one["value"]["subject"], 0) + 1
    line = next(line for line in done.stderr.decode().splitlines() if f"id {number} is claimed" in line)
    most = max(counts.values())
    assert any(
        f"{subject} 1 keeps it (it fits {count} of " in line for subject, count in counts.items() if count == most
    ), line


def test_files_are_a_folder_with_an_index(tmp_path: Path) -> None:
    """Names are escaped as in a URL; odd ones stay inside of the folder."""
    proto = 'syntax = "proto3"; message M { int32 a = 1; }'
    path = registry(
        tmp_path,
        schema("orders-value", 1, 1),
        schema("orders-value", 2, 2, '"long"', deleted=True),
        schema("../up", 1, 3, proto, schemaType="PROTOBUF"),
        schema("..", 1, 4, "{}", schemaType="JSON"),
        schema("x" * 60_000, 1, 5, '"float"'),
        schema("a b:é", 7, 6, "{"),
        schema("u", 1, 8, "?", schemaType="XML"),
    )
    folder = tmp_path / "out"
    done = run_klog("schemas", "export", path, "--to", folder, "--output", "files")
    assert done.exit_code == 0
    assert f"wrote {folder} (7 schemas)".encode() in done.stderr
    index = json.loads((folder / "index.json").read_text())
    listed = json.loads(run_klog("schemas", "list", path, "--deleted", "--output", "json").stdout)["schemas"]
    assert [{name: one for name, one in row.items() if name != "file"} for row in index] == listed
    names = {row["subject"]: row["file"] for row in index}
    assert names["../up"] == "..%2Fup/1.proto"
    assert names[".."] == "%2E%2E/1.json"
    assert names["a b:é"] == "a%20b%3A%C3%A9/7.avsc"
    assert names["u"] == "u/1.txt"
    texts = {row["id"]: (folder / row["file"]).read_text() for row in index}
    assert texts == {1: '"int"', 2: '"long"', 3: proto, 4: "{}", 5: '"float"', 6: "{", 8: "?"}
    files = {str(one.relative_to(folder)) for one in folder.rglob("*") if one.is_file()}
    assert files == {*(row["file"] for row in index), "index.json"}
    assert run_klog("schemas", "export", path, "--to", folder, "--output", "files").exit_code == 16
    assert export(path, "--output", "files").exit_code == 16


def test_a_file_is_written_whole_and_bytes_survive(tmp_path: Path) -> None:
    """Values that are no UTF-8 are no schemas; headers stay; the file is one for `schemas list`."""
    line = {
        "key": json.dumps(schema("a", 1, 1)[0]),
        "value": json.dumps(schema("a", 1, 1)[1]),
        "headers": [["h", None], ["b", {"base64": "/w=="}]],
    }
    path = tmp_path / "in.jsonl"
    path.write_text(json.dumps(line | {"offset": 5, "timestamp": 77}) + "\n")
    out = tmp_path / "out.jsonl"
    done = run_klog("schemas", "export", path, "--to", out)
    assert (done.exit_code, done.stdout) == (0, b"")
    assert json.loads(out.read_text()) == {"offset": 5, "timestamp": 77, **line, "partition": 0, "topic": "_schemas"}
    assert answers(out) == answers(path)


def nested(levels: int) -> str:
    return '{"type":"array","items":' * levels + '"int"' + "}" * levels


HOSTILE = {
    "large": json.dumps({"type": "enum", "name": "E", "symbols": [f"s{i}" for i in range(200_000)]}),
    "deep": nested(10_000),
    "recursive": '{"type":"record","name":"R","fields":[{"name":"r","type":"R"}]}',
    "wide": json.dumps(
        {"type": "record", "name": "W", "fields": [{"name": f"f{i}", "type": "int"} for i in range(30_000)]}
    ),
    "long name": json.dumps({"type": "enum", "name": "N" * 60_000, "symbols": ["x"]}),
    "no symbols": '{"type":"enum","name":"E","symbols":[]}',
    "half a pair": '{"type":"enum","name":"E","symbols":["a"],"doc":"\ud800"}',
}


@pytest.mark.parametrize("form", ["records", "requests", "files"])
def test_hostile_schemas_are_exported_or_left_out(form: str, tmp_path: Path) -> None:
    """Each in bounded time, with its reason; circles of references, names with control characters and half pairs."""
    versions = [schema(name, 1, number, text) for number, (name, text) in enumerate(HOSTILE.items(), 1)]
    circle = [schema("a", 1, 20, references=refers("b", 1)), schema("b", 1, 21, references=refers("a", 1))]
    own = schema("self", 1, 22, references=refers("self", 1))
    odd = [schema("x\x1b[31m\n\0\ud800", 1, 23), schema("\u202e", 2**31 - 1, 2**31 - 1), schema("", 1, 24)]
    path = registry(tmp_path, *versions, *circle, own, *odd)
    before = time.process_time()
    done = run_klog("schemas", "export", path, "--to", tmp_path / "out", "--output", form)
    assert time.process_time() - before < 30
    assert done.exit_code == (4 if form == "requests" else 0), done.stderr
    assert b"\x1b" not in done.stderr
    assert b"a bug in klog" not in done.stderr
    if form == "requests":
        left_out = [line for line in done.stderr.decode().splitlines() if " is left out: " in line]
        assert {line.split()[1] for line in left_out} >= {"a", "b", "self", "deep", "recursive"}
    elif form == "records":
        assert len((tmp_path / "out").read_bytes().splitlines()) == len(versions) + 6
    else:
        assert len(json.loads((tmp_path / "out/index.json").read_text())) == len(versions) + 6
