"""The steps to free space on log dirs, the cheapest first, without data that a rule of retention keeps.

One of the steps is a round of the cleaner: `find_gains` tells its result for compacted logs, dirty enough or not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from shlex import quote
from typing import Final, NamedTuple

from klog.base.errors import KlogError
from klog.commands.compact.log_cleaner import CleanerOptions, PartitionCompaction
from klog.commands.space.disk_usage import DiskUsage, LogDirUsage, PartitionUsage
from klog.commands.space.kept_reasons import Reason
from klog.data_dir.partition import Partition

_MAP_BYTES: Final = 64 << 20
"""The memory for 2.5 million keys at a time, half of a broker's cleaner's."""


class CleanerGain(NamedTuple):
    """A partition whose logs have *bytes_before*, and would have about *bytes_after*.

    *sampled*: the part of the cleaner's input that was read.  *is_locked*: a broker runs on its log dir.
    """

    partition: Partition
    bytes_before: int
    bytes_after: int
    sampled: float
    is_locked: bool

    @property
    def bytes(self) -> int:
        """How many bytes that would free."""
        return self.bytes_before - self.bytes_after


def find_gains(usage: DiskUsage, fraction: float) -> Iterator[CleanerGain]:
    """Yield the remaining size of each compacted log after the cleaner; a *fraction* of the segments is rewritten for
    that.

    A log that it would not clean is unchanged.  `usage.problems` receives the unreadable parts.
    """
    for log_dir in usage.log_dirs:
        is_locked = bool(log_dir.log_dir.lock.held)
        for one in log_dir.partitions:
            partition = one.partition
            rules = usage.rules_of(log_dir, partition.topic)
            if one.state_reason is not None or not rules.compacts or len(one.found.segments) < 2:
                continue
            sections = usage.cleaning(log_dir, partition)
            size = sum(segment.log_bytes for segment in one.found.segments)
            if isinstance(sections, str) or not sections.dirty.bytes:
                yield CleanerGain(partition, size, size, 1.0, is_locked)
                continue
            try:
                expected = PartitionCompaction(sections, CleanerOptions(_MAP_BYTES)).expect(fraction)
            except KlogError as error:
                usage.note(str(error))
                continue
            yield CleanerGain(partition, size, expected.bytes_after, expected.sampled, is_locked)


_DUE: Final = (Reason.RETENTION_DUE, Reason.BELOW_LOG_START)
_REMOVED_ANYWAY: Final = (".deleted", ".cleaned")
"""A file that ends in `.swap` may be the only one that has its records: a broker takes it over at its start."""


class FreeStep(NamedTuple):
    """A step: a *command*, or a sentence if klog has none for it.  *frees*: bytes on disk, about.

    *file_bytes*: the size of the files, if that is known too.  *preview*: the command without its --apply.
    """

    command: str | None
    manual: str | None
    frees: int
    why: str
    file_bytes: int | None = None
    preview: str | None = None


class FreePlan(NamedTuple):
    """*steps* in their order, which free *freed* of the *wanted* bytes."""

    steps: tuple[FreeStep, ...]
    wanted: int
    freed: int

    @property
    def missing(self) -> int:
        """The number of bytes that cannot be freed without losing data that a rule keeps."""
        return max(self.wanted - self.freed, 0)


def plan_free(usage: DiskUsage, wanted: int, gains: Iterable[CleanerGain]) -> FreePlan:
    """Return the first steps that free *wanted* bytes; *gains*: the cleaner's gains, computed on demand."""
    steps: list[FreeStep] = []
    freed = 0
    for step in _steps(usage, gains):
        if freed >= wanted:
            break
        steps.append(step)
        freed += step.frees
    steps += _moves(usage, wanted - freed)
    return FreePlan(tuple(steps), wanted, sum(step.frees for step in steps))


def _steps(usage: DiskUsage, gains: Iterable[CleanerGain]) -> Iterator[FreeStep]:
    for log_dir in usage.log_dirs:
        yield from _leftovers(log_dir)
    for log_dir in usage.log_dirs:
        for one in log_dir.partitions:
            if one.state_reason is Reason.STRAY:
                why = "a loss: these records are not served, but they are in no other place on this disk"
                yield _removal(log_dir, [one.partition], _disk_bytes(usage, log_dir, one), why)
    for log_dir in usage.log_dirs:
        yield from _due(usage, log_dir)
    for gain in sorted(gains, key=lambda one: -one.bytes):
        if gain.bytes > 0:
            yield _compaction(gain)


def _is_locked(log_dir: LogDirUsage) -> bool:
    return bool(log_dir.log_dir.lock.held)


def _removal(log_dir: LogDirUsage, partitions: Sequence[Partition], size: int, why: str) -> FreeStep:
    """Return the step that removes the directories of *partitions*."""
    command = f"rm -r -- {' '.join(quote(one.path) for one in partitions)}"
    if _is_locked(log_dir):
        return FreeStep(None, f"stop the broker on {log_dir.log_dir.path}, then: {command}", size, why)
    return FreeStep(command, None, size, why)


