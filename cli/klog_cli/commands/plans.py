"""`klog plans`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options

PLANS_OUTPUTS = ("text", "json", "jsonl", "csv")
LogDirPath = Annotated[
    str | None,
    typer.Argument(metavar="DIR", help="A log dir, or a partition in it; default: the plans near this directory."),
]
PlansOutput = Annotated[str, options.output_form(PLANS_OUTPUTS)]


def plans(
    directory: LogDirPath = None,
    form: PlansOutput = "text",
) -> int:
    """List the plans made for a log dir, and their status.

    States: being planned, not begun, half done, applied, undone, used since (its directories have
    changed).

    Exit code 4: there is no plan.
    """
    from klog_cli.views.plans import list_plans

    options.known_form(form, PLANS_OUTPUTS)
    return list_plans(directory, form)
