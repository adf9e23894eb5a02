"""Records as Arrow arrays, and as Parquet.

Keys and values are `binary` (a binary_view of the log would save nothing in Parquet and is slow to ship); their
dictionaries are off, since keys seldom repeat within a row group; offsets and timestamps are delta-encoded.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from klog.decode import decoded
from klog.dump.files import DAMAGED, OK, bounded, committed_in, is_unfinished, kind_of, narrowed, start_of
from klog.dump.lanes import Sink
from klog.dump.lines import message_damages
from klog.dump.request import ALL_BYTES, Request, Target
from klog.dump.wanted import Count
from klog.errors import KlogError, UnsupportedError
from klog.formats.batch import Attributes
from klog.formats.codec import Decompressor
from klog.formats.control import TYPES
from klog.kernel import COLUMNS, Window
from klog.segment import Segment
from klog.source import Source

if TYPE_CHECKING:
    import pyarrow as pa

ROW_GROUP_ROWS = 128 << 10
ROW_GROUP_BYTES = 64 << 20
_BATCH_ROWS = 16 << 10
_DICTIONARIES = ["topic", "timestamp_type", "control"]
_DELTAS = ("offset", "timestamp", "position", "sequence")


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


class Columns:
    """Turns the decoded records of a window into a record batch of `schema`."""

    def __init__(self, topic: str | None, partition: int | None) -> None:
        self._pa = import_pyarrow()
        self._schema = schema()
        self._topic, self._partition = topic, partition
        # scalars made once: a bare -1 or None has pyarrow look for dateutil, each time
        self._minus_one = self._pa.scalar(-1, self._pa.int64())
        self._null, self._zero = self._pa.scalar(None, self._pa.int64()), self._pa.scalar(0, self._pa.int64())

    def batch(self, window: Window) -> pa.RecordBatch:
        """Return the window's record rows."""
        pa, rows = self._pa, window.records
        number = {name: self._numbers(window, i, rows) for i, name in enumerate(COLUMNS)}
        attributes = number["attributes"]
        arrays = [
            self._constant(rows, self._topic),
            pa.repeat(pa.scalar(self._partition, pa.int32()), rows),
            number["offset"],
            self._without(number["timestamp"]).cast(pa.timestamp("ms", "UTC")),
            self._timestamp_types(attributes),
            self._binary(window, False, rows),
            self._binary(window, True, rows),
            self._headers(window, rows),
            self._without(number["leader_epoch"]).cast(pa.int32()),
            self._without(number["producer_id"]),
            self._without(number["producer_epoch"]).cast(pa.int16()),
            self._without(number["sequence"]).cast(pa.int32()),
            self._flag(attributes, Attributes.TRANSACTIONAL),
            self._controls(number["control"]),
            number["position"],
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _numbers(self, window: Window, column: int, rows: int) -> pa.Array:
        buffer = bytearray(8 * max(rows, 1))
        window.numbers(column, memoryview(buffer).cast("q"))
        return self._pa.Array.from_buffers(self._pa.int64(), rows, [None, self._pa.py_buffer(buffer)])

    def _without(self, numbers: pa.Array) -> pa.Array:
        """Return *numbers* with null for -1, which stands for none."""
        import pyarrow.compute as pc

        return pc.if_else(pc.equal(numbers, self._minus_one), self._null, numbers)

    def _constant(self, rows: int, text: str | None) -> pa.Array:
        pa = self._pa
        shown = None if text is None else text.encode("utf-8", "replace").decode()
        indices = pa.repeat(pa.scalar(None if text is None else 0, pa.int32()), rows)
        return pa.DictionaryArray.from_arrays(indices, pa.array([shown or ""], pa.string()))

    def _timestamp_types(self, attributes: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        pa = self._pa
        late = pc.not_equal(
            pc.bit_wise_and(attributes, pa.scalar(int(Attributes.LOG_APPEND_TIME), pa.int64())), self._zero
        )
        codes = pc.if_else(pc.equal(attributes, self._minus_one), pa.scalar(None, pa.int8()), late.cast(pa.int8()))
        return pa.DictionaryArray.from_arrays(codes, pa.array(["CreateTime", "LogAppendTime"]))

    def _flag(self, attributes: pa.Array, flag: int) -> pa.Array:
        import pyarrow.compute as pc

        mask = self._pa.scalar(int(flag), self._pa.int64())
        known = pc.not_equal(attributes, self._minus_one)
        return pc.and_(known, pc.not_equal(pc.bit_wise_and(attributes, mask), self._zero))

    def _controls(self, types: pa.Array) -> pa.Array:
        import pyarrow.compute as pc

        pa = self._pa
        names = [*TYPES.values(), "UNKNOWN"]
        most = pa.scalar(len(TYPES), pa.int64())
        known = pc.if_else(pc.less(types, most), types, most)
        codes = pc.if_else(pc.equal(types, self._minus_one), self._null, known).cast(pa.int8())
        return pa.DictionaryArray.from_arrays(codes, pa.array(names))

    def _binary(self, window: Window, values: bool, rows: int) -> pa.Array:
        pa = self._pa
        data = bytearray(max(1, window.binary_bytes(values)))
        offsets, validity = bytearray(4 * (rows + 1)), bytearray(rows // 8 + 1)
        nulls = window.binary(values, data, memoryview(offsets).cast("i"), validity)
        buffers = [pa.py_buffer(validity) if nulls else None, pa.py_buffer(offsets), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.binary(), rows, buffers, nulls)

    def _headers(self, window: Window, rows: int) -> pa.Array:
        pa = self._pa
        count, key_bytes, value_bytes = window.header_sizes()
        lists = bytearray(4 * (rows + 1))
        keys, key_offsets = bytearray(key_bytes + 1), bytearray(4 * (count + 1))
        values, value_offsets = bytearray(value_bytes + 1), bytearray(4 * (count + 1))
        validity = bytearray(count // 8 + 1)
        ints = [memoryview(buffer).cast("i") for buffer in (lists, key_offsets, value_offsets)]
        nulls = window.headers(ints[0], keys, ints[1], values, ints[2], validity)
        key_array = pa.Array.from_buffers(pa.string(), count, [None, pa.py_buffer(key_offsets), pa.py_buffer(keys)], 0)
        null_bits = pa.py_buffer(validity) if nulls else None
        value_buffers = [null_bits, pa.py_buffer(value_offsets), pa.py_buffer(values)]
        value_array = pa.Array.from_buffers(pa.binary(), count, value_buffers, nulls)
        type_ = self._schema.field("headers").type
        pairs = pa.StructArray.from_arrays([key_array, value_array], fields=list(type_.value_type))
        offsets = pa.Array.from_buffers(pa.int32(), rows + 1, [None, pa.py_buffer(lists)])
        return pa.ListArray.from_arrays(offsets, pairs, type=type_)


def dump_parquet(targets: Iterable[Target], request: Request, sink: Sink, descriptor: int) -> int:
    """Write the records of *targets* as one Parquet file to *descriptor*; return the exit code.

    Damage goes to the sink's reports.
    """
    import_pyarrow().set_cpu_count(max(1, request.jobs))
    import pyarrow.parquet as pq

    code = OK
    count = Count(request.wanted.limit)
    options = {
        "compression": "zstd",
        "compression_level": 1,
        "use_dictionary": _DICTIONARIES,
        "column_encoding": dict.fromkeys(_DELTAS, "DELTA_BINARY_PACKED"),
        "write_statistics": ["offset", "timestamp", "partition"],
    }
    with os.fdopen(os.dup(descriptor), "wb") as file, pq.ParquetWriter(file, schema(), **options) as writer:
        waiting: list[pa.RecordBatch] = []
        for target in targets:
            try:
                for found in _batches(target, request, sink, count):
                    if isinstance(found, int):
                        code |= found
                        continue
                    waiting.append(found)
                    rows, size = sum(batch.num_rows for batch in waiting), sum(batch.nbytes for batch in waiting)
                    if rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
                        _flush(writer, waiting)
            except KlogError as error:
                sink.report(str(error))
                code |= error.exit_code
        _flush(writer, waiting)
    return code


def _flush(writer: Any, waiting: list[pa.RecordBatch]) -> None:
    if waiting:
        import pyarrow as pa

        table = pa.Table.from_batches(waiting).unify_dictionaries()
        writer.write_table(table, row_group_size=table.num_rows)
        waiting.clear()


def _batches(target: Target, request: Request, sink: Sink, count: Count) -> Iterator[pa.RecordBatch | int]:
    """Yield the record batches of a log, and DAMAGED for each damage."""
    if kind_of(target, request) not in ("log", "checkpoint"):
        raise UnsupportedError(f"{target.shown}: Parquet is for logs; --output jsonl shows it")
    segment = Segment(target.path)
    committed = committed_in(target, request)
    wanted = bounded(narrowed(target, request.wanted), committed)
    columns = Columns(*target.origin)
    window = Window(records=_BATCH_ROWS)
    codecs = Decompressor(request.max_batch_bytes).functions
    with Source(target.path) as source:
        start = start_of(source, target, wanted)
        end = request.max_bytes if request.max_bytes < ALL_BYTES else None
        reader = segment.reader(source, start, end, max_batch_bytes=request.max_batch_bytes)
        while count.left != 0 and (piece := reader.next(window)):
            beyond = wanted.skip(window)
            if committed:
                committed.skip(window)
            for rows, damage in decoded(window, codecs, target.shown, segment.span):
                if damage:
                    sink.report(str(damage))
                    yield DAMAGED
                    continue
                wanted.keep(rows)
                count.take(rows)
                if rows.records:
                    yield columns.batch(rows)
                for bad in message_damages(rows, target.shown):
                    sink.report(str(bad))
                    yield DAMAGED
            if piece.damage and not (piece.damage.is_unfinished and is_unfinished(target, request, source)):
                sink.report(str(piece.damage))
                yield DAMAGED
            if beyond:
                return
