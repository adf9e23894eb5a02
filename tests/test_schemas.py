"""The schemas in docs/schemas are what `--output json` prints: no field missing, none of another type, none untold."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.conftest import FIXTURES, ROOT, run_klog
from tools import json_fields
from tools.command_line import read

SPLIT = "replicas/split/broker-1 replicas/split/broker-2 replicas/split/broker-3"
RUNS = [
    *("verify modern", "verify crash/flip-middle", "verify legacy", "verify --deep v39/data v39/data1"),
    *("audit modern", "audit crash/torn-in-batch", "audit misrouted modern", "audit misrouted replicas/keys/broker-1"),
    *("describe modern", "describe legacy", "describe modern/plain-1", "describe modern/empty-0"),
    *("describe crash/flip-middle/torn-0", "describe compaction/after", "describe compaction/after/tx-later-0"),
    *("lookup modern/idempotent-0 --offset 202", "lookup modern/idempotent-0 --offset 99999"),
    *("lookup crash/flip-middle/torn-0 --offset 302", "lookup legacy/v0-none-0 --offset 3"),
    *("lookup modern/idempotent-0 --timestamp 2025-06-15T15:06:42Z", "lookup modern/tx-0 --offset 5"),
    *("lookup modern/idempotent-0 --timestamp 2035-06-15T15:06:42Z", "lookup modern/empty-0 --offset 0"),
    *("lookup modern/trimmed-0 --offset 1", "lookup compaction/after/keys-none-0 --offset 0"),
    *("transactions modern", "transactions crash/flip-middle", "transactions compaction/before"),
    *("doctor modern", "doctor crash/flip-middle", "doctor v39/data v39/data1", "doctor --version 2.8 legacy"),
    *("doctor --records replicas/keys/broker-1", "doctor --node-id 99 modern"),
    *("fetch modern/plain-1 --offset 5", "fetch modern/tx-0 --offset 0 --isolation read_committed"),
    *("fetch modern/plain-1 --offset 5 --max-bytes 100", "fetch modern/plain-1 --offset 99999"),
    *("keys check replicas/keys/broker-1", "keys check modern"),
    *("groups modern", "groups modern --at 2026-11-21T10:20:02Z", "stats modern", "stats legacy crash/flip-middle"),
    f"replicas diff {SPLIT} --metadata replicas/split/controller-4",
    f"replicas diff {SPLIT} --metadata replicas/split/controller-4 --up 1",
    f"replicas diff {SPLIT.replace('split', 'behind')}",
]


def command_of(run: str) -> str:
    """Return the command in *run*: of one word or of two."""
    words = run.split()
    return max((name for name in (words[0], " ".join(words[:2])) if name in json_fields.SCHEMAS), key=len)


def faults(command: str, printed: Any) -> list[str]:
    """Return what a strict reader of *command*'s schema says about *printed*."""
    strict = Draft202012Validator(json_fields.schema(json_fields.SCHEMAS[command], only_these=True))
    return [f"{error.json_path}: {error.message[:200]}" for error in strict.iter_errors(printed)]


@pytest.mark.parametrize("run", RUNS)
def test_what_is_printed_is_what_the_schema_says(run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who writes a script reads the schema, not klog's source."""
    monkeypatch.chdir(FIXTURES)
    done = run_klog(*shlex.split(run), "--output", "json")
    assert done.exit_code in (0, 4), done.stderr
    assert faults(command_of(run), json.loads(done.stdout)) == []


def test_each_schema_is_held_against_an_output() -> None:
    """One that nothing is held against may say anything."""
    assert {command_of(run) for run in RUNS} == set(json_fields.SCHEMAS)
    assert set(json_fields.SCHEMAS) <= {command.name for command in read().walk()}


@pytest.mark.parametrize("command", json_fields.SCHEMAS)
def test_the_files_are_those_of_the_declarations(command: str) -> None:
    """`make completions` mends a file from yesterday."""
    text = (ROOT / "docs/schemas" / json_fields.file_of(command)).read_text(encoding="utf-8")
    assert text == json_fields.text(command)
    Draft202012Validator.check_schema(json.loads(text))


@pytest.mark.parametrize("change", ["missing", "type", "untold", "word"])
def test_another_output_is_refused(change: str) -> None:
    """Were it not, the tests above could not fail."""
    finding = {name.removesuffix("?"): None for name in json_fields.FINDING}
    finding |= {"id": "bad-crc", "severity": "damage", "message": "CRC", "topic_id": None, "count": 1}
    printed: dict[str, Any] = {"partitions": 1, "segments": 1, "bytes": 9, "batches": 1, "records": 1}
    assert faults("verify", {**printed, "findings": [finding]}) == []
    changed: dict[str, dict[str, Any]] = {
        "missing": {name: value for name, value in finding.items() if name != "offset"},
        "type": {**finding, "offset": "1844"},
        "untold": {**finding, "offsets": 1},
        "word": {**finding, "severity": "fatal"},
    }
    assert len(faults("verify", {**printed, "findings": [changed[change]]})) == 1
