"""`klog metadata VERB`: the options of the verbs; those of `plan` are in `metadata_plan`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from klog.base.errors import UsageError

from klog_cli import options
from klog_cli.command_class import CommandGroup
from klog_cli.commands.metadata_plan import plan
from klog_cli.units import parse_partition

metadata = typer.Typer(
    help="Show metadata logs; restart a quorum that lost voters.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=CommandGroup,
)

SHOW_OUTPUTS = ("text", "json")
Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="A log dir with __cluster_metadata-0, that directory itself, or a copy.")
]


@metadata.command("show")
def show(
    directory: Directory,
    topic: options.Topics = None,
    at: Annotated[
        int | None, typer.Option("--at-offset", metavar="N", min=0, help="As of the records below this offset.")
    ] = None,
    form: Annotated[str, options.output_form(SHOW_OUTPUTS)] = "text",
) -> int:
    """Show the cluster as the metadata log of a node has it.

    Brokers, voters, features, topics, settings, quotas, ACLs and users with credentials, as of the end of the log
    or of any offset. Brokers have this log, like controllers. klog never prints a secret. Exit code 4: the log is
    damaged.
    """
    from klog_cli.views.metadata.show import show as run

    options.known_form(form, SHOW_OUTPUTS)
    return run(directory, topic or (), at, form)


HISTORY_OUTPUTS = ("text", "json", "jsonl", "csv")


@metadata.command("history")
def history(
    directory: Directory,
    topic: Annotated[
        str | None, typer.Option("-t", "--topic", metavar="TOPIC", help="The topic of --partition.")
    ] = None,
    partition: Annotated[
        Any,
        typer.Option(
            "-p",
            "--partition",
            metavar="N|TOPIC-N",
            parser=parse_partition,
            help="The changes of this partition: leaders and the ISR.",
        ),
    ] = None,
    broker: Annotated[
        int | None, typer.Option("--broker", metavar="N", help="The changes of this broker: registrations and fencing.")
    ] = None,
    quorum: Annotated[bool, typer.Option("--quorum", help="The changes of the quorum: leaders and voters.")] = False,
    start: Annotated[
        int | None, typer.Option("--from-offset", metavar="N", min=0, help="Only changes from this offset on.")
    ] = None,
    form: Annotated[str, options.output_form(HISTORY_OUTPUTS)] = "text",
) -> int:
    """Show each change of a partition, a broker or the quorum.

    Each change has its time, and its reason if the records show it. The history begins with the log, or, if the log
    begins later, with the content of its oldest snapshot. A topic that was deleted and created again appears with
    both ids. Exit code 4: there is no such change, or the log is damaged.
    """
    from klog_cli.views.metadata.history import history as run

    options.known_form(form, HISTORY_OUTPUTS)
    if isinstance(partition, int):
        if topic is None:
            raise UsageError(
                f"--partition {partition}: of which topic? Give --topic TOPIC, or --partition TOPIC-{partition}"
            )
        partition = topic, partition
    return run(directory, partition, broker, quorum, start or 0, form)


COMPARE_OUTPUTS = ("text", "json")


@metadata.command("compare")
def compare(
    directories: Annotated[
        list[str],
        typer.Argument(metavar="DIR...", help="Log dirs with a metadata log; N=DIR: DIR belongs to node N."),
    ],
    cluster: options.Clusters = None,
    by_name: options.ByName = False,
    form: Annotated[str, options.output_form(COMPARE_OUTPUTS)] = "text",
) -> int:
    """Show which node's metadata log is ahead, and where two diverge.

    Exit code 4: two logs have different batches at an offset, or one is damaged.
    """
    from klog_cli.views.metadata.compare import compare as run

    options.known_form(form, COMPARE_OUTPUTS)
    return run(directories, options.identity_choice(cluster, (), by_name), form)


metadata.command("plan")(plan)
