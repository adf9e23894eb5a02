"""`klog plans`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options, output

PLANS_OUTPUTS = ("text", "table", "json")
LogDirPath = Annotated[str, typer.Argument(metavar="DIR", help="A log dir, or a partition directory in it.")]
PlansOutput = Annotated[str, typer.Option("--output", metavar="|".join(PLANS_OUTPUTS), help="Output form.")]


def plans(
    directory: LogDirPath,
    form: PlansOutput = "text",
    quiet: options.Quiet = False,
) -> int:
    """List the plans made for a log dir, and their status.

    States: being planned, not begun, half done, applied, taken back, used since (its directories have changed).
    """
    from klog_cli.views.plans import list_plans

    output.Quiet.on = quiet
    options.known_form(form, PLANS_OUTPUTS)
    return list_plans(directory, form)
