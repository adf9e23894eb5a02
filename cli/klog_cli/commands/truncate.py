"""`klog truncate`: its options."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_duration, parse_now, parse_size, parse_time

CutTo = Annotated[int | None, typer.Option("--to-offset", metavar="N", help="First offset to drop.")]
CutToTimestamp = Annotated[
    str | None,
    typer.Option(
        "--to-timestamp",
        metavar="TIME",
        help="Drop everything from the first record with this timestamp or a later one.",
    ),
]
CutToLogStart = Annotated[bool, typer.Option("--to-log-start", help="Drop all records; the log start stays.")]


def truncate(
    path: options.PartitionPath,
    to_offset: CutTo = None,
    to_timestamp: CutToTimestamp = None,
    to_log_start: CutToLogStart = False,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    apply: options.Apply = False,
    plan: options.PlanTo = None,
    backup: options.BackupTo = None,
    index_interval: options.IndexInterval = None,
    producer_expiration: options.ProducerExpiration = "24h",
    now: options.Now = None,
    form: options.PlanOutput = "text",
) -> int:
    """Truncate a partition at an offset, as a follower would. Nothing changes without --apply.

    klog adjusts indexes, snapshots, epochs and checkpoints to the shorter log. If the offset is inside a batch, the
    complete batch is dropped.
    """
    from klog.data_dir.selection import PartitionQuery, open_path
    from klog.partition.truncate import TruncateOptions, TruncateTarget

    from klog_cli.command_line import check_exclusive, plan_options
    from klog_cli.views.truncate import truncate as run

    options.known_form(form, options.PLAN_OUTPUTS)
    open_path(path)
    if [to_offset is not None, to_timestamp is not None, to_log_start].count(True) != 1:
        raise UsageError("--to-offset, --to-timestamp, --to-log-start: exactly one of them")
    check_exclusive(apply, plan)
    at_ms = parse_time(to_timestamp, output.note) if to_timestamp is not None else None
    settings = TruncateOptions(parse_now(now, output.note), parse_duration(producer_expiration))
    interval = {} if index_interval is None else {"index.interval.bytes": str(parse_size(index_interval))}
    query = PartitionQuery([path], topic or (), partition or ())
    target = TruncateTarget(to_offset, at_ms)
    return run(query, target, settings, interval, plan_options("truncate", apply, plan, backup), form)
