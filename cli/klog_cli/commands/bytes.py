"""`klog bytes`: its options."""

from __future__ import annotations

from typing import Annotated

import typer
from klog.base.errors import UsageError

from klog_cli import options, schema_options

BYTES_OUTPUTS = ("text", "json")
BytesPath = Annotated[
    str,
    typer.Argument(
        metavar="PATH", help="A file, or with --offset a partition directory or a log dir with --topic and --partition."
    ),
]
BytesOutput = Annotated[str | None, options.output_form(BYTES_OUTPUTS)]
BytesOffset = Annotated[int | None, typer.Option("--offset", metavar="N", help="The batch with offset N.")]
BytesPosition = Annotated[
    int | None, typer.Option("--position", metavar="N", help="The batch, entry or line with byte N of the file.")
]
Entry = Annotated[
    int | None, typer.Option("--entry", metavar="N", help="Entry N of an index, a snapshot or a checkpoint, from 0 on.")
]
Context = Annotated[str, typer.Option("--context", metavar="SIZE", help="Also show SIZE bytes before and after.")]
Raw = Annotated[bool, typer.Option("--raw", help="Write the bytes themselves, to a file or a pipe.")]
Full = Annotated[bool, typer.Option("--full", help="Show every field of large batches, and complete values.")]
BytesTo = Annotated[
    str | None, typer.Option("--to", metavar="FILE", help="Write to FILE; the ending .json chooses the form.")
]


def bytes(  # noqa: A001
    path: BytesPath,
    offset: BytesOffset = None,
    position: BytesPosition = None,
    entry: Entry = None,
    context: Context = "0",
    full: Full = False,
    raw: Raw = False,
    schemas: schema_options.Schemas = None,
    schemas_topic: schema_options.SchemasTopic = "_schemas",
    topic: options.Topics = None,
    partition: options.Partitions = None,
    form: BytesOutput = None,
    to: BytesTo = None,
) -> int:
    """Show a file, a batch or an entry byte by byte.

    Values that contradict each other are marked: a wrong checksum, a length that leads too far, an index entry that
    points into a batch. Compressed records are shown decompressed.
    """
    from klog_cli.units import parse_size
    from klog_cli.views.bytes.bytes import BytesRequest, show_bytes

    if sum(one is not None for one in (offset, position, entry)) > 1:
        raise UsageError("--offset N, --position P, --entry N: at most one of them")
    if raw and form is not None:
        raise UsageError("--raw writes the bytes themselves: leave out --output")
    chosen = "raw" if raw else options.chosen_form(form, to, BYTES_OUTPUTS, "text")
    if raw and schemas:
        raise UsageError("--raw writes the bytes themselves: leave out --schemas")
    style = schema_options.schema_style(schemas, [path], (schemas_topic, "plain", "both", None))
    place = parse_size(context), full, tuple(topic or ()), partition or ()
    request = BytesRequest(offset, position, entry, *place, style)
    return show_bytes(path, request, chosen, to)
