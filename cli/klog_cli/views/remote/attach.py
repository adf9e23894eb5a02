"""`klog remote attach`: the attached and the refused partitions, and the next steps."""

from __future__ import annotations

from collections.abc import Iterator

from klog.base.errors import ExitCode, counted, offsets_text
from klog.change.plan.plan_document import plan_json
from klog.change.plan.session import PlanOptions
from klog.commands.remote.attach.attachment import AttachOptions, AttachRequest
from klog.commands.remote.attach.attachment import attach as run
from klog.commands.remote.attach.result import AttachedPartition, AttachMode, AttachResult

from klog_cli import output, style
from klog_cli.command_line import next_step
from klog_cli.views.plan_lines import changes

_MODES = {
    AttachMode.METADATA: "the local log stays",
    AttachMode.LOG: "an empty local log behind them",
    AttachMode.TOPIC: "a new topic, and an empty local log behind them",
}


def attach(request: AttachRequest, options: AttachOptions, plan_options: PlanOptions, form: str) -> int:
    """Plan, apply if requested, print, and return the exit code.  Raises KlogError, OSError."""
    result = run(request, options, plan_options, output.TerminalReporter())
    if form == "json":
        output.emit_json(_json(result))
    else:
        output.lines(_lines(result))
    for note in result.notes:
        output.note(note)
    if form == "text" and result.plan.plan is not None:
        output.lines([*_further(result), *next_step(result.plan, plan_options)])
    return _exit_code(result)


def _exit_code(result: AttachResult) -> int:
    could_not = ExitCode.OPERATIONAL_ERROR if result.plan.is_partial else 0
    if not result.refused:
        return could_not
    return could_not | (ExitCode.PROBLEMS_LEFT if result.attached else ExitCode.OPERATIONAL_ERROR)


def _json(result: AttachResult) -> dict[str, object]:
    made = result.plan.plan
    return {
        **(plan_json(made) if made is not None else {"id": None, "actions": []}),
        "applied": result.plan.is_applied,
        "attached": [one.json() for one in result.attached],
        "refused": [one._asdict() for one in result.refused],
        "notes": result.notes,
        "next": result.next,
    }


def _lines(result: AttachResult) -> Iterator[str]:
    yield _verdict(result)
    for one in result.attached:
        yield from _attached(one)
    for refusal in result.refused:
        name = f"{refusal.topic}-{refusal.partition}"
        yield f"{style.strong(name)}  {style.bad('refused')}, {refusal.id}: {refusal.message}"
        yield f"    next: {refusal.next}"
    made = result.plan.plan
    if made is not None and result.plan.is_applied:
        yield from (f"backup: {backup}" for backup in made.backups)


def _verdict(result: AttachResult) -> str:
    made = result.plan.plan
    refused = f"; {style.bad(f'{len(result.refused)} refused')}" if result.refused else ""
    if made is None and result.attached:
        return f"nothing to do: {counted(len(result.attached), 'partition')} attached already{refused}"
    if made is None:
        return f"{style.bad('nothing attached')}: {counted(len(result.refused), 'partition')} refused"
    verb = style.good("attached") if result.plan.is_applied else "would attach"
    segments = sum(one.segments for one in result.attached if not one.is_done)
    some = sum(not one.is_done for one in result.attached)
    what = f"{counted(some, 'partition')}, {style.strong(counted(segments, 'segment'))}"
    return f"{verb} {what}, with {changes(len(made.actions))}{refused}"


def _attached(one: AttachedPartition) -> Iterator[str]:
    span = offsets_text(one.first, one.remote_end)
    if one.is_done:
        yield f"{style.strong(str(one.whose))}  {span} in remote storage, attached already"
        return
    yield f"{style.strong(str(one.whose))}  {counted(one.segments, 'segment')}, {span}; {_MODES[one.mode]}"
    place = f"__remote_log_metadata-{one.metadata_partition}"
    records = f"{counted(one.records, 'record')} for {place}" if one.records else "no record is missing"
    yield f"    topic id {one.whose.topic_id}; leader epoch {one.leader_epoch}; {records}"
    for ended in one.ended:
        yield f"    ends the transaction of producer {ended.producer_id}, open from offset {ended.first_offset} on"


def _further(result: AttachResult) -> Iterator[str]:
    yield "before the start:"
    for step in result.next:
        yield f"  {style.command(step) if step.startswith('klog ') else step}"
