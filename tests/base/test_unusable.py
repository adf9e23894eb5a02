"""Unusable files: each path is noted once, and forgotten after a plan has replaced it."""

from __future__ import annotations

import errno
import os

import pytest
from klog.base.errors import UnreadableError
from klog.base.unusable import MOST_NAMED, Unusable, Unusables


def _error(number: int) -> OSError:
    return OSError(number, os.strerror(number))


@pytest.fixture
def unusable() -> Unusables:
    return Unusables()


def test_what_is_not_there_is_not_refused(unusable: Unusables) -> None:
    """A running broker removes files; and most files need not be there."""
    for number in (errno.ENOENT, errno.ENOTDIR):
        unusable.refuse("a/log", _error(number), "open")
    assert not unusable
    for number in (errno.EACCES, errno.EIO, errno.ELOOP, errno.EMFILE, errno.EPERM):
        unusable.refuse(f"a/{number}", _error(number), "open")
    assert len(unusable.named()) == 5


def test_a_path_is_named_once_however_it_is_written(unusable: Unusables) -> None:
    unusable.refuse("a/log", _error(errno.EIO), "open")
    unusable.refuse(os.path.abspath("a/log"), _error(errno.EIO), "read at byte 5")
    assert [one.message for one in unusable.named()] == ["a/log: cannot open: Input/output error"]
    unusable.note_output(b"klog: a/log: unreadable\n")
    assert not unusable.unnamed()
    assert unusable.named()


@pytest.mark.parametrize(
    ("said", "is_named"),
    [
        (b"cannot list disk/klog-backup", True),
        (b"disk/klog-backup: cannot list", True),
        (b"see disk/klog-backup.", True),
        (b"backup: disk/klog-backup/20261127-recover-1", False),
        (b"disk/klog-backup-2: cannot list", False),
        (b"disk/klog-backup.old: cannot list", False),
        (b"disk/klog-backup/a, disk/klog-backup\n", True),
    ],
)
def test_a_path_within_a_longer_one_is_not_named(unusable: Unusables, said: bytes, is_named: bool) -> None:
    """A backup's path names no refusal of the directory above it."""
    unusable.refuse("disk/klog-backup", _error(errno.EIO), "list")
    unusable.note_output(said)
    assert bool(unusable.unnamed()) is not is_named


def test_very_many_are_counted(unusable: Unusables) -> None:
    """A disk of another user: no operator reads ten thousand lines."""
    for number in range(MOST_NAMED + 7):
        unusable.refuse(f"a/{number}", _error(errno.EACCES), "open")
    assert (len(unusable.named()), unusable.more, unusable.refusals) == (MOST_NAMED, 7, MOST_NAMED + 7)


def test_a_plan_settles_what_it_replaces_and_what_is_below_its_backup(unusable: Unusables) -> None:
    for path in ("data/a-0/1.index", "backup/staged/a-0/1.index", "data/a-0/2.index", "backup2/x"):
        unusable.refuse(path, _error(errno.EIO), "open")
    unusable.settle("data/a-0/1.index", "backup")
    assert [one.path for one in unusable.named()] == ["data/a-0/2.index", "backup2/x"]


def test_who_restores_is_told(unusable: Unusables) -> None:
    unusable.refuse("before", _error(errno.EIO), "open")
    refusals = unusable.refusals
    unusable.check_read(refusals, "nothing is written")
    unusable.note(Unusable("malformed", "malformed: line 1", is_unreadable=False))
    unusable.check_read(refusals, "nothing is written")
    unusable.refuse("a/log", _error(errno.EACCES), "list")
    with pytest.raises(UnreadableError, match="a/log: cannot list: Permission denied; nothing is written"):
        unusable.check_read(refusals, "nothing is written")
