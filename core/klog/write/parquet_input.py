"""Records from Parquet files, whose columns are named as `klog dump --output parquet` names them.

The kernel reads the buffers of Arrow's arrays where they lie; a column of another type is cast first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any, Final

from klog.dump.arrow import import_pyarrow
from klog.errors import KlogError
from klog.kernel import InputRecords, RecordColumns

if TYPE_CHECKING:
    import pyarrow as pa

    from klog.kernel._kernel import ArrowTexts

_MOST_ROWS: Final = 16 << 10
_BATCH_BYTES: Final = 2 << 20
"""So many rows, or bytes of them by the file's own word, are in memory at a time."""
_PAGE_BYTES: Final = 64 << 10
"""So much of a column is read at a time."""
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

    _use_small_memory(pa)
    rows, columns, first = RecordColumns(), _Columns(pa), 1
    try:
        with pq.ParquetFile(path) as file:
            known = _known_columns(file.schema_arrow.names, path, without)
            repeating = _repeating(pa, file)
        with pq.ParquetFile(path, read_dictionary=repeating, buffer_size=_PAGE_BYTES, pre_buffer=False) as file:
            for batch in file.iter_batches(_rows_at_once(file.metadata), columns=known, use_threads=False):
                rows.begin(batch.num_rows, first)
                for name, column in zip(known, batch.columns, strict=True):
                    try:
                        columns.take(rows, name, column)
                    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                        why = str(error).splitlines()[0]
                        raise KlogError(f"{path}: column {name} is {column.type}: {why}") from error
                while rows.next():
                    yield rows
                first += batch.num_rows
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


def _is_content(pa: Any, kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind) or types.is_string(kind) or types.is_large_binary(kind) or types.is_large_string(kind)
    )


def _use_small_memory(pa: Any) -> None:
    """Take the allocator that holds least back, where pyarrow has it."""
    if "jemalloc" in pa.supported_memory_backends():
        pa.set_memory_pool(pa.jemalloc_memory_pool())


def _rows_at_once(metadata: Any) -> int:
    """Return how many rows are read at once: of large ones fewer, so that they take no more than some megabytes."""
    groups = (metadata.row_group(i) for i in range(metadata.num_row_groups))
    size = max((group.total_byte_size // max(group.num_rows, 1) for group in groups), default=0)
    return max(1, min(_MOST_ROWS, _BATCH_BYTES // max(size, 1)))


class _Columns:
    """Hands arrays to the kernel."""

    def __init__(self, pa: Any) -> None:
        self._pa = pa
        self._widths = {getattr(pa, f"int{8 * width}")(): width for width in (1, 2, 4, 8)}
        self._widths |= {getattr(pa, f"uint{8 * width}")(): -width for width in (1, 2, 4)}
        self._binary = (pa.binary(), pa.string())
        self._headers = pa.list_(pa.struct([("key", pa.binary()), ("value", pa.binary())]))

    def take(self, rows: RecordColumns, name: str, column: pa.Array) -> None:
        """Give *rows* a column of theirs.  Raises ArrowInvalid, ArrowNotImplementedError."""
        if not len(column) or (name not in (*_CONTENT, "timestamp") and column.null_count == len(column)):
            return
        if name == "headers":
            self._take_headers(rows, column)
        elif name == "transactional":
            column = column if column.type == self._pa.bool_() else column.cast(self._pa.bool_())
            validity, bits = column.buffers()
            rows.flags(name.encode(), _view(bits), _bits(validity), column.offset)
        elif name in _NUMBERS:
            self._take_numbers(rows, name.encode(), column)
        else:
            self._take_texts(rows, name.encode(), column)

    def _take_numbers(self, rows: RecordColumns, name: bytes, column: pa.Array) -> None:
        pa = self._pa
        is_time = pa.types.is_timestamp(column.type)
        if is_time and column.type.unit != "ms":
            column = column.cast(pa.timestamp("ms"), safe=False)
        if not is_time and column.type not in self._widths:
            column = column.cast(pa.int64())
        validity, numbers = column.buffers()
        width = 8 if is_time else self._widths[column.type]
        rows.numbers(name, _view(numbers), width, _bits(validity), column.offset)

    def _take_texts(self, rows: RecordColumns, name: bytes, column: pa.Array) -> None:
        if self._is_coded(column):
            codes, texts = column.indices, column.dictionary
            validity, numbers = codes.buffers()
            width = self._widths[codes.type]
            found = self._content(texts)
            rows.coded(name, found, len(texts), _view(numbers), width, _bits(validity), codes.offset)
        else:
            rows.texts(name, self._content(column))

    def _is_coded(self, column: pa.Array) -> bool:
        """Whether there is a dictionary that need not be written out."""
        if not self._pa.types.is_dictionary(column.type) or column.type.index_type not in self._widths:
            return False
        texts = column.dictionary
        return _is_content(self._pa, texts.type) and len(texts) > 0 and not texts.null_count

    def _content(self, column: pa.Array) -> ArrowTexts:
        if column.type not in self._binary:
            column = column.cast(self._pa.binary())
        validity, offsets, data = column.buffers()
        return None if data is None else _view(data), _view(offsets).cast("i"), _bits(validity), column.offset

    def _take_headers(self, rows: RecordColumns, column: pa.Array) -> None:
        if not self._is_read_as_it_is(column.type):
            self._check_headers(column.type)
            if not len(column.flatten()):
                return
            column = column.cast(self._headers)
        validity, lists = column.buffers()[:2]
        pairs = column.values
        keys, values = (self._content(pairs.field(i)) for i in range(2))
        found = _bits(pairs.buffers()[0]), pairs.offset, len(pairs)
        rows.headers(_view(lists).cast("i"), _bits(validity), column.offset, found, keys, values)

    def _check_headers(self, kind: pa.DataType) -> None:
        types = self._pa.types
        is_list = types.is_list(kind) or types.is_large_list(kind)
        if not is_list or not types.is_struct(kind.value_type) or kind.value_type.get_field_index("key") < 0:
            raise self._pa.ArrowInvalid("expected lists of key and value")

    def _is_read_as_it_is(self, kind: pa.DataType) -> bool:
        if not self._pa.types.is_list(kind) or not self._pa.types.is_struct(kind.value_type):
            return False
        fields = list(kind.value_type)
        return [field.name for field in fields] == ["key", "value"] and all(one.type in self._binary for one in fields)


def _view(buffer: pa.Buffer) -> memoryview:
    """Return the bytes of a buffer."""
    return memoryview(buffer).cast("B")


def _bits(buffer: pa.Buffer | None) -> memoryview | None:
    return None if buffer is None else _view(buffer)
