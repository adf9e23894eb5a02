"""`klog lookup`: its options."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_time

LOOKUP_OUTPUTS = ("text", "json", "jsonl")
LookupPath = Annotated[
    str, typer.Argument(metavar="PARTITION", help="A partition directory, a .log in it, or a log dir narrowed to one.")
]
LookupOutput = Annotated[str, typer.Option("--output", metavar="|".join(LOOKUP_OUTPUTS), help="How to show it.")]
Offset = Annotated[int | None, typer.Option(help="Where is this offset?")]
Timestamp = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Which is the first record as late (epoch ms, ISO 8601, '2h ago')? With --batch, without a value: times.",
    ),
]
BatchFile = Annotated[
    str | None, typer.Option("--batch", metavar="FILE", help="Look up each number in FILE, one a line; -: stdin.")
]
PositionOnly = Annotated[bool, typer.Option("--position-only", help="Print just the position of the batch.")]


def lookup(
    path: LookupPath,
    offset: Offset = None,
    timestamp: Timestamp = None,
    batch: BatchFile = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    position_only: PositionOnly = False,
    form: LookupOutput = "text",
    quiet: options.Quiet = False,
) -> int:
    """Find an offset or a time as a broker does, and show how: segment, index, scan, batch, record.

    Where an index is missing or wrong the log is searched: the answer is right, and the trail says what was wrong.
    """
    from klog_cli.views.lookup import LookupArguments, look_up, look_up_many

    output.Quiet.on = quiet
    if form not in LOOKUP_OUTPUTS:
        from klog.data_dir.log_dir import near_misses

        known = LOOKUP_OUTPUTS
        raise UsageError(f"--output {form}: expected one of {', '.join(known)}{near_misses(form, known)}")
    if position_only and form != "text":
        raise UsageError("--position-only prints numbers: leave out --output")
    asked = LookupArguments(path, tuple(topic or ()), tuple(partition or ()), form, position_only)
    if batch is not None:
        if offset is not None or timestamp:
            raise UsageError("--batch FILE holds what is asked for: leave out --offset and the value of --timestamp")
        return look_up_many(asked, batch, by_time=timestamp is not None)
    if (offset is None) == (timestamp is None):
        from klog.data_dir.log_dir import open_path

        open_path(path)  # a path that is not there is the first thing to say
        raise UsageError("what is asked for? --offset N, --timestamp TIME or --batch FILE")
    target = offset if timestamp is None else parse_time(timestamp, output.note)
    assert target is not None
    return look_up(asked, target, by_time=timestamp is not None)
