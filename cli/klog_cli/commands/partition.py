"""`klog partition`: its options."""

from __future__ import annotations

from inspect import cleandoc
from typing import Annotated

import typer
from klog.base.errors import UsageError
from klog.cluster.partitioners import MOST_PARTITIONS, NAMES, table_rows

from klog_cli import options

PARTITION_OUTPUTS = ("text", "json", "jsonl", "csv")
KEY_FORMS = ("text", "hex", "base64", "int32", "int64")


def partition(
    keys: Annotated[list[str] | None, typer.Argument(metavar="KEY...", help="Keys, in the form of --as.")] = None,
    partitions: Annotated[
        int, typer.Option(metavar="N", min=1, max=MOST_PARTITIONS, help="Partitions of the topic.")
    ] = ...,  # type: ignore[assignment]  # Typer's way to say that it must be given
    partitioner: Annotated[
        str, typer.Option(metavar="|".join((*NAMES, "all")), help="Partitioner; all: every one of them.")
    ] = "all",
    form: Annotated[str, typer.Option("--as", metavar="|".join(KEY_FORMS), help="Form of the keys.")] = "text",
    keys_from: Annotated[str | None, typer.Option(metavar="FILE", help="More keys, one per line; - for stdin.")] = None,
    null: Annotated[bool, typer.Option("--null", help="Also show the partition of a null key.")] = False,
    output: Annotated[str, options.output_form(PARTITION_OUTPUTS)] = "text",
) -> int:
    """Show the partition that producers put a key into.

    Give keys as serialized: for Java's IntegerSerializer use --as int32. With one partitioner klog prints only the
    partition, or 'random' if the partitioner picks one.
    """
    from klog_cli.views.partition import PartitionRequest, show_partitions

    options.known_form(output, PARTITION_OUTPUTS)
    options.known("--partitioner", partitioner, (*NAMES, "all"))
    options.known("--as", form, KEY_FORMS)
    if not keys and keys_from is None and not null:
        raise UsageError("no key: give KEY, --keys-from FILE or --null")
    names = NAMES if partitioner == "all" else (partitioner,)
    return show_partitions(PartitionRequest(keys or (), keys_from, null, form, partitions, names), output)


def _table() -> str:
    """Return the partitioners as lines of help."""
    width = max(map(len, NAMES))
    return "\n".join(f"  {name:<{width}}  {rule:<26}  {clients}" for name, rule, clients, _, _ in table_rows())


# \b: Click is to leave these lines as they are.
partition.__doc__ = f"{cleandoc(partition.__doc__ or '')}\n\n\b\nPartitioners:\n{_table()}"
