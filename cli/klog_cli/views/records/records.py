"""The output of `klog records`: the records of each partition, and what a broker appends to them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Generic, NamedTuple, TypeAlias

from klog.base.errors import ExitCode, KlogError, UnreadableError, UsageError
from klog.base.overlays import remote_object
from klog.base.progress import Sink
from klog.commands.dump.dump_files import dump_lines
from klog.commands.dump.dump_request import DumpRequest, DumpTarget, partition_targets
from klog.commands.dump.log_lines import csv_header
from klog.commands.dump.newest_rows import newest
from klog.commands.records.appended_records import AppendedRecords
from klog.commands.records.record_rows import RecordJsonLines, RecordReader, RecordRow, RecordRows, Row
from klog.data_dir.partition import Partition
from klog.data_dir.selection import KafkaFile, PartitionQuery, open_path, partitions_of, select
from klog.formats.damage import Damage, DamageKind
from klog.formats.java_integers import LONG_MIN
from klog.formats.names import FileKind
from klog.log.json_lines import LineStyle, damage_json
from klog.log.records import RecordLimit

from klog_cli import output
from klog_cli.display import range_text
from klog_cli.views.json_array import JsonArray
from klog_cli.views.nothing_found import Conditions, nothing_in
from klog_cli.views.records.format_text import RecordFormat
from klog_cli.views.records.text import RowLines, RowStyle, heading

Reads: TypeAlias = Callable[[DumpRequest], RecordReader[Row]]
_CHUNK = 256
_POLL_SECONDS = 0.2


class RecordsQuery(NamedTuple):
    """*request*: the records, and how they are read.  *limit*: of each partition.  *conditions*: the same in words."""

    asked: PartitionQuery
    request: DumpRequest
    limit: int | None
    conditions: Conditions


class _Source(NamedTuple):
    """A partition, or a file that is named by itself.  *targets*: its logs that have the requested records."""

    name: str
    partition: Partition | None
    targets: Callable[[], list[DumpTarget]]


class _Printer(Generic[Row]):
    """Prints rows; `exit_code` and `found` say whether there was damage, and a record."""

    def __init__(self) -> None:
        self.exit_code, self.found = int(ExitCode.CLEAN), False

    def show(self, source: _Source, rows: Iterable[Row | Damage]) -> None:
        """Print the rows of *source*."""
        raise NotImplementedError

    def _note(self, row: Row | Damage) -> None:
        if isinstance(row, Damage):
            # an object that is missing or malformed is damage, as in all commands
            is_unread = row.kind is DamageKind.UNREADABLE and remote_object(row.place.file) is None
            self.exit_code |= ExitCode.OPERATIONAL_ERROR if is_unread else ExitCode.PROBLEMS_LEFT
        else:
            self.found = True


class _LinePrinter(_Printer[bytes]):
    """Prints JSON lines as they are; damage has a line, and is reported."""

    def show(self, source: _Source, rows: Iterable[bytes | Damage]) -> None:
        """Print the lines of *source*."""
        for row in rows:
            self._note(row)
            if isinstance(row, Damage):
                output.error(str(row))
            output.write(damage_json(row) if isinstance(row, Damage) else row)


class _RowPrinter(_Printer[RecordRow]):
    """Prints records for people, or as a format says."""

    def __init__(self, looks: RowStyle, form: RecordFormat | None) -> None:
        super().__init__()
        self._looks, self._format = looks, form
        self._lines: dict[str, RowLines] = {}
        self._shown = ""

    def show(self, source: _Source, rows: Iterable[RecordRow | Damage]) -> None:
        """Print the rows of *source*, below its name unless it was the last one that was printed."""
        rows = iter(rows)
        while some := list(islice(rows, _CHUNK)):
            for row in some:
                self._note(row)
            if self._format is not None:
                self._formatted(source, some)
                continue
            if self._shown != source.name:
                output.text("\n" if self._shown else "")
                output.lines([heading(source.name, _offsets(source.partition))])
                self._shown = source.name
            output.rows(self._lines.setdefault(source.name, RowLines(self._looks)).lines(some))

    def _formatted(self, source: _Source, rows: Sequence[RecordRow | Damage]) -> None:
        partition, form = source.partition, self._format
        origin = (None, None) if partition is None else (partition.topic, partition.number)
        for row in rows:
            if isinstance(row, Damage):
                output.error(str(row))
            elif row.control is None and form is not None:
                output.write(form.line(row, origin))


def records(query: RecordsQuery, looks: RowStyle, form: RecordFormat | None, *, follow: bool) -> int:
    """Print records for people, or as *form* says; return the exit code.

    *follow*: print what is appended as well, until ^C.  Raises UsageError, KlogError.
    """
    return _print(query, _RowPrinter(looks, form), RecordRows, follow)


def follow_lines(query: RecordsQuery) -> int:
    """Print records as JSON lines, and what is appended, until ^C; return the exit code.  Raises as `records`."""
    return _print(query, _LinePrinter(), RecordJsonLines, True)


def _print(query: RecordsQuery, printer: _Printer[Row], reads: Reads[Row], follow: bool) -> int:
    reader = reads(query.request)
    sources = list(_sources(query))
    if follow and any(source.partition is None for source in sources):
        raise UsageError("--follow is for partitions: name log dirs or partition directories")
    ends: list[int | None] = []
    for source in sources:
        printer.show(source, reader.read(source.targets(), _limit(query)))
        ends.append(reader.next_offset)
        if reader.has_vanished and not follow:
            output.note(f"{source.name}: the broker has replaced segments meanwhile: the records behind are not shown")
    if follow:
        return _follow(list(zip(sources, ends, strict=True)), query.request, printer, reads)
    return printer.exit_code if printer.found or printer.exit_code else nothing_in(query.asked, query.conditions)


def emit_lines(query: RecordsQuery, *, is_csv: bool) -> int:
    """Print the records as JSON lines or CSV, as `klog dump` does; return the exit code.  Raises UsageError."""
    style = LineStyle(is_csv, decoded=query.request.schemas is not None)
    request = query.request._replace(line_style=style)
    with output.Results() as results:
        if is_csv:
            results.write(csv_header(request.line_style))
        return _emit(query, request, results)


def emit_json(query: RecordsQuery) -> int:
    """Print the records as a JSON object; return the exit code.  Raises UsageError."""
    with output.Results() as results:
        lines = _ArrayLines(results)
        code = _emit(query, query.request, lines)
        lines.array.close()
    return code


class _ArrayLines:
    """A sink that makes an object with an array of JSON lines."""

    def __init__(self, results: output.Results) -> None:
        self.array = JsonArray("records", results.write)
        self.report, self.expect, self.advance = results.report, results.expect, results.advance

    def write(self, data: bytes | memoryview) -> None:
        """Take lines, perhaps with a part of one at either end."""
        self.array.take(bytes(data))


def _emit(query: RecordsQuery, request: DumpRequest, sink: Sink) -> int:
    code, found = int(ExitCode.CLEAN), False
    for source in _sources(query):
        count = _limit(query)
        code |= dump_lines(source.targets(), request, sink, count)
        found |= count.found
    return code if found or code else nothing_in(query.asked, query.conditions)


def _limit(query: RecordsQuery) -> RecordLimit:
    """Return the number of records of a partition; the newest ones have an offset at which they begin instead."""
    return RecordLimit(None if query.request.wanted.tail else query.limit)


def _sources(query: RecordsQuery) -> Iterator[_Source]:
    asked, request = query.asked, query.request
    opened = [open_path(path) for path in asked.paths]
    for one in opened:
        if isinstance(one, KafkaFile):
            if one.name.kind is not FileKind.LOG:
                raise UsageError(f"{one.path}: only logs have records; klog dump or klog describe shows this file")
            yield _Source(one.path, None, partial(_targets, [DumpTarget(one.path)], request))
    partitions = [one for one in opened if not isinstance(one, KafkaFile)]
    for partition in select(partitions_of(partitions), asked.topics, asked.numbers) if partitions else ():
        every = partition_targets(partition, False, request.wanted)
        yield _Source(partition.path, partition, partial(_targets, every, request))


def _targets(every: Iterable[DumpTarget], request: DumpRequest) -> list[DumpTarget]:
    return list(newest(every, request))


def _offsets(partition: Partition | None) -> str:
    """Return the offsets of a log as its heading has them: `0–112, log end 113`."""
    if partition is None or not partition.segments:
        return ""
    try:
        start, end = partition.log_start_offset, partition.log_end
    except KlogError:
        return ""
    if end is None:
        return ""
    first = partition.segments[0].base_offset if start is None else start
    return f"{range_text(first, end.offset - 1) if end.offset > first else 'empty'}, log end {end.offset}"


def _follow(
    sources: list[tuple[_Source, int | None]], request: DumpRequest, printer: _Printer[Row], reads: Reads[Row]
) -> int:
    """Print what is appended to *sources*, from these offsets on, until ^C; return the exit code."""
    request = request._replace(wanted=request.wanted._replace(tail=False, limit=None, from_offset=LONG_MIN))
    followed: list[tuple[_Source, AppendedRecords[Row]]] = []
    refresh = _refresh(request)
    for source, offset in sources:
        assert source.partition is not None
        if offset is None:
            end = source.partition.log_end
            offset = 0 if end is None else end.offset
        reader = reads(request)
        reader.refresh = refresh
        followed.append((source, AppendedRecords(source.partition, reader, offset)))
    try:
        while followed and output.is_read():
            followed = [one for one in followed if _is_there(*one, printer)]
            time.sleep(_POLL_SECONDS)
    except KeyboardInterrupt:
        pass
    return printer.exit_code


def _refresh(request: DumpRequest) -> Callable[[], object]:
    """Return a function that notices new schemas of the registry."""
    if request.schemas is None:
        return int
    from klog.jobs.schema_sources import RegistryWatch

    return RegistryWatch(request.schemas.decoders).refresh


def _is_there(source: _Source, followed: AppendedRecords[Row], printer: _Printer[Row]) -> bool:
    """Print what was appended to a partition; False if it is gone."""
    try:
        printer.show(source, followed.read())
    except UnreadableError as error:
        output.error(str(error))
        printer.exit_code |= ExitCode.OPERATIONAL_ERROR
        return False
    if followed.is_cut:
        output.note(f"{source.name}: the log was cut to {followed.next_offset}: its broker follows another leader")
    return True
