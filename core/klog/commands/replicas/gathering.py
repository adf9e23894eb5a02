"""One broker's log dirs get a copy of every partition that another disk has a better one of."""

from __future__ import annotations

import os
from collections.abc import Sequence

from klog.base.errors import KlogError, UsageError
from klog.cluster.election import UNASSIGNED_DIRECTORY
from klog.cluster.metadata.metadata_loader import ClusterMetadata
from klog.commands.replicas.copy_plan import CopyPlan
from klog.commands.replicas.disks import BrokerCopies, BrokerDisk, copies_on
from klog.commands.replicas.metadata_changes import PartitionKey
from klog.data_dir.identity import IdentityChoice
from klog.data_dir.log_dir import LogDir
from klog.formats.checkpoint import Malformed

_MOST_LINES = 10


class Gathering:
    """The partitions that *node* is to own; *copies* plans them, and changes only that node's log dirs.

    *directories*: for each that a disk has, the id of the log dir of *node* that has it, or will have it.  *lost*:
    those that no disk has, topic and number.  *unknown*: those on a disk that the metadata log does not have.
    """

    def __init__(self, node: int, disks: Sequence[BrokerDisk], copies: CopyPlan) -> None:
        self.node, self._disks, self.copies = node, disks, copies
        self.directories: dict[PartitionKey, str] = {}
        self.lost: list[tuple[str, int]] = []
        self.unknown: list[tuple[str, int]] = []

    def collect(self, state: ClusterMetadata) -> None:
        """Plan every partition of the cluster.

        Raises UsageError if the user has to choose a copy, KlogError, UnreadableError.
        """
        found = {(one.topic, one.number): one for one in copies_on(self._disks, choice=IdentityChoice(by_name=True))}
        for topic, topic_id in sorted(state.topic_ids.items()):
            for number in sorted(state.partitions.get(topic_id, {})):
                copies = _of_topic(found.get((topic, number)), topic_id)
                if copies is None:
                    self.lost.append((topic, number))
                else:
                    self._check_name(topic, number, copies, found[topic, number])
                    self.directories[topic_id, number] = self._add(copies)
        self.unknown = [place for place, one in sorted(found.items()) if not _is_known(one, state)]
        self._check_left()

    def _check_name(self, topic: str, number: int, copies: BrokerCopies, all_found: BrokerCopies) -> None:
        mine = all_found.copies.get(self.node)
        if mine is not None and self.node not in copies.copies:
            raise KlogError(
                f"{mine.partition.path}: of another topic, id {mine.partition.topic_id}; the partition of the cluster"
                f" {number} cannot come here as long as it is there"
            )

    def _add(self, copies: BrokerCopies) -> str:
        """Plan one partition; return the id of the log dir that has it in the end."""
        before = len(self.copies.equal)
        self.copies.add(copies)
        if self.node in copies.copies:
            log_dir = copies.copies[self.node].disk.log_dir
        elif len(self.copies.equal) > before:
            log_dir = LogDir(os.path.dirname(self.copies.equal[-1].targets[0].directory))
        else:
            return UNASSIGNED_DIRECTORY  # it was left, which is refused below
        if isinstance(log_dir.meta, Malformed):
            raise KlogError(f"{log_dir.path}: its meta.properties cannot be used: {log_dir.meta}")
        return log_dir.directory_id or UNASSIGNED_DIRECTORY

    def _check_left(self) -> None:
        if self.copies.left:
            left = self.copies.left[:_MOST_LINES]
            lines = [f"{one.diff.topic}-{one.diff.number}: {one.reason}" for one in left]
            more = len(self.copies.left) - len(lines)
            told = "; ".join([*lines, *([f"and {more} more"] if more else [])])
            raise KlogError(told) if any(one.is_unreadable for one in self.copies.left) else UsageError(told)


def _is_known(found: BrokerCopies, state: ClusterMetadata) -> bool:
    """Whether the metadata log has the partition of each copy."""
    topic_id = state.topic_ids.get(found.topic, "")
    ids = {copy.partition.topic_id or topic_id for copy in found.copies.values()}
    return ids == {topic_id} and found.number in state.partitions.get(topic_id, {})


def _of_topic(found: BrokerCopies | None, topic_id: str) -> BrokerCopies | None:
    """Return the copies without directories of another topic of that name; None if none is left."""
    if found is None:
        return None
    copies = {node: copy for node, copy in found.copies.items() if copy.partition.topic_id in (None, topic_id)}
    return found._replace(copies=copies, is_one_thing=True) if copies else None
