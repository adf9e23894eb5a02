"""The options of a dump, the files that it covers, and their logs, opened one after the other.

inputs = LogInputs(request)
for target in targets:
    with inputs.open(target) as log:
        run(log.reader, LineDump(log, style, count).work, sink, log.jobs)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from klog.base.overlays import overlay_at, shown_path
from klog.base.read_only import ReadOnlyFile, is_directory, is_missing
from klog.commands.dump.reports import shown
from klog.data_dir.partition import Partition, segments_between
from klog.formats.damage import Damage
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.jobs.slice_scan import RecordStream
from klog.kernel import TEXT_BARE, TEXT_CONTENT, TEXT_RECORDS
from klog.log.json_lines import LineStyle
from klog.log.reader import MAX_BATCH_BYTES, LogReader
from klog.log.records import RecordFilter, start_position
from klog.log.segment import Segment
from klog.partition.transactions.isolation import (
    AbortedFilter,
    IsolationState,
    VisibleRange,
    committed_in_file,
    visible_range,
)

if TYPE_CHECKING:
    from klog.data_dir.partition import Partition, SegmentFiles
    from klog.data_dir.selection import PartitionChoice
    from klog.schemas.decoded_rows import SchemaStyle


TEXT, JSON_LINES, CSV, PARQUET = "text", "jsonl", "csv", "parquet"
ALL_BYTES = 2**31 - 1


Decoder = Callable[["bytes | None", "bytes | None", int], "tuple[str | None, str | None]"]
"""Maps key, value and offset to the text after `key: ` and after `payload: `, None for neither."""


class LogStyle(NamedTuple):
    """The parts to print: record lines (*deep*), keys and payloads (*content*), record lines without metadata (*bare*).

    *decoder* turns keys and payloads into text; None shows them as they are.
    """

    deep: bool = False
    content: bool = False
    bare: bool = False
    decoder: Decoder | None = None

    @property
    def flags(self) -> int:
        """The same for the kernel."""
        return TEXT_RECORDS * self.deep | TEXT_CONTENT * self.content | TEXT_BARE * self.bare


class IndexStyle(NamedTuple):
    """*sanity_only*: only the sanity check; *verify_only*: no listing; *max_message_size*: bytes of log looked at."""

    sanity_only: bool = False
    verify_only: bool = False
    max_message_size: int = 5 << 20


class DumpRequest(NamedTuple):
    """The options of a dump, without its files.

    *max_bytes*: only so many bytes of each log are read.  *committed*: isolation read_committed.  *kind*: the kind
    (log, index …) of files whose names do not show it.  *schemas*: None for bytes as they are.
    """

    output: str = TEXT
    log_style: LogStyle = LogStyle()
    index_style: IndexStyle = IndexStyle()
    line_style: LineStyle = LineStyle()
    wanted: RecordFilter = RecordFilter()
    committed: bool = False
    max_bytes: int = ALL_BYTES
    max_batch_bytes: int = MAX_BATCH_BYTES
    jobs: int = 1
    kind: str | None = None
    schemas: SchemaStyle | None = None

    @property
    def limit(self) -> int | None:
        """The number of rows behind which the dump ends; the newest ones have an offset at which they begin instead."""
        return None if self.wanted.tail else self.wanted.limit

    @property
    def is_of_records(self) -> bool:
        """Whether the rows of logs are records; otherwise they are batches."""
        return self.log_style.deep if self.output == TEXT else not self.line_style.batches


class DumpTarget(NamedTuple):
    """A file to dump: its path, its name in the output, its segment and partition if it belongs to one.

    *segments* are all of the partition's, ascending; *segment* is the file's own, None for a file that is named itself.
    An index beside a log has the segment, and no *segments*.  *live*: a broker is writing this very file.  *may_go*:
    klog found it in a log dir of a broker that is running, so retention or compaction may remove it before it is read.
    *from_offset*: the first offset to print, None for the one of the request.
    """

    path: str
    segment: SegmentFiles | None = None
    segments: tuple[SegmentFiles, ...] = ()
    live: bool = False
    may_go: bool = False
    from_offset: int | None = None

    @property
    def shown(self) -> str:
        """The path as Kafka's tool prints it; the key of an object in remote storage."""
        return shown(shown_path(self.path))

    @property
    def directory(self) -> str:
        """The directory the file is in."""
        return os.path.dirname(self.path) or "."

    @property
    def origin(self) -> tuple[str, int] | tuple[None, None]:
        """Topic and partition, if the directory's name has them."""
        from klog.formats.names import parse_partition

        name = parse_partition(os.path.basename(os.path.abspath(self.directory)))
        return (name.topic, name.partition) if name else (None, None)


def with_surroundings(target: DumpTarget) -> DumpTarget:
    """Return *target* with its segment and the other segments of its partition, if it is a log of one."""
    if target.segments:
        return target
    from klog.data_dir.partition import Partition

    partition = Partition(target.directory)
    own = next((segment for segment in partition.segments if segment.log == os.path.basename(target.path)), None)
    if own is None:
        return target
    return DumpTarget(target.path, own, partition.segments, target.live)


def expand(
    paths: Sequence[str],
    topics: Sequence[str],
    numbers: Sequence[PartitionChoice],
    with_indexes: bool,
    wanted: RecordFilter,
) -> Iterator[DumpTarget]:
    """Yield the files that *paths* name: files as they are, directories by the segments that can match.

    Raises UsageError for a path that is none of these, and for topics and partitions that are in none of the log dirs.
    """
    found = _partitions([path for path in paths if is_directory(path)], topics, numbers)
    for path in paths:
        if path not in found:
            yield DumpTarget(path)
        for partition in found.get(path, ()):
            yield from partition_targets(partition, with_indexes, wanted)


