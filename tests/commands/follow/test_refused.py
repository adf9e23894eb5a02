"""A copy with an unreadable part: nothing is written to that partition, the others continue."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base.errors import ExitCode

from tests.commands.follow.scripted import ScriptedCluster, log_of, of_fixture
from tests.conftest import Ran
from tests.support.power import tree

Klog = Callable[..., Ran]
TOPICS = {"one": of_fixture("plain-2"), "two": of_fixture("lz4-broker-0")}


@pytest.mark.parametrize(
    "name", ["one-0", "one-0/partition.metadata", "one-0/leader-epoch-checkpoint", "one-0/00000000000000000000.log"]
)
def test_what_cannot_be_read_of_a_copy_is_not_taken_for_empty(
    name: str, klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state_home: Path
) -> None:
    """A new copy would begin in the middle of the old one."""
    copy = tmp_path / "copy"
    with ScriptedCluster({topic: batches[: len(batches) // 2] for topic, batches in TOPICS.items()}) as cluster:
        assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == ExitCode.CLEAN
    before, opened, refused = tree(copy / "one-0"), os.open, str(copy / name)

    def refuse(path: str, flags: int, *more: int, **named: int) -> int:
        if os.fspath(path) == refused and not flags & os.O_ACCMODE:
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return opened(path, flags, *more, **named)

    with ScriptedCluster(TOPICS) as cluster:
        monkeypatch.setattr(os, "open", refuse)
        done = klog("follow", cluster.bootstrap, "--to", copy)
        monkeypatch.undo()
    assert done.exit_code & ExitCode.OPERATIONAL_ERROR, done
    assert refused.encode() in done.stderr, done
    assert tree(copy / "one-0") == before
    assert log_of(copy, "two-0") == b"".join(TOPICS["two"]), done
