"""The records acknowledged to producers, and the effects that the cluster's own rules may have had on them since."""

from __future__ import annotations

import enum
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

Place = tuple[str, int]
"""A topic id and a partition."""
Content = tuple["bytes | None", "bytes | None"]
"""Key and value of a record."""


class Fate(enum.Enum):
    """The end of the transaction of a record."""

    PLAIN = "plain"
    COMMITTED = "committed"
    ABORTED = "aborted"
    OPEN = "open"


@dataclass
class Sent:
    """An acknowledged record.  *phase*: the part of the cluster's history that it was sent in."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    phase: int
    fate: Fate = Fate.PLAIN
    transaction: str = ""


@dataclass
class Topic:
    """A topic, by its id.  *replicas* of each partition; *is_deleted*: another one has its name since."""

    name: str
    identity: str
    replicas: list[list[int]]
    settings: dict[str, str]
    is_deleted: bool = False

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.settings.get("cleanup.policy", "delete")

    @property
    def retention(self) -> tuple[int, int]:
        """Return retention.ms and retention.bytes, -1 for none."""
        if "delete" not in self.settings.get("cleanup.policy", "delete"):
            return -1, -1
        return int(self.settings.get("retention.ms", -1)), int(self.settings.get("retention.bytes", -1))


@dataclass
class Ledger:
    """All of it.  *trimmed*: where DeleteRecords has moved the log start of a partition to.

    *aliases*: ids of topics that were made again, and the ids that the ledger has for them.
    """

    topics: dict[str, Topic] = field(default_factory=dict)
    sent: dict[Place, dict[int, Sent]] = field(default_factory=lambda: defaultdict(dict))
    trimmed: dict[Place, int] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def named(self, name: str) -> Topic:
        """Return the topic that has this name now."""
        return next(topic for topic in self.topics.values() if topic.name == name and not topic.is_deleted)

    def places(self) -> Iterator[tuple[Topic, int, dict[int, Sent]]]:
        """Yield the partitions of all topics that are not deleted, with their sent records."""
        for topic in self.topics.values():
            if not topic.is_deleted:
                for number in range(len(topic.replicas)):
                    yield topic, number, self.sent[topic.identity, number]


def superseded(records: dict[int, Content], sent: dict[int, Sent]) -> set[int]:
    """Return the offsets of those *records* of a compacted partition that a cleaner may remove.

    A later record of the same key that is not aborted or undecided allows it; nothing of a tombstone has to be left
    once its key is gone below it.
    """
    latest: dict[bytes | None, int] = {}
    for offset in sorted(records):
        if offset not in sent or sent[offset].fate in (Fate.PLAIN, Fate.COMMITTED):
            latest[records[offset][0]] = offset
    found = set()
    for offset, (key, value) in records.items():
        last = latest.get(key, -1)
        if offset < last or (offset == last and value is None):
            found.add(offset)
    return found
