"""A bar on stderr, or nothing: bytes, rate, time left, once the work takes longer than about a second."""

from __future__ import annotations

import time
from typing import Any

_PATIENCE_SECONDS = 1.0
_PAUSE_SECONDS = 0.1


class Bar:
    """Counts bytes, and draws a bar if it is *shown* and the work takes long."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._began = self._drawn = time.monotonic()
        self._total = self._done = 0
        self._progress: Any = None
        self._task: Any = None

    def expect(self, size: int) -> None:
        """Add *size* bytes to what there is to do."""
        self._total += size

    def advance(self, size: int) -> None:
        """Add *size* bytes to what is done."""
        self._done += size
        if not self._shown:
            return
        now = time.monotonic()
        if now - self._began < _PATIENCE_SECONDS or now - self._drawn < _PAUSE_SECONDS:
            return
        self._drawn = now
        if self._progress is None:
            self._open()
        self._progress.update(self._task, completed=self._done, total=max(self._total, self._done))

    def _open(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        columns = (BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
        self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
        self._progress.start()
        self._task = self._progress.add_task("", total=self._total)

    def clear(self) -> None:
        """Clear the progress bar for a line of text."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def close(self) -> None:
        """Take the bar away."""
        self.clear()
