"""The intermediate output between two rounds, and the leftovers of a kill while planning: ignored, and harmless."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import klog.change.plan.session
import klog_cli.views.compact.compact
import pytest
from klog.change.plan.find_plans import plans_of
from klog.data_dir.disk.disk_changes import Disk

from tests.commands.compact.compacting import OPTIONS, some
from tests.conftest import Ran
from tests.support.power import DeadlyDisk, HastyDisk, KilledError, SteppedDisk, copy_of, tree

PARTITIONS = ("idempotent-0", "tx-later-0")


@pytest.fixture
def disks(monkeypatch: pytest.MonkeyPatch) -> Callable[[Disk], None]:
    """Return a function that gives the command line another disk."""

    def use(disk: Disk) -> None:
        monkeypatch.setattr(klog.change.plan.session, "Disk", lambda: disk)
        monkeypatch.setattr(klog_cli.views.compact.compact, "Disk", lambda: disk)

    return use


class WatchedDisk(SteppedDisk):
    """Calls *watch* before each call."""

    def __init__(self, root: Path, watch: Callable[[str], object]) -> None:
        super().__init__(root)
        self._watch = watch

    def step(self, *words: str) -> None:
        super().step(*words)
        self._watch(" ".join(words))


@pytest.fixture
def temporary(memory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's place for temporary files, where others have theirs too."""
    (memory / "tmp").mkdir()
    (memory / "tmp").chmod(0o1777)
    monkeypatch.setattr(tempfile, "tempdir", str(memory / "tmp"))
    return memory / "tmp"


def test_rounds_of_a_plan_that_is_only_shown_wait_where_nobody_else_looks(
    temporary: Path, memory: Path, disks: Callable[[Disk], None], klog: Callable[..., Ran]
) -> None:
    """Values of a topic must not be readable for every user of the machine, and not stay behind."""
    data = some(memory / "run" / "data", *PARTITIONS)
    before, modes = tree(data), set[int]()

    def watch(_call: str) -> None:
        modes.update(stat.S_IMODE(path.stat().st_mode) for path in temporary.iterdir())

    watched = WatchedDisk(memory, watch)
    disks(watched)
    assert klog("compact", *OPTIONS, data).exit_code == 0
    assert modes == {0o700}
    written = [call.split()[1] for call in watched.calls if call.startswith("create")]
    assert len(written) > 5
    assert all(path.startswith("tmp/klog-") for path in written)
    assert list(temporary.iterdir()) == []
    assert tree(data) == before


@pytest.mark.parametrize("apply", [(), ("--apply",)], ids=["shown", "applied"])
@pytest.mark.parametrize("jobs", ["--jobs=1", "--jobs=2"])
def test_an_interrupt_between_rounds_leaves_nothing(
    apply: tuple[str, ...],
    jobs: str,
    temporary: Path,
    memory: Path,
    disks: Callable[[Disk], None],
    klog: Callable[..., Ran],
) -> None:
    data = some(memory / "run" / "data", *PARTITIONS)
    before = tree(data)

    def watch(call: str) -> None:
        if call.startswith("unlink") and "idempotent" in call:  # the first round's files have been read
            raise KeyboardInterrupt

    disks(WatchedDisk(memory, watch))
    watched = klog("compact", *OPTIONS, jobs, *apply, data)
    # A record that is removed because of it is removed all the same.
    assert watched.exit_code == 32, watched
    assert tree(data) == before


def test_a_kill_while_planning_leaves_what_is_in_nobodys_way(
    temporary: Path, memory: Path, disks: Callable[[Disk], None], klog: Callable[..., Ran]
) -> None:
    """Half of the staged files, files of rounds: the next run removes them, and does the work of this one."""
    original = some(memory / "original", *PARTITIONS)
    command = ("compact", *OPTIONS, "--jobs=1", "--apply")
    data = copy_of(original, memory / "run")
    before, counting = tree(data), SteppedDisk(memory)
    disks(counting)
    assert klog(*command, data).exit_code == 0
    after = contents(data)
    planning = next(at for at, call in enumerate(counting.calls) if "plan.json.tmp" in call)
    assert planning > 60
    left = set[str]()
    for at in range(0, planning, 17):
        data = copy_of(original, memory / "run")
        disks(DeadlyDisk(memory, at))
        with pytest.raises(KilledError):
            klog(*command, data)
        assert {name: entry for name, entry in tree(data).items() if name not in (".", ".lock")} == {
            name: entry for name, entry in before.items() if name != "."
        }
        assert list(temporary.iterdir()) == []
        left.update(path.name for path in (data.parent / "klog-backup").glob("*/*"))
        disks(HastyDisk())
        listed = json.loads(klog("plans", data, "--output", "json").stdout)["plans"]
        assert [plan["state"] for plan in listed] in ([], ["being planned"])
        assert klog("verify", data).stderr.count(b"klog-backup") == 0
        assert klog(*command, data).exit_code == 0
        assert contents(data) == after
        if listed:
            assert len(plans_of(str(data))) == 1
            assert not os.path.exists(listed[0]["backup"])
        else:
            assert not list((data.parent / "klog-backup").glob("*/staged"))
    assert left == {"plan.json", "staged", "staged.rounds"}


def contents(data: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(data)): path.read_bytes()
        for path in data.rglob("*")
        if path.is_file() and path.name != ".lock"
    }


def test_files_of_rounds_are_gone_when_the_next_round_has_read_them(
    temporary: Path, memory: Path, disks: Callable[[Disk], None], klog: Callable[..., Ran]
) -> None:
    """A log of hundreds of gigabytes and a small map: two rounds' files at a time, not one for each round."""
    data = some(memory / "run" / "data", *PARTITIONS)
    most = 0

    def watch(_call: str) -> None:
        nonlocal most
        most = max(most, sum(1 for folder, _, names in os.walk(temporary) for name in names if name.endswith(".log")))

    disks(WatchedDisk(memory, watch))
    ran = klog("compact", *OPTIONS, "--map-memory=240", "--explain", data)
    assert ran.stdout.count(b"  round ") > 20
    assert most <= 12
