"""Directories that are no copy, or that somebody has made difficult: refused untouched, or repaired."""

from __future__ import annotations

import errno
import multiprocessing
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from klog.base.errors import DamagedError, KlogError
from klog.commands.follow.copy_dir import CopyDir
from klog.data_dir.locks import LockedError
from klog.formats.follow_file import FOLLOW_FILE

from tests.commands.follow.feeding import CLUSTER, TOPIC_ID, open_copy
from tests.commands.follow.test_changes import SMALL, clean, content, made, run
from tests.conftest import FIXTURES, Ran
from tests.support.power import FaultyDisk, SteppedDisk, tree

pytestmark = pytest.mark.usefixtures("state_home")
Klog = Callable[..., Ran]


def test_a_log_dir_of_a_broker_is_refused(tmp_path: Path) -> None:
    """Above all: a broker's files must never be continued, or cut."""
    source = next(path.parent for path in FIXTURES.rglob("meta.properties"))
    broker = shutil.copytree(source, tmp_path / "data")
    before = tree(broker)
    with pytest.raises(KlogError, match=r"not empty, and no copy \(klog-follow.json\)") as error, CopyDir(str(broker)):
        pass
    assert error.value.exit_code == 8
    assert tree(broker) == before


def test_what_is_no_directory_or_holds_something_else_is_refused(tmp_path: Path) -> None:
    """A file, a directory with anything in it, a link to nothing, a place in a broker's log dir."""
    (tmp_path / "file").write_bytes(b"x")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "meta.properties").touch()
    before = tree(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("file", "full", "link", "broker/copy"):
        with pytest.raises(KlogError), CopyDir(str(tmp_path / name)):
            pass
    (tmp_path / "link").unlink()
    assert tree(tmp_path, directory_times=False) == {
        name: (data, (*meta[:3], meta[3] if data is not None else 0)) for name, (data, meta) in before.items()
    }


def test_nothing_is_left_of_a_copy_that_never_began(tmp_path: Path) -> None:
    """The cluster could not be reached: neither the directory nor those above it."""
    with CopyDir(str(tmp_path / "a" / "b")):
        assert (tmp_path / "a" / "b" / ".lock").exists()
    assert not (tmp_path / "a").exists()


def test_an_empty_directory_and_one_that_a_killed_process_left_become_copies(tmp_path: Path) -> None:
    """Such a process leaves at first only the lock and the file that it was writing."""
    for name in ("empty", "killed"):
        (tmp_path / name).mkdir()
    (tmp_path / "killed" / ".lock").touch()
    (tmp_path / "killed" / f"{FOLLOW_FILE}.klog.tmp").write_bytes(b"{")
    for name in ("empty", "killed"):
        with open_copy(tmp_path / name, "orders-3", SMALL) as (_, copied):
            copied.append(made(0, 5))
        assert sorted(path.name for path in (tmp_path / name).iterdir() if path.name != ".lock") == [
            "cleaner-offset-checkpoint",
            FOLLOW_FILE,
            "log-start-offset-checkpoint",
            "meta.properties",
            "orders-3",
            "recovery-point-offset-checkpoint",
            "replication-offset-checkpoint",
        ]


def _hold(path: str, begun: object, end: object) -> None:
    with CopyDir(path):
        begun.set()  # type: ignore[attr-defined]
        end.wait(60)  # type: ignore[attr-defined]


def test_only_one_process_at_a_time(tmp_path: Path) -> None:
    """Two runs, one of them started by cron: the second stops, and names the first."""
    context = multiprocessing.get_context("fork")
    begun, end = context.Event(), context.Event()
    other = context.Process(target=_hold, args=(str(tmp_path / "copy"), begun, end))
    other.start()
    try:
        assert begun.wait(60)
        with pytest.raises(LockedError), CopyDir(str(tmp_path / "copy")):
            pass
    finally:
        end.set()
        other.join(60)
    assert other.exitcode == 0


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "x" * 250, "a\0b", "ä"])
def test_names_that_no_topic_has_make_no_directories(tmp_path: Path, name: str) -> None:
    """They are read from the network."""
    with CopyDir(str(tmp_path / "copy")) as copy:
        copy.claim(CLUSTER, "broker:9092")
        with pytest.raises(KlogError, match="no partition can have this name"):
            copy.partition(name, 0, TOPIC_ID, SMALL)
        for number in (-1, 1 << 31):
            with pytest.raises(KlogError, match="no partition can have this name"):
                copy.partition("orders", number, TOPIC_ID, SMALL)
    assert not [path for path in (tmp_path / "copy").iterdir() if path.is_dir()]


