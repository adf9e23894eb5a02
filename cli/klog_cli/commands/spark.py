"""`klog spark VERB`: the options of the verbs."""

from __future__ import annotations

from inspect import getdoc
from typing import TYPE_CHECKING, Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output, schema_options
from klog_cli.command_class import CommandGroup
from klog_cli.commands import audit as audit_options
from klog_cli.commands import export as export_command
from klog_cli.commands import search as search_command
from klog_cli.commands import stats as stats_command
from klog_cli.commands import verify as verify_command
from klog_cli.remote_options import Remote, RemoteKeys, RemoteLayout, reads_both_tiers
from klog_cli.units import parse_size, parse_time

if TYPE_CHECKING:
    from klog.jobs.export import ExportOptions

spark = typer.Typer(
    help="Run these jobs on Spark, over many data dirs.",
    no_args_is_help=True,
    rich_markup_mode=None,
    cls=CommandGroup,
)


@spark.command("verify")
def verify(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    deep: options.Deep = False,
    everything: options.AllFindings = False,
    form: options.VerifyOutput = "text",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    master: options.Master = None,
    conf: options.SparkConf = None,
    ship: options.Ship = "archive",
    remote: Remote = None,
    remote_layout: RemoteLayout = None,
    remote_keys: RemoteKeys = None,
) -> int:
    """Check partitions as 'klog verify' does.

    The findings and the exit code are the same.
    """
    from klog.data_dir.selection import PartitionQuery
    from klog.partition.verify.segment_pass import SurveyOptions

    from klog_cli.views.verify import verify as run

    options.known_form(form, options.VERIFY_OUTPUTS)
    if not paths:
        raise UsageError("nothing to verify: name log dirs or partition directories")
    request = SurveyOptions(deep, 1, options.batch_bytes(max_batch_bytes))
    runner = options.on_spark("klog verify", master, conf, ship)
    query = PartitionQuery(paths, topic or (), partition or ())
    then = verify_command.behind(verify_command.RemoteOptions(remote, remote_layout, remote_keys), query, request, form)
    return run(*query, request, None, form, runner, everything=everything, then=then)


@spark.command("audit")
def audit(
    paths: options.Paths = None,
    others: audit_options.With = None,
    deep: audit_options.Deep = False,
    least: audit_options.Confidence = "possible",
    memory: audit_options.Memory = "256MiB",
    topic: options.Topics = None,
    partition: options.Partitions = None,
    internal: audit_options.Internal = False,
    form: audit_options.MisroutedOutput = "text",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    master: options.Master = None,
    conf: options.SparkConf = None,
    ship: options.Ship = "archive",
) -> int:
    """Find misrouted batches as 'klog audit misrouted' does.

    The rows and the exit code are the same.
    """
    from klog_cli.views.audit import misrouted as run

    query, request = audit_options.misrouted_request(
        (paths, others, topic, partition, internal), deep, least, form, max_batch_bytes
    )
    runner = options.on_spark("klog audit", master, conf, ship)
    return run(query, request, form, runner, parse_size(memory), note=len)


@spark.command("stats", help=getdoc(stats_command.stats))
@reads_both_tiers
def stats(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    form: stats_command.StatsOutput = "text",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    master: options.Master = None,
    conf: options.SparkConf = None,
    ship: options.Ship = "archive",
) -> int:
    """Count records as 'klog stats' does."""
    from klog_cli.views.stats import stats as run

    runner = options.on_spark("klog stats", master, conf, ship)
    query = stats_command.stats_query(form, paths, topic, partition)
    choice = options.identity_choice(cluster, topic_id)
    return run(query, choice, options.batch_bytes(max_batch_bytes), form, runner)


@spark.command("search", help=getdoc(search_command.search))
@reads_both_tiers
def search(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    key: options.Key = None,
    keys_from: options.KeysFrom = None,
    header: search_command.Header = None,
    regex: search_command.Regex = None,
    from_offset: options.FromOffset = None,
    to_offset: options.ToOffset = None,
    from_time: options.FromTime = None,
    to_time: options.ToTime = None,
    isolation: options.Isolation = "read_uncommitted",
    where: search_command.Where = None,
    form: search_command.SearchOutput = "text",
    values: options.Values = "text",
    limit: options.Limit = None,
    schemas: schema_options.Schemas = None,
    schemas_topic: schema_options.SchemasTopic = "_schemas",
    json_form: schema_options.JsonForm = "plain",
    decode: schema_options.Decode = "both",
    context: schema_options.Context = None,
    reader: schema_options.ReaderSchema = None,
    replicas: options.Replicas = "longest",
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    master: options.Master = None,
    conf: options.SparkConf = None,
    ship: options.Ship = "archive",
) -> int:
    """Find records as 'klog search' does."""
    from klog_cli.views.search import search as run

    runner = options.on_spark("klog search", master, conf, ship)
    ranges = (from_offset, to_offset), (from_time, to_time)
    asked = search_command.search_job(
        paths, (key, keys_from), (header, regex), *ranges, isolation, (form, values), limit
    )
    asked = search_command.with_batch_bytes(asked, max_batch_bytes)
    if schemas:
        schema_options.check_schemas(form, values, False, search_command.FORMS)
    given = schemas_topic, json_form, decode, context
    asked = search_command.with_schemas(
        asked, schema_options.schema_style(schemas, paths or (), given, reader), where or ()
    )
    choice = options.identity_choice(cluster, topic_id, by_name)
    found = options.selected_replicas(paths, topic, partition, replicas, choice)
    return run(found, asked, runner)


