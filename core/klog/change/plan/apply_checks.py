"""Checks whether a plan can be applied: permissions, free space, files that other processes have open."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Sequence

from klog.base.errors import KlogError
from klog.base.read_only import inode_of
from klog.change.plan.draft import OPENED, lack_of_rights
from klog.change.plan.file_history import FileHistory, Original, file_histories
from klog.change.plan.model import PUT, Plan
from klog.change.plan.plan_rules import is_transient
from klog.data_dir.disk.directory_tree import device_of, full_disk, nearest_directory
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.locks import LockedError, check_closed
from klog.formats.names import Stage

_SLACK = 4096
"""Estimated bytes for each file beside its content."""


class NoSpaceError(KlogError):
    """Free space or a directory is missing; nothing was written."""


def refusals(plan: Plan, disk: Disk) -> list[str]:
    """Return, in words, the reasons why *plan*, which has just been made, cannot be applied now.

    Locks and half-done plans are not among them.  Raises OSError.
    """
    # One file represents all that are put into its directory; truncated files are checked one by one.
    telling = {
        (one.log_dir, os.path.dirname(one.file), one.file if one.do in OPENED else ""): one for one in plan.actions
    }
    found = {lack_of_rights(plan.path(one.log_dir, one.file), one): None for one in telling.values()}
    untouched = list(file_histories(plan).values())
    for history in untouched:
        history.at, history.current, history.is_untouched = 0, history.before, True
    found[lack_of_space(plan.backups, copies(plan, untouched), disk)] = None
    try:
        check_closed(plan.partitions())
    except LockedError as error:
        found[str(error)] = None
    return [why for why in found if why is not None]


def transient_copies(plan: Plan, found: Iterable[FileHistory]) -> dict[tuple[int, str], str]:
    """Return, for files that *plan* puts, the path of the transient file that has the same content."""
    transient = {(history.log_dir, history.file): history for history in found if is_transient(history.states)}
    linked = {}
    for action in plan.actions:
        history = transient.get((action.log_dir, f"{action.file}{Stage.SWAP.value}"))
        if history is not None and history.states[1] == action.after:
            linked[action.log_dir, action.file] = history.path
    return linked


def copies(plan: Plan, found: Sequence[FileHistory]) -> Iterator[tuple[str, int]]:
    """Yield where files are going to be written when *plan* is carried out, or the rest of it, and how large."""
    brought: set[tuple[int, int]] = set()
    linked = transient_copies(plan, found)
    # A partition may be a link to a directory on another file system than its log dir.
    device = functools.cache(device_of)
    places = list(map(plan.staged, range(len(plan.log_dirs))))
    for history, to_do in zip(found, [one.to_do for one in found], strict=True):
        backup, staged = plan.backups[history.log_dir], places[history.log_dir]
        is_near = staged and device(staged) == device(backup)
        is_far = device(backup) != device(os.path.dirname(history.path))
        yield from _kept(plan, history, backup, is_far)
        for place in to_do:
            action = plan.actions[place]
            if action.added is not None and action.after is not None:
                if not is_near:
                    yield backup, action.added.size
                is_shared = os.path.exists(history.path) and os.stat(history.path).st_nlink > 1
                yield history.path, action.after.size if is_shared else action.added.size
            if action.do == PUT and action.source is not None and action.after is not None:
                is_linked = (action.log_dir, action.file) in linked
                # A plan that was only shown has no staged files: only its states show two names of one file.
                staged_file = staged and os.path.join(staged, action.source)
                if not is_linked if not staged else not is_near and _is_first_name(staged_file, brought):
                    yield backup, action.after.size
                if is_far and not is_linked:
                    yield history.path, action.after.size
    for cut in plan.cuts:
        yield plan.backups[cut.log_dir], cut.end - cut.start


def _kept(plan: Plan, history: FileHistory, backup: str, is_far: bool) -> Iterator[tuple[str, int]]:
    """Yield the space for keeping a file's original."""
    if history.before is None or not history.is_untouched or history.original is Original.NONE:
        return
    after = plan.actions[history.actions[0]].after
    if history.original is Original.TAIL and after is not None:
        yield backup, history.before.size - after.size
        if os.stat(history.path).st_nlink > 1:
            yield history.path, after.size
    elif is_far or history.original is not Original.WHOLE:
        yield backup, history.before.size


def _is_first_name(path: str, known: set[tuple[int, int]]) -> bool:
    """Whether the file is none of the *known*, to which it is then added."""
    inode = inode_of(os.lstat(path)) if os.path.lexists(path) else None
    if inode is None or inode in known:
        return inode is None
    known.add(inode)
    return True


def lack_of_space(places: Iterable[str], copies: Iterable[tuple[str, int]], disk: Disk) -> str | None:
    """Return why the directories *places* cannot be made, or why *copies*, each with its size, cannot be written.

    None when everything can be made and written.  Raises OSError.
    """
    for place in places:
        above = nearest_directory(place)
        first = os.path.join(above, os.path.relpath(place, above).split(os.sep)[0])
        if above != place and os.path.lexists(first):
            return f"{first}: is not a directory"
        if not os.access(above, os.W_OK | os.X_OK):
            return f"{place}: {above} is not writable"
    needed: dict[int, tuple[str, int]] = {}
    known: dict[str, tuple[str, int]] = {}
    for path, size in copies:
        if path not in known:
            known[path] = nearest_directory(path), device_of(path)
        place, device = known[path]
        needed[device] = place, needed.get(device, (place, 0))[1] + size + _SLACK
    for place, size in needed.values():
        free = disk.free_bytes(place)
        if free < size:
            return f"{place}: {size} bytes are needed, {free} are free"
    return None


# a full disk


def place_of(error: OSError, directories: Sequence[str | None], log_dirs: Sequence[str]) -> str:
    """Return the log dir that *error* concerns: the file is in it, or in its one of *directories*.

    If that one is on another file system than the log dir, return the existing part of its path.
    """
    path = os.path.abspath(error.filename or log_dirs[0])
    near = nearest_directory(path)
    for directory, log_dir in zip((*directories, *log_dirs), (*log_dirs, *log_dirs), strict=True):
        root = directory and os.path.abspath(directory)
        if root and os.path.commonpath((path, root)) == root:
            return log_dir if device_of(near) == device_of(log_dir) else near
    return near


def plan_disk_full(
    error: OSError, waits: Sequence[str | None], log_dirs: Sequence[str], disk: Disk, is_saved: bool
) -> OSError:
    """Return the error for staged content of a plan that found no space.

    *waits*: the staging directory for each log dir.  *is_saved*: the plan will not be applied.  Raises OSError.
    """
    place = place_of(error, waits, log_dirs)
    other, less = ("--save-plan", "--save-plan") if is_saved else ("--backup", "--apply")
    standing = f"nothing was changed; make room, or name another place with {other}"
    return full_disk(error, place, disk, f"{standing}; without {less} klog reports the needed space")
