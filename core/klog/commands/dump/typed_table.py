"""The typed columns of a dump as Parquet: the logs are read once before, for the schemas that they name."""

from __future__ import annotations

from collections.abc import Sequence

from klog.base.errors import KlogError, UsageError
from klog.commands.dump.dump_request import DumpRequest, DumpTarget, LogInputs
from klog.formats.codec import Decompressor
from klog.kernel import Window
from klog.log.records import RecordLimit
from klog.schemas.decoded_rows import NOT_DECODED
from klog.schemas.typed_columns import TypedColumns
from klog.schemas.used_types import UsedTypes, side_plans

_ROWS = 16 << 10


def typed_columns(targets: Sequence[DumpTarget], request: DumpRequest) -> TypedColumns:
    """Return the columns of the topic of *targets*, which are logs.  Raises UsageError for several topics."""
    schemas = request.schemas
    assert schemas is not None
    topics = {target.origin[0] or "" for target in targets}
    if len(topics) > 1:
        names = ", ".join(sorted(topics)[:3])
        raise UsageError(
            f"Parquet with --schemas has the columns of one topic, and these are {len(topics)}: {names} …;"
            " -t chooses one, and klog export writes each to a file of its own"
        )
    topic, decoders = next(iter(topics), ""), schemas.decoders
    used = UsedTypes(decoders, topic, () if topic in NOT_DECODED else schemas.sides)
    _read(targets, request, used)
    plans = side_plans(topic, used.found(), decoders.registries, schemas.reader, decoders.context)
    return TypedColumns(plans, decoders.registries, schemas.tally, decoders.context)


def _read(targets: Sequence[DumpTarget], request: DumpRequest, used: UsedTypes) -> None:
    inputs = LogInputs(request._replace(wanted=request.wanted._replace(controls=False)))
    count = RecordLimit(request.limit)
    window, codecs = Window(records=_ROWS), Decompressor(request.max_batch_bytes).functions
    for target in targets:
        try:
            with inputs.open(target) as log:
                for found in log.read(log.reader, window, codecs, count):
                    if isinstance(found, Window) and found.records:
                        used.add(found)
        except KlogError:
            continue  # the dump says so
