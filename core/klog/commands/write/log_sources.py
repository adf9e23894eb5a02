"""The settings of topics that are written, as the log dirs of other logs have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from klog.cluster.metadata.topic_config import TopicConfig, topic_configs
from klog.data_dir.identity import check_one_topic
from klog.data_dir.partition import Partition
from klog.data_dir.selection import PartitionQuery, Selection
from klog.formats.follow_file import FollowFile
from klog.formats.names import CLUSTER_METADATA, PartitionState


class SourceTopics(NamedTuple):
    """The settings of topics in their log dirs, and their numbers of partitions, by name."""

    configs: Mapping[str, TopicConfig]
    counts: Mapping[str, int]


def source_topics(paths: Sequence[str], config: Mapping[str, str]) -> SourceTopics:
    """Return the facts about the topics of *paths*: log dirs and partition directories; of settings the first counts.

    *config*: settings of the command line.  Raises IdentityError if directories of one name are of different topics,
    UsageError, DamagedError, UnreadableError.
    """
    selections = PartitionQuery(paths).selections()
    read = [[part for part in one.partitions if _is_read(part, one)] for one in selections]
    check_one_topic(chain.from_iterable(read), "name the partition directories of one of them")
    configs: dict[str, TopicConfig] = {}
    counts: dict[str, int] = {}
    for partitions, topics in zip(read, topic_configs([one.log_dir for one in selections], config), strict=True):
        for partition in partitions:
            topic = partition.topic or ""
            configs.setdefault(topic, topics)
            counts[topic] = max(counts.get(topic, 0), *_counts(partition, topics))
    return SourceTopics(configs, counts)


def _is_read(partition: Partition, selection: Selection) -> bool:
    is_current = partition.state is PartitionState.CURRENT
    return partition.topic != CLUSTER_METADATA and (is_current or partition.directory in selection.named)


def _counts(partition: Partition, topics: TopicConfig) -> Iterator[int]:
    """Yield lower bounds of a topic's partition count: from directory, metadata log and copy."""
    yield (partition.number or 0) + 1
    known, topic = topics.metadata, partition.topic or ""
    if known is not None and partition.topic_id is not None and known.topic_ids.get(topic) == partition.topic_id:
        yield len(known.partitions[partition.topic_id])
    followed = partition.checkpoints.follow_file
    if isinstance(followed, FollowFile) and topic in followed.topics:
        yield followed.topics[topic].partitions
