"""Situations that were never seen before: real brokers make them from new seeds, and their clients say what is right.

KLOG_TIER_SEEDS=17,18 make test ARGS="-m long -k new_seeds"        # a minute for each situation
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import CORPORA, Ran
from tests.partition.tiered import checks
from tests.support.tiers import Situation, made

NAMES = ("house", "house391", "gappy", "killed", "unclean", "interrupted")
TODAY = str(int(time.time()) // 86_400)
SEEDS = [int(one) for one in os.environ.get("KLOG_TIER_SEEDS", TODAY).split(",")]
"""Those of the environment; otherwise each day has one of its own."""
PORT = 27420


def situation_of(seed: int, name: str, folder: Path) -> Situation:
    """Let brokers make a situation; the seed is in the message of a failure."""
    program = CORPORA / "tiered/make/situations.py"
    command = [sys.executable, str(program), str(folder), "--seed", str(seed), "--port", str(PORT), name]
    place = {"KLOG_ORACLE": str(CORPORA.parent / "oracle"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(command, env=os.environ | place, capture_output=True, text=True, timeout=600, check=False)
    assert (folder / name / "truth.json.gz").exists(), f"seed {seed}: {done.stdout}{done.stderr}"
    moment = "after" if (folder / name / "after.tar.xz").exists() else "before"
    return made(folder / name, moment)


@pytest.mark.long
@pytest.mark.corpora
@pytest.mark.kafka
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", SEEDS, ids=[f"seed-{at}" for at in range(len(SEEDS))])
def test_new_seeds(klog: Callable[..., Ran], tmp_path: Path, seed: int, name: str) -> None:
    """Offsets, records in both levels, times, 200 random times and offsets, segments; no finding in any depth."""
    found = situation_of(seed, name, tmp_path)
    checks.check_offsets(found)
    checks.check_records(found)
    checks.check_times(found)
    if name not in checks.UNTIMELY:
        checks.check_any_time(found)
    listed = json.loads(klog("remote", "ls", *found.data, "--segments", "-o", "json").stdout)["partitions"]
    ours = {(each["segment_id"], each["state"]) for one in listed for each in one["segment_list"]}
    assert ours == {(one["segment_id"], one["state"]) for one in found.truth["segments"][found.moment]}
    for depth in ("--quick", "--deep"):
        ran = klog("remote", "verify", *found.data, "--remote", found.tier, depth)
        is_dead_tail = name == "unclean" and b"remote-dead-tail" in ran.stdout
        assert ran.exit_code == (4 if is_dead_tail else 0), f"seed {seed}: {ran.stdout.decode()}"
