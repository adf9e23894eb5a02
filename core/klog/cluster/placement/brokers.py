"""The brokers that replicas are placed on, and the requests that Kafka refuses before it places any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from klog.base.errors import UsageError, counted

Assignment: TypeAlias = "list[tuple[int, ...]]"
"""For each partition the ids of its replicas' brokers; the first one leads if possible."""

MOST_REPLICAS: Final = 10_000_000
"""More replicas of one topic than this cannot be intended."""


class UsableBroker(NamedTuple):
    """A broker that takes replicas; *rack*: its `broker.rack`, None without one.  Kafka: UsableBroker."""

    id: int
    rack: str | None = None
    fenced: bool = False


def name_order(rack: str) -> bytes:
    """Return a sort key for names of racks in the order of Java's strings: their UTF-16 units."""
    return rack.encode("utf-16-be", "surrogatepass")


def check_request(brokers: Sequence[UsableBroker], partitions: int, replication: int) -> None:
    """Raise UsageError, with Kafka's reason, if a topic of *partitions* cannot be placed on *brokers*.

    Kafka: ReplicationControlManager.createTopic, StripedReplicaPlacer.place, AdminUtils.assignReplicasToBrokers.
    """
    if len({broker.id for broker in brokers}) < len(brokers):
        raise UsageError("a broker is there twice")
    if partitions < 1:
        raise UsageError(f"{partitions} partitions: at least 1 is needed; Kafka: INVALID_PARTITIONS (37)")
    if replication < 1:
        raise UsageError(f"{replication} replicas: at least 1 is needed; Kafka: INVALID_REPLICATION_FACTOR (38)")
    if replication > len(brokers):
        both = f"{counted(replication, 'replica')} on {counted(len(brokers), 'broker')}"
        raise UsageError(f"{both}: no broker has two; Kafka: INVALID_REPLICATION_FACTOR (38)")
    if partitions * replication > MOST_REPLICAS:
        raise UsageError(f"{partitions * replication} replicas: klog places up to {MOST_REPLICAS}")
