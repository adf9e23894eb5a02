"""Values as people read them."""

from __future__ import annotations

from klog.base.errors import range_text as range_text

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def printable(text: str) -> str:
    """Return *text* for a person's screen: control characters, as in a hostile file name, become visible."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def human_size(size: int) -> str:
    """Return *size* in bytes for people: `734 B`, `1.2 GiB`."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def time_text(timestamp: int) -> str:
    """Return ms since the epoch in UTC: `2025-06-15 15:06:40.300Z`; the number itself if it is beyond the calendar."""
    from datetime import UTC, datetime, timedelta

    try:
        time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp)
    except OverflowError:
        return str(timestamp)
    return time.isoformat(" ", "milliseconds").replace("+00:00", "Z")
