"""The leader epochs of a partition during a broker's start.  Kafka: LeaderEpochFileCache."""

from __future__ import annotations

from collections.abc import Iterable

from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import EpochEntry, write_epochs
from klog.partition.start.start_files import FailsError


class Epochs:
    """The epochs, and whether the file is rewritten."""

    def __init__(self, partition: Partition) -> None:
        found = partition.epochs
        if found is not None and found.malformed is not None:
            problem = found.malformed
            raise FailsError(f"leader-epoch-checkpoint, {problem}", "epochs-malformed", not problem.is_unchecked)
        self._cache = LeaderEpochCache(found.entries if found else ())
        self._is_missing = found is None
        self._is_changed = False

    @property
    def entries(self) -> list[EpochEntry]:
        """The epochs with their start offsets, ascending in both."""
        return self._cache.entries

    @property
    def latest(self) -> int:
        """The latest epoch; -1 without one."""
        return self._cache.latest

    def assign(self, entries: Iterable[tuple[int, int]]) -> None:
        """Add epochs that batches began, as (epoch, start offset)."""
        for epoch, start_offset in entries:
            self._cache.assign(epoch, start_offset)
            self._is_changed = True

    def clear(self) -> None:
        """Remove all."""
        self._is_changed = True
        self._cache = LeaderEpochCache()

    def cut_end(self, log_end: int) -> None:
        """Remove epochs that begin at *log_end* or beyond."""
        before = len(self.entries)
        self._cache.truncate_end(log_end)
        self._is_changed |= len(self.entries) < before

    def cut_start(self, log_start: int) -> None:
        """Remove epochs that had ended at *log_start*; the one in force there begins there."""
        self._is_changed |= any(entry.start_offset <= log_start for entry in self.entries)
        self._cache.truncate_start(log_start)

    @property
    def content(self) -> bytes | None:
        """The new content of the file; None when it is unchanged.  A missing one is created."""
        if self._is_changed:
            return write_epochs(self.entries)
        return b"" if self._is_missing else None
