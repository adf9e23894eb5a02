"""Finds where the newest rows of a dump begin: `--tail --limit N` prints the last N of each partition.

A row is a record, or a batch in a dump of batches.  Rows that the filters leave out do not count, so their number shows
only when they are read: the last N offsets first, then each time four times as many, until they have N rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from klog.base.errors import KlogError
from klog.commands.dump.dump_files import kind_of
from klog.commands.dump.dump_request import DumpRequest, DumpTarget, LogInput, LogInputs, log_end_of
from klog.data_dir.partition import segments_between
from klog.formats.codec import Decompressor
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.kernel import Window
from klog.log.records import RecordLimit
from klog.log.segment import Segment

_FACTOR = 4
_ROWS = 16 << 10


def newest(targets: Iterable[DumpTarget], request: DumpRequest) -> Iterator[DumpTarget]:
    """Yield those of *targets* that have the last rows of each partition, or of each file that is named by itself.

    Without a limit to the newest rows all targets are yielded as they are.
    """
    if not request.wanted.tail or request.wanted.limit is None:
        yield from targets
        return
    for (_, is_alone), group in groupby(targets, lambda one: (one.directory, one.segment is None)):
        for some in [[one] for one in group] if is_alone else [list(group)]:
            yield from _newest_of(some, request)


def _newest_of(targets: Sequence[DumpTarget], request: DumpRequest) -> Iterator[DumpTarget]:
    logs = [one for one in targets if kind_of(one, request) in ("log", "checkpoint")]
    first = _first_row(logs, request) if logs else LONG_MIN
    segments = next((one.segments for one in logs), ())
    kept = segments_between(segments, first, LONG_MAX)
    yield from (one._replace(from_offset=first) for one in targets if one.segment is None or one.segment in kept)


def _first_row(logs: Sequence[DumpTarget], request: DumpRequest) -> int:
    """Return the offset of the first of the last rows of *logs*, which ascend; LONG_MIN if there are fewer rows."""
    limit = request.wanted.limit or 0
    try:
        log_end = log_end_of(logs[-1])
    except KlogError:  # the dump says so
        return LONG_MIN
    wanted = request.wanted.before_end(lambda: log_end)
    begin, end = max(Segment(logs[0].path).base_offset or 0, wanted.from_offset), min(log_end, wanted.to_offset)
    back = limit
    while True:
        start = end - back if end - back > begin else LONG_MIN
        rows = _last_rows(logs, request, start)
        if len(rows) == limit or start == LONG_MIN:
            return rows[0] if len(rows) == limit else LONG_MIN
        back *= _FACTOR


def _last_rows(logs: Sequence[DumpTarget], request: DumpRequest, start: int) -> deque[int]:
    """Return the offsets of the last rows from offset *start* on, as many as the limit at most."""
    rows: deque[int] = deque(maxlen=request.wanted.limit)
    inputs = LogInputs(request)
    kept = segments_between(logs[-1].segments, start, LONG_MAX)
    for target in logs:
        if target.segments and target.segment not in kept:
            continue
        try:
            with inputs.open(target._replace(from_offset=start)) as log:
                rows.extend(_records(log, request) if request.is_of_records else _batches(log))
        except KlogError:
            continue  # the dump says so
    return rows


def _records(log: LogInput, request: DumpRequest) -> Iterator[int]:
    """Yield the offset of each record that matches, of many in a window only the last."""
    window, codecs = Window(records=_ROWS), Decompressor(request.max_batch_bytes).functions
    for found in log.read(log.reader, window, codecs, RecordLimit(None)):
        if isinstance(found, Window):
            first = max(0, found.records - (request.wanted.limit or 0))
            yield from (found.record(i, False)[0] for i in range(first, found.records))


def _batches(log: LogInput) -> Iterator[int]:
    """Yield the last offset of each intact batch that matches."""
    window = Window()
    while piece := log.reader.next(window):
        is_last, _ = log.leave_out(window)
        window.check(0, window.count)
        for i in range(window.count):
            used = window.out_used
            window.batch_rows(i, i + 1, False, b"")
            if window.out_used > used and window.batch(i).crc_holds:  # it is not left out
                yield window.batch(i).last_offset
            window.flushed()
        if is_last or piece.stop:
            return
