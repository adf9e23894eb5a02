"""Finds backups and their plans: in `klog-backup` beside a log dir, or where a pointer in the log dir leads.

    klog-backup/20261123-031228-recover-7d91/          a backup beside its log dir
    data/20261123-031228-recover-7d91.klog-backup      in the log dir: the path of a backup that --backup put elsewhere

A pointer is a file, which brokers ignore.  It guards a log dir against a second repair over half a plan, so klog never
removes the pointer of a plan that has begun: the disk with the backup may be unmounted for a while.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from klog.base.errors import KlogError, PlanError, UsageError
from klog.base.read_only import ReadOnlyFile, names_if_there
from klog.base.unusable import UNUSABLE
from klog.change.plan.model import BACKUPS, PLAN, Plan
from klog.change.plan.plan_document import MAX_BYTES, load_plan, read_plan
from klog.data_dir.disk.disk_changes import Disk

_POINTER = f".{BACKUPS}"
_EARLIER_POINTER = ".path"
"""Ended the name of a pointer when it was in `klog-backup`; such pointers are still read, as are those in the home."""
_MAX_PATH_BYTES = 4096
_LEAST_LETTERS = 4
LATEST = "latest"
"""Means the newest plan, where an id may be given."""


class StoredPlan(NamedTuple):
    """A plan in a backup directory."""

    backup: str
    plan: Plan


def load_backup(directory: str) -> StoredPlan:
    """Return the plan in a backup directory, or in the only one within it.

    A backup that was moved is where it is now.  Raises UsageError, PlanError.
    """
    path = os.path.join(directory, PLAN)
    if os.path.isfile(path):
        plan, place = load_plan(path), os.path.abspath(directory)
        if len(plan.backups) == 1 and os.path.realpath(place) != os.path.realpath(plan.backups[0]):
            plan = plan._replace(backups=(place,))
        return StoredPlan(place, plan)
    inside = sorted(name for name in names_if_there(directory) if os.path.isfile(os.path.join(directory, name, PLAN)))
    plans = {load_plan(os.path.join(directory, name, PLAN)).id: name for name in inside}
    if len(plans) == 1:
        return load_backup(os.path.join(directory, next(iter(plans.values()))))
    if plans:
        raise UsageError(f"{directory}: backups of several plans, name one: {', '.join(sorted(plans))}")
    raise UsageError(f"{directory}: no backup, there is no {PLAN} in it")


def find_plan(what: str, backup: str | None = None) -> StoredPlan:
    """Return the plan named *what*: its file, its backup directory, its id, the beginning or end of an id, or `latest`.

    An id is searched for in the directory *backup*, if one is given, and as `backups_of_plan` does; a part of one, and
    `latest`, among `plans_near` the current directory.  Raises UsageError, PlanError, UnreadableError.
    """
    if os.path.isfile(what):
        plan = load_plan(what)
        return StoredPlan(plan.backups[0], begun(plan) or plan)
    if os.path.isdir(what):
        return load_backup(what)
    if os.sep not in what:
        given = [] if backup is None else [backup, os.path.join(backup, what)]
        for place in itertools.chain(given, backups_of_plan(what, os.getcwd())):
            if os.path.isfile(os.path.join(place, PLAN)):
                kept = load_backup(place)
                if kept.plan.id == what:
                    return kept
        found = [one for one in plans_near(os.getcwd(), backup) if _is_named(what, one.plan.id)]
        if (what == LATEST and found) or len(found) == 1:
            return found[-1]
        if found:
            raise UsageError(f"{what}: several plans: {', '.join(one.plan.id for one in found)}")
    where = f"{backup}, or {BACKUPS} here or above" if backup else f"{BACKUPS} here or above"
    raise UsageError(
        f"{what}: expected a plan's file, a backup directory or an id that is in {where}; 'klog plans DIR' lists them"
    )


def _is_named(what: str, plan: str) -> bool:
    """Whether *what* is `latest`, or the beginning or end of an id that is long enough to mean one."""
    return what == LATEST or (len(what) >= _LEAST_LETTERS and (plan.startswith(what) or plan.endswith(what)))


def plans_near(directory: str, backup: str | None = None) -> list[StoredPlan]:
    """Return the plans of *directory*, of those above it and of the log dirs in it, the oldest first.

    *backup*: a further directory of backups.  A backup without a plan that can be read is left out.
    """
    found: dict[str, StoredPlan] = {}
    places = [] if backup is None else [os.path.join(backup, name) for name in _names(backup)]
    for place in itertools.chain(places, backups_of_plan("*", directory)):
        if not os.path.isfile(os.path.join(place, PLAN)):
            continue
        with suppress(KlogError):
            kept = load_backup(place)
            found.setdefault(kept.plan.id, kept)
    return sorted(found.values(), key=_age)


def _age(kept: StoredPlan) -> tuple[str, str]:
    return kept.plan.created, kept.plan.id


def kept_plan(path: str) -> Plan | None:
    """Return the plan in the file at *path*; None without one that can be read."""
    with ReadOnlyFile(path) as source:
        try:
            return read_plan(source.read(0, min(source.size, MAX_BYTES)))
        except PlanError:
            return None


def begun(plan: Plan) -> Plan | None:
    """Return *plan* from a backup, with the state of the files beside its own; None if no run of it has begun."""
    for backup in plan.backups:
        path = os.path.join(backup, PLAN)
        kept = kept_plan(path) if os.path.lexists(path) else None
        if kept is not None and kept.actions and is_same(kept, plan):
            return kept._replace(backups=plan.backups)  # it may have been moved since
    return None


def is_same(kept: Plan, plan: Plan) -> bool:
    """Whether *kept*, which a backup has, is *plan*, or was put there while that was made; it may have been moved."""
    if not kept.actions:  # put there for all log dirs, before it was known which ones change
        return kept.id == plan.id and {*plan.log_dirs} <= {*kept.log_dirs}
    return (kept.id, kept.log_dirs, kept.actions) == (plan.id, plan.log_dirs, plan.actions)


def plans_of(log_dir: str) -> list[StoredPlan]:
    """Return the plans that have changed, or were going to change, *log_dir*; the oldest first.

    A backup without a plan that can be read is left out.
    """
    found: dict[str, StoredPlan] = {}
    for backup in dict.fromkeys(_backups_of(log_dir)):
        path = os.path.join(backup, PLAN)
        if not os.path.isfile(path):
            continue
        try:
            plan = load_plan(path)
        except KlogError:
            continue
        if os.path.realpath(log_dir) in map(os.path.realpath, plan.log_dirs):
            found.setdefault(plan.id, StoredPlan(backup, plan))
    return sorted(found.values(), key=_age)


def _backups_of(log_dir: str) -> Iterator[str]:
    """Yield where backups of the plans for *log_dir* may be."""
    beside = _beside(log_dir)
    backups = [os.path.join(beside, name) for name in _names(beside)]
    yield from backups
    pointers = [os.path.join(log_dir, name) for name in _names(log_dir) if name.endswith(_POINTER)]
    pointers += [path for path in backups if path.endswith(_EARLIER_POINTER)]
    yield from filter(None, map(_target, [*pointers, *_earlier_pointers(log_dir)]))


def backups_of_plan(plan: str, directory: str) -> Iterator[str]:
    """Yield where the backup of the plan of that id may be: for *directory*, those above, and the log dirs in them.

    The id `*` means every plan.
    """
    import glob  # late: an id is rarely searched for

    here, wanted = directory, plan if plan == "*" else glob.escape(plan)
    while True:
        beside = os.path.join(glob.escape(here), BACKUPS, wanted)
        yield from glob.iglob(beside)
        name = f"{wanted}{_POINTER}"
        pointers = [os.path.join(glob.escape(here), name), os.path.join(glob.escape(here), "*", name)]
        found = itertools.chain.from_iterable(map(glob.iglob, [f"{beside}{_EARLIER_POINTER}", *pointers]))
        yield from filter(None, map(_target, found))
        if here == os.path.dirname(here):
            break
        here = os.path.dirname(here)
    if plan != "*":
        yield from filter(None, [_target(_earlier_home("plans", os.path.basename(plan)))])


def _names(place: str) -> list[str]:
    """Return the names in a directory; one that cannot be listed is reported at the end."""
    try:
        return names_if_there(place)
    except OSError as error:
        UNUSABLE.refuse(place, error, "list")
        return []


def _beside(log_dir: str) -> str:
    return os.path.join(os.path.dirname(os.path.realpath(log_dir)), BACKUPS)


# pointers


def write_pointers(plan: Plan, disk: Disk) -> list[str]:
    """Write a pointer into each log dir of *plan* whose backup is not beside it; return their paths.

    A full disk may have no room for it, and a log dir whose lock file exists need not be writable: then the plan has
    no pointer there.
    """
    for path in (path for path in _pointers(plan) if _target(path) != plan.backups[0]):
        with suppress(OSError):
            log_dir = os.stat(os.path.dirname(path))
            _write(path, plan.backups[0], log_dir, disk)
            disk.set_directory_time(os.path.dirname(path), log_dir.st_mtime_ns)
    return [path for path in _pointers(plan) if _target(path) == plan.backups[0]]


def _write(path: str, target: str, log_dir: os.stat_result, disk: Disk) -> None:
    """Write one pointer, with the owner of its log dir, for all to read; nothing is left of one that is not whole."""
    if os.path.lexists(path):
        disk.unlink(path)
    with disk.whole_file(path) as file:
        disk.write(file, os.fsencode(target))
        disk.set_metadata(file, 0o644, log_dir.st_uid, log_dir.st_gid, time.time_ns())


def remove_pointers(plan: Plan, disk: Disk) -> None:
    """Remove the pointers to the backups of *plan*, which has changed nothing, as far as the disk permits."""
    for path in _pointers(plan):
        with suppress(OSError):
            modified_ns = os.stat(os.path.dirname(path)).st_mtime_ns
            disk.unlink(path)
            disk.set_directory_time(os.path.dirname(path), modified_ns)


def _pointers(plan: Plan) -> list[str]:
    pairs = zip(plan.log_dirs, plan.backups, strict=True)
    far = [log_dir for log_dir, backup in pairs if os.path.dirname(backup) != _beside(log_dir)]
    return [os.path.join(log_dir, f"{plan.id}{_POINTER}") for log_dir in far]


def _target(path: str) -> str | None:
    """Return the path in a pointer; None if there is no pointer."""
    if not os.path.lexists(path):
        return None
    try:
        with ReadOnlyFile(path) as source:
            return os.fsdecode(source.read(0, _MAX_PATH_BYTES)) or None
    except KlogError:
        return None


# pointers in a user's home directory, which klog no longer writes


def _earlier_home(*names: str) -> str:
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the format of its specification
        home = os.path.expanduser("~")
        # A container's user may have neither a HOME nor a line in passwd.
        state = os.path.join(home if os.path.isabs(home) else "/", ".local", "state")
    return os.path.join(state, "klog", *names)


def _earlier_pointers(log_dir: str) -> list[str]:
    """Return the paths of the pointers of *log_dir* in the home directory: none in another user's, as under `su`."""
    if not os.path.isdir(_earlier_home("log-dirs")):
        return []
    from hashlib import sha256

    digest = sha256(os.fsencode(os.path.realpath(log_dir))).hexdigest()[:32]
    place = _earlier_home("log-dirs", digest)
    with suppress(OSError):
        return [os.path.join(place, name) for name in names_if_there(place)]
    return []
