"""Checks the other state of a partition: epochs, snapshots, checkpoints."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from klog.formats.checkpoint import EpochEntry, epochs_in_force
from klog.formats.names import FileKind
from klog.partition.start.start_reasons import GOES_OFFLINE, REFUSES
from klog.partition.verify.facts import Findings, PartitionFacts
from klog.partition.verify.findings import Finding

_EPOCHS = FileKind.LEADER_EPOCHS.value


def epochs(facts: PartitionFacts) -> Findings:
    """`leader-epoch-checkpoint` against the epochs of the batches."""
    found = facts.partition.epochs
    seen = [(epoch, offset) for segment in facts.segments for epoch, offset, _ in segment.survey.epochs]
    if found is None:
        if seen and facts.is_current:
            yield facts.finding("epochs-missing", f"the batches have epochs up to {max(epoch for epoch, _ in seen)}")
        return
    if found.malformed is not None:
        broker = REFUSES if found.malformed.is_unchecked else GOES_OFFLINE
        yield facts.finding("epochs-malformed", str(found.malformed), _EPOCHS, broker=broker)
        return
    kept = epochs_in_force(found.entries)
    if len(kept) != len(found.entries):
        yield facts.finding("epochs-disagree", "entries that do not ascend: a broker drops some", _EPOCHS)
    if facts.is_current:
        for message, offset in _disagreements(facts, kept, seen):
            if facts.is_compacted:
                return
            yield facts.finding("epochs-disagree", message, _EPOCHS, offset=offset)


def _disagreements(
    facts: PartitionFacts, kept: list[EpochEntry], seen: list[tuple[int, int]]
) -> Iterator[tuple[str, int]]:
    """Yield the contradictions of the batches, with the offset: an epoch that begins there, or one beyond the end."""
    starts = [entry.start_offset for entry in kept]
    told: set[tuple[int, int | None]] = set()
    for epoch, offset in seen:
        at = bisect_right(starts, offset) - 1
        said = kept[at].epoch if at >= 0 else None
        if said != epoch and (epoch, said) not in told and offset >= (facts.partition.log_start_offset or 0):
            told.add((epoch, said))
            there = "nothing" if said is None else said
            yield f"a batch of epoch {epoch} at offset {offset}, where it says {there}", offset
    end = facts.end_offset
    if end is not None and kept and kept[-1].start_offset > end:
        start = kept[-1].start_offset
        yield f"epoch {kept[-1].epoch} begins at {start}, the log ends at {end}", start


def snapshots(facts: PartitionFacts) -> Findings:
    """Producer snapshots by themselves: whether a broker would take them."""
    for name, offset, snapshot in facts.snapshots:
        if snapshot.problem is not None:
            yield facts.finding("snapshot-corrupt", snapshot.problem.strip(), name, 0, offset)
            continue
        late = [producer for producer in snapshot.producers if producer.last_offset >= offset]
        if late:
            message = f"producer {late[0].producer_id} has offset {late[0].last_offset} in it, beyond its own"
            yield facts.finding("snapshot-disagrees", message, name, offset=offset)
    has_producers = any(segment.survey.producer_batches for segment in facts.segments)
    # A running broker takes the first one when it rolls, or stops.
    is_due = not facts.log_dir.live or len(facts.segments) > 1
    is_kept = facts.is_current and facts.partition.topic != "__cluster_metadata"
    if not facts.snapshots and has_producers and is_kept and is_due:
        yield facts.finding("snapshots-missing", "the log has batches with producers")


def checkpoints(facts: PartitionFacts) -> Findings:
    """The log dir's checkpoints against the log."""
    partition, end = facts.partition, facts.end_offset
    if end is None or not facts.is_current:
        return
    start = partition.log_start_offset or 0
    damaged = any(segment.damages or segment.unreadable for segment in facts.segments[-1:])
    for kind, said, file in (
        ("recovery-point-beyond-end", partition.recovery_point, FileKind.RECOVERY_POINTS),
        ("high-watermark-beyond-end", partition.high_watermark, FileKind.HIGH_WATERMARKS),
    ):
        if said is not None and said > end and not damaged and not facts.log_dir.live:
            yield _of_root(facts, kind, f"{said}, the log ends at {end}", file, said)
    if start > end:
        yield _of_root(facts, "log-start-beyond-end", f"{start}, the log ends at {end}", FileKind.LOG_STARTS, start)
    elif partition.high_watermark is not None and partition.high_watermark < start:
        message = f"{partition.high_watermark}, the log starts at {start}"
        yield _of_root(facts, "high-watermark-below-start", message, FileKind.HIGH_WATERMARKS, partition.high_watermark)
    cleaner = partition.cleaner_offset
    if cleaner is not None and not start <= cleaner <= end:
        message = f"{cleaner}, the log goes from {start} to {end}"
        yield _of_root(facts, "cleaner-offset-outside", message, FileKind.CLEANER_OFFSETS, cleaner)


def _of_root(facts: PartitionFacts, kind: str, message: str, file: FileKind, offset: int) -> Finding:
    return facts.finding(kind, f"{facts.partition.directory}: {message}", offset=offset)._replace(file=file.value)
