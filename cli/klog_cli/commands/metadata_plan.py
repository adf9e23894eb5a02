"""`klog metadata plan`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options

DIRECTORY_IDS = ("keep", "disks")

Voters = Annotated[
    str | None,
    typer.Option(metavar="ID@HOST:PORT,...", help="The new addresses of all voters of the quorum."),
]
DirectoryIds = Annotated[
    str,
    typer.Option(
        metavar="|".join(DIRECTORY_IDS),
        help="Directory ids: keep those in the log, or use those in the disks' meta.properties.",
    ),
]
OnlyBroker = Annotated[
    int | None, typer.Option("--only-broker", metavar="N", help="Let broker N own everything, and be the only voter.")
]
OnlyVoter = Annotated[
    int | None,
    typer.Option("--only-voter", metavar="N", help="Let node N be the only voter; brokers stay."),
]
Voter = Annotated[
    str | None,
    typer.Option("--voter", metavar="HOST:PORT", help="Address on which the controller of the only voter will listen."),
]
Keep = Annotated[
    str | None,
    typer.Option(metavar="newest|longest|kafka|N", help="The copy of a partition to use if copies diverge."),
]
Choose = Annotated[
    list[str] | None,
    typer.Option("--choose", metavar="T-P=N", help="For this partition use node N's copy (repeatable)."),
]
Repair = Annotated[bool, typer.Option("--repair", help="Replace bad batches with intact ones of other copies.")]
Without = Annotated[
    list[str] | None,
    typer.Option(
        "--without",
        metavar="N|ID",
        help="The disk of voter N, or the log dir with this directory.id, is lost (repeatable).",
    ),
]
Base = Annotated[
    int | None, typer.Option(metavar="N", help="Build on the metadata log of node N; default: the one that is ahead.")
]


def plan(
    disks: options.Disks,
    voters: Voters = None,
    directory_ids: DirectoryIds = "keep",
    only_broker: OnlyBroker = None,
    only_voter: OnlyVoter = None,
    voter: Voter = None,
    keep: Keep = None,
    choose: Choose = None,
    repair: Repair = False,
    without: Without = None,
    base: Base = None,
    apply: options.Apply = False,
    save: options.PlanTo = None,
    backup: options.BackupTo = None,
    cluster: options.Clusters = None,
    form: options.PlanOutput = "text",
) -> int:
    """Restart a quorum that has moved, or one node alone.

    Before anything is added, each metadata log is brought up to date with the most recent one. Nothing changes
    without --apply. klog starts no node; it prints the lines for server.properties. Exit code 4: no disk has some
    partitions.
    """
    from klog_cli.command_line import check_exclusive, plan_options
    from klog_cli.views.metadata.plan import QuorumRequest
    from klog_cli.views.metadata.plan import plan as run

    options.known_form(form, options.PLAN_OUTPUTS)
    options.known("--directory-ids", directory_ids, DIRECTORY_IDS)
    check_exclusive(apply, save)
    request = QuorumRequest(
        disks,
        voters,
        directory_ids == "disks",
        only_broker,
        only_voter,
        voter,
        keep,
        choose or (),
        repair,
        without or (),
        base,
        options.identity_choice(cluster, None),
    )
    return run(request, plan_options("metadata", apply, save, backup), form)
