"""Which replicas a command line chooses, partition by partition."""

from __future__ import annotations

import re
from collections.abc import Sequence

from klog.errors import UsageError

_CHOICE = re.compile(r"(.+)-([0-9]{1,10})=([0-9]{1,10})", re.DOTALL)


def chosen(given: Sequence[str]) -> dict[tuple[str, int], int]:
    """Return the nodes that `T-P=N` choose, by topic and partition.  Raises UsageError."""
    found = {}
    for text in given:
        parts = _CHOICE.fullmatch(text)
        if parts is None:
            raise UsageError(f"--choose {text}: expected TOPIC-PARTITION=NODE, orders-0=2")
        found[parts[1], int(parts[2])] = int(parts[3])
    return found
