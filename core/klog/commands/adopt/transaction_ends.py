"""How the open transactions of a source end: by the coordinator of the target, or by a marker that klog appends.

A coordinator that has a transaction under way writes its end after the start.  A marker of klog before that would take
the end away: a commit that is acknowledged later would leave the records aborted.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from klog.change.plan.model import Amount
from klog.cluster.coordinator.transactional_ids import (
    EPOCH_BUMPS,
    IN_PROGRESS,
    PREPARED,
    TransactionImage,
    transaction_images,
)
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.adopt.adopted_sources import AdoptSource, Key
from klog.commands.adopt.target_log_dirs import AdoptTarget
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition, segments_between
from klog.formats.batch import CONTROL_BIT
from klog.formats.damage import Damage
from klog.formats.internal_topics import TRANSACTION_STATE
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import PartitionState
from klog.formats.producer_snapshot import Producer
from klog.formats.transaction_state import TransactionStatus
from klog.log.segment import Segment
from klog.partition.transactions.coordinator_decisions import TransactionDecision, decisions, was_decided

ABORTED: Final = "transaction-aborted"
"""Why records are lost whose transaction is aborted although its coordinator may commit it."""


class LeftOpen(NamedTuple):
    """A transaction that stays open.

    *is_under_way*: the coordinator has it, and ends it after the start; otherwise the disk does not show it.
    """

    producer_id: int
    first_offset: int
    is_under_way: bool


class TargetCoordinator:
    """The transactions of a cluster's coordinators, as far as the log dirs of one broker show them.

    *more*: partitions of `__transaction_state` that are adopted together with the source.
    """

    def __init__(self, log_dirs: Sequence[LogDir], cluster: ClusterMetadata, more: Iterable[Partition]) -> None:
        self._topic_id = cluster.topic_ids.get(TRANSACTION_STATE)
        self._registered = cluster.partitions.get(self._topic_id or "", {})
        self._problems: list[str] = []
        here = (one for log_dir in log_dirs for one in log_dir.partitions if one.state is PartitionState.CURRENT)
        self._logs = {one.number: one for one in (*more, *here) if self._is_ours(one)}

    def _is_ours(self, partition: Partition) -> bool:
        is_ours = partition.topic_id in (None, self._topic_id) and bool(partition.segments)
        return partition.topic == TRANSACTION_STATE and is_ours and partition.number in self._registered

    @cached_property
    def _images(self) -> dict[int, list[TransactionImage]]:
        found: dict[int, list[TransactionImage]] = {}
        for image in transaction_images(self._logs.values(), note=self._problems.append):
            found.setdefault(image.producer_id, []).append(image)
        return found

    @cached_property
    def _is_whole(self) -> bool:
        """Whether a producer that is not in `_images` is in no transaction.

        If other brokers have replicas, their coordinators may have continued.
        """
        is_alone = all(len(one.replicas) == 1 for one in self._registered.values())
        return {*self._logs} == {*self._registered} and is_alone and not self._problems

    def ends(self, key: Key, producer: Producer) -> bool | None:
        """Whether a coordinator will end a producer's open transaction in a partition.

        None if the log dirs do not show it.
        """
        known = self._images.get(producer.producer_id, [])  # finds the problems, too
        if any(_is_under_way(one, producer.producer_epoch, key) for one in known):
            return True
        is_over = any(one.producer_epoch > producer.producer_epoch for one in known)
        return False if is_over or self._is_whole else None

    def decided(self) -> list[TransactionDecision]:
        """Return the decisions of the coordinators to commit."""
        return list(decisions(self._logs.values()))


def _is_under_way(image: TransactionImage, epoch: int, key: Key) -> bool:
    """Whether a transactional id is in a transaction that was written with *epoch*, in a partition.

    From transactions v2 on the decision about its end already has the next epoch.  An abort may be that of a fenced
    producer, by a later epoch, and ends transactions of earlier ones.  Kafka: TransactionMetadata.prepareAbortOrCommit.
    """
    if image.status not in IN_PROGRESS or key not in image.partitions:
        return False
    if image.status is TransactionStatus.PREPARE_ABORT:
        return epoch <= image.producer_epoch
    is_bumped = image.client_version >= EPOCH_BUMPS and image.status in PREPARED
    return epoch == image.producer_epoch - is_bumped


class SourceTransactions:
    """The ends of the open transactions of a source.

    *is_foreign*: it is of another cluster, or of a topic that the cluster never had, and no coordinator here has its
    transactions, unless its records name them.  *homes*: the target's log dirs.
    """

    def __init__(
        self,
        source: AdoptSource,
        target: AdoptTarget,
        coordinator: TargetCoordinator,
        is_foreign: bool,
        homes: Collection[str],
    ) -> None:
        self._source, self._target, self._coordinator = source, target, coordinator
        self._is_foreign, self._homes = is_foreign, homes

    def are_ended(self, producer: Producer, is_ahead: bool) -> bool | None:
        """Whether a coordinator ends a producer's open transaction; None if unknown.

        *is_ahead*: the source has leader epochs that the partition has not reached.
        """
        found = self._coordinator.ends(self._target.key, producer)
        topic_id = self._source.partition.topic_id
        if found is None and (self._is_foreign or (topic_id is None and is_ahead)):
            return False
        # Other replicas of the same log have an end of their own, and a marker here would be in its place.
        has_more = topic_id == self._target.topic_id and len(self._target.replicas) > 1
        return None if found is False and has_more else found

    def is_committed(self, producer: Producer, end: int) -> bool:
        """Whether its coordinator had decided to commit an open transaction below offset *end*."""
        name = self._source.partition
        key = self._target.key if name.topic is None or name.number is None else (name.topic, name.number)
        told = [
            one
            for one in self._decided
            if one.producer_id == producer.producer_id and one.partitions is not None and one.is_about(*key)
        ]
        return was_decided(name, producer.producer_id, producer.current_txn_first_offset, end, told)

    @cached_property
    def _decided(self) -> list[TransactionDecision]:
        """The decisions of the source's coordinators; in the target's log dirs those of a former cluster are aside."""
        if not self._is_foreign:
            return self._coordinator.decided()
        beside = self._source.log_dir
        states = (PartitionState.STRAY, PartitionState.CURRENT)
        wanted = states[:1] if os.path.realpath(beside.path) in self._homes else states
        return list(
            decisions(one for one in beside.partitions if one.topic == TRANSACTION_STATE and one.state in wanted)
        )


def open_amount(partition: Partition, producer: Producer, end: int) -> Amount:
    """Count the records of a producer's open transaction, below offset *end*.  Raises UnreadableError."""
    records = size = 0
    first = producer.current_txn_first_offset
    for files in segments_between(partition.segments, first, LONG_MAX):
        for run in Segment(partition.file(files.log), bounded=False).runs():
            if isinstance(run, Damage):
                continue
            for i in run.window.produced(run.first, run.end):
                batch = run.window.batch(i)
                is_data = batch.producer_id == producer.producer_id and not batch.attributes & CONTROL_BIT
                if is_data and first <= batch.base_offset < end:
                    records, size = records + batch.records_count, size + batch.size
    return Amount(records, size)
