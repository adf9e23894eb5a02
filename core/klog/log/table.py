"""Writes a Parquet file.

The dictionaries of keys and values are off, since keys seldom repeat within a row group; offsets and timestamps are
delta-encoded.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from types import TracebackType

from klog.kernel import Window
from klog.log.arrow import RowGroup, Sizes, import_pyarrow, schema

ROW_GROUP_ROWS = 128 << 10
ROW_GROUP_BYTES = 64 << 20
_DICTIONARIES = ("topic", "timestamp_type", "control")
_DELTAS = ("offset", "timestamp", "position", "sequence")
_STATISTICS = (
    "offset", "timestamp", "partition", "topic", "timestamp_type", "leader_epoch", "producer_id", "producer_epoch",
    "sequence", "transactional", "control", "coordinator_epoch",
)  # fmt: skip


class Table:
    """Takes record rows and writes them to *descriptor*, one row group after the other, all columns except *without*.

    *batch_offsets*: add a column of the batches' base offsets.

    `bytes` counts written bytes, without rows of an unfinished group.
    """

    def __init__(self, descriptor: int, without: Collection[str] = (), *, batch_offsets: bool = False) -> None:
        pa = import_pyarrow()
        import pyarrow.parquet as pq

        every = schema(batch_offsets=batch_offsets)
        self._columns = [name for name in every.names if name not in without]
        self._group = RowGroup(every)
        self._file = os.fdopen(os.dup(descriptor), "wb")
        self._writer = pq.ParquetWriter(
            self._file,
            pa.schema([every.field(name) for name in self._columns]),
            compression="zstd",
            compression_level=1,
            use_dictionary=[name for name in _DICTIONARIES if name in self._columns],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in _DELTAS if name in self._columns},
            write_statistics=[name for name in _STATISTICS if name in self._columns],
        )

    @property
    def bytes(self) -> int:
        """Bytes of the file so far."""
        return self._file.tell()

    def add(self, rows: Window, topic: str | None, partition: int | None) -> None:
        """Take *rows* into the row group, which is written when it is large enough: before them, if they are large."""
        sizes = Sizes(*rows.content_sizes())
        if self._group.rows and self._group.size + sizes.bytes > ROW_GROUP_BYTES:
            self._flush()
        self._group.add(rows, sizes, topic, partition)
        if self._group.rows >= ROW_GROUP_ROWS:
            self._flush()

    def _flush(self) -> None:
        if self._group.rows:
            rows = self._group.rows
            self._writer.write_table(self._group.take().select(self._columns), row_group_size=rows)

    def close(self) -> None:
        """Write the last row group, and end the file."""
        with self._file, self._writer:
            self._flush()

    def abandon(self) -> None:
        """Close the file without its footer: it will not be read."""
        self._writer.is_open = False  # otherwise the garbage collector would end it
        try:
            self._file.close()
        except OSError:
            pass  # the content of its buffer is lost: the caller already has the relevant error

    def __enter__(self) -> Table:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        else:
            self.abandon()
