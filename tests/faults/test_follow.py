"""Calls of `klog follow` on its copy's disk fail in their turn: copied data is kept, and the next run ends it."""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from klog.base.errors import ExitCode

from tests.commands.follow.scripted import ScriptedCluster, log_of, of_fixture
from tests.faults.changes import klog
from tests.faults.test_system_calls import ERRORS, traced
from tests.support.counts import count

pytestmark = pytest.mark.strace

Case = tuple[str, str, int, str]
"""A call, the path it names, which of that name for that path it is, and the error."""
TOPICS = {"one": of_fixture("plain-2"), "two": of_fixture("lz4-broker-0")}


class FollowFaults:
    """A copy that has the first half of a cluster's batches, and follows the rest with calls that fail."""

    def __init__(self, folder: Path) -> None:
        self._run, self._original, self._log = folder / "run", folder / "original", folder / "log"
        self._run.mkdir()
        with ScriptedCluster({name: batches[: len(batches) // 2] for name, batches in TOPICS.items()}) as cluster:
            done = klog(self._run, "follow", cluster.bootstrap, "--to", str(self._run / "copy"))
        assert done.returncode == ExitCode.CLEAN, done
        subprocess.run(["cp", "-a", self._run, self._original], check=True)
        self._before = self._logs()
        self._cluster = ScriptedCluster(TOPICS)

    def close(self) -> None:
        self._cluster.__exit__()

    def _follow(self, *strace: str) -> subprocess.CompletedProcess[str]:
        return klog(self._run, "follow", self._cluster.bootstrap, "--to", str(self._run / "copy"), strace=strace)

    def _logs(self) -> dict[str, bytes]:
        return {name: log_of(self._run / "copy", f"{name}-0") for name in TOPICS}

    def cases(self) -> list[Case]:
        """Return the calls of an undisturbed run that name something in the copy, each with every error.

        strace numbers the calls of each thread by itself: so one is known by its path as well.
        """
        done = self._follow(*traced("-o", str(self._log)))
        assert done.returncode == ExitCode.CLEAN, done
        counts: Counter[tuple[str, str, str]] = Counter()
        found = []
        for line in self._log.read_text(errors="replace").splitlines():
            call = re.match(rf'(\d+) +(\w+)\(.*?[<"]({re.escape(str(self._run))}/copy[^">]*)', line)
            if call is not None:
                counts[call[1], call[2], call[3]] += 1
                found.append((call[2], call[3], counts[call[1], call[2], call[3]]))
        return [(*call, error) for call in dict.fromkeys(found) for error in ERRORS]

    def fail(self, name: str, path: str, number: int, error: str) -> str:
        """Let one call fail; return the outcome."""
        shutil.rmtree(self._run)
        subprocess.run(["cp", "-a", self._original, self._run], check=True)
        inject = f"inject={name}:error={error}:when={number}"
        count(f"system calls that failed: {error}")
        done = self._follow(*traced("-P", path, "-e", inject, "-o", str(self._log)))
        injected = [line for line in self._log.read_text(errors="replace").splitlines() if "(INJECTED)" in line]
        where = (name, path, number, error, injected, done)
        assert "Traceback" not in done.stderr, where
        wanted = {topic: b"".join(batches) for topic, batches in TOPICS.items()}
        for topic, log in self._logs().items():
            assert wanted[topic].startswith(log), where
            assert log.startswith(self._before[topic]), where
        if done.returncode == ExitCode.CLEAN:
            assert self._logs() == wanted, where
        else:
            assert injected, where
            assert not done.returncode & ExitCode.USAGE, where
            assert os.strerror(getattr(errno, error)) in done.stderr + done.stdout, where
        again = self._follow()
        assert again.returncode in (ExitCode.CLEAN, ExitCode.CORRECTED), (where, again)
        assert self._logs() == wanted, (where, again)
        checked = klog(self._run, "verify", "copy")
        assert checked.returncode == ExitCode.CLEAN, (where, again, checked)
        return "done all the same" if done.returncode == ExitCode.CLEAN else "done by the next run"


@pytest.fixture
def faults(tmp_path: Path) -> Iterator[FollowFaults]:
    found = FollowFaults(tmp_path)
    yield found
    found.close()


def test_a_call_that_fails_loses_nothing_of_a_copy(faults: FollowFaults) -> None:
    cases = faults.cases()
    assert len(cases) > 100
    for case in Random(7).sample(cases, 4):
        assert faults.fail(*case)


@pytest.mark.long
def test_every_call_that_fails_loses_nothing_of_a_copy(faults: FollowFaults) -> None:
    found = Counter(faults.fail(*case) for case in faults.cases())
    assert found["done by the next run"] > 0, found
