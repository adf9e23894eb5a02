"""Describes one file of any kind: the facts in its headers, or all of a small file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from klog.base.errors import NotKafkaError, UnreadableError, UnsupportedError
from klog.base.read_only import ReadOnlyFile
from klog.commands.describe.log_facts import LogSummary, first_offset, summarize, summarize_index
from klog.data_dir.log_dir import lock_state
from klog.data_dir.root_files import SMALL_FILE_BYTES
from klog.data_dir.selection import KafkaFile
from klog.formats.batch import BatchFacts
from klog.formats.checkpoint import (
    Checkpoint,
    EpochEntry,
    Malformed,
    OffsetEntry,
    epochs_in_force,
    read_epochs,
    read_offsets,
    read_partition_metadata,
)
from klog.formats.index import ABORTED_TXN, OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout
from klog.formats.names import ROOT_CHECKPOINTS, FileKind, FileName
from klog.formats.producer_snapshot import Producer, read_snapshot
from klog.formats.properties import read_clean_shutdown, read_meta_properties, read_quorum_state

Value = str | int | bool | None | tuple[str, ...]


@dataclass(frozen=True)
class FileFacts:
    """A file: *facts* by name, *entries* as rows of the same columns (none if the kind has none, or too many).

    *kind* and *stage* are those of its name.  *notes*: its faults and oddities.
    """

    path: str
    kind: FileKind
    stage: str
    size: int
    facts: dict[str, Value]
    columns: tuple[str, ...] = ()
    entries: tuple[tuple[Value, ...], ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class _Found:
    """The result of a reader of one kind of file; the fields are those of `FileFacts`."""

    size: int
    facts: dict[str, Value]
    columns: tuple[str, ...] = ()
    entries: tuple[tuple[Value, ...], ...] = ()
    notes: list[str] = field(default_factory=list)


def describe_file(file: KafkaFile, deep: bool = False) -> FileFacts:
    """Describe *file* by the kind its name gives; with *deep*, a log's records are counted by decoding them.

    Raises UnreadableError, NotKafkaError, and UnsupportedError for sizes that no broker writes.
    """
    kind = file.name.kind
    if kind in (FileKind.LOG, FileKind.KRAFT_SNAPSHOT, FileKind.BOOTSTRAP):
        found = _log(file.path, file.name, deep)
    elif kind in _INDEXES:
        found = _index(file.path, file.name, _INDEXES[kind])
    elif kind is FileKind.LOCK:
        found = _lock(file.path)
    else:
        found = _TEXTS[kind](_content(file.path))
    if not file.name.canonical:
        found.notes.append("not a name that a broker would write")
    notes = tuple(found.notes)
    stage = file.name.stage.value
    return FileFacts(file.path, kind, stage, found.size, found.facts, found.columns, found.entries, notes)


# logs


def _log(path: str, name: FileName, deep: bool) -> _Found:
    log = summarize(path, deep)
    if not name.canonical and log.first is None and log.damage is not None:
        raise NotKafkaError(
            f"{path}: not a Kafka log: {log.damage.kind.value} at 0, and no broker would write a log of this name"
        )
    facts: dict[str, Value] = {}
    if name.kind is FileKind.LOG:
        facts["base_offset"] = name.offset
    elif name.kind is FileKind.KRAFT_SNAPSHOT:
        facts |= {"end_offset": name.offset, "epoch": name.epoch}
    found = _Found(log.size, facts | _log_facts(log))
    if log.damage is not None:
        found.notes.append(f"{log.damage.kind.value} at {log.damage.place.position}: {log.damage.detail}")
    if log.damaged:
        found.notes.append(f"{log.damaged} damaged stretches")
    if log.first is not None and log.last is not None:
        found.columns = ("batch", *_BATCH_COLUMNS)
        found.entries = (("first", *_batch(log.first)), ("last", *_batch(log.last)))[: log.batches]
    return found


def _log_facts(log: LogSummary) -> dict[str, Value]:
    return {
        "batches": log.batches,
        "records": log.records,
        "first_offset": first_offset(log.first) if log.first else None,
        "last_offset": log.last.last_offset if log.last else None,
        "first_timestamp": log.first_timestamp,
        "last_timestamp": log.last_timestamp,
        "codecs": log.codecs,
        "flags": log.flags,
    }


_BATCH_COLUMNS = ("position", "size", "magic", "base_offset", "last_offset", "records", "max_timestamp", "leader_epoch")


def _batch(header: BatchFacts) -> tuple[Value, ...]:
    records = header.records_count if header.magic >= 2 or header.is_wrapper else 1
    tail = (records, header.max_timestamp, header.leader_epoch)
    offsets = (first_offset(header), header.last_offset)
    return (header.position, header.size, header.magic, *offsets, *(value if value >= 0 else None for value in tail))


# indexes

_INDEXES: dict[FileKind, Layout] = {
    FileKind.INDEX: OFFSET_ENTRY,
    FileKind.TIME_INDEX: TIME_ENTRY,
    FileKind.TXN_INDEX: ABORTED_TXN,
}


def _index(path: str, name: FileName, layout: Layout) -> _Found:
    index = summarize_index(path, layout)
    facts: dict[str, Value] = {"base_offset": name.offset, "entries": index.entries, "zero_entries": index.zeros}
    found = _Found(index.size, facts)
    relative = "relative_offset" in layout.names
    found.columns = ("entry", *layout.names, *(("offset",) if relative else ()))
    if index.first is not None and index.last is not None:
        for which, entry in (("first", index.first), ("last", index.last))[: index.entries]:
            row: tuple[Value, ...] = (which, *entry)
            if relative:
                distance = entry[layout.names.index("relative_offset")]
                row = (*row, None if name.offset is None else name.offset + distance)
            found.entries = (*found.entries, row)
    if index.ragged_bytes:
        found.notes.append(f"{index.ragged_bytes} bytes at the end are not a complete entry")
    if index.zeros:
        found.notes.append(f"{index.zeros} entries at the end are zeros, as in a preallocated index")
    return found


def _lock(path: str) -> _Found:
    lock = lock_state(path)
    try:
        size = os.stat(path).st_size  # opening and closing it once more would gain nothing
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error
    found = _Found(size, {"held": lock.held, "pid": lock.pid})
    if lock.reason is not None:
        found.notes.append(lock.reason)
    return found


# small files


def _content(path: str) -> bytes:
    with ReadOnlyFile(path) as source:
        if source.size > SMALL_FILE_BYTES:
            raise UnsupportedError(f"{path}: {source.size} bytes are too large for a file of this name")
        return source.read(0, source.size)


def _snapshot(content: bytes) -> _Found:
    from klog.kernel import crc32c

    snapshot = read_snapshot(content, crc32c)
    found = _Found(len(content), {"producers": len(snapshot.producers), "crc": snapshot.stored_crc})
    found.columns = Producer._fields
    found.entries = snapshot.producers
    if snapshot.problem is not None:
        found.notes.append(snapshot.problem)
    return found


def _entries(
    content: bytes, checkpoint: Checkpoint[OffsetEntry] | Checkpoint[EpochEntry], columns: tuple[str, ...]
) -> _Found:
    found = _Found(len(content), {"entries": len(checkpoint.entries)})
    found.columns, found.entries = columns, checkpoint.entries
    if checkpoint.malformed is not None:
        found.notes.append(str(checkpoint.malformed))
    return found


def _offsets(content: bytes) -> _Found:
    return _entries(content, read_offsets(content), OffsetEntry._fields)


def _epochs(content: bytes) -> _Found:
    epochs = read_epochs(content)
    found = _entries(content, epochs, EpochEntry._fields)
    dropped = len(epochs.entries) - len(epochs_in_force(epochs.entries))
    if dropped and epochs.malformed is None:
        found.notes.append(f"{dropped} entries are out of order; a broker drops them")
    return found


def _of_object(content: bytes, read: object, *names: str) -> _Found:
    """Return the attributes *names* of *read*, the facts in *content*, or the reason why it is malformed."""
    if isinstance(read, Malformed):
        found = _Found(len(content), {})
        found.notes.append(str(read))
        return found
    return _Found(len(content), {name: getattr(read, name) for name in names})


def _quorum_state(content: bytes) -> _Found:
    names = ("data_version", "leader_id", "leader_epoch", "voted_id", "voted_directory_id", "cluster_id")
    found = _of_object(content, state := read_quorum_state(content), *names)
    if not isinstance(state, Malformed):
        found.facts["voters"] = None if state.voters is None else tuple(map(str, state.voters))
    return found


_TEXTS: dict[FileKind, Callable[[bytes], _Found]] = {
    FileKind.SNAPSHOT: _snapshot,
    FileKind.LEADER_EPOCHS: _epochs,
    FileKind.PARTITION_METADATA: lambda content: _of_object(
        content, read_partition_metadata(content), "version", "topic_id"
    ),
    FileKind.META_PROPERTIES: lambda content: _of_object(
        content, read_meta_properties(content), "version", "cluster_id", "node_id", "directory_id"
    ),
    FileKind.QUORUM_STATE: _quorum_state,
    FileKind.CLEAN_SHUTDOWN: lambda content: _of_object(content, read_clean_shutdown(content), "broker_epoch"),
    **dict.fromkeys(ROOT_CHECKPOINTS, _offsets),
}
