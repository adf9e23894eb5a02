"""Producer state and its snapshots during a broker's start.

Kafka: ProducerStateManager, UnifiedLog.rebuildProducerState.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from klog.formats.producer_snapshot import Producer, Snapshot
from klog.partition.transactions.producer_state import ProducerState, read_snapshot_file


class SnapshotFile(NamedTuple):
    """A snapshot in the directory: *name* of the file that is there, or the *producers* of one that will be."""

    name: str | None
    producers: tuple[Producer, ...] = ()


class BrokerClock(NamedTuple):
    """The broker's time, ms since the epoch, and how long a producer may be idle before it is forgotten."""

    now_ms: int
    expiration_ms: int


class SnapshotFiles:
    """The snapshots in the directory, by offset.  If several files have one offset, the last by name counts."""

    def __init__(self, folder: str, files: Iterable[tuple[int, str]]) -> None:
        self._folder = folder
        self.files: dict[int, SnapshotFile] = {offset: SnapshotFile(name) for offset, name in files}

    def read(self, offset: int) -> tuple[Producer, ...] | None:
        """Return the content of a snapshot; None if a broker would delete it."""
        file = self.files[offset]
        if file.name is None:
            return file.producers
        found = read_snapshot_file(os.path.join(self._folder, file.name))
        return None if found.problem is not None else found.producers

    def remove_strays(self, bases: Sequence[int]) -> None:
        """Remove those at no segment's base offset, but for the last of them if it is not below the last segment.

        Kafka: ProducerStateManager.removeStraySnapshots.
        """
        strays = sorted(set(self.files) - set(bases))
        kept = strays[-1:] if not bases or not strays or strays[-1] >= max(bases) else []
        for offset in strays:
            if offset not in kept:
                del self.files[offset]


class ProducerLoader:
    """The producers up to `end`, rebuilt for each segment that is recovered.

    Kafka: ProducerStateManager; `end` is its lastMapOffset, `saved` its lastSnapOffset.
    """

    def __init__(self, snapshots: SnapshotFiles, clock: BrokerClock) -> None:
        self.snapshots = snapshots
        self.clock = clock
        self.state = ProducerState(0)
        self.end = self.saved = 0

    def reload(self, log_start: int, log_end: int) -> None:
        """Move to *log_end*, or to the newest snapshot below.  Kafka: ProducerStateManager.truncateAndReload."""
        files = self.snapshots.files
        for offset in [offset for offset in files if offset > log_end or offset <= log_start]:
            del files[offset]
        if log_end == self.end:
            self.end = max(self.end, log_start)
            self.saved = max(files, default=log_start)
            return
        self.end = self.saved = log_start
        self.state = ProducerState(log_start)
        for offset in sorted(files, reverse=True):
            producers = self.snapshots.read(offset)
            if producers is None:
                del files[offset]
                continue
            self.state = ProducerState.load(Snapshot(producers), offset)
            self.state.expire(self.clock.now_ms, self.clock.expiration_ms)
            self.end = self.saved = offset
            return

    def save(self) -> None:
        """Take a snapshot, if the last one is older.  Kafka: ProducerStateManager.takeSnapshot."""
        if self.end > self.saved:
            self.snapshots.files[self.end] = SnapshotFile(None, self.state.snapshot())
            self.saved = self.end