@spark.command("export", help=getdoc(export_command.export))
@reads_both_tiers
def export(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    to: options.OutputPath = ...,  # type: ignore[assignment]  # Typer's way to say that it must be given
    form: export_command.ExportFormat = "parquet",
    from_offset: options.FromOffset = None,
    to_offset: options.ToOffset = None,
    from_time: options.FromTime = None,
    to_time: options.ToTime = None,
    isolation: options.Isolation = "read_uncommitted",
    replicas: options.Replicas = "longest",
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    file_size: options.FileSize = "256MiB",
    schemas: schema_options.Schemas = None,
    schemas_topic: schema_options.SchemasTopic = "_schemas",
    json_form: schema_options.JsonForm = "plain",
    decode: schema_options.Decode = "both",
    context: schema_options.Context = None,
    reader: schema_options.ReaderSchema = None,
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    master: options.Master = None,
    conf: options.SparkConf = None,
    ship: options.Ship = "archive",
) -> int:
    """Write records as 'klog export' does."""
    from klog_cli.views.export import export as run

    runner = options.on_spark("klog export", master, conf, ship)
    offsets, times = (from_offset, to_offset), (from_time, to_time)
    asked = export_command.export_options(form, offsets, times, file_size, max_batch_bytes)
    target = export_command.output_directory(paths, to)
    level = options.known("--isolation", isolation, options.ISOLATIONS)
    choice = options.identity_choice(cluster, topic_id, by_name)
    found = options.selected_replicas(paths, topic, partition, replicas, choice)
    given = schemas_topic, json_form, decode, context
    by = schema_options.export_schemas(schemas, paths or (), given, reader, form)
    return run(found, target, asked._replace(schemas=by), level, runner)


CompactFormat = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="|".join((*options.FILE_FORMATS, "log")),
        help="A table of the last values, or (log) compacted partitions.",
    ),
]


@spark.command("compact")
@reads_both_tiers
def compact(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    to: options.OutputPath = ...,  # type: ignore[assignment]  # Typer's way to say that it must be given
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
) -> int:
    """Write the last value of each key as a table, or as a log.

    The table (Parquet or JSON lines) has the records that a read_committed consumer receives: no aborted data, no
    tombstones. --output log writes the compacted partitions of 'klog compact --to', and takes its options, but not
    --remote: no broker compacts a topic in remote storage.
    """
    from klog.commands.compact.job import CompactJobOptions
    from klog.commands.compact.log_cleaner import CleanerOptions
    from klog.data_dir.selection import PartitionQuery

    from klog_cli.commands.compact import settings
    from klog_cli.views.compact.compact import compact_on_spark
    from klog_cli.views.export import latest

    target, memory = export_command.output_directory(paths, to), parse_size(map_memory)
    options.known("--replicas", replicas, options.REPLICAS)
    choice = options.identity_choice(cluster, topic_id, by_name)
    runner = options.on_spark("klog compact", master, conf, ship)
    durations = delete_retention, min_lag, producer_expiration
    of_log = settings((policy, min_dirty_ratio), durations, (segment_size, index_size, index_interval))
    if form == "log":
        _check_local()
        now_ms = None if now is None else parse_time(now, output.note)
        wishes = CompactJobOptions("", now_ms, everything, CleanerOptions(memory))
        query = PartitionQuery(paths or (), topic or (), partition or ())
        return compact_on_spark((query, choice), metadata, of_log, wishes, target, runner)
    if of_log or everything or metadata is not None or now is not None:
        raise UsageError("settings of a topic, --all, --metadata and --now go with --output log")
    asked = _table(form, file_size, max_batch_bytes, memory)
    found = options.selected_replicas(paths, topic, partition, replicas, choice)
    return latest(found, target, asked, runner)


def _check_local() -> None:
    """Raise UsageError if a tier is read: a compacted log is for brokers, which compact no topic in remote storage."""
    from klog.partition.tiered.mounts import tier_words

    if tier_words():
        raise UsageError(
            "--output log and --remote: no broker compacts a topic in remote storage; klog remote fetch --to DIR"
            " makes one log of both tiers, and klog spark compact DIR --policy compact --output log compacts that"
        )


def _table(form: str, file_size: str, max_batch_bytes: str, memory: int) -> ExportOptions:
    """Return how the files of a table are written.  Raises UsageError."""
    from klog.jobs.export import ExportOptions
    from klog.log.records import RecordFilter

    batch_bytes = options.batch_bytes(max_batch_bytes)
    files = options.known("--output", form, options.FILE_FORMATS)
    return ExportOptions("", files, RecordFilter(), parse_size(file_size), batch_bytes, memory)
