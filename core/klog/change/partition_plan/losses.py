"""Counts the records in parts of a log: those that a repair keeps, and those that it loses."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.change.plan.model import Loss
from klog.data_dir.partition import Partition
from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage
from klog.formats.header import HEADER_BYTES, read_header
from klog.formats.java_integers import LONG_MAX
from klog.kernel import SegmentSurvey
from klog.log.segment import Segment

_MOST_OFFSETS = 1 << 20
"""A damaged batch that claims more offsets than this is not believed."""


class RecordCount(NamedTuple):
    """The intact batches of a stretch.  Offsets: None without one.  *records*: a batch before v2 counts as one."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None

    def plus(self, other: RecordCount) -> RecordCount:
        """Return the sum of both; *other* follows."""
        first = self.first_offset if self.first_offset is not None else other.first_offset
        last = other.last_offset if other.last_offset is not None else self.last_offset
        return RecordCount(self.records + other.records, first, last)


def count_records(path: str, start: int = 0, end: int | None = None) -> RecordCount:
    """Read bytes *start* to *end* of a log, where batches begin and end, or damage does.  Raises UnreadableError."""
    survey, last_offset = SegmentSurvey(0, LONG_MAX, b"", b""), None
    for run in Segment(path, bounded=False).runs(start, end):
        if not isinstance(run, Damage):
            survey.walk(run.window, run.first, run.end)
            last_offset = run.window.batch(run.end - 1).last_offset
    return RecordCount(survey.records + survey.legacy, survey.first_offset if survey.batches else None, last_offset)


def torn_batch(path: str, position: int, expected: int) -> RecordCount:
    """Return the counts in the header of the batch that begins at *position*, if it is the expected one."""
    with ReadOnlyFile(path) as source:
        data = source.read(position, HEADER_BYTES)
    header = read_header(data, 0, position, 2**31 - 1) if len(data) == HEADER_BYTES else None
    if not isinstance(header, BatchFacts) or header.magic < 2 or header.base_offset != expected:
        return RecordCount()
    records, offsets = header.records_count, header.last_offset - header.base_offset + 1
    if not 0 < records <= offsets <= _MOST_OFFSETS:
        return RecordCount()
    return RecordCount(records, header.base_offset, header.last_offset)


def cut_loss(partition: Partition, log: str, position: int, expected: int, reason: str, found: RecordCount) -> Loss:
    """Return the loss of everything from *position* of a log on, where offset *expected* was the next.

    *found*: the intact batches there.  Raises UnreadableError.
    """
    path = partition.file(log)
    if found.first_offset != expected:
        found = torn_batch(path, position, expected).plus(found)
    return _loss(partition, found, os.path.getsize(path) - position, reason, expected)


def whole_losses(
    partition: Partition, logs: Iterable[str], reason: str, count: Callable[[str], RecordCount] | None = None
) -> list[Loss]:
    """Return the loss of whole logs, one for each; *count* counts their records, else they are read.

    Raises UnreadableError.
    """
    losses = []
    for log in logs:
        path = partition.file(log)
        size = os.path.getsize(path)
        if size:
            found = count_records(path) if count is None else count(log)
            losses.append(_loss(partition, found, size, reason, None))
    return losses


def _loss(partition: Partition, found: RecordCount, size: int, reason: str, expected: int | None) -> Loss:
    first = found.first_offset if found.first_offset is not None else expected
    return Loss(partition.topic, partition.number, first, found.last_offset, found.records, size, reason)
