"""The growing files of one partition, written in an order that a kill or a power cut may interrupt anywhere.

A segment is on the disk, with its indexes, before the next one begins.  After a crash only the active segment of a log
can be torn, and only behind the recovery point.  `CopyDisk` is the shared state of all partitions: files, checkpoints,
and the data for the next flush.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from klog.base.errors import DamagedError, KlogError
from klog.base.read_only import names_if_there
from klog.change.plan.model import TEMPORARY
from klog.change.plan.reporter import Reporter
from klog.data_dir.disk.directory_tree import GrowingFiles, full_disk, is_full, write_file
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.locks import Locks
from klog.data_dir.root_files import RootFiles
from klog.formats.checkpoint import OffsetEntry, offsets_by_partition, write_offsets
from klog.formats.names import ROOT_CHECKPOINTS, FileKind, parse_file
from klog.kernel import Window

_GROWING = (FileKind.INDEX, FileKind.TIME_INDEX)


def write_temporary(path: str, content: bytes, disk: Disk) -> str:
    """Write *content* beside *path*, under a name that brokers take no notice of; return that.  Raises OSError."""
    temporary = f"{path}{TEMPORARY}"
    if os.path.lexists(temporary):
        disk.unlink(temporary)
    return write_file(temporary, [content], disk)


def replace_file(path: str, content: bytes, disk: Disk) -> None:
    """Give a small file this *content*, whole or not at all; its name is on the disk when its directory is synced.

    Raises OSError.
    """
    temporary = write_temporary(path, content, disk)
    disk.sync([temporary])
    disk.rename(temporary, path)


def remove_temporaries(directory: str, disk: Disk) -> None:
    """Remove the temporary files of a killed process in *directory*.  Raises OSError."""
    for name in names_if_there(directory):
        if name.endswith(TEMPORARY):
            disk.unlink(os.path.join(directory, name))


class LiveDirectory:
    """An `AppendTarget`: the existing directory at *path*.

    *log*: the name of the active segment's log, None without one.  *sizes*: the valid bytes of each of its indexes; the
    rest of a file is cut off at the next append.  The content of an index that is `put` is appended to those.  Other
    small files have their new content after `sync`.  *unsynced*: files that are not on the disk; *has_new_names*: the
    directory is not, either.
    """

    def __init__(self, path: str, files: GrowingFiles, disk: Disk, log: str | None, sizes: dict[str, int]) -> None:
        self.path, self._files, self._disk = path, files, disk
        self._log, self._sizes = log, sizes
        self._waiting: dict[str, str] = {}
        self.unsynced: dict[str, None] = {}
        self.has_new_names = False

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}"

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Append to the log; a new *name* begins a new one, when everything else is on the disk."""
        path = self._file(name)
        if name != self._log:
            sync([self], self._disk)
            if self._log is not None:
                self._files.close(self._file(self._log))
            self._files.create(path)
            self._log, self._sizes, self.has_new_names = name, {}, True
        self.unsynced[path] = None
        if len(data):
            self._files.write(path, data)

    def put(self, name: str, content: bytes) -> None:
        """Give a small file this *content*, or append it to the valid part of an index."""
        if parse_file(name).kind in _GROWING:
            self._grow(name, content)
            return
        path = self._file(name)
        temporary = write_temporary(path, content, self._disk)
        self._waiting[temporary] = path
        self.unsynced[temporary] = None

    def _grow(self, name: str, content: bytes) -> None:
        path, size = self._file(name), self._sizes.get(name, 0)
        is_there = os.path.lexists(path)
        if is_there and not content and os.path.getsize(path) == size:
            return
        with self._disk.closing(self._disk.open_end(path) if is_there else self._disk.create(path)) as file:
            if is_there and os.fstat(file.descriptor).st_size != size:
                self._disk.truncate(file, size)
            if content:
                self._disk.write(file, content)
        self._sizes[name] = size + len(content)
        self.unsynced[path] = None
        self.has_new_names |= not is_there

    def remove(self, name: str) -> None:
        """Delete a file, if it exists; return when the deletion is on the disk."""
        path = self._file(name)
        self._files.close(path)
        self.unsynced.pop(path, None)
        if os.path.lexists(path):
            self._disk.unlink(path)
            self._disk.sync([self.path])
        if name == self._log:
            self._log = None

    def name_files(self) -> None:
        """Rename the written files into place; their content is synced."""
        for temporary, path in self._waiting.items():
            self._disk.rename(temporary, path)
            self.has_new_names = True
        self._waiting.clear()
        self.unsynced.clear()

    def close(self) -> None:
        """Close the log."""
        if self._log is not None:
            self._files.close(self._file(self._log))


def sync(directories: Sequence[LiveDirectory], disk: Disk) -> None:
    """Return when everything in *directories* is on the disk, first contents, then names.  Raises OSError."""
    disk.sync([path for one in directories for path in one.unsynced])
    for one in directories:
        one.name_files()
    named = [one for one in directories if one.has_new_names]
    disk.sync([one.path for one in named])
    for one in named:
        one.has_new_names = False


