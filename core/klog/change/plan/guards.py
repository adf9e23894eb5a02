"""The files beside those that a plan changes, and whether they have changed since the plan began.

A plan names the files that it changes.  A broker that runs on the directory afterwards may change only others: it
appends to a segment, begins a new one, writes its checkpoints.  Nothing may be undone over that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.change.plan.file_state import status_of
from klog.change.plan.model import TEMPORARY, Action, Guard, Plan
from klog.formats.names import ROOT_KINDS, SEGMENT_KINDS, FileKind, Stage, parse_file

_ROOT = sorted(kind.value for kind in ROOT_KINDS - {FileKind.LOCK})


class Difference(NamedTuple):
    """A file that has changed: *guard* is its former state, None if it did not exist; *status* the present one."""

    log_dir: int
    file: str
    guard: Guard | None
    status: os.stat_result | None


def files_beside(plan: Plan) -> tuple[Guard, ...]:
    """Return the files that *plan* neither changes nor relies on, in the partitions and log dirs that it touches.

    Raises UnreadableError.
    """
    named = {(action.log_dir, action.file) for action in plan.actions}
    named.update((guard.log_dir, guard.file) for guard in plan.guards)
    return tuple(
        Guard(file, status.st_size, status.st_mtime_ns, log_dir)
        for log_dir, file, status in _there(plan)
        if (log_dir, file) not in named
    )


def differences(plan: Plan) -> Iterator[Difference]:
    """Yield the differences beside the files that *plan* changes; those with guards first.

    New files are reported only for a plan that has begun.  Raises StaleError for a path that is no longer a regular
    file, UnreadableError.
    """
    known = {(action.log_dir, action.file) for action in plan.actions}
    for guard in (*plan.guards, *(plan.beside or ())):
        known.add((guard.log_dir, guard.file))
        if plan.beside is not None and os.path.isabs(guard.file):
            continue  # a source, and the plan has begun
        status = status_of(plan.path(guard.log_dir, guard.file))
        if status is None or (status.st_size, status.st_mtime_ns) != (guard.size, guard.modified_ns):
            yield Difference(guard.log_dir, guard.file, guard, status)
    if plan.beside is not None:
        for log_dir, file, status in _there(plan):
            if (log_dir, file) not in known:
                yield Difference(log_dir, file, None, status)


def _there(plan: Plan) -> Iterator[tuple[int, str, os.stat_result]]:
    """Yield the regular files in the partitions that *plan* touches, and Kafka's own in their log dirs."""
    touched = {(action.log_dir, os.path.dirname(action.file)) for action in plan.actions}
    touched |= {(number, "") for number, _ in touched}
    for number, directory in sorted(touched):
        path = plan.path(number, directory)
        try:
            names = sorted(os.listdir(path)) if directory else _ROOT
        except OSError as error:
            if isinstance(error, FileNotFoundError) and (number, directory) in plan.new_directories:
                continue
            raise UnreadableError(f"{path}: {error.strerror}") from error
        for name in names:
            try:
                status = os.lstat(os.path.join(path, name))
            except OSError:
                continue  # deleted since, or never there
            if stat.S_ISREG(status.st_mode) and not name.endswith(TEMPORARY):
                yield number, f"{directory}/{name}" if directory else name, status


def is_above(plan: Plan, difference: Difference) -> bool:
    """Whether a changed or new file is unrelated to the files that *plan* changes in its partition.

    True for files of a segment after the last one in the plan, for files of no segment, and for files that a broker was
    about to delete.
    """
    directory, name = os.path.dirname(difference.file), parse_file(os.path.basename(difference.file))
    if name.stage in (Stage.SWAP, Stage.CLEANED):
        return False
    if not directory or name.kind not in SEGMENT_KINDS or name.stage is Stage.DELETED:
        return True

    def bases(places: Iterable[Action | Guard]) -> list[int]:
        here = [one.file for one in places if one.log_dir == difference.log_dir]
        files = [parse_file(os.path.basename(file)) for file in here if os.path.dirname(file) == directory]
        return [file.offset for file in files if file.kind in SEGMENT_KINDS and file.offset is not None]

    highest = max(bases(plan.actions), default=-1)
    behind = [base for base in bases((*plan.guards, *(plan.beside or ()))) if base > highest]
    return name.offset is not None and bool(behind) and name.offset >= min(behind)
