"""Records as Arrow arrays: the columns of a row group, filled window after window.

Keys and values are `binary`: a binary_view of the log would save nothing in Parquet and is slow to ship.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from klog.errors import UnsupportedError
from klog.formats.control import TYPES
from klog.kernel import COLUMNS, Window

if TYPE_CHECKING:
    import pyarrow as pa

_WIDTHS = {
    "offset": 8, "timestamp": 8, "timestamp_type": 1, "leader_epoch": 4, "producer_id": 8, "producer_epoch": 2,
    "sequence": 4, "transactional": 0, "control": 1, "position": 8,
}  # fmt: skip
_NAMES = {"timestamp_type": ("CreateTime", "LogAppendTime"), "control": (*TYPES.values(), "UNKNOWN")}
_NEVER_NULL = ("offset", "position")


def import_pyarrow() -> Any:
    """Return the pyarrow module.  Raises UnsupportedError with what to install."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy comes along, and its idle threads cost 100 ms of CPU
    try:
        import pyarrow as pa
    except ImportError as error:
        raise UnsupportedError("Parquet needs pyarrow: pip install 'klog[parquet]'") from error
    return pa


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


def _grow(buffer: bytearray, size: int) -> bytearray:
    """Make *buffer* at least *size* bytes long; what it has stays."""
    if len(buffer) < size:
        buffer.extend(bytes(max(size - len(buffer), len(buffer))))
    return buffer


def _ints(buffer: bytearray, count: int) -> memoryview:
    return memoryview(_grow(buffer, 4 * count)).cast("i")


