"""`klog undo`: its options."""

from __future__ import annotations

from klog_cli import options, output


def undo(
    plan: options.PlanFile,
    apply: options.Apply = False,
    backup: options.UndoBackupTo = None,
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
