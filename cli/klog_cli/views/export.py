"""The messages of `klog export` and `klog spark compact` about the files that they wrote."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from klog.base.errors import ExitCode, counted
from klog.data_dir.partition import Partition
from klog.jobs.export import ExportOptions, export_latest_values, export_records
from klog.jobs.output_commit import Facts
from klog.jobs.runner import Runner
from klog.partition.transactions.isolation import Isolation
from klog.schemas.error_tally import ErrorTally

from klog_cli import output
from klog_cli.style import strong
from klog_cli.views.nothing_found import Conditions, no_record_in


def export(
    partitions: Sequence[Partition],
    to: str,
    options: ExportOptions,
    isolation: Isolation,
    runner: AbstractContextManager[Runner],
) -> int:
    """Write the records as files, and return the exit code."""
    with output.Results() as results, runner as running:
        manifest = export_records(partitions, to, options, isolation, running, results)
    code = _tell(manifest, to)
    if options.schemas is not None and options.schemas.is_damaged:
        code |= ExitCode.PROBLEMS_LEFT
    is_committed = isolation == "read_committed"
    if manifest["records"] or not options.wanted.in_range:
        return code
    return code | no_record_in(partitions, Conditions(options.wanted, is_committed=is_committed))


def latest(
    partitions: Sequence[Partition], to: str, options: ExportOptions, runner: AbstractContextManager[Runner]
) -> int:
    """Write the last value of each key as files, for a read_committed consumer, and return the exit code."""
    with output.Results() as results, runner as running:
        manifest = export_latest_values(partitions, to, options, running, results)
    return _tell(manifest, to)


def _tell(manifest: Facts, to: str) -> int:
    """Print the written files, and the unreadable parts."""
    for one in manifest["damage"]:
        output.plain(output.printable(one["message"]))
    undecoded = ErrorTally()
    undecoded.merge(manifest.get("undecoded", {"kinds": [], "more": 0}))
    for line in undecoded.lines():
        output.error(line)
    files: list[Facts] = manifest["files"]
    size = output.human_size(sum(one["bytes"] for one in files))
    records = strong(counted(manifest["records"], "record"))
    output.lines([f"{records} in {counted(len(files), 'file')}, {size}: {to}"])
    return ExitCode.PROBLEMS_LEFT if manifest["damage"] or undecoded else 0
