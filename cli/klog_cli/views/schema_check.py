"""The output of `klog schemas check`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from klog.base.errors import ExitCode, UsageError, counted, range_text
from klog.cluster.keyed_topics import NO_PARTITIONER
from klog.commands.schemas.check import SchemaCheck, check_schemas
from klog.commands.schemas.findings import DAMAGE, WARNING, SchemaFinding
from klog.commands.schemas.usage import IdUse, SideUse, UsageOptions
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import IdentityChoice
from klog.data_dir.selection import PartitionChoice
from klog.jobs.runner import Processes, Runner, Threads, may_fork
from klog.jobs.schema_sources import NoRegistryError, find_registries
from klog.partition.start.replica_choice import select_replicas
from klog.schemas.apicurio import JOURNAL_TOPIC, SNAPSHOTS_TOPIC
from klog.schemas.registry import Registry
from klog.schemas.schema_version import DELETED, LIVE

from klog_cli import output
from klog_cli.layout import padded
from klog_cli.style import bad, columns_of, faint, good, strong, warning

_OTHERS = frozenset((JOURNAL_TOPIC, SNAPSHOTS_TOPIC, "registry-events"))
"""Topics of Apicurio's registry."""


class SchemaCheckRequest(NamedTuple):
    """*schemas*: where the registry's topic is; empty: among *paths*.  *topic*: its name.  *sample*: one of so many."""

    paths: Sequence[str]
    schemas: Sequence[str]
    topic: str
    topics: Sequence[str]
    numbers: Sequence[PartitionChoice]
    choice: IdentityChoice
    internal: bool
    sample: int
    context: str | None
    max_batch_bytes: int
    workers: int
    validate: bool = False


def check(request: SchemaCheckRequest, form: str) -> int:
    """Check the keys and values of the requested topics, and return the exit code."""
    registry = _registry(request)
    partitions = _partitions(request)
    options = UsageOptions(request.sample, request.context, request.max_batch_bytes, request.validate)
    partial = bool(request.topics or request.numbers)
    with output.Results() as results:
        found = check_schemas(registry, partitions, options, runner_of(request.workers), results, partial)
        for line in (*registry.notes, *found.damage):
            results.report(line)
    if form == "json":
        output.emit_json(_document(registry, found, request.sample))
    elif form == "jsonl":
        output.emit_jsonl(map(_finding, found.findings))
    else:
        output.lines(_text(registry, found))
    return ExitCode.CLEAN if found.is_clean and not registry.notes else ExitCode.PROBLEMS_LEFT


def _registry(request: SchemaCheckRequest) -> Registry:
    try:
        found = find_registries(request.schemas or request.paths, request.topic, request.choice, output.note)
    except NoRegistryError as error:
        raise error if request.schemas else NoRegistryError(f"{error} with --schemas PATH") from error
    if len(found) > 1:
        places = ", ".join(one.path for one in found)
        raise UsageError(f"several registries: {places}; name the one that the data uses with --schemas PATH")
    return found[0]


def _partitions(request: SchemaCheckRequest) -> list[Partition]:
    """Return one copy of each partition, without the topics of brokers and of the registry."""
    data = [path for path in request.paths if not os.path.isfile(path) or path.endswith(".log")]
    found = select_replicas(data, request.topics, request.numbers, choice=request.choice, note=output.note)
    return found if request.internal or request.topics else without_internal(found, request.topic)


def without_internal(partitions: Sequence[Partition], schemas_topic: str) -> list[Partition]:
    """Return *partitions* without those of brokers and of registries."""
    return [one for one in partitions if one.topic not in (*NO_PARTITIONER, *_OTHERS, schemas_topic)]


def runner_of(workers: int) -> Runner:
    """Return a runner of so many processes, or the caller's own thread."""
    return Processes(workers) if workers > 1 and may_fork() else Threads(1)


