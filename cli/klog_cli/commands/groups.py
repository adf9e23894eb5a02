"""`klog groups`: its options."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output

FORMS = ("text", "json", "jsonl", "csv", "reset-offsets")
TYPES = ("classic", "consumer", "share", "streams")


def groups(
    paths: options.Paths = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME", help="Only these groups (name or glob; repeatable).")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at-time", metavar="TIME", help="As of TIME (epoch ms, ISO 8601, '2h ago').")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="|".join(TYPES), help="Only groups of this type (repeatable)."),
    ] = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="FILE", help="With --output reset-offsets: write to FILE; -: to standard output."),
    ] = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    form: Annotated[str, options.output_form(FORMS)] = "text",
) -> int:
    """Show consumer and share groups: members, offsets, lag.

    The groups are shown as of now or of an earlier time, with the offsets that open transactions would commit. The
    form reset-offsets is a file for 'kafka-consumer-groups --reset-offsets --from-file'. Exit code 4: there is no
    such group, or no __consumer_offsets.
    """
    from klog.commands.groups.group_details import GroupQuery

    from klog_cli.units import parse_time
    from klog_cli.views.groups import groups as run

    options.known_form(form, FORMS)
    if to is not None and form != "reset-offsets":
        raise UsageError("--to goes with --output reset-offsets; redirect other forms with > FILE")
    for one in kind or ():
        options.known("--type", one, TYPES)
    at_ms = None if at is None else parse_time(at, output.note)
    choice = options.identity_choice(cluster, topic_id, by_name)
    query = GroupQuery(group or (), kind or (), at_ms, choice, topic or (), partition or ())
    return run(paths or (), query, form, to)
