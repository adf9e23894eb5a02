"""Records as Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klog.dump.arrow import import_pyarrow
from klog.dump.files import DAMAGED, OK, bounded, committed_in, is_unfinished, kind_of, narrowed, start_of
from klog.dump.request import ALL_BYTES, DumpRequest, DumpTarget
from klog.dump.table import Table
from klog.errors import KlogError, UnsupportedError
from klog.files.read_only import ReadOnlyFile
from klog.formats.codec import Decompressor
from klog.kernel import Window
from klog.log.record_filter import RecordLimit
from klog.log.records import decode_window, message_damages
from klog.log.segment import Segment
from klog.progress import Sink

_BATCH_ROWS = 16 << 10


def dump_parquet(targets: Iterable[DumpTarget], request: DumpRequest, sink: Sink, descriptor: int) -> int:
    """Write the records of *targets* as one Parquet file to *descriptor*; return the exit code.

    Damage goes to the sink's reports.
    """
    import_pyarrow().set_cpu_count(max(1, request.jobs))
    code = OK
    count = RecordLimit(request.wanted.limit)
    with Table(descriptor) as table:
        for target in targets:
            try:
                for found in _windows(target, request, sink, count):
                    if isinstance(found, int):
                        code |= found
                    else:
                        table.add(found, *target.origin)
            except KlogError as error:
                sink.report(str(error))
                code |= error.exit_code
    return code


def _windows(target: DumpTarget, request: DumpRequest, sink: Sink, count: RecordLimit) -> Iterator[Window | int]:
    """Yield each window of wanted record rows of a log, and DAMAGED for each damage."""
    if kind_of(target, request) not in ("log", "checkpoint"):
        raise UnsupportedError(f"{target.shown}: Parquet is for logs; --output jsonl shows it")
    segment = Segment(target.path)
    committed = committed_in(target, request)
    wanted = bounded(narrowed(target, request.wanted), committed)
    window = Window(records=_BATCH_ROWS)
    codecs = Decompressor(request.max_batch_bytes).functions
    with ReadOnlyFile(target.path) as source:
        start = start_of(source, target, wanted)
        end = request.max_bytes if request.max_bytes < ALL_BYTES else None
        reader = segment.reader(source, start, end, max_batch_bytes=request.max_batch_bytes)
        while count.left != 0 and (piece := reader.next(window)):
            beyond = wanted.skip(window)
            if committed:
                committed.skip(window)
            for rows, damage in decode_window(window, codecs, target.shown, segment.span):
                if damage:
                    sink.report(str(damage))
                    yield DAMAGED
                    continue
                wanted.keep(rows)
                count.take(rows)
                if rows.records:
                    yield rows
                for bad in message_damages(rows, target.shown):
                    sink.report(str(bad))
                    yield DAMAGED
            if piece.damage and not (piece.damage.is_unfinished and is_unfinished(target, request, source)):
                sink.report(str(piece.damage))
                yield DAMAGED
            if beyond:
                return
