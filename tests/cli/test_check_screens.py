"""`klog verify`, `plans`, `compact` and others on screens of 80 and 120 columns: golden files with names of colours."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.change.plan.draft import Draft, backup_places, make_plan, staging_of
from klog.change.plan.executor import apply
from klog.change.plan.staging import Staging
from klog.data_dir.disk.disk_changes import Disk

from tests.change.plan.test_executor import NOW, name, original
from tests.change.plan.test_undo import half_done
from tests.cli.test_first_aid_screens import WIDTHS
from tests.conftest import FIXTURES, writable_copy
from tests.partition.verify.partitions import Damageable, flipped
from tests.support.terminal import COLOURS, check_screen, on_screen

__all__ = ["original"]
pytestmark = pytest.mark.usefixtures("state_home")
ID = "20261121-051019-recover-7f3a"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make the place of the disks the working directory, so that paths in the output are short and always the same."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def damaged(here: Path) -> None:
    """A flipped bit, eleven segments without an index in one partition and one in another, and a leftover."""
    disk = Damageable(here / "data", "idempotent-0", "tx-0", "plain-1")
    disk.change(f"idempotent-0/{375:020}.log", flipped(100))
    for index in (*disk.path.glob("tx-0/*.index"), *disk.path.glob("plain-1/*.index")):
        index.unlink()
    (disk.path / f"plain-1/{0:020}.log.cleaned").touch()


def clean(here: Path) -> None:
    writable_copy(FIXTURES / "modern", here / "data")


def applied(here: Path) -> None:
    """An applied plan of two changes, whose id and time do not depend on the clock."""
    data = str(here / "original")
    (staging,) = staging_of(str(here / "plan.json.staged"), [data])
    draft = Draft(data, 0, Staging(staging, Disk()))
    draft.truncate(name(1841, "log"), 1500)
    draft.put(name(1841, "index"), [b"entries!"])
    apply(make_plan(ID, "klog recover original --apply", [data], backup_places(ID, [data]), [draft], NOW), Disk())


def half(here: Path) -> None:
    """A plan that a power cut stopped; the end of its id is random."""
    half_done(here / "original")


def dirty(here: Path) -> None:
    """Topics whose cleanup.policy is unknown, for there is no metadata log."""
    writable_copy(FIXTURES / "compaction/before", here / "data")


def foreign(here: Path) -> None:
    """A log dir, an adoptable copy of one of its partitions, and records as JSON lines."""
    clean(here)
    writable_copy(FIXTURES / "modern/plain-1", here / "old/plain-1")
    row = '{{"offset":{0},"timestamp":{1},"key":"k","value":"v","topic":"t","partition":{2}}}\n'
    (here / "in.jsonl").write_text("".join(row.format(at // 2, NOW + at, at % 2) for at in range(40)))


DISKS: dict[str, tuple[Callable[[Path], None], str]] = {
    "verify-damaged": (damaged, "verify data"),
    "verify-clean": (clean, "verify data"),
    "plans-applied": (applied, "plans original"),
    "plans-half-done": (half, "plans original"),
    "compact-unknown": (dirty, "compact data"),
    "compact": (dirty, "compact data --topic t* --policy compact --now 2025-06-15T15:10:00Z"),
    "adopt-refused": (foreign, "adopt old/plain-1 --as plain-2 --to data"),
    "adopt": (foreign, "adopt old/plain-1 --as plain-2 --to data --replace --now 2025-06-15T15:10:00Z"),
    "write": (foreign, "write in.jsonl --to new --keep-offsets"),
    "undo": (applied, f"undo {ID}"),
}


@pytest.mark.usefixtures("original")
@pytest.mark.parametrize("columns", WIDTHS)
@pytest.mark.parametrize("screen", DISKS)
def test_the_screen_is_as_in_the_golden_file(screen: str, columns: int, here: Path) -> None:
    make, words = DISKS[screen]
    make(here)
    shown = on_screen(*words.split(), columns=columns)
    place = re.escape(str(here))
    lines = COLOURS.sub("", shown.text).splitlines()
    assert all(len(line) <= columns for line in lines if str(here) not in line)
    # A line with the path of the test's own directory is wrapped or not, as that path is long.
    seen = re.sub(rf"\s+(\[\w+\])?{place}/", r" \1PLACE/", shown.marked)
    seen = re.sub(r"recover-[0-9a-f]{4}", "recover-7f3a", seen)
    check_screen(f"{screen}-{columns}", seen)
