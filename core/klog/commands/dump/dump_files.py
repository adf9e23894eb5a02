"""Dumps one file after the other, chooses the renderer by the file's name, and collects the results.

Files other than logs are JSON lines, one object for each entry.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from typing import Any

from klog.base.errors import ExitCode, KlogError, NotKafkaError, UnsupportedError, UsageError
from klog.base.overlays import remote_object
from klog.base.progress import Sink
from klog.base.read_only import ReadOnlyFile, is_missing
from klog.commands.dump.dump_request import ALL_BYTES, CSV, DumpRequest, DumpTarget, LogInputs
from klog.commands.dump.reports import DumpReports, absolute
from klog.data_dir.disk.written_ranges import WRITTEN
from klog.data_dir.selection import EXPECTED
from klog.formats import checkpoint, properties
from klog.formats.batch import BATCH
from klog.formats.checkpoint import Checkpoint, Malformed
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.index import ABORTED_TXN, OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout
from klog.formats.names import ROOT_CHECKPOINTS, FileKind, parse_file
from klog.formats.producer_snapshot import read_snapshot
from klog.kernel import Window, crc32c
from klog.log.ordered_pipeline import run
from klog.log.records import RecordLimit, drop_crowded
from klog.log.segment import MAX_SEGMENT_BYTES

_LAYOUTS = {"index": OFFSET_ENTRY, "timeindex": TIME_ENTRY, "txnindex": ABORTED_TXN}
_LARGEST = 64 << 20
Row = dict[str, object]


def value_lines(target: DumpTarget, kind: str | None, request: DumpRequest, sink: Sink) -> int:
    """Write the content of a file that is no log; return the exit code.

    Raises NotKafkaError for a file of no known kind, UnsupportedError for CSV.
    """
    file = parse_file(os.path.basename(target.shown))
    if kind is None and file.kind is FileKind.OTHER:
        raise NotKafkaError(f"{target.shown}: not a Kafka file by its name (--as gives its kind); {EXPECTED}")
    if request.output == CSV:
        raise UnsupportedError(f"{target.shown}: CSV is for logs; --output jsonl shows it")
    with ReadOnlyFile(target.path) as source:
        if source.size > _LARGEST and kind not in _LAYOUTS:
            raise UnsupportedError(f"{target.shown}: {source.size} bytes, more than such a file can have")
        rows = (
            _entries(source, kind, file.offset or 0)
            if kind in _LAYOUTS
            else _small(source.read(0, source.size), kind, file.kind)
        )
        code = ExitCode.CLEAN
        for row in rows:
            if "damage" in row:
                code = ExitCode.PROBLEMS_LEFT
                row |= {"file": target.shown}
                sink.report(f"{target.shown}: {row['damage']}")
            sink.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
    return code


def _entries(source: ReadOnlyFile, kind: str, base_offset: int) -> Iterator[Row]:
    """Yield the entries of an index, offsets made absolute, up to its tail of zeros."""
    layout: Layout = _LAYOUTS[kind]
    step = layout.size * 8192
    slot = 0
    for start in range(0, source.size, step):
        for values in layout.read_all(source.read(start, step)):
            if not any(values) and slot:
                return  # preallocated: nothing but zeros follows
            slot += 1
            row: Row = dict(zip(layout.names, values, strict=True))
            if "relative_offset" in row:
                row = {"offset": base_offset + values[layout.names.index("relative_offset")]} | row
                del row["relative_offset"]
            yield row
    if source.size % layout.size:
        yield {
            "damage": f"{source.size % layout.size} bytes left over: {source.size} is not a multiple of {layout.size}"
        }


def _small(content: bytes, kind: str | None, file: FileKind) -> Iterator[Row]:
    if kind == "snapshot":
        snapshot = read_snapshot(content, crc32c)
        if snapshot.problem:
            yield {"damage": snapshot.problem}
        else:
            yield from (producer._asdict() for producer in snapshot.producers)
    elif file in ROOT_CHECKPOINTS:
        yield from _checkpoint(checkpoint.read_offsets(content))
    elif file is FileKind.LEADER_EPOCHS:
        yield from _checkpoint(checkpoint.read_epochs(content))
    elif file is FileKind.PARTITION_METADATA:
        yield _object(checkpoint.read_partition_metadata(content))
    elif file is FileKind.META_PROPERTIES:
        found = properties.read_properties(content)
        yield _object(found) if isinstance(found, Malformed) else dict(found)
    elif file is FileKind.QUORUM_STATE:
        yield _object(properties.read_quorum_state(content))
    elif file is FileKind.CLEAN_SHUTDOWN:
        yield _object(properties.read_clean_shutdown(content))
    # a lock file is empty


def _checkpoint(read: Checkpoint) -> Iterator[Row]:  # type: ignore[type-arg]
    yield from (entry._asdict() for entry in read.entries)
    if read.malformed:
        yield {"damage": str(read.malformed)}


def _object(value: Any) -> Row:
    if isinstance(value, Malformed):
        return {"damage": str(value)}
    row: Row = value._asdict()
    return row


_BATCH_ROWS = 16 << 10


class _ShownError(KlogError):
    """A file that Kafka's tool would have died of."""

    exit_code = ExitCode.PROBLEMS_LEFT


