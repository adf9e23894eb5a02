"""--prune: a copy may be the only one with the records below its leader's log start."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.commands.follow.following import batches
from tests.commands.follow.scripted import ScriptedCluster
from tests.commands.follow.test_histories import follow, log
from tests.conftest import Ran

Klog = Callable[..., Ran]
LOG = log("orders", 0, 200)
SIZE = sum(map(len, LOG))
OLDER = 3_600_000
"""An hour: all records are of 2023."""
YEARS = 100 * 365 * 86_400_000


def pruned(klog: Klog, copy: Path, settings: dict[str, str], *words: str) -> Ran:
    """Follow a log whose first half is deleted the second time."""
    with ScriptedCluster({"orders": LOG}) as cluster:
        cluster.settings["orders"] = settings
        assert follow(klog, cluster, copy, "--set", "segment.bytes=600")[0].exit_code == 0
        cluster.topics["orders"] = LOG[10:]
        ran, rows = follow(klog, cluster, copy, "--set", "segment.bytes=600", *words)
        assert rows["orders"]["log_start_offset"] == 100
        assert ran.exit_code == 0, ran
        again, _ = follow(klog, cluster, copy, "--set", "segment.bytes=600", *words)
        assert (again.exit_code, again.stderr) == (0, b"")
    assert klog("verify", copy, "--deep").exit_code == 0
    return ran


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup.policy": "delete", "retention.ms": str(OLDER)},
        {"cleanup.policy": "compact, delete", "retention.ms": str(OLDER), "retention.bytes": "-1"},
        {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": str(SIZE // 2)},
    ],
)
def test_what_retention_has_deleted_is_removed(klog: Klog, tmp_path: Path, settings: dict[str, str]) -> None:
    """Nothing is kept of it, and there is no message."""
    ran = pruned(klog, tmp_path / "copy", settings, "--prune")
    assert ran.stderr == b""
    assert not (tmp_path / "klog-backup").exists()
    left = batches(tmp_path / "copy" / "orders-0")
    assert b"".join(LOG).endswith(left)
    assert len(left) < SIZE * 0.6


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"},
        {"cleanup.policy": "delete", "retention.ms": str(YEARS), "retention.bytes": str(SIZE * 2 // 3)},
        {"cleanup.policy": "compact", "retention.ms": str(OLDER)},
    ],
)
def test_what_retention_does_not_explain_is_kept_in_the_backup(
    klog: Klog, tmp_path: Path, settings: dict[str, str]
) -> None:
    """A leader that has lost its first segments answers as after DeleteRecords: nothing is destroyed."""
    ran = pruned(klog, tmp_path / "copy", settings, "--prune")
    assert b"orders-0: the leader's log starts at 100 now; retention does not explain this" in ran.stderr
    (backup,) = json.loads(ran.stdout)["backups"]
    kept = batches(Path(backup) / "originals" / "orders-0")
    left = batches(tmp_path / "copy" / "orders-0")
    assert kept + left == b"".join(LOG)
    assert len(left) < SIZE * 0.6


def test_without_prune_all_segments_stay(klog: Klog, tmp_path: Path) -> None:
    """Whatever the leader's log start is."""
    ran = pruned(klog, tmp_path / "copy", {})
    assert ran.stderr == b""
    assert batches(tmp_path / "copy" / "orders-0") == b"".join(LOG)
