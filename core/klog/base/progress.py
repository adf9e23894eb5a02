"""The protocols with which a long task reports progress, damage and output."""

from __future__ import annotations

from typing import Protocol


class Sink(Protocol):
    """Receives a dump and its progress."""

    def write(self, data: bytes | memoryview) -> None:
        """Take a part of the result."""

    def report(self, line: str) -> None:
        """Take a line about damage, for people."""

    def expect(self, size: int) -> None:
        """Note that *size* more bytes will be read."""

    def advance(self, size: int, path: str = "") -> None:
        """Hear that *size* bytes have been read, of the log *path* if one is given."""


class Silence:
    """A sink that discards output and progress."""

    def write(self, data: bytes | memoryview) -> None:
        """Take a part of the result, and forget it."""

    def report(self, line: str) -> None:
        """Take a line, and forget it."""

    def expect(self, size: int) -> None:
        """Hear that there is work."""

    def advance(self, size: int, path: str = "") -> None:
        """Hear that work was done."""
