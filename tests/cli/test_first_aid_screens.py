"""`klog doctor`, `recover` and `truncate` on screens of 80 and 120 columns: golden files with the names of colours.

The golden files are in `screens`; a changed one is read line by line, like code.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from tests.partition.verify.partitions import Damageable
from tests.support.terminal import COLOURS, check_screen, on_screen

WIDTHS = (80, 120)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the place of the disks the working directory, so that paths in the output are short and always the same."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def modern(here: Path) -> Path:
    shutil.copytree(FIXTURES / "modern", here / "data")
    return here / "data"


def power_loss(here: Path) -> None:
    """A log dir without its marker, with a torn tail and a malformed checkpoint."""
    data = modern(here)
    (data / ".kafka_cleanshutdown").unlink()
    log = data / f"plain-1/{0:020}.log"
    log.write_bytes(log.read_bytes()[:-10])
    (data / "recovery-point-offset-checkpoint").write_text("x\n")


def no_topic_id(here: Path) -> None:
    (modern(here) / "plain-1/partition.metadata").unlink()


def damaged(here: Path) -> None:
    """A torn tail in one partition, and a flipped bit in another, with intact batches behind it."""
    Damageable(here / "data", "plain-1").change(f"plain-1/{0:020}.log", lambda log: log[:-10])
    shutil.copytree(FIXTURES / "crash/flip-middle/torn-0", here / "data/torn-0")


def without_indexes(here: Path) -> None:
    """A partition of eleven segments without an index."""
    data = Damageable(here / "data", "tx-0").path
    for index in (data / "tx-0").glob("*.index"):
        index.unlink()


DISKS = {
    "doctor-will-not-start": (power_loss, "doctor data"),
    "doctor-loses": (no_topic_id, "doctor data"),
    "doctor-loses-nothing": (modern, "doctor data"),
    "recover-choices": (damaged, "recover data"),
    "recover-salvage": (damaged, "recover data --salvage"),
    "recover-indexes": (without_indexes, "recover data --indexes-only"),
    "recover-mark-clean": (power_loss, "recover data --mark-clean"),
    "truncate": (modern, "truncate data/plain-1 --to-offset 50"),
}


@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("name", DISKS)
def test_the_screen_is_as_in_the_golden_file(name: str, columns: int, here: Path) -> None:
    make, words = DISKS[name]
    make(here)
    shown = on_screen(*words.split(), columns=columns)
    lines = COLOURS.sub("", shown.text).splitlines()
    assert all(len(line) <= columns for line in lines)
    check_screen(f"{name}-{columns}", shown.marked)


def test_what_was_done_is_shown_once_with_the_way_back(here: Path) -> None:
    """The findings were in the preview; the command that undoes can be pasted from a narrow screen."""
    damaged(here)
    shown = on_screen("recover", "data/plain-1", "--apply", columns=80)
    assert shown.exit_code == 1
    assert "torn-tail" not in shown.plain
    (plan,) = (one.name for one in (here / "klog-backup").iterdir())
    assert shown.marked.endswith(f"  [cyan]klog undo {plan}[]\n")
