"""Loads the state of a cluster from the metadata log in a log dir.

    metadata = read_metadata(LogDir("data"))
    if metadata is not None and metadata.complete:
        print(metadata.topic_config("orders"), metadata.brokers[1].epoch)

It is the newest intact snapshot (`….checkpoint`), then the records of the log from its end offset on.  Torn or corrupt
parts are skipped and reported.  A record at the end of the log may never have been committed: no file says.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType
from typing import Final, NamedTuple

from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.errors import KlogError
from klog.formats.batch import CONTROL_BIT
from klog.formats.control import control_record
from klog.formats.damage import Damage
from klog.formats.internal_topics import Undecodable, metadata_record
from klog.formats.names import CLUSTER_METADATA, FileKind, FileName, Stage
from klog.location import Location
from klog.log.segment import Segment
from klog.metadata.image import (
    BROKER_RESOURCE,
    TOPIC_RESOURCE,
    BrokerRegistration,
    MetadataImage,
    PartitionRegistration,
)

_SNAPSHOT_HEADER, _SNAPSHOT_FOOTER = 3, 4
_MOST_PROBLEMS: Final = 20
_MORE_TRIES: Final = 2
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True)
class ClusterMetadata:
    """The cluster as of *end_offset*, the offset after the last record that was read.

    *topic_ids*: by name.  *partitions*: by topic id, then number.  *configs*: by resource type (`TOPIC_RESOURCE`,
    `BROKER_RESOURCE`) and name.  *features*: finalized levels, `metadata.version` among them.  *brokers*: by node id.
    *complete*: nothing below *end_offset* is missing; a torn tail is beyond it.  *problems*: a sentence for each part
    that was skipped.
    """

    topic_ids: Mapping[str, str]
    partitions: Mapping[str, Mapping[int, PartitionRegistration]]
    configs: Mapping[tuple[int, str], Mapping[str, str]]
    features: Mapping[str, int]
    brokers: Mapping[int, BrokerRegistration]
    end_offset: int
    complete: bool
    problems: tuple[str, ...]

    def partition(self, topic: str, number: int) -> PartitionRegistration | None:
        """Return a partition's registration; None if the cluster has no such partition."""
        return self.partitions.get(self.topic_ids.get(topic, ""), {}).get(number)

    def topic_config(self, topic: str) -> Mapping[str, str]:
        """Return the settings that were set for *topic*."""
        return self.configs.get((TOPIC_RESOURCE, topic), _NOTHING)

    def broker_config(self, node_id: int | None) -> Mapping[str, str]:
        """Return the settings that were set dynamically for a broker, or for all of them, by the broker's names.

        *node_id* None: only those for all brokers.  A broker's own file (`server.properties`) is not included.
        """
        for_all = self.configs.get((BROKER_RESOURCE, ""), _NOTHING)
        own = _NOTHING if node_id is None else self.configs.get((BROKER_RESOURCE, str(node_id)), _NOTHING)
        return {**for_all, **own}


def read_metadata(log_dir: LogDir) -> ClusterMetadata | None:
    """Return the cluster of the metadata log in *log_dir*; None if it has none (ZooKeeper, or another log dir has it).

    Its content, or a file that cannot be read, never raises: see `problems`.  Beside a running node files appear and
    disappear, so what seems to be missing is looked for again.
    """
    path = os.path.join(log_dir.path, f"{CLUSTER_METADATA}-0")
    if not os.path.isdir(path):
        return None
    found = _read(Partition(path))
    tries = 0 if found.complete or not log_dir.lock.held else _MORE_TRIES
    while tries and not found.complete:
        found = _read(Partition(path))
        tries -= 1
    return found


def _read(partition: Partition) -> ClusterMetadata:
    problems = _Problems()
    base = _newest_snapshot(partition, problems)
    if base is None and not partition.segments:
        problems.add(f"{partition.path}: {partition.unreadable or 'neither a log nor a snapshot'}")
    state = MetadataImage() if base is None else base.state
    end_offset = _replay_log(partition, state, 0 if base is None else base.offset, problems)
    return ClusterMetadata(
        state.topic_ids,
        state.partitions,
        state.configs,
        state.features,
        state.brokers,
        end_offset,
        not problems.missing,
        problems.sentences(),
    )


class _Problems:
    """What was passed over; *missing*: something that should be in the state is not."""

    def __init__(self) -> None:
        self._first: list[str] = []
        self._more = 0
        self.missing = False

    def add(self, sentence: str, missing: bool = True) -> None:
        self.missing |= missing
        if len(self._first) < _MOST_PROBLEMS:
            self._first.append(sentence)
        else:
            self._more += 1

    def take(self, other: _Problems) -> None:
        for sentence in other._first:
            self.add(sentence, other.missing)
        self._more += other._more

    def sentences(self) -> tuple[str, ...]:
        return (*self._first, f"and {self._more} more") if self._more else tuple(self._first)


# ---------------------------------------------------------------- records


class _Found(NamedTuple):
    """A record of a log or a snapshot."""

    offset: int
    is_control: bool
    key: bytes | None
    value: bytes | None


def _records(path: str, first: int) -> Iterator[_Found | Damage]:
    """Yield the records from offset *first* on, in their order, with the damage between them.

    Raises KlogError if the file cannot be opened.
    """
    for rows in Segment(path).record_windows(first):
        if isinstance(rows, Damage):
            yield rows
            continue
        for i in range(rows.records):
            offset, _, key, value, _, _, batch = rows.record(i)
            if offset >= first:
                # Only control records have keys here.
                is_control = key is not None and bool(rows.batch(batch).attributes & CONTROL_BIT)
                yield _Found(offset, is_control, key, value)


