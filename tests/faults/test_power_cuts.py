"""Commands that change log dirs, on a file system that loses its power before a call: nothing is lost with it.

A command runs on a mount of lossy.c; tests/faults/lossy_disk.py computes the content of the disk after a cut.  That is
either the state before, or a plan finishes it, and undoes it. tests/support/power.py is another model, inside of klog:
here the kernel records klog's calls.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import pytest
from klog.base.errors import ExitCode
from klog.change.plan.find_plans import plans_of

from tests.conftest import Ran, run_klog
from tests.faults import changes
from tests.faults.changes import CHANGES, NOW
from tests.faults.journal import Journal
from tests.faults.lossy_disk import MODELS, Shown
from tests.faults.lossy_mount import mounted
from tests.support.counts import count
from tests.support.power import Tree, tree

pytestmark = pytest.mark.fuse

DONE = (ExitCode.CLEAN, ExitCode.CORRECTED)
ONCE = ("write", "metadata-plan", "only-broker")
"""The same command finishes them as well, but these then do the same once more."""
Case = tuple[int, str]
"""The call of the cut, and the content that the disk keeps."""


class PowerCuts:
    """A change, run once on the file system; then the content after any cut, and klog's result for that."""

    def __init__(self, name: str, tmp_path: Path) -> None:
        self._name, self._change = name, CHANGES[name]
        self._run, backing, calls = (tmp_path / one for one in ("run", "backing", "calls"))
        self._run.mkdir()
        self._change.prepare(self._run)
        self._earlier = self._plans_with_actions()
        self._words = tuple(word.format(plan="".join(self._earlier)) for word in self._change.words)
        self._before, self._clean = self._trees(), self._contents()
        self._run.rename(backing)
        self._run.mkdir()
        self._journal = Journal(backing)
        with mounted(self._run, backing, calls):
            done = changes.klog(self._run, *self._words, frozen=True)
            assert done.returncode in DONE, done
            self._after, self._times = self._contents(), [*map(_time, self._before), *map(_time, self._trees())]
        assert self._after != self._clean
        self._journal.load(calls)
        self._outcomes: dict[bytes, str] = {}
        self.cases: list[Case] = [(at, model) for model in MODELS for at in range(self._journal.calls)]

    def _plans_with_actions(self) -> list[str]:
        log_dirs = [self._run / name for name in self._change.log_dirs]
        found = [kept.plan.id for log_dir in log_dirs for kept in plans_of(str(log_dir)) if kept.plan.actions]
        return list(dict.fromkeys(found))

    def _trees(self) -> list[Tree]:
        # The undo of an undo has no record of the time when the directories had changed.
        found = [tree(self._run / name, directory_times=not self._earlier) for name in self._change.log_dirs]
        return [{name: facts for name, facts in one.items() if name != ".lock"} for one in found]

    def _contents(self) -> list[dict[str, tuple[bytes | None, int]]]:
        """Return the content and the mode of every file and directory."""
        return [{name: (content, meta[0]) for name, (content, meta) in one.items()} for one in self._trees()]

    def _klog(self, *words: str) -> Ran:
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self._run)
            patch.setenv("HOME", str(self._run))
            patch.setenv("XDG_STATE_HOME", str(self._run / "state"))
            patch.setattr(time, "time", lambda: int(NOW) / 1000)
            return run_klog(*words)

    def cut(self, at: int, model: str) -> str:
        """Check the content of a disk after a cut before a call; return the outcome.  Nothing may be lost."""
        count(f"cuts below klog: {model}")
        shown = self._journal.cut(at, model, Random(at))
        digest = shown.digest()
        if digest not in self._outcomes:
            self._outcomes[digest] = self._judge(shown, (self._name, at, model, self._journal.call(at)))
        return self._outcomes[digest]

    def cut_running(self, at: int, model: str, folder: Path) -> str:
        """Run the change once more, on a disk that loses its power before a call; return the outcome."""
        count(f"cuts below klog: {model}")
        backing, calls = folder / "backing", folder / "calls"
        backing.mkdir(parents=True)
        self._journal.cut(0, model, Random(0)).write(backing)
        self._clear()
        journal = Journal(backing)
        with mounted(self._run, backing, calls, cut_at=at):
            done = changes.klog(self._run, *self._words, frozen=True)
        where = (self._name, at, model, done)
        assert "Traceback" not in done.stderr, where
        assert done.returncode & ExitCode.OPERATIONAL_ERROR, where
        assert os.strerror(errno.EIO) in done.stderr + done.stdout, where
        journal.load(calls)
        assert journal.calls <= at, where
        return self._judge(journal.cut(journal.calls, model, Random(at)), where)

    def _clear(self) -> None:
        shutil.rmtree(self._run)
        self._run.mkdir()

    def _plans(self) -> dict[str, tuple[str, str]]:
        """Return status and backup of each plan that the change has made, by its id."""
        found = {}
        for name in self._change.log_dirs:
            listed = self._klog("plans", name, "--output", "json")
            plans = json.loads(listed.stdout)["plans"]
            assert listed.exit_code == (ExitCode.CLEAN if plans else ExitCode.PROBLEMS_LEFT), listed
            for plan in plans:
                if plan["id"] not in self._earlier:
                    found[plan["id"]] = plan["state"], plan["backup"]
        return found

    def _judge(self, shown: Shown, where: object) -> str:
        def restore() -> None:
            self._clear()
            shown.write(self._run)

        restore()
        plans = self._plans()
        states = {state for state, _ in plans.values()}
        assert len(plans) <= 1, (where, plans)
        found = self._contents()
        if states <= {"being planned", "not begun"}:
            assert found == self._clean, (where, plans, _differences(found, self._clean))
            self._finish(self._words, where)
            return "nothing done"
        ((state, backup),) = plans.values()
        assert state in ("half done", "applied"), (where, plans)
        if state == "applied":
            assert found == self._after, (where, _differences(found, self._after))
        # The lock is made and removed, and the log dir's time is restored, without a sync: the change may be lost.
        is_time_lost = any(_time(one) not in self._times for one in self._trees())
        undone = self._klog("undo", backup, "--apply")
        assert undone.exit_code in DONE, (where, undone)
        changed = _differences(self._trees(), self._before)
        assert set(changed) <= ({"."} if is_time_lost else set()), (where, changed)
        if state == "half done":
            restore()
            self._finish(("apply", backup), where)
            if self._name not in ONCE:
                restore()
                self._finish_by_the_same(where)
        return state

    def _finish(self, words: tuple[str, ...], where: object) -> None:
        done = self._klog(*words)
        assert done.exit_code in DONE, (where, done)
        found = self._contents()
        assert found == self._after, (where, _differences(found, self._after))

    def _finish_by_the_same(self, where: object) -> None:
        """The command itself finishes its begun work, or names the command that does."""
        done = self._klog(*self._words)
        if done.exit_code in DONE:
            found = self._contents()
            assert found == self._after, (where, _differences(found, self._after))
        else:
            named = re.search(rb"'klog (apply \S+)'", done.stderr)
            assert named, (where, done)
            self._finish(tuple(shlex.split(named[1].decode())), where)


