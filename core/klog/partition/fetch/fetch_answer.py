"""The request and the result of a fetch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from klog.formats.error_codes import ErrorCode


class FileBytes(NamedTuple):
    """Bytes of a log: *position* and *size* in the file at *path*."""

    path: str
    position: int
    size: int


class BatchExtent(NamedTuple):
    """A whole batch that is handed out; *position* and *size* are bytes of its log."""

    base_offset: int
    last_offset: int
    position: int
    size: int


class PartialBatch(NamedTuple):
    """A batch of which only the first *bytes* are sent; *base_offset* is None if they do not contain it."""

    base_offset: int | None
    bytes: int


class AbortedTransaction(NamedTuple):
    """An aborted transaction, as consumers get it: they skip its records from *first_offset* to its marker."""

    producer_id: int
    first_offset: int


class OffsetBounds(NamedTuple):
    """The offsets of a partition: from its log's start up to, not including, the others."""

    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    last_stable_offset: int


class FetchRequest(NamedTuple):
    """A fetch: batches from *offset* on, none with an offset from *up_to* on, at most *max_bytes* of them.

    *at_least_one*: the first batch is returned whole, however large it is.  *partial*: the last one is cut at the
    limit, as a broker does, which does not look inside; otherwise only whole ones are returned.  *aborted*: a function
    of a segment's number that returns the transactions (producer id, first offset, marker's offset) that its data may
    belong to, by their markers; None for a request of all data.
    """

    offset: int
    max_bytes: int
    up_to: int
    partial: bool = False
    at_least_one: bool = True
    aborted: Callable[[int], Sequence[tuple[int, int, int]]] | None = None


class FetchResult(NamedTuple):
    """The answer.  Offsets are -1 with an error, as in a broker.

    *pieces*: none or one, since an answer never crosses a segment.  *aborted*: the transactions that a read_committed
    consumer has to leave out.  *next_offset*: the offset after the last whole batch, None if it was not looked up.
    """

    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    pieces: tuple[FileBytes, ...] = ()
    aborted: tuple[AbortedTransaction, ...] = ()
    next_offset: int | None = None

    @property
    def size(self) -> int:
        """Bytes of records."""
        return sum(piece.size for piece in self.pieces)


@dataclass(frozen=True)
class FetchListing:
    """The batches in the pieces of an answer: whole ones, and part of one at the end."""

    batches: tuple[BatchExtent, ...] = ()
    partial: PartialBatch | None = None
