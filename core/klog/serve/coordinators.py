"""What the group and the transaction coordinator had written down: committed offsets, and how transactions end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from klog.decode import decoded
from klog.errors import KlogError
from klog.formats.batch import Attributes
from klog.formats.codec import Decompressor
from klog.formats.control import control_record
from klog.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE, CoordinatorRecord, coordinator_record
from klog.kernel import Window
from klog.partition import Partition
from klog.segment import Segment
from klog.source import Source

_OFFSET_KEYS: Final = (b"\0\0", b"\0\1")
_COMMIT_MARKER: Final = 1
_PREPARE_COMMIT, _COMPLETE_COMMIT = 2, 4
"""Kafka: TransactionState."""

Committed = dict[tuple[str, int], tuple[int, int, str]]
"""Topic and partition → offset, leader epoch (-1: none), metadata."""


class _Entry(NamedTuple):
    producer_id: int
    is_transactional: bool
    commits: bool | None  # a marker, and which one; None for data
    key: bytes | None
    value: bytes | None


def committed_offsets(partitions: Iterable[Partition]) -> dict[str, Committed]:
    """Return what each group has committed, by the partitions of `__consumer_offsets` that are here.

    Groups of whose offsets only tombstones are left are not there.  Raises nothing for content.
    Kafka: GroupCoordinatorShard.replay.
    """
    groups: dict[str, Committed] = {}
    for partition in partitions:
        for key, value in _latest(partition).items():
            record = coordinator_record(CONSUMER_OFFSETS, key, value) if key[:2] in _OFFSET_KEYS else None
            if isinstance(record, CoordinatorRecord) and record.value is not None:
                where = record.key["topic"], record.key["partition"]
                told = record.value["offset"], record.value.get("leaderEpoch", -1), record.value["metadata"] or ""
                groups.setdefault(record.key["group"], {})[where] = told
    return groups


class Decided(NamedTuple):
    """Transactions that were to be committed: a producer's, in some partitions (None: in all)."""

    producer_id: int
    partitions: frozenset[tuple[str, int]] | None


def decided_commits(partitions: Iterable[Partition]) -> list[Decided]:
    """Return the transactions that the coordinator had decided to commit, by what is here of `__transaction_state`.

    One that is complete has its markers everywhere; where one is missing all the same, it is lost.
    Kafka: TransactionCoordinator.endTransaction, TransactionMarkerChannelManager.
    """
    found: list[Decided] = []
    for partition in partitions:
        for key, value in _latest(partition).items():
            record = coordinator_record(TRANSACTION_STATE, key, value)
            if not isinstance(record, CoordinatorRecord) or record.value is None:
                continue
            status, producer = record.value["transactionStatus"], record.value["producerId"]
            if status == _COMPLETE_COMMIT:
                found.append(Decided(producer, None))
            elif status == _PREPARE_COMMIT:
                topics = record.value["transactionPartitions"] or ()
                pairs = ((topic["topic"], number) for topic in topics for number in topic["partitionIds"])
                found.append(Decided(producer, frozenset(pairs)))
    return found


def _latest(partition: Partition) -> dict[bytes, bytes]:
    """Return the latest value of each key; of a transaction's records only when it is committed."""
    latest: dict[bytes, bytes] = {}
    waiting: dict[int, list[tuple[bytes, bytes | None]]] = {}
    for segment in partition.segments:
        with suppress(KlogError):  # what is in other segments is known all the same
            for entry in _entries(os.path.join(partition.path, segment.log)):
                if entry.commits is not None:
                    ended = waiting.pop(entry.producer_id, [])
                    for key, value in ended if entry.commits else ():
                        _put(latest, key, value)
                elif entry.key is not None and entry.is_transactional:
                    waiting.setdefault(entry.producer_id, []).append((entry.key, entry.value))
                elif entry.key is not None:
                    _put(latest, entry.key, entry.value)
    return latest


def _put(latest: dict[bytes, bytes], key: bytes, value: bytes | None) -> None:
    if value is None:
        latest.pop(key, None)
    else:
        latest[key] = value


def _entries(path: str) -> Iterator[_Entry]:
    """Yield the intact records of a log.  Raises KlogError when it cannot be opened."""
    segment, window, codecs = Segment(path), Window(), Decompressor().functions
    with Source(path) as source:
        reader = segment.reader(source)
        while reader.next(window):
            for rows, damage in decoded(window, codecs, path, segment.span):
                if damage is not None:
                    continue
                for i in range(rows.records):
                    _, _, key, value, _, _, number = rows.record(i)
                    batch = rows.batch(number)
                    commits = None
                    if batch.attributes & Attributes.CONTROL:
                        commits = control_record(key, value).type_id == _COMMIT_MARKER
                    yield _Entry(
                        batch.producer_id, bool(batch.attributes & Attributes.TRANSACTIONAL), commits, key, value
                    )
