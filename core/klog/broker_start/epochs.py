"""The leader epochs of a partition along a broker's start.  Kafka: LeaderEpochFileCache."""

from __future__ import annotations

from collections.abc import Iterable

from klog.broker_start.files import FailsError
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import EpochEntry, epochs_in_force, write_epochs


class Epochs:
    """The epochs, ascending in both columns, and whether the file is written anew."""

    def __init__(self, partition: Partition) -> None:
        found = partition.epochs
        if found is not None and found.malformed is not None:
            raise FailsError(f"leader-epoch-checkpoint, {found.malformed}")
        self.entries = epochs_in_force(found.entries) if found else []
        self._is_missing = found is None
        self._is_changed = False

    @property
    def latest(self) -> int:
        """The latest epoch; -1 without one."""
        return self.entries[-1].epoch if self.entries else -1

    def assign(self, entries: Iterable[tuple[int, int]]) -> None:
        """Add epochs that batches began, as (epoch, start offset)."""
        for epoch, start_offset in entries:
            self.entries = epochs_in_force([*self.entries, EpochEntry(epoch, start_offset)])
            self._is_changed = True

    def clear(self) -> None:
        """Forget all."""
        self._is_changed = True
        self.entries = []

    def cut_end(self, log_end: int) -> None:
        """Forget epochs that begin at *log_end* or beyond."""
        kept = [entry for entry in self.entries if entry.start_offset < log_end]
        self._is_changed |= len(kept) < len(self.entries)
        self.entries = kept

    def cut_start(self, log_start: int) -> None:
        """Forget epochs that had ended at *log_start*; the one in force there begins there."""
        before = [entry for entry in self.entries if entry.start_offset <= log_start]
        if before:
            self._is_changed = True
            self.entries[: len(before)] = [EpochEntry(before[-1].epoch, log_start)]

    @property
    def content(self) -> bytes | None:
        """The new content of the file; None when it stays as it is.  A missing one is created."""
        if self._is_changed:
            return write_epochs(self.entries)
        return b"" if self._is_missing else None