def _disk_bytes(usage: DiskUsage, log_dir: LogDirUsage, one: PartitionUsage) -> int:
    segments = sum(segment.disk_bytes for segment in usage.segments_of(log_dir, one))
    return segments + sum(other.disk_bytes for other in one.others())


def _leftovers(log_dir: LogDirUsage) -> Iterator[FreeStep]:
    path = log_dir.log_dir.path
    sizes = {
        one.partition.path: sum(file.disk_bytes for file in one.found.others if file.name.endswith(_REMOVED_ANYWAY))
        for one in log_dir.partitions
        if one.state_reason is None
    }
    size = sum(sizes.values())
    if size and _is_locked(log_dir):
        manual = f"wait until the broker on {path} has removed its .deleted files"
        yield FreeStep(None, manual, size, "it does so after file.delete.delay.ms, a minute")
    elif size:
        where = f"{quote(path)} -mindepth 2 -maxdepth 2"
        if not log_dir.whole:
            where = f"{' '.join(quote(one) for one in sizes if sizes[one])} -mindepth 1 -maxdepth 1"
        names = r"\( -name '*.deleted' -o -name '*.cleaned' \)"
        why = "of operations that a broker had finished, or will repeat"
        yield FreeStep(f"find {where} -type f {names} -delete", None, size, why)


def _due(usage: DiskUsage, log_dir: LogDirUsage) -> Iterator[FreeStep]:
    """Yield the removals that a broker makes without a command."""
    deleting = [one for one in log_dir.partitions if one.state_reason is Reason.DELETING]
    size = sum(_disk_bytes(usage, log_dir, one) for one in deleting)
    path, is_locked = log_dir.log_dir.path, _is_locked(log_dir)
    if size and not is_locked:
        why = "of deleted partitions: a broker removes them after its start"
        yield _removal(log_dir, [one.partition for one in deleting], size, why)
    elif size:
        manual = f"wait until the broker on {path} has removed its -delete directories"
        yield FreeStep(None, manual, size, "it does so after file.delete.delay.ms, a minute")
    due = [
        segment
        for one in log_dir.partitions
        if one.state_reason is None
        for segment in usage.segments_of(log_dir, one)
        if segment.reason in _DUE
    ]
    if due:
        on_disk = sum(segment.disk_bytes for segment in due)
        in_files = sum(segment.bytes + segment.index_bytes for segment in due)
        what = "wait for the next check of the broker" if is_locked else "start the broker"
        why = "retention deletes these segments at its next check (log.retention.check.interval.ms, 5 minutes)"
        yield FreeStep(None, f"{what} on {path}", on_disk, why, in_files)


def _compaction(gain: CleanerGain) -> FreeStep:
    partition = gain.partition
    if gain.is_locked:
        manual = (
            f"let the cleaner work on {partition.directory}: kafka-configs --alter --entity-type topics"
            f" --entity-name {quote(partition.topic or '')} --add-config min.cleanable.dirty.ratio=0.01"
        )
        return FreeStep(None, manual, gain.bytes, "a broker runs here; about, from a sample")
    why = "about, from a sample; the originals are kept as a backup: name one on another disk, or remove it afterwards"
    preview = f"klog compact {quote(partition.path)} --all --backup DIR"
    return FreeStep(f"{preview} --apply", None, gain.bytes, why, preview=preview)


def _moves(usage: DiskUsage, missing: int) -> Iterator[FreeStep]:
    """Yield moves from the file system with the least free space to the one with the most."""
    systems = [one for one in usage.log_dirs if one.file_system is not None]
    if missing <= 0 or len({one.file_system.device for one in systems if one.file_system}) < 2:
        return
    ordered = sorted(systems, key=lambda one: one.file_system.free if one.file_system else 0)
    source, target = ordered[0], ordered[-1]
    assert source.file_system is not None
    assert target.file_system is not None
    # No further than to where both have the same: it would be the other's turn.
    room = (target.file_system.free - source.file_system.free) // 2
    sized = [(_disk_bytes(usage, source, one), one.partition) for one in source.partitions if one.state_reason is None]
    for size, partition in sorted(sized, key=lambda one: -one[0]):
        if missing <= 0:
            return
        if 0 < size <= room:
            room, missing = room - size, missing - size
            yield _move(partition, target, size)


def _move(partition: Partition, target: LogDirUsage, size: int) -> FreeStep:
    manual = (
        f"move {partition.path} to {target.log_dir.path}: kafka-reassign-partitions with log_dirs"
        f' ["{target.log_dir.path}"] for {partition.directory}'
    )
    return FreeStep(None, manual, size, "that file system has more free space; nothing is lost")
