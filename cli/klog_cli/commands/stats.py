"""`klog stats`, also on Spark: its options."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.engines import Engine, local

STATS_OUTPUTS = ("text", "table", "json", "jsonl")
StatsOutput = Annotated[str, typer.Option("--output", metavar="|".join(STATS_OUTPUTS), help="Output form.")]


def count(
    engine: Engine,
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    form: StatsOutput = "text",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    quiet: options.Quiet = False,
) -> int:
    """Count records, bytes, keys and codecs of each partition.

    Also time ranges, nulls, the largest records and the most frequent keys. The number of distinct keys is estimated by
    HyperLogLog, to within about a percent. Each directory is counted by itself, whatever it is a copy of.
    """
    from klog.data_dir.selection import PartitionQuery

    from klog_cli.views.stats import stats as run

    output.Quiet.on = quiet
    options.known_form(form, STATS_OUTPUTS)
    if not paths:
        raise UsageError("nothing to count: name log dirs or partition directories")
    query = PartitionQuery(paths, topic or (), partition or ())
    choice = options.identity_choice(cluster, topic_id)
    return run(query, choice, options.batch_bytes(max_batch_bytes), form, engine)


stats = local(count)
