"""Records as Parquet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klog.base.errors import ExitCode, KlogError, UnsupportedError
from klog.base.progress import Sink
from klog.commands.dump.files import kind_of, report_failure
from klog.commands.dump.log_input import LogInputs
from klog.commands.dump.request import DumpRequest, DumpTarget
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage
from klog.kernel import Window
from klog.log.arrow import import_pyarrow
from klog.log.record_filter import RecordLimit
from klog.log.records import drop_crowded
from klog.log.table import Table

_BATCH_ROWS = 16 << 10


def dump_parquet(targets: Iterable[DumpTarget], request: DumpRequest, sink: Sink, descriptor: int) -> int:
    """Write the records of *targets* as one Parquet file to *descriptor*; return the exit code.

    Damage is passed to the sink's reports.
    """
    import_pyarrow().set_cpu_count(max(1, request.jobs))
    code = ExitCode.CLEAN
    count, inputs = RecordLimit(request.wanted.limit), LogInputs(request)
    with Table(descriptor, batch_offsets=request.line_style.batch_offsets) as table:
        for target in targets:
            try:
                for found in _found(target, inputs, count):
                    if isinstance(found, Damage):
                        sink.report(str(found))
                        code |= ExitCode.PROBLEMS_LEFT
                    else:
                        table.add(found, *target.origin)
            except KlogError as error:
                code |= report_failure(error, target, sink)
    return code


def _found(target: DumpTarget, inputs: LogInputs, count: RecordLimit) -> Iterator[Window | Damage]:
    """Yield each window of matching record rows of a log, and its damage."""
    if kind_of(target, inputs.request) not in ("log", "checkpoint"):
        raise UnsupportedError(f"{target.shown}: Parquet is for logs; --output jsonl shows it")
    window = Window(records=_BATCH_ROWS)
    codecs = Decompressor(inputs.request.max_batch_bytes).functions
    with inputs.open(target) as log:
        for found in log.read(log.reader, window, codecs, count):
            if isinstance(found, Damage):
                yield found
                continue
            left_out = drop_crowded(found, log.file)
            if found.records:
                yield found
            yield from left_out
