"""Records from Parquet files, whose columns are named as `klog dump --output parquet` names them."""

from __future__ import annotations

import array
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from klog.dump.arrow import import_pyarrow
from klog.errors import KlogError
from klog.kernel import InputRecords, RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

_ROWS: Final = 16 << 10
_BATCH_BYTES: Final = 32 << 20
_NUMBERS: Final = (
    "offset", "timestamp", "partition", "leader_epoch", "producer_id", "producer_epoch", "sequence", "position",
    "coordinator_epoch", "batch",
)  # fmt: skip
_CONTENT: Final = ("key", "value")
_TEXTS: Final = ("topic", "timestamp_type", "control", *_CONTENT)


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
            known = _known_columns(file.schema_arrow.names, path, without)
            repeating = _repeating(pa, file)
        with pq.ParquetFile(path, read_dictionary=repeating) as file:
            for batch in file.iter_batches(_rows_at_once(file.metadata), columns=known, use_threads=False):
                for piece in _pieces(pa, batch):
                    rows.begin(piece.num_rows, first)
                    for name in known:
                        column = piece.column(name)
                        if name in (*_CONTENT, "timestamp") or column.null_count < len(column):
                            _take(pa, rows, name, column, path)
                    yield rows
                    first += piece.num_rows
    # What bytes that are no Parquet make pyarrow raise, besides its own.
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise KlogError(f"{path}: {(str(error).splitlines() or ['no Parquet'])[0]}") from error


def _known_columns(names: list[str], path: str, without: Collection[str]) -> list[str]:
    wanted = {*_NUMBERS, *_TEXTS, "transactional", "headers"} - {*without}
    known = [name for name in names if name in wanted]
    if "value" not in known:
        raise KlogError(f"{path}: no column value; expected those of 'klog dump --output parquet'")
    for name in known:
        if known.count(name) > 1:
            raise KlogError(f"{path}: there are {known.count(name)} columns {name}")
    return known


def _repeating(pa: Any, file: Any) -> list[str]:
    """Return which of key and value have dictionaries: one of their entries may be gigabytes once it is written out."""
    found = []
    for i, name in enumerate(file.schema.names):
        is_leaf = name in _CONTENT and file.schema.column(i).path == name
        if is_leaf and _is_content(pa, file.schema_arrow.field(name).type):
            groups = (file.metadata.row_group(k).column(i) for k in range(file.metadata.num_row_groups))
            if any(group.has_dictionary_page for group in groups):
                found.append(name)
    return found


def _rows_at_once(metadata: Any) -> int:
    """Return how many rows are read at once: of large ones fewer, so that they take no more than some megabytes."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    size = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(_ROWS, _BATCH_BYTES // max(size, 1)))


def _pieces(pa: Any, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Yield a batch in pieces of so few rows that values which a dictionary repeats do not grow beyond all bounds."""
    largest = 1
    for name in _CONTENT:
        column = batch.column(name) if name in batch.schema.names else None
        if column is not None and pa.types.is_dictionary(column.type) and _is_content(pa, column.type.value_type):
            words = column.dictionary.cast(pa.large_binary())
            if words.nbytes * len(column) > _BATCH_BYTES:
                ends = _view(_plain(words).buffers()[1]).cast("q")[: len(words) + 1]
                largest += max((end - start for start, end in pairwise(ends)), default=0)
    rows = max(1, _BATCH_BYTES // largest)
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)


def _is_content(pa: Any, kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind) or types.is_string(kind) or types.is_large_binary(kind) or types.is_large_string(kind)
    )


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
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if not is_list or not pa.types.is_struct(kind.value_type) or kind.value_type.get_field_index("key") < 0:
        raise pa.ArrowInvalid("expected lists of key and value")
    if not len(column.flatten()):
        return
    lists = column.cast(pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))).to_pylist()
    pairs = [pair for one in lists for pair in one or ()]
    ends = [0]
    for one in lists:
        ends.append(ends[-1] + len(one or ()))
    if any(pair is None or pair["key"] is None for pair in pairs):
        raise pa.ArrowInvalid("a header's key is null")
    keys, values = [pair["key"] for pair in pairs], [pair["value"] for pair in pairs]
    rows.headers(memoryview(array.array("i", ends)), keys, values)
