"""`klog dump`: its options, and the request to klog.commands.dump."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from io import BufferedReader
from typing import TYPE_CHECKING, Annotated

import typer
from klog.base.errors import ExitCode, UsageError
from klog.formats.java_integers import LONG_MAX, LONG_MIN

from klog_cli import options, output, schema_options
from klog_cli.input_lines import input_lines
from klog_cli.remote_options import reads_both_tiers
from klog_cli.units import parse_key, parse_size, parse_time

if TYPE_CHECKING:
    from klog.commands.dump.dump_request import Decoder, DumpRequest, DumpTarget, LogStyle
    from klog.data_dir.selection import PartitionChoice, PartitionQuery
    from klog.kernel import KeySet
    from klog.log.json_lines import LineStyle
    from klog.log.records import RecordFilter

DECODERS = ("offsets", "transactions", "cluster_metadata", "remote_log_metadata", "share_group_state")


_LONGEST_KEY = 16 << 20
_MOST_KEYS_BYTES = 512 << 20
_BYTES_OF_A_KEY = 100  # in memory, beside its own

DUMP_OUTPUTS = ("text", "jsonl", "csv", "parquet")
Files = Annotated[
    str | None, typer.Option(metavar="FILE,FILE,...", help="Files, separated by commas, as for Kafka's tool.")
]
DumpOutput = Annotated[
    str | None,
    typer.Option(
        "-o", "--output", metavar="|".join(DUMP_OUTPUTS), help="Form of the output; text: as Kafka's dump tool."
    ),
]
To = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="Write to FILE, which appears only when it is complete; default: stdout."),
]
DeepIteration = Annotated[bool, typer.Option("--deep-iteration", help="Print records, not only batches (text).")]
PrintDataLog = Annotated[bool, typer.Option("--print-data-log", help="Print records with keys and values (text).")]
SkipRecordMetadata = Annotated[
    bool, typer.Option("--skip-record-metadata", help="Print records without their metadata (text).")
]
VerifyIndexOnly = Annotated[
    bool, typer.Option("--verify-index-only", help="Compare indexes with the log instead of listing them.")
]
IndexSanityCheck = Annotated[
    bool, typer.Option("--index-sanity-check", help="Only the sanity check that a broker makes on an index.")
]
MaxBytes = Annotated[str | None, typer.Option(metavar="SIZE", help="Read at most SIZE bytes of each log.")]
MaxMessageSize = Annotated[
    str, typer.Option(metavar="SIZE", help="Bytes to read from each index entry when checking it.")
]
OffsetsDecoder = Annotated[bool, typer.Option("--offsets-decoder", help="Decode __consumer_offsets.")]
TransactionLogDecoder = Annotated[bool, typer.Option("--transaction-log-decoder", help="Decode __transaction_state.")]
ClusterMetadataDecoder = Annotated[bool, typer.Option("--cluster-metadata-decoder", help="Decode __cluster_metadata.")]
RemoteLogMetadataDecoder = Annotated[
    bool, typer.Option("--remote-log-metadata-decoder", help="Decode __remote_log_metadata.")
]
ShareGroupStateDecoder = Annotated[
    bool, typer.Option("--share-group-state-decoder", help="Decode __share_group_state.")
]
WithIndexes = Annotated[
    bool, typer.Option("--with-indexes", help="When PATH is a directory, also dump its index and snapshot files.")
]
As = Annotated[
    str | None,
    typer.Option(
        "--as", metavar="log|index|timeindex|txnindex|snapshot", help="Kind of a file whose name does not show it."
    ),
]
Limit = Annotated[
    int | None,
    typer.Option(
        "-n",
        "--limit",
        metavar="N",
        min=1,
        help="The first N records (batches with --batches); with --tail the last N of each partition.",
    ),
]
Tail = Annotated[
    bool,
    typer.Option(
        "--tail", help="Only the newest batches of each partition (from the last index entry on); see --limit."
    ),
]
NoControl = Annotated[bool, typer.Option("--no-control", help="Omit control records.")]
Batches = Annotated[bool, typer.Option("--batches", help="Print one row per batch instead of per record.")]
BatchOffsets = Annotated[bool, typer.Option("--batch-offsets", help="Add to each record the base offset of its batch.")]


@reads_both_tiers
def dump(
    paths: options.Paths = None,
    files: Files = None,
    topic: options.Topics = None,
    partition: options.Partitions = None,
    form: DumpOutput = None,
    to: To = None,
    deep_iteration: DeepIteration = False,
    print_data_log: PrintDataLog = False,
    skip_record_metadata: SkipRecordMetadata = False,
    verify_index_only: VerifyIndexOnly = False,
    index_sanity_check: IndexSanityCheck = False,
    max_bytes: MaxBytes = None,
    max_message_size: MaxMessageSize = "5242880",
    offsets: OffsetsDecoder = False,
    transactions: TransactionLogDecoder = False,
    cluster_metadata: ClusterMetadataDecoder = False,
    remote_log_metadata: RemoteLogMetadataDecoder = False,
    share_group_state: ShareGroupStateDecoder = False,
    with_indexes: WithIndexes = False,
    kind: As = None,
    from_offset: options.FromOffset = None,
    to_offset: options.ToOffset = None,
    from_time: options.FromTime = None,
    to_time: options.ToTime = None,
    key: options.Key = None,
    keys_from: options.KeysFrom = None,
    limit: Limit = None,
    isolation: options.Isolation = "read_uncommitted",
    tail: Tail = False,
    no_control: NoControl = False,
    batches: Batches = False,
    batch_offsets: BatchOffsets = False,
    values: options.Values = "text",
    schemas: schema_options.Schemas = None,
    schemas_topic: schema_options.SchemasTopic = "_schemas",
    json_form: schema_options.JsonForm = "plain",
    decode: schema_options.Decode = "both",
    context: schema_options.Context = None,
    reader: schema_options.ReaderSchema = None,
    jobs: options.Jobs = None,
    max_batch_bytes: options.MaxBatchBytes = "128MiB",
) -> int:
    """Print any Kafka file as Kafka's dump tool does, or as data.

    Damage does not end the dump. Exit code 4: data is damaged or does not decode, or no record meets the conditions.
    """
    from klog.commands.dump.dump_request import DumpRequest, IndexStyle

    decoder = _decoder(offsets, transactions, cluster_metadata, remote_log_metadata, share_group_state)
    form = _checked_form((form, to), kind, isolation, values, batches, batch_offsets, decoder, bool(schemas))
    log_style = _log_style(deep_iteration, print_data_log, skip_record_metadata, batches, decoder)
    index_style = IndexStyle(index_sanity_check, verify_index_only, parse_size(max_message_size))
    styles = (log_style, index_style, _line_style(form, batches, values, batch_offsets, bool(schemas)))
    wanted = wanted_of((from_offset, to_offset), (from_time, to_time), key_set(key, keys_from), no_control, limit, tail)
    most, most_of_batch, threads = _limits(max_bytes, max_batch_bytes, jobs)
    asked = _inputs((files, paths), topic, partition, form, to)
    by = schema_options.schema_style(schemas, asked.paths, (schemas_topic, json_form, decode, context), reader, form)
    request = DumpRequest(form, *styles, wanted, isolation == "read_committed", most, most_of_batch, threads, kind, by)
    return _dump(asked, (key or (), keys_from), with_indexes, request, to)


def _limits(max_bytes: str | None, max_batch_bytes: str, jobs: int | None) -> tuple[int, int, int]:
    """Return the most bytes of a log, those of a batch, and the number of threads."""
    from klog.commands.dump.dump_request import ALL_BYTES

    most = ALL_BYTES if max_bytes is None else parse_size(max_bytes)
    return most, min(parse_size(max_batch_bytes), ALL_BYTES), jobs or os.cpu_count() or 1


def _line_style(form: str, batches: bool, values: str, batch_offsets: bool, is_decoded: bool) -> LineStyle:
    from klog.base.overlays import OVERLAYS
    from klog.kernel import VALUES
    from klog.log.json_lines import LineStyle

    return LineStyle(form == "csv", batches, VALUES.index(values), batch_offsets, bool(OVERLAYS), is_decoded)


def _inputs(
    what: tuple[str | None, list[str] | None],
    topics: list[str] | None,
    numbers: list[PartitionChoice] | None,
    form: str,
    to: str | None,
) -> PartitionQuery:
    """Return what is to be dumped.  Raises UsageError if that is nothing, or cannot be written *to* that place."""
    from klog.data_dir.selection import PartitionQuery

    files, others = what
    paths = [*(files.rstrip(",").split(",") if files else ()), *(others or ())]
    if not paths:
        raise UsageError("nothing to dump: name files, partition directories or log dirs")
    if to is not None:
        _check_to(to, paths)
    elif form == "parquet" and output.is_terminal():
        raise UsageError("Parquet cannot be printed on a terminal: --to FILE")
    return PartitionQuery(paths, topics or (), numbers or ())


def _check_to(to: str, paths: Sequence[str]) -> None:
    """Raise UsageError if the output cannot be written there."""
    from klog.base.read_only import is_missing
    from klog.data_dir.disk.refused_outputs import check_output

    _spare_inputs(to, paths)
    check_output(to, paths)
    if all(map(is_missing, paths)):
        # The output of an earlier run is kept.
        raise UsageError(f"{paths[0]}: no such file")


def _dump(
    asked: PartitionQuery,
    keys: tuple[Sequence[str], str | None],
    with_indexes: bool,
    request: DumpRequest,
    to: str | None,
) -> int:
    from klog.log.records import RecordFilter

    code, found = _print_rows(asked, with_indexes, request, to)
    # An isolation level and a limit are ways to read, no search: an empty log is no failure.
    has_filter = request.wanted._replace(controls=True, limit=None) != RecordFilter()
    if found or not has_filter or code & ~ExitCode.PROBLEMS_LEFT:
        return code
    from klog_cli.views.nothing_found import Conditions, nothing_in

    noun = "record" if request.is_of_records else "batch"
    return code | nothing_in(asked, Conditions(request.wanted, *keys, is_committed=request.committed, noun=noun))


def _print_rows(asked: PartitionQuery, with_indexes: bool, request: DumpRequest, to: str | None) -> tuple[int, bool]:
    """Return the exit code, and whether there was a row."""
    from klog.commands.dump.dump_files import dump_lines, dump_text
    from klog.commands.dump.dump_request import CSV, PARQUET, TEXT, expand
    from klog.log.records import RecordLimit

    rows = RecordLimit(request.limit)

    def targets() -> Iterator[DumpTarget]:
        every = expand(*asked, with_indexes, request.wanted)
        if not request.wanted.tail:
            return every
        from klog.commands.dump.newest_rows import newest

        return newest(every, request)

    with output.Results(to) as results:
        results.measure(lambda: sum(map(_size, targets())))
        if request.output == TEXT:
            return dump_text(targets(), request, results, rows), rows.found
        if request.output == PARQUET:
            from klog.commands.dump.dump_files import dump_parquet

            code = dump_parquet(targets(), request, results, results.descriptor, rows)
            return code | schema_options.tell_errors(request.schemas), rows.found
        if request.output == CSV:
            from klog.commands.dump.log_lines import csv_header

            results.write(csv_header(request.line_style))
        code = dump_lines(targets(), request, results, rows)
    return code | schema_options.tell_errors(request.schemas), rows.found


def _size(target: DumpTarget) -> int:
    """Return the bytes of a file; 0 if it is gone, as a broker's may be."""
    from klog.base.overlays import overlay_file

    try:
        found = overlay_file(target.path)
        return os.stat(target.path).st_size if found is None else found.size
    except OSError:
        return 0


