"""The leader of a partition: its state about the other replicas, the ISR, the high watermark, fetches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.cluster.leader_epoch_cache import UNDEFINED
from klog.commands.simulate.replica_log import EpochBatch, ReplicaLog
from klog.commands.simulate.replication_quota import ReplicationQuota
from klog.commands.simulate.scenario import ReplicationSettings

UNKNOWN: Final = -1
"""The log end of a replica that has not fetched from this leader yet."""

OUT_OF_RANGE: Final = "OFFSET_OUT_OF_RANGE"


@dataclass
class RemoteReplica:
    """The leader's state about another replica.  Kafka: ReplicaState.

    *last_caught_up*, *last_fetch*: times in ms; None is never.  *leader_end*: the leader's log end at the last fetch.
    """

    log_end: int = UNKNOWN
    last_caught_up: int | None = None
    last_fetch: int = 0
    leader_end: int = UNKNOWN

    def fetched(self, offset: int, leader_end: int, now: int) -> None:
        """Note a fetch from *offset* on, before which the leader's log ended at *leader_end*."""
        if offset >= leader_end:
            self.last_caught_up = max(self.last_caught_up or 0, now)
        elif offset >= self.leader_end:
            # It has the records that the leader had at its last fetch: at that time, it was caught up.
            self.last_caught_up = max(self.last_caught_up or 0, self.last_fetch)
        self.leader_end = max(leader_end, self.leader_end)
        self.last_fetch = now
        self.log_end = offset

    def is_caught_up(self, leader_end: int, now: int, max_lag: int) -> bool:
        """Whether it has everything, or had so at most *max_lag* ms ago."""
        return self.log_end == leader_end or (self.last_caught_up is not None and now - self.last_caught_up <= max_lag)


@dataclass
class IsrState:
    """The ISR that the controller has confirmed, and the leader's pending change.  Kafka: PartitionState."""

    committed: set[int]
    expanding: int | None = None
    shrinking: set[int] = field(default_factory=set)

    @property
    def maximal(self) -> set[int]:
        """The replicas that count for the high watermark: one that joins at once, one that leaves until confirmed."""
        return self.committed if self.expanding is None else self.committed | {self.expanding}

    @property
    def pending(self) -> list[str]:
        """The changes that are not confirmed, such as `+3` or `-2`."""
        return [f"+{self.expanding}"] * (self.expanding is not None) + [f"-{node}" for node in sorted(self.shrinking)]

    def confirm(self) -> None:
        """Confirm the pending change."""
        self.committed = self.maximal - self.shrinking
        self.forget_pending()

    def forget_pending(self) -> None:
        """Return to the confirmed ISR."""
        self.expanding, self.shrinking = None, set()


class ReplicaFetch(NamedTuple):
    """A follower's request: its node, its log end, its latest epoch or -1."""

    node: int
    offset: int
    last_epoch: int


class ReplicaFetchAnswer(NamedTuple):
    """A leader's answer.  *diverging*: the divergence of the logs: (epoch, end offset)."""

    batches: list[EpochBatch]
    high_watermark: int
    log_start: int
    diverging: tuple[int, int] | None = None
    error: str | None = None
    throttled: bool = False


