"""Protobuf messages as JSON, in the plain or the canonical form: one plan for each message type.

plain keeps the names of the text and 64-bit numbers as numbers; canonical is ProtoJSON as Kafka's console consumer
prints it: `json_name`, 64-bit numbers as text, and the defaults of proto2 fields that are not set.  In both, fields
without presence are always there, and other fields only if they are set.  Keys of maps are sorted: the library's own
order differs between two runs.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Callable, Iterable
from operator import itemgetter
from threading import Lock, local
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from klog.schemas import proto_well_known as well_known
from klog.schemas.decoded import BAD_VALUE, BadValueError
from klog.schemas.json_values import double_value, float_value
from klog.schemas.proto_pool import MessageTypes

Convert = Callable[[Any], Any]
Step = tuple[str, str, bool, Convert | None]
"""A field: its name in the message, its key in JSON, whether only a set one is there, and what its value becomes."""

NESTED_ANY = 20
"""Messages of type Any in each other that are opened; what is deeper stays base64."""
LONGS = frozenset(
    (
        FieldDescriptor.TYPE_INT64,
        FieldDescriptor.TYPE_UINT64,
        FieldDescriptor.TYPE_SINT64,
        FieldDescriptor.TYPE_FIXED64,
        FieldDescriptor.TYPE_SFIXED64,
    )
)
MESSAGES = (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_GROUP)


class _Depth(local):
    """How many messages of type Any a thread is in."""

    messages = 0


class JsonForm:
    """One of the two forms, for the messages of one schema.  Several threads may use it."""

    def __init__(self, messages: MessageTypes, canonical: bool) -> None:
        self._messages = messages
        self._canonical = canonical
        self._plans: dict[str, Convert] = {}
        self._pending: list[tuple[Any, list[Step]]] = []
        self._lock = Lock()  # a plan is known before it has its steps, as types may refer to themselves
        self._any = _Depth()

    def plan(self, descriptor: Any) -> Convert:
        """Return the function that turns a message of this type into JSON."""
        with self._lock:
            convert = self._planned(descriptor)
            while self._pending:
                inner, steps = self._pending.pop()
                steps.extend(self._step(field) for field in inner.fields)
        return convert

    def _planned(self, descriptor: Any) -> Convert:
        name = descriptor.full_name
        if name not in self._plans:
            special = self._special(descriptor)
            if special is None:
                steps: list[Step] = []
                self._pending.append((descriptor, steps))
                special = _converter(steps)
            self._plans[name] = special
        return self._plans[name]

    def _special(self, descriptor: Any) -> Convert | None:
        """Return the function for one of Protobuf's well-known types, or None."""
        if not well_known.is_well_known(descriptor):
            return None
        name = descriptor.name
        if name == "Any":
            return self._of_any
        if name in ("Timestamp", "Duration"):
            as_text = well_known.timestamp if name == "Timestamp" else well_known.duration
            return lambda message: (
                as_text(message)
                or {
                    "seconds": self._long(message.seconds),
                    "nanos": message.nanos,
                }
            )
        if name in well_known.WRAPPERS:
            single = self._single(descriptor.fields_by_name["value"])
            return (lambda message: single(message.value)) if single else (lambda message: message.value)
        return well_known.FORMS.get(name)

    def _step(self, field: Any) -> Step:
        key = field.json_name if self._canonical else self._messages.renamed.get(field.full_name, field.name)
        guarded = field.has_presence
        if self._canonical and guarded and field.type not in MESSAGES and not field.is_required:
            guarded = field.containing_oneof is not None  # the default of a proto2 field is printed
        return field.name, key, guarded, self._value(field)

    def _value(self, field: Any) -> Convert | None:
        """Return what the value of a field becomes, with its repetitions; None: it stays as it is."""
        if not field.is_repeated:
            return self._single(field)
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            return _map_of(*(self._single(entry.fields_by_name[name]) for name in ("key", "value")))
        single = self._single(field)
        return list if single is None else lambda values: [single(value) for value in values]

    def _single(self, field: Any) -> Convert | None:
        """Return what one value of a field becomes; None: it stays as it is."""
        kind = field.type
        if kind in MESSAGES:
            return self._planned(field.message_type)
        if kind in LONGS:
            return str if self._canonical else None
        if kind == FieldDescriptor.TYPE_ENUM:
            return self._enum(field.enum_type)
        if kind == FieldDescriptor.TYPE_STRING and self._messages.may_have_bad_text(field.containing_type):
            return text_of
        return _CONVERTED.get(kind)

    def _enum(self, enum: Any) -> Convert:
        names = {value.number: value.name for value in reversed(enum.values)}
        if self._canonical and enum.full_name == "google.protobuf.NullValue":
            names[0] = None
        return lambda number: names.get(number, number)

    def _long(self, number: int) -> int | str:
        return str(number) if self._canonical else number

    def _of_any(self, message: Any) -> dict[str, Any]:
        """Return the fields of the message in an Any, if the schema has its type, else its bytes in base64."""
        url, value = message.type_url, message.value
        out: dict[str, Any] = {"@type": url}
        try:
            inner = self._messages.message_class(url.rpartition("/")[2]).FromString(value)
        except (KeyError, DecodeError):
            inner = None
        if inner is None or self._any.messages == NESTED_ANY:
            return {**out, "value": base64_text(value)}
        self._any.messages += 1
        try:
            fields = self.plan(inner.DESCRIPTOR)(inner)
        finally:
            self._any.messages -= 1
        return {**out, "value": fields} if well_known.is_well_known(inner.DESCRIPTOR) else out | fields


def _converter(steps: Iterable[Step]) -> Convert:
    def convert(message: Any) -> dict[str, Any]:
        out = {}
        for name, key, guarded, value in steps:
            if not guarded or message.HasField(name):
                found = getattr(message, name)
                out[key] = found if value is None else value(found)
        return out

    return convert


def _map_of(key_of: Convert | None, value_of: Convert | None) -> Convert:
    def convert(values: Any) -> dict[str, Any]:
        if key_of is text_of:
            _all_text(values)
        pairs = sorted(values.items(), key=itemgetter(0))
        return {_key(key): value if value_of is None else value_of(value) for key, value in pairs}

    return convert


def text_of(value: str | bytes) -> str:
    """Return the text of a field that may be bytes, where it is not UTF-8.  Raises BadValueError."""
    if isinstance(value, bytes):
        raise BadValueError(BAD_VALUE)
    return value


def _all_text(values: Iterable[str | bytes]) -> None:
    for value in values:
        text_of(value)


def _key(key: bool | int | str) -> str:
    return ("true" if key else "false") if isinstance(key, bool) else str(key)


def base64_text(value: bytes) -> str:
    """Return *value* in base64."""
    return b2a_base64(value, newline=False).decode("ascii")


_CONVERTED: dict[int, Convert] = {
    FieldDescriptor.TYPE_BYTES: base64_text,
    FieldDescriptor.TYPE_FLOAT: float_value,
    FieldDescriptor.TYPE_DOUBLE: double_value,
}
