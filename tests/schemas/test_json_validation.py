"""Values of JSON Schemas are validated in bounded time, whatever a schema is."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from klog.schemas.json_validation import JsonValidator

from tests.conftest import run_klog
from tests.oracles.plain.encode import Record
from tests.schemas.small_registry import make

ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "lines": {"type": "array", "items": {"$ref": "line.json"}}},
    "required": ["id"],
}
LINE = {"type": "object", "properties": {"sku": {"pattern": "^sku-"}}}


def validator(schema: Any, **references: Any) -> JsonValidator:
    named = {name.replace("_", "."): json.dumps(one) for name, one in references.items()}
    return JsonValidator(json.dumps(schema), named, seconds=0.3)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"id": 1}, None),
        ({"id": 1, "lines": [{"sku": "sku-1"}]}, None),
        ({"id": "1"}, "value.id: type integer"),
        ({}, "value: required"),
        ({"id": 1, "lines": [{"sku": "sku-1"}, {"sku": "x"}]}, "value.lines[1].sku: pattern ^sku-"),
        ([], "value: type object"),
    ],
)
def test_values_are_validated_with_references(value: Any, problem: str | None) -> None:
    """A reference is found by its name, also behind the base of the schema's own id."""
    assert validator(ORDER, line_json=LINE).problem(json.dumps(value)) == problem
    based = ORDER | {"$id": "https://shop.example/schemas/order.json"}
    assert validator(based, line_json=LINE).problem(json.dumps(value)) == problem


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        (True, 1, True),
        (False, 1, False),
        ({"items": [{"type": "string"}]}, [1], False),  # draft 7, which a registry takes without $schema
        ({"$schema": "https://json-schema.org/draft/2020-12/schema", "prefixItems": [{"type": "string"}]}, [1], False),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 5, "exclusiveMinimum": True}, 5, False),
        ({"$ref": "http://json-schema.org/draft-07/schema#"}, {"type": 7}, False),
        ({"$ref": "http://json-schema.org/draft-07/schema#"}, {"type": "integer"}, True),
        ({"const": 10**400}, 10**400, True),
    ],
)
def test_drafts_have_their_own_rules(schema: Any, value: Any, valid: bool) -> None:
    found = validator(schema)
    assert (found.problem(json.dumps(value)) is None) is valid
    assert found.gave_up is None


def doubling(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {f"d{i}": {"allOf": [{"$ref": f"#/definitions/d{i + 1}"}] * 2} for i in range(levels)}
    return {"definitions": definitions | {f"d{levels}": {}}, "$ref": "#/definitions/d0"}


A = {"$ref": "#/definitions/a"}
HOSTILE: dict[str, tuple[Any, Any]] = {
    "a regular expression": ({"pattern": "^(a|a)*$"}, "a" * 40 + "b"),
    "nested quantifiers": ({"pattern": "^(([a-z])+.)+[A-Z]([a-z])+$"}, "a" * 60),
    "a name's expression": ({"patternProperties": {"^(a+)+$": {}}}, {"a" * 40 + "b": 1}),
    "doubling": (doubling(40), 1),
    "a reference to itself": ({"$ref": "#"}, 1),
    "a circle": ({"definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}}} | A, 1),
    "another host": ({"$ref": "http://127.0.0.1:9/schema.json"}, 1),
    "a file": ({"$ref": "file:///etc/passwd"}, 1),
    "a missing name": ({"$ref": "no.json"}, 1),
    "no type": ({"type": "no such type"}, 1),
    "no expression": ({"pattern": "("}, "x"),
    "a wrong keyword": ({"properties": 7}, {"a": 1}),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_schema_gives_up_in_bounded_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is fetched, nothing hangs, and the next value costs nothing."""

    def connect(*_: object) -> None:
        pytest.fail("it has asked for a connection", pytrace=False)

    monkeypatch.setattr(socket.socket, "connect", connect)
    schema, value = HOSTILE[name]
    found = validator(schema)
    before = time.process_time()
    assert found.problem(json.dumps(value)) is None
    assert time.process_time() - before < 5
    assert found.gave_up
    before = time.process_time()
    assert found.problem(json.dumps(value)) is None
    assert time.process_time() - before < 0.05


def test_the_timer_ends_with_the_value() -> None:
    """A later computation is not interrupted."""
    found = validator({"type": "integer"})
    assert found.problem("1") is None
    end = time.process_time() + 0.6
    while time.process_time() < end:
        pass
    assert found.gave_up is None


def test_threads_validate_without_a_timer() -> None:
    """Signals are for the main thread; a library's own threads get the same answers."""
    answers: list[str | None] = []
    thread = threading.Thread(target=lambda: answers.append(validator(ORDER, line_json=LINE).problem("{}")))
    thread.start()
    thread.join()
    assert answers == ["value: required"]


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_the_check_counts_values_that_contradict_their_schema(tmp_path: Path, jobs: str) -> None:
    """A warning each for invalid values and for a schema that validates none; without --validate there is neither."""
    slow = {"title": "slow", "pattern": "^(a|a)*$"}
    values = [(1, {"id": 1}), (1, {"id": "x"}), (1, {"no": 1}), (2, "a" * 40 + "b"), (2, "aa")]
    records = [
        Record(i, value=b"\0" + n.to_bytes(4, "big") + json.dumps(v).encode()) for i, (n, v) in enumerate(values)
    ]
    order = {name: one for name, one in ORDER.items() if name != "properties"} | {
        "properties": {"id": {"type": "integer"}}
    }
    make(tmp_path, [("orders-value", 1, 1, json.dumps(order)), ("slow", 1, 2, json.dumps(slow))], records, kind="JSON")
    words = ("schemas", "check", tmp_path, "--output", "json", "--jobs", jobs)
    plain = json.loads(run_klog(*words).stdout)
    assert not [one for one in plain["findings"] if one["severity"] != "note"]
    done = run_klog(*words, "--validate")
    assert done.exit_code == 4
    found = json.loads(done.stdout)
    told = {one["id"]: one for one in found["findings"] if one["severity"] == "warning"}
    assert told.keys() == {"invalid-value", "not-validated"}
    invalid = told["invalid-value"]
    assert (invalid["records"], invalid["offset"], invalid["schema_id"]) == (2, 1, 1)
    assert "2 values of 3 contradict id 1, orders-value 1 (value.id: type integer)" in invalid["message"]
    assert "are not validated: it takes too long" in told["not-validated"]["message"]
    (values_side,) = [one for one in found["topics"] if one["side"] == "value"]
    assert (values_side["decoded"], values_side["ids"]["1"]["errors"]) == (5, {"invalid-value": 2})
