"""Reads the logs of coordinators: the committed offsets of the group coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from klog.data_dir.partition import Partition
from klog.errors import KlogError
from klog.formats.batch import Attributes
from klog.formats.control import control_record
from klog.formats.damage import Damage
from klog.formats.internal_topics import CONSUMER_OFFSETS, CoordinatorRecord, coordinator_record
from klog.log.segment import Segment

_OFFSET_KEYS: Final = (b"\0\0", b"\0\1")
_COMMIT_MARKER: Final = 1

Committed = dict[tuple[str, int], tuple[int, int, str]]
"""Topic and partition → offset, leader epoch (-1: none), metadata."""


class _Entry(NamedTuple):
    producer_id: int
    is_transactional: bool
    commits: bool | None  # a marker, and which one; None for data
    timestamp: int  # ms
    key: bytes | None
    value: bytes | None


def committed_offsets(partitions: Iterable[Partition], until_ms: int | None = None) -> dict[str, Committed]:
    """Return what each group has committed, by the partitions of `__consumer_offsets` that are here.

    *until_ms*: what it had committed before then, as far as compaction has left it.  Groups of whose offsets only
    tombstones are left are not there.  Raises nothing for content.  Kafka: GroupCoordinatorShard.replay.
    """
    groups: dict[str, Committed] = {}
    for partition in partitions:
        for key, value in _latest_offsets(partition, until_ms).items():
            record = coordinator_record(CONSUMER_OFFSETS, key, value)
            if isinstance(record, CoordinatorRecord) and record.value is not None:
                where = record.key["topic"], record.key["partition"]
                told = record.value["offset"], record.value.get("leaderEpoch", -1), record.value["metadata"] or ""
                groups.setdefault(record.key["group"], {})[where] = told
    return groups


def _latest_offsets(partition: Partition, until_ms: int | None) -> dict[bytes, bytes]:
    """Return the latest value of each key that is about an offset."""
    latest: dict[bytes, bytes] = {}
    for key, value in taken(partition, until_ms):
        if key[:2] not in _OFFSET_KEYS:
            continue
        if value is None:
            latest.pop(key, None)
        elif until_ms is None or _committed_before(until_ms, key, value):
            latest[key] = value
    return latest


def _committed_before(until_ms: int, key: bytes, value: bytes) -> bool:
    record = coordinator_record(CONSUMER_OFFSETS, key, value)
    if not isinstance(record, CoordinatorRecord) or record.value is None:
        return False
    return bool(record.value["commitTimestamp"] < until_ms)


def taken(partition: Partition, until_ms: int | None = None) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield key and value of the records that count, in their order; those of a transaction once it is committed.

    *until_ms*: none that was written then or later, and a transaction only if its marker was not.
    """
    waiting: dict[int, list[tuple[bytes, bytes | None]]] = {}
    for segment in partition.segments:
        with suppress(KlogError):  # the other segments are still read
            for entry in _entries(partition.file(segment.log)):
                if until_ms is not None and entry.timestamp >= until_ms:
                    continue
                if entry.commits is not None:
                    ended = waiting.pop(entry.producer_id, [])
                    yield from ended if entry.commits else ()
                elif entry.key is not None and entry.is_transactional:
                    waiting.setdefault(entry.producer_id, []).append((entry.key, entry.value))
                elif entry.key is not None:
                    yield entry.key, entry.value


def _entries(path: str) -> Iterator[_Entry]:
    """Yield the intact records of a log.  Raises KlogError when it cannot be opened."""
    for rows in Segment(path).record_windows():
        if isinstance(rows, Damage):
            continue
        for i in range(rows.records):
            _, timestamp, key, value, _, _, number = rows.record(i)
            batch = rows.batch(number)
            commits = None
            if batch.attributes & Attributes.CONTROL:
                commits = control_record(key, value).type_id == _COMMIT_MARKER
            transactional = bool(batch.attributes & Attributes.TRANSACTIONAL)
            yield _Entry(batch.producer_id, transactional, commits, timestamp, key, value)
