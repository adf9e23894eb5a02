"""Writes a new partition directory, file by file."""

from __future__ import annotations

import os

from klog.data_dir.disk.directory_tree import write_file
from klog.data_dir.disk.disk import Disk
from klog.data_dir.disk.growing_files import GrowingFiles


class NewDirectory:
    """An `AppendTarget`: the directory at *path*, which it makes.

    *files* has the logs of all directories that are written side by side.  *written*: the paths to sync in the end.
    """

    def __init__(self, path: str, files: GrowingFiles, disk: Disk) -> None:
        self._path, self._files, self._disk = path, files, disk
        self._log = ""
        disk.make_directory(path)
        self.written = [path]

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Append to a log; another name than before ends the log before."""
        path = os.path.join(self._path, name)
        if path != self._log:
            self._files.close(self._log)
            self._files.create(path)
            self._log = path
            self.written.append(path)
        if len(data):
            self._files.write(path, data)

    def put(self, name: str, content: bytes) -> None:
        """Make a small file."""
        self.written.append(write_file(os.path.join(self._path, name), [content], self._disk))

    def remove(self, name: str) -> None:
        """Delete a file: an appender to a new directory never does."""
        raise AssertionError(f"{name}: a new directory has no empty segment")
