"""The options for where reading begins and ends: words, offsets or times, for all partitions or for each.

The words and the JSON are those of Spark's own Kafka source, and so are the rules: a bound that names partitions must
name all of them, and only a stream may begin at the end or end at the beginning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from klog.base.errors import UsageError

EARLIEST: Final = -2
LATEST: Final = -1
_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}

TopicPartition = tuple[str, int]


class OffsetBound(NamedTuple):
    """One end of the range to read.

    *everywhere* is the offset for each partition, `EARLIEST` or `LATEST`; None: *each* has an offset for every
    partition.  With *by_time* these are timestamps (ms) instead of offsets.  *option* is the name of its option.
    """

    option: str
    everywhere: int | None
    each: Mapping[TopicPartition, int] = {}
    by_time: bool = False

    def of(self, partition: TopicPartition) -> int:
        """Return the offset or time for *partition*.  Raises UsageError when only others are named."""
        if self.everywhere is not None:
            return self.everywhere
        if partition not in self.each:
            raise UsageError(
                f"{self.option}: nothing for {partition[0]}-{partition[1]}; name all partitions or none"
                f"{'' if self.by_time else ' (-2 is for the earliest offset, -1 for the latest)'}"
            )
        return self.each[partition]

    @property
    def named(self) -> frozenset[TopicPartition]:
        """The partitions that are named."""
        return frozenset(self.each)


def read_words(option: str, text: str) -> OffsetBound:
    """Return the bound of `startingOffsets` or `endingOffsets`.  Raises UsageError."""
    word = text.strip().lower()
    if word in _WORDS:
        return OffsetBound(option, _WORDS[word])
    return OffsetBound(option, None, read_each(option, text, EARLIEST))


def read_times(option: str, text: str) -> OffsetBound:
    """Return the bound of `…OffsetsByTimestamp`: a time for each partition.  Raises UsageError."""
    return OffsetBound(option, None, read_each(option, text, 0), by_time=True)


def read_time(option: str, text: str) -> OffsetBound:
    """Return the bound of `…Timestamp`: one time for all.  Raises UsageError."""
    if not text.strip().isdecimal():
        raise UsageError(f"{option}: {text!r} is not a time in milliseconds since 1970")
    return OffsetBound(option, int(text), by_time=True)


def read_each(option: str, text: str, least: int) -> dict[TopicPartition, int]:
    """Return the numbers, from *least* up, of `{"orders": {"0": 23, "1": -1}}`.  Raises UsageError."""
    shape = f'{option}: expected JSON like {{"orders": {{"0": 23, "1": 42}}}}'
    try:
        topics = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{shape}, not {text[:60]!r}") from error
    if not isinstance(topics, dict) or not all(isinstance(partitions, dict) for partitions in topics.values()):
        raise UsageError(f"{shape}, not {text[:60]!r}")
    found: dict[TopicPartition, int] = {}
    for topic, partitions in topics.items():
        for partition, number in partitions.items():
            if not partition.isdecimal() or type(number) is not int or not least <= number < 2**63:
                raise UsageError(f"{shape}, not {json.dumps({topic: {partition: number}})[:60]}")
            found[topic, int(partition)] = number
    return found
