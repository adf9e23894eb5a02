"""`klog dump`: its options, and what they ask of klog.dump."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from klog.errors import UsageError

from klog_cli import output
from klog_cli.units import parse_key, parse_size, parse_time

if TYPE_CHECKING:
    from klog.dump.request import Decoder, Request
    from klog.kernel import KeySet

Paths = Annotated[list[str] | None, typer.Argument(metavar="PATH...", help="Files, partition directories, log dirs.")]
OUTPUTS = ("text", "jsonl", "csv", "parquet", "json", "table")
DECODERS = ("offsets", "transactions", "cluster_metadata", "remote_log_metadata", "share_group_state")


def dump(
    paths: Paths = None,
    files: Annotated[str | None, typer.Option(help="Files, separated by commas, as for Kafka's tool.")] = None,
    topic: Annotated[list[str] | None, typer.Option(help="Only these topics of a log dir (a name or a glob).")] = None,
    partition: Annotated[list[int] | None, typer.Option(help="Only these partition numbers of a log dir.")] = None,
    form: Annotated[
        str, typer.Option("--output", metavar="|".join(OUTPUTS[:4]), help="How to show it; text is Kafka's own.")
    ] = "text",
    to: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write there instead of stdout; whole or not at all.")
    ] = None,
    deep_iteration: Annotated[bool, typer.Option("--deep-iteration", help="Records, not only batches (text).")] = False,
    print_data_log: Annotated[
        bool, typer.Option("--print-data-log", help="Records with keys and payloads (text).")
    ] = False,
    skip_record_metadata: Annotated[
        bool, typer.Option("--skip-record-metadata", help="Record lines without metadata (text).")
    ] = False,
    verify_index_only: Annotated[
        bool, typer.Option("--verify-index-only", help="Check indexes against the log, do not list them.")
    ] = False,
    index_sanity_check: Annotated[
        bool, typer.Option("--index-sanity-check", help="Only the check that a broker makes.")
    ] = False,
    max_bytes: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Look only at so many bytes of each log.")
    ] = None,
    max_message_size: Annotated[
        str, typer.Option(metavar="SIZE", help="How far to look behind an index entry.")
    ] = "5242880",
    offsets_decoder: Annotated[bool, typer.Option("--offsets-decoder", help="Decode __consumer_offsets.")] = False,
    transaction_log_decoder: Annotated[
        bool, typer.Option("--transaction-log-decoder", help="Decode __transaction_state.")
    ] = False,
    cluster_metadata_decoder: Annotated[
        bool, typer.Option("--cluster-metadata-decoder", help="Decode __cluster_metadata.")
    ] = False,
    remote_log_metadata_decoder: Annotated[
        bool, typer.Option("--remote-log-metadata-decoder", help="Decode __remote_log_metadata.")
    ] = False,
    share_group_state_decoder: Annotated[
        bool, typer.Option("--share-group-state-decoder", help="Decode __share_group_state.")
    ] = False,
    with_indexes: Annotated[
        bool, typer.Option("--with-indexes", help="Of a directory, its indexes and snapshots too.")
    ] = False,
    kind: Annotated[
        str | None,
        typer.Option(
            "--as", metavar="log|index|timeindex|txnindex|snapshot", help="What a file is whose name does not tell."
        ),
    ] = None,
    from_offset: Annotated[int | None, typer.Option(help="From this offset on.")] = None,
    to_offset: Annotated[int | None, typer.Option(help="Up to, not including, this offset.")] = None,
    from_time: Annotated[
        str | None, typer.Option(metavar="TIME", help="From this time on (epoch ms, ISO 8601, '2h ago').")
    ] = None,
    to_time: Annotated[str | None, typer.Option(metavar="TIME", help="Up to, not including, this time.")] = None,
    key: Annotated[
        list[str] | None, typer.Option(metavar="BYTES", help="Only records with this key; text, hex:… or base64:….")
    ] = None,
    keys_from: Annotated[
        str | None, typer.Option(metavar="FILE", help="Only records with one of the keys in FILE, one a line.")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many records (batches with --batches).")] = None,
    isolation: Annotated[
        str, typer.Option(metavar="read_uncommitted|read_committed", help="read_committed: as such a consumer sees it.")
    ] = "read_uncommitted",
    tail: Annotated[bool, typer.Option("--tail", help="Only the newest batches of each partition.")] = False,
    no_control: Annotated[bool, typer.Option("--no-control", help="Without control records.")] = False,
    batches: Annotated[bool, typer.Option("--batches", help="A row a batch instead of a record.")] = False,
    values: Annotated[
        str, typer.Option(metavar="text|base64|hex|redacted|none", help="How to show values (jsonl, csv).")
    ] = "text",
    jobs: Annotated[int | None, typer.Option(min=1, help="Threads; default: cores.")] = None,
    max_batch_bytes: Annotated[str, typer.Option(metavar="SIZE", help="Largest batch to read into memory.")] = "128MiB",
    quiet: Annotated[bool, typer.Option("--quiet", help="No notes, no bar.")] = False,
) -> int:
    """Show the content of any Kafka file: in the text of Kafka's own dump tool, or as data.

    A directory gives its files in order.  Ranges use the indexes, so ten records from the middle of a large segment
    cost a few KiB.  Damage is shown in its place and does not end the dump.
    """
    from klog.dump.request import ALL_BYTES, IndexStyle, LineStyle, LogStyle, Request
    from klog.dump.wanted import HIGHEST, LOWEST, Wanted
    from klog.kernel import VALUES

    output.Quiet.on = quiet
    decoder = _decoder(
        offsets_decoder,
        transaction_log_decoder,
        cluster_metadata_decoder,
        remote_log_metadata_decoder,
        share_group_state_decoder,
    )
    content = print_data_log or decoder is not None
    _choices(form, kind, isolation, values)
    if batches and form == "parquet":
        raise UsageError("--batches goes with --output text, jsonl or csv")
    if form != "text" and decoder is not None:
        raise UsageError("the decoders print text: leave out --output, or the decoder")
    committed = isolation == "read_committed"
    request = Request(
        output=form,
        log_style=LogStyle((deep_iteration or content) and not batches, content, skip_record_metadata, decoder),
        index_style=IndexStyle(index_sanity_check, verify_index_only, parse_size(max_message_size)),
        line_style=LineStyle(form == "csv", batches, VALUES.index(values)),
        wanted=Wanted(
            LOWEST if from_offset is None else _in_64_bits(from_offset),
            HIGHEST if to_offset is None else _in_64_bits(to_offset),
            LOWEST if from_time is None else _in_64_bits(parse_time(from_time, output.note)),
            HIGHEST if to_time is None else _in_64_bits(parse_time(to_time, output.note)),
            _keys(key, keys_from),
            not no_control,
            None if limit is None else _in_64_bits(limit),
            tail,
        ),
        committed=committed,
        max_bytes=ALL_BYTES if max_bytes is None else parse_size(max_bytes),
        max_batch_bytes=min(parse_size(max_batch_bytes), ALL_BYTES),
        jobs=jobs or os.cpu_count() or 1,
        kind=kind,
    )
    return _dump(
        [*(files.rstrip(",").split(",") if files else ()), *(paths or ())],
        topic or (),
        partition or (),
        with_indexes,
        request,
        to,
    )


def _dump(
    paths: Sequence[str],
    topics: Sequence[str],
    numbers: Sequence[int],
    with_indexes: bool,
    request: Request,
    to: str | None,
) -> int:
    from klog.dump.files import dump_lines, dump_text
    from klog.dump.request import CSV, PARQUET, TEXT, expand

    if not paths:
        raise UsageError("nothing to dump: name files, partition directories or log dirs")
    if to is not None:
        _spare_inputs(to, paths)
    targets = expand(paths, topics, numbers, with_indexes, request.wanted)
    if request.output == PARQUET and to is None and output.is_terminal():
        raise UsageError("Parquet is nothing for a terminal: --to FILE")
    with output.Results(to) as results:
        if request.output == TEXT:
            return dump_text(targets, request, results)
        if request.output == PARQUET:
            from klog.dump.columns import dump_parquet

            return dump_parquet(targets, request, results, results.descriptor)
        if request.output == CSV:
            from klog.dump.lines import CSV_BATCH_COLUMNS, CSV_COLUMNS

            results.write(((CSV_BATCH_COLUMNS if request.line_style.batches else CSV_COLUMNS) + "\n").encode())
        return dump_lines(targets, request, results)


def _in_64_bits(number: int) -> int:
    """Return *number*, or the nearest that an offset or a timestamp can be."""
    return max(-(2**63), min(number, 2**63 - 1))


def _spare_inputs(to: str, paths: Sequence[str]) -> None:
    """Refuse to write over what is to be read.  Raises UsageError."""
    if not os.path.exists(to):
        return
    for path in paths:
        inside = os.path.realpath(to).startswith(os.path.realpath(path) + os.sep)
        if os.path.exists(path) and (os.path.samefile(path, to) or (os.path.isdir(path) and inside)):
            raise UsageError(f"--to {to}: that is a file to be read; name another one")


def _choices(form: str, kind: str | None, isolation: str, values: str) -> None:
    from klog.kernel import VALUES

    for option, given, known in (
        ("--output", form, ("text", "jsonl", "csv", "parquet")),
        ("--as", kind, ("log", "index", "timeindex", "txnindex", "snapshot")),
        ("--isolation", isolation, ("read_uncommitted", "read_committed")),
        ("--values", values, VALUES),
    ):
        if given is not None and given not in known:
            from klog.log_dir import near_misses

            raise UsageError(f"{option} {given}: expected one of {', '.join(known)}{near_misses(given, known)}")
    if form in ("text", "parquet") and values != "text":
        raise UsageError("--values goes with --output jsonl or csv")


def _decoder(*chosen: bool) -> Decoder | None:
    if not any(chosen):
        return None
    from klog import internal_topics

    decoder: Decoder = getattr(internal_topics, DECODERS[chosen.index(True)])
    return decoder


def _keys(keys: list[str] | None, file: str | None) -> KeySet | None:
    if not keys and file is None:
        return None
    from klog.kernel import KeySet

    wanted = [parse_key(key) for key in keys or ()]
    if file is not None:
        with open(file, "rb") as lines:
            wanted += [line.rstrip(b"\r\n") for line in lines]
    return KeySet(wanted)
