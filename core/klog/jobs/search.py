"""Finds records by key, header, regular expression, offset or time, as JSON lines."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import UsageError
from klog.base.progress import Sink
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.jobs.export import ExportTask, damage_facts, plan_tasks
from klog.jobs.runner import Job, Runner, TaskResult, json_result
from klog.jobs.search_hits import HitStyle, hit_lines
from klog.jobs.slice_scan import SliceScan
from klog.jobs.slices import TASK_BYTES, LogSlice
from klog.kernel import Window
from klog.log.json_lines import LineStyle, RecordOrigin, record_lines
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.records import BatchRowLimit, RecordFilter, RecordLimit
from klog.partition.transactions.isolation import Isolation

if TYPE_CHECKING:
    from klog.schemas.decoded_rows import SchemaStyle
    from klog.schemas.field_condition import FieldCondition

_RESULT_BYTES = 1 << 20


class SearchQuery(NamedTuple):
    """Conditions on a record, which must all be met.

    *wanted*: the conditions; of its *limit* each piece gives so many at most.  *style*: how lines are to look.  *hits*:
    they are those of `klog.jobs.search_hits` instead, for a view.  *schemas*: how keys and values are decoded, None for
    bytes as they are.  *where*: conditions on decoded ones.
    """

    wanted: RecordFilter = RecordFilter()
    style: LineStyle = LineStyle()
    max_batch_bytes: int = MAX_BATCH_BYTES
    hits: bool = False
    schemas: SchemaStyle | None = None
    where: tuple[FieldCondition, ...] = ()


def compile_pattern(pattern: bytes) -> re.Pattern[bytes]:
    """Return a regular expression over bytes.  Raises UsageError where it is none."""
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise UsageError(f"{pattern.decode(errors='replace')}: not a regular expression: {error}") from error


def search_partitions(
    partitions: Iterable[Partition],
    query: SearchQuery,
    isolation: Isolation,
    runner: Runner,
    sink: Sink,
    take: Callable[[TaskResult], object],
) -> None:
    """Hand the records that match *query* to *take*, as results `lines`, by topic, partition and offset; and `damage`.

    Keys and values that do not decode are counted by the tally of *query*.  Results `read` count the records that were
    read, matching or not.  Nothing more is read when the limit is reached, and damage behind that record is not
    reported.  Raises KlogError.
    """
    limit = LineLimit(query.wanted.limit, query.style.csv)

    def cut(result: TaskResult) -> bool:
        if result.kind != "undecoded":
            take(limit.cut(result))
        elif query.schemas is not None:
            query.schemas.tally.merge(result.facts)
        return limit.left == 0

    made = plan_tasks(partitions, query.wanted, isolation, piece_bytes=0)
    job = Job(search, [[one] for one in made], query, [one.bytes for one in made])
    runner.run(job, sink, cut, first_bytes=runner.workers * TASK_BYTES)


def search(unit: Sequence[ExportTask], query: SearchQuery) -> Iterator[TaskResult]:
    """Yield results `lines`, the matching records of each piece in their order, `damage`, and at the end `read`.

    With schemas, `undecoded` has the facts of an ErrorTally.  Raises nothing for what is on the disk.
    """
    query = _with_own_tally(query)
    scan = SliceScan(query.wanted, query.max_batch_bytes)
    for piece in unit:
        count = RecordLimit(query.wanted.limit)
        waiting = bytearray()
        for part in piece.slices:
            lines = _SliceLines(part, query)
            for found in scan.read(part) if count.left != 0 else ():
                if isinstance(found, Damage):
                    yield json_result("damage", damage_facts(part, found), piece.number)
                    continue
                lines.keep(found)
                is_last = count.take(found)
                if (left := lines.leave_out(found)) is not None:
                    yield json_result("damage", damage_facts(part, left), piece.number)
                for some in lines.of(found):
                    waiting += some
                    if len(waiting) >= _RESULT_BYTES:  # perhaps a part of a line
                        yield TaskResult("lines", bytes(waiting), piece.number)
                        waiting.clear()
                if is_last:
                    break
        if query.schemas is not None and query.schemas.tally:
            yield json_result("undecoded", query.schemas.tally.facts(), piece.number)
            query = _with_own_tally(query)
        if waiting:
            yield TaskResult("lines", bytes(waiting), piece.number)
    if unit:
        yield json_result("read", {"records": scan.decoded}, unit[-1].number)


def _with_own_tally(query: SearchQuery) -> SearchQuery:
    """Return *query* with an empty tally: that of the caller is in another process, or of several threads."""
    if query.schemas is None:
        return query
    from klog.schemas.error_tally import ErrorTally

    return query._replace(schemas=query.schemas._replace(tally=ErrorTally()))


class _SliceLines:
    """Makes the lines of a slice's records."""

    def __init__(self, part: LogSlice, query: SearchQuery) -> None:
        self._part, self._style, self._where = part, query.style, query.where
        origin = RecordOrigin(part.path, part.topic, part.partition)
        self._fields = origin.csv() if query.style.csv else origin.json(with_file=True)
        self._hits = HitStyle(query.wanted, query.style.values) if query.hits else None
        self._decoded, self._row_limit = None, BatchRowLimit(part.path)
        if query.schemas is not None:
            from klog.schemas.decoded_csv import decoded_rows

            self._decoded = decoded_rows(part.topic, part.partition, query.schemas, query.style)

    def keep(self, rows: Window) -> None:
        """Keep only the rows whose decoded keys and values fit."""
        decoded, where = self._decoded, self._where
        if decoded is not None and where:
            rows.keep_where(lambda i: decoded.fits(rows.record(i), where))

    def leave_out(self, rows: Window) -> Damage | None:
        """Drop *rows* that are too many to be shown as text; return the damage for the first of them."""
        return None if self._hits is None else self._row_limit.cut(rows)

    def of(self, rows: Window) -> Iterator[bytes | memoryview]:
        """Yield the lines of *rows*, in pieces."""
        if self._hits is not None:
            yield from hit_lines(rows, self._part, self._hits, self._decoded)
        elif self._decoded is not None:
            yield from self._decoded.lines(rows, 0, rows.records, self._fields, self._style)
        else:
            yield from record_lines(rows, 0, rows.records, self._fields, self._style)
            yield rows.output()
            rows.flushed()


class LineLimit:
    """Counts down the lines that may still be given; None for all.  *csv*: a quoted field may have lines of its own."""

    def __init__(self, limit: int | None, csv: bool = False) -> None:
        self.left, self._csv, self._is_quoted = limit, csv, False

    def cut(self, result: TaskResult) -> TaskResult:
        """Return *result*, its lines cut to what may still be given."""
        if result.kind != "lines" or self.left is None:
            return result
        size = 0
        for line in io.BytesIO(result.content) if self.left else ():
            size += len(line)
            self._is_quoted ^= self._csv and line.count(b'"') % 2 == 1
            if line.endswith(b"\n") and not self._is_quoted:
                self.left -= 1
                if self.left == 0:
                    break
        return result._replace(content=result.content[:size])
