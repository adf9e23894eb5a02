"""An event of a timeline, the filter, and the order of events, in which they are sorted in little memory.

The timestamps of a log are not in its order, and no bound on the disorder is known before its end: a producer that was
cut off for a day delivers yesterday's records behind today's.  Events are therefore sorted as a whole, in runs, which
are written to unnamed temporary files.
"""

from __future__ import annotations

import marshal
from collections.abc import Collection, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from heapq import merge
from operator import itemgetter
from typing import BinaryIO, Final, NamedTuple, TypeAlias

from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.selection import PartitionChoice, is_selected
from klog.formats.java_integers import LONG_MAX

BROKER_CLOCK: Final = "broker"
PRODUCER_CLOCK: Final = "producer"
FILE_CLOCK: Final = "file"
"""The clocks: a broker's or controller's, a record's producer's (CreateTime), the file system's (mtime)."""

METADATA_KINDS: Final = (
    *("broker-registered", "broker-fenced", "broker-unfenced", "broker-unregistered"),
    *("topic-created", "topic-deleted", "partition-changed", "config-changed", "tiering-enabled", "tiering-disabled"),
)
TRANSACTION_KINDS: Final = ("txn-begin", "txn-commit", "txn-abort", "txn-fenced", "txn-open")
GROUP_KINDS: Final = ("commit", "rebalance", "group-deleted")
REMOTE_KINDS: Final = ("segment-tiered", "segment-deleted-remotely", "copy-failed")
DATA_KINDS: Final = (
    *("roll", "log-start", "compacted", "producer", "first-record", "last-record", "silence", "damage"),
)
KINDS: Final = (*METADATA_KINDS, "epoch", *TRANSACTION_KINDS, *GROUP_KINDS, *REMOTE_KINDS, *DATA_KINDS)
"""All kinds, in the order of events of the same time: metadata, epochs, transactions, groups, remote storage, data."""

_RANKS: Final = {kind: rank for rank, kind in enumerate(KINDS)}
_FAMILIES: Final = {
    kind: family
    for family, kinds in enumerate(
        (METADATA_KINDS, ("epoch",), TRANSACTION_KINDS, GROUP_KINDS, REMOTE_KINDS, DATA_KINDS)
    )
    for kind in kinds
}
_OF_ONE_DISK: Final = ("log-start", "compacted", "damage")
"""Events of a copy rather than of the partition: the same on another disk is another event."""


_OF_PARTITIONS: Final = (*TRANSACTION_KINDS, "commit")


EventIdentity: TypeAlias = "tuple[int | str, ...]"
EventOrder: TypeAlias = "tuple[EventIdentity, str, str]"


class TimelineEvent(NamedTuple):
    """One event; fields that do not apply are None.

    *time*: ms since the epoch, by *clock*.  *offset*, *file* (relative to *log_dir*), *position* (bytes): the batch or
    record that proves it: for events of metadata, groups and coordinators in their logs.  *epoch*: a leader's, a
    broker's, a producer's or a group's, depending on the kind.  *commits*: the number of commits that it represents.
    """

    time: int
    clock: str
    kind: str
    message: str
    log_dir: str | None = None
    topic: str | None = None
    topic_id: str | None = None
    partition: int | None = None
    offset: int | None = None
    epoch: int | None = None
    node: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    producer_id: int | None = None
    file: str | None = None
    position: int | None = None
    commits: int | None = None

    @property
    def identity(self) -> EventIdentity:
        """The fields that are equal for the same event on several disks; their order is that of events."""
        return (
            self.time,
            _FAMILIES[self.kind],
            self.topic or "",
            -1 if self.partition is None else self.partition,
            -1 if self.offset is None else self.offset,
            _RANKS[self.kind],
            self.topic_id or "",
            -1 if self.epoch is None else self.epoch,
            -1 if self.node is None else self.node,
            self.group or "",
            self.transactional_id or "",
            -1 if self.producer_id is None else self.producer_id,
            f"{self.log_dir}/{self.file}@{self.position}" if self.kind in _OF_ONE_DISK else "",
        )

    @property
    def order(self) -> EventOrder:
        """The sort key of events: of the same event on several disks that of the first log dir is the first."""
        return self.identity, self.log_dir or "", self.file or ""


