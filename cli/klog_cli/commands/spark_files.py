"""`klog spark compact`: its options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_size, parse_time

if TYPE_CHECKING:
    from klog.jobs.export import ExportOptions

CompactFormat = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="|".join((*options.FILE_FORMATS, "log")),
        help="A table of the last values, or (log) compacted partitions.",
    ),
]


def compact(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    to: options.OutputPath = None,
    form: CompactFormat = "parquet",
    replicas: options.Replicas = "longest",
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    file_size: options.FileSize = "256MiB",
    policy: options.Policy = None,
    metadata: options.MetadataDir = None,
    everything: options.Everything = False,
    min_dirty_ratio: options.MinDirtyRatio = None,
    delete_retention: options.DeleteRetention = None,
    min_lag: options.MinLag = None,
    segment_size: options.SegmentSize = None,
    index_size: options.IndexSize = None,
    index_interval: options.IndexInterval = None,
    map_memory: options.MapMemory = "48MiB",
    producer_expiration: options.MaybeExpiration = None,
    now: options.Now = None,
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    master: options.Master = None,
    conf: options.SparkConf = None,
    ship: options.Ship = "archive",
    quiet: options.Quiet = False,
) -> int:
    """Write the last value of each key as a table, or as a log.

    The table (Parquet or JSON lines) is what a read_committed consumer sees: no aborted data, no tombstones. --format
    log writes the compacted partitions of 'klog compact --to', and takes its options.
    """
    from klog.commands.compact.job import CompactJobOptions
    from klog.commands.compact.partition import CleanerOptions
    from klog.data_dir.selection import PartitionQuery

    from klog_cli.commands.compact import settings
    from klog_cli.commands.export import output_directory
    from klog_cli.views.spark import files as spark_files
    from klog_cli.views.spark.jobs import SparkEngine

    output.Quiet.on = quiet
    target, memory = output_directory(paths, to), parse_size(map_memory)
    options.known("--replicas", replicas, options.REPLICAS)
    choice = options.identity_choice(cluster, topic_id, by_name)
    where = SparkEngine(master, options.spark_settings(conf), ship)
    durations = delete_retention, min_lag, producer_expiration
    of_log = settings((policy, min_dirty_ratio), durations, (segment_size, index_size, index_interval))
    if form == "log":
        now_ms = None if now is None else parse_time(now, output.note)
        wishes = CompactJobOptions("", now_ms, everything, CleanerOptions(memory))
        query = PartitionQuery(paths or (), topic or (), partition or ())
        return spark_files.compact((query, choice), metadata, of_log, wishes, target, where)
    if of_log or everything or metadata is not None or now is not None:
        raise UsageError("settings of a topic, --all, --metadata and --now go with --format log")
    asked = _table(form, file_size, max_batch_bytes, memory)
    found = options.selected_replicas(paths, topic, partition, replicas, choice)
    return spark_files.latest(found, target, asked, where)


def _table(form: str, file_size: str, max_batch_bytes: str, memory: int) -> ExportOptions:
    """Return how the files of a table are written.  Raises UsageError."""
    from klog.jobs.export import ExportOptions
    from klog.log.record_filter import RecordFilter

    batch_bytes = options.batch_bytes(max_batch_bytes)
    files = options.known("--format", form, options.FILE_FORMATS)
    return ExportOptions("", files, RecordFilter(), parse_size(file_size), batch_bytes, memory)
