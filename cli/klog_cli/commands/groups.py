"""`klog groups`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options, output

FORMS = ("text", "json", "csv")
TYPES = ("classic", "consumer", "share", "streams")


def groups(
    paths: options.Paths = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="NAME", help="Only these groups (name or glob; repeatable).")
    ] = None,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="As of TIME (epoch ms, ISO 8601, '2h ago').")
    ] = None,
    kind: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="|".join(TYPES), help="Only groups of this type (repeatable)."),
    ] = None,
    export: Annotated[
        str | None,
        typer.Option("--export", metavar="FILE", help="Write the offsets for 'kafka-consumer-groups --from-file'."),
    ] = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    form: Annotated[str, typer.Option("--output", metavar="|".join(FORMS), help="Output form.")] = "text",
    quiet: options.Quiet = False,
) -> int:
    """Show consumer and share groups: members, offsets, lag.

    Now, or as of any time that compaction has left; also what open transactions would commit. --export writes the
    offsets as 'kafka-consumer-groups --reset-offsets --from-file' reads them ('-': to standard output). Exit code 4:
    there is no such group, or no __consumer_offsets.
    """
    from klog.commands.groups.group_details import GroupQuery

    from klog_cli.units import parse_time
    from klog_cli.views.groups import groups as run

    output.Quiet.on = quiet
    options.known_form(form, FORMS)
    for one in kind or ():
        options.known("--type", one, TYPES)
    at_ms = None if at is None else parse_time(at, output.note)
    choice = options.identity_choice(cluster, topic_id, by_name)
    return run(paths or (), GroupQuery(group or (), kind or (), at_ms, choice), form, export)
