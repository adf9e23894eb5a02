"""Record rows as Arrow arrays that own their memory, and Parquet files of them.

Keys and values are `binary`: a binary_view of the log would save nothing in Parquet and is slow to ship.  In Parquet
their dictionaries are off, since keys seldom repeat within a row group; offsets and timestamps are delta-encoded.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from klog.base.errors import UnsupportedError
from klog.formats.control import TYPES
from klog.kernel import COLUMNS, Window

if TYPE_CHECKING:
    import pyarrow as pa


NAMES = {"timestamp_type": ("CreateTime", "LogAppendTime"), "control": (*TYPES.values(), "UNKNOWN")}
"""The columns that are codes of a few names."""

_COLUMN = {"timestampType": "timestamp_type"}


def import_pyarrow() -> Any:
    """Return the pyarrow module.  Raises UnsupportedError that names the package to install."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy is imported too; its idle threads cost 100 ms of CPU
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UnsupportedError("Parquet needs pyarrow: pip install 'klog[parquet]'") from error
    return pa


def make_pyarrow_small() -> None:
    """Reduce the memory of pyarrow in this process, unless it is already imported; nothing else here uses numpy.

    The import without numpy saves 12 MB and 0.1 s (pyarrow before 18 cannot be imported that way). mimalloc, its
    default allocator, holds tens of megabytes back.
    """
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
    found = None if {"numpy", "pyarrow"} & {*sys.modules} else find_spec("pyarrow")
    if found is None or found.origin is None:
        return
    packages = os.path.dirname(os.path.dirname(found.origin))
    versions = [name.split("-")[1].split(".")[0] for name in os.listdir(packages) if name.startswith("pyarrow-")]
    if versions and all(version.isdecimal() and int(version) >= 18 for version in versions):
        sys.modules["numpy"] = None  # type: ignore[assignment]  # so that importing it fails


class Sizes(NamedTuple):
    """The content of rows in bytes; *headers*: how many there are."""

    keys: int
    values: int
    headers: int
    header_keys: int
    header_values: int

    @property
    def bytes(self) -> int:
        """All of it, with the two places that each header takes in a column."""
        return self.keys + self.values + self.header_keys + self.header_values + 8 * self.headers


