"""The message about a full file system: the log dir, the free space, and the next step."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TypeGuard

from klog.change.plan.staging import device_of, nearest_directory
from klog.data_dir.disk.disk import Disk

_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException | None) -> TypeGuard[OSError]:
    """Whether a file system has refused something for lack of space, and the file is known."""
    return isinstance(error, OSError) and error.errno in _FULL and error.filename is not None


def full_disk(error: OSError, place: str, disk: Disk, standing: str) -> OSError:
    """Return *error* as one that names *place*, the free space there, and the state of the work: *standing*.

    Call this after removing staged files there.  Raises OSError.
    """
    number = error.errno or errno.ENOSPC
    room = ""
    if number == errno.ENOSPC:  # a file system does not report quotas
        room = f", {disk.free_bytes(nearest_directory(os.path.abspath(place)))} bytes are free"
    return OSError(number, f"{os.strerror(number)}{room}; {standing}", place)


@contextmanager
def naming(place: str, disk: Disk, standing: str) -> Iterator[None]:
    """Make the error of a full file system in the block name *place*, as `full_disk` does.  Raises OSError."""
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise full_disk(error, place, disk, standing) from error
        raise


def place_of(error: OSError, directories: Sequence[str | None], log_dirs: Sequence[str]) -> str:
    """Return the log dir that *error* concerns: the file is in it, or in its one of *directories*.

    If that one is on another file system than the log dir, return the existing part of its path.
    """
    path = os.path.abspath(error.filename or log_dirs[0])
    near = nearest_directory(path)
    for directory, log_dir in zip((*directories, *log_dirs), (*log_dirs, *log_dirs), strict=True):
        if directory is not None and os.path.commonpath((path, os.path.abspath(directory))) == os.path.abspath(
            directory
        ):
            return log_dir if device_of(near) == device_of(log_dir) else near
    return near


def plan_disk_full(
    error: OSError, waits: Sequence[str | None], log_dirs: Sequence[str], disk: Disk, is_saved: bool
) -> OSError:
    """Return the error for staged content of a plan that found no space.

    *waits*: the staging directory for each log dir.  *is_saved*: the plan will not be applied.  Raises OSError.
    """
    place = place_of(error, waits, log_dirs)
    other, less = ("--plan", "--plan") if is_saved else ("--backup", "--apply")
    standing = f"nothing was changed; make room, or name another place with {other}"
    return full_disk(error, place, disk, f"{standing}; without {less} klog tells how much is needed")


def disk_refused(error: OSError, backups: Sequence[str], log_dirs: Sequence[str], disk: Disk, standing: str) -> str:
    """Return the message about a refusal of the system while a plan was applied.  Raises OSError."""
    if not is_full(error):
        return f"{error.filename or log_dirs[0]}: {error.strerror or error}; {standing}"
    told = full_disk(error, place_of(error, backups, log_dirs), disk, standing)
    return f"{told.filename}: {told.strerror}"
