"""`klog apply`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options

BackupsIn = Annotated[str | None, typer.Option("--backup", metavar="DIR", help="The directory of the plan's backup.")]


def apply(
    plan: options.PlanFile,
    backup: BackupsIn = None,
    form: options.PlanOutput = "text",
) -> int:
    """Carry out a saved plan, or finish an interrupted one.

    klog refuses if a file has changed since the plan was made, or while a broker runs. It first saves the original
    files, for 'klog undo'.
    """
    from klog_cli.views.plans import apply_plan

    options.known_form(form, options.PLAN_OUTPUTS)
    return apply_plan(plan, backup, form)
