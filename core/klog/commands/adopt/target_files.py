"""The changes that put an adopted partition in place, in an order that may stop anywhere.

`partition.metadata` of a directory that the cluster does not know yet is written last: until then a broker sets it
aside.  An existing one is at each moment a prefix of its old log or of the new one: old segments are removed from the
last one back, new ones are added upwards.  A segment of both logs is kept.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from klog.base.overlays import overlay_file
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import Content
from klog.change.plan.draft import Draft, StagedContent
from klog.change.plan.model import same_content
from klog.commands.adopt.adopted_content import AdoptedLog
from klog.commands.adopt.adopted_sources import AdoptSource
from klog.commands.adopt.target_log_dirs import AdoptTarget
from klog.formats.checkpoint import write_partition_metadata
from klog.formats.names import SEGMENT_KINDS, FileKind, Stage, belongs, parse_file


class TargetDrafts(NamedTuple):
    """The changes of a directory: before the log dir's checkpoints, and behind them."""

    files: Draft
    last: Draft

    @property
    def is_empty(self) -> bool:
        """Whether everything is in its final state already."""
        return not self.files.actions and not self.last.actions

    def abandon(self) -> None:
        """Forget the changes."""
        self.files.abandon()
        self.last.abandon()


class TargetFiles:
    """Drafts the files of one partition."""

    def __init__(self, source: AdoptSource, target: AdoptTarget, log: AdoptedLog, drafts: TargetDrafts) -> None:
        self._source, self._target, self._log = source, target, log
        self._draft, self._last = drafts
        self._is_in_place = os.path.realpath(source.path) == os.path.realpath(target.partition.path)
        files = target.partition.files if target.is_there else ()
        self._there = [file for file in files if belongs(file)]

    def draft(self) -> None:
        """Draft all changes.  Raises OSError (staging), UnreadableError, KlogError if the source has changed."""
        logs = {name: self._prepare(name) for name in sorted(self._log.logs)}
        same = {name for name, new in logs.items() if same_content(self._draft.state(self._file(name)), new.after)}
        self._remove_old(same)
        for name, new in logs.items():
            self._draft.put_prepared(new)
            stem = name.removesuffix(FileKind.LOG.value)
            for index in (f"{stem}{kind.value}" for kind in SEGMENT_KINDS[1:]):
                if index in self._log.files:
                    self._put(index, like=name)
        for name in sorted(self._log.files):
            if parse_file(name).kind is FileKind.SNAPSHOT:
                self._put(name, like=next(iter(logs)))
        self._draft.put(self._file(FileKind.LEADER_EPOCHS.value), [self._log.epochs], like=self._file(next(iter(logs))))
        identity = write_partition_metadata(self._target.topic_id)
        self._last.put(self._file(FileKind.PARTITION_METADATA.value), [identity], modified_ns=self._log.now_ns)
        self._guard()
        self._source.check_unchanged()

    def _file(self, name: str) -> str:
        return f"{self._target.name}/{name}"

    def _prepare(self, log: str) -> StagedContent:
        """Stage a log's bytes; it keeps its modification time, which retention may use."""
        pieces = self._log.logs[log].pieces
        path = self._source.partition.file(pieces[0].name) if pieces else None
        time_ns = self._log.now_ns if path is None else _modified_ns(path)
        content, whole = self._log.content(log), self._log.whole_file(log)
        return self._draft.prepare(self._file(log), content, modified_ns=time_ns, whole=whole)

    def _remove_old(self, same: set[str]) -> None:
        """Remove the files that the new log lacks, or has with other bytes: segments from the last one back.

        Each existing log is replaced in one step by one of the same offsets: only files without a successor are
        deleted.
        """
        kept = {*self._log.files, *(self._log.logs if self._is_in_place else same)}
        for file in sorted(self._there):
            if file.stage is not Stage.IN_USE:
                self._draft.remove(self._file(file.name))
        segments = [file for file in self._there if file.stage is Stage.IN_USE and file.kind in SEGMENT_KINDS]
        for file in sorted(segments, key=lambda file: (-(file.offset or 0), SEGMENT_KINDS.index(file.kind))):
            log = f"{file.name.partition('.')[0]}.{FileKind.LOG.value}"
            if file.name not in kept or not (self._is_in_place or log in same):
                self._draft.remove(self._file(file.name))
        for file in self._there:
            if file.kind is FileKind.SNAPSHOT and file.name not in self._log.files:
                self._draft.remove(self._file(file.name))

    def _put(self, name: str, like: str) -> None:
        self._draft.put(self._file(name), self._small(self._log.files[name]), like=self._file(like))

    def _small(self, content: Content) -> list[bytes]:
        """Return the content of an index or snapshot.  Raises UnreadableError."""
        if isinstance(content, bytes):
            return [content]
        with ReadOnlyFile(self._source.partition.file(content.name)) as file:
            return [file.read(0, content.size)]

    def _guard(self) -> None:
        """Make the plan invalid if a file on which it is based changes."""
        if not self._is_in_place:
            for path in self._source.files:
                self._draft.rely_on(path)
        if self._target.is_there:
            self._draft.rely_on_directory(self._target.partition.directory)


def _modified_ns(path: str) -> int:
    """Return when a log was last written; of one in remote storage the time of its newest record."""
    found = overlay_file(path)
    return os.stat(path).st_mtime_ns if found is None else found.modified_ms * 1_000_000
