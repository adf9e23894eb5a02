"""The growing files of one partition, written in an order that a kill or a power cut may interrupt anywhere.

A segment is on the disk, with its indexes, before the next one begins.  After a crash only the active segment of a log
can be torn, and only behind the recovery point.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from klog.base.directory import names_if_there
from klog.change.plan.model import TEMPORARY
from klog.data_dir.disk.directory_tree import write_file
from klog.data_dir.disk.disk import Disk
from klog.data_dir.disk.growing_files import GrowingFiles
from klog.formats.names import FileKind, parse_file

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
        file = self._disk.open_end(path) if is_there else self._disk.create(path)
        try:
            if is_there and os.fstat(file.descriptor).st_size != size:
                self._disk.truncate(file, size)
            if content:
                self._disk.write(file, content)
        finally:
            self._disk.close(file)
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
