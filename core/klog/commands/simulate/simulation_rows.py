"""The rows of a simulation for JSON: the state after each step, and its events."""

from __future__ import annotations

from typing import TypedDict

from klog.cluster.follower_truncation import TruncationRow
from klog.commands.simulate.replica_log import ReplicaLog
from klog.commands.simulate.simulated_replicas import PartitionLeader, ReplicaFetchAnswer


class ReplicaRow(TypedDict):
    """The state of a replica; *epochs*: [epoch, start offset] each."""

    up: bool
    log_end: int
    high_watermark: int
    epochs: list[list[int]]


class RemoteRow(TypedDict):
    """The leader's state about a replica; a log end of -1 and a time of None: unknown."""

    log_end: int
    last_caught_up: int | None


FetchRow = TypedDict("FetchRow", {"from": int, "offset": int, "last_fetched_epoch": int})
"""A follower's request."""


class WaitRow(TypedDict):
    """A waiting fetch *of* a node, *until* a time."""

    of: int
    until: int


class AnswerRow(TypedDict, total=False):
    """A leader's answer; *records*: first and last offset.  Only `to` to `high_watermark` are always present."""

    to: int
    records: list[int] | None
    high_watermark: int
    diverging: list[int]
    error: str
    throttled: bool


class StepRow(TypedDict, total=False):
    """The row of a step; `fetch` to `note` and `broken` are present only if they occur.

    *answers*: all of them, when several fetches were answered in one step; *answer* is then the first.
    """

    step: int
    at: int
    do: str
    fetch: FetchRow
    answer: AnswerRow
    answers: list[AnswerRow]
    waits: WaitRow
    truncation: dict[str, list[TruncationRow]]
    unclean: bool
    error: str
    note: str
    leader: int | None
    epoch: int
    isr: list[int]
    pending: list[str]
    replicas: dict[str, ReplicaRow]
    remote: dict[str, RemoteRow]
    acked: list[int]
    broken: list[int]


def replica_row(log: ReplicaLog, is_up: bool) -> ReplicaRow:
    """Return the row of a replica with *log*."""
    epochs = [[entry.epoch, entry.start_offset] for entry in log.epochs.entries]
    return {"up": is_up, "log_end": log.log_end, "high_watermark": log.high_watermark, "epochs": epochs}


def remote_rows(leader: PartitionLeader | None) -> dict[str, RemoteRow]:
    """Return the rows of *leader* about the others; none without a leader."""
    remotes = {} if leader is None else leader.remotes
    return {
        str(node): {"log_end": remote.log_end, "last_caught_up": remote.last_caught_up}
        for node, remote in remotes.items()
    }


def show_answer(row: StepRow, node: int, answer: ReplicaFetchAnswer) -> None:
    """Show in *row* that *node* was answered."""
    records = [answer.batches[0].base_offset, answer.batches[-1].next_offset - 1] if answer.batches else None
    shown: AnswerRow = {"to": node, "records": records, "high_watermark": answer.high_watermark}
    if answer.diverging is not None:
        shown["diverging"] = list(answer.diverging)
    if answer.error is not None:
        shown["error"] = answer.error
    if answer.throttled:
        shown["throttled"] = True
    if "answer" in row:
        row.setdefault("answers", [row["answer"]]).append(shown)
    else:
        row["answer"] = shown
