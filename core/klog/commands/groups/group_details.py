"""Joins the groups of the coordinators' topics with the logs of the partitions that they read; exports offsets.

for group in describe_groups(["data"], GroupQuery()):
    for row in group.offsets:
        print(row.topic, row.partition, row.offset, row.lag)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from typing import NamedTuple

from klog.base.errors import KlogError
from klog.cluster.coordinator.consumer_groups import AssignedPartition, GroupImage, OffsetImage, group_images
from klog.cluster.coordinator.coordinator_records import Note, ignore
from klog.cluster.coordinator.share_groups import ShareImage, StateBatch, share_images
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import IdentityChoice, choose_with_internal
from klog.data_dir.selection import PartitionChoice, is_selected
from klog.data_dir.zeroed_tail import note_damage
from klog.formats.internal_topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from klog.partition.lookup.offset_times import as_late
from klog.partition.start.replica_choice import select_replicas


def export_rows(groups: Sequence[GroupDetail]) -> list[tuple[str | int, ...]]:
    """Return the lines: topic, partition, offset of one group; with the group in front if there are several.

    Share groups are left out: that tool does not support them.  Kafka: CsvUtils.
    """
    found = [one for one in groups if one.image.type != "share"]
    rows: list[tuple[str | int, ...]] = []
    for one in found:
        name = (one.image.group,) if len(found) > 1 else ()
        rows += [(*name, row.topic, row.partition, row.offset) for row in one.offsets if row.offset is not None]
    return rows


_NOWHERE = -1
"""The start offset of a share partition from which nothing was acquired yet.  Kafka: PartitionFactory."""


class GroupQuery(NamedTuple):
    """Which groups: *names* are names or globs, *types* of `GroupType`; none: all.  *at_ms*: the time of the state.

    *topics*, *numbers*: only partitions of these; groups without one are left out.
    """

    names: Sequence[str] = ()
    types: Sequence[str] = ()
    at_ms: int | None = None
    choice: IdentityChoice = IdentityChoice()
    topics: Sequence[str] = ()
    numbers: Sequence[PartitionChoice] = ()

    def selects(self, group: GroupImage) -> bool:
        """Whether a group is meant."""
        named = not self.names or any(fnmatchcase(group.group, name) for name in self.names)
        return named and (not self.types or group.type in self.types)

    def narrowed(self, found: Iterable[GroupDetail]) -> Iterator[GroupDetail]:
        """Yield groups with their selected partitions."""
        for one in found:
            if not self.topics and not self.numbers:
                yield one
                continue
            offsets, pending = (tuple(filter(self._is_selected, rows)) for rows in (one.offsets, one.pending))
            if offsets or pending:
                yield one._replace(offsets=offsets, pending=pending)

    def _is_selected(self, row: PartitionLag) -> bool:
        return is_selected(row.topic, row.partition, self.topics, self.numbers)


class PartitionLag(NamedTuple):
    """A partition for a group.  *committed*: None if a member owns it and nothing was committed.

    *offset*: the committed one, of a share group the start offset.  *log_start*, *log_end*: None if the log is not
    among the paths.  *lag*: records from the offset to the log's end; negative if that is lower.
    """

    topic: str
    partition: int
    offset: int | None
    committed: OffsetImage | None
    log_start: int | None
    log_end: int | None
    lag: int | None
    in_flight: tuple[StateBatch, ...] = ()


class GroupDetail(NamedTuple):
    """A group, its partitions, and the commits of open transactions for it."""

    image: GroupImage
    offsets: tuple[PartitionLag, ...]
    pending: tuple[PartitionLag, ...]


def describe_groups(paths: Iterable[str], query: GroupQuery, note: Note = ignore) -> list[GroupDetail] | None:
    """Return the groups in *paths* that *query* selects, by name; None without any partition of `__consumer_offsets`.

    *note* receives a sentence about each unreadable part.  Raises UsageError, UnreadableError, IdentityError.  Kafka:
    ConsumerGroupCommand.describeGroups, ShareGroupCommand.describeGroups.
    """
    partitions = select_replicas(paths, (), (), "leader-epoch", query.choice, note, choose_with_internal)
    of_groups = [one for one in partitions if one.topic == CONSUMER_OFFSETS]
    if not of_groups:
        return None
    _tell_absent(of_groups, note)
    until_ms = None if query.at_ms is None else query.at_ms + 1
    names = TopicNames(partitions)
    found = [one for one in group_images(of_groups, names.get, until_ms, note) if query.selects(one)]
    shared: dict[str, list[ShareImage]] = {}
    if any(one.type == "share" for one in found):
        for image in share_images([one for one in partitions if one.topic == SHARE_GROUP_STATE], until_ms, note):
            shared.setdefault(image.group, []).append(image)
    logs = _Logs(partitions, until_ms, note)
    details = (_share_detail(one, shared.get(one.group, ()), names.get, logs) if one.type == "share"
               else _detail(one, logs) for one in found)  # fmt: skip
    return sorted(query.narrowed(details), key=lambda one: (one.image.group, one.image.coordinator_partition or 0))


def _tell_absent(of_groups: Sequence[Partition], note: Note) -> None:
    numbers = {one.number for one in of_groups if one.number is not None}
    count = max(numbers, default=-1) + 1
    if absent := list(islice((number for number in range(count) if number not in numbers), 11)):
        some = ", ".join(map(str, absent[:10])) + (", …" if len(absent) > 10 else "")
        note(f"{CONSUMER_OFFSETS}: without the partitions {some}, whose groups are not shown")


class TopicNames:
    """The names of topics by their ids, from partition directories and, for the other ids, from metadata logs."""

    def __init__(self, partitions: Iterable[Partition]) -> None:
        self._partitions = list(partitions)

    @cached_property
    def _here(self) -> dict[str, str]:
        first = {one.topic: one for one in reversed(self._partitions) if one.topic is not None}
        return {one.topic_id: name for name, one in first.items() if one.topic_id is not None}

    @cached_property
    def _known(self) -> dict[str, str]:
        from klog.cluster.metadata.metadata_loader import read_metadata

        known: dict[str, str] = {}
        for path in dict.fromkeys(one.log_dir for one in self._partitions):
            state = read_metadata(LogDir(path))
            known |= {} if state is None else {topic_id: name for name, topic_id in state.topic_ids.items()}
        return known

    def get(self, topic_id: str) -> str | None:
        """Return the name of a topic, None if unknown."""
        return self._here.get(topic_id) or self._known.get(topic_id)


class _Logs:
    """The first and last offsets of logs, now or before a time."""

    def __init__(self, partitions: Iterable[Partition], until_ms: int | None, note: Note) -> None:
        self._partitions = {(one.topic, one.number): one for one in partitions}
        self._until_ms, self._note = until_ms, note
        self._bounds: dict[AssignedPartition, tuple[int | None, int | None]] = {}

    def bounds(self, topic: str, number: int) -> tuple[int | None, int | None]:
        """Return the first offset and the end of a log; None if unknown."""
        if (topic, number) not in self._bounds:
            partition = self._partitions.get((topic, number))
            self._bounds[topic, number] = (None, None) if partition is None else self._read(partition)
        return self._bounds[topic, number]

    def _read(self, partition: Partition) -> tuple[int | None, int | None]:
        try:
            end = None if partition.log_end is None else partition.log_end.offset
            if partition.log_end is not None and partition.log_end.damage is not None:
                note_damage(partition, partition.file(partition.segments[-1].log), partition.log_end.damage, self._note)
            if self._until_ms is not None and end is not None:
                later = as_late(partition, self._until_ms)
                if later is not None and later.batch is not None:
                    end = later.batch.base_offset if later.offset is None else later.offset
        except KlogError as error:
            self._note(str(error))
            return partition.log_start_offset, None
        return partition.log_start_offset, end


def _row(where: AssignedPartition, offset: int | None, committed: OffsetImage | None, logs: _Logs) -> PartitionLag:
    start, end = logs.bounds(*where)
    lag = None if offset is None or end is None else end - offset
    return PartitionLag(*where, offset, committed, start, end, lag)


def _detail(group: GroupImage, logs: _Logs) -> GroupDetail:
    committed = {(one.topic, one.partition): one for one in group.offsets}
    owned = {where for member in group.members for where in member.partitions}
    rows = []
    for where in sorted(committed.keys() | owned):
        one = committed.get(where)
        rows.append(_row(where, None if one is None else one.offset, one, logs))
    pending = (_row((one.topic, one.partition), one.offset, one, logs) for one in group.pending)
    return GroupDetail(group, tuple(rows), tuple(pending))


def _share_detail(
    group: GroupImage, images: Iterable[ShareImage], name: Callable[[str], str | None], logs: _Logs
) -> GroupDetail:
    shared = {(name(one.topic_id) or one.topic_id, one.partition): one for one in images}
    owned = {where for member in group.members for where in member.partitions}
    wanted = sorted(shared.keys() | owned | set(group.partitions))
    return GroupDetail(group, tuple(_share_rows(wanted, shared, logs)), ())


def _share_rows(
    wanted: Iterable[AssignedPartition], shared: dict[AssignedPartition, ShareImage], logs: _Logs
) -> Iterator[PartitionLag]:
    for where in wanted:
        image = shared.get(where)
        if image is None or image.start_offset == _NOWHERE:
            yield _row(where, None, None, logs)
            continue
        row = _row(where, image.start_offset, None, logs)
        complete = max(image.complete, 0)
        yield row._replace(lag=None if row.lag is None else row.lag - complete, in_flight=image.in_flight)
