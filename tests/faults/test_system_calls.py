"""Each call that klog makes on a disk fails in its turn: the kernel's own answers, put in by strace, nothing of klog's.

A command that changes something is run once to see its calls, then again and again on a fresh copy, with one call that
fails.  Whatever it is: an exit code of the table, one line, and every byte is there; the command or its undo completes.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest
from klog.base.errors import ExitCode
from klog.change.plan.find_plans import plans_of

from tests.faults.changes import CHANGES, Change, klog
from tests.support.counts import count
from tests.support.power import Tree, tree, unfinished

pytestmark = pytest.mark.strace

CALLS = ("openat", "pwrite64", "write", "fsync", "fdatasync", "syncfs", "rename", "link", "linkat", "unlink")
MORE_CALLS = ("ftruncate", "mkdir", "rmdir", "copy_file_range", "sendfile", "chmod", "fchmod", "utimensat")
NEVER_MADE = ("truncate", "renameat", "renameat2", "unlinkat", "mkdirat", "symlink", "symlinkat", "mknodat", "creat")
NEVER_MADE += ("writev", "pwritev", "pwritev2", "splice", "fchmodat", "setxattr", "fsetxattr", "futimesat", "fallocate")
"""Calls that change a file system as well, and that no command makes: none of them has to fail."""
ERRORS = ("EIO", "ENOSPC", "EDQUOT", "EROFS", "EINTR")
DONE = (ExitCode.CLEAN, ExitCode.CORRECTED)
_NEW_TIME = "the directory has a new modification time"
"""The message of klog, with exit code 8, if it could not restore a log dir's time."""
Case = tuple[str, int, str]
"""A call, which of its name it is, and the error."""
Where = tuple[str, int, str, list[str], "subprocess.CompletedProcess[str]"]


_BY_HAND = ("-e", "inject=copy_file_range:error=ENOSYS")
"""A system without copies of its own: klog writes them."""

_USUAL = {"openat", "write", "fsync", "rename", "unlink"}
_ALL = {*_USUAL, "linkat", "ftruncate"}
MADE: dict[str, set[str]] = {
    "recover": _ALL,
    "mark-clean": _ALL,
    "truncate": _ALL,
    "compact": _USUAL | {"linkat"},
    "write": _ALL,
    "apply": _ALL,
    "undo": _ALL,
    "adopt": _USUAL,
    "remote-attach": _USUAL | {"linkat"},
    "replicas-plan": _ALL,
    "metadata-plan": _ALL - {"ftruncate"},
    "only-broker": _USUAL,
}
"""Which of openat, write, fsync, rename, link, unlink, ftruncate each command makes: all that it makes fail in turn."""
COPIED = tuple(
    name for name in MADE if name not in ("compact", "adopt", "remote-attach", "metadata-plan", "only-broker")
)
"""Commands that copy parts of files into log dirs: with pwrite, where the system cannot."""


def traced(*more: str) -> tuple[str, ...]:
    names = ",".join(dict.fromkeys(CALLS + MORE_CALLS + NEVER_MADE))
    return ("strace", "-f", "-qq", "-y", "--seccomp-bpf", "-e", f"trace={names}", *more)


