"""Takes the notes, the errors and the progress of a change of a log dir."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from klog.base.progress import Silence, Sink


class Reporter(Protocol):
    """The receiver of a session's messages beside its result."""

    def note(self, message: str) -> None:
        """Report a line of information."""

    def error(self, message: str) -> None:
        """Take a line about something that was not done."""

    def progress(self) -> AbstractContextManager[Sink]:
        """Return a progress display for the time of applying a plan."""


class SilentReporter:
    """A reporter for programs that look at results and exceptions alone."""

    def note(self, message: str) -> None:
        """Drop the line."""

    def error(self, message: str) -> None:
        """Drop the line."""

    def progress(self) -> AbstractContextManager[Sink]:
        """Return a sink that shows nothing."""
        return nullcontext(Silence())
