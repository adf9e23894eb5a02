"""Rescues records of batches that decode although their checksum does not match: as lines, never back into a log.

The effect of the damage on them is unknown: a letter of a value, or a timestamp.  People must therefore check them.
"""

from __future__ import annotations

import json
import os
from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.base.progress import Sink
from klog.base.read_only import ReadOnlyFile
from klog.commands.recover.segment_ranges import DroppedBytes, SegmentRanges, salvage_ranges
from klog.data_dir.partition import Partition
from klog.formats.batch import BATCH, OVERHEAD, BatchFacts
from klog.formats.codec import Decompressor
from klog.kernel import Window
from klog.log.bit_flips import whole
from klog.log.header_walk import window_of
from klog.log.json_lines import LineStyle, RecordOrigin, record_lines
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.records import BatchRun, decode_run
from klog.partition.repair.recover_outcome import SalvageOptions


class RescueCount(NamedTuple):
    """How many batches gave how many records."""

    batches: int
    records: int


def rescue_partition(partition: Partition, sink: Sink, max_batch_bytes: int = MAX_BATCH_BYTES) -> RescueCount:
    """Do so for a whole partition.  Raises UnreadableError when a log cannot be opened."""
    total = RescueCount(0, 0)
    for segment in salvage_ranges(partition, SalvageOptions()).segments:
        origin = RecordOrigin(f"{partition.directory}/{segment.files.log}", partition.topic, partition.number)
        found = rescue(partition.path, segment, origin, sink, max_batch_bytes)
        total = RescueCount(total.batches + found.batches, total.records + found.records)
    return total


def rescue(folder: str, segment: SegmentRanges, origin: RecordOrigin, sink: Sink, max_batch_bytes: int) -> RescueCount:
    """Write the records of damaged batches that decode wholly to *sink*: JSON lines as `klog dump` writes them.

    Each has two members more: `"rescued":true`, and in `"why"` the fault of its batch.  Offsets that are impossible
    between the kept batches prove that more than the checksum is wrong: such batches yield no records.  *folder*: the
    partition's directory.  Raises UnreadableError when the log cannot be opened.
    """
    batches = records = 0
    damaged = [cut for cut in segment.cuts if not cut.batches and cut.bytes == cut.end - cut.start]
    if not damaged:
        return RescueCount(0, 0)
    with ReadOnlyFile(os.path.join(folder, segment.files.log)) as source:
        for cut in damaged:
            found = _decodable(source, cut, segment.files.base_offset, max_batch_bytes)
            if found is not None:
                records += _write(*found, origin, sink, max_batch_bytes)
                batches += 1
    return RescueCount(batches, records)


def _decodable(source: ReadOnlyFile, cut: DroppedBytes, base: int, max_bytes: int) -> tuple[BatchFacts, bytes] | None:
    """Return the batch that *cut* is, with its bytes, if it is whole but for its checksum."""
    try:
        head = source.read(cut.start, BATCH.size)
        if len(head) < BATCH.size:
            return None  # the file has shrunk
        _, claimed, _, magic, *_ = BATCH.read(head)
        size = claimed + OVERHEAD
        if magic != 2 or not BATCH.size <= size <= min(cut.bytes, max_bytes):
            return None
        data = source.read(cut.start, size)
    except UnreadableError:
        return None
    facts = whole(data, cut.start, max_bytes, needs_checksum=False) if len(data) == size else None
    if facts is None or (cut.after is not None and facts.last_offset >= cut.after):
        return None
    return (facts, data) if facts.base_offset > (base - 1 if cut.before is None else cut.before) else None


def _write(facts: BatchFacts, data: bytes, origin: RecordOrigin, sink: Sink, max_bytes: int) -> int:
    """Write a batch's records; return how many there were."""
    why = f"bad CRC: CRC-32C 0x{facts.crc:08x}, computed 0x{facts.computed_crc:08x}"
    fields = origin.json() + f',"rescued":true,"why":{json.dumps(why)}'.encode()
    window = window_of(data, facts.position, output=1 << 18)
    window.scan(0)
    records = 0
    for _ in decode_run(BatchRun(window, 0, 1), Decompressor(max_bytes).functions, origin.file):
        records += window.records
        _lines(window, fields, sink)
    return records


def _lines(window: Window, fields: bytes, sink: Sink) -> None:
    for piece in record_lines(window, 0, window.records, fields, LineStyle()):
        sink.write(piece)
    sink.write(window.output())
    window.flushed()
