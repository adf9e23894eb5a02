"""`klog explain`: each id that any output has is explained, and as the pages of docs/ explain it."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from collections.abc import Callable, Iterator

import pytest
from klog.commands.audit.header_findings import HEADER_KINDS
from klog.commands.doctor.diagnosis import Fate
from klog.commands.remote.remote_findings import REMOTE_KINDS
from klog.commands.schemas.usage import INVALID_VALUE
from klog.commands.space.kept_reasons import Reason
from klog.commands.timeline.timeline_event import KINDS as EVENT_KINDS
from klog.partition.start import start_reasons
from klog.partition.verify.findings import KINDS
from klog.schemas.decoded import SCHEMA_BROKEN
from klog_cli.explanations import EVENTS, OUTCOMES, SCHEMAS, SEGMENTS
from klog_cli.views.explain import explanations

from tests.conftest import FIXTURES, Ran

Klog = Callable[..., Ran]
ROOT = FIXTURES.parent


def ids(command: str) -> set[str]:
    return {str(row["id"]) for row in explanations() if row["command"] == command}


def test_every_id_of_a_table_is_explained() -> None:
    assert ids("verify") == set(KINDS)
    assert ids("audit") == set(HEADER_KINDS)
    assert ids("remote verify") == set(REMOTE_KINDS)
    assert ids("doctor") == {*start_reasons.REASONS, *map(str, Fate)}
    assert ids("space") == set(map(str, Reason))
    assert ids("timeline") == set(EVENT_KINDS)


def ids_of(*kinds: str) -> Iterator[str]:
    """Yield the ids that the core gives to what is made by these names, as its source has them."""
    for path in (ROOT / "core" / "klog").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or not node.args:
                continue
            first = node.args[0]
            if node.func.id in kinds and isinstance(first, ast.Constant):
                yield str(first.value)


def test_every_id_of_a_note_is_explained() -> None:
    found = set(ids_of("StartNote", "StartFailure"))
    assert len(found) > 5
    assert found <= ids("doctor")


def test_every_finding_about_schemas_is_explained(klog: Klog) -> None:
    found = set(ids_of("SchemaFinding"))
    assert len(found) > 8
    assert {*found, INVALID_VALUE, SCHEMA_BROKEN, "reference-missing"} == ids("schemas check")
    assert klog("explain", "id-missing").stdout.decode().startswith("id-missing (damage)")


def rows_of(page: str, title: str) -> dict[str, tuple[str, ...]]:
    """Return the cells behind each id of the table below the line *title*."""
    found: dict[str, tuple[str, ...]] = {}
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(f"\n{title}")[2]
    for line in text.splitlines()[2:]:
        if not line.startswith("|"):
            break
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        found |= {name: tuple(cells) for name in re.findall(r"`([a-z-]+)`", first)}
    return found


def test_the_pages_have_the_same_sentences() -> None:
    assert rows_of("timeline.md", "| Kind |") == EVENTS
    assert rows_of("schemas.md", "| Finding |") == SCHEMAS
    assert rows_of("space.md", "| Reason |") == {name: (text,) for name, text in SEGMENTS.items()}
    assert rows_of("doctor.md", "| Outcome |") == {name: (text,) for name, text in OUTCOMES.items()}


def test_an_explanation_has_meaning_reaction_and_remedy(klog: Klog) -> None:
    done = klog("explain", "bad-crc")
    assert (done.exit_code, done.stderr) == (0, b"")
    lines = done.stdout.decode().splitlines()
    assert lines[:3] == [
        "bad-crc (damage)",
        "  found by: klog verify",
        "  meaning: a batch whose checksum does not match its bytes",
    ]
    assert "  remedy: klog recover PARTITION --salvage" in lines


def test_an_id_of_two_commands_has_both_meanings(klog: Klog) -> None:
    text = klog("explain", "retention-due").stdout.decode()
    assert [line for line in text.splitlines() if "found by" in line] == [
        "  found by: klog doctor",
        "  found by: klog space",
    ]


def test_without_an_id_all_are_listed(klog: Klog) -> None:
    lines = klog("explain").stdout.decode().splitlines()
    assert len(lines) == len(list(explanations()))
    assert {line.split()[0] for line in lines} == {row["id"] for row in explanations()}


def test_forms_have_the_same_rows(klog: Klog) -> None:
    rows = json.loads(klog("explain", "-o", "json").stdout)["explanations"]
    assert rows == list(explanations())
    assert [json.loads(line) for line in klog("explain", "-o", "jsonl").stdout.splitlines()] == rows
    table = csv.DictReader(io.StringIO(klog("explain", "-o", "csv").stdout.decode()))
    assert [row["id"] for row in table] == [row["id"] for row in rows]


@pytest.mark.parametrize(
    ("word", "says"), [("bad-crx", "did you mean bad-crc"), ("nothing-like-it", "klog explain lists them")]
)
def test_an_unknown_id_is_16(klog: Klog, word: str, says: str) -> None:
    done = klog("explain", word)
    assert (done.exit_code, done.stdout) == (16, b"")
    assert says in done.stderr.decode()
