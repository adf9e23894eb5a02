"""The log of one replica in a simulation: which epoch wrote which offsets, and how far they are committed."""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from klog.cluster.leader_epoch_cache import LeaderEpochCache


class EpochBatch(NamedTuple):
    """A batch as replication sees it; one offset in one epoch is one record, whatever the batches around it.

    *record_size*: bytes of each record.
    """

    epoch: int
    base_offset: int
    records: int
    record_size: int

    @property
    def next_offset(self) -> int:
        """The offset after its last record."""
        return self.base_offset + self.records

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.records * self.record_size

    def from_offset(self, offset: int) -> EpochBatch:
        """Return the part of it at *offset* and beyond."""
        skipped = max(0, offset - self.base_offset)
        return self._replace(base_offset=self.base_offset + skipped, records=self.records - skipped)


class ReplicaLog:
    """Batches without gaps from *log_start* on: log start <= high watermark <= log end, always."""

    def __init__(self, log_start: int = 0) -> None:
        self.log_start = log_start
        self.high_watermark = log_start
        self.epochs = LeaderEpochCache()
        self._batches: list[EpochBatch] = []
        self._sizes: list[int] = []  # of all batches up to each, that a look at a long log costs no walk

    @property
    def log_end(self) -> int:
        """The offset of the next record."""
        return self._batches[-1].next_offset if self._batches else self.log_start

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark to *offset*, or to the nearest end of the log."""
        self.high_watermark = max(self.log_start, min(offset, self.log_end))

    def delete_all(self, log_start: int) -> None:
        """Remove everything; the log begins again at *log_start*."""
        self._batches.clear()
        self._sizes.clear()
        self.epochs.truncate_end(0)
        self.log_start = self.high_watermark = log_start

    def append(self, batch: EpochBatch) -> None:
        """Append *batch*, which begins at the log end, and its epoch."""
        assert batch.base_offset == self.log_end
        self._batches.append(batch)
        self._sizes.append(batch.size + (self._sizes[-1] if self._sizes else 0))
        self.epochs.assign(batch.epoch, batch.base_offset)

    def truncate(self, offset: int) -> None:
        """Remove all batches that reach beyond *offset*: whole ones, as from a file."""
        if offset >= self.log_end:
            return
        while self._batches and self._batches[-1].next_offset > offset:
            self._batches.pop()
            self._sizes.pop()
        self.log_start = min(self.log_start, max(0, offset))
        self.epochs.truncate_end(self.log_end)
        self.set_high_watermark(self.high_watermark)

    def raise_log_start(self, offset: int) -> None:
        """Begin the log at *offset* if it begins before; earlier records are no longer read."""
        if offset > self.log_start:
            self.log_start = offset
            gone = self._index(offset)
            del self._batches[:gone], self._sizes[:gone]
            self.epochs.truncate_start(offset)
            self.set_high_watermark(self.high_watermark)

    def size_from(self, offset: int) -> int:
        """Return the bytes from *offset* to the log end."""
        index = self._index(offset)
        if index == len(self._batches):
            return 0
        batch = self._batches[index]
        return self._sizes[-1] - self._sizes[index] + batch.from_offset(offset).size

    def read(self, offset: int, max_bytes: int | None = None) -> list[EpochBatch]:
        """Return the batches from *offset* on, the first one and as many more as fit into *max_bytes*.

        Given logs may have a batch across *offset*, unlike real ones; then the part from *offset* on is returned.
        """
        index = self._index(offset)
        if index == len(self._batches):
            return []
        first = self._batches[index].from_offset(offset)
        end = len(self._batches)
        if max_bytes is not None:
            end = max(index + 1, bisect_right(self._sizes, self._sizes[index] + max_bytes - first.size))
        return [first, *self._batches[index + 1 : end]]

    def holds(self, batch: EpochBatch) -> bool:
        """Whether every record of *batch* is in this log, or was before the log start passed it."""
        if batch.next_offset <= self.log_start:
            return True
        first = max(batch.base_offset, self.log_start)
        same = all(
            one.epoch == batch.epoch
            for one in self._batches[self._index(first) : self._index(batch.next_offset - 1) + 1]
        )
        return same and batch.next_offset <= self.log_end

    def _index(self, offset: int) -> int:
        """Return the index of the batch with *offset*; the number of batches at the log end."""
        return bisect_right(self._batches, offset, key=lambda batch: batch.next_offset)


def first_difference(one: ReplicaLog, other: ReplicaLog) -> int | None:
    """Return the first offset at which two logs hold different records, None if there is none."""
    offset = max(one.log_start, other.log_start)
    ones, others = iter(one.read(offset)), iter(other.read(offset))
    a, b = next(ones, None), next(others, None)
    while a is not None and b is not None:
        if a.epoch != b.epoch:
            return offset
        offset = min(a.next_offset, b.next_offset)
        a = a if a.next_offset > offset else next(ones, None)
        b = b if b.next_offset > offset else next(others, None)
    return None