class Arrays:
    """Makes arrays of record rows, each for one field of a schema.

    A field's name is one of the kernel's COLUMNS, or `key`, `value`, `headers`, or `timestampType`: the number of
    Java's enum, -1 in place of null.  The type of a timestamp field gives its unit, ms or µs. With *null_headers* the
    headers of a record without headers are null, else an empty list.
    """

    def __init__(self, null_headers: bool = False) -> None:
        self._pa = import_pyarrow()
        self._null_headers = null_headers

    def array(self, rows: Window, sizes: Sizes, field: pa.Field) -> pa.Array:
        """Return the column of *rows* for *field*; *sizes* are those of the rows."""
        if field.name in ("key", "value"):
            return self._binary(rows, sizes, field.name == "value")
        if field.name == "headers":
            return self._headers(rows, sizes, field)
        return self._numbers(rows, field)

    def _room(self, size: int) -> tuple[pa.Buffer, memoryview]:
        """Return a buffer of *size* bytes, and a view of it to write to; its content is anything."""
        buffer = self._pa.allocate_buffer(max(size, 1))
        return buffer, memoryview(buffer).cast("B")

    def _ends(self, count: int) -> tuple[pa.Buffer, memoryview]:
        """Return a buffer for the offsets of *count* items, the first of which is 0."""
        buffer, view = self._room(4 * (count + 1))
        ends = view.cast("i")
        ends[0] = 0
        return buffer, ends

    def _numbers(self, rows: Window, field: pa.Field) -> pa.Array:
        pa, count = self._pa, rows.records
        type_ = field.type.index_type if field.name in NAMES else field.type
        column = COLUMNS.index(
            "timestamp_us" if type_ == pa.timestamp("us", "UTC") else _COLUMN.get(field.name, field.name)
        )
        bits, validity = self._room(count // 8 + 1)
        if type_ == pa.bool_():  # a column with a number in each row, or in none: the bits are the whole column
            rows.numbers(column, 0, None, validity)
            return pa.Array.from_buffers(type_, count, [None, bits], 0)
        data, numbers = self._room(type_.bit_width // 8 * count)
        is_raw = field.name in _COLUMN
        nulls = rows.numbers(column, type_.bit_width // 8, numbers, None if is_raw else validity)
        nulls = 0 if is_raw else nulls
        array = pa.Array.from_buffers(type_, count, [bits if nulls else None, data], nulls)
        return pa.DictionaryArray.from_arrays(array, pa.array(NAMES[field.name])) if field.name in NAMES else array

    def _binary(self, rows: Window, sizes: Sizes, values: bool) -> pa.Array:
        """Return the column of keys, or that of values."""
        count = rows.records
        data, content = self._room(sizes.values if values else sizes.keys)
        offsets, ends = self._ends(count)
        bits, validity = self._room(count // 8 + 1)
        nulls = rows.binary(values, content, ends, validity)
        return self._pa.Array.from_buffers(self._pa.binary(), count, [bits if nulls else None, offsets, data], nulls)

    def _headers(self, rows: Window, sizes: Sizes, field: pa.Field) -> pa.Array:
        pa, count = self._pa, rows.records
        if self._null_headers and not sizes.headers:
            return pa.nulls(count, field.type)
        (lists, list_ends), (present, has) = self._ends(count), self._room(count // 8 + 1)
        (key_data, keys), (key_offsets, key_ends) = self._room(sizes.header_keys), self._ends(sizes.headers)
        (value_data, values), (value_offsets, value_ends) = self._room(sizes.header_values), self._ends(sizes.headers)
        bits, validity = self._room(sizes.headers // 8 + 1)
        nulls = rows.headers(list_ends, keys, key_ends, values, value_ends, validity, 0, has)
        made = [
            pa.Array.from_buffers(pa.string(), sizes.headers, [None, key_offsets, key_data], 0),
            pa.Array.from_buffers(
                pa.binary(), sizes.headers, [bits if nulls else None, value_offsets, value_data], nulls
            ),
        ]
        pairs = pa.StructArray.from_arrays(made, fields=list(field.type.value_type))
        return pa.Array.from_buffers(
            field.type, count, [present if self._null_headers else None, lists], -1, 0, [pairs]
        )


class OtherColumns(Protocol):
    """Columns in the places of some of the usual ones."""

    def fields(self) -> dict[str, list[pa.Field]]:
        """Return the fields in the place of a column, by its name."""
        ...

    def arrays(self, rows: Window, partition: int | None) -> dict[str, pa.Array]:
        """Return the arrays of these fields, by name."""
        ...


def schema(*, batch_offsets: bool = False, others: OtherColumns | None = None) -> pa.Schema:
    """Return the columns of a record; with *batch_offsets* also the base offset of its batch."""
    pa = import_pyarrow()
    instead = {} if others is None else others.fields()
    usual = _usual_schema(batch_offsets)
    return pa.schema([field for one in usual for field in instead.get(one.name, [one])])


def _usual_schema(batch_offsets: bool) -> pa.Schema:
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
            ("coordinator_epoch", pa.int32()),
            *([("batch", pa.int64())] if batch_offsets else ()),
        ]
    )


class RowGroup:
    """Rows that have been gathered and not been taken, with the columns of *schema*.

    *others*: makes some of the columns.  `rows` counts them, `size` the bytes of their keys, values and headers.
    """

    def __init__(self, schema: pa.Schema, others: OtherColumns | None = None) -> None:
        self._pa = import_pyarrow()
        self._schema, self._others = schema, others
        self._arrays = Arrays()
        self._batches: list[pa.RecordBatch] = []
        self.rows = self.size = 0

    def add(self, window: Window, sizes: Sizes, topic: str | None, partition: int | None) -> None:
        """Take the record rows of *window*, whose content has these *sizes*, as of *topic* and *partition*."""
        made = {} if self._others is None else self._others.arrays(window, partition)
        columns = [
            made[field.name] if field.name in made else self._arrays.array(window, sizes, field)
            for field in list(self._schema)[2:]
        ]
        self._batches.append(
            self._pa.RecordBatch.from_arrays(
                [*self._origin(window.records, topic, partition), *columns], schema=self._schema
            )
        )
        self.rows += window.records
        self.size += sizes.bytes

    def take(self) -> pa.Table:
        """Return the rows as a table, and start an empty one."""
        table = self._pa.Table.from_batches(self._batches, self._schema)
        self.rows = self.size = 0
        self._batches.clear()
        return table

    def _origin(self, rows: int, topic: str | None, partition: int | None) -> tuple[pa.Array, pa.Array]:
        pa = self._pa
        names = pa.array([] if topic is None else [topic.encode("utf-8", "replace").decode()], pa.string())
        codes = pa.repeat(pa.scalar(None if topic is None else 0, pa.int32()), rows)
        return pa.DictionaryArray.from_arrays(codes, names), pa.repeat(pa.scalar(partition, pa.int32()), rows)


ROW_GROUP_ROWS = 128 << 10
ROW_GROUP_BYTES = 64 << 20
_DICTIONARIES = ("topic", "timestamp_type", "control")
_DELTAS = ("offset", "timestamp", "position", "sequence")
_STATISTICS = (
    "offset", "timestamp", "partition", "topic", "timestamp_type", "leader_epoch", "producer_id", "producer_epoch",
    "sequence", "transactional", "control", "coordinator_epoch",
)  # fmt: skip


def _leaves(others: OtherColumns | None) -> Iterator[str]:
    """Yield the paths in Parquet of the columns that *others* makes; bytes of no type are as keys and values are."""
    for fields in () if others is None else others.fields().values():
        for field in fields:
            if not field.name.endswith("_raw"):
                yield from _leaves_of(field.name, field.type)


def _leaves_of(path: str, kind: pa.DataType) -> Iterator[str]:
    types = import_pyarrow().types
    if types.is_struct(kind):
        for field in kind:
            yield from _leaves_of(f"{path}.{field.name}", field.type)
    elif types.is_map(kind):
        yield from _leaves_of(f"{path}.key_value.key", kind.key_type)
        yield from _leaves_of(f"{path}.key_value.value", kind.item_type)
    elif types.is_list(kind):
        yield from _leaves_of(f"{path}.list.element", kind.value_type)
    else:
        yield path


class Table:
    """Takes record rows and writes them to *descriptor*, one row group after the other, all columns except *without*.

    *batch_offsets*: add a column of the batches' base offsets.  *others*: columns in the places of some of them.

    `bytes` counts written bytes, without rows of an unfinished group.
    """

    def __init__(
        self,
        descriptor: int,
        without: Collection[str] = (),
        *,
        batch_offsets: bool = False,
        others: OtherColumns | None = None,
    ) -> None:
        pa = import_pyarrow()
        import pyarrow.parquet as pq

        every = schema(batch_offsets=batch_offsets, others=others)
        self._columns = [name for name in every.names if name not in without]
        self._group = RowGroup(every, others)
        typed = list(_leaves(others))
        self._file = os.fdopen(os.dup(descriptor), "wb")
        self._writer = pq.ParquetWriter(
            self._file,
            pa.schema([every.field(name) for name in self._columns]),
            compression="zstd",
            compression_level=1,
            use_dictionary=[*(name for name in _DICTIONARIES if name in self._columns), *typed],
            column_encoding={name: "DELTA_BINARY_PACKED" for name in _DELTAS if name in self._columns},
            write_statistics=[*(name for name in _STATISTICS if name in self._columns), *typed],
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

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()
