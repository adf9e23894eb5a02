"""Dumping file after file: which part of the dump a file's name asks for, and what came of it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from klog.dump.isolation import Committed, learn
from klog.dump.reports import DumpReports, absolute
from klog.dump.request import ALL_BYTES, DumpRequest, DumpTarget, with_surroundings
from klog.errors import KlogError, UsageError
from klog.files.read_only import ReadOnlyFile
from klog.formats.batch import BATCH
from klog.log.pipeline import run
from klog.log.reader import LogReader
from klog.log.record_filter import HIGHEST, LOWEST, RecordFilter, RecordLimit, start_position
from klog.log.segment import MAX_SEGMENT_BYTES, Segment
from klog.progress import Sink

OK, DAMAGED, FAILED = 0, 4, 8


class _ShownError(KlogError):
    """A file that Kafka's tool would have died of."""

    exit_code = DAMAGED


class _LineEnds:
    """A sink that knows whether its last line is complete: where Kafka's tool dies, it may not be."""

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


def dump_text(targets: Iterable[DumpTarget], request: DumpRequest, sink: Sink) -> int:
    """Print *targets* as Kafka's dump tool does, then its reports; return the exit code."""
    reports = DumpReports()
    code = OK
    count = RecordLimit(request.wanted.limit)
    tracked = sink = _LineEnds(sink)
    for target in targets:
        if count.left == 0:
            break
        tracked.finish_line()
        sink.write(f"Dumping {target.shown}\n".encode("utf-8", "surrogateescape"))
        try:
            code |= _text_file(target, request, sink, reports, count)
        except KlogError as error:
            sink.report(str(error))
            code |= error.exit_code
    for line in reports.lines():
        sink.report(line)
    return code | (DAMAGED if reports.disagreement else OK)


def kind_of(target: DumpTarget, request: DumpRequest) -> str | None:
    """Return what the file is taken for: log, checkpoint, index, timeindex, txnindex, snapshot; None if unknown."""
    suffix = os.path.basename(target.shown).rpartition(".")
    known = ("log", "checkpoint", "index", "timeindex", "txnindex", "snapshot")
    return suffix[2] if suffix[1] and suffix[2] in known else request.kind


def _left_over(target: DumpTarget) -> str | None:
    """Return the kind of a file that is on its way in or out (….log.deleted, .swap, .cleaned), None for others."""
    from klog.formats.names import SEGMENT_KINDS, FileKind, parse_file

    kind = parse_file(os.path.basename(target.shown)).kind
    return kind.value if kind in (*SEGMENT_KINDS, FileKind.SNAPSHOT, FileKind.KRAFT_SNAPSHOT) else None


def _must_exist(target: DumpTarget) -> None:
    if not os.path.lexists(target.path):
        from klog.data_dir.open_path import EXPECTED

        raise UsageError(f"{target.shown}: no such file; {EXPECTED}")


def _text_file(target: DumpTarget, request: DumpRequest, sink: Sink, reports: DumpReports, count: RecordLimit) -> int:
    _must_exist(target)
    kind = kind_of(target, request)
    if kind in ("log", "checkpoint"):
        return _text_log(target, request, sink, reports, count)
    from klog.dump import kafka_index
    from klog.formats.names import FileKind, parse_file

    if kind is None:
        sink.report(f"Ignoring unknown file {target.shown}")
        return OK if parse_file(os.path.basename(target.shown)).kind is not FileKind.OTHER else FAILED
    if kind == "snapshot":
        lines, problem = kafka_index.dump_snapshot(target.path)
        _write_lines(lines, sink)
        if problem:
            sink.report(problem)
        return DAMAGED if problem else OK
    if kind == "txnindex":
        _write_lines(kafka_index.dump_txn_index(target.path), sink)
        return OK
    dump = kafka_index.dump_offset_index if kind == "index" else kafka_index.dump_time_index
    _write_lines(dump(target.path, target.shown, request.index_style, reports), sink)
    return OK


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

    name = os.path.basename(target.shown)
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


def _text_log(target: DumpTarget, request: DumpRequest, sink: Sink, reports: DumpReports, count: RecordLimit) -> int:
    from klog.dump.kafka_log import LogDump

    sink.write(_log_title(target, kind_of(target, request) == "log", request).encode())
    committed = committed_in(target, request)
    wanted = narrowed(target, request.wanted)
    dump = LogDump(
        target.shown,
        request.log_style,
        bounded(wanted, committed),
        count=count,
        committed=committed,
        max_batch_bytes=request.max_batch_bytes,
    )
    with ReadOnlyFile(target.path) as source:
        if source.size > MAX_SEGMENT_BYTES:
            raise _ShownError(
                f"{target.shown}: {source.size} bytes, more than a segment can have; --output jsonl reads it"
            )
        end = min(source.size, request.max_bytes)
        start = start_of(source, target, wanted)
        reader = Segment(target.path).reader(source, start, end, lenient=True, max_batch_bytes=request.max_batch_bytes)
        run(reader, dump.work, sink, _jobs(request, reader))
        head = source.read(dump.stop[1], BATCH.size) if dump.stop else b""
        text, died = dump.end_text(os.path.basename(target.shown), reader.end, head, request.max_bytes == ALL_BYTES)
    sink.write(text)
    if died:
        sink.report(died)
    if dump.gaps.pairs:
        reports.gaps[absolute(target.path)] = dump.gaps.listed()
    unfinished = target.live and not died and text.startswith(b"Found")
    return DAMAGED if dump.trouble and not unfinished else OK


