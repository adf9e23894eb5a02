"""`klog records`: its options, and the request that they come to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, output
from klog_cli.commands.dump import key_set, wanted_of
from klog_cli.commands.search import Header, Regex, typed_keys, with_content
from klog_cli.remote_options import reads_both_tiers

if TYPE_CHECKING:
    from klog_cli.views.records.format_text import RecordFormat
    from klog_cli.views.records.records import RecordsQuery
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
    from klog_cli.views.records.records import RecordsQuery

    form = options.chosen_form(form, None, RECORDS_OUTPUTS, "text")
    committed = options.known("--isolation", isolation, options.ISOLATIONS) == "read_committed"
    looks = _looks(key_as, value_as, pretty, full)
    _check(form, follow, head, template, to_offset is not None or to_time is not None)
    keys = typed_keys(key, key_as)
    ranges = (from_offset, to_offset), (from_time, to_time)
    wanted = with_content(wanted_of(*ranges, key_set(keys, keys_from), False, None, False), header, regex)
    limit = limit or (None if wanted.in_range else _LAST)
    if not head and from_offset is None and from_time is None and limit is not None:
        wanted = wanted._replace(tail=True, limit=limit)
    most = options.batch_bytes(max_batch_bytes)
    request = DumpRequest("jsonl", wanted=wanted, committed=committed, max_batch_bytes=most)
    if not paths:
        raise UsageError("no records: name partition directories, log dirs or .log files")
    asked = PartitionQuery(paths, topic or (), partition or ())
    conditions = Conditions(wanted, key or (), keys_from, header, regex, committed)
    return _run(RecordsQuery(asked, request, limit, conditions), form, looks, template, follow)


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


def _run(query: RecordsQuery, form: str, looks: RowStyle, template: str | None, follow: bool) -> int:
    from klog_cli.views.records import records as view

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

    key, value = (None if one.form == "auto" else one for one in (looks.key, looks.value))
    return RecordFormat(template, key, value)
