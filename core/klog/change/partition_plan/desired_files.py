"""The desired files of a partition, the changes to them, in an order that may stop anywhere, and the lost records.

A broker that starts between two of them finds a log that is as long as before, or shorter, in whole segments; an index
never extends beyond its log; a snapshot is deleted only when its successor exists.

If a segment is split, its moved part exists under its new name before the old one is cut, the last segment first: the
log keeps its end all the while.  In between two files contain these batches.  A broker looks for their offsets in the
segment that begins last at or below them, and reads them once; if it recovers the old one, it splits it itself, and its
own segments replace the existing ones.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import Content, DigestedLog, FileRange, PatchedLog, SplicedLog, intact
from klog.change.plan.draft import Draft
from klog.change.plan.model import Digest, Loss
from klog.cluster.leader_epoch_cache import LeaderEpochCache
from klog.data_dir.partition import Partition
from klog.formats.batch import BatchFacts
from klog.formats.checkpoint import Checkpoint, EpochEntry, epochs_in_force
from klog.formats.damage import Damage
from klog.formats.entry_header import HEADER_BYTES, read_header
from klog.formats.java_integers import LONG_MAX
from klog.formats.names import SEGMENT_KINDS, FileKind, FileName, Stage, parse_file
from klog.kernel import SegmentSurvey
from klog.log.bit_flips import Patch
from klog.log.segment import Segment


def rebuilt(found: Checkpoint[EpochEntry] | None, seen: Sequence[tuple[int, int]], end: int) -> list[EpochEntry]:
    """Return the epochs up to the log end offset *end*: those of the checkpoint without a contradiction by a batch.

    *found*: the checkpoint.  *seen*: the epochs that batches began, each with the first one's base offset.  An epoch in
    which nothing was written is known from the checkpoint alone.
    """
    said = epochs_in_force(found.entries) if found is not None else []
    entries = dict(reversed(seen))
    for epoch, start in said:
        before = max((offset for other, offset in seen if other < epoch), default=-1)
        behind = min((offset for other, offset in seen if other >= epoch), default=end)
        if before < start <= behind:
            entries[epoch] = start
    kept = epochs_in_force(EpochEntry(epoch, entries[epoch]) for epoch in sorted(entries))
    return [entry for entry in kept if entry.start_offset < end]


def rebuilt_from_start(partition: Partition, seen: Sequence[tuple[int, int]], end: int) -> list[EpochEntry]:
    """Return the same for a partition, from its log start on, as a broker cuts them in each start.

    If the epochs show that no broker has raised the log start, they begin where they did: the records between are not
    taken for deleted ones afterwards.  Kafka: LogLoader.load, with truncateFromStartAsyncFlush.
    """
    cache = LeaderEpochCache(rebuilt(partition.epochs, seen, end))
    by_epochs, checkpointed = partition.start_by_epochs, partition.tiered_log_start()
    start = checkpointed if by_epochs is None else by_epochs
    if start <= end:  # otherwise the line in the checkpoint is removed
        cache.truncate_start(start)
    return cache.entries


_STEP_BYTES = 1 << 20


class DesiredFiles(NamedTuple):
    """The desired content of the directory.

    *logs*: the pieces of each log, *files*: every other file of the log, both by name; files of the log in neither are
    deleted.  *epochs*: the new `leader-epoch-checkpoint`, None if it is unchanged.  *patches*: of the pieces' files.
    *is_intact*: the pieces are whole batches, whose checksums match: a log that has changed since is not copied.
    """

    logs: Mapping[str, tuple[FileRange, ...]]
    files: Mapping[str, Content]
    epochs: bytes | None = None
    patches: Mapping[str, tuple[Patch, ...]] = MappingProxyType({})
    is_intact: bool = False


def draft_changes(draft: Draft, partition: Partition, target: DesiredFiles) -> None:
    """Add to *draft* all that must change.  Raises UnreadableError, OSError (staging)."""
    _Writer(draft, partition, target).write()


class _Writer:
    def __init__(self, draft: Draft, partition: Partition, target: DesiredFiles) -> None:
        self._draft, self._partition, self._target = draft, partition, target
        self._there = {file.name: file for file in partition.log_files}
        self._kept = {*target.logs, *target.files}

    def write(self) -> None:
        self._remove_void()
        moved = sorted(name for name, pieces in self._target.logs.items() if self._is_moved(name, pieces))
        for name in reversed(moved):
            self._segment(name)
        gone = [file for file in self._there.values() if file.name not in self._kept]
        self._remove_segments(gone)
        for name in sorted(self._target.logs.keys() - {*moved}):
            self._segment(name)
        for name in sorted(self._target.files):
            if parse_file(name).kind is FileKind.SNAPSHOT:
                self._put(name)
        for file in sorted(gone):
            if file.kind is FileKind.SNAPSHOT and file.stage is Stage.IN_USE:
                self._remove(file.name)
        self._epochs()
        # A finished compaction's log is deleted first: its remaining files would only be renamed to the existing ones.
        for file in sorted(gone, key=lambda file: (file.kind is not FileKind.LOG, file.name)):
            if file.stage is Stage.SWAP:
                self._remove(file.name)

    def _epochs(self) -> None:
        if self._target.epochs is None:
            return
        self._draft.put(self._file(FileKind.LEADER_EPOCHS.value), [self._target.epochs], like=self._like())
        unfinished = f"{FileKind.LEADER_EPOCHS.value}{Stage.TMP.value}"  # a broker writes over it, and renames it
        if any(file.name == unfinished for file in self._partition.files):
            self._remove(unfinished)

    def _file(self, name: str) -> str:
        return f"{self._partition.directory}/{name}"

    def _path(self, name: str) -> str:
        return os.path.join(self._partition.path, name)

    def _remove(self, name: str) -> None:
        self._draft.remove(self._file(name))

    def _remove_void(self) -> None:
        """Remove the files that a start removes: of a compaction that did not end the `.swap` before the `.cleaned`.

        In the other order a start in between would treat the `.swap` as finished.
        """
        files = self._there.values()
        cleaned = [file.offset for file in files if file.stage is Stage.CLEANED and file.offset is not None]
        for file in sorted(files):
            if file.stage is Stage.SWAP and cleaned and file.offset is not None and file.offset >= min(cleaned):
                self._remove(file.name)
        for file in sorted(files):
            if file.stage in (Stage.CLEANED, Stage.DELETED):
                self._remove(file.name)

    def _remove_segments(self, gone: list[FileName]) -> None:
        """Remove segments from the last one backwards, each log before its indexes."""
        segments = [file for file in gone if file.stage is Stage.IN_USE and file.kind in SEGMENT_KINDS]
        for file in sorted(segments, key=lambda file: (-(file.offset or 0), SEGMENT_KINDS.index(file.kind))):
            self._remove(file.name)

    def _segment(self, log: str) -> None:
        """Change a segment's files."""
        stem = log.removesuffix(FileKind.LOG.value)
        indexes = [f"{stem}{kind.value}" for kind in SEGMENT_KINDS[1:]]
        pieces = self._target.logs[log]
        grows = not self._is_prefix(log, pieces)
        if grows:
            # The old index fits the old log, the new one the new: an empty one fits both.
            for name in indexes[:2]:
                if name in self._there and name in self._kept:  # the other files have been removed
                    self._draft.truncate(self._file(name), 0)
            self._put_log(log, pieces)
        for name in indexes:
            if name in self._target.files:
                self._put(name, like=log)
        if not grows:
            self._cut(log, pieces[0].end if pieces else 0)

    def _is_moved(self, log: str, pieces: tuple[FileRange, ...]) -> bool:
        """Whether the desired content of the log is now in another segment."""
        return any(piece.name != log and parse_file(piece.name).offset != parse_file(log).offset for piece in pieces)

    def _is_prefix(self, log: str, pieces: tuple[FileRange, ...]) -> bool:
        """Whether the log is the existing file of its name, or the beginning of it."""
        if log not in self._there:
            return False
        if pieces and self._target.patches.get(pieces[0].name):
            return False
        return not pieces or (len(pieces) == 1 and pieces[0].name == log and pieces[0].start == 0)

    def _put_log(self, log: str, pieces: tuple[FileRange, ...]) -> None:
        like = self._file(pieces[0].name) if pieces else self._like()
        # Without a timestamp a log is as old as its file: a merge must make none older.
        names = {piece.name for piece in pieces}
        source = max((os.stat(self._path(name)).st_mtime_ns for name in names), default=None)
        content = self._content(log, pieces)
        if pieces and all(piece.name == log for piece in pieces):
            # A plan has the digest of the replaced file, whose bytes need not be read a second time for that.
            digest = Digest(os.path.getsize(self._path(log)))
            self._draft.read_through(self._file(log), digest)
            content = self._content_of_one(log, pieces, digest)
            if self._target.is_intact:
                content = intact(content, self._path(log))
        self._draft.put(self._file(log), content, like=like, modified_ns=source)

    def _content(self, name: str, pieces: tuple[FileRange, ...]) -> Iterator[bytes]:
        with SplicedLog(self._partition.path, name, pieces, self._target.patches) as source:
            for at in range(0, source.size, _STEP_BYTES):
                yield source.read(at, _STEP_BYTES)

    def _content_of_one(self, name: str, pieces: tuple[FileRange, ...], digest: Digest) -> Iterator[bytes]:
        """Yield *pieces* of a file, ascending, while all of its bytes go through *digest*."""
        with ReadOnlyFile(self._path(name)) as file:
            source = DigestedLog(file, digest)
            log, at = PatchedLog(source, self._target.patches.get(name, ())), 0
            for _, start, end in pieces:
                source.skip(at, start)
                for at in range(start, end, _STEP_BYTES):
                    yield log.read(at, min(_STEP_BYTES, end - at))
                at = end
            source.skip(at, file.size)

    def _put(self, name: str, like: str | None = None) -> None:
        content = self._target.files[name]
        if isinstance(content, bytes):
            self._draft.put(self._file(name), [content], like=self._like(like))
        elif content.name != name:
            self._draft.put(
                self._file(name), self._content(name, (FileRange(content.name, 0, content.size),)), self._like(like)
            )
        else:
            self._cut(name, content.size)

    def _cut(self, name: str, size: int) -> None:
        """Cut a file, which is only looked at when there is something to cut."""
        if os.path.getsize(self._path(name)) != size:
            self._draft.truncate(self._file(name), size)

    def _like(self, log: str | None = None) -> str | None:
        """Return the file whose owner and mode a new one receives: its existing log, else another log."""
        if log is not None:
            pieces = self._target.logs[log]
            if pieces:
                return self._file(pieces[0].name)
        logs = sorted(name for name, file in self._there.items() if file.kind is FileKind.LOG)
        return self._file(logs[-1]) if logs else None


