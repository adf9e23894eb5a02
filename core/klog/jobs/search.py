"""Finds records by key, header, regular expression, offset or time, as JSON lines.

for unit in …:  search(unit, query)         # tasks
merged(answers, limit)                      # lines by topic, partition and offset
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from klog.base.errors import UsageError
from klog.formats.damage import Damage
from klog.jobs.export import ExportTask, damage_facts
from klog.jobs.results import TaskResult, json_result
from klog.jobs.slice_reader import SliceScan
from klog.kernel import Window
from klog.log.json_lines import LineStyle, RecordOrigin, record_lines
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.record_filter import RecordFilter, RecordLimit

_ANSWER_BYTES = 1 << 20


class SearchQuery(NamedTuple):
    """Conditions on a record, which must all be met.

    *wanted*: keys, offsets, times; of its *limit* each piece gives so many at most.  *header*: its name and value; None
    instead of the value for any, null too.  *pattern*: of a regular expression that is found somewhere in the value, as
    it stands.  *style*: how lines are to look.
    """

    wanted: RecordFilter = RecordFilter()
    header: tuple[bytes, bytes | None] | None = None
    pattern: bytes | None = None
    style: LineStyle = LineStyle()
    max_batch_bytes: int = MAX_BATCH_BYTES


def compile_pattern(pattern: bytes) -> re.Pattern[bytes]:
    """Return a regular expression over bytes.  Raises UsageError where it is none."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{pattern.decode(errors='replace')}: not a regular expression: {error}") from error


def search(unit: Sequence[ExportTask], query: SearchQuery) -> Iterator[TaskResult]:
    """Yield answers `lines`, what was found in each piece in its order, `damage` where something is broken.

    Raises nothing for what is on the disk.
    """
    scan = SliceScan(query.wanted, query.max_batch_bytes)
    find = None if query.pattern is None else compile_pattern(query.pattern).search
    for piece in unit:
        count = RecordLimit(query.wanted.limit)
        waiting = bytearray()
        for part in piece.slices:
            fields = RecordOrigin(part.path, part.topic, part.partition).json()
            for found in scan.read(part) if count.left != 0 else ():
                if isinstance(found, Damage):
                    yield json_result("damage", damage_facts(part, found), piece.number)
                    continue
                if query.header is not None:
                    found.keep_with_header(*query.header)
                if find is not None:
                    found.keep_values(find)
                is_last = count.take(found)
                for some in _lines(found, fields, query.style):
                    waiting += some
                    if len(waiting) >= _ANSWER_BYTES:  # perhaps a part of a line
                        yield TaskResult("lines", bytes(waiting), piece.number)
                        waiting.clear()
                if is_last:
                    break
        if waiting:
            yield TaskResult("lines", bytes(waiting), piece.number)


def _lines(rows: Window, fields: bytes, style: LineStyle) -> Iterator[bytes | memoryview]:
    yield from record_lines(rows, 0, rows.records, fields, style)
    yield rows.output()
    rows.flushed()


class LineLimit:
    """Counts down the lines that may still be given; None for all."""

    def __init__(self, limit: int | None) -> None:
        self.left = limit

    def cut(self, answer: TaskResult) -> TaskResult:
        """Return *answer*, its lines cut to what may still be given."""
        if answer.kind != "lines" or self.left is None:
            return answer
        content = answer.content
        lines = content.count(b"\n")
        if lines > self.left:
            content = b"".join(content.splitlines(keepends=True)[: self.left])
        self.left -= min(lines, self.left)
        return answer._replace(content=content)


def merge_results(answers: Iterable[TaskResult], limit: LineLimit) -> Iterator[TaskResult]:
    """Yield the answers of tasks by their pieces, which ascend, up to the last line that *limit* lets pass.

    So damage behind that line is not reported, however much was read of it.
    """
    for answer in sorted(answers, key=lambda one: one.number):
        if limit.left == 0:
            return
        yield limit.cut(answer)
