"""The state of a log that an append needs: its end, its last segment and its producers.

    log = empty_log(settings, base=0)

For an existing one: `klog.partition.append.log_resumption`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.cluster.metadata.topic_config import TopicConfig
from klog.kernel import IndexBuilder
from klog.log.txn_index import AbortedTxn
from klog.partition.transactions.producer_state import ProducerState


class AppendSettings(NamedTuple):
    """The settings of a topic that decide how its log is laid out: bytes and ms."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    index_interval: int = 4096
    index_bytes: int = 10 << 20

    @classmethod
    def of(cls, topics: TopicConfig, topic: str) -> AppendSettings:
        """Return those of *topic*.  Kafka: LogConfig.maxSegmentMs."""

        def number(name: str) -> int:
            return topics.value(topic, name).number

        segment_ms = number("segment.ms")
        if "compact" in topics.value(topic, "cleanup.policy").words:
            segment_ms = min(segment_ms, number("max.compaction.lag.ms"))
        interval, index_bytes = number("index.interval.bytes"), number("segment.index.bytes")
        return cls(number("segment.bytes"), segment_ms, interval, index_bytes)

    def segment(self, base: int, latest_epoch: int) -> IndexBuilder:
        """Return an empty segment from offset *base* on."""
        return IndexBuilder(
            base, self.index_interval, self.index_bytes, latest_epoch, self.segment_bytes, self.segment_ms
        )


@dataclass
class LogState:
    """A log as an appender continues it.

    *segment*: the active one; *is_there*: it has files.  *end*: the log end offset.  *start*: the log start offset.
    *aborted*: the entries of the active segment's transaction index.
    """

    settings: AppendSettings
    segment: IndexBuilder
    start: int
    end: int
    producers: ProducerState
    epochs: LeaderEpochCache = field(default_factory=LeaderEpochCache)
    aborted: list[AbortedTxn] = field(default_factory=list)
    is_there: bool = False


def empty_log(settings: AppendSettings, base: int = 0) -> LogState:
    """Return a log without files, which begins at offset *base*."""
    return LogState(settings, settings.segment(base, -1), base, base, ProducerState(base))
