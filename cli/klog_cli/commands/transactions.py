"""`klog transactions`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options, output

FORMS = ("text", "json", "jsonl", "csv")
STATES = ("committed", "aborted", "open", "hanging")


def transactions(
    paths: options.Paths = None,
    state: Annotated[
        list[str] | None,
        typer.Option("--state", metavar="|".join(STATES), help="Only transactions in this state (repeatable)."),
    ] = None,
    transactional_id: Annotated[
        list[str] | None,
        typer.Option(
            "--transactional-id", metavar="NAME", help="Only transactions of this id (name or glob; repeatable)."
        ),
    ] = None,
    producer_id: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="N", help="Only transactions of this producer id (repeatable)."),
    ] = None,
    longer_than: Annotated[
        str | None,
        typer.Option("--longer-than", metavar="DURATION", help="Only transactions that lasted at least this long."),
    ] = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    now: options.Now = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    form: Annotated[str, options.output_form(FORMS)] = "text",
) -> int:
    """List transactions, and flag hanging ones.

    A transaction has the records of one producer between two of its markers, in all given partitions, with its
    transactional id and its coordinator's state from __transaction_state. For a hanging transaction klog prints the
    command that aborts it. Exit code 4: there is one, or no transaction is found; '--state hanging' alone is a
    check, and 0 if it finds none.
    """
    from klog.commands.transactions.transaction_details import TransactionQuery

    from klog_cli.units import parse_duration, parse_now
    from klog_cli.views.transactions import transactions as run

    options.known_form(form, FORMS)
    for one in state or ():
        options.known("--state", one, STATES)
    least = None if longer_than is None else parse_duration(longer_than)
    choice = options.identity_choice(cluster, topic_id, by_name)
    wanted = state or (), transactional_id or (), producer_id or (), least
    return run(
        paths or (), TransactionQuery(parse_now(now, output.note), *wanted, choice, topic or (), partition or ()), form
    )
