"""A repair beside what an interrupted operation has left: both are seen to at once, as if they had come alone."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base import read_only

from tests.change.plan.test_executor import end, other_process, said
from tests.conftest import FIXTURES, Ran
from tests.oracles.plain.encode import batch
from tests.oracles.plain.shapes import some_records
from tests.partition.verify.partitions import Damageable, flipped
from tests.support.power import tree

pytestmark = pytest.mark.usefixtures("hasty")
NOW = "--now=2025-06-15T15:10:00Z"
SNAPSHOT, INDEX = f"{750:020}.snapshot", f"{375:020}.index"
INDEXES = (".index", ".timeindex")
LEFTOVERS = ("cleaned", "swap", "deleted")


def logs_and_indexes(partition: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in partition.iterdir() if path.suffix in (".log", *INDEXES)}


@pytest.mark.parametrize("leftover", LEFTOVERS)
def test_damage_beside_a_leftover_is_repaired_with_it(tmp_path: Path, klog: Callable[..., Ran], leftover: str) -> None:
    """A snapshot and an index: the partition is then looked at under the names that its files are going to have."""
    damageable = Damageable(tmp_path / "data", "idempotent-0")
    partition = damageable.path / "idempotent-0"
    whole = sorted(tree(partition))
    damageable.change(f"idempotent-0/{SNAPSHOT}", flipped(0))
    (partition / INDEX).unlink()
    old = partition / f"{0:020}.log.{leftover}"
    old.write_bytes((partition / f"{0:020}.log").read_bytes())
    if leftover == "swap":  # of a compaction that had come to its end, all of whose files are there
        for suffix in INDEXES:
            (partition / f"{0:020}{suffix}").rename(partition / f"{0:020}{suffix}.swap")
    planned = json.loads(klog("recover", damageable.path, NOW, "--output=json").stdout)
    found = sorted((one["id"], one["file"]) for one in planned["findings"])
    leftovers = sorted(path.name for path in partition.glob(f"*.{leftover}"))
    assert found == [
        ("index-missing", f"idempotent-0/{375:020}.log"),
        *(("leftover", f"idempotent-0/{name}") for name in leftovers),
        ("snapshot-corrupt", f"idempotent-0/{SNAPSHOT}"),
    ]
    assert klog("recover", damageable.path, NOW, "--apply").exit_code == 1
    assert logs_and_indexes(partition) == logs_and_indexes(FIXTURES / "modern/idempotent-0")
    assert sorted(tree(partition)) == whole
    assert klog("recover", damageable.path, NOW).exit_code == 0


@pytest.mark.parametrize("leftover", ["cleaned", "deleted"])
def test_a_leftover_goes_when_nothing_else_is_wrong(tmp_path: Path, klog: Callable[..., Ran], leftover: str) -> None:
    damageable = Damageable(tmp_path / "data", "idempotent-0")
    whole = sorted(tree(damageable.path / "idempotent-0"))
    (damageable.path / f"idempotent-0/{0:020}.log.{leftover}").write_bytes(b"half")
    assert klog("recover", damageable.path, NOW, "--apply").exit_code == 1
    assert sorted(tree(damageable.path / "idempotent-0")) == whole


def test_snapshots_are_made_only_where_one_was_or_is_missed(tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """A log without producers has none, and needs none, when its index is made anew."""
    partition = tmp_path / "data" / "orders-0"
    partition.mkdir(parents=True)
    (tmp_path / "data" / "meta.properties").write_text("version=0\nbroker.id=1\n")
    for base in (0, 10):
        (partition / f"{base:020}.log").write_bytes(batch(some_records(base)))
    assert klog("recover", tmp_path / "data", NOW, "--apply").exit_code == 1
    assert {path.suffix for path in partition.iterdir()} == {".log", *INDEXES, ""}  # the last one: the epochs


def test_beside_a_running_broker_no_log_is_cut(tmp_path: Path, klog: Callable[..., Ran]) -> None:
    """A batch that looks torn is one that the broker is writing: a plan that cut there would be wrong a moment
    later."""
    damageable = Damageable(tmp_path / "data", "plain-1")
    log, snapshot = f"plain-1/{0:020}.log", f"plain-1/{93:020}.snapshot"
    damageable.change(log, lambda content: content[:-10])
    damageable.change(snapshot, flipped(0))

    def planned() -> set[str]:
        return {one["file"] for one in json.loads(klog("recover", damageable.path, "--output=json").stdout)["actions"]}

    process = other_process(damageable.path / ".lock")
    assert said(process) == b"held"
    beside = planned()
    end(process)
    assert snapshot in beside
    assert log not in beside
    assert {snapshot, log} <= planned()


@pytest.mark.parametrize("mode", [(), ("--salvage",)], ids=["default", "salvage"])
def test_a_log_that_cannot_be_opened_keeps_its_indexes(
    tmp_path: Path, klog: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, mode: tuple[str, ...]
) -> None:
    """They are all that is known of it, until the disk is back."""
    damageable = Damageable(tmp_path / "data", "idempotent-0")
    (damageable.path / "idempotent-0" / INDEX).unlink()
    before = tree(damageable.path / "idempotent-0")
    real = read_only._open

    def refuse(path: str) -> int:
        if path.endswith(f"{375:020}.log"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(path)

    monkeypatch.setattr(read_only, "_open", refuse)
    done = klog("recover", damageable.path, *mode, NOW, "--output=json")
    stem = f"idempotent-0/{375:020}."
    planned = json.loads(done.stdout)
    assert not [one["file"] for one in planned["actions"] if one["file"].startswith((f"{stem}log", f"{stem}index"))]
    assert [one["id"] for one in planned["left"] if one["file"] == f"{stem}log"] == ["unreadable", "index-missing"]
    assert "a broker would not start" in planned["partitions"][0]["notes"][0]
    assert tree(damageable.path / "idempotent-0") == before
