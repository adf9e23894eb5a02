"""Exports whose keys and values are decoded by schemas: the columns of each topic, chosen by what the topic has.

    schemas = choose_columns(pieces, options, runner, sink)     # reads all pieces once, for the schemas that they name
    output = SchemaOutput(schemas)                              # in a task, for a piece
    output.columns("orders").arrays(window, 3)

Tasks are sent only those schemas that the pieces name, with all that they refer to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from klog.jobs.runner import Job, Runner, TaskResult, collect, pickled_result
from klog.jobs.slice_scan import SliceScan
from klog.kernel import Window
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.records import RecordFilter
from klog.schemas.decoded_rows import NOT_DECODED, DecodedRows, SchemaStyle
from klog.schemas.error_tally import ErrorTally
from klog.schemas.reader_schemas import EACH, LATEST, UsedType
from klog.schemas.registry import Registry
from klog.schemas.side_decoder import SchemaDecoders
from klog.schemas.typed_columns import SidePlan, TypedColumns

if TYPE_CHECKING:
    from klog.base.progress import Sink
    from klog.jobs.slices import LogSlice


class ExportSchemas(NamedTuple):
    """How an export decodes keys and values; *sides*: `key`, `value` or both.  *plans*: the typed columns of Parquet.

    *reader*: the schema that reads Avro values: `each` its own, `latest`, an id, SUBJECT:VERSION.  *is_damaged*: a part
    of a registry's topic could not be read.
    """

    registries: tuple[Registry, ...]
    sides: tuple[str, ...]
    canonical: bool = False
    context: str | None = None
    reader: str = LATEST
    is_damaged: bool = False
    plans: tuple[SidePlan, ...] = ()


class Piece(Protocol):
    """A part of an export: see `klog.jobs.export.ExportTask`."""

    @property
    def number(self) -> int:
        """The place among all."""

    @property
    def slices(self) -> tuple[LogSlice, ...]:
        """The parts of logs, in their order."""

    @property
    def bytes(self) -> int:
        """The bytes to read."""


class SchemaOutput:
    """Decodes the records of one piece.  *tally* counts what does not decode."""

    def __init__(self, schemas: ExportSchemas) -> None:
        self._schemas = schemas
        self._decoders: SchemaDecoders | None = None
        self.tally = ErrorTally()

    def columns(self, topic: str | None) -> TypedColumns:
        """Return the decoded columns of a topic: typed ones, or JSON if each value has the schema that wrote it.

        A topic that names no schema has no typed ones.
        """
        given = self._schemas
        plans = [plan for plan in given.plans if plan.topic == (topic or "")]
        if given.reader == EACH:
            form = "canonical" if given.canonical else "plain"
            plans = [SidePlan(topic or "", side, (), form) for side in given.sides]
        return TypedColumns(plans, given.registries, self.tally, given.context)

    def rows(self, topic: str | None, partition: int | None) -> DecodedRows:
        """Return what makes lines of a topic-partition."""
        given = self._schemas
        if self._decoders is None:
            make = None
            if given.reader != EACH:
                from klog.schemas.resolved_values import resolving

                make = resolving(given.registries, given.reader, given.canonical, given.context)
            self._decoders = SchemaDecoders(given.registries, given.canonical, given.context, make)
        return DecodedRows(topic, partition, SchemaStyle(self._decoders, given.sides, self.tally))


class _TypesQuery(NamedTuple):
    """The schemas, and the records to look at."""

    schemas: ExportSchemas
    wanted: RecordFilter
    max_batch_bytes: int = MAX_BATCH_BYTES


class _TopicTypes(NamedTuple):
    """The types of record of a topic, by side; None for a side that names no schema.  *ids*: those it names."""

    topic: str
    counts: dict[str, Counter[UsedType] | None]
    ids: set[int]


def choose_columns(
    pieces: Sequence[Piece],
    given: tuple[ExportSchemas, RecordFilter, int],
    runner: Runner,
    sink: Sink,
) -> ExportSchemas:
    """Return the schemas that *pieces* need, with the columns of each topic.  *given*: schemas, filter, largest batch.

    Raises UsageError for a reader schema that is not there.
    """
    from klog.schemas.used_types import side_plans

    schemas = given[0]
    job = Job(_count_types, [[piece] for piece in pieces], _TypesQuery(*given), [piece.bytes for piece in pieces])
    topics: dict[str, _TopicTypes] = {}
    for result in collect(runner, job, sink):
        for found in result.value:
            known = topics.setdefault(found.topic, found)
            if known is not found:
                topics[found.topic] = _merged(known, found)
    plans = [
        plan
        for one in topics.values()
        for plan in side_plans(one.topic, one.counts, schemas.registries, schemas.reader, schemas.context)
    ]
    ids = {schema_id for one in topics.values() for schema_id in one.ids}
    needed = tuple(registry.part(ids) for registry in schemas.registries)
    return schemas._replace(registries=needed, plans=tuple(plans))


def _merged(one: _TopicTypes, other: _TopicTypes) -> _TopicTypes:
    counts: dict[str, Counter[UsedType] | None] = {}
    for side, known in one.counts.items():
        more = other.counts[side]
        counts[side] = known if more is None else more if known is None else known + more
    return _TopicTypes(one.topic, counts, one.ids | other.ids)


def _count_types(unit: Sequence[Piece], query: _TypesQuery) -> Iterator[TaskResult]:
    """Count the types of the pieces of *unit*; yield a result for each, a list of `_TopicTypes`."""
    from klog.schemas.used_types import UsedTypes

    schemas = query.schemas
    decoders = SchemaDecoders(schemas.registries, context=schemas.context)
    scan = SliceScan(query.wanted, query.max_batch_bytes)
    for piece in unit:
        found: dict[str, UsedTypes] = {}
        for part in piece.slices:
            topic = part.topic or ""
            if topic in NOT_DECODED:
                continue
            if topic not in found:
                found[topic] = UsedTypes(decoders, topic, schemas.sides)
            for rows in scan.read(part):
                if isinstance(rows, Window):
                    found[topic].add(rows)
        results = [_TopicTypes(topic, one.found(), one.ids) for topic, one in found.items()]
        yield pickled_result("types", results, piece.number)
