"""Each call that klog makes on a disk fails in its turn: the kernel's own answers, put in by strace, nothing of klog's.

A command that changes something is run once to see its calls, then again and again on a fresh copy, with one call that
fails.  Whatever it is: an exit code of the table, one line, and every byte is there; the command or its undo completes.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from klog.errors import ExitCode
from klog.plan.backups import plans_of, unfinished

from tests.conftest import FIXTURES, writable_copy
from tests.recover.test_power import damaged
from tests.support.power import copy_of, same, tree

pytestmark = pytest.mark.strace

CALLS = ("openat", "pwrite64", "write", "fsync", "fdatasync", "syncfs", "rename", "link", "linkat", "unlink")
MORE_CALLS = ("ftruncate", "fallocate", "mkdir", "rmdir", "copy_file_range", "sendfile", "fchmod", "utimensat")
ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EINTR")
NOW = "1750000000000"
SECONDS = 60
"""After which a command is taken for hung."""


@dataclass(frozen=True)
class Change:
    """A command that changes a log dir.  *prepare* makes what it is run on, in a folder; `data` is the log dir."""

    prepare: Callable[[Path], Path]
    words: tuple[str, ...]


def modern(folder: Path) -> Path:
    """A log dir with a file of records beside it."""
    return writable_copy(FIXTURES / "modern", folder / "original")


def written(folder: Path) -> Path:
    (folder / "records.jsonl").write_text(
        "".join(f'{{"topic":"plain","partition":1,"key":"k{n}","value":"v{n}"}}\n' for n in range(300))
    )
    return modern(folder)


def killed(folder: Path) -> Path:
    """A log dir whose broker was killed."""
    data = writable_copy(FIXTURES / "crash/torn-in-batch", folder / "original")
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)
    return data


CHANGES = {
    "recover": Change(damaged, ("recover", "data", "--salvage", "--now", NOW)),
    "mark-clean": Change(killed, ("recover", "data", "--mark-clean", "--now", NOW)),
    "truncate": Change(modern, ("truncate", "data/plain-1", "--to-offset", "20")),
    "compact": Change(
        lambda folder: writable_copy(FIXTURES / "compaction/before", folder / "original"),
        ("compact", "data", "--topic", "grouping", "--policy", "compact", "--now", NOW),
    ),
    "write": Change(written, ("write", "../records.jsonl", "--to", "data", "--topic", "plain", "--now", NOW)),
}


def klog(folder: Path, *words: str, strace: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a command in *folder*, with a home of its own."""
    environment = {**os.environ, "HOME": str(folder), "XDG_STATE_HOME": str(folder / "state"), "PYTHONUTF8": "1"}
    command = [sys.executable, "-c", "from klog_cli.app import main; raise SystemExit(main())", *words]
    return subprocess.run(
        [*strace, *command], cwd=folder, env=environment, text=True, capture_output=True, timeout=SECONDS, check=False
    )


def traced(*more: str) -> tuple[str, ...]:
    return ("strace", "-f", "-qq", "-y", "--seccomp-bpf", "-e", f"trace={','.join(CALLS + MORE_CALLS)}", *more)


def calls_of(folder: Path, words: tuple[str, ...]) -> list[tuple[str, int]]:
    """Run a command; return its calls that name something below *folder*, each with its number among its kind."""
    log = folder.parent / "calls"
    done = klog(folder, *words, strace=traced("-o", str(log)))
    assert done.returncode in (ExitCode.CLEAN, ExitCode.CORRECTED), done.stderr
    counts: Counter[tuple[str, str]] = Counter()
    found = []
    for line in log.read_text(errors="replace").splitlines():
        if (call := re.match(r"(\d+) +(\w+)\((.*)", line)) is None:
            continue
        process, name, rest = call.groups()
        counts[process, name] += 1
        if f"{folder}/" in rest and "O_RDONLY|O_DIRECTORY" not in rest:
            found.append((name, counts[process, name]))
    return found


def contents(data: Path) -> dict[str, tuple[bytes | None, int]]:
    """Return the content and the mode of every file and directory, without the lock, which klog makes and keeps."""
    return {name: (content, meta[0]) for name, (content, meta) in tree(data).items() if name != ".lock"}


