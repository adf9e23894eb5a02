"""The output of `klog schemas`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from klog.base.errors import ExitCode, UsageError, counted
from klog.commands.schemas.schema_rows import (
    LIST_COLUMNS,
    SchemaChoice,
    SchemaRow,
    schema_rows,
    schemas_of_subject,
    schemas_with_id,
)
from klog.data_dir.partition_identity import IdentityChoice
from klog.jobs.schema_sources import find_registries
from klog.schemas.decoded import BrokenSchemaError
from klog.schemas.references import resolved_avro
from klog.schemas.registry import Registry, guid_text
from klog.schemas.schema_version import LIVE

from klog_cli import output
from klog_cli.style import bad, good, strong
from klog_cli.views.nothing_found import nothing_found

_COLUMNS = ("subject", "version", "id", "type", "state", "record", "references", "")
_SHOWN_BAD = 5
_SHOWN_ERROR = 100


class SchemaQuery(NamedTuple):
    """The schema to show: with an id, or a GUID of 16 bytes, or a version of a subject, None for the latest."""

    schema_id: int | bytes | None
    subject: str | None
    version: int | None
    context: str | None


def sources(paths: Sequence[str], topic: str, choice: IdentityChoice) -> list[Registry]:
    """Return the registries in *paths*, and print the damage in their topics.  Raises UsageError."""
    if not paths:
        raise UsageError("no registry: name log dirs, the directory of _schemas-0 or a file of its records")
    found = find_registries(paths, topic, choice, output.note)
    for one in found:
        for line in one.notes:
            output.error(line)
    return found


def tell_bad_records(registries: Sequence[Registry]) -> None:
    """Print the records that no registry can read."""
    for one in registries:
        for offset, reason in one.bad_records[:_SHOWN_BAD]:
            output.error(f"{one.path} offset {offset}: no registry can read this record: {reason[:_SHOWN_ERROR]}")
        more = len(one.bad_records) - _SHOWN_BAD
        if more > 0:
            output.error(f"{one.path}: {counted(more, 'more record')} that no registry can read")


def list_schemas(registries: Sequence[Registry], choice: SchemaChoice, form: str) -> int:
    """Print the chosen versions and return the exit code."""
    tell_bad_records(registries)
    rows = list(schema_rows(registries, choice, output.note))
    if form == "json":
        output.emit_json(_listing(registries, rows))
    elif form == "jsonl":
        output.emit_jsonl(row.json() for row in rows)
    elif form == "csv":
        output.emit_csv_rows((row.json() for row in rows), LIST_COLUMNS)
    elif rows or choice == SchemaChoice():
        output.emit_table((_verdict(registries, rows), ""), _COLUMNS, [_cells(row) for row in rows])
    broken = any(row.error for row in rows)
    code = ExitCode.PROBLEMS_LEFT if broken or any(one.notes or one.bad_records for one in registries) else 0
    if not rows and choice != SchemaChoice():
        return code | nothing_found(f"no schema in {', '.join(one.path for one in registries)} meets the conditions")
    return code


def _listing(registries: Sequence[Registry], rows: Sequence[SchemaRow]) -> dict[str, object]:
    return {
        "sources": [
            {
                "path": one.path,
                "kind": one.kind,
                "records": one.records,
                "bad_records": [offset for offset, _ in one.bad_records],
            }
            for one in registries
        ],
        "config": {subject: setting for one in registries for subject, setting in one.config.items()},
        "mode": {subject: setting for one in registries for subject, setting in one.mode.items()},
        "contexts": sorted({context for one in registries for context in one.contexts}),
        "schemas": [row.json() for row in rows],
    }


def _verdict(registries: Sequence[Registry], rows: Sequence[SchemaRow]) -> str:
    subjects = len({row.version.subject for row in rows})
    places = ", ".join(f"{output.printable(one.path)} ({one.kind})" for one in registries)
    broken = sum(row.error is not None for row in rows)
    counts = strong(f"{counted(len(rows), 'schema')} of {counted(subjects, 'subject')}")
    used = bad(f"{broken} cannot be used") if broken else good("all can be used")
    return f"{counts} in {places}: {used}"


def _cells(row: SchemaRow) -> tuple[object, ...]:
    one = row.version
    state = one.state if one.state == LIVE else bad(one.state)
    references = ", ".join(f"{other.subject} {other.version}" for other in one.references)
    error = bad(output.printable(row.error[:_SHOWN_ERROR])) if row.error else ""
    texts = (output.printable(text) for text in (one.subject, one.type, row.record or "", references))
    subject, kind, record, to = texts
    return subject, one.version, one.id, kind, state, record, to, error


def show_schema(registries: Sequence[Registry], query: SchemaQuery, form: str, is_resolved: bool) -> int:
    """Print the text of a schema and return the exit code."""
    if query.subject is not None:
        found = schemas_of_subject(registries, query.subject, query.version, query.context)
        missing = f"{query.subject} has no version {query.version}"
    else:
        assert query.schema_id is not None
        found = schemas_with_id(registries, query.schema_id, query.context)
        missing = _missing(registries, query.schema_id)
    if not found:
        output.error(missing)
        return ExitCode.PROBLEMS_LEFT
    if form == "json":
        shown = _with_text(found[0], is_resolved)
        claimants = {} if query.subject is not None else {"claimants": [_with_text(row, False) for row in found]}
        output.emit_json(shown | claimants)
    else:
        _show_texts(found, is_resolved)
    return ExitCode.PROBLEMS_LEFT if len(_by_text(found)) > 1 or any(row.error for row in found) else 0


def _by_text(found: Sequence[SchemaRow]) -> list[list[SchemaRow]]:
    """Return the rows in groups of the same text: an id is that of one schema under several subjects, too."""
    groups: dict[object, list[SchemaRow]] = {}
    for row in found:
        groups.setdefault((row.version.type, row.version.text, row.version.references), []).append(row)
    return list(groups.values())


def _missing(registries: Sequence[Registry], schema_id: int | bytes) -> str:
    if isinstance(schema_id, bytes):
        return f"no schema has the GUID {guid_text(schema_id)}"
    near = sorted({one for registry in registries for one in registry.near_ids(schema_id)})
    hint = f"; the nearest ids are {', '.join(map(str, near))}" if near else ""
    return f"no schema has the id {schema_id}{hint}"


def _with_text(row: SchemaRow, is_resolved: bool) -> dict[str, object]:
    found = row.json() | {"schema": row.version.text}
    return found | {"resolved": _resolved(row)} if is_resolved else found


def _resolved(row: SchemaRow) -> str | dict[str, str] | None:
    """Return one text for Avro, texts by name for the others; None if a reference is missing."""
    try:
        references = row.registry.references(row.version)
        if row.version.type == "AVRO":
            return resolved_avro(row.version.text, references)
    except BrokenSchemaError:
        return None
    return references | {row.version.subject: row.version.text}


def _show_texts(found: Sequence[SchemaRow], is_resolved: bool) -> None:
    for number, rows in enumerate(_by_text(found)):
        output.text("\n" if number else "")
        for row in rows:
            one = row.version
            title = f"{one.subject} version {one.version}, id {one.id}, {one.type}, {one.state}, GUID {one.guid}"
            output.lines([strong(output.printable(title))])
        if rows[0].error:
            output.lines([bad(output.printable(f"it cannot be used: {rows[0].error}"))])
        resolved = _resolved(rows[0]) if is_resolved else None
        texts = resolved if isinstance(resolved, dict) else {"": resolved or rows[0].version.text}
        for name, text in texts.items():
            output.rows([output.printable(f"-- {name}")] if name else [])
            output.text("".join(f"{output.printable(line)}\n" for line in _pretty(text).splitlines()))


def _pretty(text: str) -> str:
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text
