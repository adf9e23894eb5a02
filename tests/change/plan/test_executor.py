"""The executor: a plan is applied, whole, or not at all, and can be undone."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from klog.base.errors import KlogError, PlanError, UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.change.plan.draft import Draft, backup_places, make_plan, plan_id
from klog.change.plan.executor import ApplyError, apply
from klog.change.plan.find_plans import plans_of
from klog.change.plan.model import PLAN, STAGED, Guard, Plan, StaleError
from klog.change.plan.plan_document import plan_pieces
from klog.change.plan.staging import Staging
from klog.data_dir.disk.disk_changes import Disk, OpenFile
from klog.data_dir.locks import LockedError, Locks
from klog.data_dir.log_dir import LogDir

from tests.support.counts import count
from tests.support.power import (
    MODELS,
    DeadlyDisk,
    HastyDisk,
    KilledError,
    SteppedDisk,
    copy_of,
    cut_everywhere,
    less_pointers,
    only_root,
    take_back,
    tree,
    unfinished,
)
from tests.support.samples import some_or_all

NOW = 1_795_239_019_000
LOG = "orders-3/00000000000000001841.log"


def name(base: int, kind: str, partition: str = "orders-3") -> str:
    return f"{partition}/{base:020}.{kind}"


@pytest.fixture
def original(tmp_path: Path) -> Path:
    """A log dir with two partitions; the files' content does not matter here, their names and order do."""
    data = tmp_path / "original"
    for partition in ("orders-3", "orders-4"):
        for base in (1841, 1900):
            for kind, size in (("log", 3000), ("index", 24), ("timeindex", 36), ("snapshot", 60)):
                path = data / name(base, kind, partition)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(f"{partition} {base} {kind} ".encode() * (size // 16))
        (data / partition / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    (data / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\norders 3 2000\n")
    (data / ".kafka_cleanshutdown").write_bytes(b'{"version":0}')
    for at, path in enumerate(sorted(data.rglob("*"))):
        path.chmod(0o750 if path.is_dir() else 0o640)
        os.utime(path, ns=(NOW * 1000 + at, NOW * 1000 + at))
    os.utime(data, ns=(NOW * 1000, NOW * 1000))
    return data


def plan_repair(data: Path, disk: Disk, backup: str | None = None) -> Plan:
    """A plan of everything that plans can do."""
    number = plan_id("recover", NOW)
    backups = backup_places(number, [str(data)], backup)
    staging = Staging(os.path.join(backups[0], STAGED), disk)
    drafts = []
    for partition in ("orders-3", "orders-4"):
        draft = Draft(str(data), 0, staging)
        log = name(1841, "log", partition)
        draft.truncate(name(1841, "index", partition), 0)
        draft.remove(name(1900, "snapshot", partition))
        draft.remove(name(1900, "index", partition))
        draft.remove(name(1900, "log", partition))
        draft.cut_out(log, 1500, 2000, "bad-crc", first_offset=1850)
        if partition == "orders-3":
            draft.truncate(log, 1500)
        else:
            draft.put(log, [b"new " * 300, b"log " * 300])
        draft.put(name(1841, "index", partition), [b"entries!"])
        draft.put(name(1841, "timeindex", partition), [b"entries of time"])
        draft.put(name(1841, "txnindex", partition), [b"aborted"], like=log)
        draft.put(f"{partition}/leader-epoch-checkpoint", [b"0\n1\n1 0\n"], modified_ns=NOW)
        draft.remove(name(1900, "timeindex", partition))
        drafts.append(draft)
    first, last = Draft(str(data), 0, staging), Draft(str(data), 0, staging)
    first.remove(".kafka_cleanshutdown")
    last.put("recovery-point-offset-checkpoint", [b"0\n1\norders 3 1900\n"])
    last.put("cleaner-offset-checkpoint", [b"0\n0\n"], like="recovery-point-offset-checkpoint")
    return make_plan(number, "klog recover data --apply", [str(data)], backups, [first, *drafts, last], NOW)


def repair(data: Path, disk: Disk) -> None:
    if (data / ".kafka_cleanshutdown").exists():
        apply(plan_repair(data, disk), disk)


@some_or_all
@pytest.mark.parametrize("model", MODELS)
def test_power_cut_before_any_call(original: Path, tmp_path: Path, model: str, every: int) -> None:
    """For any state of the disk: begun work is finished, the rest is untouched, and both can be undone."""
    assert cut_everywhere(original, tmp_path, repair, models=(model,), every=every) > 100 // every


# the result, and the backups


def kept_in(plan: Plan) -> dict[str, bytes]:
    backup = Path(plan.backups[0])
    return {str(path.relative_to(backup)): path.read_bytes() for path in backup.rglob("*") if path.is_file()}


def facts(path: Path) -> tuple[int, int, int, int]:
    status = path.stat()
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns


def test_a_plan_becomes_files(original: Path) -> None:
    before = tree(original)
    plan = plan_repair(original, Disk())
    result = apply(plan, Disk())
    assert (result.done, result.done_before) == (len(plan.actions), 0)
    after = tree(original)
    assert ".lock" not in after
    for file in {action.file for action in plan.actions}:
        last = [action.after for action in plan.actions if action.file == file][-1]
        if last is None:
            assert file not in after
        else:
            content, meta = after[file]
            assert content is not None
            assert len(content) == last.size
            assert meta == (last.mode, last.uid, last.gid, last.modified_ns)
    assert after[name(1841, "log")][0] == before[name(1841, "log")][0][:1500]
    assert after[name(1841, "index")][0] == b"entries!"
    untouched = {name for name in before if name not in {action.file for action in plan.actions}}
    assert {file: after[file] for file in untouched if before[file][0] is not None} == {
        file: before[file] for file in untouched if before[file][0] is not None
    }


def test_originals_are_the_very_files_and_nothing_that_is_written_to(original: Path) -> None:
    """A link costs nothing; but one to a file that is cut in place would be cut with it."""
    inodes = {str(path.relative_to(original)): path.stat().st_ino for path in original.rglob("*")}
    before = tree(original)
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    backup = Path(plan.backups[0])
    for file in (name(1900, "log"), name(1841, "log", "orders-4"), ".kafka_cleanshutdown"):
        assert (backup / "originals" / file).stat().st_ino == inodes[file]
    emptied = backup / "originals" / name(1841, "index")
    assert emptied.read_bytes() == before[name(1841, "index")][0]
    assert emptied.stat().st_ino != inodes[name(1841, "index")]
    assert not (backup / "originals" / name(1841, "log")).exists()
    assert (backup / "tails" / name(1841, "log")).read_bytes() == before[name(1841, "log")][0][1500:]
    for path in (*(backup / "originals").rglob("*"), *(backup / "tails").rglob("*")):
        if path.is_file():
            assert facts(path) == before["/".join(path.relative_to(backup).parts[1:])][1]
    assert not (backup / "staged").exists()


def test_what_is_cut_out_is_found_again_with_where_it_came_from(original: Path) -> None:
    before = (original / name(1841, "log")).read_bytes()
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    kept = kept_in(plan)
    place = "lost+found/orders-3/00000000000000001841@1500-2000"
    assert kept[place] == before[1500:2000]
    assert json.loads(kept[f"{place}.json"]) == {
        "file": name(1841, "log"),
        "log_dir": str(original),
        "start": 1500,
        "end": 2000,
        "reason": "bad-crc",
        "plan": plan.id,
        "first_offset": 1850,
    }


def test_a_plan_that_was_carried_out_has_nothing_to_do(original: Path) -> None:
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    after = tree(original.parent)
    result = apply(plan, Disk())
    assert (result.done, result.done_before) == (0, len(plan.actions))
    assert tree(original.parent) == after


@only_root
def test_owners_carry_over(original: Path) -> None:
    """Brokers run as somebody who is not root; a file of root's would stop them."""
    for path in (original, *original.rglob("*")):
        os.chown(path, 4711, 4712)
    before = tree(original)
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    assert {meta[1:3] for _, meta in tree(original).values()} == {(4711, 4712)}
    take_back(plan, Disk())
    assert tree(original) == before


@only_root
def test_who_may_not_give_files_away_is_told_before_anything_changes(original: Path, elsewhere: Path) -> None:
    """An operator who is not root would else leave files that the broker cannot read."""
    data = copy_of(original, elsewhere / "run")
    for path in (elsewhere, data.parent, data, *data.rglob("*")):
        os.chown(path, 4711, 4712)
        path.chmod(0o777 if path.is_dir() else 0o666)
    before = tree(data)
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            apply(plan_repair(data, HastyDisk()), HastyDisk())
        except ApplyError as error:
            is_told = "Operation not permitted" in str(error) and "nothing was changed" in str(error)
            code = 0 if is_told else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert {**tree(data), ".": 0} == {**before, ".": 0}
    assert os.listdir(data.parent) == ["data"]


def test_a_log_dir_that_is_gone_is_said(original: Path) -> None:
    plan = plan_repair(original, Disk())
    original.rename(original.parent / "elsewhere")
    with pytest.raises(ApplyError, match="original: No such file or directory; nothing was changed"):
        apply(plan, Disk())


# what stops it


def refused(plan: Plan, error: type[KlogError], match: str | None, disk: Disk | None = None) -> KlogError:
    """See that *plan* is refused and leaves no trace, in the log dir or beside it."""
    data = Path(plan.log_dirs[0])
    before = tree(data), sorted(os.listdir(data.parent))
    with pytest.raises(error, match=match) as caught:
        apply(plan, disk or Disk())
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 8
    assert (tree(data), sorted(os.listdir(data.parent))) == before or "klog-backup" in before[1]
    assert tree(data) == before[0]
    assert not any(os.path.exists(os.path.join(backup, PLAN)) for backup in plan.backups)
    return caught.value


FILES = [
    name(1841, "index"),
    name(1841, "log"),
    name(1900, "snapshot", "orders-4"),
    "recovery-point-offset-checkpoint",
    ".kafka_cleanshutdown",
]


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("change", ["a byte", "longer", "gone", "a link", "a directory"])
def test_a_plan_is_stale_when_a_file_has_changed(original: Path, file: str, change: str) -> None:
    """One byte that somebody has written since may be the one that is thrown away."""
    plan = plan_repair(original, Disk())
    path = original / file
    content = bytearray(path.read_bytes())
    path.rename(original.parent / "elsewhere") if change == "a link" else path.unlink()
    if change == "a link":
        path.symlink_to(original.parent / "elsewhere")
    elif change == "a directory":
        path.mkdir()
    elif change != "gone":
        content[len(content) // 2] ^= 0xFF * (change == "a byte")
        path.write_bytes(content + b"x" * (change == "longer"))
    error = refused(plan, StaleError, None)
    assert str(path) in str(error)


@pytest.mark.parametrize("file", [name(1841, "txnindex"), "cleaner-offset-checkpoint"])
def test_a_plan_is_stale_when_a_file_has_appeared(original: Path, file: str) -> None:
    plan = plan_repair(original, Disk())
    (original / file).write_bytes(b"mine")
    assert str(original / file) in str(refused(plan, StaleError, "has changed since"))


def test_a_plan_that_was_carried_out_and_used_since_is_stale(original: Path) -> None:
    """A second application must not report that nothing was done."""
    plan = plan_repair(original, Disk())
    apply(plan, Disk())
    (original / name(1841, "log")).write_bytes(b"new")
    before = tree(original.parent)
    said_to = f"has changed since {len(plan.actions) - 1} of {len(plan.actions)} changes had been made; nothing more"
    with pytest.raises(StaleError, match=said_to):
        apply(plan, Disk())
    assert tree(original.parent) == before


def test_a_plan_is_stale_when_what_it_relies_on_has_changed(original: Path) -> None:
    plan = plan_repair(original, Disk())._replace(guards=(Guard(name(1900, "timeindex"), 36, NOW),))
    refused(plan, StaleError, "1900.timeindex: has changed since")


@pytest.mark.parametrize("is_link", [True, False])
def test_a_partition_that_is_no_directory_is_refused(original: Path, is_link: bool) -> None:
    plan = plan_repair(original, Disk())
    (original / "orders-3").rename(original.parent / "elsewhere")
    if is_link:
        (original / "orders-3").symlink_to(original.parent / "elsewhere" / os.path.basename(name(1841, "log")))
    else:
        (original / "orders-3").touch()
    refused(plan, StaleError, "orders-3: not a directory")


def test_a_log_dir_may_be_a_link(original: Path, tmp_path: Path) -> None:
    """Operators mount disks somewhere and link to them."""
    before = tree(original)
    (tmp_path / "disk").mkdir()
    original.rename(tmp_path / "disk" / "data")
    original.symlink_to(tmp_path / "disk" / "data")
    plan = plan_repair(original, Disk())
    assert plan.backups == (str(tmp_path / "disk" / "klog-backup" / plan.id),)
    apply(plan, Disk())
    take_back(plan, Disk())
    assert tree(tmp_path / "disk" / "data") == before


@pytest.mark.parametrize("damage", ["gone", "changed", "a link"])
def test_new_content_that_is_not_what_was_planned_is_refused(original: Path, damage: str) -> None:
    plan = plan_repair(original, Disk())
    path = Path(plan.backups[0], STAGED, name(1841, "timeindex"))
    path.unlink()
    if damage == "changed":
        path.write_bytes(b"entries of TIME")
    elif damage == "a link":
        path.symlink_to("/etc/hostname")
    refused(plan, StaleError, "timeindex: (gone|not)")


@pytest.mark.parametrize("where", ["inside", "partition", "linked", "other"])
def test_a_backup_in_a_log_dir_is_refused(original: Path, tmp_path: Path, where: str) -> None:
    """A broker stops at a directory that it does not accept."""
    (tmp_path / "linked").symlink_to(original / "orders-3")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "meta.properties").touch()
    place = {
        "inside": original / "backup",
        "partition": original / "orders-3" / "backup",
        "linked": tmp_path / "linked" / "new" / "backup",
        "other": tmp_path / "other" / "backup",
    }[where]
    plan = plan_repair(original, Disk())
    refused(
        plan._replace(backups=(str(place),), staging=plan.staging or (plan.staged(0),)), PlanError, "lies in the log"
    )
    refused(plan._replace(staging=(str(place),)), PlanError, "lies in the log dir")


def test_the_backup_of_another_plan_is_not_overwritten(original: Path, tmp_path: Path) -> None:
    plan = plan_repair(original, Disk())
    other = Path(plan.backups[0], PLAN)
    other.write_bytes(b"".join(plan_pieces(plan._replace(id="other"))))
    before = tree(original)
    with pytest.raises(StaleError, match="another plan"):
        apply(plan, Disk())
    assert tree(original) == before
    assert b"other" in other.read_bytes()


class FullDisk(Disk):
    def free_bytes(self, path: str) -> int:
        return 5000


def test_room_is_asked_for_before_anything(original: Path) -> None:
    plan = plan_repair(original, Disk())
    error = refused(plan, ApplyError, "5000 are free; nothing was changed", FullDisk())
    assert "--backup" in str(error)


# locks

HOLDER = """
import fcntl, os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
try:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    print("refused", flush=True)
    sys.exit()
print("held", flush=True)
sys.stdin.read()
"""


def other_process(lock: Path) -> subprocess.Popen[bytes]:
    """Start a process that locks as a broker does."""
    command = [sys.executable, "-c", HOLDER, str(lock)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def said(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end(process: subprocess.Popen[bytes]) -> None:
    process.communicate()


def test_a_running_broker_stops_it(original: Path) -> None:
    """Two that write into one log leave none."""
    (original / ".lock").touch()
    plan = plan_repair(original, Disk())
    process = other_process(original / ".lock")
    assert said(process) == b"held"
    with pytest.raises(LockedError, match=rf"a broker is running on {original} \(pid {process.pid}\)"):
        apply(plan, Disk())
    end(process)
    assert (original / ".lock").exists()
    apply(plan, Disk())
    assert (original / ".lock").exists(), "it was there before"


def test_no_broker_starts_meanwhile(original: Path) -> None:
    """Asking about the lock, as verify does, must not drop it."""
    with Locks([str(original)], Disk()) as locks:
        assert LogDir(str(original)).lock.held is False
        process = other_process(original / ".lock")
        assert said(process) == b"refused"
        end(process)
        apply(plan_repair(original, Disk()), Disk(), locks=locks)
        process = other_process(original / ".lock")
        assert said(process) == b"refused"
        end(process)
    assert not (original / ".lock").exists()


def test_locks_leave_no_trace(original: Path) -> None:
    before = tree(original)
    with Locks([str(original)], Disk()):
        pass
    assert tree(original) == before


def test_one_locked_log_dir_of_several_is_enough(original: Path, tmp_path: Path) -> None:
    other = copy_of(original, tmp_path / "other")
    process = other_process(other / ".lock")
    assert said(process) == b"held"
    before = tree(original)
    with pytest.raises(LockedError, match=str(other)):
        Locks([str(original), str(other)], Disk())
    assert tree(original) == before
    end(process)
    with Locks([str(original), str(other)], Disk()), pytest.raises(LockedError, match="this process itself"):
        Locks([str(other)], Disk())


def test_a_lock_file_that_a_stopping_broker_has_removed_is_made_again(original: Path) -> None:
    """The lock of a file without a name excludes no process."""

    class Late(Disk):
        left = 3

        def open_lock(self, path: str) -> OpenFile:
            file = super().open_lock(path)
            if self.left:
                self.left -= 1
                os.unlink(path)
            return file

    with Locks([str(original)], Late()):
        process = other_process(original / ".lock")
        assert said(process) == b"refused"
        end(process)


# other file systems


def test_a_backup_on_another_file_system_holds_copies(original: Path, elsewhere: Path) -> None:
    before = tree(original)
    disk = SteppedDisk(original.parent)
    plan = plan_repair(original, disk, str(elsewhere / "backup"))
    apply(plan, disk)
    assert any("klog.tmp" in call for call in disk.calls)
    assert not list(original.rglob("*.klog.tmp"))
    for path in (elsewhere / "backup" / "originals").rglob("*"):
        if path.is_file():
            file = str(path.relative_to(elsewhere / "backup" / "originals"))
            assert (path.read_bytes(), facts(path)) == before[file]
    take_back(plan, Disk())
    assert less_pointers(tree(original)) == before


def test_room_is_counted_on_both_file_systems(original: Path, elsewhere: Path) -> None:
    asked: list[str] = []

    class Asked(Disk):
        def free_bytes(self, path: str) -> int:
            asked.append(path)
            return super().free_bytes(path)

    apply(plan_repair(original, Disk(), str(elsewhere / "backup")), Asked())
    assert len({os.stat(path).st_dev for path in asked}) == 2


# refusals of the system


class FaultyDisk(SteppedDisk):
    """Fails at call number *at*, or from it on."""

    def __init__(self, root: Path, at: int, number: int, lasting: bool) -> None:
        super().__init__(root)
        self._at, self._number, self._lasting = at, number, lasting

    def step(self, *words: str) -> None:
        super().step(*words)
        if len(self.calls) - 1 == self._at or (self._lasting and len(self.calls) > self._at):
            raise OSError(self._number, os.strerror(self._number), words[-1])


@some_or_all
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO], ids=errno.errorcode.get)
def test_whatever_the_system_refuses_is_one_line_and_can_be_mended(
    original: Path, number: int, lasting: bool, elsewhere: Path, every: int
) -> None:
    """At every call: either nothing has changed, and nothing is left, or the plan can be finished."""
    data = copy_of(original, elsewhere / "run")
    before = tree(data)
    counting = SteppedDisk(data.parent)
    plan = plan_repair(data, HastyDisk())
    apply(plan, counting)
    after = tree(data, directory_times=False)
    outcomes = Counter[str]()
    for at in range(0, len(counting.calls), every):
        data = copy_of(original, elsewhere / "run")
        plan = plan_repair(data, HastyDisk())
        try:
            apply(plan, FaultyDisk(data.parent, at, number, lasting))
        except ApplyError as error:
            line = str(error)
        else:
            line = "done"
        outcomes[line.split("; ")[-1].split(" changes")[0].split(" of ")[-1]] += 1
        if line != "done":
            assert os.strerror(number) in line
            assert "\n" not in line
            if "nothing was changed" in line:
                # A lock file that cannot be removed stays, and changes the time of the log dir itself.
                allowed = {".": 0, ".lock": 0}
                assert {**tree(data), **allowed} == {**before, **allowed}
                assert lasting or not (data.parent / "klog-backup" / plan.id / PLAN).exists()
                continue
        apply(plan, HastyDisk())
        assert tree(data, directory_times=False) == after
        take_back(plan, HastyDisk())
        assert tree(data) == before
    assert outcomes["nothing was changed"] > 50 // every
    assert outcomes[str(len(plan.actions))] > 30 // every, "when some changes are made, it is said how many of how many"


def test_a_file_that_cannot_be_read_stops_it(original: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_repair(original, Disk())
    before = tree(original)
    read = ReadOnlyFile.read_into

    def fail(source: ReadOnlyFile, position: int, view: memoryview) -> int:
        if source.path.endswith(name(1900, "snapshot", "orders-4")) and "staged" not in source.path:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(source, position, view)

    monkeypatch.setattr(ReadOnlyFile, "read_into", fail)
    with pytest.raises(UnreadableError, match=r"orders-4/00000000000000001900\.snapshot @ 0: cannot read"):
        apply(plan, Disk())
    monkeypatch.undo()
    assert tree(original) == before
    assert not os.path.exists(plan.backups[0])


# order


def test_partitions_go_side_by_side_and_the_log_dir_s_own_files_between_them(original: Path) -> None:
    """Each wait for the disk serves all partitions; within one the order holds."""
    plan = plan_repair(original, Disk())
    disk = SteppedDisk(original.parent)
    apply(plan, disk)
    calls = [call for call in disk.calls if "original/" in call]
    begin = next(at for at, call in enumerate(calls) if call == "unlink original/.kafka_cleanshutdown")
    acts = [call.split()[0] + " " + call.split()[-1] for call in calls[begin:]]
    acts = [act for act in acts if not act.startswith(("metadata", "sync"))]
    assert acts[1] == f"truncate original/{name(1841, 'index')}"
    assert acts[2] == f"truncate original/{name(1841, 'index', 'orders-4')}"
    for partition in ("orders-3", "orders-4"):
        mine = [act.split()[1].removeprefix("original/") for act in acts if partition in act]
        assert mine == [action.file for action in plan.actions if action.file.startswith(partition)]
    assert [act.split("/")[-1] for act in acts[-3:]] == [
        "recovery-point-offset-checkpoint",
        "cleaner-offset-checkpoint",
        ".lock",
    ]


def test_indexes_in_a_row_wait_for_the_disk_once(tmp_path: Path) -> None:
    """Ten thousand segments have thirty thousand indexes."""
    data = tmp_path / "data"
    (data / "orders-3").mkdir(parents=True)
    number = plan_id("recover", NOW)
    backups = backup_places(number, [str(data)])
    draft = Draft(str(data), 0, Staging(os.path.join(backups[0], STAGED), Disk()))
    for base in range(200):
        for kind in ("index", "timeindex"):
            draft.put(name(base, kind), [b"%d" % base])
    disk = SteppedDisk(tmp_path)
    apply(make_plan(number, "klog", [str(data)], backups, [draft], NOW), disk)
    assert disk.calls.count("sync data/orders-3") == 1


def test_ten_thousand_segments_are_synced_in_bulk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One call for the file system instead of waiting for each file."""
    whole: list[str] = []
    monkeypatch.setattr("klog.data_dir.disk.disk_changes._sync_file_system", whole.append)
    paths = [tmp_path / str(at) for at in range(100)]
    for path in paths:
        path.touch()
    Disk().sync([str(path) for path in paths])
    assert len(whole) == 1
    Disk().sync([str(path) for path in paths[:10]])
    assert len(whole) == 1


# kills


def finished(data: Path) -> None:
    """Continue as an operator would, and check that the result is the planned one, and the undo the original."""
    begun = unfinished(str(data))
    for kept in begun:
        apply(kept.plan, HastyDisk())
    if not begun and (data / ".kafka_cleanshutdown").exists():
        shutil.rmtree(data.parent / "klog-backup", ignore_errors=True)
        repair(data, HastyDisk())


def die() -> None:
    """End this process as nothing can be done about."""
    os.kill(os.getpid(), signal.SIGKILL)


@some_or_all
def test_killed_before_any_call(original: Path, elsewhere: Path, monkeypatch: pytest.MonkeyPatch, every: int) -> None:
    """Operators press ^C three times, and kernels run out of memory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(elsewhere / "run" / "state"))  # goes with each copy
    data = copy_of(original, elsewhere / "run")
    before = tree(data)
    repair(data, HastyDisk())
    after = tree(data, directory_times=False)
    kills = 0
    while True:
        data = copy_of(original, elsewhere / "run")
        child = os.fork()
        if not child:
            repair(data, DeadlyDisk(data.parent, kills, die))
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        if not os.WIFSIGNALED(status):
            break
        kills += every
        finished(data)
        assert {**tree(data, directory_times=False), ".lock": 0} == {**after, ".lock": 0}, kills
        take_back(plans_of(str(data))[0].plan, HastyDisk())
        # The time of the log dir itself is lost between two calls that make a lock file and set it back.
        assert {**tree(data), ".lock": 0, ".": 0} == {**before, ".lock": 0, ".": 0}, kills
    assert kills > 150


KILLED = """
import sys
sys.path[:0] = sys.argv[2:]
from pathlib import Path
from klog.data_dir.disk.disk_changes import Disk
from tests.change.plan.test_executor import repair
repair(Path(sys.argv[1]), Disk())
"""


def killed_within(data: Path, call: str, at: int) -> bool:
    """Repair in a process that is killed as it enters system call *at* of that name; return whether it reached that."""
    count("kills")
    command = ["strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={at}"]
    command += [sys.executable, "-B", "-c", KILLED, str(data), *filter(None, sys.path)]
    done = subprocess.run(command, capture_output=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL, 128 + signal.SIGKILL), done.stderr
    return done.returncode != 0


def killed_after(data: Path, seconds: float) -> bool:
    """Repair in a process that is killed after a while; whether it was still at it."""
    process = subprocess.Popen([sys.executable, "-B", "-c", KILLED, str(data), *filter(None, sys.path)])
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
    return process.wait() != 0


def may_trace() -> bool:
    """Whether system calls of other processes may be followed here."""
    return (
        shutil.which("strace") is not None
        and not subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode
    )


def test_killed_within_system_calls(original: Path, tmp_path: Path) -> None:
    """A real process on a real file system, killed as it enters calls of each kind; or at some moments of its run."""
    before = tree(original)
    random = Random(7)
    if may_trace():
        calls = {"rename": 20, "unlink": 15, "ftruncate": 4, "fsync": 60, "linkat": 10, "write": 20, "mkdir": 8}
        kills = [(call, random.randint(1, most)) for call, most in calls.items() for _ in range(2)]
    else:
        kills = [("", random.randint(300, 1500)) for _ in range(14)]
    came_so_far = 0
    for call, at in kills:
        data = copy_of(original, tmp_path / "run")
        came_so_far += killed_within(data, call, at) if call else killed_after(data, at / 1000)
        finished(data)
        take_back(plans_of(str(data))[0].plan, HastyDisk())
        assert {**tree(data), ".lock": 0} == {**before, ".lock": 0}, (call, at)
    assert came_so_far > 3


class HalfMadeDisk(HastyDisk):
    """Ends with the process as soon as a directory is made that is to be like another."""

    def make_directory(self, path: str, like: str | None = None) -> None:
        super().make_directory(path)
        if like is not None:
            raise KilledError


def test_a_directory_that_a_killed_run_has_made_becomes_like_the_log_dir(original: Path) -> None:
    """Else it would be for root alone, and no broker could open it."""
    original.chmod(0o2750)
    backup = str(original.parent / "klog-backup/x")
    draft = Draft(str(original), 0, Staging(os.path.join(backup, STAGED), HastyDisk()))
    draft.put("orders-9/leader-epoch-checkpoint", [b"0\n0\n"], like="orders-3/leader-epoch-checkpoint")
    plan = make_plan("x", "klog", [str(original)], [backup], [draft], NOW)
    with pytest.raises(KilledError):
        apply(plan, HalfMadeDisk())
    assert stat.S_IMODE((original / "orders-9").stat().st_mode) & 0o777 == 0o700
    apply(plan, HastyDisk())
    assert stat.S_IMODE((original / "orders-9").stat().st_mode) == 0o2750


def cut_only(data: Path, disk: Disk) -> None:
    """Repair by nothing but a truncation, which is two calls."""
    number = plan_id("truncate", NOW)
    backups = backup_places(number, [str(data)])
    draft = Draft(str(data), 0, Staging(os.path.join(backups[0], STAGED), disk))
    if draft.truncate(name(1841, "log"), 1500):
        apply(make_plan(number, "klog truncate", [str(data)], backups, [draft], NOW), disk)


@some_or_all
def test_power_cut_within_a_truncation(original: Path, tmp_path: Path, every: int) -> None:
    """Cut, and without its time again: that is begun, and must be finished before anything else is planned."""
    assert cut_everywhere(original, tmp_path, cut_only, every=every) > 100 // every


def test_holes_stay_holes(tmp_path: Path, elsewhere: Path) -> None:
    """Segments of 2 GiB - 1 are preallocated: their copies must not fill the disk with zeros."""
    data, size = tmp_path / "data", 2**31 - 1
    (data / "orders-3").mkdir(parents=True)
    path = data / name(0, "log")
    with path.open("wb") as file:
        file.write(b"batches" * 1000)
        file.truncate(size)
        file.seek(size - 5)
        file.write(b"stray")
    before = path.stat()
    draft = Draft(str(data), 0, Staging(str(tmp_path / "staged"), Disk()))
    draft.truncate(name(0, "log"), 7000)
    for backup in (tmp_path / "klog-backup" / "x", elsewhere / "x"):
        plan = make_plan("x", "klog", [str(data)], [str(backup)], [draft], NOW)
        apply(plan, Disk())
        assert path.stat().st_size == 7000
        assert (backup / "tails" / name(0, "log")).stat().st_size == size - 7000
        assert (backup / "tails" / name(0, "log")).stat().st_blocks < 100
        take_back(plan, Disk())
        after = path.stat()
        assert (after.st_size, after.st_mtime_ns) == (size, before.st_mtime_ns)
        assert after.st_blocks < 200
    with path.open("rb") as file:
        assert file.read(14) == b"batchesbatches"
        file.seek(size - 6)
        assert file.read() == b"\0stray"
