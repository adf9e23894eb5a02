"""The transactions of a served partition: those that were aborted, and those without an end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.data_dir.partition import Partition
from klog.formats.java_integers import LONG_MAX
from klog.partition.transactions.coordinator_decisions import was_decided
from klog.partition.transactions.isolation import AbortedRange, IsolationState, aborted_in_log, open_at, visible_range

if TYPE_CHECKING:
    from klog.partition.transactions.coordinator_decisions import TransactionDecision


class OpenTxn(NamedTuple):
    """A transaction without a marker, and its first known offset."""

    first_offset: int
    producer_id: int


class PartitionTransactions:
    """The state of a partition's transactions for clients that read up to *end*; *log_end*: the end of its log.

    *decisions* returns, for a producer id, the decisions to commit of its former coordinator.  *as_of*: *end* is in the
    past, and transactions open at that time count as open, whatever their end.  Use it from one thread at a time.
    """

    def __init__(
        self,
        partition: Partition,
        end: int,
        log_end: int,
        decisions: Callable[[int], Sequence[TransactionDecision]],
        as_of: bool,
    ) -> None:
        learnt = IsolationState()
        seen = visible_range(partition, "read_committed", learnt)
        self._partition = partition
        self._end = end if as_of else LONG_MAX
        self.aborted = tuple(one for one in seen.aborted or () if one.first_offset < self._end)
        found = learnt.open_txns
        if as_of and end < log_end:
            found = tuple((first, producer) for producer, first in open_at(partition, end).items())
        self.open = tuple(OpenTxn(*one) for one in sorted(found) if one[0] < end)
        self.committed = tuple(
            one
            for one in self.open
            if was_decided(partition, one.producer_id, one.first_offset, end, decisions(one.producer_id))
        )
        self._rebuilt: set[int] = set()

    @property
    def undecided(self) -> tuple[OpenTxn, ...]:
        """The open ones without a decision."""
        return tuple(one for one in self.open if one not in self.committed)

    def end_all(self, end: int) -> None:
        """Treat those without a decision as aborted, as if their markers were at *end*."""
        self._add(AbortedRange(one.producer_id, one.first_offset, end) for one in self.undecided)

    def rebuild(self, number: int) -> None:
        """Look in the log for the aborts that concern segment *number*, which has no transaction index; once."""
        if number not in self._rebuilt:
            self._rebuilt.add(number)
            self._add(aborted_in_log(self._partition, number, behind=True))

    def _add(self, found: Iterator[AbortedRange]) -> None:
        known = {(txn.producer_id, txn.last_offset) for txn in self.aborted}
        fresh = (txn for txn in found if txn.first_offset < self._end)
        more = [txn for txn in fresh if (txn.producer_id, txn.last_offset) not in known]
        if more:
            self.aborted = tuple(sorted((*self.aborted, *more), key=lambda txn: txn.last_offset))
