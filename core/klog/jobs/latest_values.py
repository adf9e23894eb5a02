"""The last value of each key of a compacted topic, as files by topic and partition.

A partition is read twice: for the last offset of each key, and for the records at these offsets.  If the keys do not
fit into their memory, they are divided by their digests, and the partition is read for each part.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import groupby

from klog.base.progress import Sink
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.jobs.export import ExportOptions, ExportTask, plan_tasks, write_all, write_in_attempts
from klog.jobs.output import Facts
from klog.jobs.output_files import OutputFiles
from klog.jobs.results import TaskResult
from klog.jobs.runner import Runner
from klog.jobs.slice_scan import SliceScan
from klog.jobs.slices import LogSlice
from klog.kernel import OffsetMap

_MOST_PARTS = 64
"""At once: the beginning of a log may have far more keys than the rest."""


def export_latest_values(
    partitions: Iterable[Partition], to: str, options: ExportOptions, runner: Runner, sink: Sink
) -> Facts:
    """Write the last value of each key of *partitions* as files below *to*: the table of a read_committed consumer.

    See `klog.jobs.export.export_records` for everything else.
    """
    pieces = plan_tasks(partitions, options.wanted, "read_committed", whole=True)
    return write_all("latest", write_latest_values, pieces, to, options, runner, sink)


def write_latest_values(unit: Sequence[ExportTask], options: ExportOptions) -> Iterator[TaskResult]:
    """Write the last record of each key of the pieces of *unit*, but for those without a value.

    Pieces are of whole partitions.  Yields a result `piece` of each.  Raises OSError when writing fails.
    """
    scan = SliceScan(options.wanted, options.max_batch_bytes)
    offsets = OffsetMap(options.map_memory)

    def write(piece: ExportTask, tables: OutputFiles) -> Iterator[tuple[LogSlice, Damage]]:
        for _, slices in groupby(piece.slices, lambda part: os.path.dirname(part.path)):
            yield from _latest(list(slices), scan, offsets, tables)

    return write_in_attempts(unit, options, write)


def _latest(
    slices: Sequence[LogSlice], scan: SliceScan, offsets: OffsetMap, tables: OutputFiles
) -> Iterator[tuple[LogSlice, Damage]]:
    """Write the table of one partition."""
    waiting = [(0, 1)]
    while waiting:
        part, parts = waiting.pop()
        offsets.clear(max(slices[0].base, 0), part, parts)
        more = yield from _fill(slices, scan, offsets)
        if more > 1:
            waiting += [(part + k * parts, parts * more) for k in reversed(range(more))]
        else:
            yield from _write(slices, scan, offsets, tables)


def _fill(
    slices: Sequence[LogSlice], scan: SliceScan, offsets: OffsetMap
) -> Generator[tuple[LogSlice, Damage], None, int]:
    """Fill the map; return 1 when all keys are in it, else into how many parts they are better divided."""
    read = 0
    for part in slices:
        for found in scan.read(part):
            if isinstance(found, Damage):
                yield part, found
            elif (filled := offsets.fill(found, 0, 0)) < found.records:
                done = read + scan.position - part.start + found.size * filled // found.records
                return min(max(2, -(-sum(one.bytes for one in slices) // max(done, 1))), _MOST_PARTS)
        read += part.bytes
    return 1


def _write(
    slices: Sequence[LogSlice], scan: SliceScan, offsets: OffsetMap, tables: OutputFiles
) -> Iterator[tuple[LogSlice, Damage]]:
    """Write the records that the map has."""
    for part in slices:
        tables.begin(part)
        for found in scan.read(part):
            if isinstance(found, Damage):
                yield part, found
            elif offsets.keep_latest(found, False):
                yield from [(part, damage) for damage in tables.add(found)]
