"""Lists directories without a trace if the system allows that; resolves paths; compares inodes."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from klog.base.unusable import UNUSABLE


class DirectoryListing(NamedTuple):
    """The names in a directory, by kind; a link has the kind of its target.

    *sizes*: of the files whose sizes were requested, in bytes.  *others*: neither regular files nor directories: a
    pipe, a dangling link, a link to itself.
    """

    files: tuple[str, ...]
    directories: tuple[str, ...]
    others: tuple[str, ...]
    sizes: dict[str, int]


def list_directory(path: str, sized: str | None = None) -> DirectoryListing:
    """List a directory; *sized*: the suffix of the files whose sizes are returned as well.  Raises OSError."""
    files: list[str] = []
    directories: list[str] = []
    others: list[str] = []
    sizes: dict[str, int] = {}
    with scan_directory(path) as entries:
        for entry in entries:
            name = entry.name
            try:
                if entry.is_file():
                    files.append(name)
                    if sized is not None and name.endswith(sized):
                        sizes[name] = _size(path, entry)
                elif entry.is_dir():
                    directories.append(name)
                else:
                    others.append(name)
            except OSError as error:  # a link to itself is nothing else
                if error.errno != errno.ELOOP:
                    UNUSABLE.refuse(os.path.join(path, name), error, "look at")
                others.append(name)
    return DirectoryListing(tuple(sorted(files)), tuple(sorted(directories)), tuple(sorted(others)), sizes)


def names_if_there(path: str) -> list[str]:
    """Return the names in a directory; none if there is no such directory.  Raises OSError if it refuses."""
    try:
        return os.listdir(path)
    except (FileNotFoundError, NotADirectoryError):
        return []


@contextmanager
def scan_directory(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
    """List a directory without changing its access time, if the system allows that.  Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags | getattr(os, "O_NOATIME", 0))
    except PermissionError:  # O_NOATIME is for a file's owner only
        descriptor = os.open(path, flags)
    try:
        with os.scandir(descriptor) as entries:
            yield entries
    finally:
        os.close(descriptor)


def _size(path: str, entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except OSError as error:  # if it has vanished, opening it reports that
        UNUSABLE.refuse(os.path.join(path, entry.name), error, "look at")
        return 0


def normalized(path: str) -> str:
    """Return *path*, or its real path if `..` follows a link in it: without `..` the text would lead elsewhere."""
    if os.pardir not in path.split(os.sep):
        return path
    real = os.path.realpath(path)
    return path if os.path.realpath(os.path.abspath(path)) == real else real


def is_missing(path: str) -> bool:
    """Whether there is no such file or directory; a path that the system refuses to look up is not missing."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def inode_of(status: os.stat_result) -> tuple[int, int]:
    """Return the device and the inode of a file, which all its names share."""
    return status.st_dev, status.st_ino
