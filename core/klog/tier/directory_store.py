"""Objects in a directory: the file system of a test, a mounted share, a copy of a bucket."""

from __future__ import annotations

import os
from collections.abc import Iterator

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile, is_missing, scan_directory
from klog.base.unusable import UNUSABLE
from klog.tier.stores import MissingObjectError, StoredObject


class DirectoryStore:
    """A directory.  A key is a path below it, with `/`; links to directories are not followed."""

    def __init__(self, path: str) -> None:
        self.uri = path

    def objects(self) -> Iterator[StoredObject]:
        """Yield every file below the directory, and what else lies there.  Raises UnreadableError."""
        waiting = [""]
        while waiting:
            folder = waiting.pop()
            try:
                with scan_directory(os.path.join(self.uri, folder)) as entries:
                    for entry in entries:
                        key = f"{folder}{entry.name}"
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(f"{key}/")
                        else:
                            yield _stored(key, entry)
            except OSError as error:
                self._refuse(folder, error)

    def _refuse(self, folder: str, error: OSError) -> None:
        """Raise UnreadableError, unless a broker has deleted the directory meanwhile."""
        path = os.path.join(self.uri, folder)
        if folder and is_missing(path):
            return
        UNUSABLE.refuse(path, error, "list")
        raise UnreadableError(f"{path}: cannot list: {error.strerror}") from error

    def _path(self, key: str) -> str:
        if not key or "\0" in key or any(part in ("", os.curdir, os.pardir) for part in key.split("/")):
            raise MissingObjectError(f"{self.uri}: no object {key!r}")
        return os.path.join(self.uri, key)

    def open(self, key: str, size: int | None = None) -> ReadOnlyFile:
        """Open a file.  Raises MissingObjectError, UnreadableError, NotKafkaError for what is no regular file."""
        path = self._path(key)
        try:
            return ReadOnlyFile(path)
        except UnreadableError as error:
            if isinstance(error.__cause__, FileNotFoundError | NotADirectoryError):
                raise MissingObjectError(f"{path}: no such object") from error
            raise

    def read(self, key: str, most: int) -> bytes:
        """Return the content of a file: see `Store.read`."""
        with self.open(key) as file:
            return file.read(0, most + 1)


def _stored(key: str, entry: os.DirEntry[str]) -> StoredObject:
    try:
        is_file, facts = entry.is_file(), entry.stat()
    except OSError:  # it has vanished, or is a link to nothing or to itself
        return StoredObject(key, None, 0)
    return StoredObject(key, facts.st_size if is_file else None, facts.st_mtime_ns // 1_000_000)
