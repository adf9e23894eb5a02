"""JSON Schema: a value is JSON, which is checked and goes into the output as it is: numbers keep their digits.

The kernel checks many values at a time.  It takes less for JSON than Python's reader, which judges all that it refuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, NoReturn

from klog.kernel import json_values
from klog.schemas.decoded import INVALID_JSON, BrokenSchemaError, Decoded, JsonText

_BLANK = re.compile(r"[ \t\r\n]").search
_NO_BLANKS = {ord(blank): None for blank in " \t\r\n"}
_STRING_OR_BLANKS = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\r\n]+').sub


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)


# Numbers stay text: they are not looked at, and Python refuses very long ones.
_check = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse).decode


def _without_blanks(text: str) -> str:
    """Return JSON without the blanks outside of its strings."""
    if "\\" in text:
        return _STRING_OR_BLANKS(r"\1", text)
    parts = text.split('"')  # every second one is a string
    parts[::2] = "\0".join(parts[::2]).translate(_NO_BLANKS).split("\0")
    return '"'.join(parts)


class JsonSchema:
    """A schema, and a decoder of its values: see `decoded.MakeDecoder`.  Both forms are equal."""

    def __init__(self, text: str, references: Mapping[str, str], canonical: bool = False) -> None:
        try:
            found: Any = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise BrokenSchemaError(f"no JSON: {error}") from None
        if not isinstance(found, dict | bool):
            raise BrokenSchemaError("no JSON Schema: neither an object nor true or false")
        title = found.get("title") if isinstance(found, dict) else None
        self.name = title if isinstance(title, str) else None

    def decode(self, payload: bytes | memoryview) -> Decoded:
        """Decode the bytes behind the framing; content raises nothing."""
        try:
            text = str(payload, "utf-8")
            _check(text)
        except (ValueError, RecursionError):
            return Decoded(None, None, INVALID_JSON)
        if _BLANK(text) is not None:
            text = _without_blanks(text)
        return Decoded(JsonText(text))

    def json_texts(self, payloads: list[bytes]) -> list[bytes | None]:
        """Return the JSON of each value; None for one that `decode` has to judge."""
        return json_values(payloads)
