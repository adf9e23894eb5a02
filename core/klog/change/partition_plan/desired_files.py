"""The desired files of a partition, and the changes to them, in an order that may stop anywhere.

A broker that starts between two of them finds a log that is as long as before, or shorter, in whole segments; an index
never extends beyond its log; a snapshot is deleted only when its successor exists.

If a segment is split, its moved part exists under its new name before the old one is cut, the last segment first: the
log keeps its end all the while.  In between two files contain these batches.  A broker looks for their offsets in the
segment that begins last at or below them, and reads them once; if it recovers the old one, it splits it itself, and its
own segments replace the existing ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import Content, FileRange
from klog.change.plan.draft import Draft
from klog.change.plan.file_state import Digest
from klog.data_dir.partition import Partition
from klog.formats.names import SEGMENT_KINDS, FileKind, FileName, Stage, parse_file

if TYPE_CHECKING:
    from klog.log.bit_flips import Patch

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
        return self._partition.file(name)

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
        return any(parse_file(piece.name).offset != parse_file(log).offset for piece in pieces)

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
                from klog.change.partition_plan.spliced import intact

                content = intact(content, self._path(log))
        self._draft.put(self._file(log), content, like=like, modified_ns=source)

    def _content(self, name: str, pieces: tuple[FileRange, ...]) -> Iterator[bytes]:
        from klog.change.partition_plan.spliced import SplicedLog

        with SplicedLog(self._partition.path, name, pieces, self._target.patches) as source:
            for at in range(0, source.size, _STEP_BYTES):
                yield source.read(at, _STEP_BYTES)

    def _content_of_one(self, name: str, pieces: tuple[FileRange, ...], digest: Digest) -> Iterator[bytes]:
        """Yield *pieces* of a file, ascending, while all of its bytes go through *digest*."""
        from klog.change.partition_plan.spliced import DigestedLog, PatchedLog

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
        logs = [name for name in sorted(self._there) if parse_file(name).kind is FileKind.LOG]
        return self._file(logs[-1]) if logs else None
