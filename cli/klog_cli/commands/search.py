"""`klog search`: its options, and the query that they come to, also on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options
from klog_cli.units import parse_key

if TYPE_CHECKING:
    from klog.jobs.search import SearchQuery

Header = Annotated[
    str | None,
    typer.Option(metavar="NAME[=VALUE]", help="Only records with this header (a value may be hex:… or base64:…)."),
]
Regex = Annotated[str | None, typer.Option(metavar="REGEX", help="Only records whose value, as bytes, matches REGEX.")]


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
    limit: options.Limit = None,
    replicas: options.Replicas = "longest",
    cluster: options.Clusters = None,
    topic_id: options.TopicIds = None,
    by_name: options.ByName = False,
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
    jobs: options.Jobs = None,
) -> int:
    """Find records by key, header, pattern, offset or time.

    They are printed as the JSON lines of 'klog dump', ordered by topic, partition and offset. A record must meet all
    conditions.
    """
    from klog_cli.views.search import search as run

    query = search_query(
        paths, (key, keys_from), (header, regex), (from_offset, to_offset), (from_time, to_time), values, limit
    )
    query = query._replace(max_batch_bytes=options.batch_bytes(max_batch_bytes))
    level = options.known("--isolation", isolation, options.ISOLATIONS)
    choice = options.identity_choice(cluster, topic_id, by_name)
    found = options.selected_replicas(paths, topic, partition, replicas, choice)
    return run(found, query, level, options.on_threads(jobs))


def search_query(
    paths: Sequence[str] | None,
    keys: tuple[list[str] | None, str | None],
    content: tuple[str | None, str | None],
    offsets: tuple[int | None, int | None],
    times: tuple[str | None, str | None],
    values: str,
    limit: int | None,
) -> SearchQuery:
    """Return the query of a search: *keys* and a file of them, header and pattern, ranges, form of *values*, *limit*.

    Raises UsageError, also for a search without *paths*.
    """
    from klog.jobs.search import SearchQuery, compile_pattern
    from klog.kernel import VALUES
    from klog.log.json_lines import LineStyle

    from klog_cli.commands.dump import key_set, wanted_of

    if not paths:
        raise UsageError("nothing to search: name log dirs or partition directories")
    options.known("--values", values, VALUES)
    header, regex = content
    pattern = None if regex is None else regex.encode("utf-8", "surrogateescape")
    if pattern is not None:
        compile_pattern(pattern)  # a mistake in it is reported before anything starts
    wanted = wanted_of(offsets, times, key_set(*keys), True, limit, False)
    style = LineStyle(values=VALUES.index(values))
    return SearchQuery(wanted, None if header is None else _header(header), pattern, style)


def _header(text: str) -> tuple[bytes, bytes | None]:
    """Return the name and the value of a header; None for any value."""
    name, equals, value = text.partition("=")
    return name.encode("utf-8", "surrogateescape"), parse_key(value) if equals else None