class _LineEnds:
    """A sink that records whether its last line is complete: if Kafka's tool dies, it may not be."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._open = False
        self.report, self.expect, self.advance = sink.report, sink.expect, sink.advance

    def write(self, data: bytes | memoryview) -> None:
        if len(data):
            self._open = data[-1] != ord("\n")
            self._sink.write(data)

    def finish_line(self) -> None:
        if self._open:
            self.write(b"\n")


def dump_text(targets: Iterable[DumpTarget], request: DumpRequest, sink: Sink, rows: RecordLimit | None = None) -> int:
    """Print *targets* as Kafka's dump tool does, then its reports; return the exit code.  *rows* counts the rows."""
    reports = DumpReports()
    code = ExitCode.CLEAN
    count, inputs = rows or RecordLimit(request.limit), LogInputs(request)
    tracked = sink = _LineEnds(sink)
    for target in targets:
        if count.left == 0:
            break
        tracked.finish_line()
        sink.write(f"Dumping {target.shown}\n".encode("utf-8", "surrogateescape"))
        try:
            code |= _text_file(target, inputs, sink, reports, count)
        except KlogError as error:
            code |= report_failure(error, target, sink)
    for line in reports.lines():
        sink.report(line)
    return code | (ExitCode.PROBLEMS_LEFT if reports.disagreement else ExitCode.CLEAN)


def kind_of(target: DumpTarget, request: DumpRequest) -> str | None:
    """Return the kind of the dump: log, checkpoint, index, timeindex, txnindex, snapshot; None if unknown."""
    suffix = os.path.basename(target.shown).rpartition(".")
    known = ("log", "checkpoint", "index", "timeindex", "txnindex", "snapshot")
    return suffix[2] if suffix[1] and suffix[2] in known else request.kind


def _left_over(target: DumpTarget) -> str | None:
    """Return the kind of a file that is on its way in or out (….log.deleted, .swap, .cleaned), None for others."""
    from klog.formats.names import SEGMENT_KINDS, FileKind, parse_file

    kind = parse_file(os.path.basename(target.shown)).kind
    return kind.value if kind in (*SEGMENT_KINDS, FileKind.SNAPSHOT, FileKind.KRAFT_SNAPSHOT) else None


def _must_exist(target: DumpTarget) -> None:
    if is_missing(target.path):
        from klog.data_dir.selection import EXPECTED

        raise UsageError(f"{target.shown}: no such file; {EXPECTED}")


def report_failure(error: KlogError, target: DumpTarget, sink: Sink) -> int:
    """Report why a file was not dumped; return the exit code: a file that a running broker removed is no problem."""
    if target.may_go and is_missing(target.path):
        sink.report(f"{target.shown}: not dumped: the running broker has removed it")
        return ExitCode.CLEAN
    sink.report(str(error))
    return error.exit_code


