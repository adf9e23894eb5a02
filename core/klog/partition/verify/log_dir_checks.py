"""Checks a log dir: its directories, its checkpoints, its owner."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from klog.data_dir.log_dir import LogDir
from klog.formats.checkpoint import Malformed
from klog.formats.follow_file import FOLLOW_FILE
from klog.formats.names import ROOT_CHECKPOINTS, FileKind, PartitionState
from klog.partition.start.start_reasons import REASONS
from klog.partition.verify.findings import KINDS, Finding, quoted


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
            broker = REASONS["checkpoint-number" if malformed.is_unchecked else "checkpoint-malformed"].broker
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
