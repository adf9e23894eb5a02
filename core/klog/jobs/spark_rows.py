"""Slices of logs as Arrow record batches, one row for each record: the columns of Spark's Kafka source, and a few more.

    query = Query(("topic", "partition", "offset", "value"))
    for batch in read(slices(partition), query):
        print(batch.num_rows)

Control records are no rows, as no consumer sees them.  Each record batch has memory of its own and may be kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from klog.base.errors import DamagedError, UsageError, near_misses
from klog.formats.damage import Damage
from klog.jobs.schema_output import ExportSchemas, SchemaOutput
from klog.jobs.slice_scan import SliceScan
from klog.jobs.slices import LogSlice
from klog.kernel import Window
from klog.log.arrow import Arrays, OtherColumns, Sizes, import_pyarrow
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.records import RecordFilter, drop_crowded
from klog.partition.transactions.isolation import Isolation

if TYPE_CHECKING:
    import pyarrow as pa

BATCH_BYTES = 1 << 20
_MOST_BYTES = 512 << 20  # of a batch: three times that, as header keys become valid UTF-8, still fits an Arrow array

KAFKA_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of Spark's Kafka source, in its order; with includeHeaders also `headers`."""

COLUMNS = (
    *KAFKA_COLUMNS,
    "headers",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "sequence",
    "position",
    "file",
    "damage",
)
"""All there are.  *position*: of the record's batch in *file*, in bytes.  *damage*: null but in rows about damage."""


def schema(columns: Sequence[str], others: OtherColumns | None = None) -> pa.Schema:
    """Return the Arrow schema of *columns*: the types of Spark's Kafka source, everything nullable as Spark wants it.

    *others*: columns in the places of some of them.  A timestamp that does not fit microseconds is null.  Raises
    UsageError for a column that there is not.
    """
    pa = import_pyarrow()
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        "headers": pa.list_(pa.field("element", header)),
        "leader_epoch": pa.int32(),
        "producer_id": pa.int64(),
        "producer_epoch": pa.int16(),
        "sequence": pa.int32(),
        "position": pa.int64(),
        "file": pa.string(),
        "damage": pa.string(),
    }
    if others is not None:
        for name, fields in others.fields().items():
            del types[name]
            types |= {field.name: field.type for field in fields}
    for name in columns:
        if name not in types:
            raise UsageError(f"no column {name}{near_misses(name, types)}; there are {', '.join(types)}")
    return pa.schema([(name, types[name]) for name in columns])


class RowQuery(NamedTuple):
    """The rows and columns to read of slices.

    *wanted*: the filter of records; its limit and tail do not count.  *isolation* must be that of the slices.
    *damage*: `fail` raises at the first, `skip` passes over it, `column` makes a row of it: null but for `damage` and
    for the known parts of its place.  No batch of more than *max_batch_bytes* is read or decompressed.  *batch_bytes*:
    the size of a record batch, about; a single record may be larger.  *schemas*: how keys and values are decoded.
    """

    columns: tuple[str, ...] = KAFKA_COLUMNS
    wanted: RecordFilter = RecordFilter()
    isolation: Isolation = "read_uncommitted"
    damage: Literal["fail", "skip", "column"] = "fail"
    max_batch_bytes: int = MAX_BATCH_BYTES
    batch_bytes: int = BATCH_BYTES
    schemas: ExportSchemas | None = None


def read(unit: Sequence[LogSlice], query: RowQuery) -> Iterator[pa.RecordBatch]:
    """Yield the records of the slices of *unit*, in their order, as record batches of the schema of *query*.

    Raises DamagedError at the first damage, with its place, if the query says so; else nothing for content, nor for
    files that cannot be read: those that have vanished, shrunk or changed since the slices were made are damage too.
    """
    builder = _BatchBuilder(query)
    most = min(query.max_batch_bytes, _MOST_BYTES)
    scan = SliceScan(query.wanted, most)
    for part in unit:
        if (part.aborted is None) != (query.isolation == "read_uncommitted"):
            raise ValueError(f"{part.path}: a slice of one isolation, a query of another")
        for found in scan.read(part):
            damages = [found] if isinstance(found, Damage) else []
            if isinstance(found, Window):
                if "headers" in query.columns:
                    damages = drop_crowded(found, part.path)
                if found.records:
                    yield from builder.add(found, part)
            if damages and query.damage == "fail":
                yield from builder.flush()
                raise DamagedError(f"{damages[0]} (damage=skip passes over it, damage=column shows it)")
            for damage in damages if query.damage == "column" else ():
                builder.add_damage(damage, part)
    yield from builder.flush()


class _BatchBuilder:
    """Gathers rows until there are enough of them for a record batch."""

    def __init__(self, query: RowQuery) -> None:
        self._pa = import_pyarrow()
        self._decoded: dict[str | None, OtherColumns] = {}
        self._output = None if query.schemas is None else SchemaOutput(query.schemas)
        plans = () if query.schemas is None else query.schemas.plans
        self._schema = schema(query.columns, self._columns_of(plans[0].topic if plans else None))
        self._arrays = Arrays(null_headers=True)
        self._batch_bytes = query.batch_bytes
        self._waiting: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, rows: Window, part: LogSlice) -> Iterator[pa.RecordBatch]:
        """Take *rows*; yield the record batches that are full."""
        sizes = Sizes(*rows.content_sizes())
        others = self._columns_of(part.topic)
        decoded = {} if others is None else others.arrays(rows, part.partition)
        known = {"topic": part.topic, "partition": part.partition, "file": part.path, "damage": None}
        columns = [
            self._repeated(known[field.name], field.type, rows.records)
            if field.name in known
            else decoded[field.name]
            if field.name in decoded
            else self._arrays.array(rows, sizes, field)
            for field in self._schema
        ]
        made = self._pa.RecordBatch.from_arrays(columns, schema=self._schema)
        size = made.nbytes
        if self._bytes + size > 2 * self._batch_bytes:
            yield from self.flush()
        self._waiting.append(made)
        self._bytes += size
        if 2 * self._bytes >= self._batch_bytes:
            yield from self.flush()

    def _columns_of(self, topic: str | None) -> OtherColumns | None:
        if self._output is None:
            return None
        if topic not in self._decoded:
            self._decoded = {topic: self._output.columns(topic)}
        return self._decoded[topic]

    def add_damage(self, damage: Damage, part: LogSlice) -> None:
        """Take a row about *damage*, of which some columns are known."""
        known = {
            "topic": part.topic,
            "partition": part.partition,
            "offset": damage.place.offset,
            "position": damage.place.position,
            "file": part.path,
            "damage": str(damage),
        }
        columns = [self._repeated(known.get(field.name), field.type, 1) for field in self._schema]
        self._waiting.append(self._pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yield what waits."""
        waiting, self._waiting, self._bytes = self._waiting, [], 0
        if len(waiting) > 1:  # small ones: each costs Spark as much as a large one
            waiting = self._pa.Table.from_batches(waiting).combine_chunks().to_batches()
        for batch in waiting:
            yield from _pieces(batch, 2 * self._batch_bytes)

    def _repeated(self, value: object, type_: pa.DataType, count: int) -> pa.Array:
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()  # a name on the disk need not be UTF-8
        return (
            self._pa.repeat(self._pa.scalar(value, type_), count) if value is not None else self._pa.nulls(count, type_)
        )


def _pieces(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield *batch* in parts of at most *most_bytes*, as far as its rows are not larger; they share its memory."""
    if batch.nbytes <= most_bytes or batch.num_rows < 2:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _pieces(batch.slice(0, half), most_bytes)
    yield from _pieces(batch.slice(half), most_bytes)
