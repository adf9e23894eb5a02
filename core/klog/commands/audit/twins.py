"""Groups of batches with one digest, and the legal twins: by pair of topics, or as part of a run.

Only batches with the same CRC count, or those that a broker may have recompressed (another codec).  A program that
writes the same records to two topics, and a mirror, make many twins, side by side; a misrouted batch is single.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations, groupby, islice, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from klog.commands.audit.digest_table import MOST_PLACES, Entry, batch_number, codec_of, entries_of

FEWEST_SHARED: Final = 3
SHARE: Final = 0.5
FEWEST_MANY: Final = 20
SHARE_OF_MANY: Final = 0.1
SHORTEST_RUN: Final = 3
"""Twins of a pair of topics are legal if there are at least 3 and half of the smaller one's batches are among them, or
20 and a tenth; or if they are in a run of three: neighbours are twins of neighbours, in the same order."""


class TwinPlace(NamedTuple):
    """The place of a batch in a group: the place of its partition in the audit, its number among the partition's data
    batches.

    *position*: bytes from the start of log *log*.
    """

    partition: int
    number: int
    log: int
    position: int
    crc: int
    codec: int


Group = tuple[TwinPlace, ...]
"""Batches with one digest, in two partitions at least, by log and position."""
TopicPair = tuple[str, str]
"""The two are sorted; a topic with itself is a pair, too."""


class LegalTwins(NamedTuple):
    """Twins between two topics that are no fault: how many groups, and why: `share`, `run` or `repeats`."""

    topics: TopicPair
    groups: int
    why: str


class PartitionNames(NamedTuple):
    """The facts about partitions for the search for twins, by their places: topics, and names; and of each log its
    partition and the number of its first data batch in the partition."""

    topics: Sequence[str]
    names: Sequence[str]
    partition_of: Sequence[int]
    first_number: Sequence[int]


class Repeats(NamedTuple):
    """A batch that a partition has several times: how often again, and the first two places."""

    batches: int
    first: TwinPlace
    second: TwinPlace


def groups_in(repeated: Iterable[bytes], known: PartitionNames) -> Iterator[Group]:
    """Yield the groups among entries sorted by digest, log and position."""
    for places, _ in _by_digest(repeated, known):
        if len(places) == 2:
            one, other = places
            if known.names[one.partition] == known.names[other.partition]:
                continue
            if one.crc == other.crc or one.codec != other.codec:
                yield places
        else:
            yield from _split(places, known)


def repeats_in(repeated: Iterable[bytes], known: PartitionNames) -> Iterator[Repeats]:
    """Yield the batches that a partition has several times."""
    for places, more in _by_digest(repeated, known):
        by_partition: dict[tuple[int, int], list[TwinPlace]] = {}
        for place in places:
            by_partition.setdefault((place.partition, place.crc), []).append(place)
        for (partition, _), found in by_partition.items():
            if len(found) > 1:
                again = len(found) - 1 + sum(more[log] for log in more if known.partition_of[log] == partition)
                yield Repeats(again, found[0], found[1])


def _by_digest(repeated: Iterable[bytes], known: PartitionNames) -> Iterator[tuple[Group, Counter[int]]]:
    """Yield the places of each digest, `MOST_PLACES` of a log at most; with how many more a log has."""
    partition_of, first_number, none = known.partition_of, known.first_number, Counter[int]()
    for content in repeated:
        for _, entries in groupby(entries_of(content), key=itemgetter(0)):
            more = none
            one_by_one = iter(entries)
            kept = list(islice(one_by_one, MOST_PLACES))
            if len(kept) == MOST_PLACES:
                more = Counter()
                kept = list(_kept(chain(kept, one_by_one), more))
            places = [
                TwinPlace(partition_of[log], first_number[log] + batch_number(tag), log, position, crc, codec_of(tag))
                for _, log, position, crc, tag in kept
            ]
            yield tuple(places), more


def _kept(entries: Iterable[Entry], more: Counter[int]) -> Iterator[Entry]:
    """Yield `MOST_PLACES` entries of each log; count the others in *more*."""
    seen: Counter[int] = Counter()
    for entry in entries:
        log = entry[1]
        seen[log] += 1
        if seen[log] <= MOST_PLACES:
            yield entry
        else:
            more[log] += 1


def _split(places: Group, known: PartitionNames) -> Iterator[Group]:
    """Yield the groups among places of one digest: those of one CRC, or all, where codecs differ."""
    if len({place.codec for place in places}) > 1:
        parts = [list(places)]
    else:
        by_crc: dict[int, list[TwinPlace]] = {}
        for place in places:
            by_crc.setdefault(place.crc, []).append(place)
        parts = list(by_crc.values())
    for part in parts:
        if len({known.names[place.partition] for place in part}) > 1:
            yield tuple(part)


def topic_pair(one: TwinPlace, other: TwinPlace, known: PartitionNames) -> TopicPair:
    """Return the topics of two places, in order."""
    topic, second = known.topics[one.partition], known.topics[other.partition]
    return (topic, second) if topic <= second else (second, topic)


def topic_pairs(group: Group, known: PartitionNames) -> set[TopicPair]:
    """Return the pairs of topics between which the group has twins: places in two partitions, of the same CRC."""
    if len(group) == 2:
        return {topic_pair(*group, known)} if group[0].crc == group[1].crc else set()
    by_crc: dict[int, dict[str, set[str]]] = {}
    for place in group:
        names = by_crc.setdefault(place.crc, {}).setdefault(known.topics[place.partition], set())
        names.add(known.names[place.partition])
    pairs = {pair for topics in by_crc.values() for pair in combinations(sorted(topics), 2)}
    return pairs | {(one, one) for topics in by_crc.values() for one, names in topics.items() if len(names) > 1}


def legal_pairs(groups: Iterable[Group], known: PartitionNames, batches: Mapping[str, int]) -> Counter[TopicPair]:
    """Return the pairs of topics whose twins are legal by their share, with their number.

    *batches*: data batches of each topic.
    """
    counts: Counter[TopicPair] = Counter()
    for group in groups:
        for pair in topic_pairs(group, known):
            counts[pair] += 1
    return Counter({pair: n for pair, n in counts.items() if is_legal_share(n, min(batches[one] for one in pair))})


def is_legal_share(groups: int, batches: int) -> bool:
    """Whether so many twins are legal for a pair of topics whose smaller one has so many data *batches*."""
    return (groups >= FEWEST_SHARED and groups >= SHARE * batches) or (
        groups >= FEWEST_MANY and groups >= SHARE_OF_MANY * batches
    )


class TwinJudge:
    """Decides which places of a group are legal copies of each other.

    *shared*: pairs of topics that are legal as a whole.  *groups*: those that this does not settle: runs are found in
    them.
    """

    def __init__(self, groups: Sequence[Group], known: PartitionNames, shared: Mapping[TopicPair, int]) -> None:
        self._known, self._shared = known, shared
        self._runs = _runs(groups, known)

    def why_legal(self, one: TwinPlace, other: TwinPlace) -> str | None:
        """Return why two places of a group are legal twins; None if they are not."""
        names = self._known.names
        if names[one.partition] == names[other.partition]:
            return "same"
        if self._shared and topic_pair(one, other, self._known) in self._shared:
            return "share"
        if other.partition < one.partition:
            one, other = other, one
        return "run" if (one.partition, other.partition, one.number, other.number) in self._runs else None

    def classes(self, group: Group) -> list[list[TwinPlace]]:
        """Return the places of a group, those together that are legal copies, by their first place."""
        if len(group) == 2:
            return [sorted(group)] if self.why_legal(*group) else [[place] for place in sorted(group)]
        found: list[list[TwinPlace]] = []
        for place in group:
            near = [some for some in found if any(self.why_legal(place, one) for one in some)]
            if near:
                near[0].append(place)
                for some in near[1:]:
                    near[0].extend(some)
                    found.remove(some)
            else:
                found.append([place])
        return sorted(sorted(some) for some in found)


def is_settled(group: Group, known: PartitionNames, shared: Mapping[TopicPair, int]) -> bool:
    """Whether the share of pairs of topics alone makes all places of a group copies of each other."""
    if len(group) == 2:
        return bool(shared) and topic_pair(*group, known) in shared
    return len(TwinJudge((), known, shared).classes(group)) == 1


def _runs(groups: Sequence[Group], known: PartitionNames) -> set[tuple[int, int, int, int]]:
    """Return the twins (two partitions, two numbers) in runs."""
    twins: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for group in groups:
        for one, other in combinations(group, 2):
            if known.names[one.partition] != known.names[other.partition]:
                if other.partition < one.partition:
                    one, other = other, one
                twins.setdefault((one.partition, other.partition), set()).add((one.number, other.number))
    found: set[tuple[int, int, int, int]] = set()
    for pair, numbers in twins.items():
        for run in _stretches(sorted(numbers, key=lambda at: (at[1] - at[0], at[0]))):
            if len(run) >= SHORTEST_RUN:
                found.update((*pair, *at) for at in run)
    return found


def _stretches(numbers: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yield the stretches in which both numbers go up by one."""
    run = list(numbers[:1])
    for before, this in pairwise(numbers):
        if this == (before[0] + 1, before[1] + 1):
            run.append(this)
        else:
            yield run
            run = [this]
    if run:
        yield run
