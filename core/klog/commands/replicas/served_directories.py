"""Which directories a broker's next start takes for its copies of partitions, by the metadata log.

A broker sets a directory without a topic id aside, and begins with an empty log.  It makes a copy in the log dir that
the metadata log names the partition, in place of the directory in another log dir, however little that copy has.
Kafka: LogManager.isStrayKraftReplica, recoverAbandonedFutureLogs.
"""

from __future__ import annotations

from collections.abc import Sequence

from klog.cluster.election import ReplicaSet
from klog.commands.replicas.disks import BrokerCopies, BrokerDisk
from klog.data_dir.partition import Partition
from klog.formats.names import PartitionState


class ServedDirectories:
    """The directories of the partitions on *disks*.  *only*: the one broker that will start, None for all of them."""

    def __init__(self, disks: Sequence[BrokerDisk], only: int | None) -> None:
        self._only = only
        self._arriving: dict[tuple[str | None, int | None], list[tuple[BrokerDisk, Partition]]] = {}
        for disk in disks:
            for one in disk.log_dir.partitions:
                if one.state is PartitionState.FUTURE and only in (None, disk.node):
                    self._arriving.setdefault((one.topic, one.number), []).append((disk, one))

    def aside(self, found: BrokerCopies, registration: ReplicaSet | None, node: int) -> str | None:
        """Return why the start of *node* sets its copy aside; None if it does not, or no metadata log shows it."""
        if registration is None or found.copies[node].partition.metadata is not None:
            return None
        if node != self._only and (self._only is not None or node not in registration.replicas):
            return None
        return "no partition.metadata, which has the topic id"

    def arriving(self, found: BrokerCopies, registration: ReplicaSet | None) -> str | None:
        """Return which directory that is not compared becomes the partition at a start; None for none."""
        ids = {copy.partition.topic_id for copy in found.copies.values()} - {None}
        for disk, one in self._arriving.get((found.topic, found.number), ()):
            assigned = registration.directory_of(disk.node) if registration is not None else None
            if None in (assigned, one.topic_id) or assigned != disk.log_dir.directory_id:
                continue
            if not ids or one.topic_id in ids:
                return (
                    f"the start of node {disk.node} makes {one.path} the partition, whatever it has: let that broker"
                    " finish the move first, klog doctor shows what its start would lose"
                )
        return None
