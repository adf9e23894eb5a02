"""The options of a dump, and the files that it covers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.commands.dump.reports import shown
from klog.data_dir.partition import segments_between
from klog.kernel import TEXT_BARE, TEXT_CONTENT, TEXT_RECORDS
from klog.log.json_lines import LineStyle
from klog.log.reader import MAX_BATCH_BYTES
from klog.log.record_filter import RecordFilter

if TYPE_CHECKING:
    from klog.data_dir.partition import Partition, SegmentFiles

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
    (log, index …) of files whose names do not show it.
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


class DumpTarget(NamedTuple):
    """A file to dump: its path, its name in the output, its segment and partition if it belongs to one.

    *segments* are all of the partition's, ascending; *segment* is the file's own, None for other files.
    *live*: a broker is writing this very file.  *may_go*: klog found it in a log dir of a broker that is running, so
    retention or compaction may remove it before it is read.
    """

    path: str
    segment: SegmentFiles | None = None
    segments: tuple[SegmentFiles, ...] = ()
    live: bool = False
    may_go: bool = False

    @property
    def shown(self) -> str:
        """The path as Kafka's tool prints it."""
        return shown(self.path)

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
    paths: Sequence[str], topics: Sequence[str], numbers: Sequence[int], with_indexes: bool, wanted: RecordFilter
) -> Iterator[DumpTarget]:
    """Yield the files that *paths* name: files as they are, directories by the segments that can match.

    Raises UsageError for a path that is none of these, and for topics and partitions that are not there.
    """
    for path in paths:
        if not os.path.isdir(path):
            yield DumpTarget(path)
            continue
        from klog.data_dir.log_dir import LogDir
        from klog.data_dir.selection import KafkaFile, open_path, select

        found = open_path(path)
        assert not isinstance(found, KafkaFile)
        partitions = select(found.partitions, topics, numbers) if isinstance(found, LogDir) else [found]
        for partition in partitions:
            yield from _files(partition, with_indexes, wanted)


def _files(partition: Partition, with_indexes: bool, wanted: RecordFilter) -> Iterator[DumpTarget]:
    from klog.data_dir.log_dir import LogDir
    from klog.formats.names import FileKind, file_name

    live = bool(LogDir(partition.log_dir).lock.held)
    segments = segments_between(partition.segments, wanted.from_offset, wanted.to_offset)
    for segment in segments[-1:] if wanted.tail else segments:
        last = segment is partition.segments[-1]
        yield DumpTarget(partition.file(segment.log), segment, partition.segments, live and last, live)
        if with_indexes:
            beside = [segment.offset_index, segment.time_index, segment.txn_index]
            snapshot = file_name(segment.base_offset, FileKind.SNAPSHOT)
            beside += [snapshot] if snapshot in {name.name for name in partition.snapshots} else []
            yield from (DumpTarget(partition.file(name), may_go=live) for name in beside if name)
    # the dump reports paths with a log's name that are no file (a link to nowhere, a FIFO)
    yield from (DumpTarget(partition.file(name)) for name in partition.others if name.endswith(".log"))
