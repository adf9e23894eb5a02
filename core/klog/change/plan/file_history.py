"""The history of each file of a plan, from which the plan's progress is derived, and the files beside them.

A plan names the files that it changes.  A broker that runs on the directory afterwards may change only others: it
appends to a segment, begins a new one, writes its checkpoints.  Nothing may be undone over that.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.change.plan.model import (
    APPEND,
    TEMPORARY,
    TRUNCATE,
    Action,
    FileState,
    Guard,
    Plan,
    StaleError,
    file_state,
    is_any_unreadable,
    place_among,
    same_content,
    states_around,
    status_of,
)
from klog.change.plan.plan_rules import comes_back, is_transient, stage_of, telling_file
from klog.formats.names import ROOT_KINDS, SEGMENT_KINDS, FileKind, Stage, parse_file

_ROOT = sorted(kind.value for kind in ROOT_KINDS - {FileKind.LOCK})
_GRAINS_NS = (1, 100, 1000, 10**9, 2 * 10**9)
"""The finest steps of a modification time, on file systems of several kinds."""


def _is_time(stored_ns: int, given_ns: int) -> bool:
    """Whether a file that was given a modification time can have the other: many file systems keep it less exactly."""
    return any(stored_ns % grain == 0 and stored_ns // grain == given_ns // grain for grain in _GRAINS_NS)


class Original(StrEnum):
    """The copy of a file that a backup keeps."""

    NONE = "none"
    """The file is only appended to."""
    TAIL = "its end"
    """The file is only cut."""
    COPY = "a copy"
    """The file is cut in place before something else."""
    WHOLE = "the file itself, by a second name where that is possible"


@dataclass(slots=True)
class FileHistory:
    """The history of one file: its states, the first before the plan and one after each of its actions.

    *before*: the first of them.  *actions*: their places in the plan.  *original*: the copy in the backup.  *at*:
    the number of the file's state; None when it is in none of them.  *current*: its present state.  *is_untouched*: it
    is unchanged since before the plan, as far as it was read.  *is_between*: it has been cut or appended to, and its
    owner, mode and time are not restored yet.  *is_partial*: it has only some of the appended bytes, or bytes that will
    be replaced.
    """

    log_dir: int
    file: str
    path: str
    before: FileState | None
    states: list[FileState | None]
    actions: list[int]
    original: Original = Original.NONE
    at: int | None = None
    current: FileState | None = None
    is_untouched: bool = False
    is_between: bool = False
    is_partial: bool = False

    @property
    def to_do(self) -> list[int]:
        """The actions that are still to do, by their places in the plan; all of them if unknown."""
        return self.actions[self.at or 0 :]

    def is_used(self) -> bool:
        """Whether the file was written to since it received its state: its time is another.

        Raises StaleError for what is no regular file, UnreadableError.
        """
        state, status = self.states[self.at or 0], status_of(self.path)
        if state is None or status is None:
            return (state is None) != (status is None)
        return status.st_size != state.size or not _is_time(status.st_mtime_ns, state.modified_ns)


def file_histories(plan: Plan) -> dict[tuple[int, str], FileHistory]:
    """Return the history of each file, by log dir and name, without its current state."""
    found: dict[tuple[int, str], FileHistory] = {}
    for place, (action, path) in enumerate(zip(plan.actions, plan.paths(), strict=True)):
        key = action.log_dir, action.file
        if key not in found:
            found[key] = FileHistory(*key, path, action.before, [action.before], [])
            found[key].original = Original.TAIL if action.do == TRUNCATE else Original.WHOLE
        elif found[key].original is Original.TAIL:
            found[key].original = Original.COPY
        found[key].states.append(action.after)
        found[key].actions.append(place)
    for history in found.values():
        if all(plan.actions[place].do == APPEND for place in history.actions):
            history.original = Original.NONE
    return found


def locate_histories(
    plan: Plan, advance: Callable[[int], None] | None = None, *, quick: bool = False
) -> list[FileHistory]:
    """Return the history of each file with its current state; each file is read.  *advance* receives the bytes read.

    *quick*: sizes and times decide if they differ between the states; otherwise a file is read.  Raises StaleError when
    there is something else than a regular file, or a directory, in the way; UnreadableError.
    """
    directories: set[str] = set()
    found = list(file_histories(plan).values())
    for history in found:
        directory = os.path.dirname(history.path)
        if directory not in directories:
            is_new = (history.log_dir, os.path.dirname(history.file)) in plan.new_directories
            if not (is_new and not os.path.lexists(directory)):
                _check_directory(directory)
            directories.add(directory)
        if not (quick and _locate_quickly(history)):
            before, is_bad = history.before, is_any_unreadable(history.states)
            start = before.digest_start if before else 0
            current = history.current = file_state(history.path, advance, start, or_unreadable=is_bad)
            history.at = place_among(current, history.states)
            # If only its end was read, its time counts as well.
            is_same = not start or current is None or before is None or current.modified_ns == before.modified_ns
            history.is_untouched = history.at == 0 and is_same
            if history.at is None:
                _look_for_part(plan, history)
            if history.at:
                _doubt(plan, history)
    _settle_transient(found)
    _settle_markers(found)
    return found


def _settle_transient(found: list[FileHistory]) -> None:
    """Distinguish deleted transient files from future ones, by the actions done while they exist."""
    file_histories = {(history.log_dir, history.file): history for history in found}
    gone = [history for history in found if history.at == 0 and is_transient(history.states)]
    # The telling file of a `.cleaned` is a `.swap`, whose own state must be known first.
    for history in sorted(gone, key=lambda history: stage_of(history.file) is Stage.CLEANED):
        telling = file_histories.get((history.log_dir, telling_file(history.file)))
        if telling is not None and telling.at is not None:
            came, went = history.actions
            done = telling.actions[: telling.at]
            history.at = 2 if any(came < place < went for place in done) else 0


def _settle_markers(found: list[FileHistory]) -> None:
    """Distinguish markers that still exist from restored ones: these are written after everything else."""
    for history in found:
        if comes_back(history.file, history.states) and history.at is not None and history.current != history.states[1]:
            others = [other for other in found if other.log_dir == history.log_dir and other is not history]
            history.at = 2 if others and not any(other.at is None or other.to_do for other in others) else 0


def _look_for_part(plan: Plan, history: FileHistory) -> None:
    """Find out whether a file, which is in none of its states, is on the way from one to the next: half appended to."""
    for at, place in enumerate(history.actions):
        before, after, current = history.states[at], history.states[at + 1], history.current
        if plan.actions[place].do != APPEND or before is None or after is None or current is None:
            continue
        is_within = before.size < current.size <= after.size
        if is_within and same_content(states_around(history.path, before.size, before.digest_start)[1], before):
            history.at, history.is_between, history.is_partial = at, True, True


def _check_directory(path: str) -> None:
    """Raise when there is no directory; a link to one will do, as it does for a broker."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise StaleError(f"{path}: not a directory")


