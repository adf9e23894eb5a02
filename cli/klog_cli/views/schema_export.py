"""The output of `klog schemas export`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from klog.base.errors import ExitCode, UsageError, counted
from klog.commands.schemas.claims import Claim, Settled, claims_of, settle, with_fits
from klog.commands.schemas.export_records import in_order, record_lines
from klog.commands.schemas.export_requests import registrable, requests
from klog.commands.schemas.schema_rows import row_of
from klog.commands.schemas.state_records import (
    ExportChoice,
    chosen_versions,
    json_line,
    left_out_referents,
    state_records,
)
from klog.commands.schemas.usage import UsageOptions, count_usage
from klog.data_dir.partition_identity import IdentityChoice
from klog.schemas.registry import Registry
from klog.schemas.schema_version import SchemaVersion

from klog_cli import output
from klog_cli.views.schema_check import runner_of, without_internal
from klog_cli.views.schemas import sources, tell_bad_records

_STDOUT = "-"
_SHOWN_REASON = 200


class ExportRequest(NamedTuple):
    """*topic*: the name of the registry's topic.  *chosen*: subject and version that keep an id, by id."""

    paths: Sequence[str]
    topic: str
    identity: IdentityChoice
    choice: ExportChoice
    chosen: Mapping[int, tuple[str, int]]
    to: str
    workers: int


def export(request: ExportRequest, form: str) -> int:
    """Write the schemas in a form: records, requests, files; return the exit code."""
    if form == "files" and request.to == _STDOUT:
        raise UsageError("--output files makes a folder: --to FOLDER")
    _check_to(request.to, request.paths)
    registry = _registry(request)
    tell_bad_records([registry])
    versions, referred = chosen_versions(registry, request.choice)
    for row in referred:
        output.note(f"{_name(row)} is exported as well: a chosen schema refers to it")
    absent = list(left_out_referents(registry, versions)) if form != "requests" else []  # these name them
    for row, other in absent:
        output.error(f"{_name(row)} refers to {_name(other)}, which is hard-deleted: --hard-deleted exports it")
    if form == "files":
        is_whole = _files(registry, versions, request.to)
    else:
        claims = settle(_claims(request, registry, versions), request.chosen)
        lines = _requests if form == "requests" else _records
        is_whole = lines(registry, versions, claims, request)
    is_clean = is_whole and not (absent or registry.notes or registry.bad_records)
    return ExitCode.CLEAN if is_clean else ExitCode.PROBLEMS_LEFT


def _check_to(to: str, paths: Sequence[str]) -> None:
    """Raise UsageError if the output cannot be written there."""
    if to == _STDOUT:
        return
    from klog.data_dir.disk.refused_outputs import check_output

    check_output(to, paths)
    if os.path.exists(to) and any(os.path.exists(path) and os.path.samefile(path, to) for path in paths):
        raise UsageError(f"--to {to}: that is a file to be read; name another one")


def _registry(request: ExportRequest) -> Registry:
    found = sources(request.paths, request.topic, request.identity)
    if len(found) > 1:
        raise UsageError(f"several registries: {', '.join(one.path for one in found)}; name one of them")
    return found[0]


def _claims(request: ExportRequest, registry: Registry, versions: Sequence[SchemaVersion]) -> list[Claim]:
    """Return the ids that several schemas claim, with the records that each fits if that decides."""
    claims = claims_of(versions)
    if all(one.schema_id in request.chosen for one in claims):
        return claims
    from klog.partition.start.replica_choice import select_replicas

    data = [path for path in request.paths if os.path.isdir(path)]
    found = select_replicas(data, (), (), choice=request.identity, note=output.note) if data else []
    partitions = without_internal(found, request.topic)
    if not partitions:
        return claims
    with output.Results() as results:
        usage, damage = count_usage(registry, partitions, UsageOptions(), runner_of(request.workers), results)
    for line in damage:
        output.error(line)
    return with_fits(claims, usage)


def _records(
    registry: Registry, versions: Sequence[SchemaVersion], settled: Sequence[Settled], request: ExportRequest
) -> bool:
    """Write the records of the state; return whether a registry serves all of it."""
    records = in_order(state_records(registry, versions, request.choice), settled)
    for one in settled:
        output.error(f"{_settled(one)}: both are written, and a registry serves the first alone")
    _write(request.to, record_lines(records))
    return not settled


def _requests(
    registry: Registry, versions: Sequence[SchemaVersion], settled: Sequence[Settled], request: ExportRequest
) -> bool:
    """Write the requests; return whether they register all versions."""
    losers = {row for one in settled for row in one.losers}
    for one in settled:
        output.error(f"{_settled(one)}, {', '.join(map(_name, one.losers))} {_are(one.losers)} left out")
    ordered, left_out = registrable(registry, [row for row in versions if row not in losers])
    for row, reason in left_out:
        output.error(f"{_name(row)}, id {row.id}, is left out: {reason[:_SHOWN_REASON]}")
    made = requests(registry, ordered, request.choice)
    _write(request.to, (json_line(one.json()) + b"\n" for one in made))
    return not settled and not left_out


def _files(registry: Registry, versions: Sequence[SchemaVersion], to: str) -> bool:
    """Write a folder of files."""
    from klog.commands.schemas.export_files import write_files
    from klog.data_dir.disk.disk_changes import Disk

    rows = [row_of(registry, row) for row in sorted(versions, key=lambda one: (one.context, one.subject, one.version))]
    write_files(rows, to, Disk())
    output.note(f"wrote {to} ({counted(len(rows), 'schema')})")
    return True


def _write(to: str, lines: Iterable[bytes]) -> None:
    with output.Results(None if to == _STDOUT else to) as results:
        for piece in _pieces(lines):
            results.write(piece)


def _pieces(lines: Iterable[bytes], size: int = 1 << 16) -> Iterator[bytes]:
    waiting = bytearray()
    for line in lines:
        waiting += line
        if len(waiting) >= size:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


def _settled(one: Settled) -> str:
    names = ", ".join(map(_name, one.keeps))
    return f"id {one.claim.schema_id} is claimed by {len(one.claim.schemas)} schemas: {names} keeps it ({one.reason})"


def _are(rows: Sequence[SchemaVersion]) -> str:
    return "is" if len(rows) == 1 else "are"


def _name(row: SchemaVersion) -> str:
    return f"{row.subject} {row.version}"
