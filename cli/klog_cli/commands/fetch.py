"""`klog fetch`: its options."""

from __future__ import annotations

from klog.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_size


def fetch(
    path: options.PartitionPath,
    offset: options.FetchOffset = None,
    max_bytes: options.FetchBytes = "1MiB",
    min_bytes: options.FetchMinBytes = "1",
    isolation: options.FetchIsolation = "read_uncommitted",
    partial: options.Partial = False,
    end: options.FetchEnd = "log",
    topic: options.Topics = None,
    partition: options.Partitions = None,
    form: options.FetchOutput = "text",
    quiet: options.Quiet = False,
) -> int:
    """Show what a consumer or a follower would be handed: which batches, and where its limits cut.

    As a broker on this log would: damage is handed out too, and said.
    """
    from klog.data_dir.log_dir import open_path

    from klog_cli.views.fetch import FetchArguments
    from klog_cli.views.fetch import fetch as run

    output.Quiet.on = quiet
    options.known_form(form, options.FETCH_OUTPUTS)
    open_path(path)  # a path that is not there is the first thing to say
    if offset is None:
        raise UsageError("from where on? --offset N")
    wanted = FetchArguments(
        offset,
        min(parse_size(max_bytes), 2**31 - 1),
        min(parse_size(min_bytes), 2**31 - 1),
        options.known("--isolation", isolation, options.FETCH_ISOLATIONS),
        partial,
        options.known("--end", end, options.FETCH_ENDS),
    )
    return run(path, topic or (), partition or (), wanted, form)
