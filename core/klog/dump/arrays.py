"""Records as Arrow arrays: the columns of a row group, filled window after window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.dump.arrow import Arrays, Sizes, import_pyarrow
from klog.kernel import Window

if TYPE_CHECKING:
    import pyarrow as pa


def schema() -> pa.Schema:
    """Return the columns of a record."""
    pa = import_pyarrow()
    header = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    return pa.schema(
        [
            pa.field("topic", pa.dictionary(pa.int32(), pa.string())),
            ("partition", pa.int32()),
            pa.field("offset", pa.int64(), nullable=False),
            ("timestamp", pa.timestamp("ms", "UTC")),
            pa.field("timestamp_type", pa.dictionary(pa.int8(), pa.string())),
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("headers", pa.list_(header)),
            ("leader_epoch", pa.int32()),
            ("producer_id", pa.int64()),
            ("producer_epoch", pa.int16()),
            ("sequence", pa.int32()),
            pa.field("transactional", pa.bool_(), nullable=False),
            pa.field("control", pa.dictionary(pa.int8(), pa.string())),
            pa.field("position", pa.int64(), nullable=False),
        ]
    )


class RowGroup:
    """Rows that have been gathered and not been taken.

    `rows` counts them, `size` the bytes of their keys, values and headers.
    """

    def __init__(self) -> None:
        self._pa = import_pyarrow()
        self._schema = schema()
        self._arrays = Arrays()
        self._batches: list[pa.RecordBatch] = []
        self.rows = self.size = 0

    def add(self, window: Window, sizes: Sizes, topic: str | None, partition: int | None) -> None:
        """Take the record rows of *window*, whose content has these *sizes*, as of *topic* and *partition*."""
        columns = [self._arrays.array(window, sizes, field) for field in list(self._schema)[2:]]
        self._batches.append(
            self._pa.RecordBatch.from_arrays(
                [*self._origin(window.records, topic, partition), *columns], schema=self._schema
            )
        )
        self.rows += window.records
        self.size += sizes.bytes

    def take(self) -> pa.Table:
        """Return the rows as a table of `schema`, and begin anew."""
        table = self._pa.Table.from_batches(self._batches, self._schema)
        self.rows = self.size = 0
        self._batches.clear()
        return table

    def _origin(self, rows: int, topic: str | None, partition: int | None) -> tuple[pa.Array, pa.Array]:
        pa = self._pa
        names = pa.array([] if topic is None else [topic.encode("utf-8", "replace").decode()], pa.string())
        codes = pa.repeat(pa.scalar(None if topic is None else 0, pa.int32()), rows)
        return pa.DictionaryArray.from_arrays(codes, names), pa.repeat(pa.scalar(partition, pa.int32()), rows)
