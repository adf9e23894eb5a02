"""Values as people read them."""

from __future__ import annotations

from klog.base.errors import range_text as range_text
from klog.base.errors import time_text as time_text

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def human_size(size: int) -> str:
    """Return *size* in bytes for people: `734 B`, `1.2 GiB`."""
    value, unit = float(size), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{size} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"
