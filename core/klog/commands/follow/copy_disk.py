"""The shared state of a copy's partitions: its files, its checkpoints, and the data for the next flush."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from klog.base.errors import DamagedError, KlogError
from klog.change.plan.session import Reporter
from klog.commands.follow.live_directory import LiveDirectory, replace_file, sync
from klog.data_dir.disk.directory_tree import full_disk, is_full
from klog.data_dir.disk.disk import Disk
from klog.data_dir.disk.growing_files import GrowingFiles
from klog.data_dir.locks import Locks
from klog.data_dir.root_files import RootFiles
from klog.formats.checkpoint import OffsetEntry, offsets_by_partition, write_offsets
from klog.formats.names import ROOT_CHECKPOINTS, FileKind
from klog.kernel import Window

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
            raise KlogError(f"{self.path}: interrupted while it was written; the next run goes on")
        try:
            yield
        except KlogError:
            raise
        except BaseException as error:
            # The values in memory may be ahead of those in the files.
            if is_full(error) and error is not self.failure:
                standing = "what was copied until then is whole; make room, and the next run goes on"
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
