"""The protocol of a log that is read by position, wherever its bytes are."""

from __future__ import annotations

from typing import Protocol


class ReadableLog(Protocol):
    """The bytes of a log by position: those of a file, or those that a repair will write to one.  See ReadOnlyFile.

    *size*: bytes when it was opened.
    """

    path: str
    size: int

    def read_into(self, position: int, view: memoryview) -> int:
        """Fill *view* from *position* on; return the number of bytes, fewer only at the end.  Raises OSError."""

    def read(self, position: int, size: int) -> bytes:
        """Return up to *size* bytes from *position* on; fewer only at the end.  Raises UnreadableError."""

    def next_data(self, position: int) -> int:
        """Return the first position at or after *position* that is not in a hole; *size* if there is none."""

    def close(self) -> None:
        """Close it; closing it again does nothing."""
