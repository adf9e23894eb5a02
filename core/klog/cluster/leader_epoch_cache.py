"""The leader epochs of a log.  Kafka: LeaderEpochFileCache."""

from __future__ import annotations

from collections.abc import Iterable

from klog.formats.checkpoint import EpochEntry, epochs_in_force

UNDEFINED = -1
"""The epoch and the offset that mean "not known".  Kafka: UNDEFINED_EPOCH, UNDEFINED_EPOCH_OFFSET."""


class LeaderEpochCache:
    """Epochs with their start offsets, ascending strictly in both; the start of the next one ends an epoch.

    *entries*: as a `leader-epoch-checkpoint` lists them; only those that a broker would use are kept.
    """

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self.entries = epochs_in_force(entries)

    @property
    def latest(self) -> int:
        """The latest epoch; -1 without one."""
        return self.entries[-1].epoch if self.entries else UNDEFINED

    def assign(self, epoch: int, start_offset: int) -> None:
        """Add an epoch; delete entries that contradict it.  Nothing happens within the latest epoch."""
        if epoch != self.latest or start_offset < self.entries[-1].start_offset:
            self.entries = epochs_in_force([*self.entries, EpochEntry(epoch, start_offset)])

    def truncate_end(self, offset: int) -> None:
        """Remove the epochs that start at *offset* or beyond.  Kafka: truncateFromEndAsyncFlush."""
        self.entries = [entry for entry in self.entries if entry.start_offset < offset]

    def truncate_start(self, offset: int) -> None:
        """Remove the epochs that ended at *offset*; the one in force there starts there.  Kafka: truncateFromStart."""
        before = [entry for entry in self.entries if entry.start_offset <= offset]
        if before:
            self.entries[: len(before)] = [EpochEntry(before[-1].epoch, offset)]

    def epoch_at(self, offset: int) -> int:
        """Return the epoch in which *offset* was written, -1 when no entry starts at it or below."""
        return next((entry.epoch for entry in reversed(self.entries) if entry.start_offset <= offset), UNDEFINED)

    def end_offset_for(self, epoch: int, log_end: int) -> tuple[int, int]:
        """Return the largest known epoch up to *epoch*, and its end offset; -1, -1 when that is undefined.

        Below the first epoch it is *epoch* itself that is returned.  Kafka: endOffsetFor.
        """
        if epoch < 0 or epoch > self.latest:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return epoch, log_end
        later = next(entry for entry in self.entries if entry.epoch > epoch)
        known = [entry.epoch for entry in self.entries if entry.epoch <= epoch]
        return known[-1] if known else epoch, later.start_offset
