"""Executes plans: the only way in which a plan changes files.

    with Locks(plan.log_dirs, disk) as locks:
        result = apply(plan, disk, locks=locks)

The order is as follows, each step synced before the next begins: the locks; a check that every file is in a state of
the plan; a check of the free space; a sync of the files on which the plan relies; the plan and all originals in the
backup, and all new content staged; then action after action.  After a kill at any point the same plan finishes.  An
error before the first action changes nothing.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from klog.base.errors import KlogError
from klog.base.progress import Silence, Sink
from klog.base.unusable import UNUSABLE
from klog.change.plan.apply_checks import copies, lack_of_space, place_of, transient_copies
from klog.change.plan.backup import BackupWriter, drop_staged, end_plan
from klog.change.plan.file_history import (
    FileHistory,
    check_directories,
    check_leftovers,
    differences,
    is_above,
    locate_histories,
)
from klog.change.plan.find_plans import begun
from klog.change.plan.model import (
    APPEND,
    PLAN,
    PUT,
    REMOVE,
    STAGED,
    TEMPORARY,
    TRUNCATE,
    Action,
    FileState,
    Plan,
    StaleError,
)
from klog.change.plan.plan_rules import check_plan
from klog.change.plan.plan_status import PlanStatus, state_of
from klog.change.plan.reporter import Reporter
from klog.data_dir.disk.directory_tree import full_disk, is_full, link, remove_made
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.disk.refused_outputs import check_places
from klog.data_dir.locks import Locks, check_closed
from klog.formats.names import FileKind, parse_file

_INDEXES = (FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


class ApplyError(KlogError):
    """The system has refused something: the line names it, and whether anything is changed."""


class ApplyResult(NamedTuple):
    """The result: *done* actions now, *done_before* by an earlier run that did not finish."""

    plan: Plan
    done: int
    done_before: int


def apply(plan: Plan, disk: Disk, progress: Sink | None = None, locks: Locks | None = None) -> ApplyResult:
    """Apply *plan*, or its remaining part.

    *locks*: those of the log dirs, if they are held already.  Raises PlanError, LockedError, StaleError; ApplyError if
    the system refuses something.
    """
    check_plan(plan)
    run = _Run(plan, disk, progress or Silence())
    try:
        check_places(plan.log_dirs, backups=plan.backups, staging=filter(None, plan.staging))
        if locks is not None:
            assert locks.hold(plan.locked), "locks of other log dirs"
            return run.all(locks)
        with Locks(plan.locked, disk) as own:
            return run.all(own)
    except OSError as error:
        raise ApplyError(_refusal(error, plan, disk, run.standing())) from error


def _refusal(error: OSError, plan: Plan, disk: Disk, standing: str) -> str:
    """Return the message about a refusal of the system while a plan was applied.  Raises OSError."""
    if not is_full(error):
        return f"{error.filename or plan.log_dirs[0]}: {error.strerror or error}; {standing}"
    told = full_disk(error, place_of(error, plan.backups, plan.log_dirs), disk, standing)
    return f"{told.filename}: {told.strerror}"


def bring_to_disk(plan: Plan, disk: Disk) -> None:
    """Return when the unchanged files on which *plan* relies are synced, with their names.  Raises OSError."""
    paths: dict[str, None] = {}
    for guard in plan.guards:
        if guard.sync:
            path = plan.path(guard.log_dir, guard.file)
            paths[path] = paths[os.path.dirname(path)] = paths[plan.locked[guard.log_dir]] = None
    disk.sync(list(paths))


class _Run:
    def __init__(self, plan: Plan, disk: Disk, progress: Sink) -> None:
        self._plan = plan
        self._disk = disk
        self._progress = progress
        self._done_before = self._done = 0
        self._is_acting = False
        self._transient_copies: dict[tuple[int, str], str] = {}
        self._to_do = set[int]()
        self._paths = plan.paths()

    def standing(self) -> str:
        """Return the number of changes made, and the next step."""
        count = self._done_before + self._done
        if not count and not self._is_acting:
            return "nothing was changed"
        plan = os.path.join(self._plan.backups[0], PLAN)
        return f"{count} of {len(self._plan.actions)} changes are made, 'klog apply {shlex.quote(plan)}' makes the rest"

    def all(self, locks: Locks) -> ApplyResult:
        """Do everything, under *locks*."""
        kept = begun(self._plan)
        is_new = kept is None
        if kept is not None:
            self._plan = self._plan._replace(beside=kept.beside)
        keeper = BackupWriter(self._plan, self._disk, is_new)
        try:
            found = self._look(is_new)
            check_closed(self._plan.partitions())
            if self._done_before == len(self._plan.actions):
                self._end(locks)
                return ApplyResult(self._plan, 0, self._done_before)
            self._check_room(found)
            # Before the plan can be found and finished: after a power cut these may be other files of the same size.
            bring_to_disk(self._plan, self._disk)
            keeper.write_plan()
            keeper.keep(found)
            keeper.stage(found)
            locks.assure()
            # From here on a call that fails may have done its work all the same, and the originals are kept.
            self._is_acting = True
        finally:
            if not self._is_acting and is_new and not self._done_before:
                keeper.clean()
                drop_staged(self._plan, self._disk)
        for places in _rounds(self._plan.actions, self._to_do):
            self._act(places)
        self._end(locks)
        return ApplyResult(self._plan, self._done, self._done_before)

    def _look(self, is_new: bool) -> list[FileHistory]:
        """Find the state of each file.  Raises StaleError if one is in no state of the plan.

        *is_new*: no backup has the plan, which therefore cannot have changed anything.
        """
        self._progress.expect(self._plan.bytes_to_read())
        found = locate_histories(self._plan, self._progress.advance)
        self._transient_copies = transient_copies(self._plan, found)
        self._to_do = {place for history in found for place in history.to_do}
        self._done_before = len(self._plan.actions) - len(self._to_do)
        strange = next((one for one in found if one.at is None or (is_new and not one.is_untouched)), None)
        if strange is not None:
            raise StaleError(f"{strange.path}: {self._staleness(strange, is_new)}")
        if self._done_before < len(self._plan.actions):
            check_leftovers(found)
            self._check_unused()
            if is_new:
                check_directories(self._plan)
        return found

    def _check_unused(self) -> None:
        """Raise StaleError when files beside those of the plan have changed."""
        others = list(differences(self._plan))
        if not others:
            return
        path = self._plan.path(others[0].log_dir, others[0].file)
        if not self._done_before:
            raise StaleError(f"{path}: has changed since the plan was made; make it again")
        what = f"has changed since {self._done_before} of {len(self._plan.actions)} changes had been made"
        if all(is_above(self._plan, other) for other in others):
            undo = f"klog undo {shlex.quote(self._plan.backups[0])} --apply"
            raise StaleError(f"{path}: {what}: '{undo}' undoes these, and keeps later data")
        raise StaleError(f"{path}: {what}; nothing more was done, the originals are in {self._plan.backups[0]}")

    def _staleness(self, strange: FileHistory, is_new: bool) -> str:
        what = "is gone" if strange.current is None else "has changed"
        if is_new or not self._done_before:
            self._done_before = 0
            return f"{what} since the plan was made; nothing was started, make the plan again"
        count = f"{self._done_before} of {len(self._plan.actions)} changes had been made"
        return f"{what} since {count}; nothing more was done, the originals are in {self._plan.backups[0]}"

    # free space

    def _check_room(self, found: list[FileHistory]) -> None:
        """Raise ApplyError when a file system has less free space than the copies need."""
        lack = lack_of_space((), copies(self._plan, found), self._disk)
        if lack is not None:
            advice = "" if self._done_before else "; another directory may be named with --backup"
            raise ApplyError(f"{lack}; {self.standing()}{advice}")

    # acting

    def _act(self, places: list[int]) -> None:
        """Do actions that are independent of each other; return when they are synced."""
        changed: dict[str, None] = {}
        for place in places:
            action, path = self._plan.actions[place], self._paths[place]
            if action.do == PUT:
                if self._make_directory(action):
                    changed[self._plan.log_dirs[action.log_dir]] = None
                self._put(action, path)
            elif action.do == TRUNCATE:
                self._truncate(action, path)
                changed[path] = None
            elif action.do == APPEND:
                self._append(action, path)
                changed[path] = None
            elif action.do == REMOVE:
                self._disk.unlink(path)
            self._done += 1
            if action.do not in (TRUNCATE, APPEND):
                changed[os.path.dirname(path)] = None
        self._disk.sync(list(changed))

    def _make_directory(self, action: Action) -> bool:
        """Make the directory of a new partition for its first file; False if it is there, or is none."""
        place = action.log_dir, os.path.dirname(action.file)
        if place not in self._plan.new_directories or os.path.isdir(self._plan.path(*place)):
            return False
        self._disk.make_directory(self._plan.path(*place), like=self._plan.log_dirs[action.log_dir])
        return True

    def _put(self, action: Action, path: str) -> None:
        assert action.source is not None
        staged = os.path.join(self._plan.backups[action.log_dir], STAGED, action.source)
        try:
            self._disk.rename(staged, path)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._put_from_afar(action, staged, path)

    def _put_from_afar(self, action: Action, staged: str, path: str) -> None:
        """Copy a file from another file system, first under a temporary name."""
        after, temporary = action.after, f"{path}{TEMPORARY}"
        transient = self._transient_copies.get((action.log_dir, action.file))
        assert after is not None
        if os.path.lexists(temporary):
            self._disk.unlink(temporary)
        if transient is not None and link(transient, temporary, self._disk):
            self._disk.rename(temporary, path)
            return
        self._bring_copy(staged, after, path)

    def _bring_copy(self, source: str, after: FileState, path: str, added: str | None = None, end: int = 0) -> None:
        """Make *path* a new file with the beginning of *source*, with the attributes of *after*.

        *added*: a file whose content follows the first *end* bytes.
        """
        temporary = f"{path}{TEMPORARY}"
        if os.path.lexists(temporary):
            self._disk.unlink(temporary)
        with self._disk.whole_file(temporary) as file:
            self._disk.copy(source, 0, after.size if added is None else end, file)
            if added is not None:
                self._disk.copy(added, 0, after.size - end, file)
            self._disk.copy_attributes(path if os.path.lexists(path) else source, file)
            self._disk.set_metadata(file, after.mode, after.uid, after.gid, after.modified_ns)
        self._disk.sync([temporary])
        self._disk.rename(temporary, path)

    def _truncate(self, action: Action, path: str) -> None:
        after = action.after
        assert after is not None
        with self._disk.closing(self._disk.open(path)) as file:
            if os.fstat(file.descriptor).st_nlink == 1:
                self._disk.truncate(file, after.size)
                self._disk.set_metadata(file, after.mode, after.uid, after.gid, after.modified_ns)
                return
        # The file has another name, in a snapshot or in the backup of another plan, which must keep all of it.
        self._bring_copy(path, after, path)

    def _append(self, action: Action, path: str) -> None:
        before, after = action.before, action.after
        assert before is not None
        assert after is not None
        assert action.source is not None
        added = os.path.join(self._plan.backups[action.log_dir], STAGED, action.source)
        with self._disk.closing(self._disk.open(path)) as file:
            status = os.fstat(file.descriptor)
            if status.st_nlink == 1:
                if status.st_size > before.size:  # an earlier run has not finished
                    self._disk.truncate(file, before.size)
                self._disk.copy(added, 0, after.size - before.size, file)
                self._disk.set_metadata(file, after.mode, after.uid, after.gid, after.modified_ns)
                return
        self._bring_copy(path, after, path, added, before.size)

    def _end(self, locks: Locks) -> None:
        """Set the times of directories, if the plan has them, and remove files that are no longer needed."""
        for number, inside in self._plan.new_directories:
            path = self._plan.path(number, inside)
            remove_made([path], self._disk)
            # One that an interrupted run has made may still be for its owner alone.
            if os.path.isdir(path) and self._disk.make_like(path, self._plan.log_dirs[number]):
                self._disk.sync([path])
        for (number, inside), modified_ns in self._plan.leaves_times.items():
            self._disk.set_directory_time(self._plan.path(number, inside).rstrip("/"), modified_ns)
        self._disk.sync([self._plan.path(number, inside) for number, inside in self._plan.leaves_times])
        end_plan(self._plan, self._disk)
        UNUSABLE.settle(*self._plan.backups, *self._plan.paths())
        # One that an earlier run has left behind is deleted as well.
        locks.made.update(self._plan.log_dirs[number] for number in self._plan.no_lock)


def _rounds(actions: tuple[Action, ...], to_do: set[int]) -> Iterator[list[int]]:
    """Yield actions, by their places, in rounds: all of one round may reach the disk in any order.

    Actions on different partitions may; those on one are in an order that a broker survives at each step, and so are
    the log dir's own files, which follow all before them and precede all after them.
    """
    queues: dict[tuple[int, str], deque[int]] = {}
    for place, action in enumerate(actions):
        if place not in to_do:
            continue
        directory = os.path.dirname(action.file)
        if directory:
            queues.setdefault((action.log_dir, directory), deque()).append(place)
            continue
        yield from _drained(actions, queues.values())
        queues = {}
        yield [place]
    yield from _drained(actions, queues.values())


def _drained(actions: tuple[Action, ...], queues: Iterable[deque[int]]) -> Iterator[list[int]]:
    left = list(queues)
    while left:
        yield [place for queue in left for place in _group(actions, queue)]
        left = [queue for queue in left if queue]


def _group(actions: tuple[Action, ...], queue: deque[int]) -> list[int]:
    """Take the next action, or several that put indexes: a broker compares each index with its own log only."""
    group = [queue.popleft()]
    files = {actions[group[0]].file}
    while _puts_index(actions[group[0]]) and queue and _puts_index(actions[queue[0]]):
        if actions[queue[0]].file in files:
            break
        files.add(actions[queue[0]].file)
        group.append(queue.popleft())
    return group


def _puts_index(action: Action) -> bool:
    return action.do == PUT and parse_file(action.file.rpartition("/")[2]).kind in _INDEXES


def carry_out(plan: Plan, disk: Disk, locks: Locks | None, reporter: Reporter) -> ApplyResult:
    """Apply *plan*.  Every change of data is made here.

    *locks*: those of its log dirs; None: they are taken.  Raises what `apply` raises.
    """
    try:
        with reporter.progress() as sink:
            return apply(plan, disk, sink, locks)
    except KeyboardInterrupt:
        if state_of(plan) is PlanStatus.HALF_DONE:
            backup = shlex.quote(plan.backups[0])
            reporter.error(f"interrupted when it was half done: 'klog apply {backup}' finishes it")
        raise
