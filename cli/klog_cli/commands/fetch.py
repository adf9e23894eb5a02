"""`klog fetch`: its options."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_size

FETCH_OUTPUTS = ("text", "json")
FETCH_ISOLATIONS = ("read_uncommitted", "read_committed", "log_end")
FetchOutput = Annotated[str, typer.Option("--output", metavar="|".join(FETCH_OUTPUTS), help="How to show it.")]
FetchOffset = Annotated[int | None, typer.Option("--offset", help="From which offset on.")]
FetchBytes = Annotated[
    str, typer.Option("--max-bytes", metavar="SIZE", help="At most so much; the first batch always.")
]
FetchMinBytes = Annotated[str, typer.Option("--min-bytes", metavar="SIZE", help="Say so when there is less.")]
FetchIsolation = Annotated[
    str,
    typer.Option(
        "--isolation", metavar="|".join(FETCH_ISOLATIONS), help="Who asks: a consumer of either kind, or a follower."
    ),
]
Partial = Annotated[bool, typer.Option("--partial", help="Cut the last batch at the limit, as a broker does.")]


def fetch(
    path: options.PartitionPath,
    offset: FetchOffset = None,
    max_bytes: FetchBytes = "1MiB",
    min_bytes: FetchMinBytes = "1",
    isolation: FetchIsolation = "read_uncommitted",
    partial: Partial = False,
    end: options.FetchEnd = "log",
    topic: options.Topics = None,
    partition: options.Partitions = None,
    form: FetchOutput = "text",
    quiet: options.Quiet = False,
) -> int:
    """Show what a consumer or a follower would be handed: which batches, and where its limits cut.

    As a broker on this log would: damage is handed out too, and said.
    """
    from klog.data_dir.log_dir import open_path

    from klog_cli.views.fetch import FetchArguments
    from klog_cli.views.fetch import fetch as run

    output.Quiet.on = quiet
    options.known_form(form, FETCH_OUTPUTS)
    open_path(path)  # a path that is not there is the first thing to say
    if offset is None:
        raise UsageError("from where on? --offset N")
    wanted = FetchArguments(
        offset,
        min(parse_size(max_bytes), 2**31 - 1),
        min(parse_size(min_bytes), 2**31 - 1),
        options.known("--isolation", isolation, FETCH_ISOLATIONS),
        partial,
        options.known("--end", end, options.FETCH_ENDS),
    )
    return run(path, topic or (), partition or (), wanted, form)
