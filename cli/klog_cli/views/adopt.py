"""`klog adopt`: the adopted and the refused sources."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from klog.base.errors import ExitCode, counted
from klog.change.plan.plan_document import plan_json
from klog.change.plan.session import PlanOptions
from klog.commands.adopt.adopt import AdoptedPartition, AdoptRequest, AdoptResult
from klog.commands.adopt.adopt import adopt as run
from klog.commands.adopt.adopted_content import HIDDEN, AdoptOptions
from klog.commands.adopt.transaction_ends import ABORTED

from klog_cli import output, style
from klog_cli.command_line import next_step
from klog_cli.views.plan_lines import changes


def adopt(request: AdoptRequest, options: AdoptOptions, plan_options: PlanOptions, form: str) -> int:
    """Plan, apply if requested, print, and return the exit code.  Raises KlogError, OSError."""
    with output.Results() as results:
        result = run(request, options, plan_options, output.TerminalReporter(), results)
    if form == "json":
        output.emit_json(_json(result))
    else:
        output.lines(_lines(result))
    for note in (*result.notes, *_source_notes(result)):
        output.note(note)
    if form == "text" and result.plan.plan is not None:
        output.lines(next_step(result.plan, plan_options))
    return _exit_code(result)


def _exit_code(result: AdoptResult) -> int:
    could_not = ExitCode.OPERATIONAL_ERROR if result.plan.is_partial else 0
    if not result.refused:
        return could_not | (0 if result.is_certain else ExitCode.PROBLEMS_LEFT)
    return could_not | (ExitCode.PROBLEMS_LEFT if result.adopted else ExitCode.OPERATIONAL_ERROR)


def _json(result: AdoptResult) -> dict[str, object]:
    return {
        **plan_json(result.plan.plan),
        "applied": result.plan.is_applied,
        "adopted": [one.json() for one in result.adopted],
        "refused": [one._asdict() for one in result.refused],
        "notes": result.notes,
        "retention": [one.json() for one in result.due],
    }


def _lines(result: AdoptResult) -> Iterator[str]:
    yield _verdict(result)
    for one in result.adopted:
        yield from _adopted(one)
    for refusal in result.refused:
        yield f"{style.strong(refusal.source)}  {style.bad('refused')}, {refusal.id}: {refusal.message}"
        is_command = refusal.next.startswith(("klog ", "kafka-"))
        yield f"    {style.command(refusal.next)}" if is_command else f"    next: {refusal.next}"
    made = result.plan.plan
    if made is not None and result.plan.is_applied:
        yield from (f"backup: {backup}" for backup in made.backups)


def _verdict(result: AdoptResult) -> str:
    made = result.plan.plan
    refused = f"; {style.bad(f'{len(result.refused)} refused')}" if result.refused else ""
    if made is None:
        there = f"{counted(len(result.adopted), 'partition')} there already"
        if result.adopted:
            return f"nothing to do: {there}{refused}"
        return f"{style.bad('nothing adopted')}: {counted(len(result.refused), 'partition')} refused"
    verb = style.good("adopted") if result.plan.is_applied else "would adopt"
    records = sum(one.log.records for one in result.adopted if not one.is_done)
    what = f"{counted(len(result.adopted), 'partition')}, {style.strong(counted(records, 'record'))}"
    return f"{verb} {what}, with {changes(len(made.actions))}{refused}"


def _adopted(one: AdoptedPartition) -> Iterator[str]:
    log = one.log
    span = (
        output.range_text(log.log_start, log.log_end - 1) if log.log_end > log.log_start else f"from {log.log_start} on"
    )
    done = ", there already" if one.is_done else ""
    records = counted(log.records, "record") if log.log_end > log.log_start else "empty"
    name = style.strong(one.target.name)
    yield f"{name}  {records}, offsets {span}, from {one.source.path} into {one.log_dir}{done}"
    if one.is_done:
        return
    epochs = "epochs as they are" if log.epoch is None else f"all in leader epoch {log.epoch}, that of the partition"
    yield f"    topic id {one.target.topic_id}; {epochs}; {_producers(one)}"
    if one.replaces is not None:
        size = output.human_size(one.replaces.bytes)
        replaced = counted(one.replaces.records or 0, "record")
        yield f"    replaces {style.warning(replaced)} ({size}), which go to the backup"
    for loss in log.losses:
        lost = counted(loss.records or 0, "record")
        if loss.reason == ABORTED:
            from_there = f"from offset {loss.first_offset} on, whose transaction may yet be committed"
            yield f"    {style.bad(f'loses {lost}')} {from_there}"
        elif loss.reason == HIDDEN:
            yield f"    {style.bad(f'loses {lost}')} from offset {loss.first_offset} on, {loss.reason}"
        else:
            size = output.human_size(loss.bytes)
            yield f"    recovered on the way: {style.bad(f'{lost} cut')}, {size} ({loss.reason})"
    for left in log.left_open:
        yield f"    leaves the transaction of producer {left.producer_id} open, from offset {left.first_offset} on"
    for ended in log.committed:
        which = f"producer {ended.producer_id}, open from offset {ended.first_offset} on"
        yield f"    commits the transaction of {which}, as its coordinator had decided"
    for ended in log.ended:
        yield f"    aborts the transaction of producer {ended.producer_id}, open from offset {ended.first_offset} on"


def _producers(one: AdoptedPartition) -> str:
    kept, forgotten = len(one.log.producers), len(one.log.forgotten)
    if kept and forgotten:
        return f"{counted(kept, 'producer')} kept, {forgotten} forgotten, whose ids the cluster has not handed out"
    return f"producers {'kept' if one.log.keeps_producers else 'forgotten'}"


def _source_notes(result: AdoptResult) -> Iterator[str]:
    aside = [quote(one.source.path) for one in result.adopted if one.is_aside]
    if aside:
        yield f"before the start, move out of every log dir: {' '.join(aside)}"
