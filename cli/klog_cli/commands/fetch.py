"""`klog fetch`: its options."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options
from klog_cli.remote_options import Remote, RemoteKeys, RemoteLayout, TierArguments, over_tiers
from klog_cli.units import parse_size

FETCH_OUTPUTS = ("text", "json")
FETCH_ISOLATIONS = ("read_uncommitted", "read_committed", "log_end")
FetchPath = Annotated[
    str | None,
    typer.Argument(metavar="PARTITION", help="A partition directory, or a log dir with --topic and --partition."),
]
FetchOutput = Annotated[str, options.output_form(FETCH_OUTPUTS)]
FetchOffset = Annotated[int, typer.Option("--offset", metavar="N", help="Offset to fetch from.")]
FetchBytes = Annotated[
    str, typer.Option("--max-bytes", metavar="SIZE", help="At most SIZE bytes; the first batch is always included.")
]
FetchMinBytes = Annotated[
    str, typer.Option("--min-bytes", metavar="SIZE", help="Report when fewer than SIZE bytes are available.")
]
FetchIsolation = Annotated[
    str,
    typer.Option(
        "--isolation",
        metavar="|".join(FETCH_ISOLATIONS),
        help="Fetch as a consumer of either isolation level, or (log_end) as a follower.",
    ),
]
Partial = Annotated[bool, typer.Option("--partial", help="Truncate the last batch at --max-bytes, as a broker does.")]


def fetch(
    path: FetchPath = None,
    offset: FetchOffset = ...,  # type: ignore[assignment]  # Typer's way to say that it must be given
    max_bytes: FetchBytes = "1MiB",
    min_bytes: FetchMinBytes = "1",
    isolation: FetchIsolation = "read_uncommitted",
    partial: Partial = False,
    end: options.FetchEnd = "log",
    topic: options.Topics = None,
    partition: options.Partitions = None,
    form: FetchOutput = "text",
    remote: Remote = None,
    remote_layout: RemoteLayout = None,
    remote_keys: RemoteKeys = None,
) -> int:
    """Show which batches a consumer or a follower would receive.

    klog applies the limits as a broker does. Like a broker, it includes damaged batches, and reports them.
    """
    from klog.data_dir.selection import open_path

    from klog_cli.views.fetch import FetchArguments
    from klog_cli.views.fetch import fetch as run

    options.known_form(form, FETCH_OUTPUTS)
    if path is not None:
        open_path(path)  # a missing path is reported first
    elif remote is None:
        raise UsageError("Missing argument 'PARTITION'.")
    wanted = FetchArguments(
        offset,
        min(parse_size(max_bytes), 2**31 - 1),
        min(parse_size(min_bytes), 2**31 - 1),
        options.known("--isolation", isolation, FETCH_ISOLATIONS),
        partial,
        options.known("--end", end, options.FETCH_ENDS),
    )
    given = TierArguments(remote, remote_layout, remote_keys, None)
    with over_tiers([path] if path else [], topic, partition, given) as tiers:
        return tiers.code | run(tiers.only, topic or (), partition or (), wanted, form, tiers.logs)
