"""The status of a plan, derived from its files: the plan is its own journal."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass

from klog.base.errors import UnreadableError
from klog.change.plan.file_state import file_state, states_around, status_of
from klog.change.plan.model import APPEND, TRUNCATE, FileState, Plan, StaleError, same_content
from klog.change.plan.swap_files import comes_back, is_transient, stage_of, witness_of
from klog.formats.names import Stage

_GRAINS_NS = (1, 100, 1000, 10**9, 2 * 10**9)
"""The finest steps of a modification time, on file systems of several kinds."""


def _is_time(stored_ns: int, given_ns: int) -> bool:
    """Whether a file that was given a modification time can have the other: many file systems keep it less exactly."""
    return any(stored_ns % grain == 0 and stored_ns // grain == given_ns // grain for grain in _GRAINS_NS)


@dataclass(slots=True)
class FileHistory:
    """The history of one file: its states, the first before the plan and one after each of its actions.

    *actions*: their places in the plan.  *at*: the number of the file's state; None when it is in none of them.
    *current*: its present state.  *is_between*: it has been cut or appended to, and its owner, mode and time are not
    restored yet.  *is_partial*: it has only some of the appended bytes, or bytes that will be replaced.
    """

    log_dir: int
    file: str
    path: str
    states: list[FileState | None]
    actions: list[int]
    at: int | None = None
    current: FileState | None = None
    is_between: bool = False
    is_partial: bool = False

    @property
    def before(self) -> FileState | None:
        """The state of the file before the plan."""
        return self.states[0]

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

    @property
    def is_untouched(self) -> bool:
        """Whether the file is unchanged since before the plan; not to be asked if only its size was read.

        If only its end was read, its time counts as well.
        """
        one, other = self.current, self.before
        is_read = one is None or other is None or not other.digest_start or one.modified_ns == other.modified_ns
        return same_content(one, other) and is_read


def file_histories(plan: Plan) -> dict[tuple[int, str], FileHistory]:
    """Return the history of each file, by log dir and name, without its current state."""
    found: dict[tuple[int, str], FileHistory] = {}
    for place, action in enumerate(plan.actions):
        key = action.log_dir, action.file
        if key not in found:
            found[key] = FileHistory(*key, plan.path(*key), [action.before], [])
        found[key].states.append(action.after)
        found[key].actions.append(place)
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
    for chain in found:
        directory = os.path.dirname(chain.path)
        if directory not in directories:
            is_new = (chain.log_dir, os.path.dirname(chain.file)) in plan.new_directories
            if not (is_new and not os.path.lexists(directory)):
                _check_directory(directory)
            directories.add(directory)
        if not (quick and _locate_quickly(chain)):
            start, is_bad = chain.before.digest_start if chain.before else 0, any(map(_is_unreadable, chain.states))
            chain.current = file_state(chain.path, advance, start, or_unreadable=is_bad)
            same = [at for at, state in enumerate(chain.states) if same_content(state, chain.current)]
            chain.at = same[0] if same else None
            if chain.at is None:
                _look_for_part(plan, chain)
            _doubt(plan, chain)
    _settle_passing(found)
    _settle_markers(found)
    return found


def _is_unreadable(state: FileState | None) -> bool:
    return state is not None and state.is_unreadable


def _settle_passing(found: list[FileHistory]) -> None:
    """Distinguish deleted transient files from future ones, by the actions done while they exist."""
    file_histories = {(chain.log_dir, chain.file): chain for chain in found}
    gone = [chain for chain in found if chain.at == 0 and is_transient(chain.states)]
    # The witness of a `.cleaned` is a `.swap`, whose own state must be known first.
    for chain in sorted(gone, key=lambda chain: stage_of(chain.file) is Stage.CLEANED):
        telling = file_histories.get((chain.log_dir, witness_of(chain.file)))
        if telling is not None and telling.at is not None:
            came, went = chain.actions
            done = telling.actions[: telling.at]
            chain.at = 2 if any(came < place < went for place in done) else 0


def _settle_markers(found: list[FileHistory]) -> None:
    """Distinguish markers that still exist from restored ones: these are written after everything else."""
    for chain in found:
        if comes_back(chain.file, chain.states) and chain.at is not None and chain.current != chain.states[1]:
            others = [other for other in found if other.log_dir == chain.log_dir and other is not chain]
            chain.at = 2 if others and not any(other.at is None or other.to_do for other in others) else 0


def _look_for_part(plan: Plan, chain: FileHistory) -> None:
    """Find out whether a file, which is in none of its states, is on the way from one to the next: half appended to."""
    for at, place in enumerate(chain.actions):
        before, after, current = chain.states[at], chain.states[at + 1], chain.current
        if plan.actions[place].do != APPEND or before is None or after is None or current is None:
            continue
        is_within = before.size < current.size <= after.size
        if is_within and same_content(states_around(chain.path, before.size, before.digest_start)[1], before):
            chain.at, chain.is_between, chain.is_partial = at, True, True


def _check_directory(path: str) -> None:
    """Raise when there is no directory; a link to one will do, as it does for a broker."""
    try:
        status = os.stat(path)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error
    if not stat.S_ISDIR(status.st_mode):
        raise StaleError(f"{path}: not a directory")


def _locate_quickly(chain: FileHistory) -> bool:
    """Find the state of a file by its size and time; False if they do not decide."""
    status = status_of(chain.path)
    if status is None:
        chain.at = chain.states.index(None) if None in chain.states else None
        return True
    sizes = [state.size for state in chain.states if state is not None]
    if status.st_size not in sizes:
        return not min(sizes, default=0) < status.st_size < max(sizes, default=0)
    facts = status.st_size, status.st_mtime_ns
    same = [at for at, state in enumerate(chain.states) if state and (state.size, state.modified_ns) == facts]
    if len(same) == 1:
        chain.at = same[0]
        return True
    return False


def _doubt(plan: Plan, chain: FileHistory) -> None:
    """Treat a cut or an append as not done if the file's owner, mode and time are not restored.

    The power failed in between.
    """
    if not chain.at or plan.actions[chain.actions[chain.at - 1]].do not in (TRUNCATE, APPEND):
        return
    if chain.current != chain.states[chain.at]:
        chain.at -= 1
        chain.is_between = True


def check_leftovers(found: list[FileHistory]) -> None:
    """Raise StaleError when a broker's start would treat other files as part of the transient ones, or delete them.

    Raises OSError too.
    """
    names = {chain.path for chain in found}
    for directory in {os.path.dirname(chain.path) for chain in found if is_transient(chain.states)}:
        for name in os.listdir(directory):
            path = os.path.join(directory, name)
            if name.endswith((Stage.SWAP.value, Stage.CLEANED.value)) and path not in names:
                raise StaleError(f"{path}: left by an unfinished operation; 'klog recover' finishes it")


def check_directories(plan: Plan) -> None:
    """Raise StaleError when files were created or deleted in a partition of a plan that has not begun."""
    for (number, directory), modified_ns in plan.directory_times.items():
        path = plan.path(number, directory)
        if directory and os.stat(path).st_mtime_ns != modified_ns:
            raise StaleError(f"{path}: files have come or gone since the plan was made; make it again")
