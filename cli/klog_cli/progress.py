"""A bar on stderr, or nothing: bytes, rate, time left, once the work takes longer than about a second."""

from __future__ import annotations

import time
from typing import Any

_PATIENCE_SECONDS = 1.0
_PAUSE_SECONDS = 0.1


class _Drawn:
    """A bar that is drawn if it is *shown* and the work takes long."""

    def __init__(self, shown: bool) -> None:
        self._shown = shown
        self._began = self._drawn = time.monotonic()
        self._progress: Any = None
        self._task: Any = None

    def _is_time(self) -> bool:
        """Whether it is time to draw."""
        if not self._shown:
            return False
        now = time.monotonic()
        if now - self._began < _PATIENCE_SECONDS or now - self._drawn < _PAUSE_SECONDS:
            return False
        self._drawn = now
        return True

    def _open(self, *columns: Any) -> None:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import Progress

            self._progress = Progress(*columns, console=Console(stderr=True), transient=True)
            self._progress.start()
            self._task = self._progress.add_task("", total=None)

    def clear(self) -> None:
        """Clear the progress bar for a line of text."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def close(self) -> None:
        """Take the bar away."""
        self.clear()


class Bar(_Drawn):
    """Counts bytes of a task whose size is known."""

    def __init__(self, shown: bool) -> None:
        super().__init__(shown)
        self._total = self._done = 0

    def expect(self, size: int) -> None:
        """Add *size* bytes to the total."""
        self._total += size

    def advance(self, size: int) -> None:
        """Add *size* bytes to the progress."""
        self._done += size
        if self._is_time():
            from rich.progress import BarColumn, DownloadColumn, TimeRemainingColumn, TransferSpeedColumn

            self._open(BarColumn(), DownloadColumn(binary_units=True), TransferSpeedColumn(), TimeRemainingColumn())
            self._progress.update(self._task, completed=self._done, total=max(self._total, self._done))


class LagBar(_Drawn):
    """Counts bytes of a task without an end: bytes, rate, and by how many offsets it is behind."""

    def __init__(self, shown: bool) -> None:
        super().__init__(shown)
        self._done = self._lag = 0

    def advance(self, size: int, lag: int) -> None:
        """Add *size* bytes to the progress, and *lag* offsets to the lag."""
        self._done += size
        self._lag += lag
        if self._is_time():
            from rich.progress import BarColumn, FileSizeColumn, TextColumn, TransferSpeedColumn

            self._open(BarColumn(), FileSizeColumn(), TransferSpeedColumn(), TextColumn("{task.description}"))
            self._progress.update(self._task, completed=self._done, description=f"{self._lag} behind")
