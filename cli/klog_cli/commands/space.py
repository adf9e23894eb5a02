"""`klog space`: its options."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.units import parse_now, parse_size

FORMS = ("text", "json", "jsonl", "csv", "prometheus")
LEVELS = ("log-dir", "topic", "partition", "segment", "reason")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
DEFAULT_FRACTION = 0.01
ORDERS = ("bytes", "age", "name")


def space(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    by: Annotated[str, typer.Option(metavar="|".join(LEVELS), help="How deep the tree of sizes goes.")] = "topic",
    sort: Annotated[
        str | None, typer.Option(metavar="|".join(ORDERS), help="Largest, oldest or alphabetically first.")
    ] = None,
    top_keys: Annotated[
        int, typer.Option(metavar="N", min=0, max=1000, help="The N most frequent keys of each partition.")
    ] = 0,
    codecs: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="How large logs would be with codecs: zstd,lz4,snappy,gzip."),
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(metavar="FRACTION", help="Read this part of the logs, 1: all; says what compaction leaves."),
    ] = None,
    free: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Plan how to free SIZE, keeping what retention keeps.")
    ] = None,
    metadata: options.MetadataDir = None,
    config: options.ServerProperties = None,
    now: options.Now = None,
    form: Annotated[str, typer.Option("--output", metavar="|".join(FORMS), help="Output form.")] = "text",
    to: options.PrometheusTo = None,
    quiet: options.Quiet = False,
) -> int:
    """Say what fills a disk, why it is there and when it goes.

    The answer comes from file sizes, indexes and a few headers; nothing is changed. Settings of topics come from the
    metadata log, the broker's from --config, else Kafka's defaults count. --top-keys, --codecs and --free read a sample
    of the logs, one in a hundred if --sample says nothing else. Exit code 4: --free cannot be met.
    """
    from klog.commands.space.disk_usage import ContentQuery, SpaceSettings
    from klog.data_dir.root_files import read_server_properties
    from klog.data_dir.selection import PartitionQuery

    from klog_cli.views.space.space import SpaceRequest
    from klog_cli.views.space.space import space as run

    output.Quiet.on = quiet
    options.known_form(form, FORMS)
    options.known("--by", by, LEVELS)
    if sort is not None:
        options.known("--sort", sort, ORDERS)
    if not paths:
        raise UsageError("nothing to measure: name log dirs or partition directories")
    options.check_prometheus(form, to)
    settings = SpaceSettings({}, metadata, read_server_properties(config) if config is not None else {})
    query = PartitionQuery(paths, topic or (), partition or ())
    if form not in ("text", "json") and (top_keys or codecs is not None or sample is not None or free is not None):
        raise UsageError("--top-keys, --codecs, --sample and --free go with --output text or json")
    whatif = ContentQuery(
        top_keys, _codecs(codecs), _fraction(sample), sample is not None, None if free is None else parse_size(free)
    )
    return run(SpaceRequest(query, settings, parse_now(now, output.note), by, sort, to, whatif), form)


def _codecs(text: str | None) -> tuple[str, ...]:
    """Return the codecs of `--codecs`.  Raises UsageError."""
    names = [] if text is None else [name.strip() for name in text.split(",")]
    return tuple(options.known("--codecs", name, CODECS) for name in names)


def _fraction(text: str | None) -> float:
    """Return the value of `--sample`: `0.05`, `5%`.  Raises UsageError."""
    if text is None:
        return DEFAULT_FRACTION
    try:
        fraction = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        fraction = 0.0
    if not 0 < fraction <= 1:
        raise UsageError(f"--sample {text}: expected a part of one, such as 0.05 or 5%")
    return fraction
