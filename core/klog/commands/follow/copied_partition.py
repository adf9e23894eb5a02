"""A partition of a copy: appends batches in the form of a Fetch answer, byte for byte.

    taken = partition.append(records)       # of as many bytes as are whole batches
    partition.end                           # where to fetch next

Nothing is decoded.  Appended batches are on the disk when the `CopyDir` has flushed them.
"""

from __future__ import annotations

import os
from shlex import quote
from typing import NamedTuple

from klog.base.errors import DamagedError
from klog.base.read_only import ReadOnlyFile, names_if_there
from klog.base.unusable import UNUSABLE
from klog.commands.follow.live_directory import CopyDisk, LiveDirectory, remove_temporaries
from klog.commands.follow.partition_plans import cut_log, empty, names_below, needed_from, put_aside
from klog.data_dir.partition import Partition
from klog.formats.batch import BatchFacts
from klog.formats.checkpoint import EpochEntry, Malformed, write_epochs, write_partition_metadata
from klog.formats.names import FileKind, file_name
from klog.kernel import DONE, MORE, Window
from klog.log.log_end import find_log_end
from klog.partition.append.appender import Appender, AppendSettings
from klog.partition.append.log_resumption import CutShortError, load_producers, resume


class CrcMismatchError(DamagedError):
    """A batch does not have its checksum; those before it are appended.

    *offset*: its base offset.  *taken*: how many bytes were appended before it.
    """

    def __init__(self, message: str, offset: int, taken: int) -> None:
        super().__init__(message)
        self.offset, self.taken = offset, taken


class CopiedBatch(NamedTuple):
    """A batch of a copy: its header, whose position is in the file *log*."""

    log: str
    facts: BatchFacts

    def read(self) -> bytes:
        """Return all of it.  Raises UnreadableError."""
        with ReadOnlyFile(self.log) as log:
            return bytes(log.read(self.facts.position, self.facts.size))


