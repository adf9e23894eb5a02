"""The topics of a tier that are to be attached, under the names that they have in the cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from klog.base.errors import ExitCode, KlogError, UsageError, near_misses
from klog.cluster.remote_log.events import TopicIdPartition
from klog.commands.remote.attach.lost_cluster import LostCluster
from klog.commands.remote.attach.target import TargetBroker
from klog.data_dir.selection import PartitionChoice, is_selected
from klog.formats.names import topic_is_legal
from klog.tier.local_layout import LocalLayout
from klog.tier.tier import Tier, TierListing


class NothingWantedError(KlogError):
    """The tier has no objects of what was named."""

    exit_code = ExitCode.PROBLEMS_LEFT


@dataclass
class WantedTopic:
    """A topic, and its partitions that are wanted.

    *every*: the numbers of all its partitions that have objects.  *is_ambiguous*: the tier has another topic of this
    name, and nothing tells which one is meant.
    """

    name: str
    topic_id: str
    partitions: list[TopicIdPartition] = field(default_factory=list)
    every: set[int] = field(default_factory=set)
    is_ambiguous: bool = False


@dataclass(frozen=True)
class Wish:
    """The user's choice; *name*: of the only topic."""

    topics: Sequence[str] = ()
    numbers: Sequence[PartitionChoice] = ()
    topic_ids: Sequence[str] = ()
    name: str | None = None


def wanted_topics(
    tier: Tier, listing: TierListing, target: TargetBroker, lost: LostCluster, wish: Wish
) -> list[WantedTopic]:
    """Return the topics by name.  Raises NothingWantedError, UsageError for a name that the objects cannot have."""
    found: dict[str, WantedTopic] = {}
    own = target.cluster.state.topics.names
    for (topic_id, number), partition in sorted(listing.partitions.items()):
        name = own.get(topic_id) or lost.name_of(topic_id) or partition.topic
        topic = found.setdefault(topic_id, WantedTopic(name, topic_id))
        topic.every.add(number)
        if (not wish.topic_ids or topic_id in wish.topic_ids) and is_selected(name, number, wish.topics, wish.numbers):
            topic.partitions.append(TopicIdPartition(name, number, topic_id))
    chosen = [topic for topic in found.values() if topic.partitions]
    for glob in wish.topics:
        if not any(is_selected(topic.name, None, (glob,), ()) for topic in found.values()):
            names = sorted({topic.name for topic in found.values()})
            raise NothingWantedError(f"no topic {glob} in {tier.uri}{near_misses(glob, names)}")
    if not chosen:
        raise NothingWantedError(f"{tier.uri}: no objects of what was named")
    if wish.name is not None:
        _rename(tier, chosen, wish.name)
    _mark_ambiguous(chosen, target, lost)
    return sorted(chosen, key=lambda topic: (topic.name, topic.topic_id))


def _rename(tier: Tier, topics: Sequence[WantedTopic], name: str) -> None:
    """Give the only topic another name: a storage manager looks for its objects by the name, behind a key prefix."""
    if len(topics) > 1:
        raise UsageError(f"--as {name}: {len(topics)} topics are chosen: name one with --topic")
    topic = topics[0]
    is_local = tier.layout is not None and tier.layout.name == LocalLayout.name
    if not topic_is_legal(name) or not topic.name.endswith(name) or (is_local and topic.name != name):
        raise UsageError(
            f"--as {name}: the storage manager looks for objects by the topic's name, and these have {topic.name};"
            " another name is possible only where a key prefix without a slash is in front of it"
        )
    topic.name = name
    topic.partitions = [one._replace(topic=name) for one in topic.partitions]


def _mark_ambiguous(topics: Sequence[WantedTopic], target: TargetBroker, lost: LostCluster) -> None:
    names = [topic.name for topic in topics]
    known = lost.cluster.topic_ids if lost.cluster is not None else {}
    for topic in topics:
        told = target.cluster.topic_ids.get(topic.name) or known.get(topic.name)
        topic.is_ambiguous = names.count(topic.name) > 1 and told != topic.topic_id