def _text_file(target: DumpTarget, inputs: LogInputs, sink: Sink, reports: DumpReports, count: RecordLimit) -> int:
    request = inputs.request
    _must_exist(target)
    kind = kind_of(target, request)
    if kind in ("log", "checkpoint"):
        return _text_log(target, inputs, sink, reports, count)
    count.found |= target.segment is None  # filters are for logs
    from klog.commands.dump import kafka_index
    from klog.formats.names import FileKind, parse_file

    if kind is None:
        sink.report(f"Ignoring unknown file {target.shown}")
        return (
            ExitCode.CLEAN
            if parse_file(os.path.basename(target.shown)).kind is not FileKind.OTHER
            else ExitCode.OPERATIONAL_ERROR
        )
    if kind == "snapshot":
        lines, problem = kafka_index.dump_snapshot(target.path)
        _write_lines(lines, sink)
        if problem:
            sink.report(problem)
        return ExitCode.PROBLEMS_LEFT if problem else ExitCode.CLEAN
    if kind == "txnindex":
        _write_lines(kafka_index.dump_txn_index(target.path), sink)
        return ExitCode.CLEAN
    dump = kafka_index.dump_offset_index if kind == "index" else kafka_index.dump_time_index
    _write_lines(dump(target.path, target.shown, request.index_style, reports), sink)
    return ExitCode.CLEAN


def _write_lines(lines: Iterable[str], sink: Sink) -> None:
    """Write *lines*, also those before an exception that making them raises."""
    waiting: list[str] = []
    try:
        for line in lines:
            waiting.append(line + "\n")
            if len(waiting) == 4096:
                sink.write("".join(waiting).encode("utf-8", "surrogateescape"))
                waiting.clear()
    finally:
        sink.write("".join(waiting).encode("utf-8", "surrogateescape"))


def _log_title(target: DumpTarget, is_log: bool, request: DumpRequest) -> str:
    """Return the line that Kafka's tool begins a log with.  Kafka: DumpLogSegments.dumpLog, Snapshots.parse."""
    from klog.formats.java_text import parse_long

    name = os.path.basename(target.path)
    if not is_log:
        from klog.formats.names import FileKind, parse_file

        file = parse_file(name)
        if file.kind is FileKind.BOOTSTRAP:
            return "KRaft bootstrap snapshot\n"
        if file.offset is None or file.epoch is None:
            raise _ShownError(f"{target.shown}: the name gives no end offset and epoch")
        return f"Snapshot end offset: {file.offset}, epoch: {file.epoch}\n"
    base_offset = parse_long(name.split(".", 1)[0])
    if base_offset is None:
        if request.kind:
            return ""
        raise _ShownError(f"{target.shown}: the name does not begin with an offset (--as log reads it all the same)")
    return f"Log starting offset: {base_offset}\n"


def _text_log(target: DumpTarget, inputs: LogInputs, sink: Sink, reports: DumpReports, count: RecordLimit) -> int:
    from klog.commands.dump.kafka_log import LogDump

    request = inputs.request
    sink.write(_log_title(target, kind_of(target, request) == "log", request).encode())
    with inputs.open(target, like_kafka=True) as log:
        if log.source.size > MAX_SEGMENT_BYTES:
            raise _ShownError(
                f"{log.file}: {log.source.size} bytes, more than a segment can have; --output jsonl reads it"
            )
        dump = LogDump(log, request.log_style, count)
        run(log.reader, dump.work, sink, log.jobs)
        head = log.source.read(dump.stop[1], BATCH.size) if dump.stop else b""
        name, missing = os.path.basename(log.file), log.source.missing_bytes
        text, died = dump.end_text(name, log.reader.end, head, request.max_bytes == ALL_BYTES)
    sink.write(text)
    if died:
        sink.report(died)
    if dump.gaps.pairs:
        reports.gaps[absolute(target.path)] = dump.gaps
    if missing:
        sink.report(f"{log.file}: the object ends {missing} bytes before the end that the metadata have")
    unfinished = target.live and not died and text.startswith(b"Found")
    return ExitCode.PROBLEMS_LEFT if (dump.trouble and not unfinished) or missing else ExitCode.CLEAN


