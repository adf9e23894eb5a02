"""Sizes, times and durations as people write them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping

from klog.base.errors import UsageError

_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZES |= {
    f"{unit}{tail}": factor for unit, factor in list(_SIZES.items()) if unit not in ("", "b") for tail in ("b", "ib")
}
_MOST_DIGITS = 30
_DAY_MS = 86_400_000
_DURATIONS = {"ms": 1, "": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_size(text: str) -> int:
    """Return bytes: `4096`, `64KiB`, `1G` (units are powers of 1024).  Raises UsageError."""
    return _scaled(text, _SIZES, "size", "4096, 64KiB or 1G")


def parse_duration(text: str) -> int:
    """Return ms: `500ms`, `10s`, `5m`, `24h`, `7d`; a bare number is ms.  Raises UsageError."""
    return _scaled(text, _DURATIONS, "duration", "500ms, 10s, 5m, 24h or 7d")


def _scaled(text: str, units: Mapping[str, int], what: str, examples: str) -> int:
    """Return a number, perhaps with a fraction, times its unit.  Raises UsageError for anything else."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    factor = units.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise UsageError(f"{text!r} is not a {what}: expected a number with a unit, such as {examples}")
    number = found[1]
    if len(number) > _MOST_DIGITS:
        raise UsageError(f"a {what} of {len(number)} digits is none")
    return int(float(number) * factor) if "." in number else int(number) * factor


def parse_time(text: str, say: Callable[[str], None], now: float | None = None) -> int:
    """Return ms since the epoch: a number of ms, ISO 8601, an age, or a time of today or yesterday.

    An age is `2h`, `-2h` or `2h ago`; times of a day are UTC: `14:03`, `yesterday`, `yesterday 14:03`.  *say* is called
    if UTC was assumed for a date.  Raises UsageError.
    """
    text = text.strip()
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    now_ms = int((time.time() if now is None else now) * 1000)
    if text == "now":
        return now_ms
    if re.fullmatch(r"-?\d+(\.\d+)?\s*[A-Za-z]+( ago)?", text):
        return now_ms - parse_duration(text.removesuffix(" ago").removeprefix("-"))
    if (found := re.fullmatch(r"(today|yesterday)?\s*(\d{1,2}:\d{2}(?::\d{2}(?:\.\d{1,6})?)?)?", text)) and text:
        return _time_of_day(text, now_ms, found[1] == "yesterday", found[2] or "00:00")
    from datetime import UTC, datetime

    try:
        moment_given = datetime.fromisoformat(text.replace("Z", "+00:00").replace("z", "+00:00"))
    except ValueError:
        raise _no_time(text) from None
    if moment_given.tzinfo is None:
        say(f"{text} has no zone: UTC is assumed")
        moment_given = moment_given.replace(tzinfo=UTC)
    seconds = moment_given.timestamp()
    return round(seconds * 1000)


def _time_of_day(text: str, now_ms: int, is_yesterday: bool, clock: str) -> int:
    """Return ms since the epoch of a time of the clock, UTC.  Raises UsageError."""
    from datetime import time as clock_time

    try:
        at = clock_time.fromisoformat(clock.rjust(len(clock) + (clock.index(":") == 1), "0"))
    except ValueError:
        raise _no_time(text) from None
    midnight = now_ms - now_ms % _DAY_MS - is_yesterday * _DAY_MS
    return midnight + ((at.hour * 60 + at.minute) * 60 + at.second) * 1000 + at.microsecond // 1000


def _no_time(text: str) -> UsageError:
    forms = (
        "ms since the epoch, ISO 8601 (2026-11-21T05:10:19Z), an age (2h), or a time of day (14:03, yesterday 14:03)"
    )
    return UsageError(f"{text!r} is not a time: expected {forms}")


def parse_now(text: str | None, say: Callable[[str], None]) -> int:
    """Return the time of `--now`, read by `parse_time`; without it the clock's time, in ms."""
    return parse_time(text, say) if text is not None else int(time.time() * 1000)


def parse_key(text: str) -> bytes:
    """Return the bytes of a key: a text, or `hex:` or `base64:` and its encoding.  Raises UsageError."""
    import base64
    import binascii

    try:
        if text.startswith("hex:"):
            return bytes.fromhex(text[4:])
        if text.startswith("base64:"):
            return base64.b64decode(text[7:], validate=True)
    except (ValueError, binascii.Error) as error:
        raise UsageError(f"--key {text}: {error}") from None
    return text.encode("utf-8", "surrogateescape")


def parse_share(text: str) -> float:
    """Return a part of one: `0.05`, `5%`, `1/20`.  Raises UsageError."""
    number, slash, whole = text.removesuffix("%").partition("/")
    try:
        share = float(number) / (100 if text.endswith("%") else 1) / (float(whole) if slash else 1)
    except (ValueError, ZeroDivisionError):
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"--sample {text}: expected a part of one, such as 0.05, 5% or 1/20")
    return share


def parse_partition(text: str) -> int | tuple[str, int]:
    """Return a partition number, or the topic and the number of `orders-3`.  Raises UsageError."""
    if text.isascii() and text.isdecimal() and int(text) < 1 << 31:
        return int(text)
    topic, dash, number = text.rpartition("-")
    if topic and dash and number.isascii() and number.isdecimal() and int(number) < 1 << 31:
        return topic, int(number)
    raise UsageError(f"--partition {text}: expected a number or a topic and a number, such as 3 or orders-3")