def wanted_of(
    offsets: tuple[int | None, int | None],
    times: tuple[str | None, str | None],
    keys: KeySet | None,
    no_control: bool,
    limit: int | None,
    tail: bool,
) -> RecordFilter:
    """Return the filter for records: *offsets*, *times* from and to, None if they are not limited.

    Raises UsageError.
    """
    from klog.log.records import RecordFilter

    from_offset, to_offset = offsets
    from_time, to_time = (None if time is None else parse_time(time, output.note) for time in times)
    return RecordFilter(
        LONG_MIN if from_offset is None else _in_64_bits(from_offset),
        LONG_MAX if to_offset is None else _in_64_bits(to_offset),
        LONG_MIN if from_time is None else _in_64_bits(from_time),
        LONG_MAX if to_time is None else _in_64_bits(to_time),
        keys,
        not no_control,
        None if limit is None else _in_64_bits(limit),
        tail,
    )


def _in_64_bits(number: int) -> int:
    """Return *number*, or the nearest that an offset or a timestamp can be."""
    return max(LONG_MIN, min(number, LONG_MAX))


def _spare_inputs(to: str, paths: Sequence[str]) -> None:
    """Refuse to write over an input.  Raises UsageError."""
    if not os.path.exists(to):
        return
    for path in paths:
        inside = os.path.realpath(to).startswith(os.path.realpath(path) + os.sep)
        if os.path.exists(path) and (os.path.samefile(path, to) or (os.path.isdir(path) and inside)):
            raise UsageError(f"--to {to}: that is a file to be read; name another one")


