"""`klog apply`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options

BackupsIn = Annotated[str | None, typer.Option("--backup", metavar="DIR", help="Where to look for the plan's backup.")]


def apply(
    plan: options.PlanFile,
    backup: BackupsIn = None,
    form: options.PlanOutput = "text",
) -> int:
    """Carry out a saved plan, or finish an interrupted one.

    klog refuses when a file has changed since the plan was made, or while a broker runs. The original files are kept
    first, for 'klog undo'.
    """
    from klog_cli.views.plans import apply_plan

    options.known_form(form, options.PLAN_OUTPUTS)
    return apply_plan(plan, backup, form)
