"""Partitions that are not attached: the reason, and the way on."""

from __future__ import annotations

from typing import NamedTuple

from klog.base.errors import KlogError
from klog.cluster.remote_log.events import TopicIdPartition


class AttachRefusal(NamedTuple):
    """Why a partition is not attached: the *id* of the reason, a sentence, and what leads on."""

    topic: str
    partition: int
    id: str
    message: str
    next: str


class NotAttachedError(KlogError):
    """A partition that is not attached."""

    def __init__(self, refusal: AttachRefusal) -> None:
        super().__init__(f"{refusal.topic}-{refusal.partition}: {refusal.message}")
        self.refusal = refusal


def refuse(whose: TopicIdPartition, reason: str, message: str, following: str) -> NotAttachedError:
    """Return the error for a partition; *following*: the next step."""
    return NotAttachedError(AttachRefusal(whose.topic, whose.number, reason, message, following))
