"""`klog export`: its options, and the export that they come to, also on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, schema_options
from klog_cli.remote_options import reads_both_tiers
from klog_cli.units import parse_size

if TYPE_CHECKING:
    from klog.jobs.export import ExportOptions

ExportFormat = Annotated[
    str, typer.Option("-o", "--output", metavar="|".join(options.FILE_FORMATS), help="Format of the files.")
]


@reads_both_tiers
def export(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    to: options.OutputPath = ...,  # type: ignore[assignment]  # Typer's way to say that it must be given
    form: ExportFormat = "parquet",
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
    jobs: options.Jobs = None,
) -> int:
    """Write all records as Parquet or JSON lines.

    Each topic and partition has a directory. Each record is written once, even if tasks are killed or run twice.
    The same command continues a killed run. Exit code 4: no record is in the range, or data is damaged.
    """
    from klog_cli.views.export import export as run

    asked = export_options(form, (from_offset, to_offset), (from_time, to_time), file_size, max_batch_bytes)
    target = output_directory(paths, to)
    level = options.known("--isolation", isolation, options.ISOLATIONS)
    choice = options.identity_choice(cluster, topic_id, by_name)
    found = options.selected_replicas(paths, topic, partition, replicas, choice)
    given = schemas_topic, json_form, decode, context
    by = schema_options.export_schemas(schemas, paths or (), given, reader, form)
    runner = options.on_threads(jobs) if by is None else options.in_processes(jobs)
    return run(found, target, asked._replace(schemas=by), level, runner)


def export_options(
    form: str,
    offsets: tuple[int | None, int | None],
    times: tuple[str | None, str | None],
    file_size: str,
    max_batch_bytes: str,
) -> ExportOptions:
    """Return which records are written, and how.  Raises UsageError."""
    from klog.jobs.export import ExportOptions

    from klog_cli.commands.dump import wanted_of

    return ExportOptions(
        "",
        options.known("--output", form, options.FILE_FORMATS),
        wanted_of(offsets, times, None, True, None, False),
        parse_size(file_size),
        options.batch_bytes(max_batch_bytes),
    )


def output_directory(paths: list[str] | None, to: str) -> str:
    """Return where to write.  Raises UsageError."""
    if not paths:
        raise UsageError("nothing to read: name log dirs or partition directories")
    from klog.jobs.output_commit import check_target

    check_target(to, paths)
    return to
