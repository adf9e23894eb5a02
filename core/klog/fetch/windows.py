"""Windows that many threads share: each costs a megabyte, and there are hundreds of connections."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from klog.kernel import Window
from klog.log.reader import LARGE_WINDOW_BYTES

_ROWS: Final = 64


class WindowPool:
    """At most as many windows as there are processors: whoever wants one more waits."""

    def __init__(self, most: int | None = None) -> None:
        self._idle: list[Window] = []
        self._free = threading.Semaphore(most or min(os.cpu_count() or 1, 8))

    @contextmanager
    def borrowed(self) -> Iterator[Window]:
        """Give a window, whose content is anything."""
        with self._free:
            try:
                window = self._idle.pop()
            except IndexError:
                window = Window(records=_ROWS, output=1)
            yield window
            if window.size <= LARGE_WINDOW_BYTES:  # one that grew for a huge batch would keep its memory for ever
                self._idle.append(window)
