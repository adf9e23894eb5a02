"""`klog undo`, and the effect of a half-done plan, for operators: a directory used in between."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.change.plan import executor
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.partition import Partition

from tests.change.plan.test_executor import end, other_process, said
from tests.commands.recover.test_places import NOBODY, as_nobody
from tests.conftest import FIXTURES, Ran, writable_copy
from tests.oracles.plain.encode import Record, batch
from tests.support.power import DeadlyDisk, KilledError, less_pointers, only_root, tree

Klog = Callable[..., Ran]
pytestmark = pytest.mark.usefixtures("state_home")
LOG = "00000000000000000364.log"
MARKER = ".kafka_cleanshutdown"
NOW = "--now=2026-11-21T06:00:00Z"
COMPACT = ("compact", "--policy=compact", "--all", NOW)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log dir with a torn tail."""
    return writable_copy(FIXTURES / "crash/torn-in-batch", tmp_path / "w" / "data")


@pytest.fixture
def dirty(tmp_path: Path) -> Path:
    """A log dir with topics that are to be compacted."""
    return writable_copy(FIXTURES / "compaction/before", tmp_path / "w" / "data")


def content(data: Path) -> dict[str, object]:
    return {name: facts for name, facts in less_pointers(tree(data)).items() if name not in (".", ".lock")}


def applied(klog: Klog, *words: str | Path) -> str:
    """Apply what *words* plan; return the backup."""
    done = klog(*words, "--apply", "--output", "json")
    assert done.exit_code in (0, 1), done
    backup = json.loads(done.stdout).get("backup")
    assert isinstance(backup, str)
    return backup


def undone(klog: Klog, backup: str, *words: str | Path) -> str:
    return applied(klog, "undo", backup, *words)


def append(partition: Path, **values: str) -> int:
    """Append a batch to the last segment, as a broker does; return the offset behind it."""
    found = Partition(str(partition))
    assert found.log_end is not None
    offset = found.log_end.offset
    records = [Record(offset + i, 1, *(text.encode() for text in pair)) for i, pair in enumerate(values.items())]
    with open(partition / found.segments[-1].log, "ab") as log:
        log.write(batch(records))
    return offset + len(records)


def used(data: Path, how: str) -> None:
    """Use the log dir as a broker does, without a change of a file that the repair has named."""
    match how:
        case "stop":
            (data / MARKER).write_text('{"version":0,"brokerEpoch":47}')
        case "checkpoints":
            path = data / "replication-offset-checkpoint"
            path.write_bytes(path.read_bytes())
        case "roll":
            (data / "torn-0/00000000000000000406.log").write_bytes(batch([Record(406, 1, b"k", b"v")]))
        case "touch":
            path = data / "torn-0/00000000000000000296.index"
            os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
        case "rewrite":
            path = data / "torn-0" / LOG
            path.write_bytes(path.read_bytes())


@pytest.mark.parametrize("how", ["stop", "checkpoints", "roll", "touch", "rewrite"])
def test_nothing_is_taken_back_over_what_a_broker_did(klog: Klog, data: Path, how: str) -> None:
    """A torn tail below a clean marker: the broker does not start, or takes acknowledged records for expired."""
    backup = applied(klog, "recover", data)
    used(data, how)
    before = tree(data.parent)
    done = klog("undo", backup, "--apply")
    assert (done.exit_code, done.stdout) == (8, b"")
    assert b"used since the plan was carried out" in done.stderr
    assert tree(data.parent) == before
    (plan,) = json.loads(klog("plans", data, "--output", "json").stdout)["plans"]
    assert plan["state"] == "used since"


@pytest.mark.parametrize("how", ["stop", "checkpoints", "roll"])
def test_nor_is_it_done_again(klog: Klog, data: Path, how: str) -> None:
    back = undone(klog, applied(klog, "recover", data))
    used(data, how)
    assert klog("undo", back, "--apply").exit_code == 8


def test_a_file_system_that_keeps_whole_seconds_is_no_use(klog: Klog, data: Path) -> None:
    """ext3, NFS and others: there the times of new files are never those that the plan gave them."""
    backup = applied(klog, "recover", data)
    plan = json.loads(Path(backup, "plan.json").read_bytes())
    for file in {action["file"] for action in plan["actions"] if action["do"] != "remove"}:
        seconds = int((data / file).stat().st_mtime)
        os.utime(data / file, ns=(0, seconds * 10**9))
    undone(klog, backup)


