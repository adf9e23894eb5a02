"""Checks everything beside the logs and their indexes.

In a partition: the names of its files, its metadata, epochs, snapshots and checkpoints.  In a log dir: its directories,
its checkpoints, its owner.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator

from klog.data_dir.log_dir import LogDir
from klog.formats.checkpoint import EpochEntry, Malformed, epochs_in_force
from klog.formats.follow_file import FOLLOW_FILE
from klog.formats.names import ROOT_CHECKPOINTS, SEGMENT_KINDS, FileKind, FileName, PartitionState, Stage
from klog.partition.start.start_reasons import CHECKPOINT_NUMBER, GOES_OFFLINE, REASONS, REFUSES, WATERMARK_NUMBER
from klog.partition.verify.findings import KINDS, Finding, Findings, PartitionFacts, quoted

_OF_MARKED = {
    PartitionState.DELETE: REASONS["marked-delete"].broker,
    PartitionState.STRAY: REASONS["marked-stray"].broker,
    PartitionState.FUTURE: REASONS["copy-unfinished"].broker,
}
_NUMBERED = (*SEGMENT_KINDS, FileKind.SNAPSHOT)


def names(facts: PartitionFacts) -> Findings:
    """Files whose names stop a broker, confuse it, or belong to an unfinished operation."""
    partition = facts.partition
    if partition.unreadable is not None:
        yield facts.finding("unreadable", partition.unreadable)
    if partition.name is not None and not partition.name.canonical:
        yield facts.finding("odd-name", f"read as partition {partition.name.partition} of {partition.name.topic}")
    if partition.state.value != "current":
        message = f"the directory is marked {partition.state.value}"
        yield facts.finding("stray-directory", message, broker=_OF_MARKED.get(partition.state))
    elif not partition.segments and partition.unreadable is None:
        yield facts.finding("partition-empty", "no segment")
    for file in partition.files:
        yield from _file(facts, file)
    yield from _pairs(facts)


def _file(facts: PartitionFacts, file: FileName) -> Findings:
    numbered = file.kind in _NUMBERED
    if numbered and file.offset is None and file.stage is not Stage.DELETED:
        yield facts.finding("foreign-log-name", "the part before the first dot is not an offset", file.name)
    elif file.stage is not Stage.IN_USE:
        fix = "" if file.stage in (Stage.TMP, Stage.PART) else None  # no start takes notice of these
        yield facts.finding("leftover", _LEFT[file.stage], file.name, fix=fix)
    elif numbered and not file.canonical:
        yield facts.finding("odd-name", f"read as offset {file.offset}", file.name, offset=file.offset)


_LEFT = {
    Stage.DELETED: "marked for removal; the next start removes it",
    Stage.CLEANED: "left by an unfinished compaction; the next start removes it",
    Stage.SWAP: "left by a finished compaction; the next start puts it in place",
    Stage.PART: "left by an unfinished metadata snapshot",
    Stage.TMP: "left by an unfinished write",
}


def _pairs(facts: PartitionFacts) -> Findings:
    in_use = [file for file in facts.partition.files if file.stage is Stage.IN_USE and file.kind in _NUMBERED]
    logs = {file.offset for file in in_use if file.kind is FileKind.LOG}
    for (kind, offset), count in Counter((file.kind, file.offset) for file in in_use).items():
        if count > 1 and offset is not None:
            twice = [file.name for file in in_use if (file.kind, file.offset) == (kind, offset)]
            yield facts.finding("duplicate-segment", f"{' and '.join(twice)} are both offset {offset}", twice[-1])
    for file in in_use:
        is_index = file.kind in SEGMENT_KINDS and file.kind is not FileKind.LOG
        if is_index and file.offset is not None and file.offset not in logs:
            yield facts.finding("orphan-index", "its log is not here", file.name, offset=file.offset)


def metadata(facts: PartitionFacts) -> Findings:
    """`partition.metadata`, without which a KRaft broker sets the partition aside."""
    found = facts.partition.metadata
    if isinstance(found, Malformed):
        broker = REFUSES if found.is_unchecked else GOES_OFFLINE
        yield facts.finding("metadata-malformed", str(found), FileKind.PARTITION_METADATA.value, broker=broker)
    elif found is None and facts.log_dir.kraft and facts.is_current and facts.partition.topic != "__cluster_metadata":
        yield facts.finding("metadata-missing", "a broker of a KRaft cluster needs it")


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
            there = "no epoch" if said is None else f"epoch {said}"
            yield f"the batch at offset {offset} has epoch {epoch}, but the checkpoint has {there} there", offset
    end = facts.end_offset
    if end is not None and kept and kept[-1].start_offset > end:
        start = kept[-1].start_offset
        yield f"epoch {kept[-1].epoch} begins at {start}, but the log ends at {end}", start


def snapshots(facts: PartitionFacts) -> Findings:
    """Producer snapshots by themselves: whether a broker would take them."""
    for name, offset, snapshot in facts.snapshots:
        if snapshot.problem is not None:
            yield facts.finding("snapshot-corrupt", snapshot.problem.strip(), name, 0, offset)
            continue
        late = [producer for producer in snapshot.producers if producer.last_offset >= offset]
        if late:
            message = f"producer {late[0].producer_id} has offset {late[0].last_offset}, beyond the snapshot's own"
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
            yield _of_root(facts, kind, f"{said}, but the log ends at {end}", file, said)
    if start > end:
        yield _of_root(facts, "log-start-beyond-end", f"{start}, but the log ends at {end}", FileKind.LOG_STARTS, start)
    elif (first := partition.start_by_epochs) is not None:
        message = f"{start}, but the leader epochs begin at {first}"
        yield _of_root(facts, "log-start-raised", message, FileKind.LOG_STARTS, start)
    elif partition.high_watermark is not None and partition.high_watermark < start:
        message = f"{partition.high_watermark}, but the log starts at {start}"
        yield _of_root(facts, "high-watermark-below-start", message, FileKind.HIGH_WATERMARKS, partition.high_watermark)
    cleaner = partition.cleaner_offset
    if cleaner is not None and not start <= cleaner <= end:
        message = f"{cleaner}, but the log starts at {start} and ends at {end}"
        yield _of_root(facts, "cleaner-offset-outside", message, FileKind.CLEANER_OFFSETS, cleaner)


def _of_root(facts: PartitionFacts, kind: str, message: str, file: FileKind, offset: int) -> Finding:
    return facts.finding(kind, f"{facts.partition.directory}: {message}", offset=offset)._replace(file=file.value)


def root(log_dir: LogDir) -> Iterator[Finding]:
    """Yield the faults of the log dir, besides its partitions.  Raises UnreadableError when it cannot be listed."""
    for name in log_dir.foreign_directories:
        message = "its name is not a partition's"
        yield _finding(
            log_dir, "foreign-directory", name, message, fix=f"move {quoted(name)} out of {quoted(log_dir.path)}"
        )
    yield from _twice(log_dir)
    for kind in ROOT_CHECKPOINTS:
        malformed = log_dir.checkpoints.malformed(kind)
        if malformed is not None:
            number = WATERMARK_NUMBER if kind is FileKind.HIGH_WATERMARKS else CHECKPOINT_NUMBER
            broker = REASONS[number if malformed.is_unchecked else "checkpoint-malformed"].broker
            yield _finding(log_dir, "checkpoint-malformed", kind.value, str(malformed), broker=broker)
    meta = log_dir.meta
    if isinstance(meta, Malformed):
        yield _finding(log_dir, "meta-properties-malformed", FileKind.META_PROPERTIES.value, str(meta))
    elif meta is None and log_dir.partitions:
        yield _finding(log_dir, "meta-properties-missing", FileKind.META_PROPERTIES.value, "the log dir has partitions")
    followed = log_dir.checkpoints.follow_file
    if isinstance(followed, Malformed):
        yield _finding(log_dir, "follow-file-malformed", FOLLOW_FILE, str(followed))
    for file in log_dir.leftovers:
        yield _finding(log_dir, "leftover", file.name, "left by an unfinished write", fix="")


def _twice(log_dir: LogDir) -> Iterator[Finding]:
    by_partition: dict[tuple[str | None, int | None], list[str]] = defaultdict(list)
    for partition in log_dir.partitions:
        if partition.state is PartitionState.CURRENT:
            by_partition[partition.topic, partition.number].append(partition.directory)
    for directories in by_partition.values():
        if len(directories) > 1:
            message = f"{' and '.join(directories)} are the same partition"
            yield _finding(log_dir, "duplicate-partition", directories[-1], message)


def _finding(
    log_dir: LogDir, kind: str, file: str, message: str, fix: str | None = None, broker: str | None = None
) -> Finding:
    known = KINDS[kind]
    if fix is None:
        fix = known.fix.format(log_dir=quoted(log_dir.path), partition=quoted(log_dir.path))
    return Finding(known, None, None, file, None, None, message, broker or known.broker, fix)
