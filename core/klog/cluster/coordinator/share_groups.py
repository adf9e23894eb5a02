"""Share partitions as their coordinator has them once it has loaded `__share_group_state`."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from klog.cluster.coordinator.coordinator_records import Note, ignore, records_until
from klog.data_dir.partition import Partition
from klog.formats.internal_topics import SHARE_GROUP_STATE, CoordinatorRecord, coordinator_record
from klog.formats.structs.schema import Data

_SNAPSHOT: Final = b"\0\0"
_UPDATE: Final = b"\0\1"
_MOST_UPDATES: Final = 1000
"""The number of updates of one share partition that are kept undecoded; a broker writes a snapshot after 500."""
_UNCHANGED: Final = -1
_CHANGING: Final = ("leaderEpoch", "startOffset", "deliveryCompleteCount")


class StateBatch(NamedTuple):
    """Records in flight: *state* 0 available, 2 acknowledged, 3 archiving, 4 archived.  Kafka: PersisterStateBatch."""

    first_offset: int
    last_offset: int
    state: int
    deliveries: int


class ShareImage(NamedTuple):
    """A share partition of a group.  *start_offset*: −1 before the first acquisition.

    *complete*: the number of records behind the start offset that need no further delivery; −1 when the broker did not
    write it.
    """

    group: str
    topic_id: str
    partition: int
    start_offset: int
    state_epoch: int
    leader_epoch: int
    complete: int
    in_flight: tuple[StateBatch, ...]


def share_images(
    partitions: Iterable[Partition], until_ms: int | None = None, note: Note = ignore
) -> Iterator[ShareImage]:
    """Yield the share partitions in some partitions of `__share_group_state`; *until_ms*: as they were before then.

    Raises nothing for content.  Kafka: ShareCoordinatorShard.replay.
    """
    for partition in partitions:
        states: dict[bytes, _ShareState] = {}
        for key, value in records_until(partition, until_ms, note):
            if key[:2] == _SNAPSHOT and value is None:
                states.pop(key[2:], None)
            elif key[:2] in (_SNAPSHOT, _UPDATE) and value is not None:
                states.setdefault(key[2:], _ShareState(key[2:])).take(key[:2], value)
        for state in states.values():
            yield from state.image()


class _ShareState:
    """The latest snapshot of a share partition, and the updates since."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._fields: Data | None = None
        self._values: list[tuple[bytes, bytes]] = []

    def take(self, kind: bytes, value: bytes) -> None:
        if kind == _SNAPSHOT:
            self._fields, self._values = None, []
        self._values.append((kind, value))
        if len(self._values) > _MOST_UPDATES:
            self._fold()

    def _fold(self) -> None:
        for kind, value in self._values:
            record = coordinator_record(SHARE_GROUP_STATE, kind + self._key, value)
            if isinstance(record, CoordinatorRecord) and record.value is not None:
                self._fields = record.value if self._fields is None else _updated(self._fields, record.value)
        self._values = []

    def image(self) -> Iterator[ShareImage]:
        """Yield the share partition; nothing if none of its records can be decoded."""
        self._fold()
        record = coordinator_record(SHARE_GROUP_STATE, _SNAPSHOT + self._key, None)
        if self._fields is None or not isinstance(record, CoordinatorRecord):
            return
        fields, key = self._fields, record.key
        batches = (StateBatch(*one.values()) for one in fields["stateBatches"])
        yield ShareImage(
            key["groupId"],
            key["topicId"],
            key["partition"],
            fields["startOffset"],
            fields.get("stateEpoch", 0),
            fields["leaderEpoch"],
            fields["deliveryCompleteCount"],
            combined(batches, fields["startOffset"]),
        )


def _updated(fields: Data, update: Data) -> Data:
    """Kafka: ShareCoordinatorShard.merge."""
    changed = {name: update[name] for name in _CHANGING if update[name] != _UNCHANGED}
    start = changed["startOffset"] if "startOffset" in changed else fields["startOffset"]
    batches = [StateBatch(*one.values()) for one in (*fields["stateBatches"], *update["stateBatches"])]
    return {**fields, **changed, "stateBatches": [one._asdict() for one in combined(batches, start)]}


def combined(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches from *start_offset* on that do not overlap: of two batches the one with more deliveries counts.

    If both have equally many, the one with the higher state counts.  Kafka: PersisterStateBatchCombiner.
    """
    waiting = sorted(one for one in batches if start_offset <= one.last_offset >= one.first_offset)
    edges = sorted({start_offset, *(one.first_offset for one in waiting), *(one.last_offset + 1 for one in waiting)})
    there: list[tuple[int, int, int]] = []  # deliveries and state, turned around, and the last offset
    found: list[StateBatch] = []
    at = 0
    for first, following in pairwise(edges):
        while at < len(waiting) and waiting[at].first_offset <= first:
            heapq.heappush(there, (-waiting[at].deliveries, -waiting[at].state, waiting[at].last_offset))
            at += 1
        while there and there[0][2] < first:
            heapq.heappop(there)
        if not there or first < start_offset:
            continue
        deliveries, state = -there[0][0], -there[0][1]
        if found and found[-1][1:] == (first - 1, state, deliveries):
            found[-1] = found[-1]._replace(last_offset=following - 1)
        else:
            found.append(StateBatch(first, following - 1, state, deliveries))
    return tuple(found)
