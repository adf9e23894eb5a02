"""Checks transactions and producers: compares indexes, snapshots and batches with a replay of the log.

A snapshot may lack producers that the log has: they were idle and had expired.  A broker forgets a producer without an
open transaction that was idle for `producer.id.expiration.ms`, when it loads a snapshot and from time to time while it
runs; klog does so when it writes one.  If that producer continues, it is a new one to them: their files lack its
earlier state, for example its last marker.  No file contains the time of that, or the idle time that counts; a snapshot
is therefore wrong only if no time and no setting explain it (`ExpiredProducers`).  Kafka:
ProducerStateManager.isProducerExpired, removeExpiredProducers, loadFromSnapshot.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Final

from klog.base.errors import KlogError, offsets_text
from klog.formats.batch import BatchFacts
from klog.formats.index import ABORTED_TXN
from klog.formats.producer_snapshot import Producer
from klog.log.index import AbortedTxn, read_txn_index
from klog.partition.transactions.markers import CompletedTxn, FlawedMarker, Marker, ProducerAnomaly
from klog.partition.transactions.producer_replay import OpenTxns, replay
from klog.partition.transactions.producer_state import Event, ProducerState, differences
from klog.partition.transactions.txn_index_search import search_may_end
from klog.partition.verify.findings import SALVAGE, Findings, PartitionFacts
from klog.partition.verify.log_checks import reaction_to_batch
from klog.partition.verify.segment_pass import SegmentFacts

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
        if 0 <= there.last_offset < self._facts.segments[0].files.base_offset:
            return True  # old versions forget producers below the log's start
        return _is_idle(there, self._written_ms(name)) and not _kept_longer(there, found, replayed)

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


MAX_TXN_MS = 15 * 60 * 1000
"""A coordinator ends a transaction after at most so long.  Kafka: transaction.max.timeout.ms."""

_DISORDER = frozenset({"overflow", "backwards", "odd offset", "beyond next"})
"""Events of a survey."""

_CONFLICTS = {
    "NOT_TRANSACTIONAL": "txn-conflict",
    "TXN_NOT_STARTED": "txn-conflict",
    "UNKNOWN_MARKER_TYPE": "bad-marker",
    "INVALID_MARKER": "bad-marker",
    "UNREADABLE_MARKER": "bad-marker",
}


def _anomalies(facts: PartitionFacts, segment: SegmentFacts) -> list[ProducerAnomaly]:
    """Return the anomalies of the producers' batches in a segment."""
    return facts.replay.anomalies.get(segment.files.log, []) if facts.replay else []


def transactions(facts: PartitionFacts) -> Findings:
    """`.txnindex` against the markers; batches that contradict the transactions around them."""
    if facts.replay is None:
        return
    for segment in facts.segments:
        yield from _aborted(facts, segment, facts.replay.ended.of(segment.files.log))
        for event in _anomalies(facts, segment):
            kind = _CONFLICTS.get(event.kind.name)
            if kind is not None:
                detail = f": {event.detail}" if event.detail else ""
                message = f"producer {event.producer_id}: {event.kind.value}{detail}"
                broker = reaction_to_batch(facts, segment, event.place.position or 0)
                yield facts.finding(kind, message, segment.files.log, event.place.position, event.place.offset, broker)
    yield from _open(facts)


def _aborted(facts: PartitionFacts, segment: SegmentFacts, completed: Iterable[CompletedTxn]) -> Findings:
    name = segment.files.txn_index
    try:
        entries, size = read_txn_index(facts.partition.path, name) if name else ([], 0)
    except KlogError:
        return  # reported with the index itself
    if any(entry.version for entry in entries) or len(entries) < size // ABORTED_TXN.size:
        return  # an unread entry is unknown
    said = {(entry.producer_id, entry.last_offset): (slot, entry) for slot, entry in enumerate(entries)}
    file = name or segment.files.log
    for txn in completed:
        slot, entry = said.pop((txn.producer_id, txn.last_offset), (None, None)) if txn.aborted else (0, None)
        if txn.aborted and entry is None and facts.is_current:
            aborted = offsets_text(txn.first_offset, txn.last_offset)
            message = f"producer {txn.producer_id} aborted {aborted}: no entry says so"
            yield facts.finding("txn-index-disagrees", message, file, None, txn.last_offset)
        elif entry and slot is not None and txn.index_entry and not _explained(facts, entry, txn):
            message = f"entry {slot} says {_shown(entry)}, the log {_shown(txn.index_entry)}"
            yield facts.finding("txn-index-disagrees", message, file, ABORTED_TXN.size * slot, entry.last_offset)
    for slot, entry in said.values():
        if not _explained(facts, entry, None):
            message = f"entry {slot} says {_shown(entry)}, the log has no such marker"
            yield facts.finding("txn-index-disagrees", message, file, ABORTED_TXN.size * slot, entry.last_offset)