class Faults:
    """Runs a change once as it is, and then as often as calls are to fail."""

    def __init__(self, change: Change, tmp_path: Path, always: tuple[str, ...] = ()) -> None:
        """*always*: what strace does to each run, beside the one call."""
        self._change, self._always = change, always
        self._run, self._original, self._saved = (tmp_path / name for name in ("run", "original", "saved"))
        self._log = tmp_path / "log"
        self._told: dict[tuple[str, int], str] = {}
        self._run.mkdir()
        change.prepare(self._run)
        subprocess.run(["cp", "-a", self._run, self._original], check=True)
        self._earlier = self._plans()
        self._words = tuple(word.format(plan="".join(self._earlier)) for word in change.words)
        self._before, self._clean = self._trees(), self._contents()
        calls = self._calls()
        self._after = self._contents()
        assert self._after != self._clean
        self.cases: list[Case] = [(name, number, error) for name, number in dict.fromkeys(calls) for error in ERRORS]

    def _fresh(self) -> None:
        shutil.rmtree(self._run)
        subprocess.run(["cp", "-a", self._original, self._run], check=True)

    def _log_dirs(self) -> list[Path]:
        return [self._run / name for name in self._change.log_dirs]

    def _plans(self) -> list[str]:
        """Return a backup of each plan for the log dirs, the oldest first."""
        found = [kept for log_dir in self._log_dirs() for kept in plans_of(str(log_dir)) if kept.plan.actions]
        return list({kept.plan.id: kept.plan.backups[0] for kept in found}.values())

    def _trees(self) -> list[Tree]:
        # The undo of an undo has no record of the time when the directories had changed.
        found = [tree(log_dir, directory_times=not self._earlier) for log_dir in self._log_dirs()]
        # The lock file is empty: if it cannot be removed it stays, as a broker's does.
        return [{name: facts for name, facts in one.items() if name != ".lock"} for one in found]

    def _contents(self) -> list[dict[str, tuple[bytes | None, int]]]:
        """Return the content and the mode of every file and directory."""
        return [{name: (content, meta[0]) for name, (content, meta) in one.items()} for one in self._trees()]

    def _calls(self) -> list[tuple[str, int]]:
        """Run the change; return its calls that name something in the folder, each with its number among its kind."""
        done = klog(self._run, *self._words, strace=traced(*self._always, "-o", str(self._log)), frozen=True)
        assert done.returncode in DONE, done.stderr
        counts: Counter[tuple[str, str]] = Counter()
        found = []
        for line in self._lines():
            if (call := re.match(r"(\d+) +(\w+)\((.*)", line)) is None:
                continue
            process, name, rest = call.groups()
            counts[process, name] += 1
            is_relative = re.match(r'AT_FDCWD<[^>]*>, "[^/]|"[^/]', rest)
            if f"{self._run}/" in rest or is_relative:
                found.append((name, counts[process, name]))
                self._told.setdefault(found[-1], line)
        return found

    def _lines(self) -> list[str]:
        return self._log.read_text(errors="replace").splitlines()

    def nth(self, name: str, pattern: str) -> int:
        """Return which of its name the first call of the undisturbed run is that matches *pattern*."""
        return next(
            number for (called, number), line in self._told.items() if called == name and re.search(pattern, line)
        )

    def fail(self, name: str, number: int, error: str) -> str:
        """Let one call fail; return the outcome.  Whatever it is, the change can be completed and taken back."""
        self._fresh()
        inject = f"inject={name}:error={error}:when={number}"
        count(f"system calls that failed: {error}")
        strace = traced(*self._always, "-e", inject, "-o", str(self._log))
        self.done = done = klog(self._run, *self._words, strace=strace, frozen=True)
        # Beside other threads a call is split into two lines, the second of which has its end.
        ends = f" {name}(", f"<... {name} resumed>"
        injected = [line for line in self._lines() if "(INJECTED)" in line and any(one in line for one in ends)]
        where = (name, number, error, injected, done)
        if not injected:  # a run may have a call less: notes of other plans are looked at by chance
            assert done.returncode in DONE, where
            assert not _differences(self._contents(), self._after), where
            return "not reached"
        assert "Traceback" not in done.stderr, where
        found = self._contents()
        is_read = "O_RDONLY" in injected[0] + self._told.get((name, number), "")
        if done.returncode in DONE:
            # A file that cannot be read is one more that `klog recover` rebuilds.
            is_rebuilt = is_read and self._words[0] == "recover"
            assert is_rebuilt or not _differences(found, self._after), where
            outcome = "done all the same"
        else:
            assert done.returncode & (ExitCode.OPERATIONAL_ERROR | ExitCode.PROBLEMS_LEFT), where
            assert not done.returncode & ExitCode.USAGE, where
            assert done.stderr.count("klog: error") <= 1, where
            assert os.strerror(getattr(errno, error)) in done.stderr + done.stdout, where
            if any(unfinished(str(one)) for one in self._log_dirs()):
                outcome = "unfinished"
            elif found in (self._clean, self._after):
                outcome = "done" if found == self._after else "nothing done"
            else:
                outcome = "done in part"
                assert is_read, where
        self._check_ways_out(outcome, where)
        return outcome

    def _check_ways_out(self, outcome: str, where: Where) -> None:
        subprocess.run(["cp", "-a", self._run, self._saved], check=True)
        try:
            made = [plan for plan in self._plans() if plan not in self._earlier] if outcome != "nothing done" else []
            for plan in made:
                undone = klog(self._run, "undo", plan, "--apply")
                assert undone.returncode in DONE, (where, undone)
            changed = set(_differences(self._trees(), self._before))
            assert changed <= ({"."} if _NEW_TIME in where[-1].stderr else set()), where
        finally:
            shutil.rmtree(self._run)
            self._saved.rename(self._run)
        if outcome == "nothing done":
            again = klog(self._run, *self._words, frozen=True)
        elif outcome == "unfinished":
            again = klog(self._run, "apply", made[0])
        else:
            return
        assert again.returncode in DONE, (where, again)
        assert not _differences(self._contents(), self._after), where


