"""Nothing is written, touched or locked in a tier, nor in a log dir that is only read beside it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import NoReturn

import pytest

from tests.commands.serve.serving import Serving, Wire
from tests.conftest import Ran
from tests.support.tiers import unpack

Klog = Callable[..., Ran]
WHERE = ("-t", "fine", "-p", "0")
COMMANDS = (
    *(("dump", "-o", "jsonl"), ("dump", "--tier", "remote"), ("records",), ("search", "--key", "key-3"), ("stats",)),
    *(("lookup", *WHERE, "--offset", "5"), ("lookup", *WHERE, "--timestamp", "0"), ("fetch", *WHERE, "--offset", "5")),
    *(("verify", "--deep"), ("space",), ("remote", "ls"), ("remote", "verify", "--deep"), ("remote", "orphans")),
)
Trace = dict[str, tuple[int, ...]]


def trace(*folders: Path) -> tuple[Trace, str]:
    """The inode, mode, size and all times of each file and directory, and the digest of the contents."""
    every = sorted(path for folder in folders for path in (folder, *folder.rglob("*")))
    found, digest = {}, sha256()
    for path in every:
        facts = path.lstat()
        times = facts.st_atime_ns, facts.st_mtime_ns, facts.st_ctime_ns
        found[str(path)] = (facts.st_ino, facts.st_mode, facts.st_size, facts.st_nlink, *times)
    for path in every:
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY | os.O_NOATIME)
            digest.update(os.read(descriptor, path.stat().st_size))
            os.close(descriptor)
    return found, digest.hexdigest()


def refuse(*_: object) -> NoReturn:
    raise AssertionError("a lock was asked for")


@pytest.fixture
def disk(tmp_path: Path) -> tuple[Path, Path]:
    """Directories were listed while they were made: their access times are set once more."""
    data, tier = unpack(tmp_path)
    for path in (data, *data.rglob("*"), tier, *tier.rglob("*")):
        os.utime(path, ns=(10**18, 10**18))
    return data, tier


def test_commands_leave_no_trace(klog: Klog, disk: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr(fcntl, "lockf", refuse)
    before = trace(*disk)
    for words in COMMANDS:
        verb = words[:2] if words[0] == "remote" else words[:1]
        ran = klog(*verb, disk[0], "--remote", disk[1], *words[len(verb) :], "-q")
        assert ran.exit_code in (0, 4), (words, ran.stderr)
        assert trace(*disk) == before, words


def test_a_server_leaves_no_trace(disk: tuple[Path, Path]) -> None:
    before = trace(*disk)
    with Serving(disk[0], "--remote", disk[1]) as server, Wire(server.port) as wire:
        for offset in (0, 50, 99, 100, 109):
            assert wire.fetch("fine", offset)["records"]
        one = {"partitionIndex": 0, "timestamp": 1_750_000_050_000}
        topics = [{"name": "fine", "partitions": [one]}]
        wire.ask("ListOffsets", 9, {"replicaId": -1, "isolationLevel": 1, "topics": topics})
    assert trace(*disk) == before
