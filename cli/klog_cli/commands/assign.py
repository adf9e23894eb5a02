"""`klog assign`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options, output

ASSIGN_OUTPUTS = ("table", "json", "reassignment")
ALGORITHMS = ("kraft", "classic")
MOST_STEPS = 100_000
"""A start or a shift counts brokers."""
MOST_PARTITIONS = 10_000_000


def assign(
    brokers: Annotated[
        str | None, typer.Option(metavar="ID,ID,...", help="The brokers to place on; instead of --from.")
    ] = None,
    racks: Annotated[
        str | None, typer.Option(metavar="ID:RACK,...", help="The racks of these brokers; the others have none.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="DIR", help="Brokers, racks and fencing of the metadata log in this log dir."),
    ] = None,
    partitions: Annotated[int | None, typer.Option(help="How many partitions to place.")] = None,
    replication: Annotated[int | None, typer.Option(help="How many replicas each has.")] = None,
    algorithm: Annotated[
        str,
        typer.Option(
            metavar="|".join(ALGORITHMS), help="The controller's placer, or that of ZooKeeper and of tools up to 3.9."
        ),
    ] = "kraft",
    seed: Annotated[
        int | None, typer.Option(help="Seed of java.util.Random, for kraft; default: one is drawn.")
    ] = None,
    start_index: Annotated[
        int | None, typer.Option(min=0, max=MOST_STEPS, help="Start, for classic; default: one is drawn.")
    ] = None,
    shift: Annotated[
        int | None, typer.Option(min=0, max=MOST_STEPS, help="Shift, for classic; default: the start that is given.")
    ] = None,
    start_partition: Annotated[
        int, typer.Option(min=0, max=MOST_PARTITIONS, help="Number of the first partition, where a topic grows.")
    ] = 0,
    fenced: Annotated[
        str | None, typer.Option(metavar="ID,ID,...|none", help="The brokers that are fenced; none: not one is.")
    ] = None,
    no_racks: Annotated[bool, typer.Option("--no-racks", help="Leave racks out of account.")] = False,
    topic: Annotated[
        list[str] | None, typer.Option(help="The topic's name; with --check the topics (name or glob; repeatable).")
    ] = None,
    check: Annotated[
        str | None, typer.Option(metavar="DIR", help="Check the topics of the metadata log in this log dir instead.")
    ] = None,
    form: Annotated[str, typer.Option("--output", metavar="|".join(ASSIGN_OUTPUTS), help="Output form.")] = "table",
    quiet: options.Quiet = False,
) -> int:
    """Show which brokers the partitions of a new topic would get, or check those that topics have.

    The controller draws at random: --seed makes it the same each time. Exit code 4, with --check: a partition has a
    broker twice, or is over fewer racks than it could be.
    """
    from klog_cli.views.assign import AssignRequest
    from klog_cli.views.assign import assign as run

    output.Quiet.on = quiet
    options.known_form(form, ASSIGN_OUTPUTS)
    options.known("--algorithm", algorithm, ALGORITHMS)
    if check is not None:
        from klog_cli.views.assign_check import check as run_check

        given = {"--brokers": brokers, "--from": source, "--partitions": partitions, "--replication": replication}
        return run_check(check, topic or (), [name for name, value in given.items() if value is not None], form)
    start = (start_index, shift, start_partition)
    return run(
        AssignRequest(
            brokers, racks, source, partitions, replication, algorithm, seed, *start, fenced, no_racks, topic or ()
        ),
        form,
    )