def bounded(wanted: RecordFilter, committed: Committed | None) -> RecordFilter:
    """Return *wanted* below the last stable offset, without markers, where only what is committed is to be seen."""
    if committed is None:
        return wanted
    return wanted._replace(to_offset=min(wanted.to_offset, committed.last_stable_offset), controls=False)


def committed_in(target: DumpTarget, request: DumpRequest) -> Committed | None:
    """Return what a read_committed consumer would not see, None when everything is wanted."""
    if not request.committed:
        return None
    around = with_surroundings(target)
    logs = [os.path.join(around.directory, segment.log) for segment in around.segments]
    return learn(logs or [target.path])


def narrowed(target: DumpTarget, wanted: RecordFilter) -> RecordFilter:
    """Return *wanted* for one file: of the newest records, those of the last so many offsets."""
    if not wanted.tail or wanted.limit is None:
        return wanted
    from klog.log.header_scan import find_log_end

    base_offset = Segment(target.path).base_offset or 0
    end = find_log_end(target.path, _beside(target, "index"), base_offset).offset
    return wanted._replace(from_offset=max(wanted.from_offset, end - wanted.limit))


def _beside(target: DumpTarget, suffix: str) -> str | None:
    """Return the path of the index next to a log, None if there is none."""
    stem, dot, kind = target.path.rpartition(".")
    path = f"{stem}.{suffix}"
    return path if dot and kind == "log" and os.path.exists(path) else None


def start_of(source: ReadOnlyFile, target: DumpTarget, wanted: RecordFilter) -> int:
    """Return the position in the log where reading may begin."""
    if wanted.tail and wanted.limit is None:
        wanted = wanted._replace(from_offset=HIGHEST)
    if wanted.from_offset == LOWEST and wanted.from_time == LOWEST:
        return 0
    index, time_index = _beside(target, "index"), _beside(target, "timeindex")
    return start_position(source, index, time_index, Segment(target.path).base_offset or 0, wanted)


def _jobs(request: DumpRequest, reader: LogReader) -> int:
    """Return how many workers are worth their while."""
    if request.wanted.limit is not None or request.wanted.in_range:
        return 1
    return max(1, min(request.jobs, (reader.end - reader.position) >> 22))


def dump_lines(targets: Iterable[DumpTarget], request: DumpRequest, sink: Sink) -> int:
    """Write the records (or batches, or other content) of *targets* as JSON lines or CSV; return the exit code."""
    code = OK
    count = RecordLimit(request.wanted.limit)
    for target in targets:
        if count.left == 0:
            break
        kind = kind_of(target, request) or _left_over(target)
        try:
            _must_exist(target)
            if kind in ("log", "checkpoint"):
                code |= _log_lines(target, request, sink, count)
            else:
                from klog.dump.values import value_lines

                code |= value_lines(target, kind, request, sink)
        except KlogError as error:
            sink.report(str(error))
            code |= error.exit_code
    return code


def _log_lines(target: DumpTarget, request: DumpRequest, sink: Sink, count: RecordLimit) -> int:
    from klog.dump.lines import LineDump, RecordOrigin

    topic, partition = target.origin
    origin = RecordOrigin(target.shown, topic, partition)
    segment = Segment(target.path)
    committed = committed_in(target, request)
    wanted = narrowed(target, request.wanted)
    with ReadOnlyFile(target.path) as source:
        dump = LineDump(
            origin,
            request.line_style,
            bounded(wanted, committed),
            segment.span,
            count=count,
            committed=committed,
            max_batch_bytes=request.max_batch_bytes,
            unfinished=is_unfinished(target, request, source),
        )
        start = start_of(source, target, wanted)
        end = min(source.size, request.max_bytes) if request.max_bytes < ALL_BYTES else None
        reader = segment.reader(source, start, end, max_batch_bytes=request.max_batch_bytes)
        run(reader, dump.work, sink, _jobs(request, reader))
    return DAMAGED if dump.damages else OK


def is_unfinished(target: DumpTarget, request: DumpRequest, source: ReadOnlyFile) -> bool:
    """Whether the last batch may well be cut off: a broker is writing it, or --max-bytes cuts it."""
    return target.live or request.max_bytes < min(source.size, ALL_BYTES)
