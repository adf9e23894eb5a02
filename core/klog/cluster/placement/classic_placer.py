"""The placer of ZooKeeper's time and of the admin tools up to 3.9: the brokers in a row, from a start, with a shift.

    brokers = [UsableBroker(node) for node in range(5)]
    place_classic(brokers, 10, 3, start_index=2, shift=2)      # [(2, 0, 1), (3, 1, 2), …
    find_classic(assignment, brokers)                          # ClassicStart(start_index=2, shift=2 …

Kafka: AdminUtils.assignReplicasToBrokers (up to 3.9), AdminZkClient.addPartitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from klog.base.errors import UsageError
from klog.cluster.placement.assignment_checks import Assignment, UsableBroker, check_request, name_order

MOST_SEARCHED: Final = 2000
"""`find_classic` looks at so many brokers at most."""


class ClassicStart(NamedTuple):
    """The start values with which the classic placer returns an assignment.

    *rack_aware*: racks counted.  *brokers*: the ids that it placed on, in ascending order.  *grown_at*: the first
    partition of each time that partitions were added; their start values follow from partition 0.
    """

    start_index: int
    shift: int
    rack_aware: bool
    brokers: tuple[int, ...]
    grown_at: tuple[int, ...] = ()


def place_classic(
    brokers: Sequence[UsableBroker],
    partitions: int,
    replication: int,
    start_index: int,
    shift: int,
    start_partition: int = 0,
) -> Assignment:
    """Return the replicas of *partitions* partitions, the first of which has the number *start_partition*.

    Racks count if a broker has one; whether a broker is fenced does not.  A tool that is given a start uses the same
    number for the *shift*.  Raises UsageError for what Kafka refuses: no partition, no replica, more replicas than
    brokers, racks of some brokers only.
    """
    check_request(brokers, partitions, replication)
    bare = [broker.id for broker in brokers if broker.rack is None]
    if 0 < len(bare) < len(brokers):
        raise UsageError(f"broker {min(bare)} has no rack but others have: all or none; Kafka: AdminOperationException")
    row = _Row(brokers, rack_aware=not bare)
    numbers = range(start_partition, start_partition + partitions)
    return [row.replicas(n, start_index, shift + row.rounds(start_partition, n), replication) for n in numbers]


class _Row:
    """The order of the brokers that receive partitions in turn: by id, or with alternating racks."""

    def __init__(self, brokers: Iterable[UsableBroker], rack_aware: bool) -> None:
        by_id = sorted(brokers, key=lambda broker: broker.id)
        self.ids = tuple(broker.id for broker in by_id)
        self._racks = {broker.id: broker.rack for broker in by_id} if rack_aware else {}
        self._in_row = _alternated(by_id) if rack_aware else self.ids
        self._places = {broker: place for place, broker in enumerate(self._in_row)}
        self._rack_count = len(set(self._racks.values()))

    def rounds(self, start_partition: int, number: int) -> int:
        """Return by how much the shift grows from *start_partition* up to partition *number*: 1 a whole round."""
        return number // len(self._in_row) - max(start_partition - 1, 0) // len(self._in_row)

    def kind_of_shift(self, shift: int, replication: int) -> int:
        """Return a value that is equal for shifts that produce the same replicas."""
        return 0 if replication == 1 else shift * (self._rack_count or 1) % (len(self._in_row) - 1)

    def shifts_to(self, replicas: Sequence[int], start_index: int) -> list[int]:
        """Return shifts of all kinds that put the first follower in *replicas* next to the leader.

        A tool that is given a start shifts by the same number, the likeliest of the shifts of one kind.
        """
        if len(replicas) == 1:
            return [start_index]
        place, size = self._places.get(replicas[1]), len(self._in_row)
        distance = 0 if place is None else (place - start_index - 1) % size
        if place is None or distance == size - 1:
            return []
        kinds = [distance]
        # With racks, brokers in the leader's rack are skipped, and the search may begin with them.
        rack = self._racks.get(replicas[0])
        while self._rack_count > 1 and len(kinds) < size - 1:
            distance = (distance - 1) % (size - 1)
            if self._racks[self._in_row[(start_index + 1 + distance) % size]] != rack:
                break
            kinds.append(distance)
        own = self.kind_of_shift(start_index, len(replicas))
        found = [start_index if kind == own else self._shift_of[kind] for kind in kinds if kind in self._shift_of]
        return sorted(found, key=lambda shift: shift != start_index)

    @cached_property
    def _shift_of(self) -> dict[int, int]:
        """The smallest shift of each kind."""
        return {self.kind_of_shift(shift, 2): shift for shift in reversed(range(len(self._in_row)))}

    def start_of(self, leader: int, number: int) -> int | None:
        """Return the start with which *leader* is the first replica of partition *number*; None if it is unknown."""
        place = self._places.get(leader)
        return None if place is None else (place - number) % len(self._in_row)

    def start_of_growth(self, leader: int) -> int:
        """Return the start with which partitions are added to a topic whose partition 0 has *leader* first."""
        return next((at for at, broker in enumerate(self.ids) if broker >= leader), 0)

    def replicas(self, number: int, start_index: int, shift: int, replication: int) -> tuple[int, ...]:
        """Return the replicas of partition *number*; *shift* as it is in its round."""
        first = (number + start_index) % len(self._in_row)
        replicas = [self._in_row[first]]
        followers = self._followers(first, shift)
        if not self._racks:
            replicas.extend(next(followers) for _ in range(replication - 1))
            return tuple(replicas)
        covered = {self._racks[replicas[0]]}
        while len(replicas) < replication:
            broker = next(followers)
            rack = self._racks[broker]
            if (rack not in covered or len(covered) == self._rack_count) and broker not in replicas:
                replicas.append(broker)
                covered.add(rack)
        return tuple(replicas)

    def _followers(self, first: int, shift: int) -> Iterator[int]:
        """Yield the brokers behind the one at *first*, from a distance that the shift gives, again and again."""
        size, at = len(self._in_row), shift * (self._rack_count or 1)
        while True:
            yield self._in_row[(first + 1 + at % (size - 1)) % size]
            at += 1


def _alternated(brokers: Sequence[UsableBroker]) -> tuple[int, ...]:
    """Return ids with their racks in turn: the first of each rack, by the racks' names, then the second of each …"""
    racks: dict[str, list[int]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack or "", []).append(broker.id)
    by_name = [racks[name] for name in sorted(racks, key=name_order)]
    longest = max(map(len, by_name), default=0)
    return tuple(rack[turn] for turn in range(longest) for rack in by_name if turn < len(rack))


