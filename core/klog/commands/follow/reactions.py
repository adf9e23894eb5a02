"""The reaction of a copy to a leader's answer: functions without network and disk.

A copy follows as a replica does, by leader epochs, but it never loses data: the cut part is kept elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from klog.base.errors import ExitCode
from klog.cluster.follower_truncation import answer_round
from klog.cluster.leader_epoch_cache import UNDEFINED, LeaderEpochCache
from klog.formats.checkpoint import EpochEntry
from klog.formats.error_codes import ErrorCode, error_code

EpochEnd: TypeAlias = "tuple[int, int]"
"""A leader epoch and its end offset; both -1 if unknown."""


class FetchAnswer(NamedTuple):
    """A leader's answer for one partition.

    *diverging*: an epoch that ends below the requested offset, None without one.  *records*: bytes of batches, the last
    of which may be cut.
    """

    error: int
    high_watermark: int
    log_start: int
    diverging: EpochEnd | None
    records: memoryview


class Take(NamedTuple):
    """The records, the high watermark and the log start are the copy's next ones."""


class Look(NamedTuple):
    """The leader does not have the offset: the next step is a question about its log, see `locate`."""


class Part(NamedTuple):
    """The leader has another batch in place of the copy's last one: the first such batch has to be found."""


class Trust(NamedTuple):
    """The leader has deleted the counterpart of the copy's last batch: leader epochs have to be enough."""


class Renew(NamedTuple):
    """Deletions may be missing in the copy: it has to begin anew."""


class Cut(NamedTuple):
    """Histories diverge at *to*: in the leader *epoch* ended at *end*; both are -1 if it has no epoch of the copy.

    *has_others*: the leader has the epochs, and other batches from *to* on.
    """

    to: int
    epoch: int
    end: int
    has_others: bool = False


class Skip(NamedTuple):
    """The leader's log starts at *to*, above the end of the copy."""

    to: int


class Wait(NamedTuple):
    """The partition has to wait, and its leader has to be looked up again."""

    why: str


class Leave(NamedTuple):
    """The partition is not followed any further."""

    why: str
    exit_code: ExitCode


Decision: TypeAlias = "Take | Look | Part | Trust | Renew | Cut | Skip | Wait | Leave"

_DENIED: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def judge(answer: FetchAnswer, epochs: Sequence[EpochEntry], log_end: int) -> Take | Look | Cut | Wait | Leave:
    """Return the reaction to *answer* for a copy that ends at *log_end*.

    Kafka: AbstractFetcherThread.processFetchRequest.
    """
    if answer.error == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Look()
    if answer.error:
        return refusal(answer.error)
    if answer.diverging is not None:
        return _cut(epochs, log_end, answer.diverging)
    return Take()


def refusal(code: int) -> Wait | Leave:
    """Return the reaction to an error that concerns no offset: all but a missing permission may be temporary."""
    if code in _DENIED:
        return Leave(f"not authorized ({error_code(code).name})", ExitCode.OPERATIONAL_ERROR)
    return Wait(error_code(code).name)


def _cut(epochs: Sequence[EpochEntry], log_end: int, leader: EpochEnd) -> Cut | Wait:
    to = answer_round(LeaderEpochCache(epochs), log_end, leader, log_end).to
    return (
        Cut(to, *leader) if 0 <= to < log_end else Wait(f"leader epoch {leader[0]} ends at {leader[1]} there, and here")
    )


def locate(
    epochs: Sequence[EpochEntry],
    log_end: int,
    epoch_end: Callable[[int], EpochEnd],
    bounds: Callable[[], tuple[int, int]],
    last_offset: int | None = None,
) -> Cut | Skip | Trust | Wait:
    """Return the reaction for a copy whose end the leader does not have, or whose *last_offset*, if that was requested.

    *epoch_end* requests the end of an epoch from the leader; *bounds* requests its log start and its high watermark.  A
    leader without any epoch as new as the copy's also answers that the offset is out of range, whatever the offset:
    epochs are therefore requested first, from the newest on, until it has one.  Kafka: fetchOffsetAndTruncate, which
    does not do that.
    """
    for entry in reversed(epochs):
        leader = epoch_end(entry.epoch)
        if UNDEFINED not in leader:
            found = _cut(epochs, log_end, leader)
            if isinstance(found, Cut):
                return found
            break
    else:
        if epochs:
            return Cut(epochs[0].start_offset, UNDEFINED, UNDEFINED)
    start, end = bounds()
    if start > log_end:
        return Skip(start)
    if last_offset is not None and start > last_offset:
        return Trust()
    if end < log_end and not epochs:
        return Cut(end, UNDEFINED, end)
    return Wait(f"the leader has {start} to {end}, yet not {log_end}")
