"""The placer of KRaft's controllers: replicas in stripes over the racks, from a random start.

    place_striped([UsableBroker(0, "a"), UsableBroker(1, "b"), UsableBroker(2, "a")], 12, 2, seed=42)

A controller seeds its generator with noise: its placements cannot be derived from this, but the effect of a seed can.
Kafka: StripedReplicaPlacer (3.0 to 4.3), with java.util.Random.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, TypeVar

from klog.base.errors import UsageError
from klog.cluster.placement.assignment_checks import Assignment, UsableBroker, check_request, name_order
from klog.formats.java_hash_map import order_of_put
from klog.formats.java_integers import INT_MAX

_MULTIPLIER: Final = 0x5DEECE66D
_INCREMENT: Final = 0xB
_STATE_BITS: Final = 48

_Item = TypeVar("_Item")


class JavaRandom:
    """A linear congruential generator of 48 bits, seeded with a 64-bit number.  Java: java.util.Random."""

    def __init__(self, seed: int) -> None:
        self._state = (seed ^ _MULTIPLIER) & (1 << _STATE_BITS) - 1

    def _next_31_bits(self) -> int:
        self._state = (self._state * _MULTIPLIER + _INCREMENT) & (1 << _STATE_BITS) - 1
        return self._state >> _STATE_BITS - 31

    def next_int(self, bound: int) -> int:
        """Return a number from 0 to below *bound*, which is 1 to 2^31 - 1.  Java: Random.nextInt."""
        bits = self._next_31_bits()
        if bound & (bound - 1) == 0:
            return bound * bits >> 31
        # The last, incomplete run of *bound* numbers would make the low ones likelier.
        while bits - bits % bound + bound - 1 > INT_MAX:
            bits = self._next_31_bits()
        return bits % bound

    def shuffle(self, items: list[_Item]) -> None:
        """Put *items* in another order, in place.  Java: Collections.shuffle."""
        for size in range(len(items), 1, -1):
            other = self.next_int(size)
            items[size - 1], items[other] = items[other], items[size - 1]


class _BrokerRing:
    """Brokers of one rack, given out once each in an epoch; the next epoch starts one broker further.

    Kafka: StripedReplicaPlacer.BrokerList.
    """

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self._given = 0
        self._start = 0
        self._epoch = 0

    def begin(self, random: JavaRandom) -> None:
        """Draw the start."""
        if self.brokers:
            self.brokers.sort()
            self._start = random.next_int(len(self.brokers))

    def next(self, epoch: int) -> int | None:
        """Return the next broker, None when all have been given out in *epoch*."""
        if self._epoch != epoch:
            self._epoch = epoch
            self._given = 0
            self._start += 1
        if self._given >= len(self.brokers):
            return None
        broker = self.brokers[(self._given + self._start) % len(self.brokers)]
        self._given += 1
        return broker


class _Rack:
    """The brokers of one rack; the fenced ones are the last."""

    def __init__(self) -> None:
        self.fenced = _BrokerRing()
        self.unfenced = _BrokerRing()

    def rings(self) -> tuple[_BrokerRing, _BrokerRing]:
        """Return the rings in the order in which random numbers are drawn for them."""
        return self.fenced, self.unfenced

    def next(self, epoch: int) -> int | None:
        broker = self.unfenced.next(epoch)
        return self.fenced.next(epoch) if broker is None else broker


class _Stripes:
    """The racks, and the place of the next partition.  Kafka: StripedReplicaPlacer.RackList."""

    def __init__(self, random: JavaRandom, brokers: Iterable[UsableBroker]) -> None:
        self._random = random
        racks: dict[str | None, _Rack] = {}
        for broker in brokers:
            rack = racks.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.unfenced).brokers.append(broker.id)
        self._racks = {name: racks[name] for name in order_of_put(racks)}
        for rack in self._racks.values():
            for ring in rack.rings():
                ring.begin(random)
        self._names = sorted(racks, key=lambda name: (name is not None, name_order(name or "")))
        self._unfenced = sum(len(rack.unfenced.brokers) for rack in racks.values())
        self._start = random.next_int(len(self._names))
        self._epoch = 0

    def place(self, replication: int) -> tuple[int, ...]:
        """Return the brokers of the next partition; *replication* must not exceed their number, else this never ends.

        After a reshuffle a ring that was last read in the preceding epoch 0 may have no broker to return.  The
        partition before, however, took its brokers from rings of a later epoch: these can return as many again, from as
        many racks.
        """
        if self._epoch == self._unfenced > 1:
            self._reshuffle()
        self._start %= len(self._names)
        leads_from, leader = self._leader()
        replicas, at = [leader], self._start
        while len(replicas) < replication:
            if at == leads_from:
                leads_from = -1  # the leader's rack has its replica: it is passed over once
            elif (broker := self._racks[self._names[at]].next(self._epoch)) is not None:
                replicas.append(broker)
            at = (at + 1) % len(self._names)
        self._epoch += 1
        self._start += 1
        return tuple(replicas)

    def _leader(self) -> tuple[int, int]:
        """Return the first rack from the start on that has an unfenced broker to give, and that broker."""
        at = self._start
        while (leader := self._racks[self._names[at]].unfenced.next(self._epoch)) is None:
            at = (at + 1) % len(self._names)
        return at, leader

    def _reshuffle(self) -> None:
        self._random.shuffle(self._names)
        for rack in self._racks.values():
            for ring in rack.rings():
                self._random.shuffle(ring.brokers)
        self._epoch = 0


def place_striped(brokers: Sequence[UsableBroker], partitions: int, replication: int, seed: int) -> Assignment:
    """Return the placement of a controller whose generator was seeded with *seed*.

    Raises UsageError for what a controller refuses: no partition, no replica, more replicas than brokers (the fenced
    ones count), or no broker that is unfenced.
    """
    check_request(brokers, partitions, replication)
    if all(broker.fenced for broker in brokers):
        raise UsageError("all brokers are fenced: no broker could lead; Kafka: INVALID_REPLICATION_FACTOR (38)")
    stripes = _Stripes(JavaRandom(seed), sorted(brokers, key=lambda broker: broker.id))
    return [stripes.place(replication) for _ in range(partitions)]
