"""`klog adopt`: the adopted and the refused sources."""

from __future__ import annotations

from collections.abc import Iterator
from shlex import quote

from klog.base.errors import ExitCode, counted
from klog.change.plan.plan_document import plan_json
from klog.change.plan.session import PlanOptions
from klog.commands.adopt.adopt import AdoptedPartition, AdoptRequest, AdoptResult
from klog.commands.adopt.adopt import adopt as run
from klog.commands.adopt.adopted_content import AdoptOptions
from klog.commands.adopt.transaction_ends import ABORTED

from klog_cli import output
from klog_cli.command_line import next_step
from klog_cli.views.plan_lines import changes


def adopt(request: AdoptRequest, options: AdoptOptions, plan_options: PlanOptions, form: str) -> int:
    """Plan, apply if requested, print, and return the exit code.  Raises KlogError, OSError."""
    with output.Results() as results:
        result = run(request, options, plan_options, output.TerminalReporter(), results)
    if form == "json":
        output.emit_json(_json(result))
    else:
        for line in _lines(result):
            output.lines([line])
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
    made = result.plan.plan
    return {
        **(plan_json(made) if made is not None else {"id": None, "actions": []}),
        "applied": result.plan.is_applied,
        "adopted": [one.json() for one in result.adopted],
        "refused": [one._asdict() for one in result.refused],
        "notes": result.notes,
        "retention": [one.json() for one in result.due],
    }


def _lines(result: AdoptResult) -> Iterator[str]:
    for one in result.adopted:
        yield from _adopted(one)
    for refusal in result.refused:
        yield f"{refusal.source}  refused, {refusal.id}: {refusal.message}"
        yield f"    next: {refusal.next}"
    made = result.plan.plan
    if made is None:
        yield f"nothing to do: {counted(len(result.adopted), 'partition')} already there, {len(result.refused)} refused"
        return
    verb = "adopted" if result.plan.is_applied else "planned to be adopted"
    refused = f", {len(result.refused)} refused" if result.refused else ""
    yield f"{counted(len(result.adopted), 'partition')} {verb}{refused}; {changes(len(made.actions))}"
    if result.plan.is_applied:
        yield from (f"backup: {backup}" for backup in made.backups)


def _adopted(one: AdoptedPartition) -> Iterator[str]:
    log = one.log
    span = f"{log.log_start} to {log.log_end - 1}" if log.log_end > log.log_start else f"empty, from {log.log_start} on"
    done = ", there already" if one.is_done else ""
    records = counted(log.records, "record")
    yield f"{one.target.name}  {records}, {span}, from {one.source.path} into {one.log_dir}{done}"
    if one.is_done:
        return
    epochs = "epochs as they are" if log.epoch is None else f"all in leader epoch {log.epoch}, that of the partition"
    yield f"    topic id {one.target.topic_id}; {epochs}; {_producers(one)}"
    if one.replaces is not None:
        size = output.human_size(one.replaces.bytes)
        yield f"    replaces {counted(one.replaces.records or 0, 'record')} ({size}), which go to the backup"
    for loss in log.losses:
        lost = counted(loss.records or 0, "record")
        if loss.reason == ABORTED:
            yield f"    loses {lost} from offset {loss.first_offset} on, whose transaction may yet be committed"
        else:
            yield f"    recovered on the way: {lost} cut, {loss.bytes} bytes ({loss.reason})"
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