class EventFilter(NamedTuple):
    """The filter of events: *start* and later, before *end* (ms); all *kinds* if there are none.

    *topics*, *groups*: globs; with them, only events of such a topic or such a group.  *numbers*: only events of one of
    these partitions.
    """

    start: int = -LONG_MAX
    end: int = LONG_MAX
    kinds: Collection[str] = ()
    topics: Sequence[str] = ()
    groups: Sequence[str] = ()
    numbers: Sequence[PartitionChoice] = ()

    def wants(self, event: TimelineEvent) -> bool:
        """Whether an event matches."""
        if not self.start <= event.time < self.end or (self.kinds and event.kind not in self.kinds):
            return False
        is_of_group = not self.groups or any(fnmatchcase(event.group or "", glob) for glob in self.groups)
        # An event about several topics was filtered before they were combined.
        is_of_several = event.topic is None and event.kind in _OF_PARTITIONS
        if self.numbers and not is_of_several and not is_selected(event.topic, event.partition, (), self.numbers):
            return False
        return is_of_group and (is_of_several or self.wants_topic(event.topic))

    def wants_topic(self, topic: str | None) -> bool:
        """Whether events of a topic may match."""
        return not self.topics or (topic is not None and any(fnmatchcase(topic, glob) for glob in self.topics))

    def wants_any(self, kinds: Collection[str]) -> bool:
        """Whether events of one of *kinds* may match."""
        return not self.kinds or any(kind in self.kinds for kind in kinds)


RUN_EVENTS: Final = 1 << 15
"""Events that are kept in memory, at about 1 KiB each."""
_CHUNK_EVENTS: Final = 256
_ORDER = itemgetter(0)

_Ordered: TypeAlias = "tuple[EventOrder, TimelineEvent]"


class EventSort:
    """Receives events in any order by `add`, and yields them sorted, each once; *most*: no more than the first of them.

    In memory are *room* events, and 256 of each run on disk.  Close it to free the runs before the process ends.
    """

    def __init__(self, disk: Disk, most: int | None = None, room: int = RUN_EVENTS) -> None:
        self._disk, self._most, self._room = disk, most, room
        self._events: list[_Ordered] = []
        self._file: BinaryIO | None = None
        self._runs: list[list[tuple[int, int]]] = []  # of each run its chunks: position and size in bytes

    def add(self, event: TimelineEvent) -> None:
        """Take an event.  Raises OSError if there is no room for temporary files."""
        self._events.append((event.order, event))
        if len(self._events) >= self._room:
            self._shrink()

    def _shrink(self) -> None:
        self._events.sort(key=_ORDER)
        if self._most is not None:
            # The same event may be there once for each disk.
            kept = list(_without_copies(self._events))
            if len(kept) > self._most or len(kept) <= self._room // 2:
                self._events = kept[: self._most]
        if len(self._events) > self._room // 2:
            self._spill()

    def _spill(self) -> None:
        if self._file is None:
            self._file = self._disk.unnamed_file()
        chunks = []
        for at in range(0, len(self._events), _CHUNK_EVENTS):
            content = marshal.dumps([(order, tuple(event)) for order, event in self._events[at : at + _CHUNK_EVENTS]])
            chunks.append((self._file.seek(0, 2), len(content)))
            self._file.write(content)
        self._runs.append(chunks)
        self._events = []

    def _run(self, chunks: list[tuple[int, int]]) -> Iterator[_Ordered]:
        assert self._file is not None
        for position, size in chunks:
            self._file.seek(position)
            for order, fields in marshal.loads(self._file.read(size)):
                yield order, TimelineEvent(*fields)

    def __iter__(self) -> Iterator[TimelineEvent]:
        self._events.sort(key=_ORDER)
        runs = [iter(self._events), *map(self._run, self._runs)]
        for told, (_, event) in enumerate(_without_copies(merge(*runs, key=_ORDER))):
            if told == self._most:
                return
            yield event

    def close(self) -> None:
        """Give back the temporary files."""
        if self._file is not None:
            self._file.close()


def _without_copies(events: Iterable[_Ordered]) -> Iterator[_Ordered]:
    """Yield each of sorted events once: the same event on three replicas is one."""
    before = None
    for one in events:
        if one[0][0] != before:
            yield one
        before = one[0][0]
