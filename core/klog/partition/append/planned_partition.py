"""Drafts an appender's changes to an existing partition: each intermediate state is a log that a broker recovers.

The order is that of a growing log: the appended part of the active segment, then each new segment with its indexes;
snapshots, each old one deleted once its successor exists; leader epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from klog.base.read_only import ReadOnlyFile
from klog.change.plan.draft import Draft
from klog.change.plan.file_state import Digest, digest_of_end
from klog.change.plan.model import APPEND, PUT, REMOVE, Action, FileState
from klog.data_dir.disk.growing_files import GrowingFiles
from klog.data_dir.partition import Partition
from klog.formats.names import SEGMENT_KINDS, FileKind, parse_file
from klog.partition.append.log_resumption import Resumption


class _StagedLog:
    """The staged part of a log.  *whole*: the digest of the existing part, None for a new log."""

    def __init__(self, path: str | None, files: GrowingFiles, whole: Digest | None) -> None:
        self._path, self._files = path, files
        self.added, self.whole = Digest(), whole

    def write(self, data: bytes | memoryview) -> None:
        self.added.update(data)
        if self.whole is not None:
            self.whole.update(data)
        if self._path is not None:
            self._files.write(self._path, data)

    def close(self) -> None:
        if self._path is not None:
            self._files.close(self._path)


class PlannedPartition:
    """An `AppendTarget` whose files become changes in *draft*, when `finish` is called.

    *found*: the state of the log before.  *now_ns*: the modification time of changed logs.  Raises UnreadableError.
    """

    def __init__(self, draft: Draft, partition: Partition, found: Resumption, files: GrowingFiles, now_ns: int) -> None:
        self._now_ns = now_ns
        self._draft, self._partition, self._files = draft, partition, files
        self._log, self._found = partition.segments[-1].log, found
        with ReadOnlyFile(partition.file(self._log)) as source:
            self._digest = digest_of_end(source)
        self._logs: dict[str, _StagedLog] = {}
        self._small: dict[str, bytes] = {}
        self._removed: list[str] = []
        draft.read_through(self._file(self._log), self._digest.copy())

    def _file(self, name: str) -> str:
        return f"{self._partition.directory}/{name}"

    def write(self, name: str, data: bytes | memoryview) -> None:
        """Append to a log; another name than before ends the log before."""
        if name not in self._logs:
            for other in self._logs.values():
                other.close()
            whole = self._digest if name == self._log and name not in self._removed else None
            self._logs[name] = _StagedLog(self._draft.staging.begin(self._file(name), self._files), self._files, whole)
        if len(data):
            self._logs[name].write(data)

    def put(self, name: str, content: bytes) -> None:
        """Give a small file this *content*, or append it to the existing part of the active segment's index."""
        before = self._found.entries.get(name, b"")
        if size := self._found.sizes.get(name):
            with ReadOnlyFile(self._partition.file(name)) as index:
                before = index.read(0, size) + before
        self._small[name] = before + content

    def remove(self, name: str) -> None:
        """Delete a file, if it exists."""
        self._removed.append(name)

    def finish(self, bases: Collection[int]) -> None:
        """Record the changes in the draft.  *bases*: base offsets of the final segments.

        Raises OSError, UnreadableError.
        """
        there = {file.name for file in self._partition.files}
        for name, log in self._logs.items():
            log.close()
            self._say_log(name, log)
            stem = name.removesuffix(FileKind.LOG.value)
            for kind in SEGMENT_KINDS[1:]:
                self._say_small(f"{stem}{kind.value}")
        for name in [name for name in self._small if parse_file(name).kind is FileKind.SNAPSHOT]:
            self._say_small(name)
        gone = [name for name in self._removed if name in there]
        for name in [*gone, *self._outdated(bases)]:
            self._draft.remove(self._file(name))
        for name in sorted(self._small):
            self._say_small(name)

    def _outdated(self, bases: Collection[int]) -> list[str]:
        """Return the snapshots that a broker removes at its next start: of no segment, and not of the log's end."""
        kept = [parse_file(name).offset for name in self._small if parse_file(name).kind is FileKind.SNAPSHOT]
        files = [file for file in self._partition.snapshots if file.offset not in bases and file.offset not in kept]
        return [file.name for file in files] if kept else []

    def _say_log(self, name: str, log: _StagedLog) -> None:
        file = self._file(name)
        self._draft.staging.know(file, log.added)
        if log.whole is None:
            after = self._new_state(file, log.added)
            self._draft.add(Action(PUT, file, self._draft.state(file), after, file, self._draft.number))
            return
        if not log.added.size:
            self._draft.staging.drop(file)
            return
        before = self._draft.state(file)
        assert before is not None, "the log that is appended to is there"
        size, digest = log.whole.size, log.whole.text()
        after = before._replace(size=size, digest=digest, modified_ns=self._now_ns)
        part = after._replace(size=log.added.size, digest=log.added.text())
        self._draft.add(Action(APPEND, file, before, after, file, self._draft.number, part))

    def _new_state(self, file: str, digest: Digest) -> FileState:
        """Return the future state of a new log: its mode and owner are those of the active segment."""
        self._draft.state(file)
        like = self._draft.state(self._file(self._log))
        assert like is not None, "the active segment's log is there"
        return like._replace(size=digest.size, digest=digest.text(), modified_ns=self._now_ns)

    def _say_small(self, name: str) -> None:
        if name in self._small:
            self._draft.put(self._file(name), [self._small.pop(name)], like=self._file(self._log))


def delete_until_end(draft: Draft, file: str) -> Callable[[Draft], None]:
    """Delete *file* first; return a function that restores it, unchanged, at the end."""
    before = draft.state(file)
    assert before is not None, "there is no such file"
    with ReadOnlyFile(f"{draft.log_dir}/{file}") as source:
        content = source.read(0, source.size)
    draft.add(Action(REMOVE, file, before, None, None, draft.number))

    def restore(last: Draft) -> None:
        last.staging.store(file, [content])
        last.state(file)
        last.add(Action(PUT, file, None, before, file, last.number))

    return restore
