"""Plans, carried out, taken back and listed."""

from __future__ import annotations

import os
import time
from shlex import quote

from klog.change.plan import session
from klog.change.plan.executor import ApplyResult
from klog.change.plan.find_plans import StoredPlan, find_plan, plans_near, plans_of
from klog.change.plan.model import Plan
from klog.change.plan.plan_document import plan_json
from klog.change.plan.plan_status import PlanStatus, state_of
from klog.data_dir.log_dir import LogDir
from klog.data_dir.selection import open_path

from klog_cli import output
from klog_cli.views.nothing_found import nothing_found
from klog_cli.views.plan_lines import action_lines, changes


def apply_plan(what: str, backup: str | None, form: str) -> int:
    """Apply the plan named *what*; return the exit code."""
    _show_done(*session.apply_plan(what, backup, reporter=output.TerminalReporter()), form)
    return 0


def _backup(plan: Plan) -> str:
    return quote(output.printable(plan.backups[0]))


def _show_done(plan: Plan, result: ApplyResult | None, form: str) -> None:
    done, done_before = (result.done, result.done_before) if result else (0, 0)
    if form == "json":
        output.emit_json({**plan_json(plan), "done": done, "done_before": done_before})
    elif not done:
        output.text(f"{plan.id}: nothing to do" + (", it was carried out before" if done_before else "") + "\n")
    else:
        before = f", {done_before} had been made before" if done_before else ""
        output.text(f"{plan.id}: {changes(done)} made{before}\n")
        output.text(f"backup: {output.printable(plan.backups[0])}\n")
    if done:
        output.note(f"next: start the broker; 'klog undo {_backup(plan)} --apply' takes it back until then")


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
        output.text(f"{plan.id}: nothing to take back\n")
    else:
        for line in action_lines(back, back.actions):
            output.text(f"{line}\n")
        output.text(f"{changes(len(back.actions))} would take back {plan.id} ({output.printable(plan.command)})\n")
    if back.actions:
        output.note(f"next: klog undo {quote(what)} --apply")
    return 0


def _show_undone(plan: Plan, back: Plan, result: ApplyResult | None, form: str) -> None:
    done = result.done if result else 0
    if form == "json":
        output.emit_json({**plan_json(back), "done": done, "done_before": 0})
    elif not done:
        output.text(f"{plan.id}: nothing to take back\n")
    else:
        output.text(f"{plan.id}: taken back, {changes(done)} ({back.id})\n")
        output.text(f"backup: {output.printable(back.backups[0])}\n")
        output.note(f"'klog undo {_backup(back)} --apply' would do again what was taken back")


def list_plans(directory: str | None, form: str) -> int:
    """List the plans made for a log dir, or near the current directory; return the exit code.  Raises UsageError."""
    if directory is None:
        kept_plans, where = plans_near(os.getcwd()), "in this directory, the log dirs in it and those above it"
    else:
        opened = open_path(directory)
        log_dir = opened.path if isinstance(opened, LogDir) else os.path.dirname(os.path.abspath(opened.path))
        kept_plans, where = plans_of(log_dir), f"for {output.printable(log_dir)}"
    found = [(kept, state_of(kept.plan)) for kept in kept_plans]
    rows = [_row(kept, state) for kept, state in found]
    if form == "json":
        output.emit_json({"plans": rows})
    elif form == "jsonl":
        output.emit_jsonl(rows)
    elif form == "csv":
        output.emit_csv_rows(rows, _CSV)
    elif found:
        columns = ("id", "created", "state", "changes", "command", "backup")
        cells = [
            (kept.plan.id, kept.plan.created, state.value, len(kept.plan.actions), kept.plan.command, kept.backup)
            for kept, state in found
        ]
        output.emit_table((), columns, cells)
    if not found:
        return nothing_found(f"no plans {where}")
    for kept, state in found:
        if state is PlanStatus.HALF_DONE:
            place = quote(output.printable(kept.backup))
            output.note(
                f"{kept.plan.id} is half done: 'klog apply {place}' finishes it, 'klog undo {place}' takes it back"
            )
        elif state is PlanStatus.PLANNING:
            output.note(
                f"{kept.plan.id} is being made, or was when its process was killed: then the next command that changes"
                " the log dir removes what it left"
            )
    return 0


_CSV = ("id", "created", "command", "state", "actions", "log_dirs", "undoes", "backup")


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
