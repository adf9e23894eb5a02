"""`klog replicas diff`: from the paths to the output."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from klog.base.errors import ExitCode, UsageError
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.diff import ELR_VERSION, DiffOptions, PartitionDiff, ReplicaDiffer, Verdict, diff_all
from klog.commands.replicas.disks import BrokerDisk, copies_on, find_metadata, open_disks
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition_identity import IdentityChoice
from klog.data_dir.selection import PartitionChoice

from klog_cli import output
from klog_cli.views.replicas import advice as replicas_advice
from klog_cli.views.replicas import json as replicas_json
from klog_cli.views.replicas import text as replicas_text
from klog_cli.views.replicas.advice import summary


class DiffRequest(NamedTuple):
    """The request of the command line."""

    paths: Sequence[str]
    metadata: str | None
    up: str | None
    settings: Sequence[str]
    is_deep: bool
    topics: Sequence[str]
    numbers: Sequence[PartitionChoice]
    choice: IdentityChoice
    jobs: int
    lists_all: bool = False


def diff(request: DiffRequest, form: str) -> int:
    """Compare, print, and return the exit code.  Raises UsageError, UnreadableError, KlogError."""
    settings = _settings(request.settings)
    disks = open_disks(request.paths, request.choice, output.note)
    options = _options(request, disks, settings)
    found = copies_on(disks, request.topics, request.numbers, request.choice, output.note)
    for disk in disks:
        if disk.log_dir.lock.held:
            output.note(
                f"{disk.log_dir.lock.of(disk.log_dir.path, with_pid=False)}: its copies move while they are compared"
            )
    if options.metadata is None:
        output.note("no metadata log among the disks: it is not known who leads; --metadata DIR names one")
    else:
        node = "" if options.metadata.node is None else f" of node {options.metadata.node}"
        output.note(f"metadata: {options.metadata.path}{node}, offset {options.metadata.state.end_offset}")
    behind = replicas_advice.behind_logs(options.metadata, found)
    behind += replicas_advice.unknown_partitions(options.metadata, found)
    for line in behind:
        output.note(line)
    left = ExitCode.PROBLEMS_LEFT if behind else ExitCode.CLEAN
    given = [*request.paths, *(() if request.metadata is None else ("--metadata", request.metadata))]
    differ = ReplicaDiffer(disks, options)
    kept: list[PartitionDiff] = []
    unsafe = 0

    def take(one: PartitionDiff) -> None:
        nonlocal unsafe
        unsafe += not one.is_safe
        if form == "jsonl":
            output.emit_jsonl([replicas_json.partition_json(one, given)])
        else:
            kept.append(one)

    diff_all(differ, found, request.jobs, take)
    if form == "json":
        output.emit_json(_document(kept, disks, options, given))
    elif form == "csv":
        output.emit_csv_rows(replicas_json.partition_json(one, given) for one in kept)
    elif form == "text":
        _print(kept, given, lists_all=request.lists_all)
    return left | (ExitCode.PROBLEMS_LEFT if unsafe else ExitCode.CLEAN)


def _settings(given: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--set {text}: expected NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def _options(request: DiffRequest, disks: Sequence[BrokerDisk], settings: dict[str, str]) -> DiffOptions:
    metadata = find_metadata(disks, request.metadata)
    known = dict(settings)
    version = known.pop(ELR_VERSION, None)
    if version is not None and re.fullmatch(r"[0-9]{1,5}", version) is None:
        raise UsageError(f"--set {ELR_VERSION}={version}: expected a feature level, 0 or 1")
    config = TopicConfig(None, known) if metadata is None else TopicConfig(None, known, LogDir(metadata.path))
    up = _order(request.up, disks) if request.up is not None else None
    return DiffOptions(metadata, config, int(version) if version is not None else None, up, settings, request.is_deep)


def _order(text: str, disks: Sequence[BrokerDisk]) -> tuple[tuple[int, ...], ...]:
    """Return the groups of a start order.  Raises UsageError."""
    groups = []
    known = {disk.node for disk in disks}
    for group in re.split(r"\s+then\s+", text.strip()):
        nodes = re.split(r"\s*,\s*|\s+", group.strip())
        if any(re.fullmatch(r"[0-9]{1,10}", node) is None for node in nodes):
            raise UsageError(f"--up {text}: expected nodes with 'then' between those that start later: 3 then 1,2")
        groups.append(tuple(map(int, nodes)))
    every = [node for group in groups for node in group]
    if len(set(every)) < len(every):
        raise UsageError(f"--up {text}: a node starts once")
    unknown = [node for node in every if node not in known]
    if unknown:
        raise UsageError(f"--up {text}: no disk of node {unknown[0]} is given")
    return tuple(groups)


def _document(
    diffs: Sequence[PartitionDiff], disks: Sequence[BrokerDisk], options: DiffOptions, given: Sequence[str]
) -> dict[str, object]:
    verdicts = [one.verdict.value for one in diffs]
    return {
        "cluster_id": next(filter(None, (disk.log_dir.cluster_id for disk in disks)), None),
        "metadata": replicas_json.metadata_json(options.metadata),
        "disks": list(map(replicas_json.disk_json, disks)),
        "partitions": [replicas_json.partition_json(one, given) for one in diffs],
        "summary": {verdict.value: verdicts.count(verdict.value) for verdict in Verdict if verdict.value in verdicts},
    }


def _print(diffs: Sequence[PartitionDiff], given: Sequence[str], *, lists_all: bool) -> None:
    output.lines(summary(diffs, given))
    shown = [one for one in diffs if lists_all or one.verdict is not Verdict.SAME or not one.is_safe]
    for one in shown:
        output.lines(["", *replicas_text.section(one, output.width())])
    if shown:
        output.emit_table([""], replicas_text.COLUMNS, (row for one in shown for row in replicas_text.rows(one)))
        output.lines(replicas_text.legend(shown))
