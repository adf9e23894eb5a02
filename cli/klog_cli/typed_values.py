"""Keys and values as text: how bytes are shown, and how a key that is typed becomes bytes."""

from __future__ import annotations

import json
import struct
import uuid
from typing import Final, NamedTuple

from klog.base.errors import UsageError

_NUMBERS: Final = {"int32": ">i", "int64": ">q", "float64": ">d"}
_DECODED: Final = ("auto", "schema", "json")
"""Forms in which a key or a value that a schema decodes is shown so, not as bytes."""


class ValueStyle(NamedTuple):
    """How bytes become text: *form* is one of `options.VALUE_FORMS`; *is_indented*: JSON takes several lines."""

    form: str = "auto"
    is_indented: bool = False

    def chosen(self, data: bytes | None, decoded: bytes | None) -> bytes | None:
        """Return the form in which a record is shown: its bytes, or the value that its schema decodes."""
        return decoded if self.form in _DECODED else data

    def text(self, data: bytes, most: int | None = None) -> str:
        """Return *data* as text, of which only the first *most* characters matter.

        Bytes that are not of the form are text, and bytes that are no UTF-8 are escaped.
        """
        if self.form in _NUMBERS:
            return _number(data, _NUMBERS[self.form])
        if self.form == "uuid" and len(data) == 16:
            return str(uuid.UUID(bytes=data))
        if self.form == "hex":
            return data[:most].hex()
        if self.is_indented and self.form in _DECODED:
            return _indented(data)
        return data[: None if most is None else most * 4].decode("utf-8", "backslashreplace")


def key_bytes(text: str, form: str) -> bytes:
    """Return the bytes of a key that is typed as *form*.  Raises UsageError."""
    try:
        if form in _NUMBERS:
            return struct.pack(_NUMBERS[form], float(text) if form == "float64" else int(text))
        if form == "uuid":
            return uuid.UUID(text).bytes
        if form == "hex":
            return bytes.fromhex(text)
    except (ValueError, struct.error) as error:
        raise UsageError(f"--key {text}: not of the form {form} (--key-as)") from error
    return text.encode("utf-8", "surrogateescape")


def _number(data: bytes, layout: str) -> str:
    if len(data) != struct.calcsize(layout):
        return data.decode("utf-8", "backslashreplace")
    return str(struct.unpack(layout, data)[0])


def _indented(data: bytes) -> str:
    try:
        return json.dumps(json.loads(data), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "backslashreplace")
