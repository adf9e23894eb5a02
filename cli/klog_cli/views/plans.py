"""Plans, applied, undone and listed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from shlex import quote

from klog.change.plan import session
from klog.change.plan.executor import ApplyResult
from klog.change.plan.find_plans import StoredPlan, find_plan, plans_near, plans_of
from klog.change.plan.model import Plan
from klog.change.plan.plan_document import plan_json
from klog.change.plan.plan_status import PlanStatus, state_of
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import open_path

from klog_cli import output, style
from klog_cli.command_line import applied_lines, plan_name
from klog_cli.views.nothing_found import nothing_found
from klog_cli.views.plan_lines import action_lines, changes

_STATES: dict[PlanStatus, Callable[[str], str]] = {
    PlanStatus.PLANNING: style.warning,
    PlanStatus.HALF_DONE: style.bad,
    PlanStatus.APPLIED: style.good,
    PlanStatus.TAKEN_BACK: style.faint,
    PlanStatus.USED_SINCE: style.warning,
}


def apply_plan(what: str, backup: str | None, form: str) -> int:
    """Apply the plan named *what*; return the exit code."""
    plan, result = session.apply_plan(what, backup, reporter=output.TerminalReporter())
    done, done_before = (result.done, result.done_before) if result else (0, 0)
    if form == "json":
        output.emit_json({**plan_json(plan), "done": done, "done_before": done_before})
    elif not done:
        output.lines([f"nothing to do: {plan.id}" + (" was applied before" if done_before else "")])
    else:
        before = f", {done_before} had been made before" if done_before else ""
        output.lines([f"{style.good('applied')}: {style.strong(plan.id)}, {changes(done)} made{before}"])
        output.lines([f"backup: {plan.backups[0]}", *applied_lines(plan)])
    return 0


def undo_plan(what: str, backup: str | None, form: str, *, carry_out: bool) -> int:
    """Undo the plan named *what*, or show how; return the exit code."""
    from klog.change.plan.undo import plan_undo

    plan = find_plan(what, backup).plan
    if carry_out:
        _show_undone(plan, *session.undo_plan(plan, backup, reporter=output.TerminalReporter()), form)
        return 0
    back = plan_undo(plan, int(time.time() * 1000), backup)
    if form == "json":
        output.emit_json(plan_json(back))
    elif not back.actions:
        output.lines([f"nothing to undo: {plan.id}"])
    else:
        verb, of = ("redo", plan.undoes) if plan.undoes else ("undo", plan.id)
        output.lines([f"would {verb} {style.strong(of)} with {changes(len(back.actions))} ({plan.command})"])
        output.lines(action_lines(back, back.actions))
        command = style.command(f"klog undo {quote(what)} --apply")
        output.lines(["nothing has been changed; next:", f"  {command}"])
    return 0


def _show_undone(plan: Plan, back: Plan, result: ApplyResult | None, form: str) -> None:
    done = result.done if result else 0
    verb, again, of = ("redone", "undo", plan.undoes) if plan.undoes else ("undone", "redo", plan.id)
    if form == "json":
        output.emit_json({**plan_json(back), "done": done, "done_before": 0})
    elif not done:
        output.lines([f"nothing to undo: {plan.id}"])
    else:
        command = style.command(f"klog undo {plan_name(back, back.backups[0])}")
        output.lines([f"{style.good(verb)}: {style.strong(of)}, {changes(done)} made"])
        output.lines([f"backup: {back.backups[0]}", f"to {again} it:", f"  {command}"])


def list_plans(directory: str | None, form: str) -> int:
    """List the plans made for a log dir, or near the current directory; return the exit code.  Raises KlogError."""
    if directory is None:
        kept_plans, where = plans_near(os.getcwd()), "in this directory, the log dirs in it and those above it"
    else:
        opened = open_path(directory)
        log_dir = opened.path if isinstance(opened, LogDir) else os.path.dirname(os.path.abspath(opened.path))
        kept_plans, where = plans_of(log_dir), f"for {log_dir}"
    found = [(kept, state_of(kept.plan)) for kept in kept_plans]
    rows = [_row(kept, state) for kept, state in found]
    if form == "text":
        _show_list(found)
    elif form == "json":
        output.emit_json({"plans": rows})
    elif form == "jsonl":
        output.emit_jsonl(rows)
    else:
        output.emit_csv_rows(rows, _CSV)
    return 0 if found else nothing_found(f"no plans {where}")


_CSV = ("id", "created", "command", "state", "actions", "log_dirs", "undoes", "backup")


def _show_list(found: Sequence[tuple[StoredPlan, PlanStatus]]) -> None:
    if not found:
        return
    cells = [
        (
            kept.plan.id,
            kept.plan.created.replace("T", " "),
            state_text(state),
            len(kept.plan.actions),
            kept.plan.command,
        )
        for kept, state in found
    ]
    output.emit_table((), ("id", "when", "state", "changes", "command"), cells)
    output.lines(_backup_lines([kept for kept, _ in found]))
    for kept, state in found:
        output.lines(_unfinished_lines(kept, state))


def state_text(state: PlanStatus) -> str:
    """Return the state of a plan in words and its colour; the JSON output has the value itself."""
    words = "undone" if state is PlanStatus.TAKEN_BACK else state.value
    return _STATES[state](words) if state in _STATES else words


def _backup_lines(found: Sequence[StoredPlan]) -> Iterator[str]:
    """Yield the directories with the backups, with the ids of each if there are several."""
    places: dict[str, list[str]] = {}
    for kept in found:
        parent, name = os.path.split(kept.backup)
        places.setdefault(parent if name == kept.plan.id else kept.backup, []).append(kept.plan.id)
    for place, ids in places.items():
        whose = "" if len(places) == 1 else f" of {', '.join(ids)}"
        yield f"{'backup is' if len(ids) == 1 else 'backups are'} in {style.faint(place)}{whose}"


def _unfinished_lines(kept: StoredPlan, state: PlanStatus) -> Iterator[str]:
    name = plan_name(kept.plan, kept.backup)
    if state is PlanStatus.HALF_DONE:
        yield f"{kept.plan.id} is {style.bad('half done')}: finish it, or undo it:"
        yield f"  {style.command(f'klog apply {name}')}"
        yield f"  {style.command(f'klog undo {name}')}"
    elif state is PlanStatus.PLANNING:
        yield (
            f"{kept.plan.id} is being planned, or its process was killed meanwhile: then the next command that changes"
            " the log dir removes the leftovers"
        )


def _row(kept: StoredPlan, state: PlanStatus) -> dict[str, object]:
    return {
        "id": kept.plan.id,
        "created": kept.plan.created,
        "command": kept.plan.command,
        "state": state.value,
        "actions": len(kept.plan.actions),
        "log_dirs": list(kept.plan.log_dirs),
        "undoes": kept.plan.undoes,
        "backup": kept.backup,
    }
