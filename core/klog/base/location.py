"""A location: a file, a byte position in it, a Kafka offset."""

from __future__ import annotations

from typing import NamedTuple


class Location(NamedTuple):
    """A place on disk.  *position* is bytes, *offset* is Kafka's; None if it has no meaning."""

    file: str
    position: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        text = self.file
        if self.position is not None:
            text += f" @ {self.position}"
        if self.offset is not None:
            text += f" (offset {self.offset})"
        return text
