"""`klog lookup`: its options."""

from __future__ import annotations

from klog.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_time


def lookup(
    path: options.LookupPath,
    offset: options.Offset = None,
    timestamp: options.Timestamp = None,
    batch: options.BatchFile = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    position_only: options.PositionOnly = False,
    form: options.LookupOutput = "text",
    quiet: options.Quiet = False,
) -> int:
    """Find an offset or a time as a broker does, and show how: segment, index, scan, batch, record.

    Where an index is missing or wrong the log is searched: the answer is right, and the trail says what was wrong.
    """
    from klog_cli.views.lookup import LookupArguments, look_up, look_up_many

    output.Quiet.on = quiet
    if form not in options.LOOKUP_OUTPUTS:
        from klog.data_dir.log_dir import near_misses

        known = options.LOOKUP_OUTPUTS
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
