"""A disk that loses power: writes are real until the cut; then only synced data is there.

    cut_everywhere(original, tmp_path, repair)

runs *repair* on copies of a log dir, cuts the power before each single call that changes anything, under each model of
the content of a disk, and checks that the repair can be finished and undone.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import pytest
from klog.change.plan.executor import apply
from klog.change.plan.file_history import locate_histories
from klog.change.plan.find_plans import StoredPlan, plans_of
from klog.change.plan.model import BACKUPS, PUT, Plan
from klog.change.plan.plan_status import is_unfinished
from klog.change.plan.undo import plan_undo, stage_undo
from klog.data_dir.disk.disk_changes import Disk, OpenFile
from klog.formats.names import FileKind, parse_file

from tests.support.counts import count

only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")

Meta = tuple[int, int, int, int]

MODELS = ("unsynced is lost", "names are lost", "writes are torn")
"""All unsynced data is lost; names of unsynced directories are as before, but content is there; names are all there,
but unsynced content is old, missing, or written up to a sector."""


def unfinished(log_dir: str) -> list[StoredPlan]:
    """Return the unfinished plans of *log_dir*."""
    return [kept for kept in plans_of(log_dir) if is_unfinished(kept.plan)]


class PowerCutError(Exception):
    """The power is off: nothing works any more."""


class HastyDisk(Disk):
    """Does not wait for the disk: for work while the power stays on."""

    def sync(self, paths: Sequence[str]) -> None:
        for path in paths:
            os.stat(path)


@dataclass
class _Inode:
    """A file or a directory as the disk would show it after a cut; *descriptor* keeps its number its own."""

    descriptor: int
    is_directory: bool
    content: bytes = b""
    meta: Meta | None = None
    names: dict[str, int] = field(default_factory=dict)


def _meta(status: os.stat_result) -> Meta:
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns


class SteppedDisk(HastyDisk):
    """Reports each call before it is made; *calls* are those made, with paths below *root*."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[str] = []

    def step(self, *words: str) -> None:
        """Note the next call; an exception of this is the call's."""
        self.calls.append(" ".join(word.replace(f"{self.root}/", "") for word in words))

    def create(self, path: str) -> OpenFile:
        self.step("create", path)
        return super().create(path)

    def open_lock(self, path: str) -> OpenFile:
        self.step("lock", path)
        return super().open_lock(path)

    def write(self, file: OpenFile, data: bytes | bytearray | memoryview) -> None:
        self.step("write", file.path)
        super().write(file, data)

    def copy(self, source: str, start: int, end: int, file: OpenFile) -> None:
        self.step("copy", source, file.path)
        super().copy(source, start, end, file)

    def truncate(self, file: OpenFile, size: int) -> None:
        self.step("truncate", file.path)
        super().truncate(file, size)

    def set_metadata(self, file: OpenFile, mode: int, uid: int, gid: int, modified_ns: int) -> None:
        self.step("metadata", file.path)
        super().set_metadata(file, mode, uid, gid, modified_ns)

    def sync(self, paths: Sequence[str]) -> None:
        for path in paths:
            self.step("sync", path)
            self._sync_one(path)

    def _sync_one(self, path: str) -> None:
        os.stat(path)

    def make_directory(self, path: str, like: str | None = None) -> None:
        self.step("mkdir", path)
        super().make_directory(path, like)

    def remove_directory(self, path: str) -> None:
        self.step("rmdir", path)
        super().remove_directory(path)

    def link(self, source: str, target: str) -> None:
        self.step("link", source, target)
        super().link(source, target)

    def rename(self, source: str, target: str) -> None:
        self.step("rename", source, target)
        super().rename(source, target)

    def unlink(self, path: str) -> None:
        self.step("unlink", path)
        super().unlink(path)

    def set_directory_time(self, path: str, modified_ns: int) -> None:
        self.step("time", path)
        super().set_directory_time(path, modified_ns)


class FaultyDisk(SteppedDisk):
    """Is refused call number *at* by the system, with error *number*."""

    def __init__(self, root: Path, at: int, number: int) -> None:
        super().__init__(root)
        self._at, self._number = at, number

    def step(self, *words: str) -> None:
        super().step(*words)
        if len(self.calls) - 1 == self._at:
            count("refused calls")
            raise OSError(self._number, os.strerror(self._number), words[-1])


class KilledError(BaseException):
    """The process was killed, before any of its clean-up."""


def _gone() -> None:
    raise KilledError


