"""read_committed by reading a whole log first, markers included: the slow way, which believes no index."""

from __future__ import annotations

from collections.abc import Sequence

from klog.base.read_only import ReadOnlyFile
from klog.formats.batch import Attributes
from klog.kernel import Window
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.segment import Segment

_ABORT = 0


class Committed:
    """The fate of every transaction in a log, learnt from its markers.

    A data batch belongs to the transaction that the next marker of its producer ends.  Nothing at or after
    *last_stable_offset* is seen: the first offset of the earliest transaction without a marker, else the log's end.
    """

    def __init__(self, aborted: set[int], last_stable_offset: int) -> None:
        self._aborted = aborted
        self.last_stable_offset = last_stable_offset

    def skip(self, window: Window) -> None:
        """Leave out the aborted batches of *window*."""
        for i in window.transactional(0, window.count):
            if window.batch(i).base_offset in self._aborted:
                window.skip(i)


def learn(paths: Sequence[str]) -> Committed:
    """Read the headers and markers of logs (ascending: all of a partition, for the answer to be right)."""
    window = Window()
    aborted: set[int] = set()
    open_batches: dict[int, list[int]] = {}  # producer id → base offsets of its open transaction's batches
    end = 0
    for path in paths:
        with ReadOnlyFile(path) as source:
            reader = Segment(path).reader(source, max_batch_bytes=MAX_BATCH_BYTES)
            while reader.next(window):
                window.check(0, window.count)
                _apply(window, open_batches, aborted)
                if window.count:
                    end = window.batch(window.count - 1).last_offset + 1
    undecided = [batches[0] for batches in open_batches.values() if batches]
    return Committed(aborted, min(undecided, default=end))


def _apply(window: Window, open_batches: dict[int, list[int]], aborted: set[int]) -> None:
    for i in window.transactional(0, window.count):
        facts = window.batch(i)
        if not facts.crc_holds:
            continue
        if not facts.attributes & Attributes.CONTROL:
            open_batches.setdefault(facts.producer_id, []).append(facts.base_offset)
            continue
        window.begin(i, i + 1)
        window.decode()
        batches = open_batches.pop(facts.producer_id, [])
        key = window.record(0)[2] if window.records else None
        if key is not None and len(key) >= 4 and int.from_bytes(key[2:4], "big") == _ABORT:
            aborted.update(batches)
