"""The followed partitions of a cluster, and the changes since the last metadata: functions of answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from klog.commands.follow.client.cluster import ClusterTopics, LeaderOfPartition, TopicPartition
from klog.commands.follow.fetch_session import FollowedPlace
from klog.commands.follow.follow_options import FollowOptions
from klog.formats.error_codes import ErrorCode
from klog.formats.names import topic_is_legal


class WantedPartitions(NamedTuple):
    """The partitions to follow.  *refused*: topics that are not followed, each with a message."""

    leaders: dict[FollowedPlace, LeaderOfPartition]
    refused: dict[str, str]


def wanted_partitions(cluster: ClusterTopics, options: FollowOptions) -> WantedPartitions:
    """Return the partitions to follow, with their leaders.

    A name that no broker gives to a topic never becomes a directory.
    """
    found = WantedPartitions({}, {})
    for topic in cluster.topics:
        if not options.wants(topic.name, topic.internal):
            continue
        if not topic_is_legal(topic.name):
            found.refused[topic.name] = f"{topic.name[:249]!r} is no name of a topic"
        elif topic.error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            found.refused[topic.name] = f"{topic.name}: not authorized ({topic.error.name})"
        for one in topic.partitions if topic.name not in found.refused else ():
            if one.partition >= 0 and options.wants_number(one.partition):
                found.leaders[FollowedPlace(topic.name, topic.topic_id, one.partition)] = one
    return found


def unmatched_globs(cluster: ClusterTopics, options: FollowOptions) -> list[str]:
    """Return the names and globs of the options that no topic fits."""
    names = [topic.name for topic in cluster.topics if options.wants(topic.name, topic.internal)]
    return [glob for glob in options.topics if not any(fnmatchcase(name, glob) for name in names)]


class TopicChanges(NamedTuple):
    """The changes.  *new*: places not followed yet; *renewed*: the old place of each topic created again, with the new
    one; *gone*: deleted ones."""

    new: list[FollowedPlace]
    renewed: dict[FollowedPlace, FollowedPlace]
    gone: list[FollowedPlace]


def changes(followed: Iterable[FollowedPlace], leaders: Mapping[FollowedPlace, LeaderOfPartition]) -> TopicChanges:
    """Return the differences between the followed partitions and those of the cluster."""
    before: dict[TopicPartition, FollowedPlace] = {(place.topic, place.number): place for place in followed}
    now: dict[TopicPartition, FollowedPlace] = {(place.topic, place.number): place for place in leaders}
    return TopicChanges(
        [place for key, place in now.items() if key not in before],
        {before[key]: place for key, place in now.items() if key in before and before[key] != place},
        [place for key, place in before.items() if key not in now],
    )
