"""Checks transactions and producers: compares indexes, snapshots and batches with a replay of the log."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.base.errors import KlogError
from klog.formats.index import ABORTED_TXN
from klog.log.txn_index import AbortedTxn, read_txn_index
from klog.partition.verify.broker_reaction import reaction_to_batch
from klog.partition.verify.facts import Findings, PartitionFacts
from klog.partition.verify.findings import SALVAGE
from klog.partition.verify.segment_pass import SegmentFacts

if TYPE_CHECKING:
    from klog.partition.transactions.anomalies import ProducerAnomaly
    from klog.partition.transactions.markers import CompletedTxn
    from klog.partition.transactions.producer_replay import OpenTxns

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
            message = (
                f"producer {txn.producer_id} aborted offsets {txn.first_offset} to {txn.last_offset}: no entry says so"
            )
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
    return f"producer {producer} aborted {first} to {last} (last stable offset {stable})"


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
        if is_aborted and first < entry.last_stable_offset:
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
    from klog.partition.verify.expired_producers import ExpiredProducers

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
                message = f"producer {event.producer_id} goes on with {event.found}, expected {event.expected}"
                _, position, offset = event.place
                yield facts.finding("sequence-gap", message, segment.files.log, position, offset)
