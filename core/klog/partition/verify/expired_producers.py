"""Producers that a snapshot lacks although the log has them: they were idle and had expired.

A broker forgets a producer without an open transaction that was idle for `producer.id.expiration.ms`, when it loads a
snapshot and now and then while it runs; klog does where it writes one.  If that producer continues, it is new to them:
what it did before, its last marker say, is not in what they write.  When that was, and how long idle is, is told
nowhere, so a snapshot is wrong only where no time and no setting explain it.
Kafka: ProducerStateManager.isProducerExpired, removeExpiredProducers, loadFromSnapshot.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Final

from klog.base.errors import KlogError
from klog.formats.batch import BatchFacts
from klog.formats.snapshot import Producer
from klog.partition.transactions.markers import FlawedMarker, Marker
from klog.partition.transactions.producer_state import Event, ProducerState, differences
from klog.partition.transactions.replay import replay
from klog.partition.verify.facts import PartitionFacts

_NONE: Final = -1
ACTIVE_MS: Final = 10 * 60 * 1000
"""A producer that was active so shortly before a snapshot was not idle, whatever the setting: a broker looks for
idle ones only so often.  Kafka: producer.id.expiration.check.interval.ms."""

Wrong = tuple[Producer | None, Producer | None]
"""What a snapshot says of a producer and what the log says; None: nothing."""


class ExpiredProducers:
    """Finds what in the snapshots of a partition cannot be explained by expiry."""

    def __init__(self, facts: PartitionFacts) -> None:
        self._facts = facts

    def unexplained(
        self, name: str, offset: int, found: Sequence[Producer], replayed: Sequence[Producer]
    ) -> list[Wrong]:
        """Return where a snapshot, as *found* in file *name*, contradicts what the log up to *offset* gives."""
        pairs = differences(found, replayed)
        return [pair for pair in pairs if not self._is_explained(name, offset, found, replayed, pair)]

    def _is_explained(
        self, name: str, offset: int, found: Sequence[Producer], replayed: Sequence[Producer], pair: Wrong
    ) -> bool:
        said, there = pair
        if there is None:
            return False
        if said is not None:
            return said == self._partly.get(offset, {}).get(said.producer_id, said)
        if 0 <= there.last_offset < self._start:
            return True  # what is below the log's start is forgotten by old versions
        return _is_idle(there, self._written_ms(name)) and not _kept_longer(there, found, replayed)

    @property
    def _start(self) -> int:
        return self._facts.segments[0].files.base_offset

    def _written_ms(self, name: str) -> int:
        """Return by when a snapshot was written; far in the future if unknown.

        Its time of modification may be older than it is, for klog and many who copy set that.
        """
        try:
            return os.stat(self._facts.partition.file(name)).st_ctime_ns // 1_000_000
        except OSError:
            return 2**62

    @cached_property
    def _partly(self) -> dict[int, dict[int, Producer]]:
        """The state at each snapshot of who forgets a producer whenever it may; nothing where that cannot be read."""
        facts, replayed = self._facts, self._facts.replay
        assert replayed is not None
        state = _Forgetful(replayed.start)
        state.now_ms = max(self._written_ms(name) for name, _, _ in facts.snapshots)
        state.take(replayed.loaded)
        states: dict[int, dict[int, Producer]] = {}
        try:
            for offset in sorted(replayed.states):
                for _ in replay(state, facts.partition.path, facts.partition.segments, end=offset):
                    pass
                states[offset] = {producer.producer_id: producer for producer in state.snapshot()}
        except KlogError:
            return {}
        return states


class _Forgetful(ProducerState):
    """The state of a broker that forgets each producer as soon as it was idle, and continues."""

    now_ms = 0

    def apply(
        self, batch: BatchFacts, marker: Marker | FlawedMarker | None = None, file: str = ""
    ) -> tuple[Event, ...]:
        entry = self.producers.get(batch.producer_id)
        if entry is not None and _is_idle(entry.producer(), self.now_ms):
            del self.producers[batch.producer_id]
        return super().apply(batch, marker, file)


def _is_idle(producer: Producer, written_ms: int) -> bool:
    """Whether it may have been forgotten by then; with an open transaction it never is."""
    return producer.current_txn_first_offset == _NONE and written_ms - producer.timestamp >= ACTIVE_MS


def _kept_longer(gone: Producer, found: Sequence[Producer], replayed: Sequence[Producer]) -> bool:
    """Whether another producer is still there that was idle for longer when *gone* came last: both would have gone.

    One without markers, so that its last batch is the last that it did.
    """
    return any(
        one.last_offset < gone.last_offset
        and one.timestamp <= gone.timestamp
        and one.coordinator_epoch == one.current_txn_first_offset == _NONE
        for one in set(found).intersection(replayed)
    )