_WINDOW_BYTES: Final = 1 << 20


class Flushable(Protocol):
    """A partition of a copy, as a flush needs it."""

    path: str
    is_closed: bool

    def prepare_flush(self) -> LiveDirectory:
        """Write the state that only memory has; return the files to sync.  Raises OSError."""

    def end_flush(self) -> None:
        """Take note that all of it is on the disk."""

    def prepare_close(self) -> LiveDirectory:
        """Write the files of a clean stop, after a flush; return the files to sync.  Raises OSError."""

    def end_close(self) -> bool:
        """Remove files that a clean stop does not leave; return whether there were any.  Raises OSError."""


class OffsetFiles:
    """The offsets of partitions, by file, topic and number.  Raises DamagedError for a file that a broker refuses."""

    def __init__(self, root: RootFiles, disk: Disk) -> None:
        self._path, self._disk = root.log_dir, disk
        self._offsets: dict[FileKind, dict[tuple[str, int], int]] = {}
        self._written: dict[FileKind, bytes | None] = {}
        self._changed: set[FileKind] = set()
        for kind in ROOT_CHECKPOINTS:
            found = root.file(kind)
            if found is not None and found.malformed is not None:
                path = os.path.join(self._path, kind.value)
                raise DamagedError(f"{path}: {found.malformed}; first: klog recover {self._path}")
            self._offsets[kind] = offsets_by_partition(found) if found is not None else {}
            if found is None:
                self._changed.add(kind)

    def get(self, kind: FileKind, topic: str, number: int) -> int | None:
        """Return an offset, None if there is no line."""
        return self._offsets[kind].get((topic, number))

    def move(self, kind: FileKind, topic: str, number: int, offset: int) -> None:
        """Change an offset."""
        if self._offsets[kind].get((topic, number)) != offset:
            self._offsets[kind][topic, number] = offset
            self._changed.add(kind)

    def write(self) -> None:
        """Write the changed files, and return when they are on the disk.  Raises OSError."""
        changed = [kind for kind in ROOT_CHECKPOINTS if kind in self._changed]
        for kind in changed:
            lines = (OffsetEntry(*key, offset) for key, offset in sorted(self._offsets[kind].items()))
            replace_file(os.path.join(self._path, kind.value), write_offsets(lines), self._disk)
        if changed:
            self._disk.sync([self._path])
        self._changed.clear()


class CopyDisk:
    """The log dir at *path*, under *locks*.

    *root*: its own files as they were read; *offsets*: the checkpoints to write.  *window* is reused by every reader.
    *has_new_directories*: partitions whose names are not on the disk.
    """

    def __init__(self, path: str, disk: Disk, reporter: Reporter, locks: Locks) -> None:
        self.path, self.disk, self.reporter, self.locks = path, disk, reporter, locks
        self.files = GrowingFiles(disk)
        self.window = Window(_WINDOW_BYTES, 1, 1)
        self.has_new_directories = False
        self._changed: dict[Flushable, None] = {}
        self.failure: BaseException | None = None
        self.load()

    def load(self) -> None:
        """Read the log dir's own files.  Raises DamagedError over checkpoints that a broker refuses."""
        self.root = RootFiles(self.path)
        self.offsets = OffsetFiles(self.root, self.disk)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Note that the block was not carried to its end: nothing is written after that.

        Raises OSError if the disk refuses something, and KlogError where an earlier block was interrupted.
        """
        if isinstance(self.failure, OSError):
            raise self.failure
        if self.failure is not None:
            raise KlogError(f"{self.path}: interrupted while it was written; the next run continues")
        try:
            yield
        except KlogError:
            raise
        except BaseException as error:
            # The values in memory may be ahead of those in the files.
            if is_full(error) and error is not self.failure:
                standing = "the data copied so far is complete; make room, and run the command again"
                self.failure = full_disk(error, self.path, self.disk, standing)
                raise self.failure from error
            self.failure = error
            raise

    def take_change(self, partition: Flushable) -> None:
        """Take note that *partition* has something to flush."""
        self._changed[partition] = None

    def flush(self) -> None:
        """Return when all appended batches are on the disk, and the checkpoints include them.  Raises OSError."""
        with self.writing():
            changed = list(self._changed)
            sync([one.prepare_flush() for one in changed], self.disk)
            if self.has_new_directories:
                self.disk.sync([self.path])
                self.has_new_directories = False
            for one in changed:
                one.end_flush()
            self._changed.clear()
            # This comes last: a recovery point beyond the synced data hides damage.
            self.offsets.write()

    def settle(self, partitions: Iterable[Flushable]) -> None:
        """Leave partitions as after a clean stop, all of it on the disk; those without new batches stay untouched.

        Raises OSError.
        """
        self.flush()
        open_still = [one for one in partitions if not one.is_closed]
        with self.writing():
            sync([one.prepare_close() for one in open_still], self.disk)
            self.disk.sync([one.path for one in open_still if one.end_close()])
