"""The topic `_schemas` of Confluent's registry and Karapace, replayed from the log: compacted or not, whole or damaged.

A record is one of a registry's events; the state is the result of a replay in the order of the offsets.  Versions that
the registry has given up are kept as long as their records are in the log: values still decode by them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from klog.cluster.coordinator.coordinator_records import record_windows
from klog.data_dir.partition import Partition
from klog.formats.batch import CONTROL_BIT
from klog.schemas.registry import Registry
from klog.schemas.schema_version import (
    DELETED,
    HARD_DELETED,
    LIVE,
    REPLACED,
    SchemaReference,
    SchemaVersion,
    schema_guid,
    split_subject,
)

SCHEMAS_TOPIC: Final = "_schemas"
_KARAPACE_HEADER: Final = b"X-Registry-Version"
_PASSED_OVER: Final = frozenset(("NOOP", "CLEAR_SUBJECT", "ASSOC"))
"""Records that change no schema: signs of life, a subject that goes to mode IMPORT, associations."""
_MOST_NOTES: Final = 100


def read_schemas_topic(partition: Partition) -> Registry:
    """Return the state of the registry whose topic *partition* is.

    Content raises nothing: unreadable parts are in `Registry.notes`, records that no registry reads in `bad_records`.
    """
    replay, notes = SchemasReplay(), list[str]()

    def note(line: str) -> None:
        if len(notes) < _MOST_NOTES:
            notes.append(line)

    for rows in record_windows(partition, note):
        for i in range(rows.records):
            offset, timestamp, key, value, headers, _, batch = rows.record(i)
            if not rows.batch(batch).attributes & CONTROL_BIT:
                replay.take(offset, timestamp, key, value)
                replay.take_headers(headers or ())
    found = replay.registry(partition.path)
    found.notes = notes
    return found


class _BadRecordError(Exception):
    """A record that no registry can read; the message is the reason."""


class SchemasReplay:
    """The state while records are taken."""

    def __init__(self) -> None:
        self.is_karapace = False
        self._records = 0
        self._bad: list[tuple[int, str]] = []
        self._current: dict[tuple[str, int], SchemaVersion] = {}
        self._versions: dict[str, set[int]] = {}
        self._former: dict[tuple[str, int], list[SchemaVersion]] = {}
        self._settings: dict[str, dict[str, Any]] = {"CONFIG": {}, "MODE": {}}
        self._contexts: set[str] = set()
        self._texts: dict[str, str] = {}

    def registry(self, path: str) -> Registry:
        """Return the state after the records so far; *path*: their topic."""
        former = (row for rows in self._former.values() for row in rows)
        found = Registry("karapace" if self.is_karapace else "confluent", path, (*self._current.values(), *former))
        found.records, found.bad_records = self._records, self._bad
        found.config, found.mode = self._settings["CONFIG"], self._settings["MODE"]
        found.contexts = sorted(self._contexts | {row.context for row in found.rows})
        return found

    def take_headers(self, headers: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Take the headers of a record: they show which registry has written it."""
        self.is_karapace |= any(name == _KARAPACE_HEADER for name, _ in headers)

    def take(self, offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        """Take the next record."""
        self._records += 1
        try:
            name = _json_object(key, "key")
            keytype = _member(name, "keytype", str)
            content = _json_object(value, "value") if value else None  # Karapace's tombstones are empty, not null
            if keytype == "SCHEMA":
                self._take_schema(offset, timestamp, name, content)
            elif keytype == "DELETE_SUBJECT":
                self._delete_subject(content)
            elif keytype in self._settings:
                self._set(self._settings[keytype], name, content)
            elif keytype == "CONTEXT":
                self._contexts.add(_member(name, "context", str))
            elif keytype not in _PASSED_OVER:
                raise _BadRecordError(f"key type {keytype!r} is unknown")
        except _BadRecordError as error:
            self._bad.append((offset, str(error)))

    def _take_schema(self, offset: int, timestamp: int, key: dict[str, Any], value: dict[str, Any] | None) -> None:
        place = _member(key, "subject", str), _member(key, "version", int)
        if value is None:
            gone = self._current.pop(place, None)
            if gone is not None:
                self._keep_former(place, gone._replace(state=HARD_DELETED))
            return
        row = self._row(place, offset, timestamp, value)
        known = self._current.get(place)
        if known is not None and not known.same_schema(row):
            self._keep_former(place, known._replace(state=REPLACED))
        if place in self._former:  # the same again: it has come back
            self._former[place] = [one for one in self._former[place] if not one.same_schema(row)]
        self._current[place] = row
        self._versions.setdefault(place[0], set()).add(place[1])

    def _keep_former(self, place: tuple[str, int], row: SchemaVersion) -> None:
        self._former.setdefault(place, []).append(row)

    def _row(self, place: tuple[str, int], offset: int, timestamp: int, value: dict[str, Any]) -> SchemaVersion:
        schema_id, text = _member(value, "id", int), _member(value, "schema", str)
        text = self._texts.setdefault(text, text)
        references = _references(value.get("references"))
        try:
            guid = schema_guid(text, references, value.get("metadata"), value.get("ruleSet"))
        except (TypeError, ValueError, AttributeError):
            raise _BadRecordError("its metadata or rules have another form") from None
        state = DELETED if value.get("deleted") is True else LIVE
        kind = str(value.get("schemaType") or "AVRO")
        return SchemaVersion(
            split_subject(place[0])[0], *place, schema_id, guid, kind, state, references, text, offset, timestamp
        )  # fmt: skip

    def _delete_subject(self, value: dict[str, Any] | None) -> None:
        """Soft-delete all versions up to one: those of this moment, later records are live again."""
        if value is None:
            return
        subject, last = _member(value, "subject", str), _member(value, "version", int)
        for version in self._versions.get(subject, ()):
            row = self._current.get((subject, version))
            if row is not None and version <= last:
                self._current[subject, version] = row._replace(state=DELETED)

    def _set(self, settings: dict[str, Any], key: dict[str, Any], value: dict[str, Any] | None) -> None:
        subject = key.get("subject") or ""
        if not isinstance(subject, str):
            raise _BadRecordError("the subject of its key is no text")
        if value is None:
            settings.pop(subject, None)
        else:
            settings[subject] = {name: one for name, one in value.items() if name != "subject"}


def _json_object(content: bytes | None, side: str) -> dict[str, Any]:
    try:
        found = json.loads(content or b"")
    except (ValueError, RecursionError):
        raise _BadRecordError(f"its {side} is no JSON") from None
    if not isinstance(found, dict):
        raise _BadRecordError(f"its {side} is no JSON object")
    return found


def _member(content: dict[str, Any], name: str, kind: type) -> Any:
    """Return a member that has to be there."""
    found = content.get(name)
    if type(found) is not kind:
        raise _BadRecordError(f"without {name}" if found is None else f"its {name} has another form")
    return found


def _references(given: object) -> tuple[SchemaReference, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(one, dict) for one in given):
        raise _BadRecordError("its references have another form")
    return tuple(
        SchemaReference(_member(one, "name", str), _member(one, "subject", str), _member(one, "version", int))
        for one in given
    )
