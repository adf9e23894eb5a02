"""`klog undo`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options, output

UndoBackupTo = Annotated[
    str | None,
    typer.Option("--backup", metavar="DIR", help="Where its own originals go; an id is looked for there, too."),
]


def undo(
    plan: options.PlanFile,
    apply: options.Apply = False,
    backup: UndoBackupTo = None,
    form: options.PlanOutput = "text",
    quiet: options.Quiet = False,
) -> int:
    """Take back what a plan has done: the exact bytes, modes, owners and modification times.

    Only as long as nobody has used the partitions since. An undo has its own backup and can be undone.
    """
    from klog_cli.views.plans import undo_plan

    output.Quiet.on = quiet
    options.known_form(form, options.PLAN_OUTPUTS)
    return undo_plan(plan, backup, form, carry_out=apply)