def _time(log_dir: Tree) -> int:
    """Return the modification time of the log dir itself."""
    return log_dir["."][1][3]


def _differences(found: Sequence[Mapping[str, object]], wanted: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the names that are not alike in two states of the log dirs."""
    return [
        name
        for now, then in zip(found, wanted, strict=True)
        for name in sorted(now.keys() | then.keys())
        if now.get(name) != then.get(name)
    ]


@pytest.mark.parametrize("name", CHANGES)
def test_a_power_cut_loses_nothing(name: str, tmp_path: Path) -> None:
    cuts = PowerCuts(name, tmp_path)
    assert len(cuts.cases) > 300
    for case in Random(7).sample(cuts.cases, 12):
        cuts.cut(*case)
    cuts.cut_running(*Random(name).choice(cuts.cases), tmp_path / "running")


@pytest.mark.long
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", CHANGES)
def test_no_power_cut_loses_anything(name: str, model: str, tmp_path: Path) -> None:
    cuts = PowerCuts(name, tmp_path)
    cases = [case for case in cuts.cases if case[1] == model]
    found = Counter(cuts.cut(*case) for case in cases)
    for number, case in enumerate(cases[::40]):
        cuts.cut_running(*case, tmp_path / f"running-{number}")
    assert min(found["nothing done"], found["half done"], found["applied"]) > 0, found
