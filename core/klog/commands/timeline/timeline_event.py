"""An event of a timeline, the order of events, and the filter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple, TypeAlias

from klog.formats.java_integers import LONG_MAX

BROKER_CLOCK: Final = "broker"
PRODUCER_CLOCK: Final = "producer"
FILE_CLOCK: Final = "file"
"""The clocks: a broker's or controller's, a record's producer's (CreateTime), the file system's (mtime)."""

METADATA_KINDS: Final = (
    *("broker-registered", "broker-fenced", "broker-unfenced", "broker-unregistered"),
    *("topic-created", "topic-deleted", "partition-changed", "config-changed"),
)
TRANSACTION_KINDS: Final = ("txn-begin", "txn-commit", "txn-abort", "txn-fenced", "txn-open")
GROUP_KINDS: Final = ("commit", "rebalance", "group-deleted")
DATA_KINDS: Final = (
    *("roll", "log-start", "compacted", "producer", "first-record", "last-record", "silence", "damage"),
)
KINDS: Final = (*METADATA_KINDS, "epoch", *TRANSACTION_KINDS, *GROUP_KINDS, *DATA_KINDS)
"""All kinds, in the order of events of the same time: metadata, epochs, transactions, groups, data."""

_RANKS: Final = {kind: rank for rank, kind in enumerate(KINDS)}
_FAMILIES: Final = {
    kind: family
    for family, kinds in enumerate((METADATA_KINDS, ("epoch",), TRANSACTION_KINDS, GROUP_KINDS, DATA_KINDS))
    for kind in kinds
}
_OF_ONE_DISK: Final = ("log-start", "compacted", "damage")
"""Events of a copy rather than of the partition: the same on another disk is another event."""


_OF_PARTITIONS: Final = (*TRANSACTION_KINDS, "commit")


EventIdentity: TypeAlias = "tuple[int | str, ...]"
EventOrder: TypeAlias = "tuple[EventIdentity, str, str]"


class TimelineEvent(NamedTuple):
    """One event; fields that do not apply are None.

    *time*: ms since the epoch, by *clock*.  *offset*, *file* (relative to *log_dir*), *position* (bytes): the batch or
    record that proves it: for events of metadata, groups and coordinators in their logs.  *epoch*: a leader's, a
    broker's, a producer's or a group's, depending on the kind.  *commits*: the number of commits that it represents.
    """

    time: int
    clock: str
    kind: str
    message: str
    log_dir: str | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    offset: int | None = None
    epoch: int | None = None
    node: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    file: str | None = None
    position: int | None = None
    commits: int | None = None

    @property
    def identity(self) -> EventIdentity:
        """The fields that are equal for the same event on several disks; their order is that of events."""
        return (
            self.time,
            _FAMILIES[self.kind],
            self.topic or "",
            -1 if self.partition is None else self.partition,
            -1 if self.offset is None else self.offset,
            _RANKS[self.kind],
            self.topic_id or "",
            -1 if self.epoch is None else self.epoch,
            -1 if self.node is None else self.node,
            self.group or "",
            self.transactional_id or "",
            -1 if self.producer_id is None else self.producer_id,
            f"{self.log_dir}/{self.file}@{self.position}" if self.kind in _OF_ONE_DISK else "",
        )

    @property
    def order(self) -> EventOrder:
        """The sort key of events: of the same event on several disks that of the first log dir is the first."""
        return self.identity, self.log_dir or "", self.file or ""


class EventFilter(NamedTuple):
    """The filter of events: *start* and later, before *end* (ms); all *kinds* if there are none.

    *topics*, *groups*: globs; with them, only events of such a topic or such a group.
    """

    start: int = -LONG_MAX
    end: int = LONG_MAX
    kinds: Collection[str] = ()
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()

    def wants(self, event: TimelineEvent) -> bool:
        """Whether an event matches."""
        if not self.start <= event.time < self.end or (self.kinds and event.kind not in self.kinds):
            return False
        is_of_group = not self.groups or any(fnmatchcase(event.group or "", glob) for glob in self.groups)
        # An event about several topics was filtered before they were combined.
        is_of_several = event.topic is None and event.kind in _OF_PARTITIONS
        return is_of_group and (is_of_several or self.wants_topic(event.topic))

    def wants_topic(self, topic: str | None) -> bool:
        """Whether events of a topic may match."""
        return not self.topics or (topic is not None and any(fnmatchcase(topic, glob) for glob in self.topics))

    def wants_any(self, kinds: Collection[str]) -> bool:
        """Whether events of one of *kinds* may match."""
        return not self.kinds or any(kind in self.kinds for kind in kinds)
