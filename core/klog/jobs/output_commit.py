"""Output of many tasks in one directory: exactly one set of files, even if tasks are repeated, doubled or killed.

    with lock_target("out", disk):                                 # the driver, to the end
        output = JobOutput("out", {"job": "export", …}, disk)
    with OutputAttempt(output.run, 7) as attempt:                  # a task, for piece 7
        …                                                    # files below attempt.path
        attempt.commit(files, {"records": 1844})
        output.finish(moves)                                 # the driver, when all pieces are there

Until then all is in a hidden directory.  A piece is there when its directory has its name, which one rename gives: of
two tasks with the same piece one comes second, and throws away what it has.  A run after a killed one finds the pieces
that are there, and does the others.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from klog.base.errors import KlogError, UsageError
from klog.base.read_only import normalized
from klog.data_dir.disk.directory_tree import FencedDisk, make_directories, remove_tree, write_file
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.disk.refused_outputs import check_directory
from klog.data_dir.locks import LockedError, Locks
from klog.formats.names import FileKind

RUN = ".klog-unfinished"
_JOB, _RESULT, _FINISHING, _PIECE = "job.json", "result.json", "finishing", "piece-"
Facts = dict[str, Any]
"""The facts about a piece, as JSON."""


_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)


def check_target(to: str, paths: Iterable[str] = ()) -> None:
    """Raise UsageError when no job may write into the directory *to*.  *paths*: the sources."""
    run = os.path.join(to, RUN)
    # A log dir that is nearly done looks like one.
    check_directory(to, paths, is_ours=os.path.lexists(os.path.join(run, _FINISHING)))
    if os.path.islink(run):
        check_directory(run, paths)


@contextmanager
def lock_target(to: str, disk: Disk) -> Iterator[None]:
    """Keep other jobs from writing into the directory *to* until the block ends; it is created if necessary.

    A POSIX lock on a file `.lock` in it keeps them away, as on a log dir, and ends with the process.  A file system
    without locks lets two jobs write.  Raises UsageError if the path is protected, LockedError, OSError.
    """
    check_target(to)
    to = normalized(to)
    with ExitStack() as held:
        if not os.path.lexists(to):
            make_directories(os.path.abspath(to), disk)
        if os.path.isdir(to):
            try:
                locks = held.enter_context(Locks([to], disk))
                locks.made.add(os.path.abspath(to))  # what a killed run has left goes as well
            except LockedError as error:
                raise LockedError(f"{to}: another run writes there; wait until it has finished") from error
            except OSError as error:
                if error.errno not in _NO_LOCKS:
                    raise
                disk.unlink(os.path.join(to, FileKind.LOCK.value))
        yield


class OutputAttempt:
    """One try at piece *number*, in the directory *path*, which is gone afterwards if it is not committed.

    *run*: the hidden directory.  *shared*: files are for all whom the umask lets.  Raises OSError.
    """

    def __init__(self, run: str, number: int, *, shared: bool = True) -> None:
        self._run, self._piece = run, os.path.join(run, f"{_PIECE}{number:06}")
        self.path = os.path.join(run, f"attempt-{os.urandom(8).hex()}")
        self.disk = FencedDisk(self.path, shared=shared)

    @property
    def is_done(self) -> bool:
        """Whether the piece is there already."""
        return os.path.isdir(self._piece)

    def __enter__(self) -> OutputAttempt:
        Disk().make_directory(self.path)
        return self

    def __exit__(self, *_: object) -> None:
        remove_tree(self.path, self.disk)

    def commit(self, written: Sequence[str], facts: Facts) -> None:
        """Let the piece be what *written*, files and directories, and *facts* say; nothing if it is there already."""
        result = os.path.join(self.path, _RESULT)
        write_file(result, [json.dumps(facts).encode()], self.disk)
        self.disk.sync([*written, result, self.path])
        try:
            self.disk.rename(self.path, self._piece)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        self.disk.sync([self._run])


class JobOutput:
    """The directory *to*: it is missing, or empty, or contains the pieces of an earlier run of the same *job*.

    *job* has everything that decides how pieces are cut and written.  The pieces of another job are removed, so the
    caller holds `lock_target`.
    Raises UsageError, OSError.
    """

    def __init__(self, to: str, job: Mapping[str, object], disk: Disk) -> None:
        check_target(to)
        self.to = os.path.abspath(normalized(to))
        self.run = os.path.join(self.to, RUN)
        self._disk = disk
        text = json.dumps(job, sort_keys=True).encode()
        self._check(to, text)
        if not os.path.isdir(self.run):
            make_directories(self.run, disk)
            write_file(os.path.join(self.run, _JOB), [text], disk)

    def _check(self, to: str, job: bytes) -> None:
        """See to it that the hidden directory is this job's, or not there."""
        if not os.path.lexists(self.to):
            return
        others = set(os.listdir(self.to)) - {RUN, FileKind.LOCK.value} if os.path.isdir(self.to) else {to}
        is_finishing = os.path.exists(os.path.join(self.run, _FINISHING))
        if others and not is_finishing:
            raise UsageError(f"{to}: exists, and is not an empty directory")
        if _read(os.path.join(self.run, _JOB)) != job:
            if is_finishing:
                raise UsageError(
                    f"{to}: another run was about to finish here; run its command again, or remove this directory"
                )
            remove_tree(self.run, self._disk)

    @property
    def done(self) -> frozenset[int]:
        """The pieces that are there."""
        names = (name for name in os.listdir(self.run) if name.startswith(_PIECE))
        return frozenset(int(name.removeprefix(_PIECE)) for name in names)

    def piece(self, number: int) -> str:
        """Return the directory of a piece that is there."""
        return os.path.join(self.run, f"{_PIECE}{number:06}")

    def results(self, pieces: int) -> list[Facts]:
        """Return what was said of the pieces 0 up to *pieces*.  Raises KlogError when one is missing."""
        missing = set(range(pieces)) - self.done
        if missing:
            what = f"{len(missing)} of {pieces} pieces are not done"
            raise KlogError(f"{self.to}: {what}; run the same command again to do the rest")
        found: list[Facts] = []
        for number in range(pieces):
            content = _read(os.path.join(self.piece(number), _RESULT))
            found.append(json.loads(content or b"{}"))
        return found

    def finish(self, moves: Iterable[tuple[str, str]], last: Mapping[str, bytes] | None = None) -> None:
        """Give files and directories their names: from a path to a path inside of `to`; *last*: what is written then.

        Can be done again after it was stopped.  Raises OSError, KlogError.
        """
        disk, directories = self._disk, {self.to}
        finishing = os.path.join(self.run, _FINISHING)
        if not os.path.exists(finishing):
            write_file(finishing, [b""], disk)
        disk.sync([finishing, self.run])
        for source, name in moves:
            target = os.path.join(self.to, name)
            directories.update(make_directories(os.path.dirname(target), disk))
            directories.add(os.path.dirname(target))
            if os.path.lexists(source):
                disk.rename(source, target)
            elif not os.path.lexists(target):
                raise KlogError(f"{source}: has vanished; remove {self.to} and begin again")
        disk.sync(sorted(directories | {os.path.dirname(one) for one in directories}))
        for name, content in (last or {}).items():
            self._write_last(name, content)
        disk.sync([self.to])
        self._sweep()

    def _write_last(self, name: str, content: bytes) -> None:
        waiting = os.path.join(self.run, f"last-{name}")
        if os.path.exists(waiting):
            self._disk.unlink(waiting)
        write_file(waiting, [content], self._disk)
        self._disk.sync([waiting])
        self._disk.rename(waiting, os.path.join(self.to, name))

    def _sweep(self) -> None:
        """Remove the hidden directory: under another name, so that tasks that still run find nothing to write into."""
        gone = f"{self.run}.gone"
        self._disk.rename(self.run, gone)
        remove_tree(gone, self._disk)


def _read(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
