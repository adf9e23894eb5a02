"""The result of attaching: plain data."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from klog.change.plan.session import PlanResult
from klog.cluster.remote_log.events import TopicIdPartition
from klog.commands.remote.attach.refusal import AttachRefusal
from klog.partition.transactions.appended_ends import EndedTransaction


class AttachMode(StrEnum):
    """The missing parts: records of the metadata; also the local log; also the topic."""

    METADATA = "metadata"
    LOG = "log"
    TOPIC = "topic"


class AttachedPartition(NamedTuple):
    """A partition that is attached.  *first*: its first offset in remote storage; *remote_end*: the last, inclusive.

    *records*: those written to partition *metadata_partition* of `__remote_log_metadata`.  *ended*: transactions that
    are ended.  *is_done*: everything is there already.
    """

    whose: TopicIdPartition
    mode: AttachMode
    segments: int
    first: int
    remote_end: int
    log_end: int
    leader_epoch: int
    metadata_partition: int
    records: int
    ended: Sequence[EndedTransaction] = ()
    is_done: bool = False

    def json(self) -> dict[str, object]:
        """Return it as JSON has it."""
        return {
            "topic": self.whose.topic,
            "partition": self.whose.number,
            "topic_id": self.whose.topic_id,
            "mode": self.mode.value,
            "segments": self.segments,
            "remote_start_offset": self.first,
            "remote_end_offset": self.remote_end,
            "log_end_offset": self.log_end,
            "leader_epoch": self.leader_epoch,
            "metadata_partition": self.metadata_partition,
            "records_written": self.records,
            "markers": len(self.ended),
            "ended": [one._asdict() for one in self.ended],
            "done_before": self.is_done,
        }


class AttachResult(NamedTuple):
    """Partitions that were planned or attached, and those that were refused.

    *notes*: lines about all of them.  *next*: what the operator does before and after the start.
    """

    attached: list[AttachedPartition]
    refused: list[AttachRefusal]
    plan: PlanResult
    notes: list[str]
    next: list[str]
