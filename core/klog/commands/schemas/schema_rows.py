"""Rows of the schemas of registries: what a registry lists, and whether klog can decode by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from klog.base.errors import ExitCode, KlogError, UnsupportedError, near_misses
from klog.schemas.decoded import BrokenSchemaError
from klog.schemas.registry import Registry
from klog.schemas.schema_version import DELETED, LIVE, STATES, SchemaVersion
from klog.schemas.side_decoder import make_decoder

LIST_COLUMNS: Final = (
    *("context", "subject", "version", "id", "guid", "type", "deleted", "references", "state", "offset", "timestamp"),
    *("record", "error"),
)
"""The members of a row, in their order."""


class NoSchemaError(KlogError):
    """No schema is what was asked for."""

    exit_code = ExitCode.PROBLEMS_LEFT


class SchemaRow(NamedTuple):
    """A version of a subject in the topic of *registry*.

    *record*: the first full name of Avro and Protobuf, the title of JSON Schema; None without one.  *error*: the reason
    why no value can be decoded by it, else None.
    """

    registry: Registry
    version: SchemaVersion
    record: str | None
    error: str | None

    def json(self) -> dict[str, object]:
        """Return the row as the command prints it."""
        one = self.version
        references = [
            {"subject": other.subject, "version": other.version, "name": other.name} for other in one.references
        ]
        return {
            "context": one.context, "subject": one.subject, "version": one.version, "id": one.id, "guid": one.guid,
            "type": one.type, "deleted": one.state != LIVE, "references": references, "state": one.state,
            "offset": one.offset, "timestamp": one.timestamp, "record": self.record, "error": self.error,
        }  # fmt: skip


class SchemaChoice(NamedTuple):
    """Which versions are meant: *subject* a name or glob, without or with its context.

    *deleted*: those, too, that no registry has any more.
    """

    subject: str | None = None
    context: str | None = None
    deleted: bool = False

    def includes(self, row: SchemaVersion) -> bool:
        """Whether *row* is meant."""
        if self.context is not None and row.context != self.context:
            return False
        if self.subject is not None and not any(fnmatchcase(name, self.subject) for name in (row.subject, row.name)):
            return False
        return self.deleted or row.state in (LIVE, DELETED)


def schema_rows(
    registries: Iterable[Registry], choice: SchemaChoice, note: Callable[[str], object] = len
) -> Iterator[SchemaRow]:
    """Yield the chosen versions, by subject and version.  *note*: receives a line for each type without a library."""
    said: set[str] = set()
    for registry in registries:
        chosen = [row for row in registry.rows if choice.includes(row)]
        for row in sorted(chosen, key=lambda one: (one.context, one.subject, one.version, one.offset)):
            try:
                yield row_of(registry, row)
            except UnsupportedError as error:
                if str(error) not in said:
                    said.add(str(error))
                    note(f"{row.type} is not checked: {error}")
                yield SchemaRow(registry, row, None, None)


def row_of(registry: Registry, row: SchemaVersion) -> SchemaRow:
    """Return the row of a version.  Raises UnsupportedError without klog[schemas]."""
    try:
        decoder = make_decoder(row, registry)
    except BrokenSchemaError as error:
        return SchemaRow(registry, row, None, str(error))
    return SchemaRow(registry, row, getattr(decoder, "name", None), None)


def schemas_with_id(registries: Sequence[Registry], schema_id: int | bytes, context: str | None) -> list[SchemaRow]:
    """Return all versions that have an id, or a GUID of 16 bytes, those of the default context and live ones first."""
    found = [(one, row) for one in registries for row in one.with_id(schema_id) if context in (None, row.context)]
    found.sort(key=lambda pair: (pair[1].context, STATES.index(pair[1].state), pair[1].offset))
    return [row_of(registry, row) for registry, row in found]


def schemas_of_subject(
    registries: Sequence[Registry], subject: str, version: int | None, context: str | None
) -> list[SchemaRow]:
    """Return the versions of a subject with a number, or for None the latest one, in any state if none is live.

    Raises NoSchemaError for a subject that is nowhere.
    """
    choice = SchemaChoice(context=context, deleted=True)
    every = [(one, row) for one in registries for row in one.rows if choice.includes(row)]
    found = [(one, row) for one, row in every if subject in (row.subject, row.name)]
    if not found:
        raise NoSchemaError(f"no subject {subject}{near_misses(subject, [row.subject for _, row in every])}")
    if version is not None:
        found = [(one, row) for one, row in found if row.version == version]
    else:
        for state in (LIVE, DELETED):
            if any(row.state == state for _, row in found):
                found = [(one, row) for one, row in found if row.state == state]
        latest = max(row.version for _, row in found)
        found = [(one, row) for one, row in found if row.version == latest]
    return [row_of(one, row) for one, row in sorted(found, key=lambda pair: (pair[1].context, -pair[1].offset))]
