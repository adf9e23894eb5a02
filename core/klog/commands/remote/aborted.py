"""The ABORT markers in a log, which its transaction index has to list."""

from __future__ import annotations

from klog.base.read_only import ReadableLog
from klog.formats.batch import CONTROL_BIT
from klog.formats.control import control_record
from klog.formats.damage import Damage
from klog.kernel import Window
from klog.log.reader import LogReader
from klog.log.segment import Batch

_ABORT = 0


def abort_markers(log: ReadableLog) -> dict[int, int]:
    """Return the offsets of the ABORT markers in the intact batches of a log, each with its producer's id."""
    found: dict[int, int] = {}
    reader, window = LogReader(log, checked=True), Window()
    while (piece := reader.next(window)) is not None:
        if piece.stop is not None:
            break
        window.check(0, window.count)
        for row in window.transactional(0, window.count):
            batch = Batch.of_row(window, row, log.path)
            if not batch.attributes & CONTROL_BIT:
                continue
            for record in batch.records():
                if not isinstance(record, Damage) and control_record(record.key, record.value).type_id == _ABORT:
                    found[record.offset] = batch.producer_id
    return found