def _document(registry: Registry, found: SchemaCheck, sample: int) -> dict[str, object]:
    return {
        "sources": [
            {
                "path": registry.path,
                "kind": registry.kind,
                "records": registry.records,
                "bad_records": [offset for offset, _ in registry.bad_records],
            }
        ],
        "schemas": _schemas(registry),
        "records": sum(use.records for (_, side), use in found.usage.items() if side == "value"),
        "topics": [_side(topic, side, use) for (topic, side), use in found.usage.items()],
        "findings": [_finding(one) for one in found.findings],
        "sampled": f"1/{sample}" if sample > 1 else None,
    }


def _schemas(registry: Registry) -> int:
    return sum(row.state in (LIVE, DELETED) for row in registry.rows)


def _side(topic: str, side: str, use: SideUse) -> dict[str, object]:
    return {
        "topic": topic,
        "side": side,
        "records": use.records,
        "null": use.null,
        "unframed": use.unframed.records,
        "framed": use.framed,
        "decoded": use.decoded,
        "ids": {str(key): _id(one) for key, one in use.ids.items()},
    }


def _id(use: IdUse) -> dict[str, object]:
    subject, version = max(use.schemas, key=lambda schema: use.schemas[schema], default=(None, None))
    return {
        "records": use.all.records,
        "subject": subject,
        "version": version,
        "errors": {code: tally.records for code, tally in sorted(use.errors.items())},
        "first": use.all.first._asdict(),
        "only_unknown_fields": use.strangers,
    }


def _finding(one: SchemaFinding) -> dict[str, object]:
    names = ("id", "severity", "topic", "side", "schema_id", "guid", "subject", "version", "records")
    place = one.place._asdict() if one.place else {"partition": None, "offset": None}
    return {name: getattr(one, name) for name in names} | place | {"message": one.message, "fix": one.fix}


def _text(registry: Registry, found: SchemaCheck) -> Iterator[str]:
    severities = {DAMAGE: bad, WARNING: warning}
    rows = list(_shorter(found.findings))
    width = max((columns_of(where) for _, where, _ in rows), default=0)
    for severity, where, message in rows:
        mark = severities.get(severity, faint)
        yield f"{mark(f'{severity:8}')} {padded(where, width)}  {message}"
    sides = list(found.usage.values())
    framed = sum(0 if use.is_binary else use.framed for use in sides)
    decoded = sum(use.decoded for use in sides)
    failed = framed - decoded
    unframed = sum(use.records - use.null for use in sides) - framed
    topics = counted(len({topic for topic, _ in found.usage}), "topic")
    total = sum(use.records - use.null for use in sides)
    marked = good(f"{decoded} decode") if decoded else f"{decoded} decode"
    lost = f"{failed} do not"
    yield (
        f"{strong(counted(_schemas(registry), 'schema'))}, {topics}, {total} keys and values: {marked},"
        f" {bad(lost) if failed else lost}, {unframed} have no framing"
    )


def _shorter(findings: Sequence[SchemaFinding]) -> Iterator[tuple[str, str, str]]:
    """Yield severity, place and sentence; unused versions of a subject together."""
    for subject, group in groupby(findings, key=lambda one: one.subject if one.id == "unused" else None):
        some = list(group)
        if subject is None or len(some) == 1:
            yield from ((one.severity, _place(one), output.printable(one.message)) for one in some)
        else:
            versions = ", ".join(_ranges(sorted(one.version or 0 for one in some)))
            ending = some[0].message.partition(" is ")[2]
            yield some[0].severity, "", output.printable(f"{subject} {versions} are {ending}")


def _ranges(numbers: Sequence[int]) -> Iterator[str]:
    """Yield ascending numbers as ranges: `1–3`, `5`."""
    first = last = numbers[0]
    for number in numbers[1:]:
        if number != last + 1:
            yield range_text(first, last)
            first = number
        last = number
    yield range_text(first, last)


def _place(one: SchemaFinding) -> str:
    return output.printable(f"{one.topic} {one.side}") if one.topic is not None else ""
