"""`klog replicas rescue`: from the paths to a file of records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klog.base.errors import ExitCode, UsageError, counted
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.copy_choice import PartitionRescue
from klog.commands.replicas.diff import DiffOptions, PartitionDiff, ReplicaDiffer
from klog.commands.replicas.disks import copies_on, find_metadata, open_disks
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import IdentityChoice
from klog.data_dir.selection import PartitionChoice
from klog.partition.lookup import Lookup

from klog_cli import output
from klog_cli.views.replicas.choice import chosen

_MOST_PLAN_BYTES = 64 << 20


class RescueRequest(NamedTuple):
    """The request of the command line."""

    paths: Sequence[str]
    to: str
    if_leads: int | None
    plan: str | None
    choices: Sequence[str]
    metadata: str | None
    topics: Sequence[str]
    numbers: Sequence[PartitionChoice]
    choice: IdentityChoice


def rescue(request: RescueRequest) -> int:
    """Write the records; return the exit code.  Raises UsageError, UnreadableError, KlogError."""
    if (request.if_leads is None) == (request.plan is None) and not request.choices:
        raise UsageError("which replica is to lead?  Give --if-leads N or --plan FILE")
    leaders = {**_planned(request.plan), **chosen(request.choices)}
    disks = open_disks(request.paths, request.choice, output.note)
    nodes = {disk.node for disk in disks}
    for node in {*leaders.values(), request.if_leads} - {None}:
        if node not in nodes:
            raise UsageError(f"no disk of node {node} is given")
    metadata = find_metadata(disks, request.metadata)
    config = TopicConfig() if metadata is None else TopicConfig(None, {}, LogDir(metadata.path))
    differ = ReplicaDiffer(disks, DiffOptions(metadata, config))
    records = 0
    code = ExitCode.CLEAN
    with output.Results(None if request.to == "-" else request.to) as results:
        rescuer = PartitionRescue(differ, results.write)
        for found in copies_on(disks, request.topics, request.numbers, request.choice, output.note):
            leader = leaders.get((found.topic, found.number), request.if_leads)
            if leader is None:
                continue
            diff = rescuer.rescue(found, leader)
            if diff.problem is not None and leader in diff.lost_if_leads:
                output.note(f"{found.topic}-{found.number}: {diff.problem}")
            if diff.problem is not None and leader not in diff.lost_if_leads:
                output.error(f"{found.topic}-{found.number}: {diff.problem}; left out")
                code |= ExitCode.OPERATIONAL_ERROR
            elif leader in diff.absent_log_dirs:
                ids = " or ".join(diff.absent_log_dirs[leader])
                output.error(
                    f"{found.topic}-{found.number}: the log dir of node {leader} with directory.id={ids} is not given,"
                    " and it is not known what would be lost; left out"
                )
                code |= ExitCode.PROBLEMS_LEFT
            elif leader in diff.lost_if_leads:
                records += diff.lost_if_leads[leader].records
                code |= _name_unread(diff, leader)
            else:
                output.note(f"{found.topic}-{found.number}: node {leader} has no copy and is no replica; left out")
    for topic, number, offset in rescuer.too_large:
        output.error(f"{topic}-{number} (offset {offset}): the record's line is too large: left out")
        code |= ExitCode.PROBLEMS_LEFT
    records -= len(rescuer.too_large)
    output.note(f"saved {counted(records, 'record')}" if records else "nothing would be lost: no record to save")
    return code


def _name_unread(diff: PartitionDiff, leader: int) -> int:
    """Name the batches of other copies that cannot be read and that no copy has intact; return the exit code."""
    code = ExitCode.CLEAN
    logs = {node: copy.partition for node, copy in diff.copies.items()}
    bad = {node: copy.facts.bad_batches if copy.facts is not None else [] for node, copy in diff.copies.items()}
    for node in diff.copies.keys() - {leader}:
        for offset in bad[node]:
            others = (log for other, log in logs.items() if other != node and offset not in bad[other])
            if not any(_has_intact(log, offset) for log in others):
                output.error(f"{diff.topic}-{diff.number}: node {node}: the batch at offset {offset} cannot be read")
                code |= ExitCode.PROBLEMS_LEFT
    return code


def _has_intact(partition: Partition, offset: int) -> bool:
    """Whether the log on disk has a batch with *offset* whose checksum matches."""
    if not partition.segments:
        return False
    with Lookup(partition) as lookup:
        batch = lookup.offset(offset).batch
    return batch is not None and batch.crc_holds and batch.base_offset <= offset <= batch.last_offset


def _planned(path: str | None) -> Mapping[tuple[str, int], int]:
    """Return which copies a plan keeps, by topic and partition.  Raises UsageError."""
    if path is None:
        return {}
    try:
        with open(path, "rb") as file:
            content = file.read(_MOST_PLAN_BYTES + 1)
        if len(content) > _MOST_PLAN_BYTES:
            raise UsageError(f"--plan {path}: no plan of 'klog replicas plan': more than {_MOST_PLAN_BYTES} bytes")
        plan = json.loads(content)
        return {(one["topic"], int(one["partition"])): int(one["kept"]) for one in plan["copies"]}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"--plan {path}: no plan of 'klog replicas plan': {error}") from None
