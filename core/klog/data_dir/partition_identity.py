"""The identity of a partition: the ids by which directories on several disks are copies of one partition.

Directories are copies when their topic ids do not differ, the cluster ids of their log dirs do not differ, and at least
one of the two is known on both sides.  Two clusters have topics of the same name, and a topic that was deleted and
created again is another one: copies of different things are never compared, ranked or merged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

from klog.base.errors import KlogError, UsageError, counted, near_misses
from klog.data_dir.partition import Partition
from klog.formats.names import CLUSTER_METADATA, INTERNAL

_MOST_PLACES: Final = 3
_MOST_LINES: Final = 10


class IdentityError(KlogError):
    """Directories of one name are different partitions, or no file proves that they are the same."""

    def __str__(self) -> str:
        return "\n".join(self.lines)

    @property
    def lines(self) -> tuple[str, ...]:
        """A line for each name."""
        return tuple(map(str, self.args))


class PartitionIdentity(NamedTuple):
    """The partition that a directory is a copy of, beside its name; None for facts that no file contains.

    *topic_id*: from `partition.metadata`, since 2.8.  *cluster_id*: from `meta.properties` of the log dir.
    """

    topic_id: str | None
    cluster_id: str | None


class IdentityChoice(NamedTuple):
    """The user's choice between copies that names alone do not identify.

    *cluster_ids*, *topic_ids*: directories of others are left out; empty: all are kept.  *by_name*: use a directory's
    name if no file identifies it.  *options*: the names of these three options, for messages.
    """

    cluster_ids: Sequence[str] = ()
    topic_ids: Sequence[str] = ()
    by_name: bool = False
    options: tuple[str, str, str] = ("--cluster ID", "--topic-id ID", "--by-name")

    def includes(self, identity: PartitionIdentity) -> bool:
        """Whether a directory of this identity stays."""
        return all(
            not chosen or found in chosen or (found is None and self.by_name)
            for chosen, found in zip((self.topic_ids, self.cluster_ids), identity, strict=True)
        )


def identity_of(partition: Partition) -> PartitionIdentity:
    """Return the identity in the files around *partition*."""
    # The metadata log has one topic id in every cluster: it identifies nothing.
    topic_id = None if partition.topic == CLUSTER_METADATA else partition.topic_id
    return PartitionIdentity(topic_id, partition.checkpoints.cluster_id)


def are_copies(one: PartitionIdentity, other: PartitionIdentity, by_name: bool = False) -> bool:
    """Whether two directories of the same topic and partition number are copies of one partition.

    *by_name*: equal names are enough without a contradiction.
    """
    pairs = [pair for pair in zip(one, other, strict=True) if None not in pair]
    return all(here == there for here, there in pairs) and (bool(pairs) or by_name)


def are_all_copies(identities: Sequence[PartitionIdentity], by_name: bool = False) -> bool:
    """Whether directories of the same name, one for each of *identities*, are copies of one partition, each of each."""
    return all(are_copies(one, other, by_name) for one, other in combinations(identities, 2))


def group_copies(partitions: Iterable[Partition], choice: IdentityChoice = IdentityChoice()) -> list[list[Partition]]:  # noqa: B008
    """Return the copies of each partition, in the order of the first directory of each; one without a name is alone.

    Raises IdentityError, a line for each thing that has the name, when directories of one name are no copies, or
    partitions of one name are of different topics.
    """
    every = list(partitions)
    groups: dict[tuple[str, int] | str, list[Partition]] = {}
    for partition in every:
        name = partition.name
        groups.setdefault(partition.path if name is None else (name.topic, name.partition), []).append(partition)
    cluster, topic_id, _ = choice.options
    _raise([line for group in groups.values() for line in _differences(group, choice)])
    check_one_topic(every, f"{cluster} or {topic_id} chooses")
    return list(groups.values())


def check_one_topic(partitions: Iterable[Partition], advice: str) -> None:
    """Raise IdentityError, a line for each name, where directories of one name are partitions of different topics.

    A topic that was deleted and created again with fewer partitions leaves some of the old one in a copy.  *advice*:
    how to choose one of them.
    """
    places: dict[str, dict[PartitionIdentity, list[str]]] = {}
    for partition in partitions:
        if partition.name is not None:
            identities = places.setdefault(partition.name.topic, {})
            identities.setdefault(identity_of(partition), []).append(partition.path)
    _raise(
        [
            f"{topic} is {_number(len(found))} things: {_things(found)}; {advice}"
            for topic, found in places.items()
            if not all(_may_be_one(one, other) for one, other in combinations(found, 2))
        ]
    )


def _may_be_one(one: PartitionIdentity, other: PartitionIdentity) -> bool:
    return all(None in pair or pair[0] == pair[1] for pair in zip(one, other, strict=True))


def _things(places: Mapping[PartitionIdentity, Sequence[str]]) -> str:
    return ", ".join(f"{_described(identity)} in {_listed(paths)}" for identity, paths in places.items())


def _raise(problems: Sequence[str]) -> None:
    if problems:
        more = len(problems) - _MOST_LINES
        raise IdentityError(
            *problems[:_MOST_LINES], *([f"{counted(more, 'more name')} like these"] if more > 0 else [])
        )


def choose_identity(partitions: Sequence[Partition], choice: IdentityChoice) -> tuple[list[Partition], str | None]:
    """Return the partitions that *choice* includes, and a sentence about the others, None when there are none.

    Raises UsageError for an id that nothing has.
    """
    if not (choice.cluster_ids or choice.topic_ids):
        return list(partitions), None
    identities = [identity_of(partition) for partition in partitions]
    for what, wanted, found in (
        ("cluster", choice.cluster_ids, {one.cluster_id for one in identities} - {None}),
        ("topic", choice.topic_ids, {one.topic_id for one in identities} - {None}),
    ):
        known = [one for one in found if one is not None]
        for one in wanted:
            if one not in known:
                raise UsageError(f"no {what} has the id {one}{near_misses(one, known)}")
    kept = [one for one, identity in zip(partitions, identities, strict=True) if choice.includes(identity)]
    return kept, left_out(len(partitions) - len(kept), len(partitions))


def choose_with_internal(partitions: Sequence[Partition], choice: IdentityChoice) -> tuple[list[Partition], str | None]:
    """Return the same, for readers of the groups' offsets and the transactions.

    Ids of topics that clients read leave Kafka's own topics in, which have these.
    """
    kept, sentence = choose_identity(partitions, choice)
    own = (*INTERNAL, CLUSTER_METADATA)
    if choice.topic_ids and not any(one.topic in own for one in kept):
        of_cluster = choice._replace(topic_ids=())
        wanted = {*kept, *(one for one in partitions if one.topic in own and of_cluster.includes(identity_of(one)))}
        kept = [one for one in partitions if one in wanted]
        sentence = left_out(len(partitions) - len(kept), len(partitions))
    return kept, sentence


def left_out(count: int, total: int) -> str | None:
    """Return the sentence about *count* of *total* directories that a choice leaves out, None for none."""
    return f"{count} of {total} partition directories are of other ids: left out" if count else None


def _differences(group: Sequence[Partition], choice: IdentityChoice) -> list[str]:
    """Return a line for each identity among the directories of one name, none when all are copies of one partition."""
    if len(group) == 1:
        return []
    places: dict[PartitionIdentity, list[str]] = {}
    for partition in group:
        places.setdefault(identity_of(partition), []).append(partition.path)
    # Two of one identity answer for all of it, and there may be thousands.
    if are_all_copies([one for one, paths in places.items() for _ in paths[:2]], choice.by_name):
        return []
    name, identities = group[0].directory, list(places)
    cluster, topic_id, by_name = choice.options
    if len(identities) == 1:
        times = f"{name} exists {len(group)} times, and no file has its topic id: {_things(places)}"
        return [f"{times}; {by_name} takes equal names for equal"]
    advice = f"{cluster} or {topic_id} chooses"
    if any(None in identity for identity in identities) and not choice.by_name:
        advice += f", {by_name} takes equal names for equal where ids are unknown"
    return [f"{name} is {_number(len(identities))} things: {_things(places)}; {advice}"]


def _described(identity: PartitionIdentity) -> str:
    topic = f"topic {identity.topic_id}" if identity.topic_id else "a topic without an id"
    return f"{topic} of {f'cluster {identity.cluster_id}' if identity.cluster_id else 'an unknown cluster'}"


def _listed(paths: Sequence[str]) -> str:
    more = len(paths) - _MOST_PLACES
    return ", ".join(paths[:_MOST_PLACES]) + (f" and {more} more" if more > 0 else "")


def _number(count: int) -> str:
    return {2: "two", 3: "three", 4: "four"}.get(count, str(count))