@pytest.mark.parametrize("kind", ["file", "link", "dangling"])
def test_what_is_in_the_way_of_a_partition_stays(tmp_path: Path, kind: str) -> None:
    """A link would lead the copy out of its directory."""
    with CopyDir(str(tmp_path / "copy")) as copy:
        copy.claim(CLUSTER, "broker:9092")
        (tmp_path / "elsewhere").mkdir()
        place = tmp_path / "copy" / "orders-3"
        if kind == "file":
            place.touch()
        else:
            place.symlink_to(tmp_path / ("elsewhere" if kind == "link" else "nowhere"))
        with pytest.raises(KlogError, match="no directory; move it away"):
            copy.partition("orders", 3, TOPIC_ID, SMALL)
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("file", ["{:020}.log", "{:020}.index", "leader-epoch-checkpoint"])
def test_a_file_that_is_a_link_is_not_written_through(tmp_path: Path, file: str) -> None:
    """The target of the link belongs to somebody else."""
    with open_copy(tmp_path / "copy", "orders-3", SMALL) as (_, copied):
        copied.append(made(0, 5))
    path = tmp_path / "copy" / "orders-3" / file.format(0)
    target = path.rename(tmp_path / "target")
    path.symlink_to(target)
    before = target.read_bytes()
    with suppress(KlogError, OSError), open_copy(tmp_path / "copy", "orders-3", SMALL) as (copy, copied):
        copied.append(run(range(5, 40, 5), epoch=1))
        copy.flush()
    assert target.read_bytes() == before


@pytest.mark.parametrize("checkpoint", ["recovery-point-offset-checkpoint", "log-start-offset-checkpoint"])
def test_a_checkpoint_that_a_broker_would_refuse_is_said(tmp_path: Path, checkpoint: str) -> None:
    """Nothing is made up in its place."""
    with open_copy(tmp_path / "copy", "orders-3", SMALL) as (_, copied):
        copied.append(made(0, 5))
    (tmp_path / "copy" / checkpoint).write_bytes(b"0\n7\n")
    with (
        pytest.raises(DamagedError, match=f"{checkpoint}: line 2: 7 entries announced"),
        CopyDir(str(tmp_path / "copy")),
    ):
        pass


def test_damage_below_the_recovery_point_is_not_a_torn_tail(tmp_path: Path, klog: Klog) -> None:
    """It was on the disk: to cut it would hide that the disk is failing."""
    with open_copy(tmp_path / "copy", "orders-3", SMALL) as (_, copied):
        copied.append(run([0, 5]))
    log = tmp_path / "copy" / "orders-3" / f"{0:020}.log"
    data = bytearray(log.read_bytes())
    data[-1] ^= 0xFF
    log.write_bytes(data)
    with pytest.raises(DamagedError, match="first: klog recover"), open_copy(tmp_path / "copy", "orders-3", SMALL):
        pass
    assert log.read_bytes() == data
    assert klog("recover", tmp_path / "copy", "--apply").exit_code in (1, 5)
    with open_copy(tmp_path / "copy", "orders-3", SMALL) as (_, copied):
        assert copied.end == 5
        copied.append(made(5, 5))
    assert content(tmp_path / "copy" / "orders-3") == run([0, 5])
    assert clean(klog, tmp_path / "copy")


@pytest.mark.parametrize("torn", [1, 7, 100])
def test_a_torn_tail_is_cut_and_kept(tmp_path: Path, klog: Klog, torn: int) -> None:
    """Bytes behind the recovery point that are no whole batch: they are in the backup, and are fetched again."""
    with open_copy(tmp_path / "copy", "orders-3", SMALL) as (_, copied):
        copied.append(run([0, 5]))
    log = tmp_path / "copy" / "orders-3" / f"{0:020}.log"
    tail = made(10, 5)[:torn]
    log.write_bytes(log.read_bytes() + tail)
    with open_copy(tmp_path / "copy", "orders-3", SMALL) as (_, copied):
        assert (copied.end, copied.torn) == (10, torn)
        copied.append(made(10, 5))
    assert content(tmp_path / "copy" / "orders-3") == run([0, 5, 10])
    kept = [path.read_bytes() for path in (tmp_path / "klog-backup").rglob("*.log")]
    assert tail in kept
    assert clean(klog, tmp_path / "copy")


class InterruptedDisk(SteppedDisk):
    """Is interrupted once, before call number *at*."""

    def __init__(self, root: Path, at: int, _: int) -> None:
        super().__init__(root)
        self._at = at

    def step(self, *words: str) -> None:
        super().step(*words)
        if len(self.calls) - 1 == self._at:
            raise KeyboardInterrupt


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS, 0])
def test_a_disk_that_refuses_leaves_a_prefix(tmp_path: Path, klog: Klog, number: int) -> None:
    """Whatever call it refuses, or ^C interrupts (0): nothing is written after that, and the next run continues."""
    whole = run(range(0, 60, 5))

    def fill(place: Path, at: int) -> int:
        disk = (FaultyDisk if number else InterruptedDisk)(place, at, number)
        with open_copy(place / "copy", "orders-3", SMALL, disk) as (copy, copied):
            copied.append(whole[:700])
            copy.flush()
            copied.append(whole[len(content(place / "copy" / "orders-3")) :])
        return len(disk.calls)

    (tmp_path / "all").mkdir()
    calls = fill(tmp_path / "all", 1 << 30)
    for at in range(0, calls, 7):
        place = tmp_path / f"at-{at}"
        place.mkdir()
        with suppress(OSError, KeyboardInterrupt):  # a call whose failure does not matter may be met
            fill(place, at)
        with open_copy(place / "copy", "orders-3", SMALL) as (_, copied):
            found = content(place / "copy" / "orders-3")
            assert whole.startswith(found)
            copied.append(whole[len(found) :])
        assert content(place / "copy" / "orders-3") == whole
    assert clean(klog, place / "copy")
