"""`klog space`: its options."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.remote_options import Remote, RemoteKeys, RemoteLayout, named_tier
from klog_cli.units import parse_now, parse_share, parse_size

FORMS = ("text", "json", "jsonl", "csv", "prometheus")
LEVELS = ("log-dir", "topic", "partition", "segment", "reason")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEFAULT_FRACTION = 0.01
ORDERS = ("bytes", "age", "name")

Sample = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE",
        help="Read this share of the data (0.05, 5%, 1/20; 1: all); also estimate what compaction would leave.",
    ),
]
Free = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Plan how to free SIZE without data that retention keeps.")
]


def space(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    by: Annotated[
        str | None, typer.Option(metavar="|".join(LEVELS), help="Depth of the tree of sizes (default: topic).")
    ] = None,
    sort: Annotated[
        str | None, typer.Option(metavar="|".join(ORDERS), help="Largest, oldest or alphabetically first.")
    ] = None,
    top_keys: Annotated[
        int, typer.Option(metavar="N", min=0, max=1000, help="The N most frequent keys of each partition.")
    ] = 0,
    codecs: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Size of the logs with other codecs: zstd,lz4,snappy,gzip."),
    ] = None,
    sample: Sample = None,
    free: Free = None,
    metadata: options.MetadataDir = None,
    config: options.ServerProperties = None,
    now: options.Now = None,
    form: Annotated[str, options.output_form(FORMS)] = "text",
    to: options.PrometheusTo = None,
    remote: Remote = None,
    remote_layout: RemoteLayout = None,
    remote_keys: RemoteKeys = None,
) -> int:
    """Show what uses a disk, why, and when it is deleted.

    klog reads file sizes, indexes and a few headers; nothing is changed. Settings of topics come from the metadata
    log, those of the broker from --server-properties, otherwise Kafka's defaults apply. --top-keys, --codecs and
    --free read a sample of the logs, one in a hundred without --sample. Exit code 4: --free cannot be met.
    """
    from klog.commands.space.disk_usage import ContentQuery, SpaceSettings
    from klog.data_dir.root_files import read_server_properties
    from klog.data_dir.selection import PartitionQuery

    from klog_cli.views.space.space import SpaceRequest
    from klog_cli.views.space.space import space as run

    options.known_form(form, FORMS)
    for option, given, known in (("--by", by, LEVELS), ("--sort", sort, ORDERS)):
        if given is not None:
            options.known(option, given, known)
    if not paths:
        raise UsageError("nothing to measure: name log dirs or partition directories")
    options.check_prometheus(form, to)
    settings = SpaceSettings({}, metadata, read_server_properties(config) if config is not None else {})
    query = PartitionQuery(paths, topic or (), partition or ())
    if form not in ("text", "json") and (top_keys, codecs, sample, free) != (0, None, None, None):
        raise UsageError("--top-keys, --codecs, --sample and --free go with --output text or json")
    share, size = None if sample is None else parse_share(sample), None if free is None else parse_size(free)
    whatif = ContentQuery(top_keys, _codecs(codecs), share or DEFAULT_FRACTION, share is not None, size)
    found = by, sort, to, whatif, named_tier(remote, remote_layout, remote_keys)
    return run(SpaceRequest(query, settings, parse_now(now, output.note), *found), form)


def _codecs(text: str | None) -> tuple[str, ...]:
    """Return the codecs of `--codecs`.  Raises UsageError."""
    names = [] if text is None else [name.strip() for name in text.split(",")]
    return tuple(options.known("--codecs", name, CODECS) for name in names)