class _Replay:
    """Takes records into a state in their order; those of a transaction wait until it has ended.

    Kafka: MetadataBatchLoader.
    """

    def __init__(self, state: MetadataImage, problems: _Problems) -> None:
        self._state = state
        self._problems = problems
        self._waiting: list[tuple[bytes | None, str, int]] | None = None

    def take(self, value: bytes | None, file: str, offset: int) -> None:
        """Replay the record with *value* at *offset* of *file*."""
        record = metadata_record(value)
        if isinstance(record, Undecodable):
            self._misfit(file, offset, str(record.message))
        elif record.name == "BEGIN_TRANSACTION_RECORD":
            if self._waiting is not None:
                self._misfit(file, offset, "a transaction begins inside of another")
            self._waiting = self._waiting or []
        elif record.name in ("END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD"):
            if self._waiting is None:
                self._misfit(file, offset, "a transaction ends that has not begun")
            elif record.name == "END_TRANSACTION_RECORD":
                self.commit()
            self._waiting = None
        elif self._waiting is not None:
            # As bytes: decoded they take many times the memory.
            self._waiting.append((value, file, offset))
        elif misfit := self._state.apply(record):
            self._misfit(file, offset, f"{record.name}: {misfit}")

    def _misfit(self, file: str, offset: int, what: str) -> None:
        self._problems.add(f"{Location(file, offset=offset)}: {what}")

    def hole(self, file: str, expected: int, found: int) -> None:
        """Hear that records are missing."""
        self._problems.add(f"{file}: offset {found} where {expected} was expected")
        # The end of the transaction may have been there; few are aborted.
        self.commit()

    def commit(self) -> None:
        """Take in what waits; without an open transaction that is nothing."""
        waiting, self._waiting = self._waiting or [], None
        for value, file, offset in waiting:
            self.take(value, file, offset)


def _replay_log(partition: Partition, state: MetadataImage, start: int, problems: _Problems) -> int:
    """Take the log's records from offset *start* on into *state*; return the offset after the last of them."""
    replay, expected = _Replay(state, problems), start
    ends: list[int | None] = [files.base_offset for files in partition.segments[1:]]
    for files, next_base in zip_longest(partition.segments, ends):
        if next_base is not None and next_base <= start:
            continue
        path = partition.file(files.log)
        if files.base_offset > expected:
            replay.hole(path, expected, files.base_offset)
            expected = files.base_offset
        try:
            for found in _records(path, start):
                if isinstance(found, Damage):
                    problems.add(str(found), missing=not found.is_unfinished)
                    continue
                if found.offset != expected:
                    replay.hole(path, expected, found.offset)
                expected = found.offset + 1
                if not found.is_control:
                    replay.take(found.value, path, found.offset)
        except KlogError as error:
            problems.add(str(error))
    return expected


# ---------------------------------------------------------------- snapshots


class _Snapshot(NamedTuple):
    """What a snapshot gave: the state of everything below *offset*.  *flaw*: why it is not whole, None when it is."""

    offset: int
    state: MetadataImage
    problems: _Problems
    flaw: str | None


def _newest_snapshot(partition: Partition, problems: _Problems) -> _Snapshot | None:
    """Return the newest whole snapshot whose end the log contains, else the newest one; None if there is none."""
    log_start = partition.segments[0].base_offset if partition.segments else None
    newest: _Snapshot | None = None
    for file in sorted(filter(_is_snapshot, partition.files), key=lambda file: (file.offset, file.epoch), reverse=True):
        if newest is not None and (log_start is None or (file.offset or 0) < log_start):
            break  # with this one, more would be missing than is broken in the newest
        found = _read_snapshot(partition.file(file.name), file.offset or 0)
        if found.flaw is None:
            problems.take(found.problems)
            return found
        problems.add(found.flaw, missing=False)
        newest = newest or found
    if newest is None or log_start == 0:
        return None
    problems.take(newest.problems)
    problems.missing = True
    return newest


def _is_snapshot(file: FileName) -> bool:
    return file.kind is FileKind.KRAFT_SNAPSHOT and file.stage is Stage.IN_USE and file.canonical


def _read_snapshot(path: str, offset: int) -> _Snapshot:
    """Kafka: RecordsSnapshotReader; a snapshot without a footer was never finished."""
    state, problems = MetadataImage(), _Problems()
    replay, expected, flaw, first, last = _Replay(state, problems), 0, None, None, None
    try:
        for found in _records(path, 0):
            if isinstance(found, Damage):
                flaw = flaw or str(found)
                continue
            if found.offset != expected:
                flaw = flaw or f"{path}: record {found.offset} where {expected} was expected"
            expected = found.offset + 1
            last = control_record(found.key, found.value).type_id if found.is_control else None
            first = last if found.offset == 0 else first
            if not found.is_control:
                replay.take(found.value, path, found.offset)
    except KlogError as error:
        flaw = flaw or str(error)
    if (first, last) != (_SNAPSHOT_HEADER, _SNAPSHOT_FOOTER):
        flaw = flaw or f"{path}: not finished: {'header' if first != _SNAPSHOT_HEADER else 'footer'} missing"
    return _Snapshot(offset, state, problems, flaw)
