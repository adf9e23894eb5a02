"""`klog remote fetch`, killed by the kernel at its calls: the next run ends it, with the same tree."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.commands.remote.test_fetch import contents
from tests.faults.changes import klog
from tests.support import tiers
from tests.support.counts import count
from tests.support.samples import some_or_all

pytestmark = pytest.mark.strace

CALLS = ("write", "fsync", "syncfs", "rename", "unlink", "mkdir")
WORDS = ("remote", "fetch", "data", "--remote", "tier", "-t", "fine", "--to", "back", "--jobs", "2")


def traced(*more: str) -> tuple[str, ...]:
    return ("strace", "-f", "-qq", "-y", "--seccomp-bpf", "-e", f"trace={','.join(CALLS)}", *more)


@some_or_all
def test_killed_at_a_call_it_goes_on_to_the_same_tree(tmp_path: Path, every: int) -> None:
    """strace numbers the calls of each thread by itself; a number that no thread reaches kills nothing."""
    tiers.unpack(tmp_path)
    log, back = tmp_path / "log", tmp_path / "back"
    assert klog(tmp_path, *WORDS, strace=traced("-o", str(log))).returncode == 0
    whole = contents(back)
    made: Counter[tuple[str, str]] = Counter()
    for line in log.read_text(errors="replace").splitlines():
        call = re.match(r"(\d+) +(\w+)\(", line)
        if call is not None:
            made[call[1], call[2]] += 1
    most = {name: max((number for (_, one), number in made.items() if one == name), default=0) for name in CALLS}
    cases = [(name, number + 1) for name in CALLS for number in range(most[name])]
    assert len(cases) > 40
    for name, number in Random(5).sample(cases, max(len(cases) // every, 5)):
        shutil.rmtree(back, ignore_errors=True)
        count("kills by strace")
        done = klog(tmp_path, *WORDS, strace=traced("-e", f"inject={name}:signal=KILL:when={number}", "-o", str(log)))
        assert done.returncode in (0, -9, 137), (name, number, done)
        if not back.exists() or contents(back) != whole:
            again = klog(tmp_path, *WORDS)
            assert again.returncode == 0, (name, number, again)
        assert contents(back) == whole, (name, number)
