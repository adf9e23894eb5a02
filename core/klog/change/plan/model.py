"""A plan: the findings, the losses, and the files that will change.

A plan is data, and its own journal.  Every action has the state of its file before and after it: a file in state
*after* is done, one in state *before* is not done, any other one means that the plan is stale.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple, NoReturn

from klog.base.errors import KlogError, PlanError

VERSION: Final = 1

BACKUPS: Final = "klog-backup"
"""The directory beside a log dir that has the backups of all plans."""
PLAN: Final = "plan.json"
"""The file of a backup that has the plan."""
STAGED: Final = "staged"
"""The staging directory in a backup, for new files until they are renamed into place; deleted when the plan is done."""
UNFINISHED: Final = "unfinished"
"""The file of a backup that is there from a plan's beginning to its end."""

TEMPORARY: Final = ".klog.tmp"
"""Ends the name of a file on its way in from another file system; brokers take no notice of such names."""

PUT: Final = "put"
"""A file receives new content, which is staged in `source`; it need not have existed before."""
TRUNCATE: Final = "truncate"
"""A file is cut to `after.size` bytes."""
REMOVE: Final = "remove"
"""A file is deleted."""
APPEND: Final = "append"
"""Bytes staged in `source` are added at the end of a file.  The undo cuts the file: no copy is kept."""


class StaleError(KlogError):
    """Something has changed since the plan was made: nothing was started."""


def refuse(what: str) -> NoReturn:
    """Raise PlanError over *what*."""
    raise PlanError(f"the plan is refused: {what}; nothing was changed")


