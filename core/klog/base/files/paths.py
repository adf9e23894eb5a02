"""Paths and inodes: where a path leads, and whether two names are one file."""

from __future__ import annotations

import os


def straight(path: str) -> str:
    """Return *path*, or its real path if `..` follows a link in it: without `..` the text would lead elsewhere."""
    if os.pardir not in path.split(os.sep):
        return path
    real = os.path.realpath(path)
    return path if os.path.realpath(os.path.abspath(path)) == real else real


def is_missing(path: str) -> bool:
    """Whether there is no such file or directory; what the system refuses to tell about is not missing."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def inode_of(status: os.stat_result) -> tuple[int, int]:
    """Return what all names of one file have in common: its device and its inode."""
    return status.st_dev, status.st_ino