class CopiedPartition:
    """A partition of a copy; `CopyDir.partition` makes it.

    *topic_id*: of its directory; None for topics of brokers without topic ids.  If it differs from the leader's, call
    `replace` first.  *torn*: the size of an unfinished batch, after a kill or a power cut, that was moved to the
    backup; 0 for none.  *lost*: offsets that were on the disk at the last flush, and are missing now, from the first to
    behind the last; None for none.
    """

    def __init__(
        self,
        copy: CopyDisk,
        topic: str,
        number: int,
        topic_id: str | None,
        settings: AppendSettings,
        cut_at: int | None = None,
    ) -> None:
        self._copy, self.topic, self.number, self.topic_id = copy, topic, number, topic_id
        self.settings = settings
        self.path = os.path.join(copy.path, f"{topic}-{number}")
        self.torn = self._batches = 0
        self.is_closed = True
        self.lost: tuple[int, int] | None = None
        self.backups: list[str] = []
        self._open(cut_at)

    @property
    def name(self) -> str:
        """The directory's name."""
        return f"{self.topic}-{self.number}"

    def _open(self, cut_at: int | None = None) -> None:
        """Find the end of the log; one that ends at *cut_at*, below its recovery point, is cut there.

        Raises DamagedError, UnreadableError, OSError.
        """
        copy, refusals = self._copy, UNUSABLE.refusals
        partition = Partition(self.path, copy.root)
        partition.check_listed()
        known = partition.recovery_point or 0
        believed = known if cut_at is None else min(known, cut_at)
        found = resume(partition, self.settings, copy.window, believed)
        UNUSABLE.check_read(refusals, "nothing is written to that copy")
        end = found.log.end
        if partition.segments and end < believed:
            advice = f"first: klog recover {quote(self.path)}"
            raise CutShortError(
                f"{self.path}: it ends at {end}, below its recovery point {known}; {advice}", end, known
            )
        if found.torn is not None or (partition.segments and end < known):
            if found.torn is not None:
                assert found.torn.place.position is not None, "it was found there"
                self.torn += partition.segments[-1].size - found.torn.place.position
            self.lost = (end, known) if end < known else None
            backup = cut_log(copy, self.path, end, self.settings.index_interval)
            self.backups += [backup] if backup is not None else []
            if end < known:
                copy.offsets.move(FileKind.RECOVERY_POINTS, self.topic, self.number, end)
            partition = Partition(self.path, copy.root)
            found = resume(partition, self.settings, copy.window, min(known, end))
        self._log, self._has_producers = found.log, False
        log = partition.segments[-1].log if partition.segments else None
        self._target = LiveDirectory(self.path, copy.files, copy.disk, log, dict(found.sizes))
        self._appender = Appender(found.log, self._target)
        self._epochs = list(partition.epochs.entries) if partition.epochs is not None else []
        self.is_closed = found.is_clean
        if not found.is_clean:
            remove_temporaries(self.path, copy.disk)
            # Data written by a killed process may be in memory alone.
            self._target.unsynced.update(dict.fromkeys(map(partition.file, names_if_there(self.path))))
            self._target.has_new_names = True
            for name, content in found.entries.items():
                self._target.put(name, content)
            copy.take_change(self)
        if isinstance(partition.metadata, Malformed):
            advice = f"first: klog recover {quote(self.path)}"
            raise DamagedError(f"{self.path}: partition.metadata, {partition.metadata}; {advice}")
        if partition.metadata is not None:
            self.topic_id = partition.metadata.topic_id
        elif self.topic_id is not None:
            self._begin_change()
            self._target.put(FileKind.PARTITION_METADATA.value, write_partition_metadata(self.topic_id))
        known = copy.offsets.get(FileKind.HIGH_WATERMARKS, self.topic, self.number) or 0
        self.high_watermark = min(known, self.end)

    # its path

    @property
    def end(self) -> int:
        """The log end offset, the next to fetch."""
        return self._log.end

    @property
    def log_start(self) -> int:
        """The log start offset."""
        return self._log.start

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last batch; -1 where there is none."""
        return self._log.epochs.latest

    @property
    def epochs(self) -> list[EpochEntry]:
        """The leader epochs, each with the first offset of it."""
        return self._log.epochs.entries

    @property
    def batches(self) -> int:
        """How many batches were appended since it was opened."""
        return self._batches + self._appender.batches

    def last_batch(self) -> CopiedBatch | None:
        """Return the last batch that there is; None without one.  Raises UnreadableError."""
        for files in reversed(Partition(self.path).segments):
            log = os.path.join(self.path, files.log)
            index = os.path.join(self.path, files.offset_index) if files.offset_index else None
            last = find_log_end(log, index, files.base_offset).last
            if last is not None:
                return CopiedBatch(log, last)
        return None

    # taking batches

    def append(self, data: bytes | bytearray | memoryview) -> int:
        """Append the whole batches in *data*, which begin at byte 0; return how many bytes these are.

        A batch that is incomplete in *data* is left: the result is 0 if it is the first one.  The first may begin below
        `end` only if the active segment is empty.  Raises CrcMismatchError; DamagedError for bytes that are no batch,
        after appending those before them, and for offsets or leader epochs out of order, before anything is written;
        OSError.
        """
        window = self._copy.window
        window.lend(data)
        try:
            return self._append_all(window)
        finally:
            window.buffer(0)  # the owner of the bytes may use them again

    def _append_all(self, window: Window) -> int:
        status = window.scan(0, check=True)
        good = window.first_bad(0, window.count)
        taken = window.at(good) if good < window.count else window.next_at
        if good:
            self._append(window, good)
        if good < window.count:
            facts = window.batch(good)
            what = f"its checksum is {facts.crc:#010x}, computed {facts.computed_crc:#010x}"
            raise CrcMismatchError(f"{self.name}: batch {facts.base_offset}: {what}", facts.base_offset, taken)
        if status not in (DONE, MORE):
            raise DamagedError(f"{self.name}: the bytes after offset {self.end - 1} are not a batch")
        return taken

    def _append(self, window: Window, end: int) -> None:
        self._begin_change()
        log, start, first = self._log, self._log.start, window.batch(0)
        if first.base_offset < self.end <= first.last_offset and not log.segment.size:
            self._begin_below(first.base_offset)
        with self._copy.writing():
            self._appender.append(window, 0, end)
        if log.start < start:  # the first segment has a lower name now
            log.start = start
            self._copy.offsets.move(FileKind.LOG_STARTS, self.topic, self.number, start)
        self._raise_high_watermark()

    def _begin_below(self, base: int) -> None:
        """Rename an empty active segment to *base*, the first batch that continues the log.

        Raises DamagedError if older segments contain it already.
        """
        segments = Partition(self.path).segments[:-1]
        floor = 0
        if segments:
            last = segments[-1]
            index = os.path.join(self.path, last.offset_index) if last.offset_index else None
            floor = find_log_end(os.path.join(self.path, last.log), index, last.base_offset).offset
        if base < max(floor, 0):
            raise DamagedError(f"{self.name}: batch {base} cannot follow: the log ends at {floor}")
        self._log.end = base

    def _begin_change(self) -> None:
        """Make ready for a change."""
        if not self._has_producers:
            self._load_producers()
        self.is_closed = False
        self._copy.take_change(self)

    def _load_producers(self) -> None:
        """Find the producers at the end of the log, and the aborted transactions of its active segment."""
        self._has_producers = True
        load_producers(Partition(self.path, self._copy.root), self._log, self._log.end)

    def skip_to(self, offset: int) -> None:
        """Continue at *offset*: the leader's log starts there, above `end`.

        The batches between were deleted before they were copied.  The batch with *offset* may begin below it.  Raises
        OSError.
        """
        if offset > self.end:
            self._begin_change()
            with self._copy.writing():
                self._appender.skip_to(offset)
            self._raise_high_watermark()

    # offsets beside the log

    def set_high_watermark(self, offset: int) -> None:
        """Set the high watermark to *offset*, but within the log.  Kafka: ReplicaFetcherThread."""
        self.high_watermark = max(min(offset, self.end), self.log_start)
        self._copy.offsets.move(FileKind.HIGH_WATERMARKS, self.topic, self.number, self.high_watermark)

    def move_start(self, offset: int) -> None:
        """Move the log start to *offset*, up to the log end; no segment is deleted.  It never moves back."""
        offset = min(offset, self.end)
        if offset > self.log_start:
            self._log.start = offset
            self._copy.offsets.move(FileKind.LOG_STARTS, self.topic, self.number, offset)
            self._raise_high_watermark()

    def _raise_high_watermark(self) -> None:
        """Ensure that it is not below the log start.  Kafka: UnifiedLog.updateLogStartOffset."""
        if self.high_watermark < self.log_start:
            self.set_high_watermark(self.log_start)

    def prune(self) -> int:
        """Remove the segments wholly below the log start; return how many.  Raises OSError."""
        partition = Partition(self.path)
        kept = needed_from(partition, self.log_start)
        gone = names_below(partition, kept)
        if gone:
            # The log must never start in them again.
            self._copy.flush()
            with self._copy.writing():
                for name in gone:
                    self._copy.disk.unlink(os.path.join(self.path, name))
                self._copy.disk.sync([self.path])
        return sum(files.base_offset < kept for files in partition.segments)

    def put_aside(self) -> str | None:
        """Move the segments wholly below the log start to the backup, as a plan; return the backup.

        None if there are none.  Raises KlogError, OSError.
        """
        partition = Partition(self.path)
        kept = needed_from(partition, self.log_start)
        return put_aside(self._copy, self.path, kept) if names_below(partition, kept) else None

    # histories that part

    def cut(self, offset: int) -> str | None:
        """Cut the log so that no batch from *offset* on is left; return the backup.

        The result is None if there was nothing to cut.  It works as `klog truncate`: `klog plans` lists the backup,
        `klog undo` restores it.  A cut below the log start leaves an empty log that starts at 0.  Raises KlogError,
        OSError.
        """
        if offset >= self.end:
            return None
        self._copy.settle([self])
        self._batches += self._appender.batches
        first = min((files.base_offset for files in Partition(self.path).segments), default=0)
        if offset >= max(self.log_start, first):
            backup = cut_log(self._copy, self.path, offset, self.settings.index_interval)
        else:
            backup = empty(self._copy, self.path, self.topic_id)
        self._open()
        return backup

    def replace(self, topic_id: str | None) -> str | None:
        """Start over, as a partition of the topic with that id; return the backup of the old files.

        Raises KlogError, OSError.
        """
        self._copy.settle([self])
        self._batches += self._appender.batches
        self.topic_id = topic_id
        backup = empty(self._copy, self.path, topic_id)
        self._open()
        return backup

    # to the disk

    def prepare_flush(self) -> LiveDirectory:
        """Write the state that only memory has; return the files to sync.  Raises OSError."""
        segment = self._log.segment
        for kind, content in zip((FileKind.INDEX, FileKind.TIME_INDEX), segment.take_entries(), strict=True):
            if content:
                self._target.put(file_name(segment.base, kind), content)
        if self._epochs != self._log.epochs.entries:
            self._epochs = list(self._log.epochs.entries)
            self._target.put(FileKind.LEADER_EPOCHS.value, write_epochs(self._epochs))
        return self._target

    def end_flush(self) -> None:
        """Take note that all of it is on the disk."""
        self._copy.offsets.move(FileKind.RECOVERY_POINTS, self.topic, self.number, self.end)

    def prepare_close(self) -> LiveDirectory:
        """Write the files of a clean stop, after a flush; return the files to sync.  Raises OSError."""
        if not self._has_producers:
            self._load_producers()
        self._appender.close()
        return self._target

    def end_close(self) -> bool:
        """Remove the snapshots that a broker removes at its next start; return whether there were any.  Raises OSError.

        These belong to no segment, and not to the log's end.
        """
        self.is_closed = True
        partition = Partition(self.path)
        kept = {self.end, *(files.base_offset for files in partition.segments)}
        gone = [file.name for file in partition.snapshots if file.offset not in kept]
        for name in gone:
            self._copy.disk.unlink(os.path.join(self.path, name))
        self._target.close()
        return bool(gone)