def _locate_quickly(history: FileHistory) -> bool:
    """Find the state of a file by its size and time; False if they do not decide."""
    status = status_of(history.path)
    if status is None:
        history.at = history.states.index(None) if None in history.states else None
        return True
    sizes = [state.size for state in history.states if state is not None]
    if status.st_size not in sizes:
        return not min(sizes, default=0) < status.st_size < max(sizes, default=0)
    facts = status.st_size, status.st_mtime_ns
    same = [at for at, state in enumerate(history.states) if state and (state.size, state.modified_ns) == facts]
    if len(same) == 1:
        history.at = same[0]
        return True
    return False


def _doubt(plan: Plan, history: FileHistory) -> None:
    """Treat a cut or an append as not done if the file's owner, mode and time are not restored.

    The power failed in between.
    """
    if not history.at or plan.actions[history.actions[history.at - 1]].do not in (TRUNCATE, APPEND):
        return
    if history.current != history.states[history.at]:
        history.at -= 1
        history.is_between = True


def check_leftovers(found: list[FileHistory]) -> None:
    """Raise StaleError when a broker's start would treat other files as part of the transient ones, or delete them.

    Raises OSError too.
    """
    names = {history.path for history in found}
    for directory in {os.path.dirname(history.path) for history in found if is_transient(history.states)}:
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            if name.endswith((Stage.SWAP.value, Stage.CLEANED.value)) and path not in names:
                raise StaleError(f"{path}: left by an unfinished operation; 'klog recover' finishes it")


def check_directories(plan: Plan) -> None:
    """Raise StaleError when files were created or deleted in a partition of a plan that has not begun."""
    for (number, directory), modified_ns in plan.directory_times.items():
        path = plan.path(number, directory)
        if directory and os.stat(path).st_mtime_ns != modified_ns:
            raise StaleError(f"{path}: files were added or removed since the plan was made; make it again")


# files beside those of the plan


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
