"""docs/dump-differences.md holds: if Kafka's dump tool dies, klog prints the same until then, names the reason, and
continues."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.brokers import kafka
from tests.conftest import FIXTURES, ROOT, Ran
from tests.oracles.dump_deaths import DEATHS, Death

DOCUMENT = ROOT / "docs" / "dump-differences.md"
USAGE = 16
HEALTHY = FIXTURES / "modern/plain-2/00000000000000000000.log"


@dataclass(frozen=True)
class Row:
    """A line of the document's table."""

    title: str
    flags: str
    kafka: str
    klog: str
    exit_code: int


def table() -> dict[str, Row]:
    rows = {}
    for line in DOCUMENT.read_text().splitlines():
        cells = [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 5 and cells[4].isdigit():
            rows[cells[0]] = Row(cells[0], cells[1], cells[2], cells[3], int(cells[4]))
    return rows


TABLE = table()
BY_TITLE = {death.title: death for death in DEATHS}


def short(text: str, folder: Path) -> str:
    """Return *text* as the document has it: file names without their folder, exceptions without their package."""
    first, colon, rest = text.replace(f"{folder}/", "").partition(": ")
    return first.rsplit(".", 1)[-1] + colon + rest if first.startswith(("java.", "org.")) else first + colon + rest


def test_the_document_lists_every_case() -> None:
    """A case without a line is not tested below, a line without a case is not true."""
    assert [(row.title, row.flags) for row in TABLE.values()] == [(d.title, " ".join(d.flags)) for d in DEATHS]


@pytest.mark.parametrize("title", BY_TITLE)
def test_klog_says_what_the_document_says(title: str, klog: Callable[..., Ran], tmp_path: Path) -> None:
    """One line on stderr, the exit code, and nothing written."""
    death, row = BY_TITLE[title], TABLE[title]
    path = death.make(tmp_path)
    before = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    ran = klog("dump", "--files", path, *death.flags)
    said = re.escape(row.klog).replace("…", ".*") + "\n"
    assert re.fullmatch(said, short(ran.stderr.decode(), tmp_path)), ran.stderr.decode()
    assert ran.exit_code == row.exit_code
    assert {file.name: file.stat().st_size for file in tmp_path.iterdir()} == before


@pytest.mark.parametrize("title", BY_TITLE)
def test_klog_goes_on_with_the_next_file(title: str, klog: Callable[..., Ran], tmp_path: Path) -> None:
    """An operator dumps a directory: one bad file must not hide the others."""
    death = BY_TITLE[title]
    path = death.make(tmp_path)
    alone, healthy = klog("dump", "--files", path, *death.flags), klog("dump", "--files", HEALTHY, *death.flags)
    both = klog("dump", "--files", f"{path},{HEALTHY}", *death.flags)
    if "--offsets-decoder" not in death.flags:  # which kills the tool on the healthy file too
        assert healthy.exit_code == 0
    # A death in the middle of a line leaves that line open; the next output starts on a line of its own.
    gap = b"" if alone.stdout.endswith(b"\n") else b"\n"
    assert both.stdout == alone.stdout + gap + healthy.stdout
    assert set(both.stderr.splitlines()) >= set(alone.stderr.splitlines())
    assert both.exit_code == TABLE[title].exit_code


@pytest.mark.kafka
@pytest.mark.parametrize("title", BY_TITLE)
def test_kafka_dies_as_the_document_says(
    title: str, klog: Callable[..., Ran], dump_tool: kafka.DumpTool, tmp_path: Path
) -> None:
    """Until then both print the same."""
    death: Death = BY_TITLE[title]
    path = death.make(tmp_path)
    ran = klog("dump", "--files", path, *death.flags)
    said = dump_tool.run("--files", str(path), *death.flags)
    assert short(said.died, tmp_path) == TABLE[title].kafka
    if ran.exit_code == USAGE:  # a file that is not there: klog opens nothing, Kafka's tool comes a line further
        assert said.stdout.startswith(ran.stdout)
    else:
        assert ran.stdout == said.stdout