def test_a_marker_that_was_there_is_no_use(klog: Klog, data: Path) -> None:
    used(data, "stop")
    before = content(data)
    undone(klog, applied(klog, "recover", data))
    assert content(data) == before


def test_what_other_plans_did_to_checkpoints_is_no_use(klog: Klog, data: Path) -> None:
    """Partitions are repaired one by one, and taken back in any order."""
    before = content(data)
    first = applied(klog, "recover", data / "torn-0")
    other = next(path for path in data.iterdir() if path.is_dir() and path.name != "torn-0")
    second = applied(klog, "truncate", other, "--to-offset", "1")
    undone(klog, first)
    third = undone(klog, second)
    assert content(data) == before
    undone(klog, third)
    assert content(data)[f"{other.name}/00000000000000000000.log"] != before[f"{other.name}/00000000000000000000.log"]


def test_the_plan_that_is_in_the_way_is_named(klog: Klog, data: Path) -> None:
    first = applied(klog, "recover", data)
    second = applied(klog, "truncate", data / "torn-0", "--to-offset", "300")
    done = klog("undo", first, "--apply")
    assert done.exit_code == 8
    assert f"by {os.path.basename(second)} since the plan was carried out; undo that plan first" in done.stderr.decode()


def test_chains_of_undo_and_redo_go_on(klog: Klog, dirty: Path) -> None:
    """The log that truncate cut was by another name the original that the compaction had kept."""
    partition, before = dirty / "keys-none-0", content(dirty)
    compacted = applied(klog, *COMPACT, partition)
    after = content(dirty)
    first = undone(klog, compacted)
    cut = applied(klog, "truncate", partition, "--to-offset", "30")
    undone(klog, cut)
    undone(klog, first)
    assert content(dirty) == after
    undone(klog, compacted)
    assert content(dirty) == before


# the place of its own backup


def test_undo_says_where_its_own_originals_go(klog: Klog, data: Path, tmp_path: Path) -> None:
    before = content(data)
    (data.parent / "klog-backup").touch()
    first, second = tmp_path / "b" / "one", tmp_path / "b" / "two"
    backup = applied(klog, "recover", data, "--backup", first)
    assert (backup, undone(klog, backup, "--backup", second)) == (str(first), str(second))
    assert content(data) == before
    # Without an option, and if the usual place is taken: beside the backup that is undone.
    third = undone(klog, str(second))
    assert os.path.dirname(third) == str(tmp_path / "b")


def test_an_id_is_looked_for_where_the_backup_goes(
    klog: Klog, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(data)
    backups = tmp_path / "b"
    backups.mkdir()
    (backups / "other").touch()
    backup = applied(klog, "recover", data, "--backup", backups)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "nowhere"))
    again = undone(klog, os.path.basename(backup), "--backup", backups)
    assert content(data) == before
    assert len(list(backups.iterdir())) == 3
    # Not only there: it may be a new place.
    monkeypatch.chdir(data)
    shutil.move(again, data.parent / "klog-backup" / os.path.basename(again))
    undone(klog, os.path.basename(again), "--backup", tmp_path / "new")