_MOST_OFFSETS = 1 << 20
"""A damaged batch that claims more offsets than this is not believed."""


class RecordCount(NamedTuple):
    """The intact batches of a stretch.  Offsets: None without one.  *records*: a batch before v2 counts as one."""

    records: int = 0
    first_offset: int | None = None
    last_offset: int | None = None

    def plus(self, other: RecordCount) -> RecordCount:
        """Return the sum of both; *other* follows."""
        first = self.first_offset if self.first_offset is not None else other.first_offset
        last = other.last_offset if other.last_offset is not None else self.last_offset
        return RecordCount(self.records + other.records, first, last)


def count_records(path: str, start: int = 0, end: int | None = None) -> RecordCount:
    """Read bytes *start* to *end* of a log, where batches begin and end, or damage does.  Raises UnreadableError."""
    survey, last_offset = SegmentSurvey(0, LONG_MAX, b"", b""), None
    for run in Segment(path, bounded=False).runs(start, end):
        if not isinstance(run, Damage):
            survey.walk(run.window, run.first, run.end)
            last_offset = run.window.batch(run.end - 1).last_offset
    return RecordCount(survey.records + survey.legacy, survey.first_offset if survey.batches else None, last_offset)


def torn_batch(path: str, position: int, expected: int) -> RecordCount:
    """Return the counts in the header of the batch that begins at *position*, if it is the expected one."""
    with ReadOnlyFile(path) as source:
        data = source.read(position, HEADER_BYTES)
    header = read_header(data, 0, position, 2**31 - 1) if len(data) == HEADER_BYTES else None
    if not isinstance(header, BatchFacts) or header.magic < 2 or header.base_offset != expected:
        return RecordCount()
    records, offsets = header.records_count, header.last_offset - header.base_offset + 1
    if not 0 < records <= offsets <= _MOST_OFFSETS:
        return RecordCount()
    return RecordCount(records, header.base_offset, header.last_offset)