def _partitions(
    directories: Sequence[str], topics: Sequence[str], numbers: Sequence[PartitionChoice]
) -> dict[str, list[Partition]]:
    """Return the partitions that are meant, by the directories that have them, or are one.  Raises as `expand`."""
    if not directories:
        return {}
    from klog.data_dir.log_dir import LogDir
    from klog.data_dir.selection import open_path, partitions_of, select

    opened = {path: open_path(path) for path in directories}
    log_dirs = [one for one in opened.values() if isinstance(one, LogDir)]
    chosen = set(select(partitions_of(log_dirs), topics, numbers)) if log_dirs else set()
    return {
        path: [one for one in partitions_of([found]) if not isinstance(found, LogDir) or one in chosen]
        for path, found in opened.items()
    }


def partition_targets(partition: Partition, with_indexes: bool, wanted: RecordFilter) -> Iterator[DumpTarget]:
    """Yield the files of *partition*: the segments that can match, and with *with_indexes* the files beside them."""
    from klog.data_dir.log_dir import LogDir
    from klog.formats.names import FileKind, file_name

    live = bool(LogDir(partition.log_dir).lock.held)
    wanted = wanted.before_end(lambda: end.offset if (end := partition.log_end) is not None else 0)
    segments = segments_between(partition.segments, wanted.from_offset, wanted.to_offset)
    start = partition.log_start_offset or 0 if overlay_at(partition.path) and wanted.from_offset == LONG_MIN else None
    for segment in segments[-1:] if wanted.tail and wanted.limit is None else segments:
        last = segment is partition.segments[-1]
        begins = start if start is not None and segment.base_offset < start else None
        yield DumpTarget(partition.file(segment.log), segment, partition.segments, live and last, live, begins)
        if with_indexes:
            beside = [segment.offset_index, segment.time_index, segment.txn_index]
            snapshot = file_name(segment.base_offset, FileKind.SNAPSHOT)
            beside += [snapshot] if snapshot in {name.name for name in partition.snapshots} else []
            yield from (DumpTarget(partition.file(name), segment, may_go=live) for name in beside if name)
    # the dump reports paths with a log's name that are no file (a link to nowhere, a FIFO)
    yield from (DumpTarget(partition.file(name)) for name in partition.others if name.endswith(".log"))


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
        wanted = self.request.wanted
        if wanted.limit is not None or wanted.in_range or self.request.schemas is not None:
            return 1  # decoding holds the interpreter: threads would only wait for each other
        return max(1, min(self.request.jobs, (self.reader.end - self.reader.position) >> 22))

    def is_end(self, damage: Damage) -> bool:
        """Whether it is a batch that is cut off at the end, if that is no damage."""
        return self.unfinished and damage.is_unfinished


class LogInputs:
    """Opens logs for a request.  The hidden ranges of a partition are determined once, at its first log."""

    def __init__(self, request: DumpRequest, learnt: IsolationState | None = None) -> None:
        """*learnt*: the transactions of the partition that earlier readings have found; updated."""
        self.request = request
        self._learnt = learnt
        self._directory: str | None = None
        self._seen = VisibleRange()
        self._aborted = AbortedFilter((), "")

    @contextmanager
    def open(self, target: DumpTarget, like_kafka: bool = False) -> Iterator[LogInput]:
        """Open a log, which is closed at the end of the block.  *like_kafka*: it is walked as Kafka walks it.

        Raises KlogError if it cannot be read.
        """
        request, segment = self.request, Segment(target.path)
        wanted = request.wanted.before_end(lambda: _log_end(target))
        if target.from_offset is not None:
            wanted = wanted._replace(from_offset=max(wanted.from_offset, target.from_offset))
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
            self._seen = visible_range(Partition(around.directory), "read_committed", self._learnt)
            self._aborted = AbortedFilter(self._seen.aborted or (), "")
            self._directory = around.directory
        return self._seen, self._aborted.for_log(target.path)


def _log_end(target: DumpTarget) -> int:
    """Return the end of the partition's log, or of the file if it is in none.  Raises UnreadableError."""
    around = with_surroundings(target)
    if around.segments:
        end = Partition(around.directory).log_end
        return end.offset if end is not None else 0
    return log_end_of(target)


def log_end_of(target: DumpTarget) -> int:
    """Return the offset at which one log file ends.  Raises UnreadableError."""
    from klog.log.log_end import find_log_end

    return find_log_end(target.path, _beside(target, "index"), Segment(target.path).base_offset or 0).offset


def _beside(target: DumpTarget, suffix: str) -> str | None:
    """Return the path of the index next to a log, None if there is none."""
    stem, dot, kind = target.path.rpartition(".")
    path = f"{stem}.{suffix}"
    return path if dot and kind == "log" and not is_missing(path) else None


def _start_of(source: ReadOnlyFile, target: DumpTarget, wanted: RecordFilter) -> int:
    """Return the position in the log where reading may begin."""
    if wanted.tail and wanted.limit is None:
        wanted = wanted._replace(from_offset=LONG_MAX)
    if wanted.from_offset == LONG_MIN and wanted.from_time == LONG_MIN:
        return 0
    index, time_index = _beside(target, "index"), _beside(target, "timeindex")
    return start_position(source, index, time_index, Segment(target.path).base_offset or 0, wanted)
