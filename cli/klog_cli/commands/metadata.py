"""`klog metadata VERB`: the options of the verbs; those of `plan` are in `metadata_plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options, output
from klog_cli.commands.metadata_plan import plan

metadata = typer.Typer(
    help="Show what metadata logs say, and bring a quorum up again.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

SHOW_OUTPUTS = ("text", "json")
Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="A log dir with __cluster_metadata-0, that directory itself, or a copy.")
]


@metadata.command("show")
def show(
    directory: Directory,
    topic: Annotated[
        list[str] | None, typer.Option(help="Show only these topics, with their partitions (name or glob; repeatable).")
    ] = None,
    at: Annotated[
        int | None, typer.Option(metavar="OFFSET", min=0, help="As of the records below this offset.")
    ] = None,
    form: Annotated[str, typer.Option("--output", metavar="|".join(SHOW_OUTPUTS), help="Output form.")] = "text",
    quiet: options.Quiet = False,
) -> int:
    """Show the cluster as the metadata log of a node has it.

    Brokers, voters, features, topics, settings, quotas, ACLs and users with credentials; as of the log's end or of any
    offset.  Brokers have that log as well as controllers.  No secret is ever printed.  Exit code 4: the log is damaged.
    """
    from klog_cli.views.metadata.show import show as run

    output.Quiet.on = quiet
    options.known_form(form, SHOW_OUTPUTS)
    return run(directory, topic or (), at, form)


HISTORY_OUTPUTS = ("text", "jsonl")


@metadata.command("history")
def history(
    directory: Directory,
    partition: Annotated[
        str | None,
        typer.Option("--partition", metavar="T-P", help="Of this partition: who led, every move of the ISR."),
    ] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", metavar="N", help="Of this broker: its registrations, when it was fenced.")
    ] = None,
    quorum: Annotated[bool, typer.Option("--quorum", help="Of the quorum: who led, who could vote.")] = False,
    start: Annotated[
        int | None, typer.Option("--from", metavar="OFFSET", min=0, help="Only changes from this offset on.")
    ] = None,
    form: Annotated[str, typer.Option("--output", metavar="|".join(HISTORY_OUTPUTS), help="Output form.")] = "text",
    quiet: options.Quiet = False,
) -> int:
    """Show each change of a partition, a broker or the quorum.

    With its time, and with its reason where the records tell.  It begins with the log, or with what the oldest
    snapshot says where the log begins later.  A topic that was deleted and created again appears with both ids.
    """
    from klog_cli.views.metadata.history import history as run

    output.Quiet.on = quiet
    options.known_form(form, HISTORY_OUTPUTS)
    return run(directory, partition, broker, quorum, start or 0, form)


COMPARE_OUTPUTS = ("table", "json")


@metadata.command("compare")
def compare(
    directories: Annotated[
        list[str],
        typer.Argument(metavar="DIR...", help="Log dirs with a metadata log; N=DIR says that DIR is node N's."),
    ],
    cluster: options.Clusters = None,
    by_name: options.ByName = False,
    form: Annotated[str, typer.Option("--output", metavar="|".join(COMPARE_OUTPUTS), help="Output form.")] = "table",
    quiet: options.Quiet = False,
) -> int:
    """Show which node's metadata log is ahead, and where two fork.

    Exit code 4: two logs have different batches at an offset, or one is damaged.
    """
    from klog_cli.views.metadata.compare import compare as run

    output.Quiet.on = quiet
    options.known_form(form, COMPARE_OUTPUTS)
    return run(directories, options.identity_choice(cluster, (), by_name), form)


metadata.command("plan")(plan)
