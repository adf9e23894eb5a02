"""A disk with unreadable bytes."""

from __future__ import annotations

import errno
import os

import pytest


def spoil(monkeypatch: pytest.MonkeyPatch, *ranges: range, partial: bool = False) -> None:
    """Make byte *ranges* of every file that has a name unreadable for the rest of the test.

    *partial*: a read that begins in front of one returns the bytes before it, as Linux does; else it fails as a whole.
    """
    preadv, pread = os.preadv, os.pread

    def allowed(fd: int, at: int, size: int) -> int:
        if not os.fstat(fd).st_nlink:
            return size
        first = min((bad.start for bad in ranges if bad.start < at + size and bad.stop > at), default=at + size)
        if first >= at + size:
            return size
        if first <= at or not partial:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return first - at

    monkeypatch.setattr(
        os, "preadv", lambda fd, views, at: preadv(fd, [views[0][: allowed(fd, at, len(views[0]))]], at)
    )
    monkeypatch.delattr(os, "copy_file_range", raising=False)  # the system itself would not meet them
    monkeypatch.setattr(os, "pread", lambda fd, size, at: pread(fd, allowed(fd, at, size), at))
