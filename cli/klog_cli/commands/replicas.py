"""`klog replicas VERB`: the options of the verbs."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from klog_cli import options
from klog_cli.command_class import CommandGroup

replicas = typer.Typer(
    help="Compare brokers' copies of partitions, and make them equal.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=CommandGroup,
)

DIFF_OUTPUTS = ("text", "json", "jsonl", "csv")
Metadata = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="Log dir with the metadata log; default: the best one among the disks."),
]


@replicas.command("diff")
def diff(
    disks: options.Disks,
    metadata: Metadata = None,
    up: Annotated[
        str | None,
        typer.Option(metavar="ORDER", help="Show the result of a start order: '3 then 1,2'."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Use this setting instead of the topic's (repeatable)."),
    ] = None,
    deep: Annotated[bool, typer.Option("--deep", help="Compare the bytes of batches that look equal, too.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="List partitions whose copies are equal, too.")] = False,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    jobs: options.Jobs = None,
    form: Annotated[str, options.output_form(DIFF_OUTPUTS)] = "text",
) -> int:
    """Show how copies differ, who would lead, what that would cost.

    Nothing is changed, and no broker has to run. Exit code 4: records would be lost, or copies differ.
    """
    from klog_cli.views.replicas.diff import DiffRequest
    from klog_cli.views.replicas.diff import diff as run

    options.known_form(form, DIFF_OUTPUTS)
    choice = options.identity_choice(cluster, topic_id, by_name)
    request = DiffRequest(
        disks,
        metadata,
        up,
        settings or (),
        deep,
        topic or (),
        partition or (),
        choice,
        jobs or os.cpu_count() or 1,
        everything,
    )
    return run(request, form)


@replicas.command("plan")
def plan(
    disks: options.Disks,
    keep: Annotated[
        str | None, typer.Option(metavar="newest|longest|kafka|N", help="The copy to keep if copies diverge.")
    ] = None,
    choose: Annotated[
        list[str] | None,
        typer.Option("--choose", metavar="T-P=N", help="For this partition keep node N's copy (repeatable)."),
    ] = None,
    without: Annotated[
        list[str] | None,
        typer.Option(
            "--without", metavar="N|ID", help="Node N, or the log dir with this directory.id, will not return."
        ),
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Replace bad batches with intact ones of other copies.")
    ] = False,
    metadata: Metadata = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    apply: options.Apply = False,
    save: options.PlanTo = None,
    backup: options.BackupTo = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    jobs: options.Jobs = None,
    form: options.PlanOutput = "text",
) -> int:
    """Make all copies of a partition equal, or leave it unchanged. Nothing changes without --apply.

    klog completes copies that lack records. If copies diverge, it changes nothing until --keep or --choose selects
    one. Exit code 4: a partition was left.
    """
    from klog_cli.command_line import check_exclusive, plan_options
    from klog_cli.views.replicas.plan import CopyRequest
    from klog_cli.views.replicas.plan import plan as run

    options.known_form(form, options.PLAN_OUTPUTS)
    check_exclusive(apply, save)
    choice = options.identity_choice(cluster, topic_id, by_name)
    request = CopyRequest(
        disks,
        keep,
        choose or (),
        without or (),
        repair,
        metadata,
        topic or (),
        partition or (),
        choice,
        jobs or os.cpu_count() or 1,
    )
    return run(request, plan_options("replicas", apply, save, backup), form)


@replicas.command("rescue")
def rescue(
    disks: options.Disks,
    to: Annotated[str, typer.Option("--to", metavar="FILE", help="File for the records, as JSON lines; - for stdout.")],
    if_leads: Annotated[
        int | None, typer.Option("--if-leads", metavar="N", help="Write the records that would be lost if node N led.")
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option("--plan", metavar="FILE", help="Write the records that a plan of 'klog replicas plan' removes."),
    ] = None,
    choose: Annotated[
        list[str] | None,
        typer.Option("--choose", metavar="T-P=N", help="For this partition assume that node N leads (repeatable)."),
    ] = None,
    metadata: Metadata = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
) -> int:
    """Save the records that would be lost if one replica led.

    Each record has the nodes that hold it, and whether it was committed. If two copies differ at one offset, klog
    writes both records. klog does not publish them again; that is up to you.
    """
    from klog_cli.views.replicas.rescue import RescueRequest
    from klog_cli.views.replicas.rescue import rescue as run

    choice = options.identity_choice(cluster, topic_id, by_name)
    return run(RescueRequest(disks, to, if_leads, plan, choose or (), metadata, topic or (), partition or (), choice))


SIMULATE_OUTPUTS = ("text", "json", "jsonl", "csv")


@replicas.command("simulate")
def simulate(
    events: Annotated[
        str,
        typer.Argument(metavar="FILE", help="Replicas, settings and events as JSON (docs/replicas.md); - for stdin."),
    ],
    form: Annotated[str, options.output_form(SIMULATE_OUTPUTS)] = "text",
) -> int:
    """Simulate replication step by step, a row for each event.

    Appends, fetches, lost answers, crashes and elections move log ends, high watermarks and the ISR as in brokers.
    Exit code 4: a leader lacks records that were acknowledged to acks=all.
    """
    from klog_cli.views.replicas.simulate import simulate as run

    options.known_form(form, SIMULATE_OUTPUTS)
    return run(events, form)
