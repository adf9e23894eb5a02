"""A partition directory: its segments, snapshots and epochs, and its log end offset.

    for partition in LogDir("data").partitions:
        print(partition.topic, partition.number, len(partition.segments), partition.log_end)

The directory is listed once, at the first access, and nothing is kept open.  A running broker creates and deletes files
meanwhile: a missing or unreadable file is a value, never an exception.
"""

from __future__ import annotations

import os
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.base.read_only import is_missing, list_directory
from klog.base.unusable import UNUSABLE
from klog.data_dir.root_files import RootFiles, note_malformed, read_small
from klog.formats.checkpoint import (
    Checkpoint,
    EpochEntry,
    Malformed,
    PartitionMetadata,
    epochs_in_force,
    read_epochs,
    read_partition_metadata,
)
from klog.formats.names import (
    SEGMENT_KINDS,
    FileKind,
    FileName,
    PartitionName,
    PartitionState,
    Stage,
    belongs,
    file_name,
    parse_file,
    parse_partition,
)
from klog.log.log_end import LogEnd, find_log_end


class BrokerFiles(NamedTuple):
    """The content of a log dir or a partition directory, by name.  *sizes*: bytes of its logs, by name.

    *unreadable*: the reason why it could not be listed, None when it could; all other fields are then empty.
    """

    files: tuple[FileName, ...] = ()
    directories: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    sizes: dict[str, int] = {}  # noqa: RUF012  # never changed
    unreadable: str | None = None


def list_broker_files(path: str) -> BrokerFiles:
    """List a directory."""
    try:
        found = list_directory(path, sized=".log")
    except OSError as error:
        UNUSABLE.refuse(path, error, "list")
        return BrokerFiles(unreadable=f"cannot be listed: {error.strerror}")
    return BrokerFiles(tuple(sorted(map(parse_file, found.files))), found.directories, found.others, found.sizes)


class BrokerDirectory:
    """A directory that is listed once, at the first access."""

    def __init__(self, path: str) -> None:
        self.path = path

    @cached_property
    def _listing(self) -> BrokerFiles:
        return list_broker_files(self.path)

    @property
    def files(self) -> tuple[FileName, ...]:
        """The regular files of the directory itself, by name."""
        return self._listing.files

    @property
    def others(self) -> tuple[str, ...]:
        """Names of pipes, links to nothing and other special entries, which brokers ignore."""
        return self._listing.others

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in the directory, or it cannot be listed."""
        found = self._listing
        return not (found.files or found.directories or found.others)

    @property
    def leftovers(self) -> tuple[FileName, ...]:
        """Files of interrupted or unfinished operations: `.deleted`, `.cleaned`, `.swap`, `.part`, `.tmp`."""
        return tuple(file for file in self.files if file.stage is not Stage.IN_USE)


class SegmentFiles(NamedTuple):
    """The names of a segment's files, None for one that is not there.  *size*: bytes of the log as it was listed."""

    base_offset: int
    size: int
    log: str
    offset_index: str | None
    time_index: str | None
    txn_index: str | None


