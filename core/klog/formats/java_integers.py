"""The bounds of Java's integer types.  Offsets, timestamps and producer ids are longs, positions and sizes ints."""

from __future__ import annotations

from typing import Final

INT_MAX: Final = 2**31 - 1
LONG_MIN: Final = -(2**63)
LONG_MAX: Final = 2**63 - 1
