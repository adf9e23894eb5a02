"""The priority of a command beside a running broker: I/O of the idle class, and a nice value of at least 10."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

NICE: Final = 10
_IDLE: Final = 3 << 13
"""The value of IOPRIO_CLASS_IDLE."""


@contextmanager
def low_priority() -> Iterator[None]:
    """Give this thread, and those that it starts, idle I/O priority and a nice value of at least 10."""
    from klog.kernel import set_io_priority

    nice, io_before = os.getpriority(os.PRIO_PROCESS, 0), set_io_priority(_IDLE)
    if nice < NICE:
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    try:
        yield
    finally:
        if io_before >= 0:
            set_io_priority(io_before)
        with suppress(PermissionError):  # only root may have a lower value again
            os.setpriority(os.PRIO_PROCESS, 0, nice)
