"""Opens the logs of a dump one after the other: where to begin, and which records are requested and visible.

inputs = LogInputs(request)
for target in targets:
    with inputs.open(target) as log:
        run(log.reader, LineDump(log, style, count).work, sink, log.jobs)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from klog.base.read_only import ReadOnlyFile
from klog.commands.dump.dump_request import ALL_BYTES, DumpRequest, DumpTarget, with_surroundings
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.jobs.record_stream import RecordStream
from klog.log.reader import LogReader
from klog.log.record_filter import RecordFilter, start_position
from klog.log.segment import Segment
from klog.partition.transactions.isolation import (
    AbortedFilter,
    VisibleRange,
    committed_in_file,
    visible_range,
)


class LogInput(RecordStream):
    """A log that is being dumped.  Several threads may use it, each with windows of its own.

    *source* is the open file, *reader* returns its windows.  *unfinished*: a batch that is cut off at the end is no
    damage.
    """

    def __init__(
        self, target: DumpTarget, request: DumpRequest, source: ReadOnlyFile, reader: LogReader, wanted: RecordFilter
    ) -> None:
        super().__init__(target.shown, Segment(target.path).span, wanted, None)
        self.target, self.request = target, request
        self.source, self.reader = source, reader
        self.unfinished = target.live or request.max_bytes < min(source.size, ALL_BYTES)

    @property
    def jobs(self) -> int:
        """How many workers are worth their while."""
        if self.request.wanted.limit is not None or self.request.wanted.in_range:
            return 1
        return max(1, min(self.request.jobs, (self.reader.end - self.reader.position) >> 22))

    def is_end(self, damage: Damage) -> bool:
        """Whether it is a batch that is cut off at the end, if that is no damage."""
        return self.unfinished and damage.is_unfinished


class LogInputs:
    """Opens logs for a request.  The hidden ranges of a partition are determined once, at its first log."""

    def __init__(self, request: DumpRequest) -> None:
        self.request = request
        self._directory: str | None = None
        self._seen = VisibleRange()
        self._aborted = AbortedFilter((), "")

    @contextmanager
    def open(self, target: DumpTarget, like_kafka: bool = False) -> Iterator[LogInput]:
        """Open a log, which is closed at the end of the block.  *like_kafka*: it is walked as Kafka walks it.

        Raises KlogError if it cannot be read.
        """
        request, segment = self.request, Segment(target.path)
        wanted = _narrowed(target, request.wanted)
        seen, aborted = self._visible(target) if request.committed else (VisibleRange(), None)
        with ReadOnlyFile(target.path) as source:
            start = _start_of(source, target, wanted)
            end = min(source.size, request.max_bytes) if request.max_bytes < ALL_BYTES else None
            reader = segment.reader(source, start, end, like_kafka=like_kafka, max_batch_bytes=request.max_batch_bytes)
            log = LogInput(target, request, source, reader, wanted)
            if aborted is not None:
                # Records below the log start offset are shown: the dump is of the file.
                log.wanted = wanted._replace(to_offset=min(wanted.to_offset, seen.to_offset), controls=False)
                log.aborted = aborted
            yield log

    def _visible(self, target: DumpTarget) -> tuple[VisibleRange, AbortedFilter]:
        """Return the part of a log that a read_committed consumer sees, and the filter for the rest."""
        around = with_surroundings(target)
        if not around.segments:  # it is in no partition, or is being added to or removed from it
            seen = committed_in_file(target.path)
            return seen, AbortedFilter(seen.aborted or (), target.path)
        if around.directory != self._directory:
            self._seen = visible_range(Partition(around.directory), "read_committed")
            self._aborted = AbortedFilter(self._seen.aborted or (), "")
            self._directory = around.directory
        return self._seen, self._aborted.for_log(target.path)


def _narrowed(target: DumpTarget, wanted: RecordFilter) -> RecordFilter:
    """Return *wanted* for one file: a limit to the newest records becomes a limit to the last offsets."""
    if not wanted.tail or wanted.limit is None:
        return wanted
    from klog.log.log_end import find_log_end

    base_offset = Segment(target.path).base_offset or 0
    end = find_log_end(target.path, _beside(target, "index"), base_offset).offset
    return wanted._replace(from_offset=max(wanted.from_offset, end - wanted.limit))


def _beside(target: DumpTarget, suffix: str) -> str | None:
    """Return the path of the index next to a log, None if there is none."""
    stem, dot, kind = target.path.rpartition(".")
    path = f"{stem}.{suffix}"
    return path if dot and kind == "log" and os.path.exists(path) else None


def _start_of(source: ReadOnlyFile, target: DumpTarget, wanted: RecordFilter) -> int:
    """Return the position in the log where reading may begin."""
    if wanted.tail and wanted.limit is None:
        wanted = wanted._replace(from_offset=LONG_MAX)
    if wanted.from_offset == LONG_MIN and wanted.from_time == LONG_MIN:
        return 0
    index, time_index = _beside(target, "index"), _beside(target, "timeindex")
    return start_position(source, index, time_index, Segment(target.path).base_offset or 0, wanted)
