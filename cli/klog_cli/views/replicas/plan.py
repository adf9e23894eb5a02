"""`klog replicas plan`: from the paths to copies that are equal."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from klog.base.errors import ExitCode, counted
from klog.change.plan.plan_document import plan_json
from klog.change.plan.session import PlanOptions, PlanResult, PlanSession
from klog.cluster.metadata.topic_config import TopicConfig
from klog.commands.replicas.catch_up import CatchUp
from klog.commands.replicas.copy_choice import LeftPartition
from klog.commands.replicas.copy_plan import CopyPlan, EqualCopies, of_copies
from klog.commands.replicas.copy_state import CopyState
from klog.commands.replicas.diff import DiffOptions, PartitionDiff, ReplicaDiffer, Verdict
from klog.commands.replicas.disks import BrokerDisk, copies_on, find_metadata, open_disks
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition_identity import IdentityChoice
from klog.data_dir.selection import PartitionChoice, PartitionQuery

from klog_cli import output
from klog_cli.command_line import next_step, with_option
from klog_cli.style import bad, command, good, strong, warning
from klog_cli.views.plan_lines import changes
from klog_cli.views.replicas import advice as replicas_advice
from klog_cli.views.replicas.choice import copy_settings

_CHOICES = (Verdict.DIVERGED, Verdict.MISSING, Verdict.DAMAGED)
"""The verdicts that --choose can settle."""


class CopyRequest(NamedTuple):
    """The request of the command line."""

    paths: Sequence[str]
    keep: str | None
    choices: Sequence[str]
    without: Sequence[str]
    repairs: bool
    metadata: str | None
    topics: Sequence[str]
    numbers: Sequence[PartitionChoice]
    choice: IdentityChoice
    jobs: int


def plan(request: CopyRequest, options: PlanOptions, form: str) -> int:
    """Plan, apply if requested, print, and return the exit code.  Raises KlogError."""
    disks = open_disks(request.paths, request.choice, output.note)
    settings = copy_settings(disks, request.keep, request.choices, request.repairs, without=request.without)
    query = PartitionQuery([disk.log_dir.path for disk in disks])
    with PlanSession(query, options, reporter=output.TerminalReporter()) as session:
        # The directory may have changed between the listing and the lock.
        disks = [BrokerDisk(disk.node, one.log_dir) for disk, one in zip(disks, session.selections, strict=True)]
        metadata = find_metadata(disks, request.metadata)
        config = TopicConfig() if metadata is None else TopicConfig(None, {}, LogDir(metadata.path))
        differ = ReplicaDiffer(disks, DiffOptions(metadata, config))
        copies = CopyPlan(disks, session.staging, differ, settings._replace(config=config), session.disk)
        free = {os.path.realpath(part.path) for one in session.selections for part in one.partitions}
        wanted = [
            found
            for found in copies_on(disks, request.topics, request.numbers, request.choice, output.note)
            if all(os.path.realpath(copy.partition.path) in free for copy in found.copies.values())
        ]
        behind = replicas_advice.behind_logs(metadata, wanted)
        unknown = replicas_advice.unknown_partitions(metadata, wanted)
        copies.add_all(wanted, request.jobs)
        result = session.finish(copies.drafts(), losses=copies.losses, revise=partial(of_copies, copies.copies))
    for note in [*behind, *unknown, *copies.removals.notes()]:
        output.note(note)
    if form == "json":
        output.emit_json(_json(copies, result))
    else:
        _show(copies, result, request, options)
    return _exit_code(copies, result, is_behind=bool(behind))


def _exit_code(copies: CopyPlan, result: PlanResult, *, is_behind: bool) -> int:
    could_not = ExitCode.OPERATIONAL_ERROR if result.is_partial else 0
    if not copies.left and not is_behind:
        return could_not
    return ExitCode.PROBLEMS_LEFT + (ExitCode.CORRECTED if result.is_applied else 0) + could_not


def _json(copies: CopyPlan, result: PlanResult) -> dict[str, object]:
    return {
        **plan_json(result.plan),
        "applied": result.is_applied,
        "copies": copies.copies,
        "left": [
            {
                "topic": one.diff.topic,
                "partition": one.diff.number,
                "verdict": one.diff.verdict.value,
                "reason": one.reason,
                "choices": {str(node): {"records": lost.records} for node, lost in one.diff.lost_if_leads.items()},
            }
            for one in copies.left
        ],
        **copies.removals.json(),
    }


def _show(copies: CopyPlan, result: PlanResult, request: CopyRequest, options: PlanOptions) -> None:
    made = result.plan
    if made is None and not copies.left:
        output.lines([good(f"nothing to do: {counted(copies.same, 'partition')}, all copies equal")])
        return
    output.lines([_verdict(copies, result)])
    output.lines(line for one in copies.equal for line in (*_equal_lines(one), *_help_lines(one.diff, request.paths)))
    output.lines(line for one in copies.left for line in _left_lines(one))
    for one in request.without:
        name = f"node {one}" if one.isdecimal() else f"the log dir with directory.id={one}"
        output.note(f"{name} must not come up with its old copies")
    if made is None:
        output.lines(_choice_lines(copies.left))
        return
    if result.is_applied:
        output.lines(f"backup: {backup}" for backup in made.backups)
    if any(target.records_lost for one in copies.equal for target in one.targets):
        output.note(
            "consumers that had read beyond a cut will see other records under the offsets they know;"
            " 'klog replicas rescue' saves what goes, before it goes"
        )
    output.lines(next_step(result, options))


def _verdict(copies: CopyPlan, result: PlanResult) -> str:
    made = "made" if result.is_applied else "planned to become"
    parts = [good(f"{counted(len(copies.equal), 'partition')} {made} equal")] if copies.equal else []
    if copies.left:
        left = str(len(copies.left)) if parts else counted(len(copies.left), "partition")
        parts.append(warning(f"{left} left unchanged"))
    if copies.same:
        parts.append(f"{copies.same} equal already")
    return ", ".join(parts) + (f"; {changes(len(result.plan.actions))}" if result.plan is not None else "")


def _choice_lines(left: Sequence[LeftPartition]) -> Iterator[str]:
    """Yield the command that chooses the copy with the fewest losses, for the first partition with a choice."""
    for one in left:
        if one.diff.verdict in _CHOICES and one.diff.lost_if_leads:
            node = min(one.diff.lost_if_leads, key=lambda node: one.diff.lost_if_leads[node].records)
            yield "next: choose a copy for each of them, this one for example"
            yield f"  {command(with_option(f'--choose={replicas_advice.name(one.diff)}={node}'))}"
            return


def _equal_lines(one: EqualCopies) -> Iterator[str]:
    """Yield the changes of a partition, a line for each copy that changes."""
    copy = one.diff.copies.get(one.kept)
    offsets = "empty"
    if copy is not None and copy.log_end > copy.log_start:
        offsets = output.range_text(copy.log_start, copy.log_end - 1)
    epoch = f" e{copy.last_epoch}" if copy is not None and copy.last_epoch >= 0 else ""
    name = strong(replicas_advice.name(one.diff))
    yield f"{name}: {one.diff.verdict.value}, keeps node {one.kept} ({offsets}{epoch})"
    for target in one.targets:
        yield _target_line(one.diff.copies.get(target.node), target)
        yield from _target_remarks(one.diff, target)


def _target_line(mine: CopyState | None, target: CatchUp) -> str:
    """Return the change of a copy, *mine* now."""
    verb = f"copied from offset {target.cut_to} on"
    if mine is None:
        verb = "new directory"
    elif target.is_replaced and mine.log_end > mine.log_start:
        verb = "replaced completely"
    elif mine.log_end > target.cut_to:
        verb = f"log end {mine.log_end} → {target.cut_to}"
    lost = f"{bad(counted(target.records_lost, 'record') + ' lost')}, " if target.records_lost else ""
    added = f"{counted(target.records_added, 'record')} added ({output.human_size(target.bytes_copied)})"
    return f"    node {target.node}: {verb}; {lost}{added}"


def _target_remarks(diff: PartitionDiff, target: CatchUp) -> Iterator[str]:
    mine = diff.copies.get(target.node)
    if mine is None:
        yield from _directory_lines(diff, target)
    elif mine.open_transactions and mine.log_end > target.cut_to:
        ends = counted(mine.open_transactions, "open transaction")
        yield f"    node {target.node}: {ends} at its end; what would end it may be on the branch that goes"


def _directory_lines(diff: PartitionDiff, target: CatchUp) -> Iterator[str]:
    assigned = diff.registration.directory_of(target.node) if diff.registration is not None else None
    here = LogDir(os.path.dirname(target.directory)).directory_id
    if assigned is not None and here != assigned:
        yield f"    node {target.node}: the assignment names directory {assigned}, not {here}: the broker reports it"


def _help_lines(diff: PartitionDiff, given: Sequence[str]) -> Iterator[str]:
    """Yield the advice that needs no change."""
    if diff.verdict in (Verdict.BEHIND, Verdict.MISSING):
        first = [line for line in replicas_advice.advice(diff, given) if line.startswith("start ")]
        yield from (f"    a start order would do as well: {line}" for line in first)


def _left_lines(one: LeftPartition) -> Iterator[str]:
    name = replicas_advice.name(one.diff)
    yield f"{strong(name)}: {warning(f'{one.diff.verdict.value}, left unchanged')}: {one.reason}"
    if one.diff.verdict in _CHOICES:
        for node, lost in one.diff.lost_if_leads.items():
            mark = bad if lost.records else good
            yield f"    --choose {name}={node}: {mark(counted(lost.records, 'record') + ' lost')}"
