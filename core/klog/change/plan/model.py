"""A plan: the findings, the losses, the files that will change, and the states of these files.

A plan is data, and its own journal.  Every action has the state of its file before and after it: a file in state
*after* is done, one in state *before* is not done, any other one means that the plan is stale.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

from klog.base.errors import KlogError, UnreadableError
from klog.base.read_only import ReadOnlyFile

if TYPE_CHECKING:
    from hashlib import _Hash

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


def place_among(one: FileState | None, states: Sequence[FileState | None]) -> int | None:
    """Return the place of the first of *states* with the content of *one*; None if none has it."""
    return next((place for place, state in enumerate(states) if same_content(one, state)), None)


def is_any_unreadable(states: Iterable[FileState | None]) -> bool:
    """Whether one of *states* is that of a file which the disk does not return."""
    return any(state is not None and state.is_unreadable for state in states)


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
    def has_digest_beyond_end(self) -> bool:
        """Whether a digest begins behind the end of its file."""
        states = (self.before, self.after, self.added)
        return any(state is not None and state.digest_start > state.size for state in states)

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


NOTHING: Final = Amount(0, 0)


def total(amounts: Iterable[Amount]) -> Amount:
    """Return the sum; its records are None if those of one are."""
    every = list(amounts)
    counts = [one.records for one in every if one.records is not None]
    return Amount(sum(counts) if len(counts) == len(every) else None, sum(one.bytes for one in every))


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

    def paths(self) -> list[str]:
        """Return the absolute paths of the files that it changes, in the order of the actions."""
        return [self.path(action.log_dir, action.file) for action in self.actions]

    def bytes_to_read(self) -> int:
        """Return how many bytes of the files that it changes are read for their digests."""
        states = [action.before for action in self.actions if action.before is not None]
        return sum(state.size - state.digest_start for state in states)

    def partitions(self) -> list[str]:
        """Return the paths of the partitions whose files it changes, in order."""
        places = {(action.log_dir, os.path.dirname(action.file)) for action in self.actions}
        return [self.path(log_dir, directory) for log_dir, directory in sorted(places) if directory]


SHA256_BELOW: Final = 16 << 20
"""Files of at least this size have CRC-32C as digest: the purpose is to notice a changed file, soon."""

_WINDOW = 1 << 20
_ALL_BITS = 0xFFFFFFFF


class Digest:
    """The digest of bytes in their order, from byte *start* of a file on.

    *size*: the end of the bytes so far; *expected*: the final end, if known.
    """

    def __init__(self, expected: int = 0, start: int = 0) -> None:
        from hashlib import sha256

        self.size = self.start = start
        self._crc = 0
        self._sha256: _Hash | None = sha256() if expected < SHA256_BELOW and not start else None

    def update(self, data: bytes | bytearray | memoryview) -> None:
        """Take the next bytes."""
        from klog.kernel import crc32c

        self.size += len(data)
        self._crc = crc32c(data, self._crc)
        if self.size >= SHA256_BELOW:
            self._sha256 = None
        elif self._sha256 is not None:
            self._sha256.update(data)

    def zeros(self, count: int) -> None:
        """Take *count* bytes that are zero, of a hole, which may be larger than any disk; not for a SHA-256."""
        from klog.kernel import crc32c_shift

        self.size += count
        self._crc = crc32c_shift(self._crc ^ _ALL_BITS, count) ^ _ALL_BITS

    def copy(self) -> Digest:
        """Return a digest that has seen the same."""
        other = Digest(start=self.start)
        other.size, other._crc = self.size, self._crc
        other._sha256 = self._sha256 and self._sha256.copy()
        return other

    def text(self) -> str:
        """Return the digest of the bytes so far, in the form for a plan."""
        if self._sha256 is None:
            return f"crc32c:{self._crc:08x}" + (f"@{self.start}" if self.start else "")
        return f"sha256:{self._sha256.hexdigest()}"


def status_of(path: str) -> os.stat_result | None:
    """Return the status of a regular file; None when there is no such name.

    Raises StaleError for anything but a regular file, a symbolic link too; UnreadableError.
    """
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode):
        raise StaleError(f"{path}: not a regular file")
    return status


def file_state(
    path: str, advance: Callable[[int], None] | None = None, start: int = 0, *, or_unreadable: bool = False
) -> FileState | None:
    """Return the state of the file at *path*; None without one.  *advance* receives the number of bytes read.

    *start*: of its digest.  *or_unreadable*: a file that the disk returns only in part has a state too.  Raises
    StaleError for anything but a regular file, UnreadableError.
    """
    states = _states(path, None, advance, start, or_unreadable)
    return states and states[1]


def state_read(path: str, digest: Digest) -> FileState | None:
    """Return the state of the file at *path* if all of its bytes, from its start on, were added to *digest*; else None.

    Raises StaleError for anything but a regular file, UnreadableError.
    """
    status = status_of(path)
    if status is None or status.st_size != digest.size:
        return None
    return FileState(digest.size, digest.text(), *_owner(status))


def is_as_known(status: os.stat_result, known: FileState) -> bool:
    """Whether the status of a file is entirely that of *known*."""
    return (status.st_size, *_owner(status)) == (known.size, *known[2:])


def _owner(status: os.stat_result) -> tuple[int, int, int, int]:
    return stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid, status.st_mtime_ns


def states_around(path: str, size: int, start: int = 0) -> tuple[FileState, FileState]:
    """Return the state of the file at *path*, and its state after a cut to *size* bytes.

    *start*: of the digests, not behind *size*.  Raises StaleError when it does not exist or is not as long,
    UnreadableError.
    """
    states = _states(path, size, None, start)
    if states is None or states[1].size < size:
        raise StaleError(f"{path}: it was longer than {size} bytes before")
    return states[1], states[0]


def _states(
    path: str, size: int | None, advance: Callable[[int], None] | None, start: int, or_unreadable: bool = False
) -> tuple[FileState, FileState] | None:
    """Return the states of the first *size* bytes and of the whole file."""
    status = status_of(path)
    if status is None:
        return None
    whole = Digest(status.st_size if size is None else 0, min(start, status.st_size))
    size_to_cut = -1 if size is None else size
    cut = whole.text() if size == whole.size else ""
    view = memoryview(bytearray(min(_WINDOW, max(status.st_size, 1))))
    try:
        with ReadOnlyFile(path) as source:
            while True:
                # A window ends at the cut, because the digest up to there is needed too.
                left = size_to_cut - whole.size if whole.size < size_to_cut else status.st_size - whole.size
                count = min(source.next_data(whole.size) - whole.size, left) if whole._sha256 is None else 0
                if count >= _WINDOW:
                    whole.zeros(count)
                else:
                    window = view[:left] if whole.size < size_to_cut else view
                    count = source.read_into(whole.size, window)
                    if not count:
                        break
                    whole.update(window[:count])
                if whole.size == size:
                    cut = whole.text()
                if advance is not None:
                    advance(count)
    except OSError as error:
        if or_unreadable and error.errno == errno.EIO:
            state = FileState(status.st_size, f"{UNREADABLE}{status.st_ino:x}", *_owner(status))
            return state, state
        raise UnreadableError(f"{path} @ {whole.size}: cannot read: {error.strerror}") from error
    owner = _owner(status)
    return FileState(max(size_to_cut, 0), cut, *owner), FileState(whole.size, whole.text(), *owner)
