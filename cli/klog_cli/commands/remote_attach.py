"""`klog remote attach`: its options."""

from __future__ import annotations

import re
import time
from typing import Annotated, Final

import typer

from klog_cli import options, output
from klog_cli.remote_options import Remote, RemoteKeys, RemoteLayout

EPOCHS = ("keep",)
PRODUCERS = ("drop", "keep")
OPEN_TRANSACTIONS = ("abort", "refuse")
_SETTING: Final = re.compile(r"[a-z]+(\.[a-z]+)*")

Into = Annotated[
    list[str], typer.Option("--to", metavar="LOG_DIR", help="Log dir of the broker that gets them (repeatable).")
]
Lost = Annotated[
    list[str] | None,
    typer.Option("--from", metavar="LOG_DIR", help="Log dir of the lost cluster, which is only read (repeatable)."),
]
Name = Annotated[
    str | None,
    typer.Option("--as", metavar="NAME", help="Name of the topic, if the keys of its objects have a prefix in front."),
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A setting of a new topic (repeatable).")
]
Epochs = Annotated[
    str | None, typer.Option(metavar="rewrite|keep", help="Only keep: the objects keep their leader epochs.")
]
Producers = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(PRODUCERS), help="Drop the producers, or keep them; default: keep them within one cluster."
    ),
]
OpenTransactions = Annotated[
    str,
    typer.Option(
        metavar="|".join(OPEN_TRANSACTIONS), help="Transactions whose end was never copied: abort or refuse them."
    ),
]
Replace = Annotated[
    bool, typer.Option("--replace", help="Replace a topic of the name, or a local log; the backup keeps them.")
]
FromOffset = Annotated[
    int | None, typer.Option("--from-offset", metavar="N", min=0, help="Begin at offset N; default: the first one.")
]


def _pairs(given: list[str] | tuple[()]) -> dict[str, str]:
    """Return the settings in `NAME=VALUE`.  Raises UsageError."""
    from klog.base.errors import UsageError

    found = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or not _SETTING.fullmatch(name):
            raise UsageError(f"--set {one}: expected NAME=VALUE, such as retention.ms=604800000")
        found[name] = value
    return found


def attach(
    into: Into,
    tier: Remote = None,
    layout: RemoteLayout = None,
    keys: RemoteKeys = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    topic_id: options.TopicIds = None,
    name: Name = None,
    lost: Lost = None,
    settings: Settings = None,
    from_offset: FromOffset = None,
    epochs: Epochs = None,
    producers: Producers = None,
    open_transactions: OpenTransactions = "abort",
    replace: Replace = False,
    now: options.Now = None,
    apply: options.Apply = False,
    plan: options.PlanTo = None,
    backup: options.BackupTo = None,
    form: options.PlanOutput = "text",
) -> int:
    """Make a stopped broker see the segments in a TIER.

    The topic has the id that the objects have. The plan has the missing records of __remote_log_metadata, an empty
    local log behind the last segment, and the topic itself if the cluster does not have it. The TIER is only read, and
    nothing changes without --apply. Exit code 4: some partitions were refused; 8: all were.
    """
    from klog.base.errors import UsageError
    from klog.commands.remote.attach.attachment import AttachOptions, AttachRequest
    from klog.commands.remote.attach.wanted import Wish

    from klog_cli.command_line import check_exclusive, plan_options
    from klog_cli.units import parse_time
    from klog_cli.views.remote.attach import attach as run
    from klog_cli.views.remote.tier_option import tier_of

    options.known_form(form, options.PLAN_OUTPUTS)
    options.known("--open-transactions", open_transactions, OPEN_TRANSACTIONS)
    if producers is not None:
        options.known("--producers", producers, PRODUCERS)
    if epochs is not None:
        options.known("--epochs", epochs, EPOCHS)
    check_exclusive(apply, plan)
    opened = tier_of(tier, layout, keys or ())
    if opened is None:
        raise UsageError("name the place of the objects with --remote TIER")
    wish = Wish(tuple(topic or ()), tuple(partition or ()), tuple(topic_id or ()), name)
    wishes = AttachOptions(
        parse_time(now, output.note) if now is not None else int(time.time() * 1000),
        replace,
        producers,
        open_transactions,
        _pairs(settings or ()),
        from_offset,
    )
    request = AttachRequest(opened, into, tuple(lost or ()), wish)
    return run(request, wishes, plan_options("attach", apply, plan, backup), form)
