"""The logs of a source that are copied while it is checked: most are whole, and a disk takes longer than a check."""

from __future__ import annotations

import os
from collections.abc import Iterator
from threading import Event, Thread

from klog.base.errors import KlogError
from klog.change.partition_plan.contents import FileRange
from klog.change.partition_plan.spliced import SplicedLog
from klog.change.plan.draft import Draft, StagedContent
from klog.commands.adopt.content import KEEP, REWRITE, AdoptedLog, AdoptOptions, log_content
from klog.commands.adopt.home import AdoptTarget
from klog.commands.adopt.sources import AdoptSource


class _StoppedError(Exception):
    """Nobody wants the copies any more."""


class EarlyLogs:
    """Copies each log as it is, or with the epoch that its batches will probably get; nothing is in place by that.

    A guess that was wrong costs time: the log is then copied again.  One thread beside the caller's, which must not use
    *draft* until it takes the logs or abandons them.
    """

    def __init__(self, source: AdoptSource, target: AdoptTarget, draft: Draft, options: AdoptOptions) -> None:
        self._source, self._target, self._draft = source, target, draft
        self._epoch = _likely_epoch(source, target, options)
        self._staged: dict[str, StagedContent] = {}
        self._failed: BaseException | None = None
        self._stop = Event()
        self._thread: Thread | None = None

    def begin(self) -> None:
        """Begin to copy."""
        self._thread = Thread(target=self._copy_all, name="klog-adopt")
        self._thread.start()

    def take(self, name: str, log: AdoptedLog) -> StagedContent | None:
        """Return what waits for a log of *log*; None, and nothing waits, where it is to be another.

        Raises OSError (staging).
        """
        self._wait()
        if self._failed is not None and not isinstance(self._failed, KlogError):
            raise self._failed
        staged = self._staged.pop(name, None)
        if staged is None or (log.is_whole(name) and log.epoch == self._epoch):
            return staged
        self._draft.staging.drop(staged.source)
        return None

    def abandon(self) -> None:
        """Let nothing wait that was not taken.  Raises OSError."""
        self._stop.set()
        self._wait()
        while self._staged:
            _, staged = self._staged.popitem()
            self._draft.staging.drop(staged.source)

    def _wait(self) -> None:
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _copy_all(self) -> None:
        try:
            for segment in self._source.partition.segments:
                self._staged[segment.log] = self._copy(segment.log, segment.size)
        except _StoppedError:
            pass
        except BaseException as error:
            self._failed = error

    def _copy(self, name: str, size: int) -> StagedContent:
        path = self._source.partition.file(name)
        modified_ns = os.stat(path).st_mtime_ns
        whole = path if self._epoch is None else None
        file, content = f"{self._target.name}/{name}", self._content(name, size)
        return self._draft.prepare(file, content, modified_ns=modified_ns, whole=whole)

    def _content(self, name: str, size: int) -> Iterator[bytes | memoryview]:
        with SplicedLog(self._source.partition.path, name, (FileRange(name, 0, size),), {}) as source:
            for piece in log_content(source, name, self._epoch):
                if self._stop.is_set():
                    raise _StoppedError
                yield piece


def _likely_epoch(source: AdoptSource, target: AdoptTarget, options: AdoptOptions) -> int | None:
    """Return the epoch that all batches will get if the source's checkpoint is right; None if they keep theirs."""
    if options.epochs == KEEP:
        return None
    last = source.partition.leader_epoch
    return target.epoch if options.epochs == REWRITE or (last is not None and last > target.epoch) else None
