"""Compacted topics: deletions that were cleaned away before they were copied are reported, and nothing else is."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from klog.commands.follow.copied_history import CleaningWatch, LeaderClock

from tests.commands.follow.following import batches
from tests.commands.follow.scripted import ScriptedCluster
from tests.commands.follow.test_histories import BASE, follow, log, made
from tests.conftest import Ran

Klog = Callable[..., Ran]
HOUR = 3_600_000
COMPACT = {"cleanup.policy": "compact", "delete.retention.ms": str(HOUR)}
DENSE = log("more", 100, 200)
CLEANED = {
    "batches are gone": [*log("more", 130, 200)],
    "batches are gone behind others": [*log("more", 100, 130), *log("more", 150, 200)],
    "records are gone": [*log("more", 100, 150), made(150, 10, "x", kept=lambda at: at % 2 == 0), *log("x", 160, 200)],
    "a header is left": [*log("more", 100, 150), made(150, 10, "more", kept=lambda _: False), *log("x", 160, 200)],
}  # fmt: skip


def grow_old(copy: Path, ms: int, *, former: bool = False) -> None:
    """Set the time of the copy back; *former*: as a version that recorded less."""
    path = copy / "klog-follow.json"
    found: dict[str, Any] = json.loads(path.read_text())
    found["updated"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - ms / 1000))
    for topic in found["topics"].values():
        if former:
            topic.pop("caught_up", None)
        else:
            topic["caught_up"] = {number: at - ms for number, at in topic["caught_up"].items()}
    path.write_text(json.dumps(found))


def twice(
    klog: Klog, copy: Path, more: Sequence[bytes], ms: int, *, former: bool = False, settings: dict[str, str] = COMPACT
) -> Ran:
    """Follow, let *ms* pass, follow the new part."""
    with ScriptedCluster({"orders": BASE, "calm": BASE}) as cluster:
        cluster.settings = {"orders": settings, "calm": settings}
        assert follow(klog, cluster, copy)[0].exit_code == 0
        grow_old(copy, ms, former=former)
        cluster.topics["orders"] = [*BASE, *more]
        ran, _ = follow(klog, cluster, copy)
    assert batches(copy / "orders-0") == b"".join([*BASE, *more])
    return ran


@pytest.mark.parametrize("former", [False, True])
@pytest.mark.parametrize("case", CLEANED)
def test_deletions_that_may_be_missing_are_said(klog: Klog, tmp_path: Path, case: str, former: bool) -> None:
    """The copy was not caught up for longer than tombstones stay, and something was cleaned meanwhile."""
    ran = twice(klog, tmp_path / "copy", CLEANED[case], 2 * HOUR, former=former)
    assert ran.exit_code == 4, ran
    assert ran.stderr.count(b"\n") == 1
    assert b"orders-0: the leader has cleaned offsets from 100 on" in ran.stderr
    assert b"delete.retention.ms (3600000)" in ran.stderr
    assert b"--on-cleaned anew" in ran.stderr
    rows = {row["topic"]: row["cleaned_from"] for row in json.loads(ran.stdout)["partitions"]}
    assert rows == {"orders": 100, "calm": None}


@pytest.mark.parametrize("former", [False, True])
@pytest.mark.parametrize(
    ("more", "ms", "settings"),
    [
        (CLEANED["records are gone"], HOUR // 2, COMPACT),
        (DENSE, 2 * HOUR, COMPACT),
        (DENSE, 2 * HOUR, {"cleanup.policy": "delete"}),
        (CLEANED["batches are gone"], 2 * HOUR, {**COMPACT, "delete.retention.ms": str(3 * HOUR)}),
        (CLEANED["batches are gone"], 2 * HOUR, {"cleanup.policy": "compact"}),
        (CLEANED["batches are gone"], 23 * HOUR, {}),
    ],
)
def test_nothing_is_said_where_nothing_can_be_missing(
    klog: Klog, tmp_path: Path, more: Sequence[bytes], ms: int, settings: dict[str, str], former: bool
) -> None:
    """In time, or nothing was cleaned."""
    ran = twice(klog, tmp_path / "copy", more, ms, former=former, settings=settings)
    assert (ran.exit_code, ran.stderr) == (0, b"")


def test_it_is_said_until_the_partition_is_copied_anew(klog: Klog, tmp_path: Path) -> None:
    """Each run has exit code 4; --on-cleaned anew fetches it again, with the old copy in the backup."""
    copy, more = tmp_path / "copy", CLEANED["records are gone"]
    twice(klog, copy, more, 2 * HOUR)
    with ScriptedCluster({"orders": [*BASE[3:], *more], "calm": BASE}) as cluster:
        ran, _ = follow(klog, cluster, copy)
        assert ran.exit_code == 4
        assert b"orders-0: from 100 on, as an earlier run has reported" in ran.stderr
        ran, _ = follow(klog, cluster, copy, "--on-cleaned", "anew")
        assert ran.exit_code == 1, ran
        assert batches(copy / "orders-0") == b"".join([*BASE[3:], *more])
        (backup,) = json.loads(ran.stdout)["backups"]
        assert batches(Path(backup) / "originals" / "orders-0") == b"".join([*BASE, *more])
        ran, _ = follow(klog, cluster, copy)
        assert (ran.exit_code, ran.stderr) == (0, b"")


def test_it_is_copied_anew_at_once_where_that_is_wanted(klog: Klog, tmp_path: Path) -> None:
    """In the run that finds it."""
    copy, more = tmp_path / "copy", CLEANED["batches are gone"]
    with ScriptedCluster({"orders": BASE}) as cluster:
        cluster.settings = {"orders": COMPACT}
        assert follow(klog, cluster, copy)[0].exit_code == 0
        grow_old(copy, 2 * HOUR)
        cluster.topics["orders"] = [*BASE[:4], *more]
        ran, _ = follow(klog, cluster, copy, "--on-cleaned", "anew")
        assert ran.exit_code == 1, ran
        ran, _ = follow(klog, cluster, copy)
        assert (ran.exit_code, ran.stderr) == (0, b"")
    assert batches(copy / "orders-0") == b"".join([*BASE[:4], *more])
    assert klog("verify", copy, "--deep").exit_code == 0


def test_a_first_copy_of_what_was_cleaned_is_whole(klog: Klog, tmp_path: Path) -> None:
    """However short delete.retention.ms is; the same for one that a kill interrupted and that continues at once."""
    with ScriptedCluster({"orders": [*BASE[2:5], *CLEANED["records are gone"]]}) as cluster:
        cluster.settings = {"orders": {**COMPACT, "delete.retention.ms": "0"}}
        ran, _ = follow(klog, cluster, tmp_path / "copy", "--partition-bytes", "1")
        assert (ran.exit_code, ran.stderr) == (0, b"")


def test_a_run_that_does_not_follow_a_partition_keeps_what_is_known_of_it(klog: Klog, tmp_path: Path) -> None:
    """Its time is its own: a run of another topic does not bring it up."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": BASE, "calm": BASE}) as cluster:
        cluster.settings = {"orders": COMPACT}
        assert follow(klog, cluster, copy)[0].exit_code == 0
        grow_old(copy, 2 * HOUR)
        assert follow(klog, cluster, copy, "--topic", "calm")[0].exit_code == 0
        cluster.topics["orders"] = [*BASE, *CLEANED["records are gone"]]
        assert follow(klog, cluster, copy)[0].exit_code == 4


def test_a_copy_that_runs_on_counts_from_when_it_had_all() -> None:
    """The time of the request of an answer counts, once the copy has reached the offsets in it."""
    clock, gap = LeaderClock(), memoryview(made(110, 10, "x"))
    watch = CleaningWatch(0, HOUR, True, None, clock)
    clock.asked_ms = 5 * HOUR
    watch.note(is_caught_up=True)
    assert not watch.watch(gap, 100, 6 * HOUR)
    clock.asked_ms = 7 * HOUR
    watch.note(is_caught_up=False)
    assert watch.watch(gap, 100, 6 * HOUR + 1)
    assert watch.lost_from == 100
    assert not watch.watch(gap, 100, 6 * HOUR + 2)
