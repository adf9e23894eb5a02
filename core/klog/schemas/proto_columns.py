"""The columns of Protobuf messages: typed as in Parquet, by the schema that reads them."""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.descriptor import FieldDescriptor

from klog.log.arrow import import_pyarrow
from klog.schemas import proto_well_known as well_known
from klog.schemas.columns import MOST_COLUMNS, Change, Column, TooManyColumnsError, enum_type, field_name, struct_type
from klog.schemas.json_values import json_bytes
from klog.schemas.proto_json import MESSAGES, JsonForm, text_of
from klog.schemas.proto_pool import MessageTypes

if TYPE_CHECKING:
    import pyarrow as pa

_F: Final = FieldDescriptor
_SCALARS: Final = {
    _F.TYPE_INT32: "int32", _F.TYPE_SINT32: "int32", _F.TYPE_SFIXED32: "int32", _F.TYPE_INT64: "int64",
    _F.TYPE_SINT64: "int64", _F.TYPE_SFIXED64: "int64", _F.TYPE_UINT32: "uint32", _F.TYPE_FIXED32: "uint32",
    _F.TYPE_UINT64: "uint64", _F.TYPE_FIXED64: "uint64", _F.TYPE_BOOL: "bool_", _F.TYPE_FLOAT: "float32",
    _F.TYPE_DOUBLE: "float64", _F.TYPE_STRING: "string", _F.TYPE_BYTES: "binary",
}  # fmt: skip
_SECOND: Final = 10**9


class MessageColumns:
    """Makes the columns of the message types of one schema.  *for_spark*: of the types that Spark has."""

    def __init__(self, messages: MessageTypes, for_spark: bool = False) -> None:
        self._pa, self._for_spark = import_pyarrow(), for_spark
        self._messages = messages
        self._form = JsonForm(messages, canonical=False)
        self._left = 0
        self._inside: set[str] = set()

    def column(self, descriptor: Any) -> Column:
        """Return the column of a message type; its raw values are messages."""
        self._left = MOST_COLUMNS
        try:
            return self._message(descriptor)
        except TooManyColumnsError:
            return self._json(descriptor)

    def _json(self, descriptor: Any) -> Column:
        convert = self._form.plan(descriptor)
        return Column(self._pa.string(), lambda message: json_bytes(convert(message)))

    def _message(self, descriptor: Any) -> Column:
        self._left -= 1
        if self._left < 0:
            raise TooManyColumnsError
        if well_known.is_well_known(descriptor):
            return self._well_known(descriptor)
        name = descriptor.full_name
        if name in self._inside:
            return self._json(descriptor)
        self._inside.add(name)
        try:
            columns = [(field, self._field(field)) for field in descriptor.fields]
        finally:
            self._inside.discard(name)
        steps: list[tuple[str, str, bool, Change | None]] = []
        members = []
        for field, column in columns:
            shown = self._messages.renamed.get(field.full_name, field.name)
            members.append((shown, column.type))
            steps.append((field.name, field_name(shown), field.has_presence, column.change))
        return Column(struct_type(members), _converter(steps))

    def _well_known(self, descriptor: Any) -> Column:
        pa, name = self._pa, descriptor.name
        if name == "Timestamp" and self._for_spark:
            per_second, nanos = 10**6, 1000
            micros = pa.timestamp("us", "UTC")
            return Column(micros, lambda message: message.seconds * per_second + message.nanos // nanos)
        if name == "Timestamp":
            return Column(pa.timestamp("ns", "UTC"), lambda message: message.seconds * _SECOND + message.nanos)
        if name == "Duration":
            kind = struct_type([("seconds", pa.int64()), ("nanos", pa.int32())])
            return Column(kind, lambda message: {"seconds": message.seconds, "nanos": message.nanos})
        if name in well_known.WRAPPERS:
            kind, change = self._single(descriptor.fields_by_name["value"])
            if change is None:
                return Column(kind, lambda message: message.value)
            return Column(kind, lambda message: change(message.value))
        if name == "FieldMask":
            convert = self._form.plan(descriptor)
            return Column(pa.string(), lambda message: _text_or_json(convert(message)))
        return self._json(descriptor)

    def _field(self, field: Any) -> Column:
        entry = field.message_type
        if not field.is_repeated:
            return self._single(field)
        if entry is not None and entry.GetOptions().map_entry:
            return self._map(*(self._single(entry.fields_by_name[name]) for name in ("key", "value")))
        kind, part = self._single(field)
        return Column(self._pa.list_(kind), list if part is None else lambda values: [part(one) for one in values])

    def _map(self, key: Column, value: Column) -> Column:
        of_key, of_value = key.change or _same, value.change or _same

        def change(values: Any) -> list[tuple[Any, Any]]:
            pairs = sorted(((of_key(name), one) for name, one in values.items()), key=itemgetter(0))
            return [(name, of_value(one)) for name, one in pairs]

        return Column(self._pa.map_(key.type, value.type), change)

    def _single(self, field: Any) -> Column:
        """Return the column of one value of a field."""
        if field.type in MESSAGES:
            return self._message(field.message_type)
        self._left -= 1
        if self._left < 0:
            raise TooManyColumnsError
        if field.type == _F.TYPE_ENUM:
            names = {value.number: value.name for value in reversed(field.enum_type.values)}
            return Column(enum_type(self._for_spark), lambda number: names.get(number) or str(number))
        may_be_bad = field.type == _F.TYPE_STRING and self._messages.may_have_bad_text(field.containing_type)
        return Column(self._scalar(_SCALARS[field.type]), text_of if may_be_bad else None)

    def _scalar(self, name: str) -> pa.DataType:
        if self._for_spark and name == "uint64":
            return self._pa.decimal128(20)
        return getattr(self._pa, "int64" if self._for_spark and name == "uint32" else name)()


def _converter(steps: list[tuple[str, str, bool, Change | None]]) -> Callable[[Any], dict[str, Any]]:
    def convert(message: Any) -> dict[str, Any]:
        out = {}
        for name, shown, guarded, value in steps:
            if not guarded or message.HasField(name):
                found = getattr(message, name)
                out[shown] = found if value is None else value(found)
        return out

    return convert


def _same(value: Any) -> Any:
    return value


def _text_or_json(value: object) -> str | bytes:
    return value if isinstance(value, str) else json_bytes(value)
