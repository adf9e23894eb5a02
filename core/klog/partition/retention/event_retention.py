"""Whether brokers keep the events in `__remote_log_metadata` as long as the segments that they are about.

expiring_events(TopicConfig(LogDir("b1/data")), ["orders"])
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from klog.cluster.metadata.topic_config import TopicConfig
from klog.formats.internal_topics import REMOTE_LOG_METADATA
from klog.formats.java_integers import LONG_MAX
from klog.partition.retention.due_records import config_command
from klog.partition.retention.first_pass import BY_BYTES, BY_MS, BY_POLICY, TopicRetention, topic_retention


def expiring_events(topics: TopicConfig, tiered: Iterable[str]) -> str | None:
    """Return the settings by which brokers delete events before their segments, and the command that changes them.

    None if brokers keep all of them, as with the settings that Kafka creates the topic with, or if the settings are
    unknown.  *tiered*: the topics in remote storage.
    """
    kept = topic_retention(topics, REMOTE_LOG_METADATA)
    longest = max((_retention_ms(topics, topic) for topic in tiered), default=0)
    changes = dict(_changes(kept, longest)) if longest and kept.is_known else {}
    if not changes:
        return None
    by = " and ".join(kept.settings[name].told(kept.knows_file) for name in changes)
    command = config_command(REMOTE_LOG_METADATA, changes)
    return f"brokers delete events of segments that stay in remote storage, by {by}; to keep them: {command}"


def _retention_ms(topics: TopicConfig, topic: str) -> int:
    """Return how long a topic keeps its records at most, LONG_MAX for ever."""
    found = topic_retention(topics, topic)
    retention_ms = found.settings[BY_MS].number
    return retention_ms if found.limits.deletes and retention_ms >= 0 else LONG_MAX


def _changes(kept: TopicRetention, longest: int) -> Iterator[tuple[str, str]]:
    """Yield each setting that removes events too early, with the value that does not.

    An event is not older than the records of its segment: a limit that is longer than theirs removes it after them.
    """
    if kept.compacts:
        yield BY_POLICY, "delete"  # compaction removes records without a key, and events have none
    if kept.limits.deletes and 0 <= kept.limits.retention_ms <= longest:
        yield BY_MS, "-1"
    if kept.limits.deletes and kept.limits.retention_bytes >= 0:
        yield BY_BYTES, "-1"
