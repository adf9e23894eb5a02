"""Decoded keys and values of the data source: chosen on the driver, made by the tasks.

A table has the columns of one topic, of the latest schemas; with `readerSchema` `each` keys and values are JSON,
for any number of topics.  Spark asks for the columns before it reads, so the schemas of a topic are those that the
first and the last part of each of its logs name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from klog.base.errors import UsageError
from klog.base.progress import Silence
from klog.jobs.runner import Threads
from klog.jobs.schema_output import ExportSchemas, SchemaOutput, choose_columns
from klog.jobs.schema_sources import find_registries, topics_beside
from klog.jobs.slices import LogSlice, slice_partition
from klog.log.records import RecordFilter
from klog.schemas.reader_schemas import EACH
from klog.schemas.used_types import SIDES
from klog.spark.read_tasks import chosen
from klog.spark.remote_tiers import over_tiers
from klog.spark.source_options import AUTO, SchemaWishes, SourceOptions

if TYPE_CHECKING:
    from klog.log.arrow import OtherColumns

_PART_BYTES: Final = 16 << 20


def decoded(options: SourceOptions, wishes: SchemaWishes) -> ExportSchemas:
    """Return how keys and values are decoded.  Raises UsageError for several topics, and errors of the registries."""
    named = [path for path in wishes.paths if path != AUTO]
    beside = topics_beside(options.paths, wishes.topic) if AUTO in wishes.paths else []
    registries = tuple(find_registries([*named, *beside] or options.paths, wishes.topic))
    given = ExportSchemas(registries, SIDES, wishes.canonical, None, wishes.reader)
    if wishes.reader == EACH:
        return given
    with over_tiers(options.mount):
        partitions = chosen(options)
        topics = sorted({partition.topic or "" for partition in partitions})
        if len(topics) != 1:
            raise UsageError(
                f"schemas: a table has the columns of one topic, and these are {len(topics)}: {', '.join(topics[:3])};"
                " subscribe to one, or readerSchema each for JSON"
            )
        parts = [part for one in partitions for part in _ends(slice_partition(one, _PART_BYTES, RecordFilter()))]
    asked = given, RecordFilter(), options.max_batch_bytes
    found = choose_columns([_Piece(tuple(parts))], asked, Threads(1), Silence())
    return found._replace(plans=tuple(plan._replace(form="spark") for plan in found.plans))


class _Piece:
    """All that is looked at."""

    number = 0

    def __init__(self, slices: tuple[LogSlice, ...]) -> None:
        self.slices = slices

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.slices)


def _ends(slices: list[LogSlice]) -> list[LogSlice]:
    return slices if len(slices) < 3 else [slices[0], slices[-1]]


def columns_in_place(schemas: ExportSchemas | None) -> OtherColumns | None:
    """Return the decoded columns, for their fields."""
    if schemas is None:
        return None
    topic = schemas.plans[0].topic if schemas.plans else None
    return SchemaOutput(schemas).columns(topic)
