"""A bar on stderr, or nothing: the place, bytes, rate, time left, findings, once the work takes over a second."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from klog_cli.control_characters import printable
from klog_cli.display import human_size

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

    def _open(self) -> None:
        if self._progress is None:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            told = TextColumn("{task.description}", markup=False)
            console = Console(stderr=True, highlight=False)
            self._progress = Progress(BarColumn(20), told, console=console, transient=True)
            self._progress.start()
            self._task = self._progress.add_task("", total=None)

    def _draw(self, parts: list[str], completed: int | None = None, total: int | None = None) -> None:
        self._open()
        self._progress.update(self._task, description=" · ".join(parts), completed=completed, total=total)

    def clear(self) -> None:
        """Clear the progress bar for a line of text; the next progress draws it again."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def close(self) -> None:
        """Take the bar away for good."""
        self._shown = False
        self.clear()


class Bar(_Drawn):
    """Counts bytes of a task whose size is known."""

    def __init__(self, shown: bool) -> None:
        super().__init__(shown)
        self._total = self._measured = self._done = self._findings = 0
        self._measure: Callable[[], int] | None = None

    def expect(self, size: int) -> None:
        """Add *size* bytes to the total."""
        self._total += size

    def measure(self, total: Callable[[], int]) -> None:
        """Let *total* return the bytes of all files: it is called if the bar is drawn."""
        self._measure = total

    def found(self, findings: int) -> None:
        """Add to the number of findings."""
        self._findings += findings

    def advance(self, size: int, path: str = "") -> None:
        """Add *size* bytes of the log *path* to the progress."""
        self._done += size
        if self._is_time():
            if self._measure is not None:
                self._measured, self._measure = self._measure(), None
            total = max(self._measured, self._total, self._done)
            self._draw(self._parts(total, path), self._done, total)

    def _parts(self, total: int, path: str) -> list[str]:
        rate = self._done / max(time.monotonic() - self._began, 0.001)
        parts = [f"{human_size(self._done)} of {human_size(total)}"]
        parts += [f"{human_size(int(rate))}/s", f"{_duration((total - self._done) / rate)} left"] if rate >= 1 else []
        parts += [f"{self._findings} finding{'s' * (self._findings != 1)}"] if self._findings else []
        return [*parts, printable(os.path.basename(os.path.dirname(path)))] if path else parts


def _duration(seconds: float) -> str:
    """Return a duration for people: `0:05`, `1:02:03`."""
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


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
            rate = self._done / max(time.monotonic() - self._began, 0.001)
            self._draw([human_size(self._done), f"{human_size(int(rate))}/s", f"{self._lag} offsets behind"])
