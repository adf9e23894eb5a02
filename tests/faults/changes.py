"""The commands that change log dirs, each with its input."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from klog.base.errors import ExitCode

from tests.commands.adopt.disks import foreign, home
from tests.commands.recover.test_power import damaged
from tests.commands.replicas.test_only_broker import Disks
from tests.conftest import FIXTURES, writable_copy
from tests.support import tiers

NOW = "1750000000000"
VOTERS = "1@one:9093,2@two:9093,3@three:9093"
OFFSETS = ("data/plain-1", "--to-offset", "20", "--now", NOW)


@dataclass(frozen=True)
class Change:
    """A command that changes log dirs.

    *prepare* makes its input in a folder.  *words*: as typed in that folder; `{plan}`: the one that *prepare* has
    applied.  *log_dirs*: where something may change.
    """

    prepare: Callable[[Path], object]
    words: tuple[str, ...]
    log_dirs: tuple[str, ...] = ("data",)


_FROZEN = f"import time; time.time = lambda: {int(NOW) / 1000}; "
_MAIN = "from klog_cli.app import main; raise SystemExit(main())"
_SECONDS = 60
"""The time after which a command is treated as hung."""


def klog(
    folder: Path, *words: str, strace: tuple[str, ...] = (), frozen: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run a command in *folder*, with a home of its own.  *frozen*: the clock is stopped, all runs do the same."""
    environment = {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "PYTHONUTF8": "1"}
    command = [*strace, sys.executable, "-c", (_FROZEN if frozen else "") + _MAIN, *words]
    return subprocess.run(
        command, cwd=folder, env=environment, text=True, capture_output=True, timeout=_SECONDS, check=False
    )


def modern(folder: Path) -> Path:
    return writable_copy(FIXTURES / "modern", folder / "data")


def with_records(folder: Path) -> None:
    """A log dir, and a file of records."""
    lines = (f'{{"topic":"plain","partition":1,"key":"k{n}","value":"v{n}"}}\n' for n in range(300))
    (folder / "records.jsonl").write_text("".join(lines))
    modern(folder)


def killed(folder: Path) -> None:
    """A log dir whose broker was killed."""
    data = writable_copy(FIXTURES / "crash/torn-in-batch", folder / "data")
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)


def wreck(folder: Path) -> None:
    """A log dir in which a repair has everything to do."""
    damaged(folder).rename(folder / "data")


def compactable(folder: Path) -> Path:
    return writable_copy(FIXTURES / "compaction/before", folder / "data")


def truncated(folder: Path) -> None:
    """A log dir whose partition was truncated."""
    (modern(folder) / ".lock").touch()
    assert klog(folder, "truncate", *OFFSETS, "--apply").returncode == ExitCode.CLEAN


def planned(folder: Path) -> None:
    """A log dir, and a plan for it."""
    wreck(folder)
    done = klog(folder, "recover", "data", "--salvage", "--now", NOW, "--save-plan", "plan.json")
    assert done.returncode == ExitCode.PROBLEMS_LEFT, done


def deleted(folder: Path) -> None:
    """A log dir that lacks partitions, and the disk of another cluster that has them."""
    shutil.rmtree(home(folder / "data", "trimmed-0") / "trimmed-0")
    foreign(folder / "other")


def replicas(folder: Path) -> None:
    """The disks of a cluster whose copies differ."""
    for node in (1, 2, 3):
        writable_copy(FIXTURES / f"replicas/split/broker-{node}", folder / f"broker-{node}/data")
    writable_copy(FIXTURES / "replicas/split/controller-4", folder / "controller-4/data")


def quorum(folder: Path) -> None:
    """The disks of a quorum."""
    for node in (1, 2, 3):
        writable_copy(FIXTURES / f"replicas/quorum/broker-{node}", folder / f"broker-{node}/data")


def two_brokers(folder: Path) -> None:
    """Two brokers, the first of which lacks a partition."""
    Disks(folder, 30, inside="data")


def tiered(folder: Path) -> None:
    """A log dir that lost a local log, and its tier, with the objects of a deleted topic."""
    data, _ = tiers.unpack(folder)
    shutil.rmtree(data / "fine-0")


def _disks(*nodes: str) -> tuple[str, ...]:
    return tuple(f"{node}/data" for node in nodes)


_BROKERS = _disks("broker-1", "broker-2", "broker-3")

CHANGES = {
    "recover": Change(wreck, ("recover", "data", "--salvage", "--now", NOW, "--apply")),
    "mark-clean": Change(killed, ("recover", "data", "--mark-clean", "--now", NOW, "--apply")),
    "truncate": Change(modern, ("truncate", *OFFSETS, "--apply")),
    "compact": Change(
        compactable, ("compact", "data", "--topic", "grouping", "--policy", "compact", "--now", NOW, "--apply")
    ),
    "write": Change(
        with_records, ("write", "records.jsonl", "--to", "data", "--topic", "plain", "--now", NOW, "--apply")
    ),
    "apply": Change(planned, ("apply", "plan.json")),
    "undo": Change(truncated, ("undo", "{plan}", "--apply")),
    "adopt": Change(deleted, ("adopt", "other/tx-0", "--to", "data", "--now", NOW, "--apply")),
    "remote-attach": Change(
        tiered, ("remote", "attach", "--remote", "tier", "--to", "data", "--now", NOW, "--apply"), ("data",)
    ),
    "replicas-plan": Change(
        replicas,
        ("replicas", "plan", *_BROKERS, *_disks("controller-4"), "--keep", "newest", "--apply"),
        _BROKERS,
    ),
    "metadata-plan": Change(quorum, ("metadata", "plan", *_BROKERS, "--voters", VOTERS, "--apply"), _BROKERS),
    "only-broker": Change(
        two_brokers,
        ("metadata", "plan", *_disks("broker-1", "broker-2"), "--only-broker", "1", "--apply"),
        _disks("broker-1", "broker-2"),
    ),
}
