"""Tasks of an operator who knows `klog --help` and the README alone, on screens of 80 and 120 columns.

Each takes three commands at most, and each command one screen of 80 × 24.  `screens/task-*.txt` has what they show.
"""

from __future__ import annotations

import re
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.test_first_aid_screens import power_loss, without_indexes
from tests.cli.test_golden_screens import OF_THE_DISK, SPLIT
from tests.conftest import FIXTURES, writable_copy
from tests.support.terminal import check_screen, on_screen

pytestmark = pytest.mark.usefixtures("state_home")
PASSING = re.compile(r"\b\d{8}-\d{6}-(\w+)-\w{4}\b|\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\dZ")
"""Ids and times of plans."""


def fixtures(*names: str) -> Callable[[Path], None]:
    """Return what copies these fixtures into a directory."""

    def copy(here: Path) -> None:
        for name in names:
            writable_copy(FIXTURES / name, here / name)

    return copy


TASKS: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "a-the-broker-does-not-start": (power_loss, ("doctor data", "recover data --apply", "doctor data")),
    "b-the-last-ten-records": (fixtures("modern"), ("records modern/plain-1",)),
    "c-a-key": (fixtures("modern"), ("search modern --topic plain --key java-3",)),
    "d-an-offset": (fixtures("modern"), ("lookup modern/tx-0 --offset 500",)),
    "e-the-disk-is-full": (fixtures("modern"), ("space modern --free 100K --now 2026-06-18T00:00:00Z",)),
    "f-rebuild-indexes": (
        without_indexes,
        ("verify data", "recover data --indexes-only", "recover data --indexes-only --apply"),
    ),
    "g-two-brokers": (fixtures("replicas/split"), (f"replicas diff {SPLIT} --topic orders",)),
    "h-compact": (
        fixtures("compaction/before"),
        (
            "compact compaction/before/keys-none-0 --policy compact",
            "compact compaction/before/keys-none-0 --policy compact --apply",
        ),
    ),
    "i-undo": (
        without_indexes,
        ("recover data --indexes-only --apply", "undo latest", "undo latest --apply"),
    ),
    "l-parquet": (fixtures("modern"), ("export modern --topic plain --to parquet",)),
}


@pytest.fixture
def here() -> Iterator[Path]:
    """A directory whose path is short, and has the same length on every machine: it is printed."""
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("name", TASKS)
def test_a_task(name: str, columns: int, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make, commands = TASKS[name]
    monkeypatch.chdir(here)
    make(here)
    text = ""
    for command in commands:
        shown = on_screen(*shlex.split(command), columns=columns)
        assert max(map(len, shown.plain.splitlines())) <= columns
        assert len(shown.plain.splitlines()) < 24, shown.plain
        text += f"$ klog {command}\n{shown.marked}({shown.exit_code})\n\n"
    text = PASSING.sub(lambda found: f"ID-{found[1]}" if found[1] else "TIME", OF_THE_DISK.sub("…", text))
    text = text.replace(str(here), "HERE")
    check_screen(f"task-{name}-{columns}", text)
