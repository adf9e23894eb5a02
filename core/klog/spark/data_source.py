"""The data source `kafka-log`: reads a broker's data directory instead of the broker.

    spark.read.format("kafka-log").option("subscribe", "orders").load("/data/broker-1")

Columns, types and options are those of Spark's own Kafka source; `klog.spark.source_options` has ours.  Planning finds
partitions, divides their logs into slices and packs those into tasks; a task decodes into Arrow, and nothing else is
passed to the JVM.  Offsets and times are resolved while planning, so that all tasks see one state of the directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from klog.base.errors import UsageError, near_misses
from klog.spark.filter_pushdown import FilterPushdown, push
from klog.spark.ranges import batch_ranges, hold_names_against
from klog.spark.read_tasks import chosen, read_task, tasks
from klog.spark.remote_tiers import over_tiers
from klog.spark.source_options import SourceOptions, read_columns, read_options, read_schema_wishes
from klog.spark.utf8_errors import in_text

if TYPE_CHECKING:
    import pyarrow as pa

    from klog.jobs.schema_output import ExportSchemas


class KafkaLog(DataSource):
    """The data source, which Spark finds by its name."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)
        self._schemas: ExportSchemas | None = None

    @classmethod
    def name(cls) -> str:
        """Return the name for `format(…)` and `USING`."""
        return "kafka-log"

    def schema(self) -> StructType:
        """Return the columns.  Raises UsageError for an invalid option."""
        columns, schemas = read_columns(self.options), self._decoded()
        return spark_schema(with_others(columns, schemas), schemas)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch."""
        options = replace(read_options(self.options), schemas=self._decoded())
        # Spark refuses a reader that takes filters wherever they are not switched on in its settings.
        return (FilteringReader if options.pushdown else KafkaLogReader)(options, columns_of(schema, options.schemas))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return the reader of a stream."""
        from klog.spark.micro_batches import StreamReader

        options = replace(read_options(self.options, streaming=True), schemas=self._decoded())
        return StreamReader(options, columns_of(schema, options.schemas))

    def _decoded(self) -> ExportSchemas | None:
        """Return how keys and values are decoded: chosen once, and sent along with this object."""
        wishes = read_schema_wishes(self.options)
        if wishes is None:
            return None
        if self._schemas is None:
            from klog.spark.decoded_source import decoded

            bounds = ("startingoffsets", "endingoffsets", "startingtimestamp", "endingtimestamp")
            others = {name: text for name, text in self.options.items() if not name.lower().startswith(bounds)}
            with in_text():
                self._schemas = decoded(read_options(others), wishes)
        return self._schemas


class KafkaLogReader(DataSourceReader):
    """Reads a batch query.  It is sent to every task, so it contains only the request."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options, self.columns = options, tuple(columns)
        self.pushed = FilterPushdown()

    @in_text()
    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks.  Raises UsageError, UnreadableError."""
        options, pushed = self.options, self.pushed
        with over_tiers(options.mount):
            found = chosen(options)
            hold_names_against((options.starting, options.ending), found)
            found = [partition for partition in found if pushed.means(partition.topic, partition.number)]
            return tasks(batch_ranges(found, options), options, pushed)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return read_task(partition, self.columns, self.options, self.pushed)


class FilteringReader(KafkaLogReader):
    """Takes filters on topic, partition, offset and timestamp, and reads the less for it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  # Spark's name
        """Take the filters that bound the reading; return those that Spark has to apply again."""
        self.pushed, left = push(filters)
        return left


def with_others(columns: Sequence[str], schemas: ExportSchemas | None) -> list[str]:
    """Return *columns* with those beside a decoded key or value."""
    from klog.spark.decoded_source import columns_in_place

    others = columns_in_place(schemas)
    fields = {} if others is None else others.fields()
    return [name for one in columns for name in ([field.name for field in fields[one]] if one in fields else [one])]


def spark_schema(columns: Sequence[str], schemas: ExportSchemas | None = None) -> StructType:
    """Return *columns* as Spark's types."""
    from pyspark.sql.pandas.types import from_arrow_schema

    from klog.jobs.spark_rows import schema
    from klog.spark.decoded_source import columns_in_place

    return from_arrow_schema(schema(columns, columns_in_place(schemas)))


def columns_of(given: StructType, schemas: ExportSchemas | None = None) -> tuple[str, ...]:
    """Return the columns of a schema, which may be the user's own.  Raises UsageError for unknown columns."""
    from klog.jobs.spark_rows import COLUMNS

    known = with_others(COLUMNS, schemas)
    for field in given:
        if field.name not in known:
            raise UsageError(f"no column {field.name!r}{near_misses(field.name, known)}")
        ours = spark_schema([field.name], schemas)[0].dataType
        if field.dataType != ours:
            raise UsageError(f"column {field.name} is {ours.simpleString()}, not {field.dataType.simpleString()}")
    return tuple(given.fieldNames())
