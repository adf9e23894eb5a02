"""The reaction of a follower to its leader's answers, and its first truncation."""

from __future__ import annotations

from klog.cluster.truncation import TruncationRound, answer_round, epoch_rounds
from klog.commands.simulate.replica_log import ReplicaLog
from klog.commands.simulate.replication_quota import ReplicationQuota
from klog.commands.simulate.simulated_leader import ReplicaFetch, ReplicaFetchAnswer


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
