"""The log of a partition on its way through a broker's start: its segments, snapshots and leader epochs.

`settle` treats the files of unfinished operations as the first three passes of a start do.  Kafka:
LogLoader.removeTempFilesAndCollectSwapFiles, LogLoader.load, LeaderEpochFileCache.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from klog.base.errors import UnreadableError
from klog.base.overlays import overlay_file
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import Content, FileRange, StoredContent, content_size
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import EpochEntry, write_epochs
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.formats.names import SEGMENT_KINDS, FileKind, FileName, Stage, file_name, parse_file, segment_names
from klog.formats.producer_snapshot import write_snapshot
from klog.kernel import crc32c
from klog.log.segment import MAX_SEGMENT_BYTES
from klog.partition.start.producer_recovery import SnapshotFiles
from klog.partition.start.start_files import FailsError, ReadSettings, SegmentCut, StartSegment


class Epochs:
    """The leader epochs, and whether their file is rewritten."""

    def __init__(self, partition: Partition) -> None:
        found = partition.epochs
        if found is not None and found.malformed is not None:
            problem = found.malformed
            raise FailsError(f"leader-epoch-checkpoint, {problem}", "epochs-malformed", not problem.is_unchecked)
        self._cache = LeaderEpochCache(found.entries if found else ())
        self._is_missing = found is None
        self._is_changed = False

    @property
    def entries(self) -> list[EpochEntry]:
        """The epochs with their start offsets, ascending in both."""
        return self._cache.entries

    @property
    def latest(self) -> int:
        """The latest epoch; -1 without one."""
        return self._cache.latest

    def assign(self, entries: Iterable[tuple[int, int]]) -> None:
        """Add epochs that batches began, as (epoch, start offset)."""
        for epoch, start_offset in entries:
            self._cache.assign(epoch, start_offset)
            self._is_changed = True

    def clear(self) -> None:
        """Remove all."""
        self._is_changed = True
        self._cache = LeaderEpochCache()

    def cut_end(self, log_end: int) -> None:
        """Remove epochs that begin at *log_end* or beyond."""
        before = len(self.entries)
        self._cache.truncate_end(log_end)
        self._is_changed |= len(self.entries) < before

    def cut_start(self, log_start: int) -> None:
        """Remove epochs that had ended at *log_start*; the one in force there begins there."""
        self._is_changed |= any(entry.start_offset <= log_start for entry in self.entries)
        self._cache.truncate_start(log_start)

    @property
    def content(self) -> bytes | None:
        """The new content of the file; None when it is unchanged.  A missing one is created."""
        if self._is_changed:
            return write_epochs(self.entries)
        return b"" if self._is_missing else None


def settle(partition: Partition, settings: ReadSettings) -> dict[str, Content]:
    """Return the files of the log under the names that they have after the three passes.

    Raises FailsError for names over which a broker does not start, UnreadableError.
    """
    files = partition.log_files
    cleaned = [offset_of(file) for file in files if file.stage is Stage.CLEANED]
    swaps = [file for file in files if file.stage is Stage.SWAP and offset_of(file) < min(cleaned, default=2**63)]
    start, end = _replaced(partition, settings, swaps)
    settled: dict[str, Content] = {}
    for file in files:
        if file.stage is Stage.IN_USE and not (file.offset is not None and start <= file.offset < end):
            settled[file.name] = _stored(partition, file.name)
    for file in swaps:
        settled[file.name.removesuffix(Stage.SWAP.value)] = _stored(partition, file.name)
        offset = offset_of(file)
        index = file_name(offset, FileKind.INDEX, Stage.SWAP)
        if file.kind is FileKind.LOG and all(other.name != index for other in swaps):
            # Opening the log to find its end creates an index of full length, which is then renamed to its final name.
            size = settings.index_bytes // OFFSET_ENTRY.size * OFFSET_ENTRY.size
            settled[file_name(offset, FileKind.INDEX)] = bytes(size)
    return settled


def _replaced(partition: Partition, settings: ReadSettings, swaps: list[FileName]) -> tuple[int, int]:
    """Return the offsets, from and up to, whose segments the finished ones among *swaps* replace."""
    start, end = LONG_MAX, LONG_MIN
    if not swaps:
        return start, end
    from klog.partition.start.segment_recovery import PartitionReader

    reading = PartitionReader(partition.path, settings)
    for file in swaps:
        if file.kind is not FileKind.LOG:
            continue
        base = offset_of(file)
        segment = StartSegment(base, (FileRange(file.name, 0, _stored(partition, file.name).size),))
        index = file_name(base, FileKind.INDEX, Stage.SWAP)
        if any(other.name == index for other in swaps):
            segment.offset_index = _stored(partition, index)
        start, end = min(start, base), max(end, reading.next_offset(segment))
    return start, end


def offset_of(file: FileName) -> int:
    """Return the offset in a file's name.  Raises FailsError if a broker stumbles over a name without one."""
    offset = file.offset if file.offset is not None else parse_file(file.name).offset
    if offset is None:
        raise FailsError(f"NumberFormatException: {file.name}", "foreign-log-name")
    return offset


def _stored(partition: Partition, name: str) -> StoredContent:
    path = os.path.join(partition.path, name)
    if overlay_file(path) is not None:
        with ReadOnlyFile(path) as file:
            return StoredContent(name, file.size)
    try:
        return StoredContent(name, os.stat(path).st_size)
    except OSError as error:
        raise UnreadableError(f"{path}: {error.strerror}") from error


