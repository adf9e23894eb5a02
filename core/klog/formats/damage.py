"""A place: a file, a byte position in it, a Kafka offset.  Damage as a value: a range of a log, and its fault."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple


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


class DamageKind(StrEnum):
    """The closed set of ways in which a log's content can be wrong."""

    TORN_TAIL = "torn tail"
    ZEROED_TAIL = "zeroed tail"
    SHORT_HEADER = "short header"
    BAD_LENGTH = "bad length"
    BAD_MAGIC = "bad magic"
    BAD_CRC = "bad CRC"
    BAD_COMPRESSION = "bad compression"
    BAD_RECORD = "bad record"
    OFFSET_BACKWARDS = "offset backwards"
    OFFSET_OVERFLOW = "offset overflow"
    UNREADABLE = "unreadable"
    BAD_INDEX = "bad index"


UNFINISHED: Final = (DamageKind.TORN_TAIL, DamageKind.ZEROED_TAIL)
"""Kinds that may only be a batch that a running broker is writing right now."""


class Damage(NamedTuple):
    """A damaged range of a log.

    *place* is its beginning: the first byte of the batch (of the rest, for tails).  *size* is how many bytes are
    known to be part of it, None if unknown.  *detail* describes the finding and the expectation.
    """

    kind: DamageKind
    place: Location
    detail: str
    size: int | None = None
    stored_crc: int | None = None
    computed_crc: int | None = None

    @property
    def end(self) -> int:
        """The first byte behind the range, as far as it is known."""
        return (self.place.position or 0) + (self.size or 0)

    @property
    def is_unfinished(self) -> bool:
        """Whether it may only be a batch that a running broker is writing right now."""
        return self.kind in UNFINISHED

    def __str__(self) -> str:
        return f"{self.place}: {self.kind.value}: {self.detail}"
