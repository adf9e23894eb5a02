"""`klog apply`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options, output

BackupsIn = Annotated[str | None, typer.Option("--backup", metavar="DIR", help="Where the backup is to be looked for.")]


def apply(
    plan: options.PlanFile,
    backup: BackupsIn = None,
    form: options.PlanOutput = "text",
    quiet: options.Quiet = False,
) -> int:
    """Carry out a plan that a command with --plan has made, or finish one that was interrupted.

    Nothing is started when a file has changed since, or when a broker runs; originals are kept first, for 'klog undo'.
    """
    from klog_cli.views.plans import apply_plan

    output.Quiet.on = quiet
    options.known_form(form, options.PLAN_OUTPUTS)
    return apply_plan(plan, backup, form)
