"""Replication in slow motion: plays the events of a scenario, one row a step.  No disk, no network, no clock."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Final

from klog.cluster.follower_truncation import TruncationRound
from klog.commands.simulate.replica_log import EpochBatch, ReplicaLog, first_difference
from klog.commands.simulate.scenario import RECORD_SIZE, ReplicaStart, Scenario, SimulationEvent
from klog.commands.simulate.simulated_replicas import (
    IsrState,
    PartitionFollower,
    PartitionLeader,
    RemoteReplica,
    ReplicaFetch,
    ReplicaFetchAnswer,
    ReplicationQuota,
)
from klog.commands.simulate.simulation_rows import StepRow, remote_rows, replica_row, show_answer

NOT_ENOUGH: Final = "NOT_ENOUGH_REPLICAS"
STILL_WAITS: Final = "still waits"


@dataclass
class FetchUnderWay:
    """A fetch until its answer arrives: it waits *until* then, or has its *answer*."""

    request: ReplicaFetch
    until: int
    answer: ReplicaFetchAnswer | None = None


@dataclass
class SimulatedBroker:
    """A node: its log, and the state that ends with its process.  *sent*: the quota for its sending as leader."""

    node: int
    log: ReplicaLog
    follower: PartitionFollower
    sent: ReplicationQuota
    is_up: bool = True
    fetch: FetchUnderWay | None = None


@dataclass
class _Acknowledgements:
    """The pending appends and the acknowledged ones, each by its step."""

    waiting: dict[int, EpochBatch] = field(default_factory=dict)
    committed: dict[int, EpochBatch] = field(default_factory=dict)
    steps: set[int] = field(default_factory=set)

    def look(self, high_watermark: int) -> None:
        """Acknowledge the appends below *high_watermark*."""
        for step in [step for step, batch in self.waiting.items() if batch.next_offset <= high_watermark]:
            self.committed[step] = self.waiting.pop(step)
            self.steps.add(step)


class Simulation:
    """The replicas of one partition, and the controller as far as events speak for it.

    *leader*: None while there is none.  *broken*: the steps of appends that were acknowledged to acks=all, and that the
    leader does not have.
    """

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.settings = scenario.settings
        self.now = 0
        self.epoch = scenario.epoch
        self.isr = IsrState(set(scenario.isr))
        self.brokers = {node: self._broker(node, scenario.starts[node]) for node in scenario.replicas}
        self.broken: list[int] = []
        self._acknowledgements = _Acknowledgements()
        self.leader: PartitionLeader | None = self._first_leader()
        self._plays: dict[str, Callable[[SimulationEvent, StepRow], None]] = {
            "append": self._append,
            "fetch": self._fetch,
            "response": self._response,
            "lose": self._lose,
            "crash": self._crash,
            "restart": self._restart,
            "elect": self._elect,
            "isr-check": self._check_isr,
            "confirm": self._confirm,
            "wait": lambda event, row: None,
        }

    def _broker(self, node: int, start: ReplicaStart) -> SimulatedBroker:
        log = ReplicaLog(start.log_start)
        for epoch, records in start.batches:
            log.append(EpochBatch(epoch, log.log_end, records, RECORD_SIZE))
        log.set_high_watermark(start.high_watermark)
        return SimulatedBroker(node, log, *self._process(node, log))

    def _process(self, node: int, log: ReplicaLog) -> tuple[PartitionFollower, ReplicationQuota]:
        """Return the initial state of a node's process."""
        is_listed = node in self.settings.throttled_replicas
        limit = self.settings.follower_replication_throttled_rate if is_listed else None
        sent = ReplicationQuota(self.settings.leader_replication_throttled_rate)
        return PartitionFollower(node, log, ReplicationQuota(limit)), sent

    def _first_leader(self) -> PartitionLeader:
        """Return the leader of the start; if its log has no batch of its epoch, it has just been elected."""
        log = self.brokers[self.scenario.leader].log
        if self.epoch > log.epochs.latest:
            log.epochs.assign(self.epoch, log.log_end)
        start = self.scenario.epoch_start
        if start is None:
            start = next((one.start_offset for one in log.epochs.entries if one.epoch == self.epoch), log.log_end)
        remotes = self.scenario.remotes.items()
        known = {node: RemoteReplica(remote.log_end, remote.last_caught_up) for node, remote in remotes}
        return self._leader(self.scenario.leader, start, known)

    def _leader(self, node: int, epoch_start: int, remotes: dict[int, RemoteReplica]) -> PartitionLeader:
        broker = self.brokers[node]
        return PartitionLeader(node, broker.log, epoch_start, self.isr, remotes, self.settings, broker.sent)

    # the steps

    def rows(self) -> Iterator[StepRow]:
        """Play the events; yield a row for each."""
        for step, event in enumerate(self.scenario.events, 1):
            yield self._play(step, event)

    def state(self) -> StepRow:
        """Return the row of the present state, without anything that happened."""
        return self._with_state({})

    def _play(self, step: int, event: SimulationEvent) -> StepRow:
        self.now = event.at
        row: StepRow = {"step": step, "at": event.at, "do": event.do}
        self._answer_waiting(row)
        self._plays[event.do](event, row)
        self._answer_waiting(row)
        if self.leader is not None:
            self._acknowledgements.look(self.leader.log.high_watermark)
        return self._with_state(row)

    def _with_state(self, row: StepRow) -> StepRow:
        row["leader"] = None if self.leader is None else self.leader.node
        row["epoch"] = self.epoch
        row["isr"] = sorted(self.isr.committed)
        row["pending"] = self.isr.pending
        row["replicas"] = {str(node): replica_row(broker.log, broker.is_up) for node, broker in self.brokers.items()}
        row["remote"] = remote_rows(self.leader)
        row["acked"] = sorted(self._acknowledgements.steps)
        if self.broken:
            row["broken"] = self.broken
        return row

    # actions of clients and the controller

    def _append(self, event: SimulationEvent, row: StepRow) -> None:
        if self.leader is None:
            row["note"] = "no leader"
            return
        if event.acks < 0 and self.leader.is_under_min_isr:
            row["error"] = NOT_ENOUGH
            return
        log = self.leader.log
        batch = EpochBatch(self.epoch, log.log_end, event.records, event.record_size)
        log.append(batch)
        if event.acks < 0:
            self._acknowledgements.waiting[row["step"]] = batch
        elif event.acks:
            self._acknowledgements.steps.add(row["step"])
        self.leader.advance_high_watermark(self.now)

    def _crash(self, event: SimulationEvent, row: StepRow) -> None:
        broker = self.brokers[event.node]
        if not broker.is_up:
            row["note"] = f"{event.node} is down"
            return
        broker.is_up = False
        broker.fetch = None
        if event.keep is not None:
            broker.log.truncate(max(event.keep, broker.log.log_start))
        if event.high_watermark is not None:
            broker.log.set_high_watermark(event.high_watermark)
        if self.leader is not None and self.leader.node == event.node:
            self._end_leadership()

    def _end_leadership(self) -> None:
        """Drop the leader's own state: fetches, unconfirmed changes of the ISR, pending appends."""
        self.leader = None
        self.broken = []
        self.isr.forget_pending()
        self._acknowledgements.waiting.clear()
        for broker in self.brokers.values():
            broker.fetch = None

    def _restart(self, event: SimulationEvent, row: StepRow) -> None:
        broker = self.brokers[event.node]
        if broker.is_up:
            row["note"] = f"{event.node} is up"
            return
        broker.is_up = True
        broker.follower, broker.sent = self._process(event.node, broker.log)
        self._follow([broker], row)

    def _elect(self, event: SimulationEvent, row: StepRow) -> None:
        broker = self.brokers[event.node]
        if not broker.is_up:
            row["note"] = f"{event.node} is down"
            return
        self._end_leadership()
        row["unclean"] = event.node not in self.isr.committed
        up = {node for node in self.isr.committed if self.brokers[node].is_up}
        self.isr.committed = {event.node} if row["unclean"] else up
        self.epoch += 1
        epoch_start = broker.log.log_end
        broker.log.epochs.assign(self.epoch, epoch_start)
        remotes = {
            node: RemoteReplica(last_caught_up=self.now if node in self.isr.committed else None)
            for node in self.brokers
            if node != event.node
        }
        self.leader = self._leader(event.node, epoch_start, remotes)
        self.leader.advance_high_watermark(self.now)
        self.broken = [
            step for step, batch in sorted(self._acknowledgements.committed.items()) if not broker.log.holds(batch)
        ]
        self._follow([one for one in self.brokers.values() if one.is_up and one is not broker], row)

    def _follow(self, brokers: list[SimulatedBroker], row: StepRow) -> None:
        """Let *brokers* begin to follow the leader, if there is one."""
        if self.leader is not None:
            for broker in brokers:
                rounds = broker.follower.truncate_before_fetching(self.settings.truncation, self.leader.log)
                _show_truncation(row, broker.node, rounds)

    def _check_isr(self, event: SimulationEvent, row: StepRow) -> None:
        if self.leader is None:
            row["note"] = "no leader"
        else:
            self.leader.shrink_isr(self.now)

    def _confirm(self, event: SimulationEvent, row: StepRow) -> None:
        if self.leader is None or not self.isr.pending:
            row["note"] = "nothing is pending"
            return
        self.isr.confirm()
        self.leader.advance_high_watermark(self.now)

    # actions of followers

    def _fetch(self, event: SimulationEvent, row: StepRow) -> None:
        broker = self.brokers[event.node]
        if self.leader is None or not broker.is_up or broker.node == self.leader.node or broker.fetch is not None:
            row["note"] = self._why_no_fetch(broker)
            return
        if broker.follower.throttles(self.now):
            row["note"] = f"{event.node} is throttled and leaves the partition out of its request"
            return
        request = broker.follower.request()
        row["fetch"] = {"from": event.node, "offset": request.offset, "last_fetched_epoch": request.last_epoch}
        answer = self.leader.answer(request, self.now)
        broker.fetch = FetchUnderWay(request, self.now + self.settings.replica_fetch_wait_max_ms)
        is_final = answer.error is not None or answer.diverging is not None
        if is_final or self._is_due(self.leader, broker.fetch):
            self._give(broker.fetch, answer, row)
        else:
            row["waits"] = {"of": event.node, "until": broker.fetch.until}

    def _why_no_fetch(self, broker: SimulatedBroker) -> str:
        if not broker.is_up:
            return f"{broker.node} is down"
        if self.leader is None:
            return "no leader"
        return f"{broker.node} is the leader" if broker.node == self.leader.node else "a fetch is under way"

    def _answer_waiting(self, row: StepRow) -> None:
        """Answer the fetches whose time is up, and those for which there are enough bytes by now."""
        for broker in self.brokers.values():
            fetch = broker.fetch
            if self.leader is None or fetch is None or fetch.answer is not None:
                continue
            if self._is_due(self.leader, fetch):
                self._give(fetch, self.leader.read(fetch.request, self.now), row)

    def _is_due(self, leader: PartitionLeader, fetch: FetchUnderWay) -> bool:
        return self.now >= fetch.until or leader.has_enough(fetch.request, self.now)

    def _give(self, fetch: FetchUnderWay, answer: ReplicaFetchAnswer, row: StepRow) -> None:
        assert self.leader is not None
        fetch.answer = answer
        self.leader.sent(fetch.request, answer, self.now)
        show_answer(row, fetch.request.node, answer)

    def _response(self, event: SimulationEvent, row: StepRow) -> None:
        broker = self.brokers[event.node]
        answer = self._arrived(broker, row)
        if answer is not None and self.leader is not None:
            _show_truncation(row, event.node, broker.follower.take(answer, self.leader.log, self.now))

    def _lose(self, event: SimulationEvent, row: StepRow) -> None:
        self._arrived(self.brokers[event.node], row)

    def _arrived(self, broker: SimulatedBroker, row: StepRow) -> ReplicaFetchAnswer | None:
        """Return the answer to the fetch of *broker*, which is then over; None, and a note, if there is none."""
        if broker.fetch is None:
            row["note"] = "no fetch is under way"
            return None
        answer = broker.fetch.answer
        if answer is None:
            row["note"] = STILL_WAITS
        else:
            broker.fetch = None
        return answer

    def differences(self) -> list[tuple[int, int, int]]:
        """Return the pairs of nodes whose logs differ, with the first offset at which they hold different records."""
        found = []
        for (one, a), (other, b) in combinations(self.brokers.items(), 2):
            offset = first_difference(a.log, b.log)
            if offset is not None:
                found.append((one, other, offset))
        return found


def _show_truncation(row: StepRow, node: int, rounds: list[TruncationRound]) -> None:
    if rounds:
        row.setdefault("truncation", {})[str(node)] = [one.as_row() for one in rounds]