def _shown(entry: AbortedTxn) -> str:
    _, producer, first, last, stable = entry
    return f"producer {producer} aborted {offsets_text(first, last)} (last stable offset {stable})"


def _explained(facts: PartitionFacts, entry: AbortedTxn, txn: CompletedTxn | None) -> bool:
    """Whether an entry is right, or its transaction may have been removed from the log since."""
    if txn is not None and (txn.index_entry == entry or _is_followers(facts, entry, txn)):
        return True
    assert facts.replay is not None
    if facts.replay.is_guess or facts.is_compacted:
        return True
    begins = entry.first_offset if txn is None else min(entry.first_offset, txn.first_offset)
    if facts.has_gap(begins, entry.last_offset):
        return True  # its data or its marker was in the gap, or the marker of the transaction before it
    return entry.first_offset < (facts.segments[0].files.base_offset if facts.segments else 0)


def _is_followers(facts: PartitionFacts, entry: AbortedTxn, txn: CompletedTxn) -> bool:
    """Whether a follower, which appends many batches at once, writes *entry* for *txn*.

    It takes in the beginnings of all transactions before it ends the first one: the last stable offset is that of the
    next transaction of another producer.  It is wrong all the same if the same producer aborts one before that, which a
    broker then does not look for.  Kafka: UnifiedLog.append, TransactionIndex.collectAbortedTxns.
    """
    assert facts.replay is not None
    if txn.index_entry != entry._replace(last_stable_offset=txn.last_offset + 1):
        return False
    open_still = [first for first, producer_id in _open_txns(facts) if producer_id != txn.producer_id]
    following = min((first for first in open_still if first > txn.last_offset), default=None)
    for first, producer_id, is_aborted in facts.replay.ended.begun_after(txn.last_offset):
        if producer_id != txn.producer_id:
            following = first if following is None else min(first, following)
            break
        stable, log_end = entry.last_stable_offset, facts.segments[-1].end_offset
        if is_aborted and first < stable and search_may_end(facts.partition, first, stable, log_end):
            return False
    return entry.last_stable_offset == following


def _open_txns(facts: PartitionFacts) -> OpenTxns:
    """Return the transactions that are open at the end of the log."""
    return () if facts.replay is None or facts.replay.state is None else facts.replay.state.ongoing.all()


def _open(facts: PartitionFacts) -> Findings:
    """Transactions that are open at the end: hanging, if no producer leaves one open for so long."""
    if facts.replay is None or facts.replay.state is None:
        return
    newest = max((segment.survey.max_timestamp for segment in facts.segments), default=-1)
    for first_offset, producer_id in _open_txns(facts):
        idle_ms = newest - facts.replay.state.producers[producer_id].last_timestamp
        if idle_ms > MAX_TXN_MS and facts.is_current:
            message = (
                f"of producer {producer_id}, open since offset {first_offset}, idle for {idle_ms // 60000} minutes"
            )
            yield facts.finding("hanging-transaction", message, offset=first_offset)


def snapshots_by_replay(facts: PartitionFacts) -> Findings:
    """Producer snapshots against the state that the log gives."""
    if facts.replay is None or not facts.snapshots:
        return
    if any(event[0] in _DISORDER for segment in facts.segments for event in segment.survey.events):
        return  # for batches with impossible offsets the producer state is unknown
    forgotten = ExpiredProducers(facts)
    for name, offset, snapshot in facts.snapshots:
        replayed, is_guess = facts.replay.states.get(offset, ((), True))
        if is_guess or snapshot.problem is not None or facts.has_gap(0, offset - 1):
            continue  # the missing part may have been a producer's
        if snapshot.producers == replayed or facts.is_compacted:
            continue
        wrong = forgotten.unexplained(name, offset, snapshot.producers, replayed)
        if wrong:
            found, there = wrong[0]
            said = "a producer that was not idle is missing" if found is None else str(found)
            message = f"{said} (by the log: {there})" + (f", and {len(wrong) - 1} more" * (len(wrong) > 1))
            # No other mode follows the producers through the log, which takes as long as all the rest.
            yield facts.finding("snapshot-disagrees", message, name, offset=offset, fix=SALVAGE)


def sequences(facts: PartitionFacts) -> Findings:
    """Sequence numbers that are missing, where neither compaction nor damage explains it."""
    if facts.replay is None or facts.replay.is_guess:
        return
    for segment in facts.segments:
        for event in _anomalies(facts, segment):
            if event.kind.name == "SEQUENCE_GAP" and not facts.is_compacted:
                message = f"producer {event.producer_id} continues with {event.found}, expected {event.expected}"
                _, position, offset = event.place
                yield facts.finding("sequence-gap", message, segment.files.log, position, offset)
