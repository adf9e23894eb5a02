"""`klog search`: its options, and the query that they come to, also on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options
from klog_cli.units import parse_key

if TYPE_CHECKING:
    from klog_cli.views.search import SearchJob

FORMS = ("text", "json", "jsonl", "csv")
SearchOutput = Annotated[str, options.output_form(FORMS)]
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
    form: SearchOutput = "text",
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

    A line a record, ordered by topic, partition and offset, with the found part marked; json, jsonl and csv have the
    fields of 'klog dump'. A record must meet all conditions. Exit code 4: there is none, or data is damaged.
    """
    from klog_cli.views.search import search as run

    ranges = (from_offset, to_offset), (from_time, to_time)
    asked = search_job(paths, (key, keys_from), (header, regex), *ranges, isolation, (form, values), limit)
    asked = with_batch_bytes(asked, max_batch_bytes)
    choice = options.identity_choice(cluster, topic_id, by_name)
    found = options.selected_replicas(paths, topic, partition, replicas, choice)
    return run(found, asked, options.on_threads(jobs))


def search_job(
    paths: Sequence[str] | None,
    keys: tuple[list[str] | None, str | None],
    content: tuple[str | None, str | None],
    offsets: tuple[int | None, int | None],
    times: tuple[str | None, str | None],
    isolation: str,
    forms: tuple[str, str],
    limit: int | None,
) -> SearchJob:
    """Return the search: *keys* and a file of them, header and pattern, ranges, *forms* of output and values, *limit*.

    Raises UsageError, also for a search without *paths*.
    """
    from klog.jobs.search import SearchQuery, compile_pattern
    from klog.kernel import VALUES
    from klog.log.json_lines import LineStyle

    from klog_cli.commands.dump import key_set, wanted_of
    from klog_cli.views.nothing_found import Conditions
    from klog_cli.views.search import SearchJob

    if not paths:
        raise UsageError("nothing to search: name log dirs or partition directories")
    form, values = forms
    options.known_form(form, FORMS)
    options.known("--values", values, VALUES)
    level = options.known("--isolation", isolation, options.ISOLATIONS)
    header, regex = content
    pattern = None if regex is None else regex.encode("utf-8", "surrogateescape")
    if pattern is not None:
        compile_pattern(pattern)  # a mistake in it is reported before anything starts
    wanted = wanted_of(offsets, times, key_set(*keys), True, limit, False)
    style = LineStyle(csv=form == "csv", values=VALUES.index(values))
    query = SearchQuery(wanted, None if header is None else _header(header), pattern, style, hits=form == "text")
    conditions = Conditions(wanted, keys[0] or (), keys[1], header, regex, level == "read_committed")
    return SearchJob(query, level, conditions, form)


def with_batch_bytes(job: SearchJob, text: str) -> SearchJob:
    """Return *job* with the largest batch that --max-batch-bytes allows.  Raises UsageError."""
    return job._replace(query=job.query._replace(max_batch_bytes=options.batch_bytes(text)))


def _header(text: str) -> tuple[bytes, bytes | None]:
    """Return the name and the value of a header; None for any value."""
    name, equals, value = text.partition("=")
    return name.encode("utf-8", "surrogateescape"), parse_key(value) if equals else None