def dump_lines(targets: Iterable[DumpTarget], request: DumpRequest, sink: Sink, rows: RecordLimit | None = None) -> int:
    """Write the records (or batches, or other content) of *targets* as JSON lines or CSV; return the exit code.

    *rows* counts the rows.
    """
    code = ExitCode.CLEAN
    count, inputs = rows or RecordLimit(request.limit), LogInputs(request)
    for target in targets:
        if count.left == 0:
            break
        kind = kind_of(target, request) or _left_over(target)
        try:
            _must_exist(target)
            if kind in ("log", "checkpoint"):
                code |= _log_lines(target, inputs, sink, count)
            else:
                count.found |= target.segment is None  # filters are for logs
                code |= value_lines(target, kind, request, sink)
        except KlogError as error:
            code |= report_failure(error, target, sink)
            if kind == "log" and remote_object(target.path) is not None:
                from klog.commands.dump.log_lines import damage_line

                reason = str(error).removeprefix(target.shown).lstrip(" :")
                damage = Damage(DamageKind.UNREADABLE, Location(target.shown, 0), reason)
                sink.write(damage_line(damage, request.line_style))
    return code


def _log_lines(target: DumpTarget, inputs: LogInputs, sink: Sink, count: RecordLimit) -> int:
    from klog.commands.dump.log_lines import LineDump

    schemas = inputs.request.schemas
    with inputs.open(target) as log:
        if schemas is None:
            dump = LineDump(log, inputs.request.line_style, count)
        else:
            from klog.commands.dump.decoded_lines import DecodedLines

            dump = DecodedLines(log, inputs.request.line_style, count, schemas)
        run(log.reader, dump.work, sink, log.jobs)
    return ExitCode.PROBLEMS_LEFT if dump.damages else ExitCode.CLEAN


def dump_parquet(
    targets: Iterable[DumpTarget],
    request: DumpRequest,
    sink: Sink,
    descriptor: int,
    rows: RecordLimit | None = None,
) -> int:
    """Write the records of *targets* as one Parquet file to *descriptor*; return the exit code.

    Damage is passed to the sink's reports.  *rows* counts the rows.
    """
    from klog.log.arrow import Table, import_pyarrow

    import_pyarrow().set_cpu_count(max(1, request.jobs))
    code = ExitCode.CLEAN
    count, inputs = rows or RecordLimit(request.limit), LogInputs(request)
    window, codecs = Window(records=_BATCH_ROWS), Decompressor(request.max_batch_bytes).functions
    others = None
    if request.schemas is not None:
        from klog.commands.dump.typed_table import typed_columns

        targets = list(targets)
        logs = [target for target in targets if kind_of(target, request) in ("log", "checkpoint")]
        others = typed_columns(logs, request)
    with Table(descriptor, batch_offsets=request.line_style.batch_offsets, others=others) as table:
        for target in targets:
            try:
                if kind_of(target, request) not in ("log", "checkpoint"):
                    raise UnsupportedError(f"{target.shown}: Parquet is for logs; --output jsonl shows it")
                with inputs.open(target) as log:
                    read = log.reader.position
                    for found in log.read(log.reader, window, codecs, count):
                        sink.advance(log.reader.position - read, target.path)
                        read = log.reader.position
                        damages = [found] if isinstance(found, Damage) else drop_crowded(found, log.file)
                        if isinstance(found, Window) and found.records:
                            table.add(found, *target.origin)
                            WRITTEN.grew(descriptor)
                        for damage in damages:
                            sink.report(str(damage))
                            code |= ExitCode.PROBLEMS_LEFT
            except KlogError as error:
                code |= report_failure(error, target, sink)
    return code
