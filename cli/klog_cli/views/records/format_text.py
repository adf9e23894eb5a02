r"""Records as a format says it, with the letters of kcat: `%T %t-%p@%o %k %v\n`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from klog.base.errors import UsageError
from klog.commands.records.record_rows import RecordRow

from klog_cli.display import time_text
from klog_cli.typed_values import ValueStyle
from klog_cli.views.records.text import shown_key, shown_value

Origin = tuple[str | None, int | None]
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_TOKEN: Final = re.compile(rb"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+)|(.)", re.DOTALL)
_AS_THEY_ARE: Final = ("auto", "schema")
LETTERS: Final = "tpokvsSKhTI"


class RecordFormat:
    """A compiled format.  *key*, *value*: how these become text; `auto` and `schema` write bytes as they are.

    Raises UsageError for a letter that is none.
    """

    def __init__(self, text: str, key: ValueStyle, value: ValueStyle) -> None:
        self._key, self._value = key, value
        self._parts: list[bytes | Callable[[RecordRow, Origin], bytes]] = []
        for letter, code, escape, plain, rest in _TOKEN.findall(text.encode("utf-8", "surrogateescape")):
            self._parts.append(
                self._field(letter.decode("utf-8", "replace"))
                if letter
                else bytes.fromhex(code.decode())
                if code
                else _ESCAPES.get(escape.decode("latin-1"), b"\\" + escape)
                if escape
                else plain + rest
            )

    def line(self, row: RecordRow, origin: Origin) -> bytes:
        """Return the bytes for a record."""
        return b"".join(part if isinstance(part, bytes) else part(row, origin) for part in self._parts)

    def _field(self, letter: str) -> bytes | Callable[[RecordRow, Origin], bytes]:
        if letter == "%":
            return b"%"
        fields: dict[str, Callable[[RecordRow, Origin], bytes]] = {
            "t": lambda row, origin: (origin[0] or "").encode("utf-8", "surrogateescape"),
            "p": lambda row, origin: b"" if origin[1] is None else b"%d" % origin[1],
            "o": lambda row, origin: b"%d" % row.record.offset,
            "k": lambda row, origin: _content(shown_key(row, self._key), self._key),
            "v": lambda row, origin: _content(shown_value(row, self._value), self._value),
            "s": lambda row, origin: _content(shown_value(row, self._value), self._value),
            "S": lambda row, origin: _length(row.record.value),
            "K": lambda row, origin: _length(row.record.key),
            "h": lambda row, origin: _headers(row),
            "T": lambda row, origin: b"%d" % row.record.timestamp,
            "I": lambda row, origin: time_text(row.record.timestamp).replace(" ", "T").encode(),
        }
        if letter not in fields:
            raise UsageError(f"--format: %{letter} is unknown; expected %{', %'.join(LETTERS)} or %%")
        return fields[letter]


def _content(data: bytes | None, style: ValueStyle) -> bytes:
    if data is None:
        return b""
    return data if style.form in _AS_THEY_ARE else style.text(data).encode("utf-8", "surrogateescape")


def _length(data: bytes | None) -> bytes:
    return b"-1" if data is None else b"%d" % len(data)


def _headers(row: RecordRow) -> bytes:
    return b",".join(name + b"=" + (b"NULL" if value is None else value) for name, value in row.record.headers)