class StartLog:
    """The segments by base offset, and the snapshots; *cuts*, *dropped*: their lost parts.

    *files*: the files of the log in the directory, by name.
    """

    def __init__(self, folder: str, files: Mapping[str, Content]) -> None:
        self.segments: dict[int, StartSegment] = {}
        self.cuts: dict[int, SegmentCut] = {}
        self.dropped: list[int] = []
        self._files = dict(files)
        parsed = [parse_file(name) for name in sorted(files)]
        self.snapshots = SnapshotFiles(
            folder, [(offset_of(file), file.name) for file in parsed if file.kind is FileKind.SNAPSHOT]
        )
        self._known = set(self.snapshots.files)  # the files listed before recovery adds some

    @property
    def bases(self) -> list[int]:
        """The base offsets of the segments, ascending."""
        return sorted(self.segments)

    def in_directory(self) -> list[int]:
        """Return the base offsets of the segments in the directory."""
        found = []
        for file in [parse_file(name) for name in sorted(self._files)]:
            if file.kind not in SEGMENT_KINDS:
                continue
            offset = offset_of(file)
            if file.kind is FileKind.LOG:
                if file.name != file_name(offset, FileKind.LOG):
                    raise FailsError(
                        f"{file.name}: a name that no broker writes; what one makes of it is not followed here"
                    )
                found.append(offset)
        return found

    def open(self, base: int) -> StartSegment:
        """Return a segment of the directory.  Raises FailsError if no broker opens it."""
        name, *indexes = segment_names(base)
        log = self._files[name]
        assert isinstance(log, StoredContent)
        if log.size > MAX_SEGMENT_BYTES:
            raise FailsError(f"{log.name}: {log.size} bytes are more than a broker opens")
        segment = StartSegment(base, (FileRange(log.name, 0, log.size),))
        segment.offset_index, segment.time_index, segment.txn_index = map(self._files.get, indexes)
        return segment

    def replace(self, segment: StartSegment, parts: list[StartSegment]) -> None:
        """Replace a segment by *parts*, and its files by theirs."""
        del self.segments[segment.base]
        self.segments.update((part.base, part) for part in parts)
        for name in segment_names(segment.base):
            self._files.pop(name, None)
        if all(part.base != segment.base for part in parts):
            self._forget_snapshot(segment.base)

    def _forget_snapshot(self, base: int) -> None:
        if base in self._known:
            self.snapshots.files.pop(base, None)

    def empty(self, segment: StartSegment) -> None:
        """Kafka: LogSegment.truncateTo, to the segment's own base offset."""
        self.cut(segment, 0, segment.base)
        segment.offset_index = segment.time_index = b""
        segment.txn_index = None if segment.txn_index is None else b""

    def cut(self, segment: StartSegment, size: int, next_offset: int) -> None:
        """Keep *size* bytes of a segment's log, which then ends before *next_offset*."""
        if size < segment.size:
            before = self.cuts[segment.base].before if segment.base in self.cuts else segment.size
            self.cuts[segment.base] = SegmentCut(segment.base, next_offset, size, before)
            name, start, _ = segment.log[0]
            segment.log = (FileRange(name, start, start + size),)
        segment.next_offset = None  # a broker looks for it once more, and where offsets go backwards finds another

    def drop(self, bases: Iterable[int]) -> None:
        """Remove segments."""
        for base in bases:
            del self.segments[base]
            self.cuts.pop(base, None)
            self._forget_snapshot(base)
            self.dropped.append(base)

    def begin_at(self, offset: int) -> None:
        """Add a segment without batches, which the log begins with."""
        segment = self.segments[offset] = StartSegment(offset, ())
        segment.offset_index = segment.time_index = b""
        segment.next_offset = offset

    def drop_all(self) -> None:
        """Remove all segments and the snapshots that were there."""
        self.drop(self.bases)
        for offset in self._known:
            self.snapshots.files.pop(offset, None)

    @property
    def pieces(self) -> dict[str, tuple[FileRange, ...]]:
        """The pieces of each log, by its name."""
        return {file_name(base, FileKind.LOG): segment.log for base, segment in self.segments.items()}

    def other_files(self) -> dict[str, Content]:
        """Return the indexes and snapshots that a clean stop leaves, by name."""
        files: dict[str, Content] = {}
        active = max(self.segments)
        for base, segment in self.segments.items():
            is_open = segment.is_open or base == active
            names = segment_names(base)[1:]
            contents = (
                (segment.offset_index, OFFSET_ENTRY.size if is_open else 1),
                (segment.time_index, TIME_ENTRY.size if base == active else 1),
                (segment.txn_index, 1),
            )
            for name, (content, size) in zip(names, contents, strict=True):
                if content is not None:
                    files[name] = _trimmed(content, size)
        for offset, snapshot in self.snapshots.files.items():
            if snapshot.name is not None:
                files[snapshot.name] = self._files[snapshot.name]
            else:
                files[file_name(offset, FileKind.SNAPSHOT)] = write_snapshot(snapshot.producers, crc32c)
        return files

    def check_room(self, index_bytes: int) -> None:
        """Raise FailsError if the active indexes have more than *index_bytes*, which becomes their length."""
        active = self.segments[max(self.segments)]
        for content, entry in ((active.offset_index, OFFSET_ENTRY), (active.time_index, TIME_ENTRY)):
            used = content_size(content) // entry.size * entry.size
            if used > index_bytes // entry.size * entry.size:
                raise FailsError(
                    f"{file_name(active.base, FileKind.LOG)}: an index of {used} bytes, {index_bytes} are allowed"
                )


def _trimmed(content: Content, entry_bytes: int) -> Content:
    """Return an index as a clean stop leaves it, when it was in use: whole entries only."""
    if isinstance(content, StoredContent):
        return content._replace(size=content.size - content.size % entry_bytes)
    return content
