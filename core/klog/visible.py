"""What of a partition its consumers see: all from the log's start on; with read_committed nothing aborted or undecided.

All of it is learnt before the log is read, so that a part of the log can be read without the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

from klog.check.txn_index import read_txn_index
from klog.errors import KlogError, UnreadableError
from klog.formats.index import ABORTED_TXN
from klog.partition import Partition, SegmentFiles
from klog.producers import ProducerState
from klog.replay import nearest_state, replay
from klog.transactions import CompletedTxn
from klog.wanted import HIGHEST, LOWEST, Wanted

Isolation = Literal["read_uncommitted", "read_committed"]


class Aborted(NamedTuple):
    """A transaction that came to nothing: its first data that is known of, and its marker, by their offsets."""

    producer_id: int
    first_offset: int
    last_offset: int


class Visible(NamedTuple):
    """Offsets from … up to, not including, to; without those of *aborted*, which is None where all data is seen."""

    from_offset: int = LOWEST
    to_offset: int = HIGHEST
    aborted: tuple[Aborted, ...] | None = None

    def within(self, wanted: Wanted) -> Wanted:
        """Return *wanted* as far as it is seen."""
        return wanted._replace(
            from_offset=max(wanted.from_offset, self.from_offset), to_offset=min(wanted.to_offset, self.to_offset)
        )


def visible(partition: Partition, isolation: Isolation = "read_uncommitted") -> Visible:
    """Return what a consumer of *partition* sees, once a broker runs on it.

    The last stable offset comes from the newest producer snapshot and the log behind it, aborted transactions from the
    `.txnindex` files; where one cannot be right, from the log.  Raises nothing for content or for what cannot be read.
    Kafka: UnifiedLog.read, LocalLog.addAbortedTransactions.
    """
    start = partition.log_start_offset
    seen = Visible(LOWEST if start is None else start)
    if isolation == "read_uncommitted":
        return seen
    stable, aborted = _tail(partition)
    for i, segment in enumerate(partition.segments):
        if segment.txn_index is not None:
            indexed = _in_index(partition, segment)
            aborted.update(_in_log(partition, i) if indexed is None else indexed)
    return seen._replace(to_offset=stable, aborted=tuple(sorted(aborted, key=lambda txn: txn.last_offset)))


def _tail(partition: Partition) -> tuple[int, set[Aborted]]:
    """Return the last stable offset, and what was aborted behind the newest snapshot."""
    try:
        end = partition.log_end
        state = nearest_state(partition, end.offset if end else 0)
    except UnreadableError:
        state = nearest_state(partition, partition.segments[-1].base_offset)
    aborted: set[Aborted] = set()
    for i in range(len(partition.segments)):
        if not _is_below(partition, i, state.end):
            aborted.update(_replayed(state, partition, i))
    return state.last_stable_offset, aborted


def _is_below(partition: Partition, i: int, offset: int) -> bool:
    following = partition.segments[i + 1 : i + 2]
    return bool(following) and following[0].base_offset <= offset


def _replayed(state: ProducerState, partition: Partition, i: int) -> Iterator[Aborted]:
    """Apply a segment to *state*, as far as it can be read, and yield the transactions that are aborted in it."""
    try:
        for event in replay(state, partition.path, partition.segments[i : i + 1]):
            if isinstance(event, CompletedTxn) and event.aborted:
                yield Aborted(event.producer_id, event.first_offset, event.last_offset)
    except UnreadableError:
        return  # whoever reads it is told


def _in_index(partition: Partition, segment: SegmentFiles) -> list[Aborted] | None:
    """Return the entries of a transaction index, None when it cannot be right."""
    try:
        entries, size = read_txn_index(partition.path, segment.txn_index or "")
    except KlogError:
        return None
    found = [Aborted(entry.producer_id, entry.first_offset, entry.last_offset) for entry in entries]
    last = segment.base_offset - 1
    for entry in entries:
        if entry.version != 0 or entry.last_offset <= last or not 0 <= entry.first_offset <= entry.last_offset:
            return None
        last = entry.last_offset
    return found if size == len(entries) * ABORTED_TXN.size else None


def _in_log(partition: Partition, i: int) -> list[Aborted]:
    """Return what was aborted in a segment, by its log and what came before."""
    state = nearest_state(partition, partition.segments[i].base_offset)
    for earlier in range(i):
        if not _is_below(partition, earlier, state.end):
            for _ in _replayed(state, partition, earlier):
                pass
    return list(_replayed(state, partition, i))
