"""The status of a plan: announces it, and derives its progress."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Collection, Iterable
from contextlib import suppress
from enum import StrEnum

from klog.base.read_only import inode_of
from klog.change.plan.file_history import Difference, FileHistory, differences, locate_histories
from klog.change.plan.find_plans import StoredPlan, kept_plan, plans_of, remove_pointers, write_pointers
from klog.change.plan.model import BACKUPS, PLAN, PUT, REMOVE, STAGED, UNFINISHED, FileState, Plan, StaleError
from klog.change.plan.plan_document import plan_pieces
from klog.change.plan.staging import ROUNDS
from klog.data_dir.disk.directory_tree import (
    in_pieces,
    make_directories,
    nearest_directory,
    remove_made,
    remove_tree,
    write_file,
)
from klog.data_dir.disk.disk_changes import Disk
from klog.formats.names import ROOT_CHECKPOINTS, parse_file


class PlanStatus(StrEnum):
    """The progress of a plan."""

    PLANNING = "being planned"
    """Or it was, when its process was killed: the next command that changes the log dir then removes its leftovers."""
    NOT_BEGUN = "not begun"
    HALF_DONE = "half done"
    APPLIED = "applied"
    TAKEN_BACK = "taken back"
    USED_SINCE = "used since"
    """A file is in no state of the plan: a broker, or another plan, has changed it."""


class Announcement:
    """Announces that *plan* is being made, before its first file is staged in a backup: the plan, without actions.

    Any number of threads may use it.  It shows leftovers of a killed process to `sweep`, which removes them.
    """

    def __init__(self, plan: Plan, disk: Disk) -> None:
        self._plan, self._disk = plan, disk
        self._lock = threading.Lock()
        self._is_made = False
        self._made: list[str] = []
        self._files: list[tuple[str, tuple[int, int]]] = []

    def make(self) -> None:
        """Put it into all backups, once, and write pointers to them.  Raises OSError."""
        with self._lock:
            if self._is_made:
                return
            self._is_made = True
            for backup in self._plan.backups:
                self._made += make_directories(backup, self._disk)
                path = write_file(os.path.join(backup, PLAN), in_pieces(plan_pieces(self._plan)), self._disk)
                self._files.append((path, inode_of(os.lstat(path))))
            write_pointers(self._plan, self._disk)

    def narrow(self, backups: Collection[str]) -> None:
        """Remove it from all backups but these: the plan will not need the others.  Raises OSError."""
        with self._lock:
            gone = [one for one in self._files if os.path.dirname(one[0]) not in backups]
            for one in gone:
                _remove(os.path.dirname(one[0]), self._disk)
                self._files.remove(one)
            pairs = zip(self._plan.log_dirs, self._plan.backups, strict=True)
            log_dirs = tuple(log_dir for log_dir, backup in pairs if backup not in backups)
            others = tuple(backup for backup in self._plan.backups if backup not in backups)
            remove_pointers(self._plan._replace(log_dirs=log_dirs, backups=others), self._disk)
            remove_made(self._made, self._disk)
            # After a power cut it would otherwise reappear, as a plan that is still being made.
            self._disk.sync(sorted({nearest_directory(os.path.dirname(path)) for path, _ in gone}))

    def withdraw(self) -> None:
        """Remove it, with all staged files, unless the plan itself has replaced it; if the disk permits."""
        with suppress(OSError):
            for path, inode in self._files:
                if os.path.lexists(path) and inode_of(os.lstat(path)) == inode:
                    _remove(os.path.dirname(path), self._disk)
            remove_made(self._made, self._disk)
            if self._is_made and not any(os.path.lexists(path) for path, _ in self._files):
                remove_pointers(self._plan, self._disk)


def sweep(plans: Iterable[StoredPlan], disk: Disk) -> list[Plan]:
    """Remove the leftovers of those *plans* that were being made when their process was killed; return them.

    The caller must hold the locks of their log dirs: no other process is then making one.  Raises OSError.
    """
    left = {kept.plan.id: kept.plan for kept in plans if not kept.plan.actions}
    for plan in left.values():
        for backup in plan.backups:
            path = os.path.join(backup, PLAN)
            kept = kept_plan(path) if os.path.lexists(path) else None
            if kept is not None and not kept.actions and kept.id == plan.id:
                _remove(backup, disk)
                # A directory that a user has named may have been there before.
                above = (backup, os.path.dirname(backup))
                remove_made([one for one in above if os.path.basename(one) in (plan.id, BACKUPS)], disk)
        remove_pointers(plan, disk)
    return list(left.values())


def _remove(backup: str, disk: Disk) -> None:
    for name in (STAGED, f"{STAGED}{ROUNDS}"):
        remove_tree(os.path.join(backup, name), disk)
    disk.unlink(os.path.join(backup, PLAN))


def state_of(plan: Plan) -> PlanStatus:
    """Return the status of *plan*, derived from the state of its files.  Raises UnreadableError."""
    if not plan.actions:
        return PlanStatus.PLANNING
    try:
        return _state(plan, locate_histories(plan, quick=True))
    except StaleError:
        return PlanStatus.USED_SINCE


def _state(plan: Plan, found: list[FileHistory]) -> PlanStatus:
    is_unfinished = has_begun(plan)
    for history in found:
        if is_unfinished and may_stay(history):
            history.at = 0
    if any(history.at is None for history in found):
        return PlanStatus.USED_SINCE
    if all(not history.to_do for history in found):
        # A file in the state of another plan was not made by a plan whose files are still staged.
        is_used = _waits(plan) if is_unfinished else used_since(plan, found) is not None
        return PlanStatus.USED_SINCE if is_used else PlanStatus.APPLIED
    # A directory that is made with its first file may be there, and no file yet.
    put = {(action.log_dir, os.path.dirname(action.file)) for action in plan.actions if action.do == PUT}
    made = put.intersection(plan.new_directories)
    has_made = is_unfinished and plan.undoes is None and any(os.path.isdir(plan.path(*one)) for one in made)
    if all(history.at == 0 and not history.is_between for history in found) and not has_made:
        is_kept = any(os.path.lexists(os.path.join(backup, PLAN)) for backup in plan.backups)
        return PlanStatus.TAKEN_BACK if is_kept and not is_unfinished else PlanStatus.NOT_BEGUN
    return PlanStatus.HALF_DONE if is_unfinished else PlanStatus.USED_SINCE


def may_stay(history: FileHistory) -> bool:
    """Whether a file that is in no state of a plan is a log dir's checkpoint.

    It continues to change for other partitions while the plan is half done, and its lines for the plan's own may stay.
    """
    return history.at is None and "/" not in history.file


def obstacle(plan: Plan) -> str | None:
    """Return the path of a file that prevents *plan*, which is half done, from being finished; None without one.

    Raises StaleError, UnreadableError.
    """
    found = locate_histories(plan, quick=True)
    if all(history.at is not None and not history.to_do for history in found):
        return None
    strange = (history.path for history in found if history.at is None)
    used = (plan.path(other.log_dir, other.file) for other in differences(plan))
    return next(itertools.chain(used, strange), None)


def has_begun(plan: Plan) -> bool:
    """Whether *plan* has begun and is not finished."""
    return any(os.path.lexists(os.path.join(backup, UNFINISHED)) for backup in plan.backups)


def used_since(plan: Plan, found: Iterable[FileHistory]) -> str | None:
    """Return the path of a file that has changed, or was created, since *plan* was done; None without one.

    *found*: its files, located.  Changes of a log dir's checkpoints by other plans, for other partitions, do not count.
    Raises StaleError, UnreadableError.
    """
    for history in found:
        if history.is_used():
            return history.path
    for other in differences(plan):
        is_read = other.log_dir >= len(plan.log_dirs)  # a file that a plan only read may be used once the plan is done
        if not is_read and not _is_explained(plan, other):
            return plan.path(other.log_dir, other.file)
    return None


def _is_explained(plan: Plan, other: Difference) -> bool:
    """Whether a checkpoint of a log dir is the result of other plans."""
    if parse_file(other.file).kind not in ROOT_CHECKPOINTS:
        return False
    log_dir = plan.log_dirs[other.log_dir]
    steps = [
        (_facts(action.before), _facts(action.after))
        for kept in plans_of(log_dir)
        for action in kept.plan.actions
        if action.file == other.file
        and os.path.realpath(kept.plan.log_dirs[action.log_dir]) == os.path.realpath(log_dir)
    ]
    guard, status = other.guard, other.status
    seen = {None if guard is None else (guard.size, guard.modified_ns)}
    wanted = None if status is None else (status.st_size, status.st_mtime_ns)
    while more := {after for before, after in steps if before in seen} - seen:
        seen |= more
    return wanted in seen


def _facts(state: FileState | None) -> tuple[int, int] | None:
    return None if state is None else (state.size, state.modified_ns)


def _waits(plan: Plan) -> bool:
    """Whether a new file of the plan is still where it was made, and has not got its name."""
    # One that another replaces, or that is removed, has lost its name again: a power cut may have brought it back here.
    last = {(action.log_dir, action.file): action for action in plan.actions if action.do in (PUT, REMOVE)}
    for action in last.values():
        if action.source is None:
            continue
        staged = os.path.join(plan.backups[action.log_dir], STAGED, action.source)
        path = plan.path(action.log_dir, action.file)
        # After a power cut it may have its old name besides.
        if os.path.lexists(staged) and not (os.path.lexists(path) and os.path.samefile(staged, path)):
            return True
    return False


def is_unfinished(plan: Plan) -> bool:
    """Whether *plan* was begun and not finished, or only not cleared away.  Raises UnreadableError."""
    # Only an unfinished plan requires a look at its files.
    return has_begun(plan) and state_of(plan) in (PlanStatus.HALF_DONE, PlanStatus.APPLIED)