def cut_loss(partition: Partition, log: str, position: int, expected: int, reason: str, found: RecordCount) -> Loss:
    """Return the loss of everything from *position* of a log on, where offset *expected* was the next.

    *found*: the intact batches there.  Raises UnreadableError.
    """
    path = partition.file(log)
    if found.first_offset != expected:
        found = torn_batch(path, position, expected).plus(found)
    return loss_of(partition, found, os.path.getsize(path) - position, reason, expected)


def whole_losses(
    partition: Partition, logs: Iterable[str], reason: str, count: Callable[[str], RecordCount] | None = None
) -> list[Loss]:
    """Return the loss of whole logs, one for each; *count* counts their records, else they are read.

    Raises UnreadableError.
    """
    losses = []
    for log in logs:
        path = partition.file(log)
        size = os.path.getsize(path)
        if size:
            found = count_records(path) if count is None else count(log)
            losses.append(loss_of(partition, found, size, reason))
    return losses


def loss_of(partition: Partition, found: RecordCount, size: int, reason: str, expected: int | None = None) -> Loss:
    """Return the loss of *size* bytes with the records *found*; *expected*: their first offset if none was found."""
    first = found.first_offset if found.first_offset is not None else expected
    return Loss(partition.topic, partition.number, first, found.last_offset, found.records, size, reason)