class DeadlyDisk(SteppedDisk):
    """Does *die* before call number *at*: nothing more happens from there on."""

    def __init__(self, root: Path, at: int, die: Callable[[], None] = _gone) -> None:
        super().__init__(root)
        self._at, self._die = at, die

    def step(self, *words: str) -> None:
        super().step(*words)
        if len(self.calls) > self._at:
            count("kills")
            self._die()


class PowerCutDisk(SteppedDisk):
    """Works on everything below *root*, whose content is synced; the power fails before call number *cut_at*."""

    def __init__(self, root: Path, cut_at: int | None = None) -> None:
        super().__init__(root)
        self._cut_at = cut_at
        self._inodes: dict[int, _Inode] = {}
        self._root = self._settle(os.fspath(root), everything=True)

    def __del__(self) -> None:
        for inode in self._inodes.values():
            os.close(inode.descriptor)

    # the content of the disk

    def _know(self, path: str) -> int:
        status = os.lstat(path)
        if status.st_ino not in self._inodes:
            is_directory = stat.S_ISDIR(status.st_mode)
            self._inodes[status.st_ino] = _Inode(os.open(path, os.O_RDONLY), is_directory, meta=_meta(status))
        return status.st_ino

    def _settle(self, path: str, everything: bool = False) -> int:
        """Note that a file's content or a directory's names are on the disk; *everything*: and all below."""
        number = self._know(path)
        inode = self._inodes[number]
        inode.meta = _meta(os.fstat(inode.descriptor))
        if not inode.is_directory:
            inode.content = _content(inode.descriptor)
            return number
        inode.names = {}
        for name in os.listdir(path):
            inside = os.path.join(path, name)
            inode.names[name] = self._settle(inside, True) if everything else self._know(inside)
        return number

    def forget_end(self, path: str, size: int) -> None:
        """Keep the last *size* bytes of a file in memory alone until it is synced."""
        inode = self._inodes[os.stat(path).st_ino]
        inode.content = inode.content[:-size]

    # the calls

    def step(self, *words: str) -> None:
        if self._cut_at is not None and len(self.calls) >= self._cut_at:
            raise PowerCutError
        super().step(*words)

    def create(self, path: str) -> OpenFile:
        file = super().create(path)
        self._know(path)
        return file

    def make_directory(self, path: str, like: str | None = None) -> None:
        super().make_directory(path, like)
        self._know(path)

    def _sync_one(self, path: str) -> None:
        if Path(path).is_relative_to(self.root):
            self._settle(path)

    # after the cut

    def lose_power(self, model: str, random: Random) -> None:
        """Rewrite everything below the root to the content of the disk after the cut."""
        count(f"power cuts: {model}")
        if model == MODELS[1]:
            for inode in self._inodes.values():
                if not inode.is_directory:
                    inode.content, inode.meta = _content(inode.descriptor), _meta(os.fstat(inode.descriptor))
        elif model == MODELS[2]:
            self._settle_names(os.fspath(self.root))
            for inode in self._inodes.values():
                if not inode.is_directory:
                    self._tear(inode, random)
        for name in os.listdir(self.root):
            path = self.root / name
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._rebuild(self._root, os.fspath(self.root), {})
        for inode in self._inodes.values():
            os.close(inode.descriptor)
        self._inodes = {}

    def _settle_names(self, path: str) -> None:
        inode = self._inodes[self._know(path)]
        inode.names = {}
        for name in os.listdir(path):
            inside = os.path.join(path, name)
            inode.names[name] = self._know(inside)
            if os.path.isdir(inside):
                self._settle_names(inside)

    def _tear(self, inode: _Inode, random: Random) -> None:
        now = _content(inode.descriptor)
        if now != inode.content and inode.content.startswith(now):
            # A cut changes nothing but the inode, which is written whole or not at all.
            if random.random() < 0.5:
                inode.content, inode.meta = now, _meta(os.fstat(inode.descriptor))
            return
        if now != inode.content:
            inode.content = _torn(inode.content, now, random)
        if random.random() < 0.5:
            inode.meta = _meta(os.fstat(inode.descriptor))

    def _rebuild(self, number: int, path: str, written: dict[int, str]) -> None:
        inode = self._inodes[number]
        assert inode.meta is not None
        mode, uid, gid, modified_ns = inode.meta
        if inode.is_directory:
            os.makedirs(path, exist_ok=True)
            for name, inside in inode.names.items():
                self._rebuild(inside, os.path.join(path, name), written)
        elif number in written:
            os.link(written[number], path)
            return
        else:
            Path(path).write_bytes(inode.content)
            written[number] = path
        os.chown(path, uid, gid)
        os.chmod(path, mode)
        os.utime(path, ns=(modified_ns, modified_ns))


