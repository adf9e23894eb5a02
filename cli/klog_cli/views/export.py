"""The messages of `klog export` about the files that it wrote."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from klog.base.errors import ExitCode
from klog.data_dir.partition import Partition
from klog.jobs.export import ExportOptions
from klog.jobs.output import Facts
from klog.partition.transactions.isolation import Isolation

from klog_cli import output

if TYPE_CHECKING:
    from klog_cli.engines import Engine


def export(
    partitions: Sequence[Partition], to: str, options: ExportOptions, isolation: Isolation, engine: Engine
) -> int:
    """Write the records as files, and return the exit code."""
    with output.Results() as results:
        manifest = engine.export(partitions, to, options, isolation, results)
    return tell(manifest, to)


def tell(manifest: Facts, to: str) -> int:
    """Print the written files, and the unreadable parts."""
    for one in manifest["damage"]:
        output.plain(output.printable(one["message"]))
    files: list[Facts] = manifest["files"]
    size = output.human_size(sum(one["bytes"] for one in files))
    records, several = manifest["records"], "" if len(files) == 1 else "s"
    output.text(output.printable(f"{records} records in {len(files)} file{several}, {size}: {to}") + "\n")
    return ExitCode.PROBLEMS_LEFT if manifest["damage"] else 0
