"""A directory that appears whole: it is built under a hidden name, and then renamed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from klog.base.errors import UsageError
from klog.base.read_only import normalized
from klog.data_dir.disk.directory_tree import make_directories, naming, remove_made, remove_tree
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.disk.refused_outputs import check_directory
from klog.data_dir.locks import Locks
from klog.formats.names import FileKind


def is_new(path: str) -> bool:
    """Whether a directory would be made at *path*: there is nothing, or an empty directory."""
    return not os.path.lexists(path) or (os.path.isdir(path) and not os.listdir(path))


@contextmanager
def whole_directory(path: str, disk: Disk, standing: str) -> Iterator[str]:
    """Yield a hidden directory, which gets the name *path* when the block ends; nothing remains if the block raises.

    The block syncs the files that it writes there.  Leftovers of a killed run are removed.  *standing*: the end of the
    message about a full disk.  Raises UsageError for *path* of `--to`, LockedError if another klog writes there.
    """
    check_directory(path)
    path = os.path.abspath(normalized(path))
    if not is_new(path):
        raise UsageError(f"--to {path}: exists, and is not an empty directory")
    with naming(path, disk, standing):
        yield from _built(path, disk)


def _built(path: str, disk: Disk) -> Iterator[str]:
    is_mount = os.path.ismount(path)
    above = path if is_mount else os.path.dirname(path)
    made = make_directories(above, disk)
    building = os.path.join(above, f".{os.path.basename(path)}.klog-write")
    is_whole = False
    try:
        if not os.path.isdir(building):
            disk.make_directory(building)
        with Locks([building], disk):
            _clear(building, disk)
            try:
                yield building
                is_whole = True
            finally:
                if not is_whole:
                    _clear(building, disk)
        if is_mount:
            _move_up(building, path, disk)
        else:
            _rename(building, path, disk)
        disk.sync([above, *map(os.path.dirname, reversed(made))])
    finally:
        if not is_whole and os.path.isdir(building) and not os.listdir(building):
            disk.remove_directory(building)
            remove_made(made, disk)


def _rename(building: str, path: str, disk: Disk) -> None:
    """Rename the directory into place; an empty one that is there is replaced, and keeps its mode and owner."""
    if os.path.isdir(path):
        disk.make_like(building, path)
        disk.remove_directory(path)
    disk.rename(building, path)


def _move_up(building: str, path: str, disk: Disk) -> None:
    """Move all files to *path*, a mount point, which cannot be renamed; a broker starts on none without the last."""
    for name in sorted(os.listdir(building), key=lambda name: (name == FileKind.META_PROPERTIES.value, name)):
        disk.rename(os.path.join(building, name), os.path.join(path, name))
    disk.remove_directory(building)


def _clear(directory: str, disk: Disk) -> None:
    """Remove all but the lock."""
    for name in os.listdir(directory):
        path = os.path.join(directory, name)
        if os.path.isdir(path):
            remove_tree(path, disk)
        elif name != FileKind.LOCK.value:
            disk.unlink(path)
