"""Repairs and compactions as processes, killed as they enter each system call that changes anything, then run again."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Ran, run_klog, writable_copy
from tests.support.counts import count
from tests.support.power import tree

CALLS = (
    *("rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "rmdir", "mkdir", "mkdirat"),
    *("write", "pwrite64", "ftruncate", "truncate", "fallocate", "fsync", "fdatasync", "syncfs"),
    *("fchmod", "fchown", "utimensat"),
)
NOW = "--now=2026-11-21T06:00:00Z"
REPAIRS = (
    ("crash/torn-in-batch", "recover"),
    ("crash/flip-middle", "recover", "--salvage"),
    ("crash/flip-middle", "recover", "--like-broker"),
    # A map for eight keys is full several times over, so that there are files which only the next round reads.
    ("compaction/before", "compact", "--policy=compact", "--segment-size=8700", "--map-memory=240", "--topic=tx-later"),
)


def may_trace() -> bool:
    """Whether system calls of other processes may be followed here."""
    return (
        shutil.which("strace") is not None
        and not subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode
    )


def klog(folder: Path, *words: str, strace: tuple[str, ...] = ()) -> Ran:
    """Run the command line in *folder*, below *strace* as a process of its own."""
    if not strace:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(folder)
            patch.setenv("XDG_STATE_HOME", str(folder / "state"))
            return run_klog(*words)
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_STATE_HOME": str(folder / "state"),
    }
    command = [*strace, sys.executable, "-m", "klog_cli.app", *words]
    done = subprocess.run(command, capture_output=True, cwd=folder, env=environment, check=False, timeout=120)
    return Ran(done.stdout, done.stderr, done.returncode)


def repair(folder: Path, words: tuple[str, ...], strace: tuple[str, ...] = ()) -> Ran:
    return klog(folder, *words, "data", NOW, "--apply", "--output", "json", strace=strace)


def taken_back(folder: Path) -> None:
    """Undo every plan that has been applied, the last one first."""
    while True:
        plans = json.loads(klog(folder, "plans", "data", "--output", "json").stdout)["plans"]
        applied = [plan for plan in plans if plan["state"] == "applied" and plan["undoes"] is None]
        if not applied:
            return
        done = klog(folder, "undo", applied[-1]["backup"], "--apply")
        assert done.exit_code == 0, done


def content(folder: Path, *, times: bool = True) -> dict[str, object]:
    """Return the compared content of the log dir; its lock file is not compared.  *times*: of directories too."""
    found = tree(folder / "data", directory_times=times)
    return {name: facts for name, facts in found.items() if name not in (".", ".lock")}


def fresh(folder: Path, image: str) -> Path:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    data = writable_copy(FIXTURES / image, folder / "data")
    checkpoint = data / "cleaner-offset-checkpoint"
    if image.startswith("compaction") and not checkpoint.exists():
        checkpoint.write_text("0\n0\n")
        os.utime(checkpoint, (0, 0))  # a new one would be of another time in each run
    return folder


def kills(folder: Path, image: str, words: tuple[str, ...]) -> list[tuple[str, int]]:
    """Return every state-changing call of an undisturbed run: its name, and the how-manieth of that name it is.

    If calls cannot be followed: moments of a run, in ms, without a name.
    """
    if not may_trace():
        return [("", moment) for moment in range(20, 700, 3)]
    trace = folder.parent / "trace"
    done = repair(fresh(folder, image), words, ("strace", "-f", "-o", str(trace), "-e", f"trace={','.join(CALLS)}"))
    assert done.exit_code in (0, 1, 5), done
    counted = Counter(re.findall(r"^\d+ +(\w+)\(", trace.read_text(errors="replace"), re.MULTILINE))
    return [(call, at) for call, most in sorted(counted.items()) for at in range(1, most + 1)]


@pytest.mark.parametrize("number", range(len(REPAIRS)))
def test_a_killed_repair_is_finished_by_running_it_again(tmp_path: Path, number: int) -> None:
    """A sample of the calls; all of them below.  The result is the planned one, and can be undone."""
    (image, *words) = REPAIRS[number]
    every = kills(tmp_path / "run", image, tuple(words))
    assert len(every) > 60
    _kill_at(tmp_path / "run", image, tuple(words), random.Random(number).sample(every, 4))


@pytest.mark.long
@pytest.mark.parametrize("number", range(len(REPAIRS)))
def test_killed_at_every_call(tmp_path: Path, number: int) -> None:
    (image, *words) = REPAIRS[number]
    _kill_at(tmp_path / "run", image, tuple(words), kills(tmp_path / "run", image, tuple(words)))


def _killer(call: str, at: int) -> tuple[str, ...]:
    """Return the command that runs another and kills it at a call, or at a moment."""
    if not call:
        return ("timeout", "--signal=KILL", f"{at / 1000:.3f}")
    return ("strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", f"inject={call}:signal=KILL:when={at}")


def _kill_at(folder: Path, image: str, words: tuple[str, ...], places: list[tuple[str, int]]) -> None:
    fresh(folder, image)
    repair(folder, words)
    wanted = content(folder, times=False)
    for call, at in places:
        count("kills")
        original = content(fresh(folder, image))
        repair(folder, words, _killer(call, at))
        plans = json.loads(klog(folder, "plans", "data", "--output", "json").stdout)["plans"]
        states = {"being planned", "not begun", "half done", "applied"}
        assert [plan["state"] for plan in plans] in ([], *([state] for state in states)), (call, at, plans)
        again = repair(folder, words)
        assert again.exit_code & 8 == 0, (call, at, again)
        assert content(folder, times=False) == wanted, (call, at)
        taken_back(folder)
        assert content(folder) == original, (call, at)
