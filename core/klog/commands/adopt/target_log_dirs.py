"""The target of adopted partitions: the log dirs of one broker, and its cluster's facts about each partition.

The topic of a source as it was decides whether a partition fits: keys are hashed over the number of partitions, and
groups and transactional ids over that of the coordinators' topics.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from shlex import join, quote
from typing import Final, NamedTuple

from klog.base.errors import KlogError, UsageError, counted
from klog.change.partition_plan import checkpoints
from klog.cluster.assigned_log_dir import assigned_log_dir, future_in_place
from klog.cluster.coordinator.transactional_ids import transaction_images
from klog.cluster.metadata.change_history import MetadataChange, PartitionSubject, read_history
from klog.cluster.metadata.metadata_loader import ClusterMetadata, read_metadata
from klog.cluster.metadata.metadata_replay import Problems
from klog.cluster.metadata.topic_config import TopicConfig
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.commands.adopt.adopted_sources import AdoptSource, Key
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from klog.formats.names import CLUSTER_METADATA, INTERNAL, PartitionState, parse_partition
from klog.partition.start.metadata_behind import FIRST_SHIFTED_ID, next_producer_id, reuse_note
from klog.partition.start.metadata_log import recover_metadata

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
            f"{told}, and no metadata log here shows how many partitions it had: {self.size} is a guess, by the"
            f" highest number here; with another number {self.hashed} go to other partitions"
        )

    def misfit(self, size: int) -> str | None:
        """Return why a partition does not fit into a topic of *size* partitions; None if it does."""
        what = f"the cluster's {self.name} has {counted(size, 'partition')}"
        if self.is_guess and self.size < size:
            return (
                f"{what}, and no metadata log here shows whether it had as many: the highest number here is"
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
            f"no metadata log here shows how many partitions {self.name} had: {self.size} is a guess, by the highest"
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


class AdoptRefusal(NamedTuple):
    """Why a source is not adopted: the *id* of the reason, a sentence, and the command that leads on."""

    source: str
    id: str
    message: str
    next: str


class RefusedError(KlogError):
    """A source that is not adopted."""

    def __init__(self, refusal: AdoptRefusal) -> None:
        super().__init__(f"{refusal.source}: {refusal.message}")
        self.refusal = refusal


def refuse(source: AdoptSource, reason: str, message: str, *command: str) -> RefusedError:
    """Return the error for a source; *command*: the next step, as words, or as a text of its own."""
    return RefusedError(
        AdoptRefusal(source.path, reason, message, join(command) if len(command) > 1 else "".join(command))
    )


class KnownProducers(NamedTuple):
    """The producers of a source that are kept: those with ids below *end*.

    *is_own*: the target's metadata log has assigned them, or they are kept on request; those that klog has shifted are
    then kept, too.
    """

    end: int
    is_own: bool

    def has(self, producer_id: int) -> bool:
        """Whether a producer stays known."""
        return producer_id < self.end or (self.is_own and producer_id >= FIRST_SHIFTED_ID)


class AdoptTarget(NamedTuple):
    """The place of a partition.

    *log_dir*: its number among the targets.  *partition*: its directory, which need not be there.  *epoch*: the leader
    epoch that the metadata have.  *replicas*: the nodes that have a copy.  *into*: all log dirs of the broker.
    """

    key: Key
    topic_id: str
    epoch: int
    replicas: tuple[int, ...]
    log_dir: int
    partition: Partition
    into: tuple[str, ...]

    def command(self, source: AdoptSource, *more: str) -> str:
        """Return the command that adopts a source here, with *more* options."""
        from klog.partition.tiered.mounts import tier_words

        named = parse_partition(os.path.basename(os.path.abspath(source.path)))
        is_told = "--as" in more or (named is not None and (named.topic, named.partition) == self.key)
        words = [source.path, *(() if is_told else ("--as", self.name)), *tier_words()]
        return join(["klog", "adopt", *words, *(word for path in self.into for word in ("--to", path)), *more])

    @property
    def name(self) -> str:
        """The name of a partition directory."""
        return f"{self.key[0]}-{self.key[1]}"

    @property
    def is_there(self) -> bool:
        """Whether there is a directory already."""
        return os.path.isdir(self.partition.path)


class TargetLogDirs:
    """The log dirs of the broker that receives the partitions: those given, one of which has the metadata log.

    Raises UsageError for log dirs of several nodes, KlogError if no metadata log has the cluster's topics, or if a
    broker would refuse a checkpoint.
    """

    def __init__(self, log_dirs: Sequence[LogDir]) -> None:
        self.log_dirs = log_dirs
        nodes = {one.node_id for one in log_dirs}
        if len(nodes) > 1:
            raise UsageError(f"--to: log dirs of different nodes ({', '.join(map(str, nodes))}): one broker at a time")
        having = [one for one in log_dirs if one.metadata_log is not None]
        if not having:
            raise KlogError(
                f"{log_dirs[0].path}: no {CLUSTER_METADATA}-0 here; give the metadata log dir, too, with --to"
            )
        self.node_id = log_dirs[0].node_id
        self._metadata_dir = having[0]
        found = recover_metadata(having[0].path)
        if found.failure is not None or found.cluster is None:
            why = found.failure.message if found.failure is not None else found.notes[0].message
            raise KlogError(f"{why}; first: restore it, see klog doctor {quote(having[0].path)}")
        self.cluster: ClusterMetadata = found.cluster
        self.notes = [note.message for note in found.notes]
        self._histories: dict[str, list[MetadataChange]] = {}
        self.configs = [TopicConfig(one, metadata=having[0]) for one in log_dirs]
        for one in log_dirs:
            checkpoints.check_legible(one)

    @property
    def cluster_id(self) -> str | None:
        """The cluster of the broker."""
        return self._metadata_dir.cluster_id

    def target(self, source: AdoptSource) -> AdoptTarget:
        """Return the target of a source.  Raises RefusedError."""
        key = source.topic, source.number
        if source.topic == CLUSTER_METADATA:
            known = (quote(one.path) for one in self.log_dirs)
            message = "the metadata log is no partition that a broker leads or follows"
            raise refuse(source, "cluster-metadata", message, f"klog metadata plan {' '.join(known)}")
        topic_id = self.cluster.topic_ids.get(source.topic)
        registration = self.cluster.partition(*key)
        if topic_id is None:
            former = self.former(source)
            raise refuse(source, "topic-unknown", former.absence(), former.create_command())
        if registration is None:
            raise self._has_fewer(source, len(self.cluster.partitions[topic_id]))
        if self.node_id not in registration.replicas:
            nodes = ", ".join(map(str, registration.replicas))
            message = f"its replicas are on {nodes}, and these are log dirs of node {self.node_id}"
            raise refuse(source, "not-assigned", message, f"klog adopt {quote(source.path)} --to LOG_DIR_OF_{nodes}")
        number = self._place(source, key, registration)
        if (why := future_in_place(self.log_dirs[number], *key)) is not None:
            raise refuse(source, "future-in-place", why, "klog", "doctor", self.log_dirs[number].path)
        path = os.path.join(self.log_dirs[number].path, f"{key[0]}-{key[1]}")
        partition = Partition(path, self.log_dirs[number].checkpoints)
        into = tuple(one.path for one in self.log_dirs)
        return AdoptTarget(key, topic_id, registration.leader_epoch, registration.replicas, number, partition, into)

    def _place(self, source: AdoptSource, key: Key, registration: PartitionRegistration) -> int:
        """Return the number of the log dir that has the partition, or to which it is assigned."""
        for number, one in enumerate(self.log_dirs):
            if any((p.topic, p.number) == key and p.state is PartitionState.CURRENT for p in one.partitions):
                return number
        node = self.node_id if self.node_id is not None else -1
        at = registration.replicas.index(node)
        assigned = registration.directories[at] if registration.directories else None
        broker = self.cluster.brokers.get(node)
        place = assigned_log_dir(assigned, self.log_dirs, broker.log_dirs if broker is not None else ())
        if place.number is not None:
            return place.number
        given = " ".join(f"--to {quote(one.path)}" for one in self.log_dirs)
        message = f"it is assigned to the log dir with directory.id={' or '.join(place.absent)}, which is not given"
        raise refuse(source, "not-assigned", message, f"klog adopt {quote(source.path)} {given} --to THAT_LOG_DIR")

    def known_producers(self, source: AdoptSource) -> KnownProducers:
        """Return which producers of a source this metadata log has certainly handed out.

        A metadata log that was made anew begins at id 0 again, in a cluster of the same id, too: only a topic that this
        log has made can have producers of its own.
        """
        is_own = self.knows_topic(source)
        return KnownProducers(next_producer_id(self.cluster) if is_own else 0, is_own)

    def knows_topic(self, source: AdoptSource) -> bool:
        """Whether the source is of a topic that this metadata log has, or had."""
        topic_id = source.partition.topic_id
        if topic_id is None or topic_id in self.cluster.state.topics.names:
            return topic_id is not None
        return any(topic_id == change.state["topic_id"] for change in self._history(source))

    def is_foreign(self, source: AdoptSource) -> bool:
        """Whether the source is certainly not of this metadata log."""
        if source.partition.topic_id is not None:
            return not self.knows_topic(source)
        return source.cluster_id not in (None, self.cluster_id)

    def check_coordinators(self, source: AdoptSource, target: AdoptTarget, is_named: bool) -> list[str]:
        """Return the warnings about a partition of the coordinators' topics; none for another one.

        *is_named*: the operator has named that place, although it may not fit.  Raises RefusedError.
        """
        if source.topic not in INTERNAL or source.partition.topic_id == target.topic_id:
            return []
        as_named = target.command(source, "--as", target.name)
        # In a cluster of another id its coordinators cannot be these.  The same id proves nothing about it.
        if (source.cluster_id is None or source.cluster_id != self.cluster_id) and not is_named:
            message = (
                "coordinators keep their state in it: from another cluster, all its partitions must be adopted together"
            )
            raise refuse(source, "internal-topic", message, as_named)
        former = self.former(source)
        misfit = former.misfit(len(self.cluster.partitions[target.topic_id]))
        if misfit is not None and not is_named:
            raise refuse(source, "internal-topic", misfit, *content_command(source))
        reuse = self._reused_ids(source)
        if reuse is not None and not is_named:
            raise refuse(source, "internal-topic", reuse, as_named)
        return [f"{target.name}: {told}" for told in (misfit or former.doubt(), reuse) if told is not None]

    def _reused_ids(self, source: AdoptSource) -> str | None:
        """Return a warning if transactional ids keep their producer ids."""
        if source.topic != TRANSACTION_STATE:
            return None
        ids = {one.producer_id for one in transaction_images([source.partition]) if one.producer_id >= 0}
        return reuse_note(self.cluster, ids, self.knows_topic(source))

    # the former topic

    def former(self, source: AdoptSource) -> FormerTopic:
        """Return the former topic of a source, as far as a metadata log still has it."""
        return former_topic(source, [self._deleted(source), source.metadata])

    def _deleted(self, source: AdoptSource) -> ClusterMetadata | None:
        """Return the cluster as of just before the topic was deleted; None if the metadata log no longer has that.

        Settings go in the same batch of records as the topic, with the removal before or behind theirs.
        """
        changes = self._history(source)
        gone = next((at for at in range(len(changes) - 1, 0, -1) if changes[at].state["replicas"] is None), None)
        if gone is None:
            return None
        try:
            return read_metadata(self._metadata_dir, changes[gone].offset)
        except KlogError:
            return None

    def _history(self, source: AdoptSource) -> list[MetadataChange]:
        """Return the metadata log's changes of the topics of a source's name that a start finds; nothing if it cannot.

        Each topic has a partition 0, which represents all of it.
        """
        topic = source.partition.topic or source.topic
        if topic not in self._histories:
            log = self._metadata_dir.metadata_log
            assert log is not None, "it has been read"
            try:
                changes = list(read_history(log, PartitionSubject(topic, 0), Problems()))
            except KlogError:
                changes = []
            self._histories[topic] = [one for one in changes if one.offset <= self.cluster.end_offset]
        return self._histories[topic]

    @staticmethod
    def _has_fewer(source: AdoptSource, count: int) -> RefusedError:
        message = f"the cluster's {source.topic} has {counted(count, 'partition')}"
        if source.topic in INTERNAL:
            message += (
                ", over which the coordinators hash its records: with more partitions they would not find these records"
            )
            return refuse(source, "internal-topic", message, *content_command(source))
        words = ["kafka-topics", "--bootstrap-server", "HOST:PORT", "--alter", "--topic", source.topic]
        message += "; with more, new records of a key may go to another partition than its former ones"
        return refuse(source, "topic-unknown", message, *words, "--partitions", str(source.number + 1))


def content_command(source: AdoptSource) -> tuple[str, ...]:
    """Return the command that shows the content of a coordinator's partition."""
    if source.topic == CONSUMER_OFFSETS:
        return ("klog", "groups", source.path, "--output", "reset-offsets", "--to", "offsets.csv")
    return ("klog", "transactions" if source.topic == TRANSACTION_STATE else "dump", source.path)
