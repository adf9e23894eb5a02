"""`klog describe`: its options."""

from __future__ import annotations

from typing import Annotated

import typer

from klog_cli import options
from klog_cli.remote_options import reads_both_tiers

FORMS = ("text", "json", "jsonl", "csv")


@reads_both_tiers
def describe(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Log dirs, partition directories or files.")],
    topic: options.Topics = None,
    partition: options.Partitions = None,
    deep: Annotated[
        bool, typer.Option("--deep", help="Decompress batches whose headers do not give the number of records.")
    ] = False,
    form: Annotated[str, options.output_form(FORMS)] = "text",
) -> int:
    """Show the content of a log dir, a partition or a file.

    A log dir is listed by partition, a partition by segment; for a file klog shows the facts in its headers. With
    --remote, segments in remote storage are listed, too.
    """
    from klog_cli.views.describe import describe as run

    options.known_form(form, FORMS)
    return run(paths, topic or (), partition or (), deep, form)
