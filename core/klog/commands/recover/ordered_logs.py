"""The logs in which each batch follows the one before, as a survey notes them.

A few numbers describe such a log, and salvage keeps it whole.  It reads every other log again, from its start.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import SegmentFiles
from klog.formats.damage import Damage
from klog.formats.java_integers import LONG_MAX
from klog.kernel import ascending_run
from klog.log.records import BatchRun
from klog.log.segment import MAX_RELATIVE_OFFSET
from klog.partition.verify.segment_pass import SegmentFacts


class OrderedLog(NamedTuple):
    """A log without damage whose offsets and leader epochs ascend: its *size* in bytes, its batches and records.

    *epoch*: the leader epoch of the last batch, -1 for none.  *is_transactional*: some batches are.
    """

    size: int
    first_offset: int
    last_offset: int
    epoch: int = -1
    batches: int = 0
    records: int = 0
    is_transactional: bool = False


class OrderedLogs:
    """A BatchObserver that collects the ordered logs of a partition, by their names, in *logs*."""

    def __init__(self, segments: Sequence[SegmentFiles]) -> None:
        self.logs: dict[str, OrderedLog] = {}
        self._next_bases = dict(_next_bases(segments))

    def begin(self, source: ReadOnlyFile, facts: SegmentFacts) -> None:
        """Begin a segment."""
        self._name, base = facts.files.log, facts.files.base_offset
        self._ceiling = min(self._next_bases[self._name] - 1, base + MAX_RELATIVE_OFFSET)
        self._log: OrderedLog | None = OrderedLog(0, base, base - 1)

    def take(self, run: BatchRun) -> None:
        """Take intact batches."""
        if self._log is not None:
            self._log = self._extended(self._log, run)

    def _extended(self, log: OrderedLog, run: BatchRun) -> OrderedLog | None:
        """Return *log* with the batches of *run*; None if one of them does not follow."""
        window, first, end = run.window, run.first, run.end
        if first == end:
            return log
        if window.position + window.at(first) != log.size:
            return None
        good, records = ascending_run(window, first, end, log.last_offset, log.epoch, self._ceiling)
        if good < end:
            return None
        last = window.batch(end - 1)
        return OrderedLog(
            last.position + last.size,
            log.first_offset if log.batches else window.batch(first).base_offset,
            last.last_offset,
            last.leader_epoch,
            log.batches + end - first,
            log.records + records,
            log.is_transactional or bool(window.transactional(first, end)),
        )

    def damaged(self, damage: Damage) -> None:
        """Take a stretch without intact batches."""
        self._log = None

    def end(self, size: int) -> None:
        """End the segment after *size* bytes."""
        if self._log is not None and self._log.size == size:
            self.logs[self._name] = self._log


def _next_bases(segments: Sequence[SegmentFiles]) -> list[tuple[str, int]]:
    """Return for each log the base offset of the next one that is not empty; LONG_MAX where there is none."""
    found, next_base = [], LONG_MAX
    for files in reversed(segments):
        found.append((files.log, next_base))
        next_base = files.base_offset if files.size else next_base
    return found
