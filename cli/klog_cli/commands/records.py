"""`klog records`: its options, and the request that they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output, schema_options
from klog_cli.commands.dump import key_set, wanted_of
from klog_cli.commands.search import Header, Regex, typed_keys, with_content
from klog_cli.remote_options import reads_both_tiers

if TYPE_CHECKING:
    from klog.commands.dump.dump_request import DumpRequest
    from klog.data_dir.selection import PartitionQuery

    from klog_cli.views.nothing_found import Conditions
    from klog_cli.views.records.format_text import RecordFormat
    from klog_cli.views.records.text import RowStyle

RECORDS_OUTPUTS = ("text", "json", "jsonl", "csv")
_LAST = 10
RecordsOutput = Annotated[str | None, options.output_form(RECORDS_OUTPUTS)]
RecordsLimit = Annotated[
    int | None,
    typer.Option(
        *("-n", "--limit"),
        metavar="N",
        min=1,
        help="The last N records of each partition; with --head or a start of range the first N.",
    ),
]
Head = Annotated[bool, typer.Option("--head", help="The first records instead of the last ones.")]
Follow = Annotated[
    bool, typer.Option("-f", "--follow", help="Keep printing the records that a running broker appends, until ^C.")
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="Print each record so, with kcat's letters: %t topic, %p partition, %o offset, %k key, %v or %s value, %K"
        " and %S their lengths, %h headers, %T time in ms, %I time in ISO 8601, \\n.",
    ),
]
ValueAs = Annotated[
    str, typer.Option("--value-as", metavar="|".join(options.VALUE_FORMS), help="Form of values in text output.")
]
Pretty = Annotated[bool, typer.Option("--pretty", help="Indent values that are JSON.")]
Full = Annotated[bool, typer.Option("--full", help="Print long values in full; a pipe gets them so anyway.")]


@reads_both_tiers
def records(
    paths: options.Paths = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    limit: RecordsLimit = None,
    head: Head = False,
    follow: Follow = False,
    from_offset: options.FromOffset = None,
    to_offset: options.ToOffset = None,
    from_time: options.FromTime = None,
    to_time: options.ToTime = None,
    key: options.Key = None,
    keys_from: options.KeysFrom = None,
    key_as: options.KeyAs = "auto",
    header: Header = None,
    regex: Regex = None,
    isolation: options.Isolation = "read_uncommitted",
    template: Format = None,
    value_as: ValueAs = "auto",
    pretty: Pretty = False,
    full: Full = False,
    schemas: schema_options.Schemas = None,
    schemas_topic: schema_options.SchemasTopic = "_schemas",
    json_form: schema_options.JsonForm = "plain",
    decode: schema_options.Decode = "both",
    context: schema_options.Context = None,
    reader: schema_options.ReaderSchema = None,
    form: RecordsOutput = None,
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
) -> int:
    """Print the last records of each partition, or a range.

    It reads from the log end back, so the last records of a partition of any size cost little. The transaction of a
    record, control records and damage are shown in their places. Exit code 4: data is damaged, or there is no record.
    """
    from klog.commands.dump.dump_request import DumpRequest
    from klog.data_dir.selection import PartitionQuery

    from klog_cli.views.nothing_found import Conditions

    form = options.chosen_form(form, None, RECORDS_OUTPUTS, "text")
    committed = options.known("--isolation", isolation, options.ISOLATIONS) == "read_committed"
    named = _named_schemas(schemas, "schema" in (key_as, value_as), form)
    _check(form, follow, head, template, to_offset is not None or to_time is not None)
    keys = typed_keys(key, key_as)
    wanted = wanted_of((from_offset, to_offset), (from_time, to_time), key_set(keys, keys_from), False, None, False)
    wanted = with_content(wanted, header, regex)
    limit = limit or (None if wanted.in_range else _LAST)
    if not (head or from_offset is not None or from_time is not None or limit is None):
        wanted = wanted._replace(tail=True, limit=limit)
    if not paths:
        raise UsageError("no records: name partition directories, log dirs or .log files")
    by_itself = not named and form == "text" and template is None and output.is_terminal()
    style = schema_options.styles_at_hand(named, paths, (schemas_topic, json_form, decode, context), by_itself, reader)
    most = options.batch_bytes(max_batch_bytes)
    request = DumpRequest("jsonl", wanted=wanted, committed=committed, max_batch_bytes=most, schemas=style)
    asked = PartitionQuery(paths, topic or (), partition or ())
    conditions = Conditions(wanted, key or (), keys_from, header, regex, committed)
    code = _run((asked, request, limit, conditions), form, _looks(key_as, value_as, pretty, full), template, follow)
    return code | schema_options.tell_errors(style, is_failure=not by_itself)


def _named_schemas(schemas: list[str] | None, by_form: bool, form: str) -> list[str] | None:
    """Return the places of the schemas that are asked for, also *by_form* of keys or values.  Raises UsageError."""
    named = schemas or ([schema_options.AUTO] if by_form else None)
    if named:
        schema_options.check_schemas(form, "text", False, RECORDS_OUTPUTS)
    return named


def _looks(key_as: str, value_as: str, pretty: bool, full: bool) -> RowStyle:
    from klog_cli.typed_values import ValueStyle
    from klog_cli.views.records.text import RowStyle

    options.known("--value-as", value_as, options.VALUE_FORMS)
    columns = None if full else output.screen_columns()
    return RowStyle(ValueStyle(key_as), ValueStyle(value_as, pretty), columns)


def _check(form: str, follow: bool, head: bool, template: str | None, has_end: bool) -> None:
    if form != "text" and template is not None:
        raise UsageError(f"--output {form} has a form of its own: leave out --format")
    if form in ("json", "csv") and follow:
        raise UsageError(f"--output {form} has an end: with --follow, add --output jsonl")
    if follow and (head or has_end):
        raise UsageError("--follow goes on at the log end: leave out --head, --to-offset and --to-time")


def _run(
    asked: tuple[PartitionQuery, DumpRequest, int | None, Conditions],
    form: str,
    looks: RowStyle,
    template: str | None,
    follow: bool,
) -> int:
    from klog_cli.views.records import records as view

    query = view.RecordsQuery(*asked)
    if form == "text":
        return view.records(query, looks, _format(template, looks), follow=follow)
    if form == "json":
        return view.emit_json(query)
    if follow:
        return view.follow_lines(query)
    return view.emit_lines(query, is_csv=form == "csv")


def _format(template: str | None, looks: RowStyle) -> RecordFormat | None:
    if template is None:
        return None
    from klog_cli.views.records.format_text import RecordFormat

    return RecordFormat(template, looks.key, looks.value)