def _differences(found: Sequence[Mapping[str, object]], wanted: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the names that are not alike in two states of the log dirs."""
    return [
        name
        for now, then in zip(found, wanted, strict=True)
        for name in sorted(now.keys() | then.keys())
        if now.get(name) != then.get(name)
    ]


class Poor(NamedTuple):
    """A call that once had a poor answer: the first of its name that matches *pattern*, and the present answer.

    *code*: the exit code.  *told*: a pattern of stderr.
    """

    change: str
    call: str
    pattern: str
    error: str
    code: int
    told: str


_METADATA = "metadata-plan"
POOR = (
    # A log dir that does not keep its time when its lock is made: nothing has been done yet.
    Poor("adopt", "utimensat", r'/data", ', "EIO", 8, r"/data: Input/output error"),
    # The first file of a new partition: the directory is made already, and goes with the rest.
    Poor("adopt", "rename", r"/data/tx-0/", "EIO", 8, r"0 of \d+ changes are made, 'klog apply \S+' makes the rest"),
    # An empty metadata log was reported.
    Poor("adopt", "openat", r'/__cluster_metadata-0", O_RDONLY.*O_DIRECTORY', "EIO", 8, r"cannot be listed: Input/out"),
    # "It has what cannot be listed" was reported, without the name or the reason.
    Poor(
        _METADATA, "openat", r'/broker-2", O_RDONLY.*O_DIRECTORY', "EIO", 8, r"/broker-2: cannot be listed: Input/out"
    ),
    # "No meta.properties" was reported, and the exit code was that of a wrong option.
    Poor(
        _METADATA, "openat", r'broker-2/data/meta\.properties"', "EIO", 8, r"broker-2/data: .*cannot open: Input/output"
    ),
    Poor(_METADATA, "openat", r'broker-2/klog-backup/[^/]+/plan\.json", O_RDWR', "EDQUOT", 8, r"Disk quota exceeded"),
    Poor(_METADATA, "write", r"broker-2/klog-backup/[^/]+/plan\.json", "ENOSPC", 8, r"broker-2/data: No space left on"),
    # The exit code was that of a wrong option.
    Poor("only-broker", "openat", r'broker-2/data/t-1/0+\.log"', "EIO", 8, r"t-1/0+\.log: cannot open: Input/output"),
    # It was treated as a copy without records, and filled from another: its own records were lost without a report.
    Poor("replicas-plan", "openat", r'broker-1/data/keyed-0", O_RDONLY.*O_DIRECTORY', "EIO", 13, ""),
    # It was treated as one without an entry: a high watermark stayed behind the new end.
    Poor("replicas-plan", "openat", r'broker-2/data/replication-offset-checkpoint"', "EIO", 12, ""),
)


def _sampled(cases: list[Case], count: int) -> list[Case]:
    """Return some of the cases, each kind of call and each error as often as the other."""
    return Random(7).sample(cases, min(count, len(cases)))


@pytest.mark.parametrize("name", CHANGES)
def test_a_call_that_fails_loses_nothing(name: str, tmp_path: Path) -> None:
    """Some calls, and those that once had a poor answer."""
    faults = Faults(CHANGES[name], tmp_path)
    assert len(faults.cases) > 100
    assert {call for call, _, _ in faults.cases} & (_ALL | {"pwrite64", *NEVER_MADE}) == MADE[name]
    for case in _sampled(faults.cases, 2):
        assert faults.fail(*case)
    for poor in (poor for poor in POOR if poor.change == name):
        outcome = faults.fail(poor.call, faults.nth(poor.call, poor.pattern), poor.error)
        assert outcome != "not reached", poor
        assert faults.done.returncode == poor.code, (poor, faults.done)
        assert re.search(poor.told, faults.done.stderr), (poor, faults.done)


def test_the_command_that_takes_it_back_does_so_without_a_home(tmp_path: Path) -> None:
    """Without a note the id of a plan of several log dirs leads nowhere, and yet it was printed."""
    change = CHANGES["replicas-plan"]
    change.prepare(tmp_path)
    (tmp_path / "state").write_text("no directory")
    before = [tree(tmp_path / name) for name in change.log_dirs]
    done = klog(tmp_path, *change.words)
    (shown,) = re.findall(r"^  klog (undo .*)$", done.stdout, re.MULTILINE)
    undone = klog(tmp_path, *shlex.split(shown), "--apply")
    assert undone.returncode == ExitCode.CLEAN, undone
    assert [tree(tmp_path / name) for name in change.log_dirs] == before


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name != "undo")) for name in COPIED])
def test_a_copy_by_hand_that_fails_loses_nothing(name: str, tmp_path: Path) -> None:
    """An old kernel, or a file system that cannot, leaves the copy to klog: a write may fail in the middle of it."""
    faults = Faults(CHANGES[name], tmp_path, _BY_HAND)
    cases = [case for case in faults.cases if case[0] == "pwrite64"]
    assert len(cases) >= len(ERRORS)
    assert "not reached" not in {faults.fail(*case) for case in cases}


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_every_call_that_fails_loses_nothing(change: Change, tmp_path: Path) -> None:
    faults = Faults(change, tmp_path)
    found = Counter(faults.fail(*case) for case in faults.cases)
    assert min(found["nothing done"], found["unfinished"]) > 0, found
    assert found["not reached"] * 100 < sum(found.values()), found