class PartitionLeader:
    """The leader of a partition in one epoch.  Kafka: Partition.

    *epoch_start*: where its log ended when it was elected.  *remotes*: the other replicas.
    """

    def __init__(
        self,
        node: int,
        log: ReplicaLog,
        epoch_start: int,
        isr: IsrState,
        remotes: dict[int, RemoteReplica],
        settings: ReplicationSettings,
        quota: ReplicationQuota,
    ) -> None:
        self.node = node
        self.log = log
        self.isr = isr
        self.remotes = remotes
        self._epoch_start = epoch_start
        self._settings = settings
        self._quota = quota

    @property
    def is_under_min_isr(self) -> bool:
        """Whether the confirmed ISR is too small for acks=all, and for the high watermark."""
        replicas = len(self.remotes) + 1
        return len(self.isr.committed) < min(self._settings.min_insync_replicas, replicas)

    def advance_high_watermark(self, now: int) -> None:
        """Raise the high watermark to the end that the ISR, and those that could join it, have.

        Kafka: Partition.maybeIncrementLeaderHW.
        """
        if self.is_under_min_isr:
            return
        ends = [self.log.log_end]
        for node, remote in self.remotes.items():
            if node in self.isr.maximal or self._is_caught_up(remote, now):
                ends.append(remote.log_end)
        self.log.set_high_watermark(max(self.log.high_watermark, min(ends)))

    def _is_caught_up(self, remote: RemoteReplica, now: int) -> bool:
        return remote.is_caught_up(self.log.log_end, now, self._settings.replica_lag_time_max_ms)

    def shrink_isr(self, now: int) -> None:
        """Ask to remove the members that lag.  Kafka: Partition.maybeShrinkIsr."""
        if not self.isr.pending:
            self.isr.shrinking = {
                node
                for node, remote in self.remotes.items()
                if node in self.isr.committed and not self._is_caught_up(remote, now)
            }
            self._changed_isr(now)

    def _expand_isr(self, node: int, now: int) -> None:
        """Ask to add *node* if it has all committed records, and has reached this epoch.  Kafka: maybeExpandIsr."""
        least = max(self.log.high_watermark, self._epoch_start)
        if node not in self.isr.committed and not self.isr.pending and self.remotes[node].log_end >= least:
            self.isr.expanding = node
            self._changed_isr(now)

    def _changed_isr(self, now: int) -> None:
        if self._settings.confirm == "at once":
            self.isr.confirm()
        self.advance_high_watermark(now)

    def answer(self, fetch: ReplicaFetch, now: int) -> ReplicaFetchAnswer:
        """Update the state from *fetch*, and return its answer if it does not have to wait."""
        before = self.log.high_watermark
        error, diverging = self._check(fetch)
        if error is not None or diverging is not None:
            return ReplicaFetchAnswer([], before, self.log.log_start, diverging, error)
        remote = self.remotes[fetch.node]
        remote.fetched(fetch.offset, self.log.log_end, now)
        self._expand_isr(fetch.node, now)
        self.advance_high_watermark(now)
        # A broker samples its high watermark before it learns from the fetch; the diagrams show it afterwards.
        shown = before if self._settings.hw_in_response == "before" else self.log.high_watermark
        return self.read(fetch, now)._replace(high_watermark=shown)

    def read(self, fetch: ReplicaFetch, now: int) -> ReplicaFetchAnswer:
        """Return the answer to *fetch* at the end of a wait: the state is not updated."""
        throttled = self._throttles(fetch.node, now)
        batches = [] if throttled else self.log.read(fetch.offset, self._settings.replica_fetch_max_bytes)
        return ReplicaFetchAnswer(batches, self.log.high_watermark, self.log.log_start, throttled=throttled)

    def has_enough(self, fetch: ReplicaFetch, now: int) -> bool:
        """Whether there are enough bytes for *fetch*.  Kafka: DelayedFetch, case G."""
        enough = min(self._settings.replica_fetch_min_bytes, self._settings.replica_fetch_max_bytes)
        return (0 if self._throttles(fetch.node, now) else self.log.size_from(fetch.offset)) >= enough

    def _check(self, fetch: ReplicaFetch) -> tuple[str | None, tuple[int, int] | None]:
        """Return the error of *fetch*, or the point where the follower's log diverges from the leader's."""
        if not self.log.log_start <= fetch.offset:
            return OUT_OF_RANGE, None
        if self._settings.truncation == "fetch" and fetch.last_epoch != UNDEFINED:
            epoch, end = self.log.epochs.end_offset_for(fetch.last_epoch, self.log.log_end)
            if end == UNDEFINED:
                return OUT_OF_RANGE, None
            if epoch < fetch.last_epoch or end < fetch.offset:
                return None, (epoch, end)
        return (OUT_OF_RANGE if fetch.offset > self.log.log_end else None), None

    def _throttles(self, node: int, now: int) -> bool:
        """Whether *node* receives no bytes now: it is listed, not in the ISR, and the quota is used up."""
        listed = node in self._settings.throttled_replicas and node not in self.isr.committed
        return listed and self._quota.is_exceeded(now)

    def sent(self, fetch: ReplicaFetch, answer: ReplicaFetchAnswer, now: int) -> None:
        """Count the bytes of *answer* against the quota, if that is for the follower."""
        if fetch.node in self._settings.throttled_replicas:
            self._quota.record(sum(batch.size for batch in answer.batches), now)
