"""`klog plans`: its options."""

from __future__ import annotations

from klog_cli import options, output


def plans(
    directory: options.LogDirPath,
    form: options.PlansOutput = "text",
    quiet: options.Quiet = False,
) -> int:
    """List the plans that were made for a log dir, and how far each has come.

    States: being planned, not begun, half done, applied, taken back, used since (somebody has changed its directories).
    """
    from klog_cli.views.plans import list_plans

    output.Quiet.on = quiet
    options.known_form(form, options.PLANS_OUTPUTS)
    return list_plans(directory, form)
