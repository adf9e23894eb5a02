"""Avro's logical types as text: dates, times, timestamps, decimals, UUIDs, durations.

Python's own dates end at the year 9999, and its libraries lose the whole record then.  A value outside of the
calendar or the day stays the number that it is.
"""

from __future__ import annotations

import struct
from binascii import b2a_base64
from collections.abc import Callable
from datetime import date
from functools import lru_cache
from typing import Any, Final
from uuid import UUID

from klog.schemas.avro_types import AvroType

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_FIRST_DAY, _LAST_DAY = 1 - _EPOCH_DAY, date.max.toordinal() - _EPOCH_DAY
_DAY_S: Final = 86400
_MOST_DECIMAL_BYTES: Final = 1700
"""Python makes text of integers up to 4300 digits; the bytes of a longer one are shown as bytes."""
_PER_SECOND: Final = {"millis": 1000, "micros": 10**6, "nanos": 10**9}
_DURATION: Final = struct.Struct("<III")


def date_text(days: int) -> str | int:
    """Return a day, counted from 1970 on: `2026-11-21`."""
    return date.fromordinal(_EPOCH_DAY + days).isoformat() if _FIRST_DAY <= days <= _LAST_DAY else days


@lru_cache(4096)
def _minute_text(minutes: int) -> str:
    days, minute = divmod(minutes, 1440)
    return f"{date.fromordinal(_EPOCH_DAY + days).isoformat()}T{minute // 60:02}:{minute % 60:02}:"


def _timestamp_text(per_second: int, zone: str) -> Callable[[int], str | int]:
    digits = len(str(per_second)) - 1
    first, last = _FIRST_DAY * _DAY_S * per_second, (_LAST_DAY + 1) * _DAY_S * per_second
    per_minute = 60 * per_second

    def text(units: int) -> str | int:
        if not first <= units < last:
            return units
        minutes, rest = divmod(units, per_minute)
        seconds, rest = divmod(rest, per_second)
        return f"{_minute_text(minutes)}{seconds:02}.{rest:0{digits}}{zone}"

    return text


def _time_text(per_second: int) -> Callable[[int], str | int]:
    digits = len(str(per_second)) - 1

    def text(units: int) -> str | int:
        if not 0 <= units < _DAY_S * per_second:
            return units
        seconds, rest = divmod(units, per_second)
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{rest:0{digits}}"

    return text


def base64_text(content: bytes) -> str:
    """Return bytes as base64."""
    return b2a_base64(content, newline=False).decode("ascii")


def _decimal_text(scale: int) -> Callable[[bytes], str]:
    def text(content: bytes) -> str:
        if len(content) > _MOST_DECIMAL_BYTES:
            return base64_text(content)
        unscaled = int.from_bytes(content, "big", signed=True)
        digits = str(abs(unscaled))
        if scale:
            digits = digits.zfill(scale + 1)
            digits = f"{digits[:-scale]}.{digits[-scale:]}"
        return f"-{digits}" if unscaled < 0 else digits

    return text


def _duration(content: bytes) -> dict[str, int]:
    return dict(zip(("months", "days", "millis"), _DURATION.unpack(content), strict=True))


def logical_value(given: AvroType) -> Callable[[Any], object] | None:
    """Return what makes the plain form of values of a type with a logical type; None if it has none."""
    logical = given.logical
    if logical == "date":
        return date_text
    if logical == "decimal":
        return _decimal_text(given.scale)
    if logical == "uuid":
        return lambda content: str(UUID(bytes=content))
    if logical == "duration":
        return _duration
    if not logical:
        return None
    name, _, unit = logical.rpartition("-")
    if name == "time":
        return _time_text(_PER_SECOND[unit])
    return _timestamp_text(_PER_SECOND[unit], "" if name.startswith("local") else "Z")
