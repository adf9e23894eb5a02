"""The topic of a source as it was: how many partitions, with which settings, and the command that makes it again.

Keys are hashed over the number of partitions, and groups and transactional ids over that of the coordinators' topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from shlex import join
from typing import Final, NamedTuple

from klog.base.errors import counted
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.adopt.adopted_sources import AdoptSource
from klog.formats.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from klog.formats.names import INTERNAL

_SEGMENT: Final = {"segment.bytes": "104857600"}
_OF_COORDINATORS: Final[Mapping[str, Mapping[str, str]]] = {
    CONSUMER_OFFSETS: {"cleanup.policy": "compact", "compression.type": "producer", **_SEGMENT},
    TRANSACTION_STATE: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "unclean.leader.election.enable": "false",
        **_SEGMENT,
    },
    "__share_group_state": {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "retention.ms": "-1",
        **_SEGMENT,
    },
}
"""The settings with which a broker makes them.  Kafka: GroupCoordinatorService.groupMetadataTopicConfigs,
TransactionCoordinator.transactionStateTopicConfigs, ShareCoordinatorService.shareGroupStateTopicConfigs."""
_BY_HASH: Final = dict.fromkeys(INTERNAL, "groups") | {TRANSACTION_STATE: "transactional ids"}


class FormerTopic(NamedTuple):
    """The former topic.

    *size*: the number of its partitions; *is_guess*: no metadata log has it, and it is one more than the highest of
    *numbers*, those of the directories around the source.  *replicas* of each.
    """

    name: str
    size: int
    is_guess: bool
    numbers: frozenset[int]
    replicas: int
    settings: Mapping[str, str]

    @property
    def hashed(self) -> str:
        """Names the things whose hash decides about the partition."""
        return _BY_HASH.get(self.name, "keys")

    def create_command(self) -> str:
        """Return the command that makes the topic as it was."""
        words = ["kafka-topics", "--bootstrap-server", "HOST:PORT", "--create", "--topic", self.name]
        words += ["--partitions", str(self.size), "--replication-factor", str(self.replicas)]
        for name, value in sorted(self.settings.items()):
            words += ["--config", f"{name}={value}"]
        return join(words)

    def absence(self) -> str:
        """Return the sentence for a cluster that does not have it."""
        told = f"the cluster has no topic {self.name}"
        if not self.is_guess:
            return told
        return (
            f"{told}, and no metadata log here tells how many partitions it had: {self.size} is a guess, by the"
            f" highest number here; with another number {self.hashed} go to other partitions"
        )

    def misfit(self, size: int) -> str | None:
        """Return why a partition does not fit into a topic of *size* partitions; None if it does."""
        what = f"the cluster's {self.name} has {counted(size, 'partition')}"
        if self.is_guess and self.size < size:
            return (
                f"{what}, and no metadata log here tells whether it had as many: the highest number here is"
                f" {self.size - 1}; with another number {self.hashed} are in other partitions"
            )
        if self.size != size:
            had = f"at least {self.size}" if self.is_guess else str(self.size)
            return f"{what}, and it had {had}: {self.hashed} are in other partitions"
        return None

    def doubt(self) -> str | None:
        """Return a warning for a partition that fits only by a guess; None if all of them are here."""
        if not self.is_guess or {*self.numbers} == {*range(self.size)}:
            return None
        return (
            f"no metadata log here tells how many partitions {self.name} had: {self.size} is a guess, by the highest"
            f" number here; with another number {self.hashed} are in other partitions"
        )


def former_topic(source: AdoptSource, clusters: Iterable[ClusterMetadata | None]) -> FormerTopic:
    """Return the topic of a source as the first of *clusters* has it that had the topic of that id."""
    former, topic_id = source.partition.topic or source.topic, source.partition.topic_id
    around = [one for one in source.log_dir.partitions if one.topic == former and one.number is not None]
    same = [one for one in around if None in (topic_id, one.topic_id) or one.topic_id == topic_id]
    numbers = frozenset([source.number, *(one.number for one in same if one.number is not None)])
    for cluster in clusters:
        known = None if cluster is None else cluster.topic_ids.get(former)
        if cluster is not None and known is not None and topic_id in (None, known):
            partitions = cluster.partitions[known]
            count, most = max(len(partitions), source.number + 1), max(len(one.replicas) for one in partitions.values())
            return FormerTopic(source.topic, count, False, numbers, most, dict(cluster.topic_config(former)))
    return FormerTopic(source.topic, max(numbers) + 1, True, numbers, 1, _OF_COORDINATORS.get(source.topic, {}))
