"""Drafts: the changes of one partition, collected while a repair decides on them; and the plan for all partitions.

    staging = Staging(os.path.join(backup, STAGED), disk)
    draft = Draft("/data", 0, staging)
    draft.put("orders-3/00000000000000001841.index", [entries], like="orders-3/00000000000000001841.log")

Nothing in the log dir changes.  New content is streamed into the staging directory, or only through a digest for a plan
that is only shown.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import normalized
from klog.change.plan.model import (
    APPEND,
    BACKUPS,
    NOTHING,
    PUT,
    REMOVE,
    STAGED,
    TRUNCATE,
    Action,
    Amount,
    CutOut,
    Digest,
    FileState,
    Guard,
    Loss,
    Plan,
    StaleError,
    file_state,
    place_among,
    same_content,
    state_read,
    states_around,
    status_of,
)
from klog.change.plan.staging import Staging
from klog.data_dir.disk.directory_tree import nearest_directory

if TYPE_CHECKING:
    from klog.data_dir.locks import Locks


OPENED: Final = (TRUNCATE, APPEND)
"""The actions on a file itself, not on its name."""


class StagedContent(NamedTuple):
    """New content of *file*, staged under the name *source*; *after*: the file's state once it is recorded."""

    file: str
    source: str
    after: FileState