class Partition(BrokerDirectory):
    """A partition directory.  Its path need not end in a name a broker would accept: then *topic*, *number* are None.

    *name*: the parsed last part of the path, *listing*: its content or a part of it, for callers that have it already.
    """

    def __init__(
        self,
        path: str,
        checkpoints: RootFiles | None = None,
        name: PartitionName | None = None,
        listing: BrokerFiles | None = None,
    ) -> None:
        super().__init__(path)
        if listing is not None:
            self._listing = listing
        self._prefix = os.path.join(path, "")
        self.directory = os.path.basename(os.path.abspath(path)) if name is None else name.name
        self.name = name = parse_partition(self.directory) if name is None else name
        self.topic = name.topic if name else None
        self.number = name.partition if name else None
        self.state = name.state if name else PartitionState.CURRENT
        self._checkpoints = checkpoints

    @property
    def log_dir(self) -> str:
        """The absolute path of the directory around it."""
        return os.path.dirname(os.path.abspath(self.path))

    @cached_property
    def log_files(self) -> tuple[FileName, ...]:
        """The files of the log, by name, and the leftovers: what a broker's start may remove."""
        return tuple(filter(belongs, self.files))

    def file(self, name: str) -> str:
        """Return the path of a file in the directory."""
        return self._prefix + name

    @cached_property
    def checkpoints(self) -> RootFiles:
        """The checkpoint files of the log dir around it."""
        return self._checkpoints or RootFiles(self.log_dir)

    def with_files(self, files: Mapping[str, tuple[str, int] | bytes]) -> Partition:
        """Return this partition as if its segments and snapshots were *files*, by their future names.

        A value refers to the content: name and size (bytes) of a file of the directory, or the bytes themselves for a
        new file.  `segments` have the present names of the files, `snapshots` the future ones.
        """
        other = Partition(self.path, self.checkpoints, self.name, self._listing)
        parsed = [file for file in map(parse_file, files) if file.offset is not None]
        logs = [file for file in parsed if file.kind is FileKind.LOG]
        other.segments = tuple(
            _future_segment(files, file.offset) for file in _by_offset(logs) if file.offset is not None
        )
        other.snapshots = _by_offset(file for file in parsed if file.kind is FileKind.SNAPSHOT)
        return other

    # the existing files

    @property
    def unreadable(self) -> str | None:
        """Why the directory could not be listed; None when it could."""
        return self._listing.unreadable

    def check_listed(self) -> None:
        """Raise UnreadableError when the directory could not be listed: then nothing that is missing is known to be."""
        if self.unreadable is not None:
            raise UnreadableError(f"{self.path}: {self.unreadable}")

    @cached_property
    def segments(self) -> tuple[SegmentFiles, ...]:
        """The segments, base offsets ascending; the last is the active one.

        A log whose name a broker would not have written (`5.log`) counts when no other has its offset; a log whose name
        gives no offset never does.
        """
        by_offset: dict[int, dict[FileKind, FileName]] = {}
        for file in self.files:
            in_use = file.stage is Stage.IN_USE and file.kind in SEGMENT_KINDS
            if in_use and file.offset is not None and file.offset >= 0:
                found = by_offset.setdefault(file.offset, {})
                if file.kind not in found or file.canonical:
                    found[file.kind] = file
        return tuple(
            _segment(offset, found, self._listing.sizes)
            for offset, found in sorted(by_offset.items())
            if FileKind.LOG in found
        )

    @property
    def size(self) -> int:
        """Bytes of all logs as they were listed."""
        return sum(segment.size for segment in self.segments)

    @cached_property
    def snapshots(self) -> tuple[FileName, ...]:
        """The producer snapshots in use, by their offset."""
        found = [file for file in self.files if file.kind is FileKind.SNAPSHOT and file.stage is Stage.IN_USE]
        return _by_offset(file for file in found if file.offset is not None)

    # its content

    def _small(self, kind: FileKind) -> bytes | Malformed | None:
        """Return the content of one of the partition's text files, None when it is not there."""
        path = self.file(kind.value)
        if "_listing" in self.__dict__:
            return read_small(path) if any(file.name == kind.value for file in self.files) else None
        # do not list the directory for this file alone: callers ask thousands of partitions for the epoch
        content = read_small(path)
        return None if isinstance(content, Malformed) and is_missing(path) else content

    @cached_property
    def metadata(self) -> PartitionMetadata | Malformed | None:
        """The content of `partition.metadata`; None when there is no such file, as before 2.8."""
        content = self._small(FileKind.PARTITION_METADATA)
        found = read_partition_metadata(content) if isinstance(content, bytes) else content
        return note_malformed(self.file(FileKind.PARTITION_METADATA.value), found)

    @property
    def topic_id(self) -> str | None:
        """The topic's id in its 22 letters; None when it is not given or not readable."""
        return self.metadata.topic_id if isinstance(self.metadata, PartitionMetadata) else None

    @cached_property
    def epochs(self) -> Checkpoint[EpochEntry] | None:
        """The content of `leader-epoch-checkpoint`; None when there is no such file."""
        content = self._small(FileKind.LEADER_EPOCHS)
        if content is None:
            return None
        found = read_epochs(content) if isinstance(content, bytes) else Checkpoint[EpochEntry]((), content)
        note_malformed(self.file(FileKind.LEADER_EPOCHS.value), found.malformed)
        return found

    @property
    def leader_epoch(self) -> int | None:
        """The latest leader epoch of the checkpoint; None when it has none."""
        kept = epochs_in_force(self.epochs.entries) if self.epochs and not self.epochs.malformed else []
        return kept[-1].epoch if kept else None

    def _checkpointed(self, kind: FileKind) -> int | None:
        # The checkpoint's entry for this topic and number belongs to the current directory, not to a deleted one.
        if self.name is None or self.state in (PartitionState.DELETE, PartitionState.STRAY):
            return None
        return self.checkpoints.offset(kind, self.name.topic, self.name.partition)

    @cached_property
    def high_watermark(self) -> int | None:
        """The high watermark in the log dir's checkpoint; None without an entry."""
        return self._checkpointed(FileKind.HIGH_WATERMARKS)

    @cached_property
    def recovery_point(self) -> int | None:
        """The offset below which all is on disk, from the log dir's checkpoint; None counts as 0 to a broker."""
        return self._checkpointed(FileKind.RECOVERY_POINTS)

    @cached_property
    def cleaner_offset(self) -> int | None:
        """The first offset that the cleaner has not cleaned; None when it never cleaned here."""
        return self._checkpointed(FileKind.CLEANER_OFFSETS)

    @cached_property
    def log_start_checkpoint(self) -> int | None:
        """The log start offset in the log dir's checkpoint; None without an entry."""
        return self._checkpointed(FileKind.LOG_STARTS)

    @property
    def log_start_offset(self) -> int | None:
        """The first offset that can be read: the checkpoint's or the first segment's, whichever is higher.

        None when there is neither.  Kafka: LogLoader.load.
        """
        starts = [segment.base_offset for segment in self.segments[:1]]
        checkpointed = self.log_start_checkpoint
        return max([*starts, checkpointed] if checkpointed is not None else starts, default=None)

    @property
    def start_by_epochs(self) -> int | None:
        """The start of the leader epochs, if the log start of the checkpoint is above it and the log has records there.

        None otherwise.  A broker that raises a log start gives the epoch in force the same start offset, long before it
        writes the checkpoint: such a log start is none of a broker's.  Epochs that begin with the first segment prove
        nothing: they were rebuilt from the log.  Kafka: UnifiedLog.maybeIncrementLogStartOffset,
        LeaderEpochFileCache.truncateFromStart.
        """
        raised = self.log_start_checkpoint
        if not raised or not self.segments or (found := self.epochs) is None or found.malformed:
            return None
        first = next(iter(epochs_in_force(found.entries)), None)
        if first is None or not self.segments[0].base_offset < first.start_offset < raised:
            return None
        return first.start_offset

    @property
    def raised_start(self) -> str | None:
        """A sentence about the records below a log start that no broker has raised; None without such a log start."""
        first = self.start_by_epochs
        if first is None:
            return None
        hides = f"the log start {self.log_start_offset} hides records, and the leader epochs begin at {first}"
        return f"{self.path}: {hides} (log-start-raised)"

    def tiered_log_start(self) -> int:
        """Return the first offset that can be read if a part of the log is in remote storage: the checkpoint's, or 0.

        The first segment's base is then the local log start offset.  Kafka: LogLoader.load, with isRemoteLogEnabled.
        """
        return self.log_start_checkpoint or 0

    @cached_property
    def log_end(self) -> LogEnd | None:
        """The end of the log, computed from the last segment; None without a segment.

        Raises UnreadableError when its log cannot be read.
        """
        if not self.segments:
            return None
        last = self.segments[-1]
        index = self.file(last.offset_index) if last.offset_index else None
        return find_log_end(self.file(last.log), index, last.base_offset)


