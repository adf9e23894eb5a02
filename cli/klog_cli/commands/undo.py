"""`klog undo`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options

UndoBackupTo = Annotated[
    str | None,
    typer.Option(
        "--backup",
        metavar="DIR",
        help="Directory for the files that undo replaces; klog also looks for a plan id there.",
    ),
]


def undo(
    plan: options.PlanFile,
    apply: options.Apply = False,
    backup: UndoBackupTo = None,
    form: options.PlanOutput = "text",
) -> int:
    """Undo an applied plan: restore the original files.

    Content, modes, owners and modification times are restored exactly. klog refuses if the partitions have been
    used since. An undo has its own backup and can itself be undone.
    """
    from klog_cli.views.plans import undo_plan

    options.known_form(form, options.PLAN_OUTPUTS)
    return undo_plan(plan, backup, form, carry_out=apply)
