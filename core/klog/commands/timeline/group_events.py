"""The events in `__consumer_offsets`: commits, rebalances, deleted groups."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from klog.base.errors import counted
from klog.cluster.coordinator.coordinator_records import CoordinatorEntry, Note, entries
from klog.commands.timeline.timeline_event import BROKER_CLOCK, EventFilter, TimelineEvent
from klog.data_dir.partition import Partition
from klog.formats.internal_topics import CONSUMER_OFFSETS, CoordinatorRecord, coordinator_record

Emit = Callable[[TimelineEvent], None]

SAME_COMMIT_MS: Final = 1000
"""Commits of a group within a second of the first of them are one event."""
_MOST_NAMED: Final = 3
_COMMITS: Final = (0, 1)
_CLASSIC: Final = 2
_EPOCHS: Final = {3: "consumer", 11: "share", 17: "streams"}
_MEMBERS: Final = (5, 10, 19)


class _Commits(NamedTuple):
    """Commits that become one event.  *latest*: by topic and partition, the value of the record."""

    begin: int
    offset: int
    latest: dict[tuple[str, int], tuple[bytes, bytes]]
    counted: list[int]


class GroupEvents:
    """Takes the records of one partition of `__consumer_offsets`; memory for its groups and open transactions."""

    def __init__(self, partition: Partition, log_dir: str, wanted: EventFilter, emit: Emit) -> None:
        self._where = TimelineEvent(0, BROKER_CLOCK, "", "", log_dir, file=partition.directory)
        self._wanted, self._emit = wanted, emit
        self._commits: dict[str, _Commits] = {}
        self._pending: dict[int, list[CoordinatorEntry]] = {}
        self._deleted: dict[str, TimelineEvent] = {}
        self._deleted_at = -1
        self._generations: dict[str, int] = {}
        self._members: dict[str, set[str]] = {}
        self._partition = partition
        self._undecodable = 0

    def read(self, note: Note) -> None:
        """Read the log; *note* receives its unreadable parts."""
        for entry in entries(self._partition, note):
            if self._deleted and entry.timestamp != self._deleted_at:
                self._flush_deleted()
            if entry.commits is not None:
                self._marker(entry)
            elif entry.is_transactional:
                self._pending.setdefault(entry.producer_id, []).append(entry)
            else:
                self._take(entry, entry.timestamp)
        self._flush_deleted()
        for group in list(self._commits):
            self._flush(group)
        if self._undecodable:
            note(f"{self._partition.path}: {self._undecodable} records that cannot be decoded")

    def _marker(self, marker: CoordinatorEntry) -> None:
        waiting = self._pending.pop(marker.producer_id, [])
        if marker.commits:
            for entry in waiting:
                self._take(entry, marker.timestamp)

    def _take(self, entry: CoordinatorEntry, when: int) -> None:
        record = _key(entry.key) if entry.key is not None else None
        if record is None:
            return
        kind, group, more = record
        if kind in _COMMITS:
            if entry.value is not None and self._wanted.wants_topic(more[0]):
                self._commit(group, (more[0], more[1]), entry, when)
        elif kind in _MEMBERS:
            members = self._members.setdefault(group, set())
            (members.discard if entry.value is None else members.add)(more[0])
        elif kind == _CLASSIC or kind in _EPOCHS:
            self._metadata(kind, group, entry)

    # ---- commits

    def _commit(self, group: str, where: tuple[str, int], entry: CoordinatorEntry, when: int) -> None:
        commits = self._commits.get(group)
        if commits is not None and not 0 <= when - commits.begin < SAME_COMMIT_MS:
            self._flush(group)
            commits = None
        if commits is None:
            commits = self._commits[group] = _Commits(when, entry.offset, {}, [0])
        commits.counted[0] += 1
        assert entry.key is not None
        assert entry.value is not None
        commits.latest[where] = entry.key, entry.value

    def _flush(self, group: str) -> None:
        commits = self._commits.pop(group)
        some = list(commits.latest.items())[:_MOST_NAMED]
        words = ", ".join(f"{topic}-{number} = {_offset(*record)}" for (topic, number), record in some)
        more = len(commits.latest) - len(some)
        words += f" and {counted(more, 'more partition')}" if more else ""
        topics = {topic for topic, _ in commits.latest}
        numbers = [number for _, number in commits.latest]
        self._emit(
            self._where._replace(
                time=commits.begin,
                kind="commit",
                message=f"{counted(commits.counted[0], 'commit')}: {words}",
                group=group,
                topic=topics.pop() if len(topics) == 1 else None,
                partition=numbers[0] if len(numbers) == 1 else None,
                offset=commits.offset,
                commits=commits.counted[0],
            )
        )

    # ---- groups

    def _metadata(self, kind: int, group: str, entry: CoordinatorEntry) -> None:
        event = self._where._replace(time=entry.timestamp, group=group, offset=entry.offset)
        if entry.value is None:
            self._generations.pop(group, None)
            self._members.pop(group, None)
            self._deleted_at = entry.timestamp
            words = "deleted, by a tool or because all of it had expired"
            self._deleted[group] = event._replace(kind="group-deleted", message=words)
            return
        # The batch of a group's new protocol contains one kind of record for removal and another one for creation.
        self._deleted.pop(group, None)
        assert entry.key is not None
        record = coordinator_record(CONSUMER_OFFSETS, entry.key, entry.value)
        if not isinstance(record, CoordinatorRecord) or record.value is None:
            self._undecodable += 1
            return
        if kind == _CLASSIC:
            epoch, members = record.value["generation"], len(record.value["members"])
            words = f"generation {epoch}, {counted(members, 'member')}"
            words += f", {record.value['protocol']}" if record.value["protocol"] else ""
        else:
            epoch, members = record.value["epoch"], len(self._members.get(group, ()))
            words = f"{_EPOCHS[kind]} group epoch {epoch}, {counted(members, 'member')}"
        if self._generations.get(group) != epoch:
            self._generations[group] = epoch
            self._emit(event._replace(kind="rebalance", message=words, epoch=epoch))

    def _flush_deleted(self) -> None:
        for event in self._deleted.values():
            self._emit(event)
        self._deleted.clear()


@lru_cache(maxsize=1 << 16)
def _key(key: bytes) -> tuple[int, str, tuple[str, int]] | None:
    """Return the type of a record, its group, and topic and partition or member; None: it cannot be decoded."""
    record = coordinator_record(CONSUMER_OFFSETS, key, None)
    if not isinstance(record, CoordinatorRecord):
        return None
    data = record.key
    group = data["group"] if record.type in (*_COMMITS, _CLASSIC) else data["groupId"]
    if record.type in _COMMITS:
        return record.type, group, (data["topic"], data["partition"])
    return record.type, group, (data.get("memberId", ""), -1)


def _offset(key: bytes, value: bytes) -> str:
    record = coordinator_record(CONSUMER_OFFSETS, key, value)
    if not isinstance(record, CoordinatorRecord) or record.value is None:
        return "?"
    return str(record.value["offset"])
