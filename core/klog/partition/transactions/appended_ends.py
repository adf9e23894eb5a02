"""Markers that end transactions which nothing else would end, as a coordinator writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klog.formats.batch import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHead, write_batch
from klog.formats.control import END_TXN_MARKER, KEY
from klog.formats.producer_snapshot import Producer
from klog.formats.record import write_record
from klog.kernel import DONE, crc32c
from klog.log.header_walk import window_of
from klog.log.index import AbortedTxn
from klog.partition.transactions.markers import CompletedTxn
from klog.partition.transactions.producer_replay import apply_window
from klog.partition.transactions.producer_state import ProducerState


class EndedTransaction(NamedTuple):
    """A transaction that is ended here: nothing else would end it."""

    producer_id: int
    first_offset: int


class AppendedEnds(NamedTuple):
    """The markers that end transactions: *state* behind them, their *batches*, the *entries* of those that abort."""

    state: ProducerState
    batches: bytes
    entries: list[AbortedTxn]
    aborted: tuple[EndedTransaction, ...]
    committed: tuple[EndedTransaction, ...]


def transaction_ends(
    end: int, producers: Sequence[Producer], commits: Mapping[int, bool], leader_epoch: int, now_ms: int
) -> AppendedEnds:
    """Return the markers at *end* that end transactions; *commits*: by producer id, whether it is committed."""
    state = ProducerState(end)
    state.take(producers)
    batches, ended = b"", []
    for _, producer_id in state.ongoing.all():
        if producer_id not in commits:
            continue
        entry = state.producers[producer_id]
        last = entry.producer_epoch, max(entry.coordinator_epoch, 0)
        batch = end_marker(state.end, leader_epoch, producer_id, *last, now_ms, commits[producer_id])
        window = window_of(batch, 0)
        assert window.scan(0) == DONE
        assert not window.check(0, window.count)
        ended += [one for one in apply_window(state, window) if isinstance(one, CompletedTxn)]
        batches += batch
    entries = [one.index_entry for one in ended if one.index_entry is not None]
    aborted, committed = (
        tuple(EndedTransaction(one.producer_id, one.first_offset) for one in ended if one.aborted is wanted)
        for wanted in (True, False)
    )
    return AppendedEnds(state, batches, entries, aborted, committed)


def end_marker(
    offset: int,
    leader_epoch: int,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    now_ms: int,
    commits: bool,
) -> bytes:
    """Return the batch by which a coordinator ends a transaction.  Kafka: MemoryRecords.withEndTransactionMarker."""
    record = write_record(0, 0, KEY.write(0, int(commits)), END_TXN_MARKER.write(0, coordinator_epoch))
    attributes = TRANSACTIONAL_BIT | CONTROL_BIT
    head = BatchHead(offset, leader_epoch, attributes, 0, now_ms, now_ms, 1, producer_id, producer_epoch)
    return write_batch(head, record, crc32c)
