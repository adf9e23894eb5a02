"""The offset from which on each copy of a partition should have records.

A copy that begins later than another one has lost its first records, unless there is an explanation: DeleteRecords,
which writes a line in the log start checkpoint of a log dir; retention, which removes them in the other copy as well,
or has left as much as the limit; remote storage, which serves them.  Unknown settings explain nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from klog.base.read_only import ReadOnlyFile
from klog.commands.replicas.comparison import ComparedCopy
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.log.header_walk import walk_headers
from klog.partition.retention.first_pass import due_segments
from klog.partition.retention.stored_segments import StoredSegment, stored_segments
from klog.partition.retention.topic_retention import TopicRetention


class StartedCopy(NamedTuple):
    """A copy, and the facts about its first segments.  *is_clean*: its log dir has the clean-shutdown marker."""

    compared: ComparedCopy
    retention: TopicRetention
    is_clean: bool


class _Log(NamedTuple):
    """A copy's segments as its next start leaves them."""

    copy: StartedCopy
    partition: Partition
    segments: list[StoredSegment]

    @property
    def start(self) -> int:
        return self.copy.compared.log_start

    @property
    def end(self) -> int:
        return self.copy.compared.log_end


def expected_starts(copies: Mapping[int, StartedCopy], now_ms: int) -> dict[int, int]:
    """Return for each node the offset from which on nothing explains that its copy lacks a record.

    Raises UnreadableError.
    """
    starts = {node: copy.compared.log_start for node, copy in copies.items()}
    if len(set(starts.values())) < 2:
        return starts
    logs = {node: _log(copy) for node, copy in copies.items()}
    deleted = max((_line(log) for log in logs.values() if log is not None), default=0)
    found = {}
    for node, start in starts.items():
        log = logs[node]
        earlier = [other for other in logs.values() if other is not None and other.start < start]
        explained = min((_explained(log, other, now_ms) for other in earlier), default=start)
        found[node] = min(max(explained, deleted), start)
    return found


def _log(copy: StartedCopy) -> _Log | None:
    compared = copy.compared
    if compared.partition is None:
        return None
    sizes = compared.kept.sizes if compared.kept is not None else None
    return _Log(copy, compared.partition, stored_segments(compared.partition, copy.is_clean, sizes))


def _line(log: _Log) -> int:
    """Return up to where records were deleted, by the log start checkpoint; a line beyond the log is no evidence."""
    line, end = log.partition.log_start_checkpoint or 0, log.partition.log_end
    return line if end is not None and 0 <= line <= end.offset else 0


def _explained(log: _Log | None, other: _Log, now_ms: int) -> int:
    """Return up to where retention explains that *log* lacks the first records of *other*."""
    if log is None or not log.copy.retention.is_known:
        return other.start
    retention, start = log.copy.retention, log.start
    limits = retention.limits
    has_limit = limits.deletes and limits.retention_bytes >= 0
    # The bytes on disk: a start may truncate the log at its end, long after retention has left so much.
    if retention.is_remote or (has_limit and limits.retention_bytes <= log.partition.size):
        return start
    due = due_segments(other.segments, limits, other.start, now_ms)
    explained, left = other.start, other.segments[len(due) :]
    if due:
        explained = left[0].base_offset if left else other.end
    if limits.deletes and limits.retention_ms >= 0:
        explained = _expired(other, left, start, explained, now_ms - limits.retention_ms)
    return max(min(explained, start), other.start)


def _expired(log: _Log, left: Sequence[StoredSegment], start: int, explained: int, oldest_ms: int) -> int:
    """Return the offset below which the batches of *left* are older than *oldest_ms*, below *start*.

    Another broker may have rolled at other offsets, and have other time indexes.
    """
    for number, segment in enumerate(left):
        latest = _latest_below(log, segment, start)
        if explained >= start or latest is None or latest >= oldest_ms:
            break
        explained = left[number + 1].base_offset if number + 1 < len(left) else log.end
    return explained


def _latest_below(log: _Log, segment: StoredSegment, offset: int) -> int | None:
    """Return the largest timestamp of the batches of a segment that begin below *offset*; None: they have none."""
    path = next(log.partition.file(one.log) for one in log.partition.segments if one.base_offset == segment.base_offset)
    latest = -1
    with ReadOnlyFile(path) as file:
        for batch in walk_headers(file):
            if isinstance(batch, Damage) or batch.base_offset >= offset:
                break
            latest = max(latest, batch.max_timestamp)
    return latest if latest >= 0 else None
