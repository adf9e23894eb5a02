"""Completes the log dir of a fetch: files that were missing or wrong, epochs, ids and checkpoints."""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Final

from klog.base.progress import Silence
from klog.commands.remote.fetch_dir import FetchDir
from klog.commands.remote.fetch_options import CopiedSegment
from klog.commands.remote.fetch_plan import PartitionToFetch, epochs_between
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.partition import BrokerFiles, Partition
from klog.formats.checkpoint import OffsetEntry, write_epochs, write_offsets, write_partition_metadata
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import FileKind, file_name, parse_file
from klog.formats.producer_snapshot import write_snapshot
from klog.formats.properties import write_clean_shutdown, write_meta_properties
from klog.kernel import crc32c
from klog.partition.repair.partition_survey import PartitionSurvey
from klog.partition.repair.rebuild import repaired_content
from klog.partition.repair.rebuilt_producer_snapshots import RebuiltSnapshots, txn_index
from klog.partition.repair.recover_outcome import RecoverMode, RecoverOptions
from klog.partition.verify.findings import LogDirFacts

_NO_EPOCH: Final = -1


def complete_partition(
    made: FetchDir, planned: PartitionToFetch, copied: Sequence[CopiedSegment], disk: Disk
) -> tuple[list[str], list[str]]:
    """Write the other files of a partition; return the names of all that were written, and of those that were rebuilt.

    *copied*: by base offset, at least one.  Raises KlogError, OSError.
    """
    folder = os.path.join(made.path, planned.folder)
    first, end = first_offset(planned, copied), copied[-1].log_end
    epochs = write_epochs(epochs_between(planned.epochs, first, end))
    names = {
        FileKind.LEADER_EPOCHS: epochs,
        FileKind.PARTITION_METADATA: write_partition_metadata(planned.whose.topic_id),
    }
    written = [made.put(os.path.join(planned.folder, kind.value), content) for kind, content in names.items()]
    rebuilt: list[str] = []
    for name, content in _rebuilt(folder, copied, _missing_snapshots(folder, copied), made.now_ms):
        written.append(made.put(os.path.join(planned.folder, name), content))
        rebuilt.append(name)
    kept = {one.end for one in copied}
    others = {offset: path for offset, path in _snapshots(folder) if offset > end or offset not in kept}
    for offset, path in others.items():
        if offset > end:
            disk.unlink(path)
    written += [path for offset, path in others.items() if offset <= end]
    return list(dict.fromkeys(written)), rebuilt


def _snapshots(folder: str) -> Iterator[tuple[int, str]]:
    """Yield the snapshots in a directory, with their offsets."""
    with os.scandir(folder) as entries:
        for entry in entries:
            parsed = parse_file(entry.name)
            if parsed.kind is FileKind.SNAPSHOT and parsed.offset is not None:
                yield parsed.offset, entry.path


def first_offset(planned: PartitionToFetch, copied: Sequence[CopiedSegment]) -> int:
    """Return the first offset of the log."""
    return max(planned.log_start, copied[0].base)


def _missing_snapshots(folder: str, copied: Sequence[CopiedSegment]) -> set[int]:
    """Return the ends of segments without a snapshot, if a segment has producers."""
    if not any(one.has_producers for one in copied):
        return set()
    ends = {min(one.end, copied[-1].log_end) for one in copied}
    return {end for end in ends if not os.path.lexists(os.path.join(folder, file_name(end, FileKind.SNAPSHOT)))}


def _rebuilt(
    folder: str, copied: Sequence[CopiedSegment], snapshots: set[int], now_ms: int
) -> Iterator[tuple[str, bytes]]:
    """Yield the files that have to be built, as `klog recover` does, by their names."""
    every = ((one.base, set(one.lacks) - {FileKind.SNAPSHOT.value}) for one in copied if one.lacks)
    lacks = {base: kinds for base, kinds in every if kinds}
    if not lacks and not snapshots:
        return
    options = RecoverOptions(RecoverMode.DEFAULT, now_ms, LONG_MAX)
    partition = _from_first(folder, copied, lacks.keys(), snapshots)
    survey = PartitionSurvey.read(partition, LogDirFacts(clean=True), options, Silence())
    if survey.fails is not None:
        return
    target = repaired_content(survey, options)
    files = {name: content for name, content in target.files.files.items() if isinstance(content, bytes)}
    for segment in survey.facts.segments:
        base = segment.files.base_offset
        if FileKind.TXN_INDEX.value in lacks.get(base, ()):
            files[file_name(base, FileKind.TXN_INDEX)] = txn_index(survey.facts, segment, None)
    states = RebuiltSnapshots(survey.facts, options).at(snapshots, set()) if snapshots else {}
    for offset, producers in states.items():
        files[file_name(offset, FileKind.SNAPSHOT)] = write_snapshot(producers, crc32c)
    yield from ((name, content) for name, content in sorted(files.items()) if content or "txn" not in name)


def _from_first(
    folder: str, copied: Sequence[CopiedSegment], bases: Collection[int], snapshots: Collection[int]
) -> Partition:
    """Return a partition without the segments in front of the first that has to be read: nothing is built for them.

    Producers are followed from the last snapshot in front of one that is missing.  A snapshot at the start of the first
    segment would not count, as for a broker: the log has the segment before it, too.
    """
    known = [0, *sorted(offset for offset, _ in _snapshots(folder))]
    first = min([*bases, *(known[bisect_right(known, wanted) - 1] for wanted in snapshots)])
    at = bisect_left(copied, first, key=attrgetter("base")) - 1
    read = {file_name(one.base, FileKind.LOG): one.size for one in copied[max(at, 0) :]}
    start = copied[max(at, 0)].base
    before = known[bisect_right(known, start) - 1]
    with os.scandir(folder) as entries:
        found = (parse_file(entry.name) for entry in entries)
        files = [
            one
            for one in found
            if one.offset is None or one.offset >= (before if one.kind is FileKind.SNAPSHOT else start)
        ]
    return Partition(folder, listing=BrokerFiles(tuple(sorted(files)), sizes=read))


def write_root(
    made: FetchDir, root: str, entries: Mapping[str, tuple[OffsetEntry, int]], cluster_id: str | None
) -> list[str]:
    """Write the files of a log dir itself, below *root*; return their paths.

    *entries*: by partition the line of its log end, and its first offset.  Raises OSError.
    """
    ends = [entry for _, (entry, _) in sorted(entries.items())]
    starts = [OffsetEntry(entry.topic, entry.partition, first) for _, (entry, first) in sorted(entries.items())]
    contents = {
        FileKind.RECOVERY_POINTS: write_offsets(ends),
        FileKind.HIGH_WATERMARKS: write_offsets(ends),
        FileKind.LOG_STARTS: write_offsets(starts),
        FileKind.CLEAN_SHUTDOWN: write_clean_shutdown(_NO_EPOCH),
        FileKind.META_PROPERTIES: write_meta_properties(cluster_id, made.now_ms),
    }
    return [made.put(os.path.join(root, kind.value), content) for kind, content in contents.items()]