def _by_offset(files: Iterable[FileName]) -> tuple[FileName, ...]:
    return tuple(sorted(files, key=lambda file: file.offset or 0))


def _future_segment(files: Mapping[str, tuple[str, int] | bytes], base_offset: int) -> SegmentFiles:
    """Return the segment that *files* (see `Partition.with_files`) will have at *base_offset*."""
    stored = [files.get(file_name(base_offset, kind)) for kind in SEGMENT_KINDS]
    log = stored[0]
    assert isinstance(log, tuple)  # no repair writes a log from memory
    names = [content[0] if isinstance(content, tuple) else None for content in stored[1:]]
    return SegmentFiles(base_offset, log[1], log[0], *names)


def _segment(offset: int, files: dict[FileKind, FileName], sizes: dict[str, int]) -> SegmentFiles:
    names = {kind: file.name for kind, file in files.items()}
    return SegmentFiles(
        offset,
        sizes.get(names[FileKind.LOG], 0),
        names[FileKind.LOG],
        names.get(FileKind.INDEX),
        names.get(FileKind.TIME_INDEX),
        names.get(FileKind.TXN_INDEX),
    )


def segments_between(segments: Sequence[SegmentFiles], first: int, end: int) -> tuple[SegmentFiles, ...]:
    """Return the segments, which ascend, from the one with offset *first* to the last that begins below *end*.

    Kafka: LogSegments.values.
    """
    if first >= end:
        return ()
    bases = [files.base_offset for files in segments]
    return tuple(segments[max(bisect_right(bases, first) - 1, 0) : bisect_left(bases, end)])