class Draft:
    """The changes of one partition, or of the log dir's own files, in the order in which they are recorded.

    *number* is the log dir's number in the plan; directories in *emptied* are removed with their last file.  Files are
    named relative to the log dir, with `/`.  Several changes of one file follow each other; one that restores the
    former state removes those between.
    """

    def __init__(self, log_dir: str, number: int, staging: Staging) -> None:
        self.log_dir = os.path.abspath(log_dir)
        self.number = number
        self.staging = staging
        self.actions: list[Action] = []
        self.cuts: list[CutOut] = []
        self.emptied = set[str]()
        self._guards: dict[str, Guard] = {}
        self._states: dict[str, list[FileState | None]] = {}
        self._digests: dict[str, Digest] = {}

    def _path(self, file: str) -> str:
        return os.path.join(self.log_dir, file)

    def state(self, file: str) -> FileState | None:
        """Return the state of *file* after the changes recorded so far; None when it will not exist.

        Raises StaleError for a path that is no regular file, UnreadableError.
        """
        if file not in self._states:
            digest = self._digests.get(file)
            known = state_read(self._path(file), digest) if digest is not None else None
            start = digest.start if digest else 0
            self._states[file] = [known or file_state(self._path(file), start=start, or_unreadable=True)]
        return self._states[file][-1]

    def read_through(self, file: str, digest: Digest) -> None:
        """Register *digest*, which sees all bytes of *file* from its start on, so that they need not be read again."""
        self._digests[file] = digest

    def put(
        self,
        file: str,
        content: Iterable[bytes | bytearray | memoryview],
        like: str | None = None,
        modified_ns: int | None = None,
    ) -> bool:
        """Give *file* this *content*; return False when it has it already, and no change is needed.

        Mode, owner and modification time are those of the file it replaces, else of *like*, a file of the same log dir
        or of this draft, else the directory's owner and the present time; *modified_ns*, if given, is the time in ns.
        Raises OSError, UnreadableError.
        """
        return self.put_prepared(self.prepare(file, content, like, modified_ns))

    def prepare(
        self,
        file: str,
        content: Iterable[bytes | bytearray | memoryview],
        like: str | None = None,
        modified_ns: int | None = None,
        whole: str | None = None,
    ) -> StagedContent:
        """Stage *content* for *file* without recording a change, which `put_prepared` does; else as in `put`.

        It is for callers that need the whole content, or another name for it, before the changes are known.  *whole*: a
        file with the same content: both share their blocks if the file system can.
        """
        # Each change of a file has a name of its own for its content.
        turn = len(self._states.get(file, ()))
        source = f"{file}~{turn}" if turn > 1 else file
        shared = self.staging.share(source, whole) if whole is not None else None
        size, digest = shared or self.staging.store(source, content)
        self.state(file)
        mode, uid, gid, time_ns = self._owner(file, like)
        after = FileState(size, digest, mode, uid, gid, time_ns if modified_ns is None else modified_ns)
        return StagedContent(file, source, after)

    def put_prepared(self, new: StagedContent) -> bool:
        """Record that the file receives its prepared content; return False when it has it already."""
        before = self.state(new.file)
        if self._goes_back(new.file, new.after):
            self.staging.drop(new.source)
            return False
        self.add(Action(PUT, new.file, before, new.after, new.source, self.number))
        return True

    def _owner(self, file: str, like: str | None) -> tuple[int, int, int, int]:
        """Return the mode, owner, group and modification time in ns of new content for *file*."""
        known = next((state for state in reversed(self._states[file]) if state is not None), None)
        if known is not None:
            return known[2:]
        drafted = self._states[like][-1] if like in self._states else None
        if drafted is not None:
            return drafted[2:]
        status = status_of(self._path(like)) if like is not None else None
        if status is not None:
            return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns
        try:
            directory = os.stat(nearest_directory(os.path.dirname(self._path(file))))
        except OSError as error:
            raise UnreadableError(f"{self._path(file)}: {error.strerror}") from error
        return 0o644, directory.st_uid, directory.st_gid, time.time_ns()

    def truncate(self, file: str, size: int) -> bool:
        """Cut *file*, which exists, to *size* bytes; its modification time is kept.  Return False when it is no longer.

        Content put into it before can only be cut to nothing.  Raises StaleError, UnreadableError.
        """
        if file in self._states and (len(self._states[file]) > 1 or self._states[file][0] is None):
            before = self.state(file)
            assert size == 0, "the content is not in the log dir"
            assert before is not None, "there is no file"
            after = before._replace(size=0, digest=Digest().text())
        else:
            before, after = states_around(self._path(file), size)
            self._states[file] = [before]
        if same_content(before, after):
            return False
        if self._goes_back(file, after):
            return False
        self.add(Action(TRUNCATE, file, before, after, None, self.number))
        return True

    def remove(self, file: str) -> bool:
        """Delete *file*; return False without one."""
        before = self.state(file)
        if before is None or self._goes_back(file, None):
            return False
        self.add(Action(REMOVE, file, before, None, None, self.number))
        return True

    def put_transient(self, file: str, new: StagedContent | None = None) -> None:
        """Create *file* until `remove_transient`: with the content of *new*, or empty.

        *file* is one of the transient files of `klog.change.plan.replace_segments`, and does not exist.  It is a second
        name of the prepared content, and needs no further space.  Raises StaleError when it exists, OSError.
        """
        if self.state(file) is not None:
            raise StaleError(f"{self._path(file)}: exists, left by an unfinished operation; 'klog recover' finishes it")
        if new is None:
            after = self.prepare(file, [], like=None).after
        else:
            after = new.after
            self.staging.link(new.source, file)
        self.add(Action(PUT, file, None, after, file, self.number))

    def remove_transient(self, file: str) -> None:
        """Remove the temporary file that `put_transient` created."""
        self.add(Action(REMOVE, file, self.state(file), None, None, self.number))

    def add(self, action: Action) -> None:
        """Record a complete change whose source is staged.  Raises UnreadableError if this user may not make it."""
        if self.staging.is_urgent:
            lack = lack_of_rights(self._path(action.file), action)
            if lack is not None:
                raise UnreadableError(lack)
        self.actions.append(action)
        self._states[action.file].append(action.after)

    def abandon(self) -> None:
        """Forget all changes, and remove staged content.  Raises OSError."""
        for action in self.actions:
            if action.source is not None:
                self.staging.drop(action.source)
        self.actions.clear()

    def _goes_back(self, file: str, after: FileState | None) -> bool:
        """Whether *file* has had this state before; the changes since are then removed."""
        states = self._states[file]
        at = place_among(after, states)
        if at is None or at == len(states) - 1:
            return at is not None
        undone = [action for action in self.actions if action.file == file][at:]
        for action in undone:
            self.actions.remove(action)
            if action.source is not None:
                self.staging.drop(action.source)
        del states[at + 1 :]
        return True

    def rely_on(self, file: str, *, sync: bool = False) -> None:
        """Make the plan valid only as long as the existing *file* does not change.

        *sync*: it is brought to the disk before anything acts.  Raises UnreadableError.
        """
        status = status_of(self._path(file))
        if status is None:
            raise UnreadableError(f"{self._path(file)}: no longer there")
        self._guard(file, status, sync)

    def _guard(self, file: str, status: os.stat_result, sync: bool) -> None:
        sync = sync or (file in self._guards and self._guards[file].sync)
        self._guards[file] = Guard(file, status.st_size, status.st_mtime_ns, self.number, sync)

    def rely_on_directory(self, directory: str, *, sync: bool = False) -> None:
        """Record the same for every file in *directory* that is kept.  Raises UnreadableError."""
        changed = {action.file for action in self.actions}
        place = self._path(directory)
        try:
            for name in sorted(os.listdir(place)):
                file = f"{directory}/{name}"
                if file not in changed and os.path.isfile(os.path.join(place, name)):
                    status = os.lstat(os.path.join(place, name))
                    if not stat.S_ISREG(status.st_mode):
                        raise StaleError(f"{os.path.join(place, name)}: not a regular file")
                    self._guard(file, status, sync)
        except OSError as error:
            raise UnreadableError(f"{error.filename or place}: {error.strerror}") from error

    @property
    def guards(self) -> list[Guard]:
        """The files that are relied on."""
        return list(self._guards.values())

    def cut_out(self, file: str, start: int, end: int, reason: str, **facts: object) -> None:
        """Have bytes *start* to *end* of *file*, as it is now, saved apart: the result will not have them.

        *facts* (offsets, …), as JSON has them, go into the sidecar.
        """
        self.cuts.append(CutOut(file, start, end, reason, facts, self.number))


