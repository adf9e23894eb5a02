"""The executor: the only way in which a plan becomes files.

    with Locks(plan.log_dirs, disk) as locks:
        result = apply(plan, disk, locks=locks)

In this order, each step on the disk before the next begins: the locks; every file is what the plan says it is; there is
room; what the plan relies on is on the disk; the plan and all originals are in the backup, all new content is ready;
then action after action.  Killed
anywhere, the same plan applied once more finishes.  What fails before the first action leaves everything as it was.
"""

from __future__ import annotations

import errno
import os
import shlex
from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from klog.backups import check_places
from klog.disk import Disk
from klog.errors import KlogError
from klog.formats.names import FileKind, Stage, parse_file
from klog.journal import Chain, check_directories, check_guards, check_leftovers, locate
from klog.lanes import Silence, Sink
from klog.locks import Locks
from klog.originals import PLAN, Keeper, inode_of, keeps_tail, may_be_linked
from klog.passing import is_passing
from klog.plan import PUT, REMOVE, STAGED, TRUNCATE, Action, Plan, StaleError
from klog.plan_rules import check_plan
from klog.staging import link, remove_empty, remove_tree

_TEMPORARY = ".klog.tmp"
"""Ends the name of a file on its way in from another file system; brokers take no notice of such names."""
_SLACK = 4096
"""Bytes of room reckoned for each file beside its content."""
_INDEXES = (FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX)


class ApplyError(KlogError):
    """The system has refused something: the line says what, and whether anything is changed."""


class Result(NamedTuple):
    """What has been done: *done* actions now, *done_before* by an earlier run that did not finish."""

    plan: Plan
    done: int
    done_before: int


def apply(plan: Plan, disk: Disk, progress: Sink | None = None, locks: Locks | None = None) -> Result:
    """Carry out *plan*, or what is left of it.

    *locks*: what holds the log dirs, when they are held already.  Raises PlanError, LockedError, StaleError; ApplyError
    where the system refuses something.
    """
    check_plan(plan)
    run = _Run(plan, disk, progress or Silence())
    try:
        check_places(plan.log_dirs, (*plan.backups, *filter(None, plan.staging)))
        if locks is not None:
            assert locks.hold(plan.log_dirs), "locks of other log dirs"
            return run.all(locks)
        with Locks(plan.log_dirs, disk) as own:
            return run.all(own)
    except OSError as error:
        where = error.filename or plan.log_dirs[0]
        raise ApplyError(f"{where}: {error.strerror or error}; {run.standing()}") from error


def bring_to_disk(plan: Plan, disk: Disk) -> None:
    """Return when the unchanged files that *plan* wants there are on the disk, and their names.  Raises OSError."""
    paths: dict[str, None] = {}
    for guard in plan.guards:
        if guard.sync:
            path = plan.path(guard.log_dir, guard.file)
            paths[path] = paths[os.path.dirname(path)] = paths[plan.log_dirs[guard.log_dir]] = None
    disk.sync(list(paths))


