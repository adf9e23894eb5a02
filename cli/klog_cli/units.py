"""Sizes, times and durations as people write them."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from klog.base.errors import UsageError

_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZES |= {
    f"{unit}{tail}": factor for unit, factor in list(_SIZES.items()) if unit not in ("", "b") for tail in ("b", "ib")
}
_MOST_DIGITS = 30
_DURATIONS = {"ms": 1, "": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}


def parse_size(text: str) -> int:
    """Return bytes: `4096`, `64KiB`, `1G` (units are powers of 1024).  Raises UsageError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    factor = _SIZES.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise UsageError(f"{text!r} is not a size: expected a number with a unit, such as 4096, 64KiB or 1G")
    return _times(found[1], factor, "size")


def parse_duration(text: str) -> int:
    """Return ms: `500ms`, `10s`, `5m`, `24h`, `7d`; a bare number is ms.  Raises UsageError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    factor = _DURATIONS.get(found[2].lower()) if found else None
    if found is None or factor is None:
        raise UsageError(
            f"{text!r} is not a duration: expected a number with a unit, such as 500ms, 10s, 5m, 24h or 7d"
        )
    return _times(found[1], factor, "duration")


def _times(number: str, factor: int, what: str) -> int:
    """Return *number* (digits, perhaps with a fraction) times *factor*.  Raises UsageError when it is absurd."""
    if len(number) > _MOST_DIGITS:
        raise UsageError(f"a {what} of {len(number)} digits is none")
    return int(float(number) * factor) if "." in number else int(number) * factor


def parse_time(text: str, say: Callable[[str], None], now: float | None = None) -> int:
    """Return ms since the epoch: a number of ms, ISO 8601, or `2h ago`; *say* is called if UTC was assumed.

    Raises UsageError.
    """
    text = text.strip()
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if text == "now" or text.endswith(" ago"):
        moment = time.time() if now is None else now
        return int(moment * 1000) - (0 if text == "now" else parse_duration(text.removesuffix(" ago")))
    from datetime import UTC, datetime

    try:
        moment_given = datetime.fromisoformat(text.replace("Z", "+00:00").replace("z", "+00:00"))
    except ValueError:
        message = "expected ms since the epoch, ISO 8601 (2026-11-21T05:10:19Z) or an age (2h ago)"
        raise UsageError(f"{text!r} is not a time: {message}") from None
    if moment_given.tzinfo is None:
        say(f"{text} has no zone: UTC is assumed")
        moment_given = moment_given.replace(tzinfo=UTC)
    seconds = moment_given.timestamp()
    return round(seconds * 1000)


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
