"""Producers that a snapshot lacks although the log has them: they were idle and had expired.

A broker forgets a producer without an open transaction that was idle for `producer.id.expiration.ms`, when it loads a
snapshot and from time to time while it runs; klog does so when it writes one.  If that producer continues, it is a new
one to them: their files lack its earlier state, for example its last marker.  No file contains the time of that, or the
idle time that counts; a snapshot is therefore wrong only if no time and no setting explain it. Kafka:
ProducerStateManager.isProducerExpired, removeExpiredProducers, loadFromSnapshot.
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
from klog.partition.transactions.producer_replay import replay
from klog.partition.transactions.producer_state import Event, ProducerState, differences
from klog.partition.verify.facts import PartitionFacts

_NONE: Final = -1
ACTIVE_MS: Final = 10 * 60 * 1000
"""A producer that was active so shortly before a snapshot was not idle, whatever the setting: a broker looks for
idle ones only so often.  Kafka: producer.id.expiration.check.interval.ms."""

Wrong = tuple[Producer | None, Producer | None]
"""The entries of a producer in a snapshot and according to the log; None: no entry."""


class ExpiredProducers:
    """Finds entries in the snapshots of a partition that expiry does not explain."""

    def __init__(self, facts: PartitionFacts) -> None:
        self._facts = facts

    def unexplained(
        self, name: str, offset: int, found: Sequence[Producer], replayed: Sequence[Producer]
    ) -> list[Wrong]:
        """Return the entries of a snapshot, as *found* in file *name*, that contradict the log up to *offset*."""
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
            return True  # old versions forget producers below the log's start
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
        """The state at each snapshot with producers that may be forgotten; empty if it cannot be read."""
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
    """Whether a producer that had been idle for longer at the last batch of *gone* is still there: both would have
    expired.

    Only one without markers counts, whose last batch is its last activity.
    """
    return any(
        one.last_offset < gone.last_offset
        and one.timestamp <= gone.timestamp
        and one.coordinator_epoch == one.current_txn_first_offset == _NONE
        for one in set(found).intersection(replayed)
    )
