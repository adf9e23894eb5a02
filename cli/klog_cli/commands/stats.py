"""`klog stats`: its options, and the query that they come to, also on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from klog.base.errors import UsageError

from klog_cli import options
from klog_cli.remote_options import reads_both_tiers

if TYPE_CHECKING:
    from klog.data_dir.selection import PartitionChoice, PartitionQuery

STATS_OUTPUTS = ("text", "json", "jsonl", "csv")
StatsOutput = Annotated[str, options.output_form(STATS_OUTPUTS)]


@reads_both_tiers
def stats(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    form: StatsOutput = "text",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    jobs: options.Jobs = None,
) -> int:
    """Count records, bytes, keys and codecs of each partition.

    The output also has time ranges, nulls, the largest records and the most frequent keys. The number of distinct
    keys is estimated by HyperLogLog, to within about a percent. Each directory is counted by itself, even if it is
    a copy of another.
    """
    from klog_cli.views.stats import stats as run

    query = stats_query(form, paths, topic, partition)
    choice = options.identity_choice(cluster, topic_id)
    return run(query, choice, options.batch_bytes(max_batch_bytes), form, options.on_threads(jobs))


def stats_query(
    form: str, paths: Sequence[str] | None, topics: Sequence[str] | None, numbers: Sequence[PartitionChoice] | None
) -> PartitionQuery:
    """Return what is to be counted.  Raises UsageError, also for a *form* of output that there is not."""
    from klog.data_dir.selection import PartitionQuery

    options.known_form(form, STATS_OUTPUTS)
    if not paths:
        raise UsageError("nothing to count: name log dirs or partition directories")
    return PartitionQuery(paths, topics or (), numbers or ())
