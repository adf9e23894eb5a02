"""Options of `.proto` text: those that Protobuf defines itself go into the descriptor, others are skipped."""

from __future__ import annotations

from array import array
from typing import Any

from google.protobuf import descriptor_pb2

from klog.schemas.proto_tokens import Tokens, whole

FIELD = descriptor_pb2.FieldDescriptorProto
_FLOATS = (FIELD.TYPE_FLOAT, FIELD.TYPE_DOUBLE)
_ESCAPES = {ord(c): f"\\{e}" for c, e in zip("\n\r\t\"'\\", "nrt\"'\\", strict=True)}
_ESCAPES |= {code: f"\\{code:03o}" for code in range(256) if not 32 <= code < 127 and code not in _ESCAPES}


def read_option(tokens: Tokens, options: Any) -> None:
    """Read `name = value`, and set it in *options* if their message has a field of that name."""
    path: list[str] = []
    custom = False
    while tokens.value != "=":
        if tokens.take("("):
            custom = True
            tokens.name(dots=True)
            tokens.expect(")")
        elif not tokens.take("."):
            path += tokens.name(dots=True).strip(".").split(".")
    tokens.expect("=")
    _read_value(tokens, options, [] if custom else path)


def _read_value(tokens: Tokens, options: Any, path: list[str]) -> None:
    """Read a value for the option *path*; an empty path is an option of somebody else."""
    if tokens.take("{"):
        if path != ["features"]:
            tokens.skip_to("}")
            return
        while not tokens.take("}"):
            name = tokens.name()
            tokens.take(":")
            _read_value(tokens, options, [*path, name])
            if not tokens.take(","):
                tokens.take(";")
        return
    value: Any
    if tokens.kind == "text":
        value = tokens.text()
    else:
        sign = "-" if tokens.take("-") else ""
        if tokens.kind not in ("name", "number"):
            raise tokens.broken(f"a value expected before {tokens.value[:60]!r}")
        value = sign + tokens.next()
    if path:
        _set(options, path, value)


def _set(options: Any, path: list[str], value: str | bytes) -> None:
    *parents, last = path
    for name in parents:
        field = options.DESCRIPTOR.fields_by_name.get(name)
        if field is None or field.message_type is None or field.is_repeated:
            return
        options = getattr(options, name)
    field = options.DESCRIPTOR.fields_by_name.get(last)
    if field is None or field.message_type is not None:
        return
    if isinstance(value, bytes):
        if field.type == FIELD.TYPE_STRING:
            setattr(options, last, value.decode())
    elif field.enum_type is not None:
        number = field.enum_type.values_by_name.get(value)
        if number is not None and not field.is_repeated:
            setattr(options, last, number.number)
        elif number is not None:
            getattr(options, last).append(number.number)
    elif field.type == FIELD.TYPE_BOOL:
        setattr(options, last, value == "true")


def read_default(tokens: Tokens, kind: int) -> str:
    """Read `= value` behind `default`, and return it as descriptors have it; *kind*: the field's type, 0 if named."""
    tokens.expect("=")
    if tokens.kind == "text":
        raw = tokens.text()
        return "".join(map(chr, raw)).translate(_ESCAPES) if kind == FIELD.TYPE_BYTES else raw.decode()
    sign = "-" if tokens.take("-") else ""
    if tokens.kind == "name":
        name = tokens.name()
        return name if name == "nan" else sign + name
    if tokens.kind != "number":
        raise tokens.broken(f"a value expected before {tokens.value[:60]!r}")
    digits = tokens.next()
    if kind not in _FLOATS:
        return str(int(f"{sign}{whole(digits)}"))
    number = float(whole(digits)) if digits[:2] in ("0x", "0X") else float(digits.rstrip("fF"))
    if kind == FIELD.TYPE_DOUBLE:
        short = f"{number:.15g}"
        return sign + (short if float(short) == number else f"{number:.17g}")
    number = _single(number)
    short = f"{number:.6g}"
    return sign + (short if _single(float(short)) == number else f"{number:.9g}")


def _single(number: float) -> float:
    """Return the float32 that is nearest to *number*."""
    return array("f", (number,))[0]
