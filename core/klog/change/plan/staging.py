"""Stages new content until it is renamed into place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

from klog.change.plan.model import Digest, FileState, file_state, state_read
from klog.data_dir.disk.directory_tree import (
    GrowingFiles,
    in_pieces,
    link_or_copy,
    make_directories,
    remove_emptied,
    remove_made,
    remove_tree,
)
from klog.data_dir.disk.disk_changes import Disk, OpenFile

ROUNDS = ".rounds"
"""Suffix of a staging directory's name: that directory has content that only the next round of a compaction reads."""

_STRETCH = 8 << 20
"""The number of bytes after which the system is asked to start writing them to the disk."""


class Staging:
    """The place of new content: *directory*, made when it is needed; None when only digests are needed.

    *announce* is called before anything is stored: the leftovers of a killed process can then be recognised.
    *is_urgent*: it will be put in place at once.  *made*: the directories down to it that did not exist before.
    *known*: the stored files, by inode, with the digest of the written bytes, so that none are read again.  Threads
    may share one if they use different names.
    """

    def __init__(
        self, directory: str | None, disk: Disk, announce: Callable[[], None] = lambda: None, is_urgent: bool = False
    ) -> None:
        self.directory = directory
        self.is_urgent = is_urgent
        self._disk = disk
        self._announce = announce
        self.made: list[str] = []
        self.known: dict[tuple[int, int], FileState] = {}
        self._stored: set[str] | None = None
        self._directories = set[str]()

    def beside(self, directory: str) -> Staging:
        """Return another place, announced as this one is."""
        return Staging(directory, self._disk, self._announce)

    def begin(self, name: str, files: GrowingFiles) -> str | None:
        """Make the file *name* among *files*, over an existing one; return its path, None if none is needed.

        Raises OSError.
        """
        if self.directory is None:
            return None
        path = self._make_way(self.directory, name)
        files.create(path)
        return path

    def store(self, name: str, content: Iterable[bytes | bytearray | memoryview]) -> tuple[int, str]:
        """Stream *content* into the file *name*, over an existing one; return its size and its digest.

        Raises OSError; a partly written file is removed.
        """
        if self.directory is None:
            digest = Digest()
            for piece in in_pieces(content):
                digest.update(piece)
            return digest.size, digest.text()
        with self._disk.whole_file(self._make_way(self.directory, name)) as file:
            digest = self._write(file, content)
        state = self.know(name, digest)
        return (digest.size, digest.text()) if state is None else (state.size, state.digest)

    def share(self, name: str, path: str) -> tuple[int, str] | None:
        """Let the file *name* share the blocks of the one at *path*; return its size and its digest.

        None, without a file, if the file system cannot, or only digests are needed.  Raises OSError, UnreadableError.
        """
        if self.directory is None:
            return None
        target = self._make_way(self.directory, name)
        with self._disk.whole_file(target) as file:
            is_shared = self._disk.share(path, file)
        if not is_shared:
            self.drop(name)
        state = file_state(target) if is_shared else None
        return state and self._know(target, state).content

    def know(self, name: str, digest: Digest) -> FileState | None:
        """Note that all bytes of the file *name* were added to *digest*; return its state, None if it has others.

        Raises StaleError, UnreadableError.
        """
        if self.directory is None:
            return None
        path = os.path.join(self.directory, name)
        state = state_read(path, digest)
        return state and self._know(path, state)

    def _know(self, path: str, state: FileState) -> FileState:
        status = os.lstat(path)
        self.known[status.st_dev, status.st_ino] = state
        return state

    def _make_way(self, directory: str, name: str) -> str:
        """Return the path for the new file *name*; it does not exist, but its directory does."""
        path = os.path.join(directory, name)
        if os.path.dirname(path) not in self._directories:
            self._begin(directory)
            make_directories(os.path.dirname(path), self._disk)
            self._directories.add(os.path.dirname(path))
        self.drop(name)
        if self._stored is not None:
            self._stored.add(name)
        return path

    def _begin(self, directory: str) -> None:
        """Make the directory; one that existed before may have files of others."""
        self._announce()
        if os.path.isdir(directory):
            if directory not in self.made and self._stored is None:
                self._stored = set()
            return
        self.made += make_directories(directory, self._disk)

    def link(self, name: str, other: str) -> None:
        """Add the name *other* to the file stored as *name*, over an existing one: a second name, or else a copy."""
        if self.directory is None:
            return
        source, target = (os.path.join(self.directory, one) for one in (name, other))
        self.drop(other)
        if self._stored is not None:
            self._stored.add(other)
        link_or_copy(source, target, disk=self._disk)

    def _write(self, file: OpenFile, content: Iterable[bytes | bytearray | memoryview]) -> Digest:
        digest, begun = Digest(), 0
        for piece in in_pieces(content):
            digest.update(piece)
            self._disk.write(file, piece)
            if self.is_urgent and digest.size - begun >= _STRETCH:
                self._disk.begin_sync(file, begun, digest.size - begun)
                begun = digest.size
        return digest

    def drop(self, name: str) -> None:
        """Remove the file stored as *name*, if there is one."""
        if self.directory is None:
            return
        path = os.path.join(self.directory, name)
        if os.path.lexists(path):
            self._disk.unlink(path)

    def discard(self) -> None:
        """Remove all stored files, and the directories that were made for them: the plan will not be applied."""
        if self.directory is None:
            return
        if self.directory in self.made:
            remove_tree(self.directory, self._disk)
        else:
            remove_emptied(self.directory, self._stored or (), self._disk)
        remove_made(self.made, self._disk)
