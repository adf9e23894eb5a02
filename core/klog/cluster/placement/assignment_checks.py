"""The brokers that replicas are placed on, and facts about any assignment: distinct brokers, racks, balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
        raise UsageError(f"{both}: a broker has at most one; Kafka: INVALID_REPLICATION_FACTOR (38)")
    if partitions * replication > MOST_REPLICAS:
        raise UsageError(f"{partitions * replication} replicas: klog places up to {MOST_REPLICAS}")


class AssignmentFacts(NamedTuple):
    """How partitions are spread over brokers and racks.

    *leaders*, *replicas*: by broker, of how many partitions it is the first replica, and how many it has; also of
    brokers that have none.  *doubled*: the partitions that have a broker twice.  *narrow*: those that are over fewer
    racks than they could be, by number with their racks and with how many it could be; None without any racks.
    """

    leaders: Mapping[int, int]
    replicas: Mapping[int, int]
    doubled: tuple[int, ...]
    narrow: Mapping[int, tuple[int, int]] | None

    @property
    def distinct(self) -> bool:
        """Whether no partition has a broker twice."""
        return not self.doubled

    @property
    def racks_covered(self) -> bool | None:
        """Whether each partition is over as many racks as it could be; None without any racks."""
        return None if self.narrow is None else not self.narrow

    @property
    def leaders_spread(self) -> int:
        """Return the difference between the largest and the smallest number of partitions that a broker leads."""
        return _spread(self.leaders)

    @property
    def replicas_spread(self) -> int:
        """Return the difference between the largest and the smallest number of replicas on a broker."""
        return _spread(self.replicas)

    @property
    def is_sound(self) -> bool:
        """Whether brokers are distinct and racks covered; how even it is, is no fault."""
        return not self.doubled and not self.narrow


def _spread(counts: Mapping[int, int]) -> int:
    return max(counts.values(), default=0) - min(counts.values(), default=0)


def assess(
    assignment: Mapping[int, Sequence[int]], brokers: Sequence[UsableBroker], gone: Mapping[int, str | None]
) -> AssignmentFacts:
    """Return the facts about *assignment*, replicas by partition number, in a cluster of *brokers*.

    *gone*: the racks of removed brokers that may still have replicas.  Brokers without a rack are one rack, as they are
    to a controller; an unknown broker counts as a rack of its own.
    """
    leaders = Counter({broker.id: 0 for broker in brokers})
    replicas = Counter(leaders)
    racks = {**gone, **{broker.id: broker.rack for broker in brokers}}
    has_racks = any(rack is not None for rack in racks.values())
    possible = len({broker.rack for broker in brokers})
    doubled: list[int] = []
    narrow: dict[int, tuple[int, int]] = {}
    for number, ids in assignment.items():
        leaders.update(ids[:1])
        replicas.update(ids)
        distinct = set(ids)
        if len(distinct) < len(ids):
            doubled.append(number)
        # The id of an unknown broker represents its unknown rack.
        covered, wanted = len({racks.get(each, each) for each in distinct}), min(len(distinct), possible)
        if covered < wanted:
            narrow[number] = covered, wanted
    return AssignmentFacts(leaders, replicas, tuple(doubled), narrow if has_racks else None)
