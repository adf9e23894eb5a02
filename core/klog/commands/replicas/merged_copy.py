"""A copy whose bad batches are replaced by intact ones of other copies, in a directory of its own.

A replacement has the same identity as the bad batch, as far as the header of that one shows it: base offset, last
offset, leader epoch, CRC and size.  All positions are therefore unchanged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from klog.base.errors import DamagedError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.disk.directory_tree import remove_tree
from klog.data_dir.disk.disk import Disk
from klog.data_dir.partition import Partition
from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage
from klog.formats.header import HEADER_BYTES, read_header
from klog.formats.names import FileKind, Stage
from klog.log.segment import Segment


class Replacement(NamedTuple):
    """Bytes *position* to *position* + *size* of a log, and the place of the same batch, intact."""

    position: int
    size: int
    path: str
    start: int


@contextmanager
def merged_copy(partition: Partition, others: Sequence[Partition], disk: Disk) -> Iterator[tuple[Partition, int]]:
    """Yield a copy of *partition* without bad batches, which is deleted afterwards, and the offset where it ends.

    A batch that the log ends inside of is completed, too, if another copy has it.  Raises DamagedError for a bad batch
    that no other copy has intact, UnreadableError, OSError.
    """
    place, end = disk.private_directory(), partition.log_start_offset or 0
    try:
        folder = os.path.join(place, partition.directory)
        disk.make_directory(folder)
        for name in partition.files:
            if name.stage is Stage.IN_USE:
                found: list[Replacement] = []
                if name.kind is FileKind.LOG:
                    found, end_here = _replacements(partition, name.name, others)
                    end = max(end, end_here)
                _write(disk, partition.file(name.name), os.path.join(folder, name.name), found)
        yield Partition(folder, partition.checkpoints, partition.name), end
    finally:
        remove_tree(place, disk)


def _write(disk: Disk, source: str, target: str, found: Sequence[Replacement]) -> None:
    file = disk.create(target)
    try:
        at = 0
        for one in found:
            disk.copy(source, at, one.position, file)
            disk.copy(one.path, one.start, one.start + one.size, file)
            at = one.position + one.size
        disk.copy(source, at, max(at, os.path.getsize(source)), file)
        modified_ns = os.stat(source).st_mtime_ns
        disk.set_metadata(file, 0o600, os.geteuid(), os.getegid(), modified_ns)
    finally:
        disk.close(file)


def _replacements(partition: Partition, name: str, others: Sequence[Partition]) -> tuple[list[Replacement], int]:
    """Return the replacements of the bad batches in one log, and the offset behind its last batch."""
    path = partition.file(name)
    is_last = name == partition.segments[-1].log
    found, end = [], 0
    for run in Segment(path, bounded=False).runs():
        if not isinstance(run, Damage):
            end = run.window.batch(run.end - 1).last_offset + 1
            continue
        position = run.place.position or 0
        with ReadOnlyFile(path) as file:
            data = file.read(position, HEADER_BYTES)
        bad = read_header(data, 0, position, 2**31 - 1) if len(data) == HEADER_BYTES else None
        twin = _twin(bad, others) if isinstance(bad, BatchFacts) else None
        if twin is None or not isinstance(bad, BatchFacts):
            if is_last and run.is_unfinished:
                continue
            raise DamagedError(f"{run.place}: no other copy has this batch intact")
        found.append(Replacement(position, bad.size, *twin))
        end = bad.last_offset + 1
    return found, end


def _twin(bad: BatchFacts, others: Sequence[Partition]) -> tuple[str, int] | None:
    """Return where an intact batch of the same identity is: a log and its position there."""
    for other in others:
        kept = [files for files in other.segments if files.base_offset <= bad.base_offset]
        for files in kept[-1:]:
            path = other.file(files.log)
            for run in Segment(path, bounded=False).runs():
                if isinstance(run, Damage):
                    continue
                at = max(run.window.first_reaching(bad.base_offset, run.first), run.first)
                if at < run.end:
                    batch = run.window.batch(at)
                    if _identity(batch) == _identity(bad):
                        return path, batch.position
                    break
    return None


def _identity(batch: BatchFacts) -> tuple[int, int, int, int, int]:
    return batch.base_offset, batch.last_offset, batch.leader_epoch, batch.crc, batch.size
