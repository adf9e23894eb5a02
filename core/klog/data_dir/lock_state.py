"""Which process holds a log dir: the POSIX lock on `.lock`, which a broker or a repairing klog keeps until it stops."""

from __future__ import annotations

import os
import sys
from typing import NamedTuple

from klog.base.directory import inode_of


class Lock(NamedTuple):
    """Whether another process holds a log dir's `.lock`, as a broker does from start to stop.

    *held*: None when it is unknown; *reason* is then the cause.  *pid* is the holder's if the system reports it, 0 for
    a process in another container.
    """

    held: bool | None
    pid: int | None = None
    reason: str | None = None

    @property
    def is_klog(self) -> bool:
        """Whether the holder is another klog, as far as the system shows: a Python that runs klog."""
        try:
            with open(f"/proc/{self.pid}/cmdline", "rb") as file:
                program, *arguments = os.fsdecode(file.read(1 << 16)).split("\0")
        except OSError:
            return False
        for number, argument in enumerate(arguments[:8]):
            before = arguments[number - 1] if number else ""
            is_script = before != "-c" and os.path.basename(argument) == "klog"
            if is_script or (before == "-m" and argument.startswith("klog")) or (before == "-c" and "klog" in argument):
                return os.path.basename(program).startswith("python")
        return os.path.basename(program).startswith("klog")

    def of(self, log_dir: str, *, with_pid: bool = True) -> str:
        """Return who holds *log_dir*, in words."""
        who = f" (pid {self.pid})" if self.pid and with_pid else ""
        return f"another klog is changing {log_dir}{who}" if self.is_klog else f"a broker is running on {log_dir}{who}"


HELD_HERE: set[tuple[int, int]] = set()
"""The lock files, by device and inode, that this process holds itself; `klog.data_dir.locks` adds and removes them.

It is a property of the process, as the locks are: POSIX drops a lock as soon as its process closes any descriptor of
the file. A caller must first check that a lock is not this process's own.
"""


def lock_state(path: str) -> Lock:
    """Return whether another process holds a POSIX lock on the file at *path*, as a JVM's FileLock is one."""
    try:
        if HELD_HERE and inode_of(os.stat(path)) in HELD_HERE:
            return Lock(False)
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except FileNotFoundError:
        return Lock(False)
    except OSError as error:
        return Lock(None, reason=f"{path}: {error.strerror}")
    try:
        return lock_holder(descriptor)
    except OSError as error:
        return Lock(None, reason=f"{path}: {error.strerror}")
    finally:
        os.close(descriptor)


def lock_holder(descriptor: int) -> Lock:
    """Return whether another process holds a POSIX lock on an open file.  Raises OSError."""
    import fcntl
    import struct

    # struct flock: Linux has type, whence, start, length, pid; the BSDs and macOS start, length, pid, type, whence.
    if sys.platform == "linux" and sys.maxsize > 2**32:
        layout, order = "hhqqi4x", (0, 4)
    elif sys.platform == "darwin":
        layout, order = "qqihh", (3, 2)
    else:
        return Lock(None, reason=f"locks are not looked at on {sys.platform}")
    question = [0] * 5
    question[order[0]] = fcntl.F_WRLCK
    answer = struct.unpack(layout, fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(layout, *question)))
    held = answer[order[0]] != fcntl.F_UNLCK
    return Lock(held, answer[order[1]] if held else None)
