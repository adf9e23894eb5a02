"""`klog search`, also on Spark: its options."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.engines import Engine, local
from klog_cli.units import parse_key

Header = Annotated[
    str | None,
    typer.Option(metavar="NAME[=VALUE]", help="Only records with this header (a value may be hex:… or base64:…)."),
]
Regex = Annotated[str | None, typer.Option(metavar="REGEX", help="Only records whose value, as bytes, matches REGEX.")]
RecordLimit = Annotated[int | None, typer.Option("--limit", min=1, help="At most N records.")]


def find(
    engine: Engine,
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
    replicas: options.Replicas = "longest",
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    quiet: options.Quiet = False,
) -> int:
    """Find records by key, header, pattern, offset or time.

    They are printed as the JSON lines of 'klog dump', ordered by topic, partition and offset. A record must meet all
    conditions.
    """
    from klog.jobs.search import SearchQuery, compile_pattern
    from klog.kernel import VALUES
    from klog.log.json_lines import LineStyle

    from klog_cli.commands.dump import key_set, wanted_of
    from klog_cli.views.search import search as run

    output.Quiet.on = quiet
    if not paths:
        raise UsageError("nothing to search: name log dirs or partition directories")
    options.known("--values", values, VALUES)
    pattern = None if regex is None else regex.encode("utf-8", "surrogateescape")
    if pattern is not None:
        compile_pattern(pattern)  # a mistake in it is reported before anything starts
    query = SearchQuery(
        wanted_of((from_offset, to_offset), (from_time, to_time), key_set(key, keys_from), True, limit, False),
        None if header is None else _header(header),
        pattern,
        LineStyle(values=VALUES.index(values)),
        options.batch_bytes(max_batch_bytes),
    )
    level = options.known("--isolation", isolation, options.ISOLATIONS)
    choice = options.identity_choice(cluster, topic_id, by_name)
    found = options.selected_replicas(paths, topic, partition, replicas, choice)
    return run(found, query, level, engine)


def _header(text: str) -> tuple[bytes, bytes | None]:
    """Return the name and the value of a header; None for any value."""
    name, equals, value = text.partition("=")
    return name.encode("utf-8", "surrogateescape"), parse_key(value) if equals else None


search = local(find)
