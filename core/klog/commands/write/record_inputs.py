"""Records from JSON lines, CSV and Parquet files, in the form in which `klog dump` prints them.

The columns of Parquet files are named as `klog dump --output parquet` names them.  The kernel reads the buffers of
Arrow's arrays in place; a column of another type is cast first.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from klog.base.errors import KlogError
from klog.kernel import InputRecords, RecordColumns, RecordLines
from klog.log.arrow import import_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

    from klog.kernel._write import ArrowTexts


_MOST_LINE_BYTES: Final = 256 << 20
_MOST_COLUMNS: Final = 256


ReadInto = Callable[[memoryview], int]
"""Reads the next bytes of an input into a buffer; returns how many, 0 at the end.  Raises OSError, UnreadableError."""


def json_records(read_into: ReadInto, name: str) -> Iterator[InputRecords]:
    """Yield the records of JSON lines, some at a time: each time the same rows, refilled.

    Raises KlogError for a line that is too long.
    """
    yield from _records(RecordLines(), read_into, name)


def csv_records(read_into: ReadInto, name: str) -> Iterator[InputRecords]:
    """Yield the records of a CSV file, whose first line names the columns; the same rows each time.

    Raises KlogError for a file without such a line, for one that is too long, and for a quote without end.
    """
    head = bytearray()
    buffer = memoryview(bytearray(1 << 16))
    while b"\n" not in head and len(head) < 1 << 20:
        size = read_into(buffer)
        if not size:
            break
        head += buffer[:size]
    first, found, rest = bytes(head).partition(b"\n")
    columns = [column.strip().strip(b'"') for column in first.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r").split(b",")]
    if not found or b"value" not in columns:
        raise KlogError(f"{name}, line 1: expected the names of columns, as 'klog dump --output csv' prints them")
    twice = [column.decode("utf-8", "replace") for column in {*columns} if column and columns.count(column) > 1]
    if twice or len(columns) > _MOST_COLUMNS:
        what = f"there are 2 columns {min(twice)}" if twice else f"{len(columns)} columns, and {_MOST_COLUMNS} at most"
        raise KlogError(f"{name}, line 1: {what}")
    lines = RecordLines(columns, max(1 << 20, 2 * len(rest)), 1)
    lines.buffer()[: len(rest)] = rest
    lines.loaded(len(rest)) if rest else None
    yield from _records(lines, read_into, name)


def _records(lines: RecordLines, read_into: ReadInto, name: str) -> Iterator[InputRecords]:
    while True:
        while lines.parse():
            yield lines
        if lines.unfinished > _MOST_LINE_BYTES:
            raise KlogError(f"{name}, line {lines.lines + 1}: a line of more than {_MOST_LINE_BYTES >> 20} MiB")
        size = read_into(lines.buffer())
        lines.loaded(size)
        if not size:
            while lines.parse():
                yield lines
            if lines.unfinished:
                raise KlogError(f"{name}, line {lines.lines + 1}: a quote that begins there has no end")
            return


_MOST_ROWS: Final = 8 << 10
_BATCH_BYTES: Final = 1 << 20
"""The limit of rows, or of their bytes according to the file, in memory at a time."""
_PAGE_BYTES: Final = 64 << 10
"""The number of bytes of a column that are read at a time."""
_NUMBERS: Final = (
    "offset", "timestamp", "partition", "leader_epoch", "producer_id", "producer_epoch", "sequence", "position",
    "coordinator_epoch", "batch",
)  # fmt: skip
_CONTENT: Final = ("key", "value")
_TEXTS: Final = ("topic", "timestamp_type", "control", *_CONTENT)
_NULLS_COUNT: Final = (*_CONTENT, "timestamp")
"""In other columns a null means that the column is absent."""
_OFTEN_CONSTANT: Final = {
    "topic": str, "timestamp_type": str, "partition": int, "leader_epoch": int, "transactional": bool,
}  # fmt: skip


def parquet_records(path: str, without: Collection[str] = ()) -> Iterator[InputRecords]:
    """Yield the records of a file, some at a time: each time the same rows, refilled.

    *without*: columns that are not needed.

    Raises KlogError for a file that is none, or a column of another type; UnsupportedError without pyarrow.
    """
    pa = import_pyarrow()
    # The implementation of pyarrow.parquet; the rest of it loads file systems of clouds, 8 MB and 0.05 s.
    from pyarrow._parquet import ParquetReader

    rows, columns, first = RecordColumns(), _Columns(pa), 1
    try:
        with closing(ParquetReader()) as file:
            file.open(path)
            known = _known_columns(file.schema_arrow.names, path, without)
            metadata, repeating = file.metadata, _repeating(pa, file.metadata, file.schema_arrow)
            constant = _constant_columns(metadata, known)
        known = [name for name in known if name not in constant]
        leaves = [i for i in range(metadata.num_columns) if metadata.schema.column(i).path.split(".")[0] in known]
        with closing(ParquetReader()) as file:
            file.open(path, read_dictionary=repeating, metadata=metadata, buffer_size=_PAGE_BYTES, pre_buffer=False)
            groups = [*range(metadata.num_row_groups)]
            for batch in file.iter_batches(_rows_at_once(metadata), groups, leaves, use_threads=False):
                rows.begin(batch.num_rows, first)
                for name, value in constant.items():
                    columns.take_constant(rows, name, value, batch.num_rows)
                for name, column in zip(known, batch.columns, strict=True):
                    try:
                        columns.take(rows, name, column)
                    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                        why = str(error).splitlines()[0]
                        raise KlogError(f"{path}: column {name} is {column.type}: {why}") from error
                while rows.next():
                    yield rows
                first += batch.num_rows
    # The exceptions of pyarrow for bytes that are no Parquet, besides its own.
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


def _repeating(pa: Any, metadata: Any, schema: pa.Schema) -> list[str]:
    """Return which of key and value have dictionaries: one of their entries may be gigabytes once it is written out."""
    found = []
    for i, name in enumerate(metadata.schema.names):
        is_leaf = name in _CONTENT and metadata.schema.column(i).path == name
        coded = is_leaf and any(chunk.has_dictionary_page for chunk in _chunks(metadata, i))
        if coded and _is_content(pa, schema.field(name).type):
            found.append(name)
    return found


def _is_content(pa: Any, kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind) or types.is_string(kind) or types.is_large_binary(kind) or types.is_large_string(kind)
    )


def _constant_columns(metadata: Any, known: Collection[str]) -> dict[str, object]:
    """Return the columns that need not be read, with the value of all their rows, from the statistics.

    None: nulls alone.
    """
    found = {}
    for i in range(metadata.num_columns):
        name = metadata.schema.column(i).path
        values = _values(metadata, i) if name in known and name not in _NULLS_COUNT else set()
        if len(values) == 1:
            value = next(iter(values))
            fits = type(value) is _OFTEN_CONSTANT.get(name) and not (isinstance(value, int) and abs(value) >> 31)
            if value is None or fits:
                found[name] = value
    return found


def _values(metadata: Any, leaf: int) -> set[object]:
    """Return the values of a column if there is one only, or none but null; else more than one of them."""
    found: set[object] = set()
    for chunk in _chunks(metadata, leaf):
        statistics = chunk.statistics
        if statistics is None or not statistics.has_null_count or len(found) > 1:
            return {None, 0}
        if statistics.null_count == chunk.num_values:
            found.add(None)
        elif statistics.null_count or not statistics.has_min_max:
            return {None, 0}
        else:
            found |= {statistics.min, statistics.max}
    return found or {None}


def _chunks(metadata: Any, leaf: int) -> Iterator[Any]:
    """Yield the metadata of a column in each row group of the file."""
    return (metadata.row_group(i).column(leaf) for i in range(metadata.num_row_groups))


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
        if not len(column) or (name not in _NULLS_COUNT and column.null_count == len(column)):
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

    def take_constant(self, rows: RecordColumns, name: str, value: object, count: int) -> None:
        """Give *rows* a column that has one value in all *count* rows, or None."""
        if isinstance(value, str):
            text = value.encode()
            found = memoryview(text) if text else None, memoryview(array("i", (0, len(text)))), None, 0
            rows.coded(name.encode(), found, 1, memoryview(bytes(count)), 1, None, 0)
        elif isinstance(value, bool):
            rows.flags(name.encode(), memoryview((b"\xff" if value else b"\0") * (count // 8 + 1)), None, 0)
        elif isinstance(value, int):
            rows.numbers(name.encode(), memoryview(array("i", (value,)) * count).cast("B"), 4, None, 0)

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