def _checked_form(
    given: tuple[str | None, str | None],
    kind: str | None,
    isolation: str,
    values: str,
    batches: bool,
    batch_offsets: bool,
    decoder: Decoder | None,
    is_decoded: bool,
) -> str:
    """Return the form of the output; *given*: --output and --to.  Raises UsageError."""
    from klog.kernel import VALUES

    form = options.chosen_form(*given, DUMP_OUTPUTS, "text")
    for option, chosen, choices in (
        ("--output", form, DUMP_OUTPUTS),
        ("--as", kind, ("log", "index", "timeindex", "txnindex", "snapshot")),
        ("--isolation", isolation, ("read_uncommitted", "read_committed")),
        ("--values", values, VALUES),
    ):
        if chosen is not None:
            options.known(option, chosen, choices)
    if batch_offsets and (form == "text" or batches):
        raise UsageError("--batch-offsets goes with records, and --output jsonl, csv or parquet")
    if form in ("text", "parquet") and values != "text":
        raise UsageError("--values goes with --output jsonl or csv")
    if batches and form == "parquet":
        raise UsageError("--batches goes with --output text, jsonl or csv")
    if form != "text" and decoder is not None:
        raise UsageError("the decoders print text: leave out --output, or the decoder")
    if is_decoded:
        schema_options.check_schemas(form, values, batches, DUMP_OUTPUTS[1:])
    return form


