"""The partitions to read, one replica of each unless all are requested, and the tasks that read them.

A task reads slices of logs and returns Arrow batches.
"""

from __future__ import annotations

import gc
import os
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition

from klog.data_dir.partition import Partition
from klog.data_dir.partition_identity import choose_identity
from klog.data_dir.replicas import find_partitions
from klog.jobs.slices import LogSlice, pack_tasks, slice_partition
from klog.log.records import RecordFilter
from klog.partition.start.replica_choice import choose_replicas
from klog.partition.transactions.isolation import IsolationState
from klog.spark.filter_pushdown import FilterPushdown
from klog.spark.ranges import Range
from klog.spark.remote_tiers import over_tiers
from klog.spark.source_options import SourceOptions
from klog.spark.utf8_errors import in_text
from klog.spark.worker_reads import reading_in_worker

if TYPE_CHECKING:
    import pyarrow as pa


def chosen(options: SourceOptions) -> list[Partition]:
    """Return the partitions that *options* select; a warning names those that their ids exclude.

    Raises UsageError, UnreadableError; IdentityError for several different partitions of one name.
    """
    found, sentence = choose_identity(find_partitions(options.paths), options.identity)
    if sentence is not None:
        warnings.warn(f"klog: {sentence}", stacklevel=1)
    return choose_replicas(options.topics.choose(found), options.replicas, options.identity)


_BYTES_WORTH_A_TASK = 8 << 20


class Task(InputPartition):
    """The slices that one task reads, in their order."""

    def __init__(self, parts: tuple[LogSlice, ...]) -> None:
        super().__init__(parts)
        self.parts = parts


def tasks(
    ranges: Iterable[Range],
    options: SourceOptions,
    pushed: FilterPushdown = FilterPushdown(),  # noqa: B008  # it is frozen
    *,
    growing: defaultdict[str, IsolationState] | None = None,
) -> list[InputPartition]:
    """Return the tasks that read *ranges*: of even size, not one per partition, and at least one.

    Without a task Spark would call the reader without input.  *growing*: for the logs of a stream, the known facts
    about them by path; an incomplete last batch is then one that is being written, whether or not a broker runs just
    now.
    """
    parts: list[LogSlice] = []
    for partition, from_offset, to_offset in ranges:
        wanted = RecordFilter(
            max(from_offset, pushed.from_offset), min(to_offset, pushed.to_offset), pushed.from_time, pushed.to_time
        )
        learnt = None if growing is None else growing[partition.path]
        for part in slice_partition(partition, options.split_bytes, wanted, options.isolation, learnt):
            live = part.live or (growing is not None and part.next_base is None)
            first, end = max(part.from_offset, from_offset), min(part.to_offset, to_offset)
            parts.append(part._replace(live=live, from_offset=first, to_offset=end))
    sizes = [part.bytes for part in parts]
    least = options.tasks or min(os.cpu_count() or 1, 1 + sum(sizes) // _BYTES_WORTH_A_TASK)
    packed = pack_tasks(sizes, 2 * options.split_bytes, least)
    return [Task(tuple(parts[i] for i in task)) for task in packed] or [Task(())]


def read_task(
    task: InputPartition,
    columns: Sequence[str],
    options: SourceOptions,
    pushed: FilterPushdown = FilterPushdown(),  # noqa: B008
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task.  Raises DamagedError for damage if the options say so."""
    from klog.jobs.spark_rows import RowQuery, read

    freeze_once()
    assert isinstance(task, Task)
    wanted = RecordFilter(pushed.from_offset, pushed.to_offset, pushed.from_time, pushed.to_time)
    query = RowQuery(
        tuple(columns),
        wanted,
        options.isolation,
        options.damage,
        options.max_batch_bytes,
        schemas=options.schemas,
    )
    with in_text(), reading_in_worker(options.paths, options.reads), over_tiers(options.mount):
        yield from read(task.parts, query)


_frozen = False


def freeze_once() -> None:
    """Exempt the modules that a worker has loaded from garbage collection, the first time.

    A worker collects after every task; with pyarrow loaded that is half of what a small one costs.
    """
    global _frozen
    if not _frozen:
        _frozen = True
        gc.freeze()
