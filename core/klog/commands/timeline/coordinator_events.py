"""The events of coordinators: in `__consumer_offsets` and in `__transaction_state`.

Groups have commits, rebalances and deletions; transactions have a begin and the decision about their end.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from klog.base.errors import counted
from klog.cluster.coordinator.coordinator_records import CoordinatorEntry, Note, entries
from klog.cluster.coordinator.transactional_ids import (
    COMPLETED,
    EPOCH_BUMPS,
    PREPARED,
    TransactionImage,
    transaction_image,
)
from klog.commands.timeline.log_events import duration
from klog.commands.timeline.timeline_event import BROKER_CLOCK, EventFilter, TimelineEvent
from klog.data_dir.partition import Partition
from klog.formats.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE, CoordinatorRecord, coordinator_record
from klog.formats.transaction_state import TransactionStatus

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
            words = "deleted, by a tool or because all its offsets had expired"
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


class _StateRecord(NamedTuple):
    """A record about a transaction: its position, and its content."""

    offset: int
    image: TransactionImage


class TransactionEvents:
    """Reads the records of one partition of `__transaction_state`; remembers its transactional ids.

    *coordinated*: receives the time (ms) from which on this log contains the transactions of each producer id.
    """

    def __init__(
        self, partition: Partition, log_dir: str, wanted: EventFilter, emit: Emit, coordinated: dict[int, int]
    ) -> None:
        self._where = TimelineEvent(0, BROKER_CLOCK, "", "", log_dir, file=partition.directory)
        self._partition, self._wanted, self._emit, self._coordinated = partition, wanted, emit, coordinated
        self._ongoing: dict[str, _StateRecord] = {}

    def read(self, note: Note) -> None:
        """Read the log; *note* receives its unreadable parts."""
        undecodable = 0
        for entry in entries(self._partition, note):
            if entry.key is None or entry.commits is not None:
                continue
            if entry.value is None:
                self._forget(entry.key)
            elif image := transaction_image(entry.key, entry.value):
                self._take(_StateRecord(entry.offset, image))
            else:
                undecodable += 1
        if undecodable:
            note(f"{self._partition.path}: {undecodable} records that cannot be decoded")
        for begun in self._ongoing.values():
            self._begin(begun)
            image = begun.image
            words = f"no end so far; {_named(image)}; timeout {duration(max(image.timeout_ms, 0))}"
            self._tell("txn-open", image.started, begun, words)

    def _forget(self, key: bytes) -> None:
        record = coordinator_record(TRANSACTION_STATE, key, None)
        if isinstance(record, CoordinatorRecord):
            self._ongoing.pop(record.key["transactionalId"], None)

    def _take(self, record: _StateRecord) -> None:
        image = record.image
        name, began = image.transactional_id, image.started
        self._coordinated.setdefault(image.producer_id, began if began >= 0 else image.updated)
        begun = self._ongoing.get(name)
        if image.status == TransactionStatus.ONGOING:
            is_same = begun is not None and begun.image.started == began
            self._ongoing[name] = begun._replace(image=image) if is_same and begun is not None else record
        elif image.status in PREPARED or (begun is not None and image.status in COMPLETED):
            self._end(self._ongoing.pop(name, record), record)

    def _end(self, begun: _StateRecord, record: _StateRecord) -> None:
        """Emit the event of a transaction whose end has been decided: the markers are written a little later."""
        self._begin(begun)
        image = record.image
        took = image.updated - image.started
        after = f"after {duration(took)}" if 0 <= image.started <= image.updated else "some time later"
        kind, words = ("txn-commit", f"commits {after}") if image.commits else ("txn-abort", f"aborts {after}")
        # From version 2 on every end raises the epoch, not only an end by the coordinator.
        is_raised = image.producer_epoch > begun.image.producer_epoch and begun.image.client_version < EPOCH_BUMPS
        if not image.commits and took >= image.timeout_ms > 0:
            words = f"timed out {after}"
        elif not image.commits and is_raised:
            kind, words = "txn-fenced", f"aborted {after}: another producer has the id"
        self._tell(kind, image.updated, record, f"{words}; {_named(begun.image)}")

    def _begin(self, begun: _StateRecord) -> None:
        if begun.image.started >= 0:
            self._tell("txn-begin", begun.image.started, begun, _named(begun.image))

    def _tell(self, kind: str, time: int, record: _StateRecord, words: str) -> None:
        partitions, image = sorted(record.image.partitions), record.image
        if partitions and not any(self._wanted.wants_topic(topic) for topic, _ in partitions):
            return
        topics = {topic for topic, _ in partitions}
        self._emit(
            self._where._replace(
                time=time,
                kind=kind,
                message=words,
                topic=topics.pop() if len(topics) == 1 else None,
                partition=partitions[0][1] if len(partitions) == 1 else None,
                offset=record.offset,
                epoch=image.producer_epoch,
                transactional_id=image.transactional_id,
                producer_id=image.producer_id,
            )
        )


def _named(image: TransactionImage) -> str:
    found = [f"{topic}-{number}" for topic, number in sorted(image.partitions)]
    more = len(found) - _MOST_NAMED
    return ", ".join(found[:_MOST_NAMED]) + (f" and {counted(more, 'more partition')}" if more > 0 else "") or "nothing"