def shown(value: object) -> str:
    """Return *value*, which may be anything, for a message of one line."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:80]}…"


UNREADABLE: Final = "unreadable:"
"""The kind of the digest of a file that the disk returns only in part."""


class FileState(NamedTuple):
    """The state of a file.

    *digest*: its kind and the hexadecimal digits, `sha256:…` or, for large files, `crc32c:…`; `crc32c:…@N` of the bytes
    from N on in a file that only grows.  *mode*: permission bits.  *modified_ns*: ns since the epoch.  The result of an
    action has exactly this mode, owner and time.
    """

    size: int
    digest: str
    mode: int
    uid: int
    gid: int
    modified_ns: int

    @property
    def content(self) -> tuple[int, str]:
        """The key by which two files are compared: equal keys mean equal bytes."""
        return self.size, self.digest

    @property
    def is_unreadable(self) -> bool:
        """Whether the disk does not return all of it: its inode then distinguishes it from others."""
        return self.digest.startswith(UNREADABLE)

    @property
    def digest_start(self) -> int:
        """The byte from which on the digest counts."""
        return int(self.digest.partition("@")[2] or 0)


def same_content(one: FileState | None, other: FileState | None) -> bool:
    """Whether both are files of the same bytes, or both no file at all."""
    return (one and one.content) == (other and other.content)


class Action(NamedTuple):
    """A change of one file.

    *log_dir*: the number of its log dir in the plan.  *file*: relative to it, with `/`.  *before*: None if the file
    does not exist; *after*: None if it will not.  *source*: of a put, the file with the content, relative to the log
    dir's staging directory; of an append, the file with the added bytes, whose state is *added*.
    """

    do: str
    file: str
    before: FileState | None
    after: FileState | None
    source: str | None = None
    log_dir: int = 0
    added: FileState | None = None

    @property
    def staged(self) -> FileState | None:
        """The state of its staged source."""
        return self.added if self.do == APPEND else self.after


class Guard(NamedTuple):
    """A file that is not changed, but that the plan relies on: it must be as it was.

    *file*: relative to the log dir, or the absolute path of a source, which has to last only until the plan begins: by
    then all that it needs of it is in the backup.  *sync*: and it must be on the disk before anything acts, for a
    broker will take it as flushed.
    """

    file: str
    size: int
    modified_ns: int
    log_dir: int = 0
    sync: bool = False


class Loss(NamedTuple):
    """Records, or bytes of a log, that will be lost.  *records* and the offsets: None if unknown."""

    topic: str | None
    partition: int | None
    first_offset: int | None
    last_offset: int | None
    records: int | None
    bytes: int
    reason: str


class CutOut(NamedTuple):
    """Bytes of a log that the result will not have: they are saved as a file of their own before the first action.

    *start*, *end*: positions in the file before the plan.  *facts*: further facts, for the file's sidecar.
    """

    file: str
    start: int
    end: int
    reason: str
    facts: Mapping[str, object]
    log_dir: int = 0


class Amount(NamedTuple):
    """An amount of log data.  *records*: None if they were not counted."""

    records: int | None
    bytes: int

    def plus(self, other: Amount) -> Amount:
        """Return the sum."""
        is_counted = self.records is not None and other.records is not None
        return Amount((self.records or 0) + (other.records or 0) if is_counted else None, self.bytes + other.bytes)


NOTHING: Final = Amount(0, 0)


class Plan(NamedTuple):
    """The changes of a command, in its order.

    *log_dirs*: absolute paths; *backups*: for each, the directory for originals.  *staging*: for each, the directory
    with the sources of its puts, empty if there is none; none: `staged` in the backups.  *findings*: in the form for
    JSON.  *no_lock*: log dirs, by number, that had no `.lock` before.  *directory_times*: the modification time in ns
    of each directory that the actions touch, by (log dir, relative path); *leaves_times*: the final ones of
    directories.  *undoes*: the id of the plan that it undoes.  *beside*: the state of the other files of partitions and
    log dirs that it touches when it began; None until then.  *made_here*: the directories of backups and new files that
    this very process has made for it.  *known_here*: the states of such new files, by inode, known because this process
    has written them.  *reads*: absolute paths of log dirs that it does not change; in guards their numbers follow those
    of *log_dirs*.  *new_directories*: of partitions, by (log dir, name): they are made with their first file, and
    deleted with their last.  *copies*: the copies of partitions that it makes equal, in the form for JSON.
    """

    id: str
    created: str
    command: str
    log_dirs: tuple[str, ...]
    backups: tuple[str, ...]
    actions: tuple[Action, ...]
    guards: tuple[Guard, ...] = ()
    losses: tuple[Loss, ...] = ()
    findings: tuple[Mapping[str, object], ...] = ()
    kept: Amount = NOTHING
    broker_would_keep: Amount | None = None
    staging: tuple[str, ...] = ()
    no_lock: tuple[int, ...] = ()
    cuts: tuple[CutOut, ...] = ()
    directory_times: Mapping[tuple[int, str], int] = MappingProxyType({})
    leaves_times: Mapping[tuple[int, str], int] = MappingProxyType({})
    undoes: str | None = None
    beside: tuple[Guard, ...] | None = None
    made_here: tuple[str, ...] = ()
    known_here: Mapping[tuple[int, int], FileState] = MappingProxyType({})
    reads: tuple[str, ...] = ()
    new_directories: tuple[tuple[int, str], ...] = ()
    copies: tuple[Mapping[str, object], ...] = ()

    @property
    def locked(self) -> tuple[str, ...]:
        """The log dirs whose locks it needs, in the order of their numbers."""
        return self.log_dirs + self.reads

    def path(self, log_dir: int, file: str) -> str:
        """Return the absolute path of *file*, relative to the log dir of that number."""
        return os.path.join(self.locked[log_dir], file)

    def staged(self, log_dir: int) -> str:
        """Return the directory with the sources of a log dir's puts."""
        return self.staging[log_dir] if self.staging else os.path.join(self.backups[log_dir], STAGED)

    def partitions(self) -> list[str]:
        """Return the paths of the partitions whose files it changes, in order."""
        places = {(action.log_dir, os.path.dirname(action.file)) for action in self.actions}
        return [self.path(log_dir, directory) for log_dir, directory in sorted(places) if directory]
