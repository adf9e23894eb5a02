"""The limits by which a topic's segments are deleted, and where each limit was found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from klog.cluster.metadata.topic_config import Setting, TopicConfig

_SETTINGS: Final = ("cleanup.policy", "retention.ms", "retention.bytes", "remote.storage.enable")
_LOCAL_SETTINGS: Final = ("local.retention.ms", "local.retention.bytes")


class RetentionLimits(NamedTuple):
    """The limits of a topic: ms and bytes, -1 for none.  *deletes*: its cleanup.policy has `delete`."""

    deletes: bool
    retention_ms: int
    retention_bytes: int


class TopicRetention(NamedTuple):
    """The settings that decide about a topic's segments.  *settings*: by name, with their origins.

    *is_known*: the settings of the topic itself are known.  *knows_file*: the broker's `server.properties` is known,
    too.
    """

    limits: RetentionLimits
    compacts: bool
    is_remote: bool
    settings: Mapping[str, Setting]
    is_known: bool = True
    knows_file: bool = False


def topic_retention(topics: TopicConfig, topic: str | None) -> TopicRetention:
    """Return the settings that apply to the segments of *topic*; None: a directory whose name has no topic."""
    settings = {name: topics.value(topic, name) for name in _SETTINGS}
    policy, retention_ms, retention_bytes, remote = settings.values()
    is_remote = remote.flag
    if is_remote:
        local = {name: topics.value(topic, name) for name in _LOCAL_SETTINGS}
        settings |= local
        # -2: the topic's own.  Kafka: UnifiedLog.localRetentionMs, localRetentionSize.
        retention_ms, retention_bytes = (
            whole if part.number == -2 else part
            for whole, part in zip((retention_ms, retention_bytes), local.values(), strict=True)
        )
    limits = RetentionLimits("delete" in policy.words, retention_ms.number, retention_bytes.number)
    compacts = "compact" in policy.words
    return TopicRetention(limits, compacts, is_remote, settings, topics.is_known(topic), topics.knows_file)
