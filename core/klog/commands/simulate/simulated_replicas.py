"""The leader and the followers of a partition in a simulation: ISR, high watermark, fetches, truncation, quotas."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from klog.cluster.follower_truncation import TruncationRound, answer_round, epoch_rounds
from klog.cluster.leader_epoch_cache import UNDEFINED
from klog.commands.simulate.replica_log import EpochBatch, ReplicaLog
from klog.commands.simulate.scenario import ReplicationSettings

WINDOW_MS: Final = 1000
"""`replica.quota.window.size.seconds`, at its default, in ms."""

WINDOWS: Final = 11
"""`replica.quota.window.num`, at its default."""


@dataclass
class QuotaWindow:
    """The bytes recorded in one window; times in ms.  Kafka: SampledStat.Sample."""

    start: int
    last_event: int
    recorded: int = 0


class ReplicationQuota:
    """Bytes sent or received against a limit in bytes a second; a limit of None is never exceeded.

    Kafka: ReplicationQuotaManager with SimpleRate, whose ring has one window more than are measured, for the one that
    the measured period cuts.
    """

    def __init__(self, limit: int | None) -> None:
        self.limit = limit
        self._windows: list[QuotaWindow] = []
        self._current = 0

    def record(self, size: int, now: int) -> None:
        """Count *size* bytes at the time *now*, in ms."""
        self._begin(now)
        if now - self._windows[self._current].start >= WINDOW_MS:
            self._current = (self._current + 1) % (WINDOWS + 1)
            self._windows[self._current : self._current + 1] = [QuotaWindow(now, now)]
        window = self._windows[self._current]
        window.recorded += size
        window.last_event = now

    def _begin(self, now: int) -> None:
        """Begin the first window at the first question, or the first bytes."""
        if not self._windows:
            self._windows.append(QuotaWindow(now, now))

    def rate(self, now: int) -> float:
        """Return the bytes a second at the time *now*: of the windows left, since the oldest of them began."""
        self._begin(now)
        for window in self._windows:
            if now - window.last_event >= WINDOWS * WINDOW_MS:
                window.start = window.last_event = now
                window.recorded = 0
        oldest = min(window.start for window in self._windows)
        recorded = sum(window.recorded for window in self._windows)
        return recorded * 1000 / max(now - oldest, WINDOW_MS)

    def is_exceeded(self, now: int) -> bool:
        """Whether the rate at the time *now* is above the limit."""
        return self.limit is not None and self.rate(now) > self.limit


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


class PartitionFollower:
    """A replica that follows.  Kafka: ReplicaFetcherThread, for one partition.

    *lag*: how many offsets it is behind the leader's high watermark, None if that is unknown.
    """

    def __init__(self, node: int, log: ReplicaLog, quota: ReplicationQuota) -> None:
        self.node = node
        self.log = log
        self.lag: int | None = None
        self._quota = quota

    def request(self) -> ReplicaFetch:
        """Return its next fetch."""
        return ReplicaFetch(self.node, self.log.log_end, self.log.epochs.latest)

    def throttles(self, now: int) -> bool:
        """Whether it pauses fetching: it lags, and its own quota is used up."""
        return (self.lag is None or self.lag > 0) and self._quota.is_exceeded(now)

    def truncate_before_fetching(self, rule: str, leader: ReplicaLog) -> list[TruncationRound]:
        """Truncate according to *rule* when it begins to follow *leader*; return the rounds."""
        self.lag = None
        if rule == "fetch":
            return []
        if rule == "epoch":
            rounds = epoch_rounds(
                self.log.epochs, self.log.log_end, leader.epochs, leader.log_end, self.log.high_watermark
            )
        else:
            rounds = [TruncationRound(self.log.high_watermark)]
        self.log.truncate(rounds[-1].to)
        return rounds

    def take(self, answer: ReplicaFetchAnswer, leader: ReplicaLog, now: int) -> list[TruncationRound]:
        """Apply *answer*; return the rounds of a truncation, if there was one."""
        if answer.error is not None:
            return self._reset(leader)
        if answer.diverging is not None:
            end = self.log.log_end
            one = answer_round(self.log.epochs, end, answer.diverging, self.log.high_watermark)
            self.log.truncate(one.to)
            return [TruncationRound(one.to, leader=one.leader, local=one.local)]
        for batch in answer.batches:
            self.log.append(batch)
        self._quota.record(sum(batch.size for batch in answer.batches), now)
        self.log.set_high_watermark(answer.high_watermark)
        self.log.raise_log_start(answer.log_start)
        self.lag = max(0, answer.high_watermark - self.log.log_end)
        return []

    def _reset(self, leader: ReplicaLog) -> list[TruncationRound]:
        """Return to the range of the leader's log.  Kafka: fetchOffsetAndApplyTruncateOrFullTruncate."""
        if leader.log_end < self.log.log_end:
            self.log.truncate(leader.log_end)
            return [TruncationRound(leader.log_end)]
        if leader.log_start > self.log.log_end:
            self.log.delete_all(leader.log_start)
            return [TruncationRound(leader.log_start)]
        return []
