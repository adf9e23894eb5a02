"""`klog search`: its options, and the query that they come to, also on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, schema_options
from klog_cli.remote_options import reads_both_tiers
from klog_cli.units import parse_key

if TYPE_CHECKING:
    from klog.log.records import RecordFilter
    from klog.schemas.decoded_rows import SchemaStyle

    from klog_cli.views.search import SearchJob

FORMS = ("text", "json", "jsonl", "csv")
SearchOutput = Annotated[str, options.output_form(FORMS)]
Header = Annotated[
    str | None,
    typer.Option(metavar="NAME[=VALUE]", help="Only records with this header (a value may be hex:… or base64:…)."),
]
Regex = Annotated[str | None, typer.Option(metavar="REGEX", help="Only records whose value, as bytes, matches REGEX.")]
Where = Annotated[
    list[str] | None,
    typer.Option(
        metavar="EXPR",
        help="Only records whose decoded key or value fits, with --schemas: value.customer.id=42, key.id>=7,"
        " value.tags[]=vip; also != < <= > and ~ for a regular expression (repeatable).",
    ),
]


@reads_both_tiers
def search(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    key: options.Key = None,
    keys_from: options.KeysFrom = None,
    key_as: options.KeyAs = "auto",
    header: Header = None,
    regex: Regex = None,
    where: Where = None,
    from_offset: options.FromOffset = None,
    to_offset: options.ToOffset = None,
    from_time: options.FromTime = None,
    to_time: options.ToTime = None,
    isolation: options.Isolation = "read_uncommitted",
    form: SearchOutput = "text",
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
    jobs: options.Jobs = None,
) -> int:
    """Find records by key, header, pattern, offset or time.

    A line a record, ordered by topic, partition and offset, with the found part marked; json, jsonl and csv have the
    fields of 'klog dump'. A record must meet all conditions. Exit code 4: there is none, or data is damaged.
    """
    from klog_cli.views.search import search as run

    ranges = (from_offset, to_offset), (from_time, to_time)
    asked = search_job(paths, (key, keys_from), (header, regex), *ranges, isolation, (form, values), limit, key_as)
    asked = with_batch_bytes(asked, max_batch_bytes)
    if schemas:
        schema_options.check_schemas(form, values, False, FORMS)
    given = schemas_topic, json_form, decode, context
    asked = with_schemas(asked, schema_options.schema_style(schemas, paths or (), given, reader), where or ())
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
    key_as: str = "auto",
) -> SearchJob:
    """Return the search: *keys* and a file of them, header and pattern, ranges, *forms* of output and values, *limit*.

    Raises UsageError, also for a search without *paths*.
    """
    from klog.jobs.search import SearchQuery
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
    wanted = with_content(
        wanted_of(offsets, times, key_set(typed_keys(keys[0], key_as), keys[1]), True, limit, False), *content
    )
    style = LineStyle(csv=form == "csv", values=VALUES.index(values))
    query = SearchQuery(wanted, style, hits=form == "text")
    conditions = Conditions(wanted, keys[0] or (), keys[1], *content, level == "read_committed")
    return SearchJob(query, level, conditions, form)


def with_batch_bytes(job: SearchJob, text: str) -> SearchJob:
    """Return *job* with the largest batch that --max-batch-bytes allows.  Raises UsageError."""
    return job._replace(query=job.query._replace(max_batch_bytes=options.batch_bytes(text)))


def with_schemas(job: SearchJob, style: SchemaStyle | None, where: Sequence[str]) -> SearchJob:
    """Return *job* with decoded keys and values, and conditions on them.  Raises UsageError."""
    if style is None:
        if where:
            raise UsageError("--where looks at decoded keys and values: add --schemas auto, or --schemas PATH")
        return job
    from klog.schemas.field_condition import FieldCondition

    conditions = tuple(map(FieldCondition, where))
    for one in conditions:
        if one.side not in style.sides:
            raise UsageError(f"--where {one.text}: --decode {style.sides[0]} leaves out the {one.side}")
    words = job.conditions._replace(where=tuple(where))
    return job._replace(query=job.query._replace(schemas=style, where=conditions), conditions=words)


def with_content(wanted: RecordFilter, header: str | None, regex: str | None) -> RecordFilter:
    """Return *wanted* with the conditions of --header and --regex.  Raises UsageError."""
    if regex is not None:
        from klog.jobs.search import compile_pattern

        wanted = wanted._replace(pattern=compile_pattern(regex.encode("utf-8", "surrogateescape")))
    return wanted._replace(header=None if header is None else _header(header))


def typed_keys(keys: list[str] | None, form: str) -> list[str] | None:
    """Return the values of --key, which --key-as says the *form* of, as those of `parse_key`.  Raises UsageError."""
    options.known("--key-as", form, options.VALUE_FORMS)
    if keys is None or form in ("auto", "text", "json", "schema"):
        return keys
    from klog_cli.typed_values import key_bytes

    return [f"hex:{key_bytes(key, form).hex()}" for key in keys]


def _header(text: str) -> tuple[bytes, bytes | None]:
    """Return the name and the value of a header; None for any value."""
    name, equals, value = text.partition("=")
    return name.encode("utf-8", "surrogateescape"), parse_key(value) if equals else None
