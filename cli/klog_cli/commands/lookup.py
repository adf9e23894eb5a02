"""`klog lookup`: its options."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.remote_options import Remote, RemoteKeys, RemoteLayout, TierArguments, TierPart, over_tiers
from klog_cli.units import parse_time

LOOKUP_OUTPUTS = ("text", "json", "jsonl")
LookupPath = Annotated[
    str | None,
    typer.Argument(
        metavar="PARTITION", help="A partition directory, a .log in it, or a log dir with --topic and --partition."
    ),
]
LookupOutput = Annotated[str, options.output_form(LOOKUP_OUTPUTS)]
Offset = Annotated[int | None, typer.Option(metavar="N", help="Find this offset.")]
Timestamp = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Find the first record with this timestamp or a later one (epoch ms, ISO 8601, '2h ago'). With --batch,"
        " give no value: FILE then lists timestamps.",
    ),
]
BatchFile = Annotated[
    str | None, typer.Option("--batch", metavar="FILE", help="Look up each number in FILE (one per line; - for stdin).")
]
PositionOnly = Annotated[bool, typer.Option("--position-only", help="Print only the position of the batch.")]


def lookup(
    path: LookupPath = None,
    offset: Offset = None,
    timestamp: Timestamp = None,
    batch: BatchFile = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    position_only: PositionOnly = False,
    form: LookupOutput = "text",
    remote: Remote = None,
    remote_layout: RemoteLayout = None,
    remote_keys: RemoteKeys = None,
    tier: TierPart = None,
) -> int:
    """Find an offset or a timestamp the way a broker does.

    klog shows each step: segment, index entry, scan, batch, record. If an index is missing or wrong, it searches
    the log itself: the answer is right, and the output names the fault.
    """
    from klog_cli.views.lookup.lookup import LookupArguments, look_up, look_up_many

    options.known_form(form, LOOKUP_OUTPUTS)
    if position_only and form != "text":
        raise UsageError("--position-only prints numbers: leave out --output")
    if path is None and remote is None:
        raise UsageError("Missing argument 'PARTITION'.")
    if batch is not None:
        if offset is not None or timestamp:
            raise UsageError(
                "--batch FILE contains the offsets or timestamps: leave out --offset and the value of --timestamp"
            )
    elif (offset is None) == (timestamp is None):
        from klog.data_dir.selection import open_path

        if path is not None:
            open_path(path)  # a missing path is reported first
        raise UsageError("--offset N, --timestamp TIME, --batch FILE: exactly one of them")
    target = offset if not timestamp else parse_time(timestamp, output.note)
    with over_tiers(
        [path] if path else [], topic, partition, TierArguments(remote, remote_layout, remote_keys, tier)
    ) as tiers:
        where = tiers.only, tuple(topic or ()), tuple(partition or ())
        asked = LookupArguments(*where, form, position_only, tiers.logs)
        if batch is not None:
            return look_up_many(asked, batch, by_time=timestamp is not None)
        assert target is not None
        return look_up(asked, target, by_time=timestamp is not None)
