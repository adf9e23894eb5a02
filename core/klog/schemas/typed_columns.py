"""Record rows with typed keys and values: Arrow arrays in the places of the two columns of bytes.

    columns = TypedColumns([SidePlan("orders", "value", members)], registries, tally)
    arrays = columns.arrays(window, sizes, partition)

Beside a typed `value` are `value_raw`, the bytes of one that has no schema or does not decode, `value_schema_id` and
`value_error`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from klog.formats.batch import CONTROL_BIT
from klog.log.arrow import import_pyarrow
from klog.schemas.columns import CANNOT_HOLD, fitting
from klog.schemas.decoded import OUT_OF_RANGE, TRAILING_BYTES, Decoded
from klog.schemas.error_tally import ErrorTally
from klog.schemas.reader_schemas import RecordMember
from klog.schemas.registry import Registry
from klog.schemas.side_columns import SideColumn, TextColumn
from klog.schemas.side_decoder import DecodedSide, SchemaDecoders

if TYPE_CHECKING:
    import pyarrow as pa

    from klog.kernel import Window


def content_of(record: Any, side: str) -> bytes | None:
    """Return a side of a row."""
    content: bytes | None = record[3] if side == "value" else record[2]
    return content


class SidePlan(NamedTuple):
    """The columns of one side of a topic; *members*: the types of record that it has.

    *form*: typed columns for `parquet` or of the types that `spark` has; JSON in the `plain` or the `canonical` form.
    """

    topic: str
    side: str
    members: tuple[RecordMember, ...]
    form: str = "parquet"

    def column(self) -> SideColumn | TextColumn:
        """Return the typed column."""
        if self.form in ("plain", "canonical"):
            return TextColumn(self.form == "canonical")
        return SideColumn(self.topic, self.side, self.members, self.form == "spark")


class TypedColumns:
    """Makes the columns of the sides of one topic.  *tally* counts what does not decode."""

    def __init__(
        self, plans: Sequence[SidePlan], registries: Sequence[Registry], tally: ErrorTally, context: str | None = None
    ) -> None:
        self._sides = [_TypedSide(plan, registries, tally, context) for plan in plans]

    def fields(self) -> dict[str, list[pa.Field]]:
        """Return the fields in the place of a column, by its name."""
        return {one.side: one.fields() for one in self._sides}

    def arrays(self, rows: Window, partition: int | None) -> dict[str, pa.Array]:
        """Return the arrays of these fields, by name."""
        return {name: array for one in self._sides for name, array in one.arrays(rows, partition or 0).items()}


class _TypedSide:
    def __init__(self, plan: SidePlan, registries: Sequence[Registry], tally: ErrorTally, context: str | None) -> None:
        self._pa = import_pyarrow()
        self.side, self._topic, self._tally = plan.side, plan.topic, tally
        self._column = plan.column()
        self._for_spark = plan.form != "parquet"
        decoders = SchemaDecoders(registries, context=context, make=self._column.make)
        self._decoder = decoders.side(plan.topic, plan.side)
        self._plain = SchemaDecoders(registries, context=context).side(plan.topic, plan.side)

    def fields(self) -> list[pa.Field]:
        pa, side = self._pa, self.side
        return [
            pa.field(side, self._column.type),
            pa.field(f"{side}_raw", pa.binary()),
            pa.field(f"{side}_schema_id", pa.int32()),
            pa.field(f"{side}_error", pa.string() if self._for_spark else pa.dictionary(pa.int8(), pa.string())),
        ]

    def arrays(self, rows: Window, partition: int) -> dict[str, pa.Array]:
        found = _Rows(rows.records)
        self._decode(rows, partition, found)
        values = self._array(rows, partition, found)
        names = (field.name for field in self.fields()[1:])
        kinds = (field.type for field in self.fields()[1:])
        others = (found.raw, found.ids, found.errors)
        made = {name: self._pa.array(one, kind) for name, kind, one in zip(names, kinds, others, strict=True)}
        return {self.side: values, **made}

    def _decode(self, rows: Window, partition: int, found: _Rows) -> None:
        record_of, usual_of, is_value = rows.record, self._decoder.usual.get, self.side == "value"
        values, ids, controls = found.values, found.ids, _controls(rows)
        for row in range(rows.records):
            record = record_of(row)
            content = record[3] if is_value else record[2]
            if content is None:
                continue
            if not record[4] and not controls:
                usual = usual_of(content[:5])
                if usual is not None:
                    value, _, error, trailing = usual.decode(content[5:])
                    if error is None and not trailing:
                        values[row], ids[row] = value, usual.schema_id
                        continue
            if row in controls:
                found.raw[row] = content
            else:
                self._decode_seldom(record, partition, row, found)

    def _decode_seldom(self, record: tuple[Any, ...], partition: int, row: int, found: _Rows) -> None:
        content = content_of(record, self.side) or b""
        one = self._decoder.decode(content, record[4] or ())
        if one is None:
            found.raw[row] = content
            return
        found.ids[row] = one.schema_id
        if one.decoded.error is None:
            found.values[row] = one.decoded.value
            if one.decoded.trailing:
                found.errors[row], found.raw[row] = TRAILING_BYTES, content
        else:
            found.errors[row], found.raw[row] = one.decoded.error, content
        if found.errors[row] is not None:
            self._tally.add(self._topic, partition, record[0], self.side, one)

    def _array(self, rows: Window, partition: int, found: _Rows) -> pa.Array:
        """Return the typed column; numbers that it cannot hold are null and an error."""
        pa, kind, values = self._pa, self._column.type, found.values
        try:
            return pa.array(values, kind)
        except CANNOT_HOLD:
            pass
        for row in _misfits(lambda first, end: pa.array(values[first:end], kind), 0, len(values)):
            record = rows.record(row)
            content = found.raw[row] = content_of(record, self.side)
            plain = self._plain.decode(content, record[4] or ())  # fastavro reads some numbers that are none
            error = None if plain is None else plain.decoded.error
            values[row] = fitting(values[row], kind) if error is None else None
            found.errors[row] = error or OUT_OF_RANGE
            one = DecodedSide(Decoded(None, None, found.errors[row]), found.ids[row])
            self._tally.add(self._topic, partition, record[0], self.side, one)
        return pa.array(values, kind)


class _Rows:
    """The columns of one side, row by row."""

    def __init__(self, count: int) -> None:
        self.values: list[Any] = [None] * count
        self.raw: list[bytes | None] = [None] * count
        self.ids: list[int | None] = [None] * count
        self.errors: list[str | None] = [None] * count


def _misfits(convert: Callable[[int, int], object], first: int, end: int) -> Iterator[int]:
    """Yield the numbers of the values that *convert* refuses, of those from *first* to *end*, which it refuses."""
    if end - first == 1:
        yield first
        return
    half = (first + end) // 2
    for some in ((first, half), (half, end)):
        try:
            convert(*some)
        except CANNOT_HOLD:
            yield from _misfits(convert, *some)


def _controls(rows: Window) -> frozenset[int]:
    """Return the numbers of the rows that are control records."""
    of_batch: dict[int, bool] = {}
    first = last = -1
    if rows.records:
        first, last = rows.record(0, False)[6], rows.record(rows.records - 1, False)[6]
    for batch in range(first, last + 1) if rows.records else ():
        of_batch[batch] = bool(rows.batch(batch).attributes & CONTROL_BIT)
    if not any(of_batch.values()):
        return frozenset()
    return frozenset(row for row in range(rows.records) if of_batch[rows.record(row, False)[6]])
