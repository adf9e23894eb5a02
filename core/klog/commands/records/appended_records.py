"""Reads what a running broker appends to a partition.  The files are polled; nothing is locked.

followed = AppendedRecords(partition, RecordRows(request), partition.log_end.offset)
while True:
    for row in followed.read():
        print(row)
    time.sleep(0.2)

A poll looks at the size of the newest log and at the time of the directory, which changes when a segment is added or
replaced.  Only then are logs read: from the offset behind the last batch that was read, found through the index.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Generic

from klog.base.errors import UnreadableError
from klog.commands.dump.dump_request import partition_targets
from klog.commands.records.record_rows import RecordReader, Row
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.log.records import RecordLimit

Seen = tuple[int, int, int]


class AppendedRecords(Generic[Row]):
    """The records of *partition* from *next_offset* on, as they are appended; *rows* makes what is yielded of them.

    *is_cut*: whether the last call of `read` found the log cut below what was read; the broker is a follower that was
    ahead of its leader.
    """

    def __init__(self, partition: Partition, rows: RecordReader[Row], next_offset: int) -> None:
        self.path, self.next_offset = partition.path, next_offset
        self.is_cut = False
        self._rows = rows
        self._newest = partition.segments[-1].log if partition.segments else ""
        self._seen: Seen | None = None

    def read(self) -> Iterator[Row | Damage]:
        """Yield what was appended since the last call.  Raises UnreadableError if the directory is gone."""
        self.is_cut = False
        try:
            yield from self._appended()
        except UnreadableError as error:
            raise self._gone() or error from error

    def _appended(self) -> Iterator[Row | Damage]:
        seen = self._look()
        if seen == self._seen:
            return
        partition = Partition(self.path)
        segments = partition.segments
        self._newest = segments[-1].log if segments else ""
        self._seen = seen if seen is not None and segments else None
        end = partition.log_end
        if end is None:
            return
        self.is_cut = end.offset < self.next_offset
        if self.is_cut:
            self.next_offset = end.offset
            return
        wanted = self._rows.request.wanted._replace(from_offset=self.next_offset)
        targets = [
            target._replace(from_offset=self.next_offset, live=target.segment is segments[-1], may_go=True)
            for target in partition_targets(partition, False, wanted)
            if target.segment is not None
        ]
        yield from self._rows.read(targets, RecordLimit(None))
        if self._rows.has_vanished:
            self._seen = None  # compaction may have merged it into another segment: the next call reads on there
            if gone := self._gone():
                raise gone
        self.next_offset = max(self.next_offset, self._rows.next_offset or 0)

    def _look(self) -> Seen | None:
        """Return the size of the newest log, and the times of both it and the directory.  Raises UnreadableError."""
        try:
            folder = os.stat(self.path)
            log = os.stat(os.path.join(self.path, self._newest)) if self._newest else folder
        except (FileNotFoundError, NotADirectoryError) as error:
            if gone := self._gone():
                raise gone from error
            return None
        except OSError as error:
            raise UnreadableError(f"{self.path}: {error.strerror}") from error
        return log.st_size, log.st_mtime_ns, folder.st_mtime_ns

    def _gone(self) -> UnreadableError | None:
        return None if os.path.isdir(self.path) else UnreadableError(f"{self.path}: the partition is gone")
