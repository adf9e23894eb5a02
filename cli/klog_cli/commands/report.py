"""`klog report`: its options."""

from __future__ import annotations

import os
import time
from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.remote_options import Remote, RemoteKeys, RemoteLayout, named_tier
from klog_cli.units import parse_time

To = Annotated[str, typer.Option("--to", metavar="FILE.html", help="The page to write.")]
Redact = Annotated[bool, typer.Option("--redact", help="Leave out all names on the disk; topics become topic-1, ….")]
Title = Annotated[str | None, typer.Option(metavar="TEXT", help="Title of the page.")]
Now = Annotated[
    str | None, typer.Option(metavar="TIME", help="Use TIME as the current time, for example for due segments.")
]


def report(
    paths: options.Paths = None,
    to: To = ...,  # type: ignore[assignment]  # Typer's way to say that it must be given
    redact: Redact = False,
    deep: options.Deep = False,
    title: Title = None,
    now: Now = None,
    jobs: options.Jobs = None,
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    remote: Remote = None,
    remote_layout: RemoteLayout = None,
    remote_keys: RemoteKeys = None,
) -> int:
    """Write one HTML page about log dirs, for the ticket.

    It has the verdict, space, partitions, timeline, groups, transactions and findings. The page loads nothing from
    the network.
    """
    from klog.partition.verify.segment_pass import SurveyOptions

    from klog_cli.views.report import report as run

    if not paths:
        raise UsageError("nothing to report on: name log dirs or partition directories")
    now_ms = int(time.time() * 1000) if now is None else parse_time(now, output.note)
    request = SurveyOptions(deep, jobs or os.cpu_count() or 1, options.batch_bytes(max_batch_bytes))
    tier = named_tier(remote, remote_layout, remote_keys, in_order=True)
    return run(paths, to, request, title, now_ms, redact, tier)
