"""The leader of a partition after brokers return: it depends on the controller's knowledge, never on the content of a
disk.

    isr                 the first replica in assignment order that is back and in the ISR
    elr                 the same in the eligible leader replicas, when the ISR is empty
    last known leader   ISR and ELR are empty, and the one last known leader is back
    unclean             the topic allows unclean election: any replica that is back, whichever registers first
    none                no replica leads

Kafka: PartitionChangeBuilder.electLeader, ReplicationControlManager.handleUncleanBrokerShutdown.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY, LOST_DIRECTORY = (
    "AAAAAAAAAAAAAAAAAAAAAA",
    "AAAAAAAAAAAAAAAAAAAAAQ",
    "AAAAAAAAAAAAAAAAAAAAAg",
)
"""Ids that do not identify a directory.  Kafka: DirectoryId."""


class ElectionReason(StrEnum):
    """Why a replica leads, or that none does."""

    ISR = "isr"
    ELR = "elr"
    LAST_KNOWN_LEADER = "last known leader"
    UNCLEAN = "unclean"
    NONE = "none"


class ReplicaSet(NamedTuple):
    """A partition as the controller has it: node ids, replicas in the order of the assignment.

    *leader*: -1 for none.  *directories*: for each replica the id of its log dir, empty before 3.7.
    """

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    last_known_elr: tuple[int, ...]
    leader: int
    directories: tuple[str, ...] = ()

    def directory_of(self, node: int) -> str | None:
        """Return the id of the log dir that has the replica of *node*; None if the assignment names none."""
        if node not in self.replicas or not self.directories:
            return None
        return self.directories[self.replicas.index(node)]


class BrokerDisks(NamedTuple):
    """The identity of a broker's disks when it registers.

    *epoch*: the broker epoch in all its clean-shutdown markers; None without a marker in each, or when they differ.
    *directory_ids*: of its log dirs.
    """

    epoch: int | None
    directory_ids: frozenset[str] = frozenset()


class ElectionRules(NamedTuple):
    """The inputs of an election besides the partition's state.

    *unclean*: unclean.leader.election.enable of the topic.  *elr_version*: the level of the feature
    eligible.leader.replicas.version.  *broker_epochs*: of the last registrations, by node.  *disks*: by node.
    """

    unclean: bool
    elr_version: int
    broker_epochs: Mapping[int, int]
    disks: Mapping[int, BrokerDisks]


class ElectionResult(NamedTuple):
    """A leader, None without one, and why."""

    leader: int | None
    because: ElectionReason


def is_clean(node: int, rules: ElectionRules) -> bool:
    """Whether *node* stays in ISR and ELR when it registers: its marker has the epoch of its last registration."""
    if rules.elr_version < 1:
        return True
    disks = rules.disks.get(node)
    return disks is not None and disks.epoch is not None and disks.epoch == rules.broker_epochs.get(node)


def has_directory(partition: ReplicaSet, node: int, rules: ElectionRules) -> bool:
    """Whether the log dir that the assignment names for *node* is one of its log dirs.

    A broker that registers with another one cannot lead before it has reported that.  Kafka: ClusterImage, DirectoryId.
    """
    wanted = partition.directory_of(node)
    if wanted in (None, UNASSIGNED_DIRECTORY, MIGRATING_DIRECTORY):
        return True
    known = rules.disks[node].directory_ids if node in rules.disks else frozenset()
    return wanted != LOST_DIRECTORY and (not known or wanted in known)


def elect(partition: ReplicaSet, up: Collection[int], rules: ElectionRules) -> ElectionResult:
    """Return the leader once all of *up* are back, if they register at one moment.

    The outcome LAST_KNOWN_LEADER has no leader: one of `last_known_leaders` leads, and the disk does not show which.
    """
    back = [node for node in partition.replicas if node in up and has_directory(partition, node, rules)]
    struck = {node for node in up if not is_clean(node, rules)}
    isr = [node for node in partition.isr if node not in struck]
    elr = [node for node in partition.elr if node not in struck]
    for node in back:
        if node in isr:
            return ElectionResult(node, ElectionReason.ISR)
    if not isr:
        for node in back:
            if node in elr:
                return ElectionResult(node, ElectionReason.ELR)
        if not elr and rules.elr_version >= 1:
            last = last_known_leaders(partition)
            if len(last) > 1 or (last and last[0] in back):
                leader = last[0] if len(last) == 1 else None
                return ElectionResult(leader, ElectionReason.LAST_KNOWN_LEADER)
    if rules.unclean and back:
        return ElectionResult(back[0], ElectionReason.UNCLEAN)
    return ElectionResult(None, ElectionReason.NONE)


def last_known_leaders(partition: ReplicaSet) -> tuple[int, ...]:
    """Return the possible last known leaders after all of ISR and ELR have been removed.

    A partition remembers the replica that left its ISR last.  If it still has one on disk, brokers and controller
    stopped together; the result then depends on session timeouts and the order of registrations, and each member may be
    the last. Kafka: PartitionChangeBuilder.maybeUpdateLastKnownLeader; seen on 4.3.1.
    """
    if len(partition.last_known_elr) == 1:
        return partition.last_known_elr
    return () if partition.last_known_elr else tuple(node for node in partition.replicas if node in partition.isr)


def outcomes(partition: ReplicaSet, order: Sequence[Collection[int]], rules: ElectionRules) -> list[ElectionResult]:
    """Return the possible leaders when brokers return group by group; within a group any of them may register first.

    Without unclean election the first group that leads to an elected leader decides: one outcome.  With it any replica
    of that group may have been first.  They are in the order of the assignment; the outcome without a leader is the
    last.
    """
    up: set[int] = set()
    for group in order:
        found = _outcomes_of_group(partition, up, group, rules)
        up |= set(group)
        if found:
            return found
    return [ElectionResult(None, ElectionReason.NONE)]


def _outcomes_of_group(
    partition: ReplicaSet, up: set[int], group: Collection[int], rules: ElectionRules
) -> list[ElectionResult]:
    """Return the possible leaders once *group* has joined *up*, none of whom leads; empty without one."""
    together = elect(partition, up | set(group), rules)
    found: dict[int | None, ElectionResult] = {}
    if together.leader is None and together.because is ElectionReason.LAST_KNOWN_LEADER:
        for node in last_known_leaders(partition):
            leader = node if has_directory(partition, node, rules) else None
            found[leader] = ElectionResult(leader, ElectionReason.NONE if leader is None else together.because)
    elif together.leader is None:
        return []
    elif not rules.unclean:
        return [together]
    for node in group if rules.unclean else ():
        alone = elect(partition, up | {node}, rules)
        if alone.leader is not None:
            found.setdefault(alone.leader, alone)
    ranks: dict[int | None, int] = {node: rank for rank, node in enumerate(partition.replicas)}
    return sorted(found.values(), key=lambda result: ranks.get(result.leader, len(ranks)))
