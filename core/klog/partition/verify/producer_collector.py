"""Collects producer state during a pass over a partition, for the checks of transactions and snapshots."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from klog.base.location import Location
from klog.formats.batch import CONTROL_BIT, TRANSACTIONAL_BIT
from klog.formats.java_integers import LONG_MAX
from klog.formats.snapshot import Producer, Snapshot
from klog.kernel import Window

if TYPE_CHECKING:
    from klog.partition.transactions.anomalies import ProducerAnomaly
    from klog.partition.transactions.markers import CompletedTxn
    from klog.partition.transactions.producer_replay import OpenTxns
    from klog.partition.transactions.producer_state import Event, ProducerState

_MOST_ANOMALIES = 100_000
_TXN_FIELDS = 5


class EndedTxns:
    """The transactions of a partition that have ended: 40 bytes of memory each, for a log may have millions."""

    def __init__(self) -> None:
        self._rows = array("q")
        self._spans: dict[str, tuple[int, int]] = {}
        self._begun: list[tuple[int, int, int]] = []

    def add(self, log: str, ended: Iterable[CompletedTxn]) -> None:
        """Add transactions whose markers are in *log*; the logs follow each other."""
        begin, _ = self._spans.get(log, (len(self._rows), 0))
        for txn in ended:
            self._rows.extend((txn.producer_id, txn.first_offset, txn.last_offset, txn.aborted, txn.last_stable_offset))
        self._spans[log] = begin, len(self._rows)

    def of(self, log: str) -> Iterator[CompletedTxn]:
        """Yield the transactions whose markers are in *log*."""
        if log not in self._spans:
            return
        from klog.partition.transactions.markers import CompletedTxn

        for at in range(*self._spans[log], _TXN_FIELDS):
            producer_id, first, last, aborted, stable = self._rows[at : at + _TXN_FIELDS]
            yield CompletedTxn(producer_id, first, last, bool(aborted), stable, Location(log, None, last))

    def begun_after(self, offset: int) -> Iterator[tuple[int, int, bool]]:
        """Yield the transactions that began after *offset*, in order: first offset, producer, whether aborted."""
        if not self._begun:
            firsts, producers, aborted = (self._rows[at::_TXN_FIELDS] for at in (1, 0, 3))
            self._begun = sorted(zip(firsts, producers, aborted, strict=True))
        for at in range(bisect_right(self._begun, (offset, LONG_MAX, 1)), len(self._begun)):
            first, producer_id, is_aborted = self._begun[at]
            yield first, producer_id, bool(is_aborted)


class ProducerReplay:
    """The producers' state during a pass over a partition.

    With *deep* every batch of a producer is applied, and the state is kept at the offsets of *snapshots*, else only
    transactions are followed.  `is_guess`: damage or a start in the middle makes the state uncertain.  `loaded`: the
    producers at `start`, from the snapshot there.  `state` is None as long as there was no producer: most logs have
    none, and its modules are slow to load.  `stops`: the logs with a batch at which a broker's recovery may stop or
    fail because of its producer.  `opened`: the transactions that are open at `start`.
    """

    def __init__(self, start: int, snapshots: list[tuple[str, int, Snapshot]], deep: bool) -> None:
        good = [(offset, snapshot) for _, offset, snapshot in snapshots if snapshot.problem is None]
        loaded = next((snapshot for offset, snapshot in good if offset == start), None)
        self.is_guess = loaded is None and start > 0
        self.start = self.end = start
        self.loaded: tuple[Producer, ...] = () if loaded is None else loaded.producers
        self.state: ProducerState | None = None
        self.ended = EndedTxns()
        self.anomalies: dict[str, list[ProducerAnomaly]] = {}
        self.states: dict[int, tuple[tuple[Producer, ...], bool]] = {}
        self.stops: set[str] = set()
        self._pending = sorted(offset for offset, _ in good if offset > start) if deep else []
        self._deep = deep
        self._count = 0
        self._is_damaged = False
        self._open_at_damage: OpenTxns | None = None
        if loaded is not None and loaded.producers:
            from klog.partition.transactions.producer_state import ProducerState

            self.state = ProducerState.load(loaded, start)
        self.opened = self.open_now()

    def take(self, log: str, window: Window, first: int, end: int) -> None:
        """Apply intact batches of a window."""
        while self._pending and end > first:
            split = min(max(window.first_reaching(self._pending[0]), first), end)
            if split == end:
                break
            self._apply(log, window, first, split)
            self._keep()
            first = split
        self._apply(log, window, first, end)

    def damaged(self) -> None:
        """Pass over damage."""
        self.is_guess = True
        if not self._is_damaged:
            self._is_damaged, self._open_at_damage = True, self.open_now()

    def take_open_at_damage(self) -> OpenTxns | None:
        """Return the transactions that were open at the first damage since the last call.

        None if there was none, or if producers contradict each other.
        """
        found, self._is_damaged, self._open_at_damage = self._open_at_damage, False, None
        return found

    def open_now(self) -> OpenTxns | None:
        """Return the transactions that are open here; None if producers contradict each other about them."""
        if self.state is None:
            return ()
        from klog.partition.transactions.producer_replay import open_txns

        return open_txns(self.state)

    def finish(self) -> None:
        """Finish at the end of the log."""
        while self._pending and self._pending[0] <= self.end:
            self._keep()

    def _keep(self) -> None:
        self.states[self._pending.pop(0)] = (self.state.snapshot() if self.state else (), self.is_guess)

    def _apply(self, log: str, window: Window, first: int, end: int) -> None:
        if first == end:
            return
        if self.state is None and window.produced(first, end):
            from klog.partition.transactions.producer_state import ProducerState

            self.state = ProducerState(self.end)
        self.end = window.batch(end - 1).last_offset + 1
        found = self._events(self.state, log, window, first, end) if self.state is not None else []
        if found:
            self._note(log, found)

    def _note(self, log: str, found: list[Event]) -> None:
        from klog.partition.transactions.anomalies import STOPS_BROKER
        from klog.partition.transactions.markers import CompletedTxn

        self.ended.add(log, (event for event in found if isinstance(event, CompletedTxn)))
        anomalies = [event for event in found if not isinstance(event, CompletedTxn)]
        if any(event.kind in STOPS_BROKER for event in anomalies):
            self.stops.add(log)
        if anomalies and self._count < _MOST_ANOMALIES:
            self._count += len(anomalies)
            self.anomalies.setdefault(log, []).extend(anomalies)

    def _events(self, state: ProducerState, log: str, window: Window, first: int, end: int) -> list[Event]:
        from klog.partition.transactions.markers import read_marker
        from klog.partition.transactions.producer_replay import apply_window

        if self._deep:
            return apply_window(state, window, log, first, end)
        found: list[Event] = []
        rows = window.transactional(first, end)
        # As long as no transaction is open, the producer fields of other batches are not read.
        for i in window.produced(first, end) if rows or state.ongoing else ():
            batch = window.batch(i)
            if not batch.attributes & TRANSACTIONAL_BIT:
                entry = state.producers.get(batch.producer_id)
                if batch.attributes & CONTROL_BIT or (entry is not None and entry.current_txn_first_offset >= 0):
                    self.stops.add(log)
                continue
            found += state.apply(batch, read_marker(window, i) if batch.attributes & CONTROL_BIT else None, log)
        state.end = self.end
        return found
