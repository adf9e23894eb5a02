"""The partitions to read: `subscribe`, `subscribePattern`, `assign`, or all except internal topics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from klog.base.errors import UsageError, near_misses
from klog.data_dir.partition import Partition
from klog.formats.names import CLUSTER_METADATA, INTERNAL

KAFKAS_OWN: Final = frozenset((*INTERNAL, CLUSTER_METADATA))
"""Topics that no pattern matches.  Kafka: Topic.isInternal; the last is no topic to a client."""


class Topics(NamedTuple):
    """At most one of the three is set; with none of them all topics but internal ones are selected."""

    subscribed: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: Mapping[str, frozenset[int]] = {}

    def choose(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Return those of *partitions* that are meant.  Raises UsageError for a name that is not among them."""
        found = list(partitions)
        self._hold_against(found)
        return [partition for partition in found if self.mean(partition.topic, partition.number)]

    def mean(self, topic: str | None, number: int | None) -> bool:
        """Whether a partition is selected; *topic* and *number* are None if the directory's name has none."""
        if self.assigned:
            return topic is not None and number in self.assigned.get(topic, ())
        if self.subscribed:
            return topic in self.subscribed
        if topic in KAFKAS_OWN:
            return False
        return self.pattern is None or (topic is not None and re.fullmatch(self.pattern, topic) is not None)

    def _hold_against(self, partitions: list[Partition]) -> None:
        known = {(partition.topic, partition.number) for partition in partitions}
        topics = {topic for topic, _ in known if topic is not None}
        for option, names in (("subscribe", self.subscribed), ("assign", tuple(self.assigned))):
            for name in names:
                if name not in topics:
                    raise UsageError(f"{option}: no topic {name} here{near_misses(name, topics)}")
        for topic, numbers in self.assigned.items():
            for number in sorted(numbers):
                if (topic, number) not in known:
                    raise UsageError(f"assign: no partition {number} of {topic} here")


def read_topics(subscribe: str | None, pattern: str | None, assign: str | None) -> Topics:
    """Parse the three options.  Raises UsageError for more than one, and for a malformed one."""
    given = {"subscribe": subscribe, "subscribePattern": pattern, "assign": assign}
    names = [name for name, text in given.items() if text is not None]
    if len(names) > 1:
        raise UsageError(f"{' and '.join(names)}: at most one of the three")
    if subscribe is not None:
        topics = tuple(dict.fromkeys(name.strip() for name in subscribe.split(",") if name.strip()))
        if not topics:
            raise UsageError("subscribe: no topic is given")
        return Topics(subscribed=topics)
    if pattern is not None:
        return Topics(pattern=_checked(pattern))
    return Topics() if assign is None else Topics(assigned=_assigned(assign))


def _checked(pattern: str) -> str:
    if not pattern:
        raise UsageError("subscribePattern: it is empty")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise UsageError(f"subscribePattern: {pattern!r} is no regular expression: {error}") from error
    return pattern


def _assigned(text: str) -> dict[str, frozenset[int]]:
    shape = f'assign: expected JSON like {{"orders": [0, 1]}}, not {text[:60]!r}'
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(shape) from error
    if not isinstance(found, dict) or not found:
        raise UsageError(shape)
    for numbers in found.values():
        if not isinstance(numbers, list) or not numbers or not all(type(each) is int and each >= 0 for each in numbers):
            raise UsageError(shape)
    return {topic: frozenset(numbers) for topic, numbers in found.items()}
