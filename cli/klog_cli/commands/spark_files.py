"""`klog spark search`, `export`, `compact`: their options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from klog.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_key, parse_size, parse_time

if TYPE_CHECKING:
    from klog.jobs.output_files import Format
    from klog.transactions.isolation import Isolation as Level

ISOLATIONS: tuple[Level, ...] = ("read_uncommitted", "read_committed")
FILE_FORMATS: tuple[Format, ...] = ("parquet", "jsonl")
REPLICAS = ("longest", "leader-epoch", "all")
ExportFormat = Annotated[str, typer.Option("--format", metavar="|".join(FILE_FORMATS), help="Format of the files.")]
CompactFormat = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="|".join((*FILE_FORMATS, "log")),
        help="A table of the last values, or (log) compacted partitions.",
    ),
]
OutputPath = Annotated[
    str | None, typer.Option("--output-path", metavar="DIR", help="Directory to write to; new or empty.")
]
FileSize = Annotated[str, typer.Option(metavar="SIZE", help="Start a new file when one is larger than SIZE.")]
Replicas = Annotated[
    str, typer.Option(metavar="|".join(REPLICAS), help="Which replica to read when a partition is found several times.")
]
Header = Annotated[
    str | None,
    typer.Option(metavar="NAME[=VALUE]", help="Only records with this header (a value may be hex:… or base64:…)."),
]
Regex = Annotated[str | None, typer.Option(metavar="REGEX", help="Only records whose value, as bytes, matches REGEX.")]
RecordLimit = Annotated[int | None, typer.Option("--limit", min=1, help="At most N records.")]


def search(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    key: options.Key = None,
    keys_from: options.KeysFrom = None,
    header: Header = None,
    regex: Regex = None,
    from_offset: options.FromOffset = None,
    to_offset: options.ToOffset = None,
    from_time: options.FromTime = None,
    to_time: options.ToTime = None,
    isolation: options.Isolation = "read_uncommitted",
    values: options.Values = "text",
    limit: RecordLimit = None,
    replicas: Replicas = "longest",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    master: options.Master = None,
    conf: options.SparkConf = None,
    ship: options.Ship = "archive",
    quiet: options.Quiet = False,
) -> int:
    """Find records by key, header, pattern, offset or time.

    They are printed as the JSON lines of 'klog dump', ordered by topic, partition and offset. A record must meet all
    conditions.
    """
    from klog.jobs.search import SearchQuery, compiled
    from klog.kernel import VALUES
    from klog.log.json_lines import LineStyle

    from klog_cli.commands.dump import key_set, wanted_of
    from klog_cli.views.spark import Where
    from klog_cli.views.spark_files import FileSelection
    from klog_cli.views.spark_files import search as run

    output.Quiet.on = quiet
    if not paths:
        raise UsageError("nothing to search: name log dirs or partition directories")
    options.known("--values", values, VALUES)
    pattern = None if regex is None else regex.encode("utf-8", "surrogateescape")
    if pattern is not None:
        compiled(pattern)  # a mistake in it is reported before anything starts
    query = SearchQuery(
        wanted_of((from_offset, to_offset), (from_time, to_time), key_set(key, keys_from), True, limit, False),
        None if header is None else _header(header),
        pattern,
        LineStyle(values=VALUES.index(values)),
        options.batch_bytes(max_batch_bytes),
    )
    chosen = FileSelection(paths, topic or (), partition or (), options.known("--replicas", replicas, REPLICAS))
    where = Where(master, options.spark_settings(conf), ship)
    return run(chosen, query, options.known("--isolation", isolation, ISOLATIONS), where)


def _header(text: str) -> tuple[bytes, bytes | None]:
    """Return the name and the value of a header; None for any value."""
    name, equals, value = text.partition("=")
    return name.encode("utf-8", "surrogateescape"), parse_key(value) if equals else None


def export(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    to: OutputPath = None,
    form: ExportFormat = "parquet",
    from_offset: options.FromOffset = None,
    to_offset: options.ToOffset = None,
    from_time: options.FromTime = None,
    to_time: options.ToTime = None,
    isolation: options.Isolation = "read_uncommitted",
    replicas: Replicas = "longest",
    file_size: FileSize = "256MiB",
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    master: options.Master = None,
    conf: options.SparkConf = None,
    ship: options.Ship = "archive",
    quiet: options.Quiet = False,
) -> int:
    """Write all records as Parquet or JSON lines.

    Each topic and partition has a directory. Each record is written once, even if tasks are killed or run twice. The
    same command continues what a killed run left.
    """
    from klog.jobs.export import ExportOptions

    from klog_cli.commands.dump import wanted_of
    from klog_cli.views.spark import Where
    from klog_cli.views.spark_files import FileSelection
    from klog_cli.views.spark_files import export as run

    output.Quiet.on = quiet
    asked = ExportOptions(
        "",
        options.known("--format", form, FILE_FORMATS),
        wanted_of((from_offset, to_offset), (from_time, to_time), None, True, None, False),
        parse_size(file_size),
        options.batch_bytes(max_batch_bytes),
    )
    target = _target(paths, to)
    chosen = FileSelection(paths or (), topic or (), partition or (), options.known("--replicas", replicas, REPLICAS))
    where = Where(master, options.spark_settings(conf), ship)
    return run(chosen, target, asked, options.known("--isolation", isolation, ISOLATIONS), where)


def compact(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    to: OutputPath = None,
    form: CompactFormat = "parquet",
    replicas: Replicas = "longest",
    file_size: FileSize = "256MiB",
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
    from klog.compact.partition import CleanerOptions
    from klog.jobs.compact import CompactJobOptions
    from klog.jobs.export import ExportOptions
    from klog.log.record_filter import RecordFilter

    from klog_cli.commands.compact import settings
    from klog_cli.views import spark_files
    from klog_cli.views.spark import Where

    output.Quiet.on = quiet
    target, memory = _target(paths, to), parse_size(map_memory)
    chosen = spark_files.FileSelection(
        paths or (), topic or (), partition or (), options.known("--replicas", replicas, REPLICAS)
    )
    where = Where(master, options.spark_settings(conf), ship)
    of_log = settings(
        (policy, min_dirty_ratio),
        (delete_retention, min_lag, producer_expiration),
        (segment_size, index_size, index_interval),
    )
    if form == "log":
        now_ms = None if now is None else parse_time(now, output.note)
        wishes = CompactJobOptions("", now_ms, everything, CleanerOptions(memory))
        return spark_files.compact(chosen, metadata, of_log, wishes, target, where)
    if of_log or everything or metadata is not None or now is not None:
        raise UsageError("settings of a topic, --all, --metadata and --now go with --format log")
    batch_bytes = options.batch_bytes(max_batch_bytes)
    files = options.known("--format", form, FILE_FORMATS)
    asked = ExportOptions("", files, RecordFilter(), parse_size(file_size), batch_bytes, memory)
    return spark_files.latest(chosen, target, asked, where)


def _target(paths: list[str] | None, to: str | None) -> str:
    """Return where to write.  Raises UsageError."""
    if not paths:
        raise UsageError("nothing to read: name log dirs or partition directories")
    if to is None:
        raise UsageError("--output-path DIR says where to write")
    from klog.jobs.output import check_target

    check_target(to, paths)
    return to
