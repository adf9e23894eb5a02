"""Batches of another log, as they lie: only their offsets, leader epochs and producer ids change."""

from __future__ import annotations

import os
from collections.abc import Iterator

from klog.base.errors import KlogError, UsageError
from klog.base.progress import Sink
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.strict_reader import StrictReader
from klog.commands.write.partition_writer import PartitionWriter
from klog.commands.write.unfit_batches import UnfitBatches
from klog.commands.write.write_destination import Destination, TopicPlace
from klog.commands.write.write_options import WriteOptions
from klog.data_dir.log_dir import LogDir
from klog.data_dir.open_path import open_path
from klog.data_dir.partition import Partition
from klog.formats.names import CLUSTER_METADATA, PartitionState
from klog.kernel import Window, drop_producers, stamp
from klog.partition.transactions.isolation import AbortedFilter, AbortedRange
from klog.partition.transactions.markers import CompletedTxn
from klog.partition.transactions.producer_replay import replay
from klog.partition.transactions.producer_state import ProducerState

_REFUSED = "nothing is written"


def partitions_at(path: str) -> list[Partition]:
    """Return the partitions of a log dir that are in use, or the partition at *path*.  Raises UsageError."""
    opened = open_path(path)
    if isinstance(opened, LogDir):
        current = [one for one in opened.partitions if one.state is PartitionState.CURRENT]
        return [one for one in current if one.topic != CLUSTER_METADATA]
    if isinstance(opened, Partition) and opened.name is not None:
        return [opened]
    raise UsageError(f"{path}: expected a log dir or a partition directory, such as orders-3")


def place_of(partition: Partition, destination: Destination, options: WriteOptions) -> TopicPlace:
    """Return the topic to which *partition* is written.  Raises KlogError if it does not have that number."""
    name = options.topic or partition.topic or ""
    place = destination.topic(name)
    if place is None:
        raise KlogError(f"{partition.path}: {name} is no name of a topic")
    if partition.number is None or partition.number >= place.count:
        raise KlogError(f"{partition.path}: {place.name} has {place.count} partitions")
    return place


def copy_batches(partition: Partition, writer: PartitionWriter, options: WriteOptions, sink: Sink) -> int:
    """Append all batches of *partition*; return how many records the new topic does not take and were left out.

    Raises KlogError for batches that cannot be there, DamagedError over damage in the input, OSError.
    """
    place, number = writer.place, writer.number
    epoch, shift = place.stamp(options, number), place.shift(options)
    unfit, before = UnfitBatches(place, options.skips_bad), writer.appender.log.epochs.latest
    aborted = _aborted(partition) if options.drops_producers else None
    for window, file in _windows(partition, sink):
        runs = [(0, window.count)]
        if aborted is not None:
            aborted.skip(window)
            runs = drop_producers(window)
        for run in runs:
            for fitting, first, end in unfit.fitting(window, *run, file):
                at_end = -1 if options.keep_offsets else writer.appender.end
                stamp(fitting, first, end, at_end, epoch, shift)
                writer.append(fitting, first, end)
    _check_epoch(partition, writer, before)
    writer.builder.continue_at(writer.appender.end, writer.appender.log.epochs.latest)
    if unfit.left_out:
        sink.report(f"{partition.path}: left out {unfit.summary}")
    return unfit.left_out


def _check_epoch(partition: Partition, writer: PartitionWriter, before: int) -> None:
    """Raise KlogError for a leader epoch that the cluster has not reached: a broker would forget all earlier ones.

    *before*: the latest that the log had before anything was appended.
    """
    known, latest = writer.place.epochs.get(writer.number, -1), writer.appender.log.epochs.latest
    if 0 <= known < latest and before < latest:
        raise KlogError(
            f"{partition.path}: batches of leader epoch {latest}, which the cluster has not reached: by the metadata"
            f" {writer.name} is in {known}; nothing was written (without --leader-epoch they get that)"
        )


def _aborted(partition: Partition) -> AbortedFilter:
    """Return a filter of aborted batches, from the log alone.  Raises KlogError over an open transaction."""
    state = ProducerState(partition.segments[0].base_offset if partition.segments else 0)
    aborted = [
        AbortedRange(event.producer_id, event.first_offset, event.last_offset)
        for event in replay(state, partition.path, partition.segments)
        if isinstance(event, CompletedTxn) and event.aborted
    ]
    for first, producer_id in sorted(state.ongoing.all()):
        raise KlogError(
            f"{partition.path}: the transaction of producer {producer_id} from offset {first} on is open, so it may"
            f" have been aborted; {_REFUSED} (--producers keep and shift write it as it is)"
        )
    return AbortedFilter(aborted, partition.path)


def _windows(partition: Partition, sink: Sink) -> Iterator[tuple[Window, str]]:
    """Yield windows of intact batches, each with the path of its log."""
    window = Window(output=0)
    for files in partition.segments:
        path = partition.file(files.log)
        with ReadOnlyFile(path) as source:
            reader = StrictReader(source, path, files.base_offset, _REFUSED, advance=sink.advance)
            while reader.next(window):
                if not window.count:
                    continue
                if window.batch(0).magic < 2 or window.edges()[0] < window.count:
                    dump = "'klog dump --output jsonl' makes records of them"
                    raise KlogError(f"{path}: message sets of an old format are not appended; {dump}")
                yield window, path


def size_of(partition: Partition) -> int:
    """Return the bytes of its logs."""
    return sum(os.path.getsize(partition.file(files.log)) for files in partition.segments)
