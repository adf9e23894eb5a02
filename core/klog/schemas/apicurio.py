"""The journal of an Apicurio Registry 3 with kafkasql storage, replayed: its ids are in no record, they are counted.

A record is a call of the registry's storage.  Each start of the registry repeats all calls and hands out content ids
and global ids in their order, so a replay is right only for a journal that is whole from its first record on.  A
journal that is not is refused: ids that are off by one decode values by wrong schemas.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from klog.base.errors import UnsupportedError
from klog.cluster.coordinator.coordinator_records import record_windows
from klog.data_dir.partition import Partition
from klog.formats.batch import CONTROL_BIT
from klog.schemas.registry import Registry
from klog.schemas.schema_version import (
    DEFAULT_CONTEXT,
    DELETED,
    HARD_DELETED,
    LIVE,
    SchemaReference,
    SchemaVersion,
    schema_guid,
    subject_in,
)

JOURNAL_TOPIC: Final = "kafkasql-journal"
SNAPSHOTS_TOPIC: Final = "kafkasql-snapshots"
_DEFAULT_GROUP: Final = "default"


class BrokenJournalError(UnsupportedError):
    """The journal is not whole, and the ids that the registry handed out cannot be counted."""


def read_journal(partition: Partition) -> Registry:
    """Return the state of the registry whose journal *partition* is.  Raises BrokenJournalError."""
    replay, notes = _JournalReplay(partition.path), list[str]()
    for rows in record_windows(partition, notes.append):
        if notes:
            break
        for i in range(rows.records):
            offset, timestamp, key, value, _, _, batch = rows.record(i, False)
            if rows.batch(batch).attributes & CONTROL_BIT:
                raise replay.refusal(offset, "a transaction's marker")
            replay.take(offset, timestamp, key, value)
    if notes:
        raise BrokenJournalError(f"{partition.path}: its schemas cannot be counted, the journal is damaged: {notes[0]}")
    return replay.registry()


class _Artifact:
    """A subject: its versions by name, as long as they exist."""

    def __init__(self) -> None:
        self.versions: dict[str, SchemaVersion] = {}
        self.latest = 0


class _JournalReplay:
    def __init__(self, path: str) -> None:
        self._path = path
        self._next_offset = 0
        self._contents = 0
        self._content_ids: dict[tuple[str, str], int] = {}
        self._artifacts: dict[tuple[str, str], _Artifact] = {}
        self._gone: list[SchemaVersion] = []

    def refusal(self, offset: int, reason: str) -> BrokenJournalError:
        return BrokenJournalError(f"{self._path}: its schemas cannot be counted: {reason} at offset {offset}")

    def registry(self) -> Registry:
        kept = [row for one in self._artifacts.values() for row in one.versions.values()]
        found = Registry("apicurio", self._path, (*kept, *self._gone))
        found.records = self._next_offset
        found.contexts = sorted({row.context for row in found.rows})
        return found

    def take(self, offset: int, timestamp: int, key: bytes | None, value: bytes | None) -> None:
        if offset != self._next_offset:
            raise self.refusal(self._next_offset, "a record is missing")
        self._next_offset += 1
        message = self._json(offset, key).get("messageType")
        if offset == 0 and message != "Bootstrap":
            raise self.refusal(offset, "no first start of a registry")
        name = str(message).removesuffix("Message").rstrip("0123456789")  # the number of arguments differs by release
        if name in ("CreateSnapshot", "ImportData", "UpgraderAdvisory") or name.startswith("Import"):
            raise self.refusal(offset, f"a call {message}")
        if name in ("DeleteAllUserData", "DeleteArtifacts", "DeleteGroup"):
            self._delete_many(name, self._json(offset, value))
        elif name in ("CreateArtifact", "CreateArtifactVersion", "DeleteArtifact", "DeleteArtifactVersion"):
            self._change(offset, timestamp, name, self._json(offset, value))
        elif name in ("UpdateArtifactVersionState", "UpdateArtifactVersionContent"):
            self._update(offset, name, self._json(offset, value))

    def _json(self, offset: int, content: bytes | None) -> dict[str, Any]:
        try:
            found = json.loads(content or b"")
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise self.refusal(offset, "a record that is no JSON object")
        return found

    def _change(self, offset: int, timestamp: int, name: str, call: dict[str, Any]) -> None:
        if call.get("dryRun"):
            raise self.refusal(offset, "a dry run")
        place = str(call.get("groupId") or _DEFAULT_GROUP), str(call.get("artifactId"))
        known = self._artifacts.get(place)
        if (known is None) != (name == "CreateArtifact"):
            raise self.refusal(offset, f"a call {name} that must have failed, for {place[1]}")
        if name == "CreateArtifact":
            known = self._artifacts[place] = _Artifact()
            if call.get("content") is None:
                return  # an artifact without a version takes no id
        assert known is not None
        if name == "DeleteArtifact":
            self._forget(self._artifacts.pop(place).versions.values())
        elif name == "DeleteArtifactVersion":
            row = known.versions.pop(str(call.get("version")), None)
            self._forget([] if row is None else [row])
        else:
            self._add_version(offset, timestamp, place, known, call)

    def _add_version(
        self, offset: int, timestamp: int, place: tuple[str, str], known: _Artifact, call: dict[str, Any]
    ) -> None:
        content = call.get("content")
        try:
            references = tuple(_reference(one) for one in call.get("references") or ())
            text = str.__str__(content)
        except (TypeError, ValueError, AttributeError):
            raise self.refusal(offset, "a schema of another form") from None
        kind = str(call.get("artifactType") or "AVRO")
        identity = text, json.dumps(call.get("references") or [], sort_keys=True)
        self._contents += 1  # an old content keeps its id, and a number is used up all the same
        content_id = self._content_ids.setdefault(identity, self._contents)
        known.latest += 1
        version = str(call.get("version") or known.latest)
        if version in known.versions:
            raise self.refusal(offset, f"a version {version} that must have failed, for {place[1]}")
        context = DEFAULT_CONTEXT if place[0] == _DEFAULT_GROUP else f".{place[0]}"
        guid = schema_guid(text, references)
        known.versions[version] = SchemaVersion(
            context, subject_in(context, place[1]), known.latest, content_id, guid, kind, LIVE, references, text,
            offset, timestamp
        )  # fmt: skip

    def _update(self, offset: int, name: str, call: dict[str, Any]) -> None:
        """Change the state of a version; a draft's content changes the count of contents."""
        if name != "UpdateArtifactVersionState":
            raise self.refusal(offset, "a draft with new content")
        place = str(call.get("groupId") or _DEFAULT_GROUP), str(call.get("artifactId"))
        known = self._artifacts.get(place)
        version = str(call.get("version"))
        if known is not None and version in known.versions and not call.get("dryRun"):
            state = DELETED if call.get("newState") == "DISABLED" else LIVE
            known.versions[version] = known.versions[version]._replace(state=state)

    def _delete_many(self, name: str, call: dict[str, Any]) -> None:
        group = str(call.get("groupId") or _DEFAULT_GROUP)
        gone = [one for one in self._artifacts if name == "DeleteAllUserData" or one[0] == group]
        self._forget([row for place in gone for row in self._artifacts.pop(place).versions.values()])

    def _forget(self, rows: Iterable[SchemaVersion]) -> None:
        """Note deleted versions: a content without any version is deleted, too, and gets another id when it is new."""
        self._gone += [row._replace(state=HARD_DELETED) for row in rows]
        kept = {row.id for one in self._artifacts.values() for row in one.versions.values()}
        self._content_ids = {content: one for content, one in self._content_ids.items() if one in kept}


def _reference(given: dict[str, Any]) -> SchemaReference:
    group = str(given.get("groupId") or _DEFAULT_GROUP)
    subject = str(given["artifactId"]) if given.get("artifactId") else ""
    context = DEFAULT_CONTEXT if group == _DEFAULT_GROUP else f".{group}"
    return SchemaReference(str(given.get("name")), subject_in(context, subject), int(given["version"]))