def _log_style(records: bool, content: bool, bare: bool, batches: bool, decoder: Decoder | None) -> LogStyle:
    from klog.commands.dump.dump_request import LogStyle

    content = content or decoder is not None
    return LogStyle((records or content) and not batches, content, bare, decoder)


def _decoder(*chosen: bool) -> Decoder | None:
    if not any(chosen):
        return None
    from klog.formats import internal_topics

    decoder: Decoder = getattr(internal_topics, DECODERS[chosen.index(True)])
    return decoder


def key_set(keys: list[str] | None, file: str | None) -> KeySet | None:
    """Return the given keys and those in *file*; None if there are none.  Raises UsageError, OSError."""
    if not keys and file is None:
        return None
    from klog.kernel import KeySet

    wanted = [parse_key(key) for key in keys or ()]
    if file is not None:
        with open(file, "rb") as lines:
            wanted += _keys(lines, file)
    return KeySet(wanted)


def _keys(file: BufferedReader, name: str) -> Iterator[bytes]:
    left = _MOST_KEYS_BYTES
    for _, key in input_lines(file, name, _LONGEST_KEY):
        left -= len(key) + _BYTES_OF_A_KEY
        if left < 0:
            raise UsageError(
                f"{name}: more keys than fit into {_MOST_KEYS_BYTES >> 20} MiB: give them in several files"
            )
        yield key
