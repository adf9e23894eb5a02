"""How often a log is read, and in whose thread."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base.errors import UnreadableError
from klog.base.progress import Silence
from klog.base.read_only import ReadOnlyFile
from klog.change.plan.draft import Draft
from klog.change.plan.staging import Staging
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.compact import compaction as run
from klog.commands.compact.compaction import CompactionRun, CompactOptions
from klog.commands.compact.log_cleaner import CleanerOptions, CompactionResult, PartitionCompaction
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import Selection

from tests.commands.compact.compacting import NOW_MS, SETTINGS, planned, some


class Progress(Silence):
    """Adds up expected and read bytes."""

    def __init__(self) -> None:
        self.expected = self.advanced = 0

    def expect(self, size: int) -> None:
        self.expected += size

    def advance(self, size: int, path: str = "") -> None:
        self.advanced += size


PARTITIONS = ("idempotent-0", "tx-later-0")


@pytest.mark.parametrize("like_broker", [False, True], ids=["klog", "like a broker"])
def test_a_segment_is_read_twice(like_broker: bool, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for the map, once for the result: the digest that the plan needs is computed on the way.  Disks are slow."""
    data = some(memory / "data", "idempotent-0")
    sizes = {path.name: path.stat().st_size for path in (data / "idempotent-0").glob("*.log")}
    read: Counter[str] = Counter()
    real = ReadOnlyFile.read_into

    def counted(self: ReadOnlyFile, position: int, view: memoryview) -> int:
        count = real(self, position, view)
        if os.path.dirname(self.path) == str(data / "idempotent-0"):
            read[os.path.basename(self.path)] += count
        return count

    plan_only = PartitionCompaction.plan

    def plan(self: PartitionCompaction, draft: Draft, scratch: Staging) -> CompactionResult:
        read.clear()  # the earlier reads, for the eligibility, are not counted
        return plan_only(self, draft, scratch)

    monkeypatch.setattr(ReadOnlyFile, "read_into", counted)
    monkeypatch.setattr(PartitionCompaction, "plan", plan)
    _, (outcome,) = planned(data, Disk(), choices=CleanerOptions(like_broker=like_broker), everything=True)
    assert outcome.compacted is not None
    assert len(outcome.compacted.rounds) == 1
    done = {f"{base:020}.log" for group in outcome.compacted.rounds[0].groups for base in group.bases}
    assert len(done) > 1
    assert {name: read[name] for name in done} == {name: 2 * sizes[name] for name in done}


@pytest.mark.parametrize(("large_bytes", "threads"), [(1, 2), (1 << 20, 1)], ids=["large", "small"])
def test_large_partitions_have_a_thread_each(
    large_bytes: int, threads: int, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small ones would only wait for each other: five thousand of them were slower in two threads than in one."""
    data = some(memory / "data", *PARTITIONS)
    seen: set[int] = set()
    together = threading.Barrier(threads)
    real = PartitionCompaction.plan

    def plan(self: PartitionCompaction, draft: Draft, scratch: Staging) -> CompactionResult:
        seen.add(threading.get_ident())
        together.wait(120)
        return real(self, draft, scratch)

    monkeypatch.setattr(run, "_LARGE_BYTES", large_bytes)
    monkeypatch.setattr(PartitionCompaction, "plan", plan)
    planned(data, Disk(), everything=True, jobs=4)
    assert len(seen) == threads


@pytest.mark.parametrize("other", ["reads", "fails"])
def test_what_one_thread_raises_ends_the_others(other: str, memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: the partition that is being read is left where it is, the third is not begun."""
    data = some(memory / "data", "grouping-0", *PARTITIONS)
    begun, finished, together, failed = (
        list[PartitionCompaction](),
        list[PartitionCompaction](),
        threading.Barrier(2),
        threading.Event(),
    )
    real = PartitionCompaction.plan

    def plan(self: PartitionCompaction, draft: Draft, scratch: Staging) -> CompactionResult:
        begun.append(self)
        if together.wait(120) == 0:
            failed.set()
            raise OSError(errno.ENOSPC, "nothing is left")
        failed.wait(120)
        time.sleep(0.1)
        if other == "fails":
            raise UnreadableError("a bad sector")
        result = real(self, draft, scratch)
        finished.append(self)
        return result

    monkeypatch.setattr(PartitionCompaction, "plan", plan)
    with pytest.raises(OSError, match="nothing is left"):
        planned(data, Disk(), everything=True, jobs=2)
    assert (len(begun), finished) == (2, [])


@pytest.mark.parametrize("work", [CompactionRun.run, CompactionRun.estimate], ids=["run", "estimate"])
def test_progress_comes_to_its_end(tmp_path: Path, work: Callable[[CompactionRun], None]) -> None:
    """The expected bytes are the bytes read: once for the map, and all once more for the rewriting."""
    log_dir, told = LogDir(str(some(tmp_path / "data", "grouping-0"))), Progress()
    staging = Staging(str(tmp_path / "staged"), Disk())
    targets, topics = [Selection(log_dir, list(log_dir.partitions))], [TopicConfig(log_dir, SETTINGS)]
    cleaning = CompactionRun(
        targets, [staging], topics, CompactOptions(NOW_MS, False, CleanerOptions(), 1), Disk(), told
    )
    work(cleaning)
    assert [outcome.is_done for outcome in cleaning.outcomes] == [True]
    assert told.advanced == told.expected > 0
