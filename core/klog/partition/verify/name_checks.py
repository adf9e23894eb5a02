"""Checks the names in a partition directory, and its small files."""

from __future__ import annotations

from collections import Counter

from klog.formats.checkpoint import Malformed
from klog.formats.names import SEGMENT_KINDS, FileKind, FileName, PartitionState, Stage
from klog.partition.start.start_reasons import GOES_OFFLINE, REASONS, REFUSES
from klog.partition.verify.facts import Findings, PartitionFacts

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
    Stage.DELETED: "waiting to be removed; the next start removes it",
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
