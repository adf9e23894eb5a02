"""Whole compactions of a log dir that Kafka has written, through any disk: the plan, its application and its undo."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from klog.change.plan.draft import backup_places, make_plan, plan_id
from klog.change.plan.executor import apply
from klog.change.plan.model import STAGED, Plan
from klog.change.plan.staging import Staging
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.compact.compaction import CompactionRun, CompactOptions, PartitionOutcome
from klog.commands.compact.log_cleaner import CleanerOptions
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import Selection

from tests.conftest import FIXTURES, writable_copy
from tests.oracles.plain.decode import Batch, Record, scan

NOW_MS = 1_795_254_454_586
ORIGINAL = FIXTURES / "compaction" / "before"
SETTINGS: Mapping[str, str] = {"cleanup.policy": "compact", "segment.bytes": "8700"}
"""Groups of two and three segments."""
OPTIONS = ("--policy=compact", "--segment-size=8700", f"--now={NOW_MS}", "--map-memory=1000")
"""The same for the command line; the map of `idempotent` is full several times over."""
SEVERAL_ROUNDS = CleanerOptions(map_memory=1000)


def some(target: Path, *directories: str) -> Path:
    """Return a log dir with these partitions of the original."""
    data = writable_copy(ORIGINAL, target)
    for path in data.iterdir():
        if path.is_dir() and path.name not in directories:
            shutil.rmtree(path)
    kept = {tuple(directory.rsplit("-", 1)) for directory in directories}
    for path in data.glob("*-checkpoint"):
        lines = [line for line in path.read_text().splitlines()[2:] if tuple(line.split()[:2]) in kept]
        path.write_text("".join(f"{line}\n" for line in ("0", len(lines), *lines)))
    return data


def planned(
    data: Path,
    disk: Disk,
    settings: Mapping[str, str] = SETTINGS,
    choices: CleanerOptions = SEVERAL_ROUNDS,
    *,
    everything: bool = False,
    now_ms: int = NOW_MS,
    jobs: int = 1,
) -> tuple[Plan, list[PartitionOutcome]]:
    """Return the plan of a compaction, its new files ready, and the outcome of each partition."""
    log_dir, name = LogDir(str(data)), plan_id("compact", now_ms)
    backups = backup_places(name, [str(data)])
    staging = [Staging(os.path.join(backups[0], STAGED), disk)]
    targets: Sequence[Selection] = [Selection(log_dir, list(log_dir.partitions))]
    wishes = CompactOptions(now_ms, everything, choices, jobs)
    cleaning = CompactionRun(targets, staging, [TopicConfig(log_dir, settings)], wishes, disk)
    cleaning.run()
    plan = make_plan(name, "klog compact", [str(data)], backups, cleaning.drafts, now_ms)
    if not plan.actions:
        staging[0].discard()
    return plan, cleaning.outcomes


def compact(data: Path, disk: Disk) -> None:
    """Look, plan and apply, as the command does."""
    plan, _ = planned(data, disk)
    if plan.actions:
        apply(plan, disk)


def batches(partition: Path) -> list[Batch]:
    """Return the batches of a partition as its segments follow each other."""
    found = []
    for log in sorted(partition.glob("*.log")):
        for batch in scan(log.read_bytes()):
            assert isinstance(batch, Batch), (log, batch)
            found.append(batch)
    return found


def records(partition: Path) -> list[Record]:
    """Return the records of a partition, markers too."""
    return [record for batch in batches(partition) for record in batch.records]


def aborted(found: Sequence[Batch]) -> set[int]:
    """Return the offsets of records that belong to aborted transactions."""
    open_now: dict[int, list[int]] = {}
    gone: set[int] = set()
    for batch in found:
        if batch.control and batch.records:
            data = open_now.pop(batch.producer_id, [])
            if batch.records[0].key == b"\0\0\0\0":
                gone.update(data)
        elif batch.transactional:
            open_now.setdefault(batch.producer_id, []).extend(record.offset for record in batch.records)
    return gone


def table(
    found: Sequence[Batch], *, committed: bool = True, end: int | None = None
) -> dict[bytes, tuple[bytes, Sequence[object]]]:
    """Return the final table of a consumer of the log: the last value of each key.

    *committed*: it does not see what belongs to aborted transactions; *end*: it sees only batches before this offset.
    """
    gone = aborted(found) if committed else set[int]()
    rows: dict[bytes, tuple[bytes, Sequence[object]]] = {}
    for batch in found:
        if batch.control or (end is not None and batch.base_offset >= end):
            continue
        for record in batch.records:
            if record.key is None or record.offset in gone:
                continue
            rows.pop(record.key, None)
            if record.value is not None:
                rows[record.key] = record.value, (record.offset, record.timestamp, record.headers)
    return rows
