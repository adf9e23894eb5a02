"""The state of a schema registry: its subjects, versions, settings and contexts, and lookups by id, GUID and topic."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from typing import Any
from uuid import UUID

from klog.schemas.decoded import BrokenSchemaError
from klog.schemas.schema_version import (
    DEFAULT_CONTEXT,
    LIVE,
    STATES,
    SchemaReference,
    SchemaVersion,
    subject_in,
)

_LATEST = -1
"""A reference to this version means the latest one."""


class Registry:
    """The content of a registry's topic.  *kind*: confluent, karapace, apicurio.  *path*: where the topic is.

    *rows*: by offset.  *bad_records*: the offsets of records that no registry can read, and the reasons.  *config* and
    *mode* by subject, "" for the global ones.
    """

    def __init__(self, kind: str, path: str, rows: Iterable[SchemaVersion] = ()) -> None:
        self.kind, self.path = kind, path
        self.rows: list[SchemaVersion] = sorted(rows, key=lambda row: row.offset)
        self.records = 0
        self.bad_records: list[tuple[int, str]] = []
        self.config: dict[str, Any] = {}
        self.mode: dict[str, Any] = {}
        self.contexts: list[str] = []
        self.notes: list[str] = []
        self._by_id: dict[int, list[SchemaVersion]] = {}
        self._by_guid: dict[bytes, list[SchemaVersion]] = {}
        self._by_version: dict[tuple[str, int], SchemaVersion] = {}
        for row in self.rows:
            self._by_id.setdefault(row.id, []).append(row)
            self._by_guid.setdefault(bytes.fromhex(row.guid.replace("-", "")), []).append(row)
            known = self._by_version.get((row.subject, row.version))
            if known is None or STATES.index(row.state) <= STATES.index(known.state):
                self._by_version[row.subject, row.version] = row

    def __repr__(self) -> str:
        """Return a text that is the same for the same schemas: a job that is started again compares it."""
        digest = hashlib.sha256()
        for row in self.rows:
            digest.update(repr((row.subject, row.version, row.id, row.state, row.guid)).encode("utf-8", "replace"))
        return f"{type(self).__name__}({self.kind!r}, {digest.hexdigest()[:16]})"

    def part(self, ids: Collection[int]) -> Registry:
        """Return a registry of the schemas with these ids alone, and of all that they need."""
        waiting = [row for row in self.rows if row.id in ids]
        kept: dict[tuple[str, int, int], SchemaVersion] = {}
        while waiting:
            row = waiting.pop()
            place = row.subject, row.version, row.offset
            if place not in kept:
                kept[place] = row
                referred = (self.referred(row, one) for one in row.references)
                waiting += [one for one in referred if one is not None]
        return Registry(self.kind, self.path, kept.values())

    def with_id(self, schema_id: int | bytes) -> list[SchemaVersion]:
        """Return all rows with an id, or with a GUID of 16 bytes, in any context and state."""
        if isinstance(schema_id, bytes):
            return self._by_guid.get(schema_id, [])
        return self._by_id.get(schema_id, [])

    def candidates(
        self, schema_id: int | bytes, topic: str, side: str, context: str | None = None
    ) -> list[SchemaVersion]:
        """Return the rows with an id or GUID, the likeliest first; one row of several with the same schema.

        *side*: `key` or `value`; *context*: the one to prefer.
        """
        wanted, own = f"{topic}-{side}", context or DEFAULT_CONTEXT
        found = self.with_id(schema_id)
        if len(found) > 1:
            found = sorted(
                found,
                key=lambda row: (
                    context is not None and row.context != context,
                    row.name != wanted,
                    row.context != own,
                    STATES.index(row.state),
                    row.offset,
                ),
            )
        unlike: list[SchemaVersion] = []
        for row in found:
            if not any((row.guid, row.type, row.context) == (one.guid, one.type, one.context) for one in unlike):
                unlike.append(row)
        return unlike

    def version(self, subject: str, version: int) -> SchemaVersion | None:
        """Return a version of a subject, by its full name; of several records the live one, then the latest."""
        return self._by_version.get((subject, version))

    def referred(self, row: SchemaVersion, reference: SchemaReference) -> SchemaVersion | None:
        """Return the row that a reference of *row* means; None if it is not there."""
        subject = subject_in(row.context, reference.subject)
        if reference.version != _LATEST:
            return self._by_version.get((subject, reference.version))
        live = [one for one in self.rows if one.subject == subject and one.state == LIVE]
        return max(live, key=lambda one: one.version, default=None)

    def references(self, row: SchemaVersion) -> dict[str, str]:
        """Return the texts that *row* refers to, directly or not, by the name of the reference, deeper ones first.

        Raises BrokenSchemaError if one of them is missing, or they refer to each other in a circle.
        """
        found: dict[str, str] = {}
        done: set[SchemaVersion] = set()
        path: list[tuple[SchemaVersion, str, Iterator[SchemaReference]]] = [(row, "", iter(row.references))]
        while path:
            one, name, waiting = path[-1]
            reference = next(waiting, None)
            if reference is None:
                path.pop()
                done.add(one)
                if path:
                    found.setdefault(name, one.text)
                continue
            other = self.referred(one, reference)
            if other is None:
                raise BrokenSchemaError(f"no {reference.subject} version {reference.version}")
            if any(other is above for above, _, _ in path):
                raise BrokenSchemaError(f"{other.subject} version {other.version} refers to itself")
            if other in done:
                found.setdefault(reference.name, other.text)
            else:
                path.append((other, reference.name, iter(other.references)))
        return found

    def near_ids(self, schema_id: int, most: int = 3) -> list[int]:
        """Return the known ids that are nearest to *schema_id*."""
        return sorted(sorted(self._by_id, key=lambda one: abs(one - schema_id))[:most])


def guid_text(guid: bytes) -> str:
    """Return a GUID of 16 bytes as text."""
    return str(UUID(bytes=guid))