def _torn(old: bytes, now: bytes, random: Random) -> bytes:
    """Return possible leftovers of unsynced writes: sectors old or new, either size or one between."""
    sizes = [len(old), len(now), *range(-(-len(old) // 512) * 512, len(now), 512)]
    size = random.choice(sizes)
    sectors = (random.choice([old, now])[at : at + 512].ljust(512, b"\0") for at in range(0, size, 512))
    return b"".join(sectors)[:size]


def _content(descriptor: int) -> bytes:
    return os.pread(descriptor, os.fstat(descriptor).st_size, 0)


# the rules that hold

Tree = dict[str, tuple[bytes | None, Meta]]


def tree(folder: Path, *, directory_times: bool = True) -> Tree:
    """Return every name below *folder* with content, mode, owner and time, the folder's own as well."""
    found: Tree = {}
    for path in (folder, *sorted(folder.rglob("*"))):
        mode, uid, gid, modified_ns = _meta(path.lstat())
        if path.is_dir():
            found[str(path.relative_to(folder))] = None, (mode, uid, gid, modified_ns if directory_times else 0)
        else:
            found[str(path.relative_to(folder))] = path.read_bytes(), (mode, uid, gid, modified_ns)
    return found


def less_pointers(found: Tree) -> Tree:
    """Return the tree of a log dir without klog's pointers to backups elsewhere, which stay after an undo."""
    return {name: facts for name, facts in found.items() if not name.endswith(".klog-backup")}


def same(log_dir: Path, before: Tree) -> bool:
    """Whether a log dir is unchanged since *before*, except for the lock, which klog makes and keeps."""
    return {**tree(log_dir), ".lock": None} == {**before, ".lock": None}


def copy_of(original: Path, target: Path) -> Path:
    """Return a copy of a log dir named `data` in the new directory *target*, to the last modification time."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    data = target / "data"
    shutil.copytree(original, data, symlinks=True)
    for path in (original, *original.rglob("*")):
        status, copied = path.lstat(), data / path.relative_to(original)
        os.chown(copied, status.st_uid, status.st_gid)
        os.utime(copied, ns=(status.st_mtime_ns, status.st_mtime_ns))
    return data


Repair = Callable[[Path, Disk], object]


def cut_everywhere(
    original: Path, tmp_path: Path, repair: Repair, *, models: Sequence[str] = MODELS, every: int = 1
) -> int:
    """Cut the power before each call of *repair* and each of its undo, and see that both always can be finished.

    *repair* plans and applies on the log dir it is given, and does nothing when there is nothing to do.  *every*: with
    2 before every second call.  Returns how many cuts were made.
    """
    memory = Path("/dev/shm")
    # A disk that is in memory loses power as well, and hundreds of times a second.
    if memory.is_dir():
        tmp_path = Path(tempfile.mkdtemp(dir=memory))
    try:
        with pytest.MonkeyPatch.context() as patch:
            # Notes about plans are on that disk as well, and deleted before the next cut: each search reads all of
            # them.
            patch.setenv("XDG_STATE_HOME", str(tmp_path / "cut" / "state"))
            return _cut_everywhere(original, tmp_path, repair, models, every)
    finally:
        if memory.is_dir():
            shutil.rmtree(tmp_path)


def _cut_everywhere(original: Path, tmp_path: Path, repair: Repair, models: Sequence[str], every: int) -> int:
    data = copy_of(original, tmp_path / "cut")
    before = _without_lock(tree(data))
    disk = PowerCutDisk(tmp_path / "cut")
    repair(data, disk)
    after = tree(data, directory_times=False)
    assert after != tree(copy_of(original, tmp_path / "cut"), directory_times=False), (
        "nothing to repair, nothing to test"
    )
    cuts = 0
    for model in models:
        for at in range(0, len(disk.calls), every):
            cuts += 1
            data = copy_of(original, tmp_path / "cut")
            _cut(data, lambda disk, data=data: repair(data, disk), at, model)
            _check_survives(data, before)
            _finish(data, repair)
            assert _without_lock(tree(data, directory_times=False)) == _without_lock(after), f"{model}, call {at}"
            plan = next(kept.plan for kept in plans_of(str(data)))
            take_back(plan, HastyDisk())
            assert _without_lock(tree(data)) == before, f"{model}, call {at}"
    return cuts + _cut_undo(original, tmp_path, repair, before, models, every)


def _cut_undo(original: Path, tmp_path: Path, repair: Repair, before: Tree, models: Sequence[str], every: int) -> int:
    copy_of(original, tmp_path / "cut")
    repair(tmp_path / "cut" / "data", HastyDisk())
    repaired = tmp_path / "repaired"
    shutil.rmtree(repaired, ignore_errors=True)
    _move(tmp_path / "cut", repaired)
    cuts = at = 0
    for model in models:
        at = 0
        while True:
            _move(_copied(repaired, tmp_path / "next"), tmp_path / "cut")
            data = tmp_path / "cut" / "data"
            kept = next(kept for kept in plans_of(str(data)))
            if not _cut(data, lambda disk, plan=kept.plan: take_back(plan, disk), at, model):
                break
            cuts += 1
            _check_survives(data, None)
            _finish_undo(data, kept.plan)
            assert _without_lock(tree(data)) == before, f"undo, {model}, call {at}"
            at += every
    return cuts


def _move(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return source.rename(target)


def _copied(source: Path, target: Path) -> Path:
    """Copy with all times, and with names that belong to one file still belonging to one."""
    import subprocess

    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", source, target], check=True)
    return target


def take_back(plan: Plan, disk: Disk) -> Plan:
    """Undo *plan*; return the plan of the undo."""
    back = plan_undo(plan, time.time_ns() // 1_000_000)
    if back.actions:
        apply(stage_undo(plan, back, disk), disk)
    return back


def _cut(data: Path, work: Callable[[Disk], object], at: int, model: str) -> bool:
    """Let *work* continue until call number *at*; return whether it reached that."""
    disk = PowerCutDisk(data.parent, at)
    try:
        work(disk)
    except PowerCutError:
        disk.lose_power(model, Random(at))
        return True
    return False


def _finish(data: Path, repair: Repair) -> None:
    """Continue as an operator would: finish begun work, or else begin again."""
    begun = unfinished(str(data))
    assert len(begun) <= 1
    for kept in begun:
        apply(kept.plan, HastyDisk())
    if not begun:
        # A plan that was written but never begun is none.
        if not _is_done(data):
            shutil.rmtree(data.parent / BACKUPS, ignore_errors=True)
        repair(data, HastyDisk())


def _is_done(data: Path) -> bool:
    plans = plans_of(str(data))
    return bool(plans) and not any(chain.to_do for chain in locate_histories(plans[0].plan))


def _finish_undo(data: Path, plan: Plan) -> None:
    begun = [kept for kept in unfinished(str(data)) if kept.plan.undoes == plan.id]
    if begun:
        apply(begun[0].plan, HastyDisk())
    else:
        done = [kept.plan for kept in plans_of(str(data)) if kept.plan.undoes == plan.id]
        for back in done:
            if not any(chain.to_do for chain in locate_histories(back)):
                apply(back, HastyDisk())
                return
        take_back(plan, HastyDisk())


def _check_survives(data: Path, before: Tree | None) -> None:
    """Check that after a cut each file is one of the plan's states, and that no step is done before one it relies
    on."""
    plans = plans_of(str(data))
    if not plans:
        if before is not None:
            assert _without_lock(tree(data, directory_times=False)) == _timeless(before)
        return
    plan = plans[-1].plan
    done: dict[int, bool] = {}
    for chain in locate_histories(plan):
        assert chain.at is not None, f"{chain.path} is none of its states"
        for place in chain.actions:
            done[place] = place not in chain.to_do
    for groups in _orders(plan):
        begun = [at for at, group in enumerate(groups) if any(done[place] for place in group)]
        for group in groups[: max(begun, default=0)]:
            assert all(done[place] for place in group), [plan.actions[place].file for place in group]


def _orders(plan: Plan) -> Iterator[list[list[int]]]:
    """Yield, for each partition, its actions in groups, each on the disk before any of the next."""
    places = [(action.log_dir, os.path.dirname(action.file)) for action in plan.actions]
    for partition in set(places):
        groups: list[list[int]] = []
        was_index = False
        for place, action in enumerate(plan.actions):
            # The log dir's own files follow all before them.
            if places[place] != partition and places[place][1]:
                continue
            # Indexes that follow each other may appear in any order.
            is_index = action.do == PUT and parse_file(os.path.basename(action.file)).kind in _INDEXES
            if not (is_index and was_index):
                groups.append([])
            groups[-1].append(place)
            was_index = is_index
        yield groups


_INDEXES = (FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


def _timeless(found: Tree) -> Tree:
    """Leave out the times of directories: a cut may have set those back, or on."""
    return {name: (content, meta if content is not None else (*meta[:3], 0)) for name, (content, meta) in found.items()}


def _without_lock(found: Tree) -> Tree:
    """Leave out `.lock`: the power may fail after it was made and before its owner is recorded."""
    return {name: entry for name, entry in found.items() if name != ".lock"}
