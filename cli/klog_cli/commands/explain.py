"""`klog explain`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options

EXPLAIN_OUTPUTS = ("text", "json", "jsonl", "csv")
Ids = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="ID...", help="Ids that verify, audit, doctor or timeline print; default: list all.", show_default=False
    ),
]
ExplainOutput = Annotated[str, options.output_form(EXPLAIN_OUTPUTS)]


def explain(ids: Ids = None, form: ExplainOutput = "text") -> int:
    """Explain the id of a finding, a reason or an event.

    The explanation has its meaning, the reaction of a broker, and the remedy."""
    from klog_cli.views.explain import explain_ids

    options.known_form(form, EXPLAIN_OUTPUTS)
    return explain_ids(ids or [], form)