class _Numbers:
    """One column of numbers; their type is the schema's."""

    def __init__(self, name: str, type_: pa.DataType) -> None:
        self._pa = import_pyarrow()
        self._name, self._type = name, type_
        self._data, self._bits = bytearray(), bytearray()
        self._nulls = 0

    def add(self, window: Window, first: int) -> None:
        rows, width = first + window.records, _WIDTHS[self._name]
        bits = None if self._name in _NEVER_NULL else _grow(self._bits, rows // 8 + 1)
        data = _grow(self._data, width * rows) if width else None
        self._nulls += window.numbers(COLUMNS.index(self._name), width, data, bits, first)

    def array(self, rows: int) -> pa.Array:
        pa = self._pa
        bits = pa.py_buffer(self._bits)
        if not _WIDTHS[self._name]:  # there is a number, or none: the bits are the whole column
            return pa.Array.from_buffers(self._type, rows, [None, bits], 0)
        is_coded = self._name in _NAMES
        type_ = self._type.index_type if is_coded else self._type
        buffers = [bits if self._nulls else None, pa.py_buffer(self._data)]
        numbers = pa.Array.from_buffers(type_, rows, buffers, self._nulls)
        self._nulls = 0
        return pa.DictionaryArray.from_arrays(numbers, pa.array(_NAMES[self._name])) if is_coded else numbers


class _Bytes:
    """The column of keys, or that of values."""

    def __init__(self, values: bool) -> None:
        self._pa = import_pyarrow()
        self._values = values
        self._data, self._ends, self._bits = bytearray(1), bytearray(4), bytearray()
        self._nulls = self.size = 0

    def add(self, window: Window, first: int, size: int) -> None:
        rows = first + window.records
        self.size += size
        _grow(self._data, self.size)
        ends = _ints(self._ends, rows + 1)
        self._nulls += window.binary(self._values, self._data, ends, _grow(self._bits, rows // 8 + 1), first)

    def array(self, rows: int) -> pa.Array:
        pa = self._pa
        bits = pa.py_buffer(self._bits) if self._nulls else None
        buffers = [bits, pa.py_buffer(self._ends), pa.py_buffer(self._data)]
        nulls, self._nulls, self.size = self._nulls, 0, 0
        return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)


class _Headers:
    """The column of headers: a list of pairs."""

    def __init__(self, type_: pa.DataType) -> None:
        self._pa = import_pyarrow()
        self._type = type_
        self._lists = bytearray(4)
        self._keys, self._key_ends = bytearray(1), bytearray(4)
        self._values, self._value_ends, self._bits = bytearray(1), bytearray(4), bytearray()
        self._nulls = self._count = self._key_bytes = self._value_bytes = 0

    def add(self, window: Window, first: int, count: int, key_bytes: int, value_bytes: int) -> None:
        self._count += count
        self._key_bytes += key_bytes
        self._value_bytes += value_bytes
        self._nulls += window.headers(
            _ints(self._lists, first + window.records + 1),
            _grow(self._keys, self._key_bytes),
            _ints(self._key_ends, self._count + 1),
            _grow(self._values, self._value_bytes),
            _ints(self._value_ends, self._count + 1),
            _grow(self._bits, self._count // 8 + 1),
            first,
        )

    def array(self, rows: int) -> pa.Array:
        pa, count = self._pa, self._count
        key_buffers = [None, pa.py_buffer(self._key_ends), pa.py_buffer(self._keys)]
        bits = pa.py_buffer(self._bits) if self._nulls else None
        value_buffers = [bits, pa.py_buffer(self._value_ends), pa.py_buffer(self._values)]
        keys = pa.Array.from_buffers(pa.string(), count, key_buffers, 0)
        values = pa.Array.from_buffers(pa.binary(), count, value_buffers, self._nulls)
        pairs = pa.StructArray.from_arrays([keys, values], fields=list(self._type.value_type))
        lists = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(self._lists)])
        self._nulls = self._count = self._key_bytes = self._value_bytes = 0
        return pa.ListArray.from_arrays(lists, pairs, type=self._type)


class RowGroup:
    """Rows that have been gathered and not been taken.

    `rows` counts them, `size` the bytes of their keys, values and headers.  The buffers are used again: what `take`
    returns is good until the next `add`.
    """

    def __init__(self) -> None:
        self._pa = import_pyarrow()
        self._schema = schema()
        self._keys, self._values = _Bytes(False), _Bytes(True)
        self._headers = _Headers(self._schema.field("headers").type)
        self._numbers = {name: _Numbers(name, self._schema.field(name).type) for name in COLUMNS}
        self._origins: list[tuple[str | None, int | None, int]] = []
        self.rows = self.size = 0

    def add(self, window: Window, sizes: tuple[int, ...], topic: str | None, partition: int | None) -> None:
        """Take the record rows of *window*, whose content has these *sizes*, as of *topic* and *partition*."""
        key_bytes, value_bytes, *header_sizes = sizes
        self._keys.add(window, self.rows, key_bytes)
        self._values.add(window, self.rows, value_bytes)
        self._headers.add(window, self.rows, *header_sizes)
        for numbers in self._numbers.values():
            numbers.add(window, self.rows)
        self._origins.append((topic, partition, window.records))
        self.rows += window.records
        self.size += key_bytes + value_bytes + sum(header_sizes)

    def take(self) -> pa.RecordBatch:
        """Return the rows as a record batch of `schema`, and begin anew."""
        rows, pa = self.rows, self._pa
        arrays = {name: column.array(rows) for name, column in self._numbers.items()}
        arrays |= {
            "key": self._keys.array(rows),
            "value": self._values.array(rows),
            "headers": self._headers.array(rows),
        }
        arrays |= self._origin_arrays()
        self.rows = self.size = 0
        self._origins.clear()
        return pa.RecordBatch.from_arrays([arrays[name] for name in self._schema.names], schema=self._schema)

    def _origin_arrays(self) -> dict[str, pa.Array]:
        pa = self._pa
        names = list(dict.fromkeys(topic for topic, _, _ in self._origins if topic is not None))
        codes = {name: code for code, name in enumerate(names)}
        topics = [pa.repeat(pa.scalar(codes.get(topic or ""), pa.int32()), n) for topic, _, n in self._origins]
        partitions = [pa.repeat(pa.scalar(partition, pa.int32()), n) for _, partition, n in self._origins]
        shown = pa.array([name.encode("utf-8", "replace").decode() for name in names], pa.string())
        topic_array = pa.DictionaryArray.from_arrays(pa.concat_arrays(topics), shown)
        return {"topic": topic_array, "partition": pa.concat_arrays(partitions)}