# ---------------------------------------------------------------- the other way round


def find_classic(assignment: Assignment, brokers: Sequence[UsableBroker]) -> ClassicStart | None:
    """Return start values with which the classic placer returns *assignment*, of all partitions from 0 on; None if
    there are none.

    It tries all of *brokers* and only those with replicas, with racks and without; of several solutions it returns the
    one with the fewest additions of partitions.  One or two partitions are likely to fit by chance.
    """
    if not assignment or len({len(replicas) for replicas in assignment}) > 1 or not assignment[0]:
        return None
    used = {broker for replicas in assignment for broker in replicas}
    known = {broker.id: broker for broker in brokers}
    hosts = [known.get(broker, UsableBroker(broker)) for broker in sorted(used)]
    found: list[ClassicStart] = []
    for candidates in (list(known.values()), hosts) if used < known.keys() else (hosts,):
        if not len(assignment[0]) <= len(candidates) <= MOST_SEARCHED:
            continue
        for rack_aware in (True, False) if all(broker.rack is not None for broker in candidates) else (False,):
            start = _find(assignment, _Row(candidates, rack_aware), rack_aware)
            if start is not None:
                found.append(start)
    return min(found, key=lambda start: len(start.grown_at), default=None)


def _find(assignment: Assignment, row: _Row, rack_aware: bool) -> ClassicStart | None:
    start_index = row.start_of(assignment[0][0], 0)
    if start_index is None:
        return None
    ends = {shift: _end(assignment, row, start_index, shift, 0) for shift in row.shifts_to(assignment[0], start_index)}
    if not ends:
        return None
    shift = max(ends, key=lambda one: ends[one])
    grown_at = _growth(assignment, row, ends[shift])
    return None if grown_at is None else ClassicStart(start_index, shift, rack_aware, row.ids, grown_at)


def _end(assignment: Assignment, row: _Row, start_index: int, shift: int, first: int) -> int:
    """Return the partition up to which the ones from *first* on are as placed with these."""
    for number in range(first, len(assignment)):
        replicas = assignment[number]
        if row.start_of(replicas[0], number) != start_index % len(row.ids):
            return number
        if row.replicas(number, start_index, shift + row.rounds(first, number), len(replicas)) != replicas:
            return number
    return len(assignment)


def _growth(assignment: Assignment, row: _Row, end: int) -> tuple[int, ...] | None:
    """Return the partitions at which partitions were added, as few as possible, if those below *end* were placed first;
    None without a solution.

    Each addition may begin anywhere below the end of the one before: later partitions may happen to continue it.
    """
    start_index = row.start_of_growth(assignment[0][0])
    ends: dict[int, int] = {}
    grown_at: list[int] = []
    tried = 1
    while end < len(assignment):
        best, best_end = 0, end
        for first in range(tried, end + 1):
            # The brokers of an addition at a partition depend on the round in which it began, and on that only through
            # the shift.
            kind = row.kind_of_shift(start_index - row.rounds(0, first - 1), len(assignment[0]))
            if ends.get(kind, 0) <= first:
                ends[kind] = _end(assignment, row, start_index, start_index, first)
            if ends[kind] > best_end:
                best, best_end = first, ends[kind]
        if best_end == end:
            return None
        grown_at.append(best)
        tried, end = end + 1, best_end
    return tuple(grown_at)
