"""The records of a registry's topic that its state consists of: what compaction leaves of it, without tombstones."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence, Set
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from klog.cluster.coordinator.coordinator_records import record_windows
from klog.commands.schemas.schema_rows import NoSchemaError
from klog.data_dir.partition import Partition
from klog.formats.batch import CONTROL_BIT
from klog.jobs.schema_sources import StoredLine, stored_lines
from klog.schemas.registry import Registry
from klog.schemas.schema_version import DELETED, HARD_DELETED, LIVE, SchemaVersion, split_subject

_KEPT: Final = frozenset(("CONFIG", "MODE", "CONTEXT", "DELETE_SUBJECT", "ASSOC"))
"""Key types beside SCHEMA whose last record is part of the state."""


class StoredRecord(NamedTuple):
    """A record of the registry's topic."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes
    headers: tuple[tuple[bytes, bytes | None], ...] = ()


class ExportChoice(NamedTuple):
    """Which versions are exported: *subject* a glob, *context* a name, None for all; also deleted ones, in two ways."""

    subject: str | None = None
    context: str | None = None
    deleted: bool = True
    hard_deleted: bool = False

    def has_subject(self, subject: str) -> bool:
        """Whether a subject, by its full name, is meant; "" means settings of the whole registry."""
        context, name = split_subject(subject)
        if self.context is not None and context != self.context:
            return False
        if not name or not subject:  # settings of the whole registry, or of a context
            return self.subject is None
        return self.subject is None or any(fnmatchcase(one, self.subject) for one in (subject, name))


def chosen_versions(registry: Registry, choice: ExportChoice) -> tuple[list[SchemaVersion], list[SchemaVersion]]:
    """Return the versions to export, by offset, and those of them that are only there because others refer to them.

    Soft-deleted ones are among the latter in any case: without them nothing can load the export.  Raises NoSchemaError
    if there are none.
    """
    every = [row for row in registry.rows if _is_exported(row, registry, choice._replace(deleted=True))]
    chosen = [row for row in every if choice.has_subject(row.subject) and (choice.deleted or row.state != DELETED)]
    if not chosen:
        raise NoSchemaError(f"{registry.path}: no schema to export{' meets the conditions' if registry.rows else ''}")
    found, waiting = set(chosen), list(chosen)
    while waiting:
        one = waiting.pop()
        for reference in one.references:
            other = registry.referred(one, reference)
            if other is not None and other not in found and other in every:
                found.add(other)
                waiting.append(other)
    ordered = [row for row in every if row in found]
    return ordered, [row for row in ordered if row not in set(chosen)]


def left_out_referents(
    registry: Registry, versions: Sequence[SchemaVersion]
) -> Iterator[tuple[SchemaVersion, SchemaVersion]]:
    """Yield each of *versions* that refers to one which is not among them, and that one."""
    found = set(versions)
    for row in versions:
        for reference in row.references:
            other = registry.referred(row, reference)
            if other is not None and other not in found:
                yield row, other


def _is_exported(row: SchemaVersion, registry: Registry, choice: ExportChoice) -> bool:
    if row.state == HARD_DELETED:
        return choice.hard_deleted and registry.version(row.subject, row.version) == row
    return row.state == LIVE or (row.state == DELETED and choice.deleted)


def stored_records(registry: Registry, wanted: Callable[[int], bool]) -> Iterator[StoredRecord]:
    """Yield the records of the topic of *registry* with *wanted* offsets, in their order; no tombstones.

    Those of Apicurio's journal are made as Confluent's registry writes them.
    """
    for offset, timestamp, key, value, headers in _every(registry):
        if key is not None and value and wanted(offset):
            yield StoredRecord(offset, timestamp, key, value, headers)


def _every(registry: Registry) -> Iterator[StoredLine]:
    if registry.kind == "apicurio":
        return map(_made, registry.rows)
    return stored_lines(registry.path) if os.path.isfile(registry.path) else _of_topic(registry.path)


def _of_topic(path: str) -> Iterator[StoredLine]:
    for rows in record_windows(Partition(path)):
        for i in range(rows.records):
            offset, timestamp, key, value, headers, _, batch = rows.record(i)
            if not rows.batch(batch).attributes & CONTROL_BIT:
                yield offset, timestamp, key, value, headers or ()


def _made(row: SchemaVersion) -> StoredLine:
    key = {"keytype": "SCHEMA", "subject": row.subject, "version": row.version, "magic": 1}
    value: dict[str, Any] = {"subject": row.subject, "version": row.version, "id": row.id}
    value |= {} if row.type == "AVRO" else {"schemaType": row.type}
    references = [one._asdict() for one in row.references]
    value |= {"references": references} if references else {}
    value |= {"schema": row.text, "deleted": row.state != LIVE}
    return row.offset, row.timestamp, json_line(key), json_line(value), ()


def json_line(value: object) -> bytes:
    """Return JSON without blanks; half of a surrogate pair is an escape."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def state_records(registry: Registry, versions: Sequence[SchemaVersion], choice: ExportChoice) -> list[StoredRecord]:
    """Return the records of the state: those of *versions*, and the settings, contexts and deletions beside them."""
    deleted = {row.subject for row in versions if choice.deleted or row.state == DELETED}
    offsets = {row.offset for row in versions} | _others(registry, deleted, choice)
    return list(stored_records(registry, offsets.__contains__))


def _others(registry: Registry, subjects: Set[str], choice: ExportChoice) -> set[int]:
    """Return the offsets of the last record of each key but those of schemas, if that is no tombstone.

    *subjects*: whose versions may be deleted.
    """
    last: dict[tuple[str, str], int] = {}
    for offset, _, key, value, _ in _every(registry):
        keytype, subject = _identity(key)
        if keytype not in _KEPT:
            continue
        last.pop((keytype, subject), None)
        is_of_version = keytype == "DELETE_SUBJECT" and subject in subjects
        if value and (is_of_version or choice.has_subject(f":{subject}:" if keytype == "CONTEXT" else subject)):
            last[keytype, subject] = offset
    return {
        at
        for (keytype, subject), at in last.items()
        if choice.deleted or keytype != "DELETE_SUBJECT" or subject in subjects
    }


def _identity(key: bytes | None) -> tuple[str, str]:
    """Return the type of a key, and its subject or context; "" for none."""
    try:
        found = json.loads(key or b"")
    except (ValueError, RecursionError):
        return "", ""
    if not isinstance(found, dict):
        return "", ""
    keytype = found.get("keytype")
    subject = found.get("context" if keytype == "CONTEXT" else "subject") or ""
    return (keytype, subject) if isinstance(keytype, str) and isinstance(subject, str) else ("", "")
