"""Follows a live directory in micro-batches: every record that a broker appends, exactly once.

An offset of the stream contains for each partition the next record's offset, the leader epoch of the record before it,
and the topic id: {"orders-3": {"offset": 1841, "epoch": 7, "topic_id": "…"}}.  If the log no longer agrees, the records
returned so far are no longer its history (a follower was truncated, a topic created again), and the stream ends with an
error.  The stream returns nothing beyond the last whole batch and, with read_committed, nothing from the last stable
offset on; the high watermark on a disk is too old to wait for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, TypedDict

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from klog.base.errors import DamagedError, KlogError, UsageError
from klog.data_dir.partition import Partition
from klog.data_dir.replicas import UNKNOWN, epoch_at, log_end
from klog.partition.transactions.isolation import IsolationState, visible_range
from klog.spark.ranges import Range, hold_names_against, start_offset
from klog.spark.read_tasks import chosen, read_task, tasks
from klog.spark.source_options import SourceOptions
from klog.spark.utf8_errors import in_text

if TYPE_CHECKING:
    import pyarrow as pa


class Position(TypedDict):
    """The position of the stream in a partition.

    *offset*: the next one; *epoch*: the leader epoch of the one before it, −1 if unknown.
    """

    offset: int
    epoch: int
    topic_id: str | None


Offsets = dict[str, Position]


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream.  One instance lives in the driver's process; copies of it, which only read, in the tasks."""

    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        if options.replicas == "all":
            raise UsageError("replicas: a stream follows one copy of each partition, longest or leader-epoch")
        self.options, self.columns = options, tuple(columns)
        self._target: Mapping[str, int] | None = None
        self._learnt: defaultdict[str, IsolationState] = defaultdict(IsolationState)

    @in_text()
    def initialOffset(self) -> Offsets:  # noqa: N802  # a dict, and Spark's name
        """Return the first offset of a new stream."""
        found = _by_name(self.options)
        hold_names_against((self.options.starting,), found.values())
        return {name: _position(each, start_offset(each, self.options)) for name, each in found.items()}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802  # Spark's name
        """Return how much a trigger takes."""
        return ReadAllAvailable() if self.options.max_offsets is None else ReadMaxRows(self.options.max_offsets)

    @in_text()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """End the stream at the current ends of the logs."""
        self._target = {name: self._end(partition) for name, partition in _by_name(self.options).items()}

    @in_text()
    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Return the end of the next micro-batch: *start* itself if there is nothing new."""
        found = _by_name(self.options)
        self._hold_against(start, found, idle_too=False)
        begins = {name: start[name]["offset"] if name in start else _first(each) for name, each in found.items()}
        ends = {name: max(begins[name], self._target_of(name, each)) for name, each in found.items()}
        if isinstance(limit, ReadMaxRows):
            ends = shares(begins, ends, limit.max_rows)
        # Spark compares offsets as texts: an unchanged offset keeps its text and its place.
        moved = {name: _position(found[name], ends[name]) for name in found if ends[name] > begins[name]}
        return {**start, **moved}

    @in_text()
    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return the tasks that read from *start* to *end*, which may stem from a run before this one."""
        found = _by_name(self.options)
        self._hold_against(start, found)
        self._hold_against(end, found)
        ranges = [
            Range(found[name], start[name]["offset"] if name in start else _first(found[name]), position["offset"])
            for name, position in end.items()
            if name in found
        ]
        return tasks([each for each in ranges if each.from_offset < each.to_offset], self.options, growing=self._learnt)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return read_task(partition, self.columns, self.options)

    def _target_of(self, name: str, partition: Partition) -> int:
        end = self._end(partition)
        return end if self._target is None else min(end, self._target.get(name, 0))

    def _end(self, partition: Partition) -> int:
        """Return the offset behind the last visible whole batch.  Raises UnreadableError."""
        try:
            end = partition.log_end
        except KlogError:
            if self.options.fail_on_data_loss:
                raise
            return 0  # until it can be read
        if end is None:
            return 0
        return min(end.offset, visible_range(partition, self.options.isolation, self._learnt[partition.path]).to_offset)

    def _hold_against(self, offsets: Offsets, found: Mapping[str, Partition], idle_too: bool = True) -> None:
        """Raise DamagedError if *offsets* cannot have been reached in the directory.

        Not *idle_too*: skip partitions without new records, which will not be read.
        """
        for name, position in offsets.items():
            partition = found.get(name)
            problem = _lost(position, partition) if self.options.fail_on_data_loss else None
            if problem is not None:
                raise DamagedError(f"{name}: {problem} (failOnDataLoss=false continues with what is there)")
            if partition is None or not (idle_too or log_end(partition) != position["offset"]):
                continue
            problem = _rewritten(position, partition)
            if problem is not None:
                raise DamagedError(f"{name}: {problem}; what was read is not its history: begin with a new checkpoint")


def _by_name(options: SourceOptions) -> dict[str, Partition]:
    """Return the present partitions."""
    return {f"{each.topic}-{each.number}" if each.name else each.directory: each for each in chosen(options)}


def _first(partition: Partition) -> int:
    return partition.log_start_offset or 0


def _position(partition: Partition, offset: int) -> Position:
    return Position(offset=offset, epoch=epoch_at(partition, offset - 1), topic_id=partition.topic_id)


def _lost(position: Position, partition: Partition | None) -> str | None:
    if partition is None:
        return f"gone, and it was read up to offset {position['offset']}"
    if position["offset"] and not partition.segments:
        return f"has no log, and it was read up to offset {position['offset']}"
    first = _first(partition)
    if first > position["offset"]:
        return f"begins at offset {first}, and it was read up to {position['offset']}: what lay between is gone"
    return None


def _rewritten(position: Position, partition: Partition) -> str | None:
    """Return the evidence that the log is not the one that was read; None if there is none."""
    offset, epoch = position["offset"], position["epoch"]
    if None not in (position["topic_id"], partition.topic_id) and position["topic_id"] != partition.topic_id:
        return f"its topic was created again, with the id {partition.topic_id} instead of {position['topic_id']}"
    end = log_end(partition)
    if UNKNOWN < end < offset:
        return f"ends at offset {end}, and it was read up to {offset}"
    now = epoch_at(partition, offset - 1)
    if UNKNOWN not in (now, epoch) and now != epoch:
        return f"offset {offset - 1} was written in leader epoch {epoch} and is now of epoch {now}"
    return None


def shares(begins: Mapping[str, int], ends: Mapping[str, int], most: int) -> dict[str, int]:
    """Return ends for about *most* offsets in all, divided in proportion to the unread part of each partition.

    Each partition with unread records gets at least one, so that none starves.
    """
    waiting = {name: ends[name] - begins[name] for name in ends}
    total = sum(waiting.values())
    if total <= most:
        return dict(ends)
    return {name: begins[name] + min(left, max(1, most * left // total)) for name, left in waiting.items()}
