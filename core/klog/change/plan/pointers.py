"""Where backups are: in `klog-backup` beside their log dir, or where a pointer leads.

    klog-backup/20261123-031228-recover-7d91/          a backup beside its log dir
    klog-backup/20261123-031228-recover-7d91.path      leads to one that --backup has put elsewhere

Beside these, in $XDG_STATE_HOME/klog:

    plans/ID            where the backup of a plan is, for commands that name the plan in some other directory
    log-dirs/DIGEST/ID  the pointers of a log dir that nothing may be written beside

A pointer is a nicety for people and a safeguard against a second repair over half a plan, so none is removed lightly:
only when its backup has been gone, and the pointer there, for thirty days.  A disk may be unmounted for a while.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterable, Iterator

from klog.base.directory import names_if_there
from klog.base.errors import KlogError
from klog.base.read_only import ReadOnlyFile
from klog.base.unusable import UNUSABLE
from klog.change.plan.json_file import load_plan
from klog.change.plan.model import BACKUPS, PLAN, Plan
from klog.change.plan.staging import make_directories, remove_made
from klog.data_dir.disk.disk import Disk, NewFile
from klog.data_dir.disk.output_gate import check_directory, check_output

_SUFFIX = ".path"
_MAX_PATH_BYTES = 4096
_SAMPLED = 4
"""So many notes of other plans are looked at when one is left: more than are added, so that what is stale goes."""
_PATIENCE_SECONDS = 30 * 24 * 3600


def remember(plan: Plan) -> None:
    """Leave pointers to the backup of *plan*, where that can be."""
    disk, notes, backup = Disk(), _notes(), plan.backups[0]
    if _target(os.path.join(notes, plan.id)) == backup:
        return
    _index_older_notes(disk)
    names = _names(notes)
    _remove_stale(notes, random.sample(names, min(len(names), _SAMPLED)), disk)
    _write(os.path.join(notes, plan.id), backup, disk)
    for log_dir in pointed_from(plan):
        beside, index = _beside(log_dir), _index(log_dir)
        _remove_stale(beside, (name for name in _names(beside) if name.endswith(_SUFFIX)), disk)
        _remove_stale(index, _names(index), disk)
        if not _write(_pointer(log_dir, plan.id), backup, disk):
            _write(os.path.join(index, plan.id), backup, disk)


def forget(plan: Plan) -> None:
    """Remove the pointers to the backups of *plan*, of which nothing has come."""
    disk = Disk()
    paths = [os.path.join(_notes(), plan.id)]
    for log_dir in pointed_from(plan):
        paths += [_pointer(log_dir, plan.id), os.path.join(_index(log_dir), plan.id)]
    for path in paths:
        try:
            disk.unlink(path)
            remove_made([os.path.dirname(path)] if path != paths[0] else [], disk)
        except OSError:
            continue  # there was none


def _names(place: str) -> list[str]:
    """Return the names in a directory of notes or backups; what cannot be listed is named at the end."""
    try:
        return names_if_there(place)
    except OSError as error:
        UNUSABLE.refuse(place, error, "list")
        return []


def _own_names(place: str) -> list[str]:
    """Return the names in a directory of this user's notes; none where it is another user's, as under `su`.

    Such notes say nothing of a log dir that pointers beside it do not.
    """
    try:
        return names_if_there(place)
    except PermissionError:
        return []
    except OSError as error:
        UNUSABLE.refuse(place, error, "list")
        return []


def backups_of(log_dir: str) -> Iterator[str]:
    """Yield where backups of the plans for *log_dir* may be."""
    beside = _beside(log_dir)
    for name in _names(beside):
        path = os.path.join(beside, name)
        target = _target(path) if name.endswith(_SUFFIX) else path
        if target is not None:
            yield target
    places = [_index(log_dir)] if _is_indexed() else [_notes()]
    for path in (os.path.join(place, name) for place in places for name in _own_names(place)):
        target = _target(path)
        if target is not None:
            yield target


def backups_of_plan(plan: str, directory: str) -> Iterator[str]:
    """Yield where the backup of the plan of that id may be: beside *directory*, or above it, or as a note tells."""
    while True:
        beside = os.path.join(directory, BACKUPS, plan)
        yield beside
        target = _target(f"{beside}{_SUFFIX}")
        if target is not None:
            yield target
        if directory == os.path.dirname(directory):
            break
        directory = os.path.dirname(directory)
    noted = _target(os.path.join(_notes(), os.path.basename(plan)))
    if noted is not None:
        yield noted


# where they are


def _home() -> str:
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # as its specification has it
        home = os.path.expanduser("~")
        # A container's user may have neither a HOME nor a line in passwd.
        state = os.path.join(home if os.path.isabs(home) else "/", ".local", "state")
    return os.path.join(state, "klog")


def _notes() -> str:
    return os.path.join(_home(), "plans")


def _index(log_dir: str) -> str:
    from hashlib import sha256

    return os.path.join(_home(), "log-dirs", sha256(os.fsencode(os.path.realpath(log_dir))).hexdigest()[:32])


def _beside(log_dir: str) -> str:
    return os.path.join(os.path.dirname(os.path.realpath(log_dir)), BACKUPS)


def _pointer(log_dir: str, plan: str) -> str:
    return os.path.join(_beside(log_dir), f"{plan}{_SUFFIX}")


def pointed_from(plan: Plan) -> list[str]:
    """Return the log dirs of *plan* whose backup is not beside them."""
    pairs = zip(plan.log_dirs, plan.backups, strict=True)
    return [log_dir for log_dir, backup in pairs if os.path.dirname(backup) != _beside(log_dir)]


# reading and writing


def _target(path: str) -> str | None:
    """Return the path in a pointer; None where there is no pointer."""
    try:
        with ReadOnlyFile(path) as source:
            return os.fsdecode(source.read(0, _MAX_PATH_BYTES)) or None
    except KlogError:
        return None


def _write(path: str, target: str, disk: Disk) -> bool:
    """Let a pointer be there; False where that cannot be."""
    if os.path.lexists(path) and _target(path) == target:
        return True
    made: list[str] = []
    try:
        check_output(path)
        made = make_directories(os.path.dirname(path), disk)
        with NewFile(path) as file:
            os.write(file.descriptor, os.fsencode(target))
            file.commit()
    except (OSError, KlogError):
        remove_made(made, disk)
        return False
    return True


def _remove_stale(directory: str, names: Iterable[str], disk: Disk) -> None:
    """Remove the pointers of *names* that are old and whose backups are gone."""
    for path in (os.path.join(directory, name) for name in names):
        try:
            is_old = os.lstat(path).st_mtime < time.time() - _PATIENCE_SECONDS
            target = _target(path) if is_old else None
            if target is not None and not os.path.lexists(os.path.join(target, PLAN)):
                disk.unlink(path)
        except OSError:
            continue  # another process has removed it


# older notes


def _is_indexed() -> bool:
    """Whether the notes by id need not be read for a log dir: those of an older klog know nothing of log dirs."""
    return os.path.isdir(os.path.join(_home(), "log-dirs")) or not os.path.isdir(_notes())


def _index_older_notes(disk: Disk) -> None:
    """Leave, once, pointers by log dir to what the notes of an older klog lead to, which had none."""
    index = os.path.join(_home(), "log-dirs")
    if os.path.isdir(index):
        return
    for name in _names(_notes()):
        target = _target(os.path.join(_notes(), name)) or ""
        try:
            plan = load_plan(os.path.join(target, PLAN))
        except KlogError:
            continue
        for log_dir in pointed_from(plan):
            _write(os.path.join(_index(log_dir), plan.id), target, disk)
    try:
        check_directory(index)
        make_directories(index, disk)
    except (OSError, KlogError):
        pass  # then the notes are read once more