def lack_of_rights(path: str, action: Action) -> str | None:
    """Return, in words, the reason why this user cannot do *action* to the file at *path*; None without one."""
    directory = nearest_directory(os.path.dirname(path))
    shut = [directory] if not os.access(directory, os.W_OK | os.X_OK) else []
    is_opened = action.do in OPENED and action.before is not None
    if is_opened and os.path.exists(path) and not os.access(path, os.W_OK):
        shut.append(path)
    return f"{shut[0]}: is not writable" if shut else None


# the plan of all


def plan_id(name: str, now_ms: int) -> str:
    """Return a new id: the time, the name, and four digits that distinguish plans of the same second."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(now_ms // 1000))}-{name}-{os.urandom(2).hex()}"


def new_plan(kind: str, now_ms: int, log_dirs: Sequence[str], backup: str | None) -> tuple[str, tuple[str, ...]]:
    """Return the id of a new plan and its backup places; none of those that its id names is there yet."""
    while True:
        name = plan_id(kind, now_ms)
        places = backup_places(name, log_dirs, backup)
        if not any(name in place and os.path.lexists(place) for place in places):
            return name, places


def iso_seconds(now_ms: int) -> str:
    """Return the time of a plan in its own format."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_ms // 1000))


def backup_places(name: str, log_dirs: Sequence[str], backup: str | None = None) -> tuple[str, ...]:
    """Return, for each log dir, where its originals go: beside it, on its file system, or in *backup* when given.

    *name* is the plan's id.  *backup* itself for one log dir when it is not there or empty, else a directory in it.
    """
    if backup is None:
        beside = [os.path.join(os.path.dirname(os.path.realpath(log_dir)), BACKUPS, name) for log_dir in log_dirs]
        # Log dirs beside each other must not share one.
        return tuple(f"{place}-{number}" if number else place for number, place in enumerate(beside))
    place = os.path.abspath(normalized(backup))
    if os.path.isdir(place) and os.listdir(place):
        place = os.path.join(place, name)
    return (place,) if len(log_dirs) == 1 else tuple(os.path.join(place, str(n)) for n in range(len(log_dirs)))


def staged_beside(plan_file: str) -> str:
    """Return the staging directory of a plan that is saved as *plan_file*."""
    return f"{os.path.abspath(normalized(plan_file))}.staged"


def staging_of(directory: str, log_dirs: Sequence[str]) -> tuple[str, ...]:
    """Return, for each log dir, its staging directory if all of them are in *directory*, beside a plan's file."""
    return tuple(os.path.join(directory, str(number)) for number in range(len(log_dirs)))


def make_plan(
    name: str,
    command: str,
    log_dirs: Sequence[str],
    backups: Sequence[str],
    drafts: Sequence[Draft],
    now_ms: int,
    *,
    findings: Sequence[Mapping[str, object]] = (),
    losses: Sequence[Loss] = (),
    kept: Amount = NOTHING,
    broker_would_keep: Amount | None = None,
    locks: Locks | None = None,
) -> Plan:
    """Return the plan of the drafts, in their order.

    *name*: the id, from `plan_id`.  *command*: as it was typed.  *backups*: from `backup_places`.  *findings*: in the
    form for JSON.  *locks*: those of the log dirs, if they are held already.
    """
    actions = [action for draft in drafts for action in draft.actions]
    changed = {(action.log_dir, action.file) for action in actions}
    guards = [guard for draft in drafts for guard in draft.guards if (guard.log_dir, guard.file) not in changed]
    places = [os.path.abspath(log_dir) for log_dir in log_dirs]
    staging = {draft.number: draft.staging.directory or "" for draft in drafts}
    waiting = tuple(staging.get(number, "") for number in range(len(places)))
    usual = tuple(os.path.join(backup, STAGED) for backup in backups)
    touched = {(number, os.path.dirname(file)) for number, file in changed}
    emptied = {(draft.number, inside) for draft in drafts for inside in draft.emptied}
    new = {one for one in touched if one in emptied or not os.path.lexists(os.path.join(places[one[0]], one[1]))}
    touched = (touched - new) | {(n, "") for n, _ in new}
    return Plan(
        name,
        iso_seconds(now_ms),
        command,
        tuple(places),
        tuple(backups),
        tuple(actions),
        tuple(guards),
        tuple(losses),
        tuple(findings),
        kept,
        broker_would_keep,
        () if all(one in ("", other) for one, other in zip(waiting, usual, strict=True)) and any(waiting) else waiting,
        _without_lock(places, locks),
        tuple(cut for draft in drafts for cut in draft.cuts),
        {(n, inside): os.stat(os.path.join(places[n], inside)).st_mtime_ns for n, inside in sorted(touched)},
        made_here=tuple(
            path for staging in {id(one.staging): one.staging for one in drafts}.values() for path in staging.made
        ),
        known_here={inode: state for one in drafts for inode, state in one.staging.known.items()},
        new_directories=tuple(sorted(new)),
    )


def _without_lock(log_dirs: Sequence[str], locks: Locks | None) -> tuple[int, ...]:
    made = locks.made if locks is not None else frozenset()
    missing = [n for n, log_dir in enumerate(log_dirs) if not os.path.lexists(os.path.join(log_dir, ".lock"))]
    return tuple(sorted({*missing, *(n for n, log_dir in enumerate(log_dirs) if log_dir in made)}))
