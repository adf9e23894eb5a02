"""Records from Parquet files, whose columns are named as `klog dump --output parquet` names them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from klog.dump.arrow import import_pyarrow
from klog.errors import KlogError
from klog.kernel import InputRecords, RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 16 << 10
_NUMBERS: Final = (
    "offset", "timestamp", "partition", "leader_epoch", "producer_id", "producer_epoch", "sequence", "position",
    "coordinator_epoch", "batch",
)  # fmt: skip
_TEXTS: Final = ("topic", "timestamp_type", "control", "key", "value")


def parquet_records(path: str, without: Collection[str] = ()) -> Iterator[InputRecords]:
    """Yield the records of a file, some at a time: each time the same rows, filled anew.

    *without*: columns that nobody needs.

    Raises KlogError for a file that is none, or a column of another type; UnsupportedError without pyarrow.
    """
    pa = import_pyarrow()
    import pyarrow.parquet as pq

    rows, first = RecordColumns(), 1
    try:
        with pq.ParquetFile(path) as file:
            wanted = {*_NUMBERS, *_TEXTS, "transactional", "headers"} - {*without}
            known = [name for name in file.schema_arrow.names if name in wanted]
            if "value" not in known:
                raise KlogError(f"{path}: no column value; expected those of 'klog dump --output parquet'")
            for batch in file.iter_batches(_ROWS, columns=known, use_threads=False):
                rows.begin(batch.num_rows, first)
                for name in known:
                    column = batch.column(name)
                    if name in ("key", "value", "timestamp") or column.null_count < len(column):
                        _take(pa, rows, name, column, path)
                yield rows
                first += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        raise KlogError(f"{path}: {str(error).splitlines()[0]}") from error


def _take(pa: Any, rows: RecordColumns, name: str, column: pa.Array, path: str) -> None:
    try:
        if name == "headers":
            _take_headers(pa, rows, column)
        elif name == "transactional":
            flags = column.cast(pa.bool_()).fill_null(False).cast(pa.uint8())
            rows.flags(_view(_plain(flags).buffers()[1]))
        elif name in _NUMBERS:
            if pa.types.is_timestamp(column.type):
                column = column.cast(pa.timestamp("ms"), safe=False)
            if name == "timestamp":
                column = column.cast(pa.int64()).fill_null(-1)  # as dump prints it
            bits, data = _plain(column.cast(pa.int64())).buffers()
            rows.numbers(name.encode(), _view(data).cast("q"), None if bits is None else _view(bits))
        else:
            bits, offsets, data = _plain(column.cast(pa.binary())).buffers()
            content = b"" if data is None else _view(data)
            rows.texts(name.encode(), content, _view(offsets).cast("i"), None if bits is None else _view(bits))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise KlogError(f"{path}: column {name} is {column.type}: {str(error).splitlines()[0]}") from error


def _view(buffer: pa.Buffer) -> memoryview:
    """Return the bytes of a buffer."""
    return memoryview(buffer).cast("B")


def _plain(column: pa.Array) -> pa.Array:
    """Return an array that begins where its buffers do, and has some, also without rows."""
    import pyarrow as pa

    return column if not column.offset and len(column) else pa.concat_arrays([column, column.slice(0, 0)])


def _take_headers(pa: Any, rows: RecordColumns, column: pa.Array) -> None:
    if not len(column.flatten()):
        return
    kind = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))
    lists = column.cast(kind).to_pylist()
    pairs = [pair for one in lists for pair in one or ()]
    ends = [0]
    for one in lists:
        ends.append(ends[-1] + len(one or ()))
    import array

    keys = [pair["key"] for pair in pairs]
    if any(key is None for key in keys):
        raise pa.ArrowInvalid("a header's key is null")
    rows.headers(memoryview(array.array("i", ends)), keys, [pair["value"] for pair in pairs])
