"""The command as it was typed, and the one to type next."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from shlex import quote

from klog.base.errors import UsageError
from klog.change.plan.find_plans import backups_of_plan
from klog.change.plan.model import PLAN, Plan
from klog.change.plan.session import PlanOptions, PlanResult

from klog_cli import output
from klog_cli.style import command


def check_exclusive(apply: bool, plan_file: str | None) -> None:
    """Raise UsageError if a plan should be both applied and saved."""
    if apply and plan_file is not None:
        raise UsageError("--apply and --save-plan: one of them; 'klog apply' carries out a plan that was saved")


def plan_options(name: str, apply: bool, plan_file: str | None, backup: str | None) -> PlanOptions:
    """Return the options for the plan of the command *name*; the plan records the command as it was typed."""
    return PlanOptions(name, apply, plan_file, backup, command_line())


def next_step(result: PlanResult, options: PlanOptions) -> list[str]:
    """Return lines about the next step, before or after a change: a sentence, and the command below it."""
    assert result.plan is not None
    if result.is_applied:
        return applied_lines(result.plan)
    where = (
        with_option("--apply", without=("--dry-run",))
        if options.plan_file is None
        else f"klog apply {quote(options.plan_file)}"
    )
    return ["nothing has been changed; next:", f"  {command(where)}"]


def applied_lines(plan: Plan) -> list[str]:
    """Return lines about the next step after *plan* was applied."""
    return [
        "next: start the broker; to undo this before the broker has run:",
        f"  {command(f'klog undo {plan_name(plan, plan.backups[0])}')}",
    ]


def plan_name(plan: Plan, backup: str) -> str:
    """Return the plan's id if that finds its backup, else the path of *backup*."""
    is_found = any(os.path.isfile(os.path.join(place, PLAN)) for place in backups_of_plan(plan.id, os.getcwd()))
    return plan.id if is_found else quote(backup)


def command_line() -> str:
    """Return the command as it was typed."""
    return " ".join(map(quote, ["klog", *sys.argv[1:]]))


def with_option(*options: str, without: Sequence[str] = ()) -> str:
    """Return the command as it was typed, with *options* and without others."""
    kept = [argument for argument in sys.argv[1:] if argument not in without]
    return output.printable(" ".join(map(quote, ["klog", *kept, *options])))