class Faults:
    """Runs a change once as it is, and then as often as calls are to fail."""

    def __init__(self, change: Change, tmp_path: Path) -> None:
        self._words = (*change.words, "--apply")
        self._original, self._log, self._run = change.prepare(tmp_path), tmp_path / "log", tmp_path / "run"
        self._saved = tmp_path / "saved"
        self._data = self._fresh()
        self._before = tree(self._data)
        self._clean = contents(self._data)
        calls = calls_of(self._run, self._words)
        self._after = contents(self._data)
        assert self._after != self._clean
        self.cases = [(name, number, error) for name, number in dict.fromkeys(calls) for error in ERRORS]

    def _fresh(self) -> Path:
        data = copy_of(self._original, self._run)
        for beside in self._original.parent.glob("*.jsonl"):
            shutil.copy(beside, self._run)
        return data

    def _lines(self) -> list[str]:
        return self._log.read_text(errors="replace").splitlines()

    def fail(self, name: str, number: int, error: str) -> str:
        """Let one call fail; return what came of it.  Whatever it is, the change can be completed and taken back."""
        self._fresh()
        inject = f"inject={name}:error={error}:when={number}"
        done = klog(self._run, *self._words, strace=traced("-e", inject, "-o", str(self._log)))
        where = (name, number, error, done)
        assert any("(INJECTED)" in line for line in self._lines()), where
        assert "Traceback" not in done.stderr, where
        found = contents(self._data)
        is_read = "O_RDONLY" in next(line for line in self._lines() if "(INJECTED)" in line)
        if done.returncode in (ExitCode.CLEAN, ExitCode.CORRECTED):
            # A file that cannot be read is one more that `klog recover` rebuilds.
            assert found == self._after or is_read, where
            outcome = "done all the same"
        else:
            assert done.returncode & (ExitCode.OPERATIONAL_ERROR | ExitCode.PROBLEMS_LEFT), where
            assert done.stderr.count("klog: error") <= 1, where
            assert os.strerror(getattr(errno, error)) in done.stderr + done.stdout, where
            if unfinished(str(self._data)):
                outcome = "unfinished"
            elif found in (self._clean, self._after):
                outcome = "done" if found == self._after else "nothing done"
            else:
                outcome = "done in part"
                assert is_read, where
        self._check_ways_out(outcome, where)
        return outcome

    def _check_ways_out(self, outcome: str, where: tuple[object, ...]) -> None:
        subprocess.run(["cp", "-a", self._run, self._saved], check=True)
        plans = [kept.plan.id for kept in plans_of(str(self._data))] if outcome != "nothing done" else []
        for plan in plans:
            undone = klog(self._run, "undo", plan, "--apply")
            assert undone.returncode in (ExitCode.CLEAN, ExitCode.CORRECTED), (where, undone)
        assert same(self._data, self._before), where
        shutil.rmtree(self._run)
        self._saved.rename(self._run)
        if outcome == "nothing done":
            again = klog(self._run, *self._words)
        elif outcome == "unfinished":
            again = klog(self._run, "apply", plans[0])
        else:
            return
        assert again.returncode in (ExitCode.CLEAN, ExitCode.CORRECTED), (where, again)
        assert contents(self._data) == self._after, where


def _sampled(cases: list[tuple[str, int, str]], count: int) -> list[tuple[str, int, str]]:
    """Return some of the cases, each kind of call and each error as often as the other."""
    return Random(7).sample(cases, min(count, len(cases)))


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_call_that_fails_loses_nothing(change: Change, tmp_path: Path) -> None:
    faults = Faults(change, tmp_path)
    assert len(faults.cases) > 100
    assert {faults.fail(*case) for case in _sampled(faults.cases, 5)}


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_call_that_fails_loses_nothing(change: Change, tmp_path: Path) -> None:
    faults = Faults(change, tmp_path)
    found = Counter(faults.fail(*case) for case in faults.cases)
    assert min(found.get("nothing done", 0), found.get("unfinished", 0)) > 0, found
