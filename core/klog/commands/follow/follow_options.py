"""The options of a follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Final, Literal, TypeAlias

from klog.data_dir.selection import PartitionChoice

OnDivergence: TypeAlias = Literal["cut", "stop"]
OnCleaned: TypeAlias = Literal["say", "anew"]
COPY_SETTINGS: Final = ("segment.bytes", "segment.ms", "index.interval.bytes", "segment.index.bytes")
"""The settings of a topic that decide something in a copy."""


@dataclass(frozen=True)
class FollowOptions:
    """The options of a follow: ms and bytes.

    *topics*: names and globs; *numbers*: of partitions; empty for all.  *internal*: include internal topics; one that
    is named is followed without it.  *continuous*: run until stopped.  *rate*: bytes a second over all connections,
    None for any.  *max_wait_ms*, *min_bytes*, *fetch_bytes*, *partition_bytes*: a Fetch request's own.  *flush_ms*,
    *flush_bytes*: the most that a power cut may cost.  *timeout_ms*: for how long a partition may have no leader.
    *on_cleaned*: the treatment of a copy in which deletions may be missing.  *config*: settings of the copy that have
    precedence over the topics' own.
    """

    topics: Sequence[str] = ()
    numbers: Sequence[PartitionChoice] = ()
    internal: bool = False
    continuous: bool = False
    rate: int | None = None
    max_wait_ms: int = 500
    min_bytes: int = 1
    fetch_bytes: int = 10 << 20
    partition_bytes: int = 1 << 20
    flush_ms: int | None = 1000
    flush_bytes: int | None = None
    timeout_ms: int = 60_000
    prune: bool = False
    on_divergence: OnDivergence = "cut"
    on_cleaned: OnCleaned = "say"
    trace: bool = False
    config: Mapping[str, str] = field(default_factory=dict)

    def wants(self, topic: str, is_internal: bool) -> bool:
        """Return whether *topic* is followed."""
        if is_internal and not self.internal and topic not in self.topics:
            return False
        return not self.topics or any(fnmatchcase(topic, glob) for glob in self.topics)

    def wants_partition(self, topic: str, number: int) -> bool:
        """Return whether this partition of a topic that is followed is wanted."""
        return not self.numbers or number in self.numbers or (topic, number) in self.numbers
