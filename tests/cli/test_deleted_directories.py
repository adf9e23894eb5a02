"""Commands beside a running broker that deletes a partition directory between two looks at it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.data_dir import partition

from tests.conftest import FIXTURES, Ran, writable_copy

DELETED = f"plain-0.{'0' * 32}-delete"
HOLDS = (
    "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.lockf(f, fcntl.LOCK_EX); print(flush=True); sys.stdin.read()"
)
COMMANDS = [["verify"], ["verify", "--deep"], ["timeline"], ["stats"], ["audit"], ["describe"]]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_deleted_directory_is_no_problem(
    command: list[str], klog: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is that of the same log dir without it."""
    disk = writable_copy(FIXTURES / "modern", tmp_path / "disk")
    words = [sys.executable, "-c", HOLDS, str(disk / ".lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        check(command, klog, disk, monkeypatch)
        broker.communicate()


def check(command: list[str], klog: Callable[..., Ran], disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = klog(*command, disk)
    shutil.copytree(disk / "gzip-0", disk / DELETED)
    given = partition.list_broker_files

    def listed(path: str) -> partition.BrokerFiles:
        if os.path.basename(path) == DELETED:
            shutil.rmtree(path, ignore_errors=True)
        return given(path)

    monkeypatch.setattr(partition, "list_broker_files", listed)
    done = klog(*command, disk)
    assert not (disk / DELETED).exists()
    assert (done.exit_code, done.stderr) == (before.exit_code, before.stderr)
