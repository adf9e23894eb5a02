"""The truncation of a follower before it follows a leader: by leader epochs, or at its high watermark.

Kafka: AbstractFetcherThread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from klog.cluster.leader_epoch_cache import UNDEFINED, LeaderEpochCache
from klog.formats.checkpoint import EpochEntry


class TruncationRow(TypedDict, total=False):
    """A TruncationRound as JSON has it; only `to` is always there."""

    asks: int
    leader: list[int]
    local: list[int]
    to: int
    complete: bool


@dataclass(frozen=True)
class TruncationRound:
    """One truncation to the offset *to*, and its reason; unused fields are None.

    *asks*: the epoch whose end the follower requests.  *leader*, *local*: (epoch, end offset) of the leader and of the
    follower.  *complete*: False if the follower has to ask again.
    """

    to: int
    asks: int | None = None
    leader: tuple[int, int] | None = None
    local: tuple[int, int] | None = None
    complete: bool | None = None

    def as_row(self) -> TruncationRow:
        """Return its fields for JSON, without those that are None."""
        row: TruncationRow = {}
        if self.asks is not None:
            row["asks"] = self.asks
        if self.leader is not None and self.local is not None:
            row["leader"], row["local"] = list(self.leader), list(self.local)
        row["to"] = self.to
        if self.complete is not None:
            row["complete"] = self.complete
        return row


def answer_round(local: LeaderEpochCache, log_end: int, answer: tuple[int, int], otherwise: int) -> TruncationRound:
    """Return the truncation of a follower whose leader answered *answer* for its latest epoch: (epoch, end offset).

    *otherwise*: the offset if the leader knows nothing, the follower's high watermark. Kafka:
    AbstractFetcherThread.getOffsetTruncationState.
    """
    epoch, end = answer
    known, known_end = local.end_offset_for(epoch, log_end)
    complete = True
    if end == UNDEFINED:
        to = min(otherwise, log_end)
    elif UNDEFINED in (epoch, known_end):
        to = min(end, log_end)
    elif known != epoch:
        # The leader has no batch of the follower's latest epochs: they go, and the epoch before them is next.
        to, complete = min(known_end, log_end), False
    else:
        to = min(known_end, end, log_end)
    return TruncationRound(to, leader=answer, local=(known, known_end), complete=complete)


def epoch_rounds(
    local: LeaderEpochCache, log_end: int, leader: LeaderEpochCache, leader_end: int, high_watermark: int
) -> list[TruncationRound]:
    """Return the rounds in which a follower requests the ends of epochs from its leader; the last one is complete.

    A follower that knows no epoch truncates to its *high_watermark*.
    """
    if local.latest == UNDEFINED:
        return [TruncationRound(min(high_watermark, log_end))]
    epochs = LeaderEpochCache(EpochEntry(*entry) for entry in local.entries)
    rounds: list[TruncationRound] = []
    while not rounds or not rounds[-1].complete:
        asks = epochs.latest
        one = answer_round(epochs, log_end, leader.end_offset_for(asks, leader_end), high_watermark)
        rounds.append(TruncationRound(one.to, asks, one.leader, one.local, one.complete))
        # Each incomplete round removes at least the latest epoch, so that the rounds end.
        log_end = min(log_end, one.to)
        epochs.truncate_end(log_end)
    return rounds
