"""The events in `__transaction_state`: transactions from their begin to the decision about their end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from klog.base.errors import counted
from klog.cluster.coordinator.coordinator_records import Note, entries
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
from klog.formats.internal_topics import TRANSACTION_STATE, CoordinatorRecord, coordinator_record
from klog.formats.transaction_state import TransactionStatus

Emit = Callable[[TimelineEvent], None]

_MOST_NAMED: Final = 3


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