class _Run:
    def __init__(self, plan: Plan, disk: Disk, progress: Sink) -> None:
        self._plan = plan
        self._disk = disk
        self._progress = progress
        self._done_before = self._done = 0
        self._is_acting = False
        self._passing: dict[tuple[int, str], Chain] = {}

    def standing(self) -> str:
        """Say how far it has come, and what to do next."""
        count = self._done_before + self._done
        if not count and not self._is_acting:
            return "nothing was changed"
        plan = os.path.join(self._plan.backups[0], PLAN)
        return f"{count} of {len(self._plan.actions)} changes are made, 'klog apply {shlex.quote(plan)}' makes the rest"

    def all(self, locks: Locks) -> Result:
        """Do everything, under *locks*."""
        is_new = not any(os.path.lexists(os.path.join(backup, PLAN)) for backup in self._plan.backups)
        keeper = Keeper(self._plan, self._disk)
        try:
            found = self._look(is_new)
            if self._done_before == len(self._plan.actions):
                self._end(locks)
                return Result(self._plan, 0, self._done_before)
            self._check_room(found)
            # Before the plan can be found and finished: after a power cut these may be other files of the same size.
            bring_to_disk(self._plan, self._disk)
            keeper.write_plan()
            keeper.keep(found)
            keeper.stage(found)
            locks.assure()
            # From here on a call that fails may have done its work all the same, so the originals stay.
            self._is_acting = True
        finally:
            if not self._is_acting and is_new and not self._done_before:
                keeper.clean()
                self._drop_staged()
        to_do = {place for chain in found for place in chain.to_do}
        for places in _rounds(self._plan.actions, to_do):
            self._act(places)
        self._end(locks)
        return Result(self._plan, self._done, self._done_before)

    def _drop_staged(self) -> None:
        """Remove new content that the planner has put into the backup; beside a plan's file it stays with the plan."""
        try:
            for number, backup in enumerate(self._plan.backups):
                if self._plan.staged(number) == os.path.join(backup, STAGED):
                    remove_tree(os.path.join(backup, STAGED), self._disk)
                    remove_empty(backup, self._disk)
        except OSError:
            pass  # what kept the plan from being carried out is what gets told

    def _look(self, is_new: bool) -> list[Chain]:
        """Find out how far each file has come.  Raises StaleError where one is not what the plan knows.

        *is_new*: no backup has the plan, so that nothing can have been done by it.
        """
        self._progress.expect(sum(chain_size(action) for action in self._plan.actions))
        found = locate(self._plan, self._progress.advance)
        self._passing = {(chain.log_dir, chain.file): chain for chain in found if is_passing(chain.states)}
        self._done_before = len(self._plan.actions) - sum(len(chain.to_do) for chain in found)
        strange = next((one for one in found if one.at is None or (is_new and not one.is_untouched)), None)
        if strange is not None:
            raise StaleError(f"{strange.path}: {self._staleness(strange, is_new)}")
        if self._done_before < len(self._plan.actions):
            check_guards(self._plan)
            check_leftovers(found)
            if is_new:
                check_directories(self._plan)
        return found

    def _staleness(self, strange: Chain, is_new: bool) -> str:
        what = "is gone" if strange.current is None else "has changed"
        if is_new or not self._done_before:
            self._done_before = 0
            return f"{what} since the plan was made; nothing was started, make the plan again"
        count = f"{self._done_before} of {len(self._plan.actions)} changes had been made"
        return f"{what} since {count}; nothing more was done, the originals are in {self._plan.backups[0]}"

    # room

    def _check_room(self, found: list[Chain]) -> None:
        """Raise ApplyError when a file system has less room than the copies need."""
        needed: dict[int, tuple[str, int]] = {}
        for path, size in self._copies(found):
            place = _nearest(path)
            device = os.stat(place).st_dev
            needed[device] = place, needed.get(device, (place, 0))[1] + size + _SLACK
        for place, size in needed.values():
            free = self._disk.free_bytes(place)
            if free < size:
                advice = "" if self._done_before else "; another directory may be named with --backup"
                raise ApplyError(
                    f"{place}: {size} bytes of room are needed, {free} are free; {self.standing()}{advice}"
                )

    def _copies(self, found: list[Chain]) -> Iterator[tuple[str, int]]:
        """Yield where files are going to be written, and how large."""
        plan = self._plan
        brought: set[tuple[int, int]] = set()
        far = [_device(backup) != _device(log_dir) for backup, log_dir in zip(plan.backups, plan.log_dirs, strict=True)]
        for chain in found:
            backup = plan.backups[chain.log_dir]
            if chain.before is not None and chain.is_untouched:
                after = plan.actions[chain.actions[0]].after
                if keeps_tail(plan, chain) and after is not None:
                    yield backup, chain.before.size - after.size
                elif far[chain.log_dir] or not may_be_linked(plan, chain):
                    yield backup, chain.before.size
            for place in chain.to_do:
                action = plan.actions[place]
                if action.do == PUT and action.source is not None and action.after is not None:
                    origin = os.path.join(plan.staged(chain.log_dir), action.source)
                    if _device(plan.staged(chain.log_dir)) != _device(backup) and _is_first_name(origin, brought):
                        yield backup, action.after.size
                    if far[chain.log_dir] and self._twin(action) is None:
                        yield chain.path, action.after.size
        for cut in plan.cuts:
            yield plan.backups[cut.log_dir], cut.end - cut.start

    # acting

    def _act(self, places: list[int]) -> None:
        """Do actions of which none depends on another; return when they are on the disk."""
        changed: dict[str, None] = {}
        for place in places:
            action = self._plan.actions[place]
            path = self._plan.path(action.log_dir, action.file)
            if action.do == PUT:
                self._put(action, path)
            elif action.do == TRUNCATE:
                self._truncate(action, path)
                changed[path] = None
            elif action.do == REMOVE:
                self._disk.unlink(path)
            self._done += 1
            if action.do != TRUNCATE:
                changed[os.path.dirname(path)] = None
        self._disk.sync(list(changed))

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
        """Bring a file in from another file system, first under a name that is nobody's."""
        after, temporary, twin = action.after, f"{path}{_TEMPORARY}", self._twin(action)
        assert after is not None
        if os.path.lexists(temporary):
            self._disk.unlink(temporary)
        if twin is not None and link(twin, temporary, self._disk):
            self._disk.rename(temporary, path)
            return
        file = self._disk.create(temporary)
        is_whole = False
        try:
            self._disk.copy(staged, 0, after.size, file)
            self._disk.set_metadata(file, after.mode, after.uid, after.gid, after.modified_ns)
            is_whole = True
        finally:
            self._disk.close(file)
            if not is_whole:
                self._disk.unlink(temporary)
        self._disk.sync([temporary])
        self._disk.rename(temporary, path)

    def _twin(self, action: Action) -> str | None:
        """Return the file that stands for what *action* puts and has all of it; None where there is none."""
        twin = f"{action.file}{Stage.SWAP.value}"
        chain = self._passing.get((action.log_dir, twin))
        return chain.path if chain is not None and chain.states[1] == action.after else None

    def _truncate(self, action: Action, path: str) -> None:
        after = action.after
        assert after is not None
        file = self._disk.open(path)
        try:
            self._disk.truncate(file, after.size)
            self._disk.set_metadata(file, after.mode, after.uid, after.gid, after.modified_ns)
        finally:
            self._disk.close(file)

    def _end(self, locks: Locks) -> None:
        """Set the times of directories, where the plan has them, and remove what is no longer needed."""
        for (number, inside), modified_ns in self._plan.leaves_times.items():
            directory = self._plan.path(number, inside).rstrip("/")
            self._disk.set_directory_time(directory, modified_ns)
        self._disk.sync([self._plan.path(number, inside) for number, inside in self._plan.leaves_times])
        for backup in self._plan.backups:
            remove_tree(os.path.join(backup, STAGED), self._disk)
        self._disk.sync([backup for backup in self._plan.backups if os.path.isdir(backup)])
        # One that an earlier run has left behind goes as well.
        locks.made.update(self._plan.log_dirs[number] for number in self._plan.no_lock)


def chain_size(action: Action) -> int:
    """Return how many bytes an action has read before it: its file, about."""
    return action.before.size if action.before is not None else 0


def _is_first_name(path: str, known: set[tuple[int, int]]) -> bool:
    """Whether the file is none of the *known*, of which it then is one."""
    inode = inode_of(path) if os.path.lexists(path) else None
    if inode is None or inode in known:
        return inode is None
    known.add(inode)
    return True


def _device(path: str) -> int:
    return os.stat(_nearest(path)).st_dev


def _nearest(path: str) -> str:
    """Return the directory *path*, or the nearest above it that is there."""
    while not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


def _rounds(actions: tuple[Action, ...], to_do: set[int]) -> Iterator[list[int]]:
    """Yield actions, by their places, in rounds: all of one round may reach the disk in any order.

    Those of different partitions may; those of one are in an order that a broker survives at each step, and so are the
    log dir's own files, which come after all before them and before all after them.
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
    """Take the next action, or several that put indexes: a broker holds each index against its own log alone."""
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
