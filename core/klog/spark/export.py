"""`export` on Spark, and the table of latest values: records as files, written by the tasks themselves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from klog.data_dir.partition import Partition
from klog.disk.disk import Disk, FencedDisk
from klog.jobs import export as job
from klog.jobs.export import ExportOptions
from klog.jobs.latest_values import latest as latest_job
from klog.jobs.output import Facts, alone
from klog.progress import Silence, Sink
from klog.spark.run import run
from klog.transactions.isolation import Isolation

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_USUAL, _SILENCE = ExportOptions(""), Silence()


def export(
    spark: SparkSession,
    partitions: Iterable[Partition],
    to: str,
    options: ExportOptions = _USUAL,
    isolation: Isolation = "read_uncommitted",
    sink: Sink = _SILENCE,
) -> Facts:
    """Write the records of *partitions* as files below *to*; return the manifest, which is also written there.

    Each record is written once, even if tasks fail, are killed or run twice.  After a failure the same call continues
    with what is missing.  *to* and the partitions' paths must lead to the same places wherever tasks run.

    Raises UsageError if *to* has other content, LockedError if another run writes there, KlogError, OSError.
    """
    return _written(spark, "export", list(partitions), to, options, isolation, sink)


def latest(
    spark: SparkSession,
    partitions: Iterable[Partition],
    to: str,
    options: ExportOptions = _USUAL,
    sink: Sink = _SILENCE,
) -> Facts:
    """Write the last value of each key of *partitions* as files below *to*: the table of a read_committed consumer.

    Everything else is as with `export`.
    """
    return _written(spark, "latest", list(partitions), to, options, "read_committed", sink)


def _written(
    spark: SparkSession,
    name: str,
    partitions: list[Partition],
    to: str,
    options: ExportOptions,
    isolation: Isolation,
    sink: Sink,
) -> Facts:
    is_table = name == "latest"
    pieces = job.pieces(partitions, options.wanted, isolation, whole=is_table)
    disk = shared_disk()
    with alone(to, disk):
        output = job.begin(to, name, pieces, options, disk)
        left = [piece for piece in pieces if piece.number not in output.done]
        function = latest_job if is_table else job.export
        units, sizes = [[piece] for piece in left], [piece.bytes for piece in left]
        run(spark, function, units, options._replace(run=output.run), sizes, sink, f"klog {name}")
        return job.finish(output, len(pieces))


def shared_disk() -> Disk:
    """Return a disk whose files and directories are for all whom the umask lets."""
    return FencedDisk("/", shared=True)
