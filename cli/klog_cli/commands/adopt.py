"""`klog adopt`: its options."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer

from klog_cli import options, output
from klog_cli.remote_options import Remote, RemoteKeys, RemoteLayout, TierArguments, over_tiers
from klog_cli.units import parse_time

EPOCHS = ("rewrite", "keep")
PRODUCERS = ("drop", "keep")
OPEN_TRANSACTIONS = ("abort", "refuse")


Sources = Annotated[
    list[str],
    typer.Argument(metavar="SOURCE...", help="Partition directories in any state, from any place, or log dirs."),
]
Into = Annotated[
    list[str], typer.Option("--to", metavar="LOG_DIR", help="Log dir of the broker that gets them (repeatable).")
]
Name = Annotated[
    str | None, typer.Option("--as", metavar="TOPIC-N", help="The partition that it becomes; default: its own name.")
]
Replace = Annotated[bool, typer.Option("--replace", help="Replace the partition's records; the backup keeps them.")]
Epochs = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(EPOCHS),
        help="Give all batches the partition's leader epoch (default if theirs are higher), or keep theirs.",
    ),
]
Producers = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(PRODUCERS),
        help="Drop the producers, or keep them; default: keep those with ids that this cluster has assigned.",
    ),
]
OpenTransactions = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(OPEN_TRANSACTIONS),
        help="Abort all open transactions, or refuse them; default: end those that no coordinator has in progress.",
    ),
]


def adopt(
    sources: Sources,
    into: Into,
    name: Name = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    remote: Remote = None,
    remote_layout: RemoteLayout = None,
    remote_keys: RemoteKeys = None,
    replace: Replace = False,
    epochs: Epochs = None,
    producers: Producers = None,
    open_transactions: OpenTransactions = None,
    now: options.Now = None,
    apply: options.Apply = False,
    plan: options.PlanTo = None,
    backup: options.BackupTo = None,
    jobs: options.Jobs = None,
    form: options.PlanOutput = "text",
) -> int:
    """Restore deleted, stray, recreated or foreign partitions.

    They get the topic id that the cluster has. The topic must exist, and its broker must be stopped. Sources are
    only read, and so are their segments in remote storage, with --remote. Nothing changes without --apply. Exit code
    4: some sources were refused; 8: all were.
    """
    from klog.commands.adopt.adopt import AdoptRequest
    from klog.commands.adopt.adopted_content import AdoptOptions

    from klog_cli.command_line import check_exclusive, plan_options
    from klog_cli.views.adopt import adopt as run

    options.known_form(form, options.PLAN_OUTPUTS)
    for option, given, choices in (
        ("--epochs", epochs, EPOCHS),
        ("--producers", producers, PRODUCERS),
        ("--open-transactions", open_transactions, OPEN_TRANSACTIONS),
    ):
        if given is not None:
            options.known(option, given, choices)
    check_exclusive(apply, plan)
    now_ms = parse_time(now, output.note) if now is not None else int(time.time() * 1000)
    wishes = AdoptOptions(now_ms, replace, epochs, producers, open_transactions, name, jobs or os.cpu_count() or 1)
    with over_tiers(sources, topic, partition, TierArguments(remote, remote_layout, remote_keys, None)) as found:
        request = AdoptRequest(sources, into, topic or (), partition or (), found.logs or {})
        return run(request, wishes, plan_options("adopt", apply, plan, backup), form)