def test_room_for_an_undo_is_asked_for_before_the_first_byte(
    klog: Klog, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    backup = applied(klog, "recover", data)
    before = tree(data.parent)
    monkeypatch.setattr(Disk, "free_bytes", lambda self, path: 100)
    done = klog("undo", backup, "--apply")
    assert done.exit_code == 8
    assert b"bytes are needed, 100 are free; nothing was changed; another directory" in done.stderr
    assert tree(data.parent) == before


def test_an_undo_goes_where_there_is_room(
    klog: Klog, data: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log dir is a mount on a small file system: beside it there is no room, beside the backup there is."""
    before = content(data)
    backup = applied(klog, "recover", data, "--backup", elsewhere / "one")
    here = os.stat(data).st_dev
    free = Disk.free_bytes
    monkeypatch.setattr(Disk, "free_bytes", lambda self, path: 0 if os.stat(path).st_dev == here else free(self, path))
    monkeypatch.setattr(
        "klog.change.plan.undo.device_of", lambda path: 1 if str(data) in path else 2 + (str(elsewhere) in path)
    )
    done = klog("undo", backup)
    assert done.exit_code == 8  # copies into the log dir need room there
    small = str(data.parent), str(data.parent / "klog-backup")
    monkeypatch.setattr(Disk, "free_bytes", lambda self, path: 0 if path in small else free(self, path))
    back = undone(klog, backup)
    assert os.path.dirname(back) == str(elsewhere)
    assert content(data) == before


# half done, and used since


def half_compacted(data: Path, klog: Klog, monkeypatch: pytest.MonkeyPatch, calls: int) -> str:
    """Compact a topic, and be killed behind so many calls that act; return the backup."""
    acting: list[DeadlyDisk] = []
    monkeypatch.setattr(
        "klog.change.plan.session.Disk", lambda: acting.append(DeadlyDisk(data.parent, 10**9)) or acting[0]
    )
    real = executor._Run._act

    def act(run: executor._Run, places: list[int]) -> None:
        acting[0]._at = min(acting[0]._at, len(acting[0].calls) + calls)
        real(run, places)

    monkeypatch.setattr(executor._Run, "_act", act)
    with pytest.raises(KilledError):
        klog(*COMPACT, data / "keys-none-0", "--apply")
    monkeypatch.undo()
    monkeypatch.setenv("XDG_STATE_HOME", str(data.parent / "state"))
    (backup,) = (data.parent / "klog-backup").iterdir()
    return str(backup)


def latest(klog: Klog, partition: Path) -> dict[str, str]:
    lines = klog("dump", partition, "--output", "jsonl").stdout.splitlines()
    return {row["key"]: row["value"] for row in map(json.loads, lines)}


@pytest.mark.parametrize("calls", range(1, 28, 2))
def test_a_half_done_plan_in_a_used_directory_stops_only_its_partition(
    klog: Klog, dirty: Path, monkeypatch: pytest.MonkeyPatch, calls: int
) -> None:
    """The error names the next step, and that keeps later data and each key's last value."""
    partition = dirty / "keys-none-0"
    wanted = latest(klog, partition)
    backup = half_compacted(dirty, klog, monkeypatch, calls)
    news = {"new": "value", next(iter(wanted)): "last"}
    log_end = append(partition, **news)
    wanted |= news
    done = klog(*COMPACT, dirty, "--apply")
    plans = json.loads(klog("plans", dirty, "--output", "json").stdout)["plans"]
    if next(plan["state"] for plan in plans if plan["backup"] == backup) != "half done":
        assert done.exit_code == 0  # it had come to its end but for clearing away
        return
    assert done.exit_code == 8
    assert b"keys-lz4-0" in done.stdout
    assert b"tx-later-0" in done.stdout
    planned = klog("compact", "--policy=compact", "--all", NOW, partition)
    assert (planned.exit_code, planned.stdout) == (8, b"")
    command = planned.stderr.decode().split("'")[1]
    assert command == f"klog undo {backup} --apply"
    assert klog("recover", partition, "--apply").exit_code == 8
    assert klog("truncate", partition, "--to-offset", "3", "--apply").exit_code == 8
    assert klog("apply", backup).exit_code == 8
    assert klog(*shlex.split(command)[1:]).exit_code == 0
    assert latest(klog, partition) == wanted
    assert Partition(str(partition)).log_end.offset == log_end  # type: ignore[union-attr]
    assert klog("recover", partition, "--apply").exit_code in (0, 1)
    assert klog("verify", partition, "--deep").exit_code == 0
    assert klog(*COMPACT, partition, "--apply").exit_code == 0
    assert latest(klog, partition) == wanted


def test_what_nothing_can_be_done_about_stops_nothing(klog: Klog, dirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment among those that were to be replaced: it can be neither finished nor taken back, but looked at."""
    partition = dirty / "keys-none-0"
    half_compacted(dirty, klog, monkeypatch, 3)
    (partition / "00000000000000000100.log").write_bytes(b"")
    done = klog("recover", partition, NOW)
    assert b"was half done when its directories were used" in done.stderr
    assert done.stdout


def test_a_log_dir_with_a_half_done_plan_is_not_marked_as_clean(
    klog: Klog, dirty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition is left out; a marker would be about it all the same."""
    (dirty / MARKER).unlink()
    half_compacted(dirty, klog, monkeypatch, 9)
    append(dirty / "keys-none-0", new="value")
    done = klog("recover", dirty, "--mark-clean", NOW, "--apply")
    assert done.exit_code & 8
    assert b"an earlier plan is half done in one of its partitions" in done.stdout
    assert not (dirty / MARKER).exists()


def test_a_plan_that_is_half_done_in_other_log_dirs_too_comes_first(
    klog: Klog, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of its log dirs alone is not enough to finish it, and its partitions are in between."""
    other = writable_copy(FIXTURES / "crash/torn-in-batch", tmp_path / "other" / "data")
    real = executor._Run._act

    def act(run: executor._Run, places: list[int]) -> None:
        real(run, places)
        raise KilledError

    monkeypatch.setattr(executor._Run, "_act", act)
    with pytest.raises(KilledError):
        klog("recover", data, other, "--apply")
    monkeypatch.setattr(executor._Run, "_act", real)
    for words in (("recover", data / "torn-0"), ("recover", data / "torn-0", "--apply")):
        done = klog(*words)
        assert b"is half done" in done.stderr
    assert done.exit_code == 8
    command = done.stderr.decode().partition("first: klog ")[2].split()
    assert klog(*command).exit_code == 0
    assert klog("verify", data, other).exit_code == 0


def test_a_swap_of_somebody_else_is_not_taken_for_a_newer_segment(
    klog: Klog, dirty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker's start would treat it as finished, and remove the originals that it covers."""
    partition = dirty / "keys-none-0"
    backup = half_compacted(dirty, klog, monkeypatch, 9)
    (partition / "00000000000000000300.log.swap").write_bytes(b"")
    before = tree(partition)
    assert klog("undo", backup, "--apply").exit_code == 8
    assert tree(partition) == before


def test_damage_does_not_come_back_below_a_marker(klog: Klog, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half done as well: a broker that was stopped cleanly does not look at a repair that klog had only begun."""
    real = executor._Run._act

    def act(run: executor._Run, places: list[int]) -> None:
        real(run, places)
        raise KilledError

    monkeypatch.setattr(executor._Run, "_act", act)
    with pytest.raises(KilledError):
        klog("recover", data, "--apply")
    monkeypatch.setattr(executor._Run, "_act", real)
    (backup,) = (data.parent / "klog-backup").iterdir()
    used(data, "stop")
    before = tree(data)
    assert klog("undo", backup, "--apply").exit_code == 8
    assert tree(data) == before
    (data / MARKER).unlink()
    assert klog("undo", backup, "--apply").exit_code == 0


# what others have made


@pytest.mark.parametrize("is_stale", [True, False])
def test_what_a_plan_did_not_make_stays(klog: Klog, data: Path, tmp_path: Path, is_stale: bool) -> None:
    klog("recover", data, "--save-plan", tmp_path / "p.json")
    plan = json.loads((tmp_path / "p.json").read_bytes())
    plan |= {"backup": str(tmp_path / "mine"), "backups": [str(tmp_path / "mine")]}
    (tmp_path / "q.json").write_text(json.dumps(plan))
    shutil.copytree(tmp_path / "p.json.staged", tmp_path / "q.json.staged")
    (tmp_path / "mine/staged").mkdir(parents=True)
    (tmp_path / "mine/staged/f").write_text("mine")
    if is_stale:
        with open(data / "torn-0" / LOG, "ab") as log:
            log.write(b"x")
    done = klog("apply", tmp_path / "q.json")
    assert done.exit_code == (8 if is_stale else 0)
    assert (tmp_path / "mine/staged/f").read_text() == "mine"
    if not is_stale:
        assert json.loads(klog("plans", data, "--output", "json").stdout)["plans"][0]["state"] == "applied"


def test_files_in_the_way_of_a_backup_are_not_written_over(klog: Klog, data: Path, tmp_path: Path) -> None:
    klog("recover", data, "--save-plan", tmp_path / "p.json")
    plan = json.loads((tmp_path / "p.json").read_bytes())
    plan |= {"backup": str(tmp_path / "mine"), "backups": [str(tmp_path / "mine")]}
    (tmp_path / "p.json").write_text(json.dumps(plan))
    kept = tmp_path / "mine/tails/torn-0" / LOG
    kept.parent.mkdir(parents=True)
    kept.write_text("mine")
    before = content(data)
    done = klog("apply", tmp_path / "p.json")
    assert (done.exit_code, kept.read_text()) == (8, "mine")
    assert content(data) == before


def test_an_empty_directory_that_was_there_stays(klog: Klog, data: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    klog("recover", data / "torn-0", "--apply")
    assert klog("recover", data / "torn-0", "--backup", tmp_path / "mine", "--apply").exit_code == 0
    assert (tmp_path / "mine").is_dir()


def test_what_a_killed_planner_has_left_is_listed_and_removed(klog: Klog, dirty: Path) -> None:
    """Until then it took room, and nothing showed that it existed."""
    code = (
        "import os, signal; from klog.commands.compact import log_cleaner; from klog_cli import app\n"
        "log_cleaner.PartitionCompaction.plan = (lambda real: lambda *words: (real(*words), os.kill(os.getpid(), 9)))"
        "(log_cleaner.PartitionCompaction.plan)\napp.main()"
    )
    command = [sys.executable, "-c", code, *COMPACT, dirty / "keys-none-0", "--apply"]
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = (dirty.parent / "klog-backup").iterdir()
    assert any((left / "staged").rglob("*.log"))
    listed = klog("plans", dirty, "--output", "json")
    (plan,) = json.loads(listed.stdout)["plans"]
    assert (plan["state"], plan["backup"]) == ("being planned", str(left))
    assert b"the next command that changes the log dir removes" in klog("plans", dirty).stdout
    backup = applied(klog, *COMPACT, dirty / "keys-none-0")
    assert os.listdir(dirty.parent / "klog-backup") == [os.path.basename(backup)]


# links


def linked(data: Path, target: Path) -> Path:
    """Make a partition a link to a directory elsewhere."""
    shutil.copytree(data / "torn-0", target, copy_function=shutil.copy2)
    shutil.rmtree(data / "torn-0")
    (data / "torn-0").symlink_to(target)
    return target


@pytest.mark.parametrize("far", [False, True])
def test_a_partition_that_is_a_link_is_repaired(klog: Klog, data: Path, elsewhere: Path, far: bool) -> None:
    """Brokers follow such links: a disk that was added later."""
    target = linked(data, (elsewhere if far else data.parent) / "fast" / "torn-0")
    before = content(target)
    backup = applied(klog, "recover", data)
    assert klog("verify", data).exit_code == 0
    assert (data / "torn-0").is_symlink()
    undone(klog, backup)
    assert content(target) == before


def test_a_partition_that_another_process_has_open_is_left_alone(klog: Klog, data: Path) -> None:
    """At its real path there is no log dir whose lock would show it."""
    target = linked(data, data.parent / "fast" / "torn-0")
    before = content(target)
    code = f"f = open({str(target / LOG)!r}); print('open', flush=True); input()"
    process = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert said(process) == b"open"
    for path in (target, data):
        done = klog("recover", path, "--apply")
        assert done.exit_code == 8
        assert f"process {process.pid} has it open".encode() in done.stderr
    assert content(target) == before
    end(process)
    applied(klog, "recover", target)


def test_the_lock_of_a_log_dir_that_a_link_leads_into_counts_too(klog: Klog, data: Path, tmp_path: Path) -> None:
    other = writable_copy(FIXTURES / "crash/torn-in-batch", tmp_path / "other" / "data")
    shutil.rmtree(data / "torn-0")
    (data / "torn-0").symlink_to(other / "torn-0")
    (other / ".lock").touch()
    process = other_process(other / ".lock")
    assert said(process) == b"held"
    before = content(other)
    done = klog("recover", data, "--apply")
    end(process)
    assert (done.exit_code, content(other)) == (8, before)
    assert f"a broker is running on {other}".encode() in done.stderr


@pytest.mark.parametrize(
    "words",
    [("recover",), ("recover", "--like-broker"), ("truncate", "--to-offset=300"), ("truncate", "--to-log-start")],
)
def test_no_file_with_another_name_is_written_in_place(
    klog: Klog, data: Path, tmp_path: Path, words: list[str]
) -> None:
    """Snapshots by hard links are cheap, and cut with the log."""
    verb, *options = words
    snap = tmp_path / "snap"
    shutil.copytree(data, snap, copy_function=os.link)
    before, kept = content(data), content(snap)
    backup = applied(klog, verb, *options, data / "torn-0")
    after = content(data)
    assert content(snap) == kept
    back = undone(klog, backup)
    assert (content(data), content(snap)) == (before, kept)
    undone(klog, back)
    assert (content(data), content(snap)) == (after, kept)


# what apply would refuse


@only_root
def test_a_partition_that_may_not_be_written_to_does_not_stop_the_others(klog: Klog, elsewhere: Path) -> None:
    """A volume that was remounted read-only after an error: reported while planning, and the rest is done."""
    elsewhere.chmod(0o755)
    dirty = writable_copy(FIXTURES / "compaction/before", elsewhere / "w" / "data")
    for path in dirty.rglob("*.index"):
        path.unlink()
    shut = dirty / "keys-none-0"
    for path in (dirty, *dirty.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    os.chown(dirty.parent, NOBODY, NOBODY)
    os.chown(shut, 0, 0)
    shut.chmod(0o755)
    before = content(shut)
    planned = as_nobody(lambda: klog("recover", dirty))
    assert planned.exit_code == 4
    assert f"{shut}: is not writable: as things are now, --apply would not do it" in planned.stderr.decode()
    done = as_nobody(lambda: klog("recover", dirty, "--apply"))
    assert done.exit_code == 1 + 4 + 8
    assert f"nothing is changed here: {shut}: is not writable" in done.stdout.decode()
    assert content(shut) == before
    assert klog("verify", *(path for path in dirty.glob("*-0") if path != shut)).exit_code == 0


def test_room_that_is_lacking_is_said_while_planning(klog: Klog, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Disk, "free_bytes", lambda self, path: 100)
    done = klog("recover", data)
    assert done.exit_code == 4
    assert b"bytes are needed, 100 are free: as things are now, --apply would not do it" in done.stderr


def test_what_stands_under_two_names_is_reckoned_once(klog: Klog, dirty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction puts each new log as `.swap` and under its own name: room for one is enough."""
    plan = json.loads(klog(*COMPACT, dirty / "keys-none-0", "--output", "json").stdout)
    files = {one["file"]: one["after"]["size"] for one in plan["actions"] if one["do"] == "put"}
    needed = sum(size + 4096 for file, size in files.items() if not file.endswith(".swap"))
    assert sum(size + 4096 for size in files.values()) > needed + 4096
    monkeypatch.setattr(Disk, "free_bytes", lambda self, path: needed + 4096)
    assert b"as things are now" not in klog(*COMPACT, dirty / "keys-none-0").stderr
    monkeypatch.setattr(Disk, "free_bytes", lambda self, path: needed - 1)
    assert b"as things are now" in klog(*COMPACT, dirty / "keys-none-0").stderr


# attributes, locks


def test_extended_attributes_stay(klog: Klog, data: Path, elsewhere: Path) -> None:
    """Without its label or its ACL a broker may not read klog's new files."""
    for path in filter(Path.is_file, data.rglob("*")):
        os.setxattr(path, "user.label", path.name.encode())

    def labels() -> dict[str, bytes]:
        files = (path for path in (data / "torn-0").iterdir() if path.is_file())
        return {path.name: os.getxattr(path, "user.label") for path in files}

    before = labels()
    for where in (data.parent / "near", elsewhere / "far"):
        backup = applied(klog, "recover", data, "--backup", where)
        after = labels()
        new = after.keys() - before.keys()
        assert {name: label for name, label in after.items() if name not in new} == before
        assert new
        undone(klog, backup, "--backup", f"{where}-back")
        assert labels() == before


def test_another_klog_is_not_called_a_broker(klog: Klog, data: Path) -> None:
    code = (
        "import sys; from klog.data_dir.disk.disk_changes import Disk; from klog.data_dir.locks import Locks\n"
        "with Locks([sys.argv[1]], Disk()): print('held', flush=True); input()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, data], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )  # fmt: skip
    assert said(process) == b"held"
    done = klog("recover", data, "--apply")
    planned = klog("recover", data)
    end(process)
    assert done.exit_code == 8
    assert f"another klog is changing {data} (pid {process.pid}); wait" in done.stderr.decode()
    assert f"another klog is changing {data}: what is planned now may be stale" in planned.stderr.decode()
