"""`klog timeline`: its options."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.remote_options import reads_both_tiers
from klog_cli.units import parse_duration, parse_time

if TYPE_CHECKING:
    from klog.commands.timeline.timeline_event import EventFilter

FORMS = ("text", "json", "jsonl", "csv")


@reads_both_tiers
def timeline(
    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="Log dirs or partition directories, of one broker or of several."),
    ] = None,
    around: Annotated[str | None, typer.Option(metavar="TIME", help="Only events near this time.")] = None,
    window: Annotated[
        str, typer.Option(metavar="DURATION", help="Show events within this long before and after --around.")
    ] = "10m",
    from_time: options.FromTime = None,
    to_time: options.ToTime = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    group: Annotated[
        list[str] | None, typer.Option(metavar="GLOB", help="Only events of these groups (repeatable).")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(metavar="LIST", help="Only these kinds, separated by commas: txn-abort,damage.")
    ] = None,
    limit: options.Limit = None,
    form: Annotated[str, options.output_form(FORMS)] = "text",
    jobs: options.Jobs = None,
) -> int:
    """List the events of a cluster, in order, from brokers' disks.

    Brokers, topics and settings; leaders, segments, transactions, groups and producers; silences and damage. Each
    event names its clock. An event that is on several disks is listed once. With --remote, the events of a log are
    those of both tiers. Exit code 4: there is no such event, or data is damaged; '--kind damage' alone is a check, and
    0 if it finds none.
    """
    from klog_cli.views.timeline import timeline as run

    options.known_form(form, FORMS)
    if not paths:
        raise UsageError("no disk to tell of: name log dirs or partition directories")
    wanted = _wanted(around, window, from_time, to_time, kind)._replace(
        topics=topic or (), groups=group or (), numbers=partition or ()
    )
    return run(paths, wanted, limit, form, jobs or os.cpu_count() or 1)


def _wanted(
    around: str | None, window: str, from_time: str | None, to_time: str | None, kind: str | None
) -> EventFilter:
    """Raises UsageError."""
    from klog.commands.timeline.timeline_event import KINDS, EventFilter

    wanted = EventFilter()
    if around is not None:
        if from_time is not None or to_time is not None:
            raise UsageError("give --around or --from-time and --to-time")
        middle, width = parse_time(around, output.note), parse_duration(window)
        wanted = EventFilter(middle - width, middle + width + 1)
    if from_time is not None:
        wanted = wanted._replace(start=parse_time(from_time, output.note))
    if to_time is not None:
        wanted = wanted._replace(end=parse_time(to_time, output.note))
    if wanted.end <= wanted.start:
        raise UsageError(f"--to-time {to_time} is not after --from-time {from_time}")
    kinds = [name.strip() for name in (kind or "").split(",") if name.strip()]
    return wanted._replace(kinds=frozenset(options.known("--kind", name, KINDS) for name in kinds))
