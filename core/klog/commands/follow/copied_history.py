"""Whether a leader's log has the history of a copy: a history is its batches, not its leader epochs.

A cluster that was rolled back to an earlier disk assigns the same epochs and the same offsets again, to other batches.
The last batch of a copy is therefore compared with the leader's before anything is appended; if they differ,
`find_parting` finds the first difference.

A leader's cleaner may also have removed deletions, or ends of transactions, before they were copied.  A tombstone and a
marker stay in a compacted log for delete.retention.ms.  A copy that was not caught up for longer may have the records
that they delete or end, and never receives them: deleted keys exist again, aborted records may count as committed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, TypeAlias

from klog.base.errors import DamagedError
from klog.base.read_only import ReadOnlyFile
from klog.commands.follow.copied_partition import CopiedBatch, CopiedPartition
from klog.data_dir.partition import Partition
from klog.formats.batch import DELETE_HORIZON_BIT, BatchFacts
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage
from klog.formats.entry_header import HEADER_BYTES, read_header
from klog.kernel import DONE
from klog.log.header_walk import walk_headers, window_of
from klog.log.records import BatchRun, decode_run

_ROWS: Final = 1024
_MOST_BYTES: Final = 64 << 20
"""The most bytes of a batch whose records are compared one by one; of a larger one the header is compared."""
_Row: TypeAlias = "tuple[object, ...]"


class Standing(Enum):
    """The batch of a leader in place of a copy's: the same one, another one, or none, as it was deleted or cleaned."""

    SAME = "same"
    OTHER = "other"
    GONE = "gone"


def first_batch(records: memoryview) -> BatchFacts | None:
    """Return the header of the batch that *records* begin with; None if no whole one does."""
    found = read_header(bytes(records[:HEADER_BYTES]), 0, 0, len(records)) if len(records) else None
    return found if isinstance(found, BatchFacts) else None


def compare(mine: CopiedBatch, records: memoryview) -> Standing:
    """Return the relation of the first batch in *records* to *mine*: a leader has sent it from its last offset on.

    Raises DamagedError for an impossible answer, UnreadableError.
    """
    theirs, own = first_batch(records), mine.facts
    if theirs is None or theirs.last_offset < own.last_offset:
        raise DamagedError(f"{len(records)} bytes from offset {own.last_offset} on, which are no complete batch")
    if theirs.base_offset > own.last_offset:
        return Standing.GONE
    if _identity(theirs) == _identity(own):
        return Standing.SAME
    return Standing.SAME if _is_cleaned(own, theirs, mine.read, records[: theirs.size]) else Standing.OTHER


def _identity(facts: BatchFacts) -> _Row:
    return facts.base_offset, facts.last_offset, facts.size, facts.leader_epoch, facts.magic, facts.crc


def _is_cleaned(own: BatchFacts, theirs: BatchFacts, read: Callable[[], bytes], records: memoryview) -> bool:
    """Whether *theirs* may be the result of compacting *own*: compaction keeps both offsets, and records unchanged.

    Kafka: MemoryRecords.filterTo.
    """
    if own.magic < 2 or theirs.magic < 2:
        return own.magic < 2 and theirs.last_offset == own.last_offset  # in that case a wrapper's offset changes
    if _kept_by_cleaner(own) != _kept_by_cleaner(theirs) or theirs.records_count > own.records_count:
        return False
    left = _records(bytes(records))
    before = _records(read())
    return all(any(one == row for one in before) for row in left)  # both ascend: each is passed once


def _kept_by_cleaner(facts: BatchFacts) -> _Row:
    kept = facts.attributes & ~DELETE_HORIZON_BIT & 0xFF
    producer = facts.producer_id, facts.producer_epoch, facts.base_sequence
    return facts.base_offset, facts.last_offset, facts.leader_epoch, kept, producer


def _records(batch: bytes) -> Iterator[_Row]:
    """Yield offset, timestamp, key, value and headers of the records; none of those that cannot be decoded."""
    window = window_of(batch, 0, _ROWS)
    if window.scan(0) != DONE or window.count != 1:
        return
    for damage in decode_run(BatchRun(window, 0, 1), Decompressor(_MOST_BYTES).functions, ""):
        if damage is not None:
            return
        for row in range(window.records):
            yield *window.record(row, False)[:4], window.raw_headers(row)


class LeaderLog:
    """The compared part of a leader's log.  *fetch*: returns whole batches from an offset on, or nothing.

    *start*: its log start.
    """

    def __init__(self, start: int, fetch: Callable[[int], memoryview]) -> None:
        self._start, self._fetch = start, fetch
        self._records, self._fetched_from = memoryview(b""), 0

    def standing(self, mine: CopiedBatch) -> Standing:
        """Return the leader's counterpart of *mine*; cheap if batches are requested in order.

        Raises DamagedError, and the errors of *fetch*.
        """
        wanted = mine.facts.last_offset
        if wanted < self._start:
            return Standing.GONE
        found = first_batch(self._records) if wanted >= self._fetched_from else None
        while found is not None and found.last_offset < wanted:
            self._records = self._records[found.size :]
            found = first_batch(self._records)
        if found is None:
            self._records, self._fetched_from = self._fetch(wanted), wanted
        return compare(mine, self._records) if len(self._records) else Standing.OTHER


def find_parting(copy: CopiedPartition, leader: LeaderLog) -> int | None:
    """Return the base offset of the first batch of *copy* that *leader* does not have; None without one.

    Segments are tried from the newest on until the leader has the first batch of one that it has not deleted or
    cleaned: from there on all batches are compared. 0 if all that is left there differs from the copy.
    """
    later: int | None = None
    logs = [os.path.join(copy.path, files.log) for files in Partition(copy.path).segments]
    for log in reversed(logs):
        compared = ((one, leader.standing(one)) for one in _batches(log))
        left = ((one, standing) for one, standing in compared if standing is not Standing.GONE)
        first, standing = next(left, (None, None))
        if first is None:
            continue
        if standing is Standing.SAME:
            found = next((one for one, standing in left if standing is Standing.OTHER), None)
            return found.facts.base_offset if found is not None else later
        later = first.facts.base_offset
    oldest = next((one for log in logs for one in _batches(log)), None)
    return 0 if oldest is not None and oldest.facts.base_offset == later else later


def _batches(log: str) -> Iterator[CopiedBatch]:
    with ReadOnlyFile(log) as source:
        for found in walk_headers(source):
            if isinstance(found, Damage):
                return
            yield CopiedBatch(log, found)


ANEW: Final = "--on-cleaned anew copies the partition from the start"

DELETE_RETENTION_MS: Final = 86_400_000
"""Kafka's default of delete.retention.ms."""
_SHORTEST_MS: Final = 60_000
"""A shorter gap within one run is never too late, however short delete.retention.ms is."""


@dataclass
class LeaderClock:
    """When the latest request was sent that a leader has answered, and all of whose answer is written (ms)."""

    asked_ms: int = 0


@dataclass
class CleaningWatch:
    """Observes the appends to one copy.

    *caught_up_ms*: the last time when the copy was known to have all that its leader had, or was begun; 0 for never.
    *retention_ms*: delete.retention.ms.  *is_earlier*: that was in an earlier run.  *lost_from*: the offset from which
    on deletions, or keys, may be missing; None: none are.  *compacts*: the topic's cleanup.policy includes `compact`.
    """

    caught_up_ms: int = 0
    retention_ms: int = DELETE_RETENTION_MS
    is_earlier: bool = False
    lost_from: int | None = None
    clock: LeaderClock = field(default_factory=LeaderClock)
    compacts: bool = False

    def note(self, is_caught_up: bool) -> None:
        """Note whether the copy has reached the offsets in the leader's answers so far."""
        if is_caught_up and self.clock.asked_ms > self.caught_up_ms:
            self.caught_up_ms, self.is_earlier = self.clock.asked_ms, False

    def begun(self, now_ms: int) -> CleaningWatch:
        """Return the watch of a copy that has just begun anew."""
        return CleaningWatch(now_ms, self.retention_ms, compacts=self.compacts)

    def note_cut(self, copy: CopiedPartition) -> bool:
        """Note a cut of *copy*; return whether keys may be missing in the remaining log.

        The cleaner removes a record once there is a later one of its key.  If the later one is cut, the leader may have
        the earlier one as the latest of its key.  Raises UnreadableError.
        """
        if not self.compacts or not _was_cleaned(copy):
            return False
        self.lost_from = copy.log_start
        return True

    def watch(self, records: memoryview, end: int, now_ms: int) -> bool:
        """Look at *records*, which were appended behind *end*; whether deletions may be missing from now on."""
        patience_ms = self.retention_ms if self.is_earlier else max(self.retention_ms, _SHORTEST_MS)
        if now_ms - self.caught_up_ms <= patience_ms or self.lost_from is not None or _is_dense(records, end):
            return False
        self.lost_from = end
        return True


def _is_dense(records: memoryview, offset: int) -> bool:
    """Whether *records* have every offset from *offset* on; the cleaner alone leaves some out."""
    while (batch := first_batch(records)) is not None:
        if _leaves_out(batch, offset):
            return False
        offset, records = batch.last_offset + 1, records[batch.size :]
    return True


def _leaves_out(batch: BatchFacts, offset: int) -> bool:
    """Whether offsets are missing in a batch, or between *offset* and it."""
    is_behind = not batch.is_wrapper and batch.base_offset > offset
    return is_behind or (batch.magic == 2 and batch.records_count <= batch.last_offset_delta)


def _was_cleaned(copy: CopiedPartition) -> bool:
    """Whether offsets are missing in a copy, from its first batch on.  Raises UnreadableError."""
    offset: int | None = None
    for files in Partition(copy.path).segments:
        with ReadOnlyFile(f"{copy.path}/{files.log}") as log:
            for batch in walk_headers(log):
                if isinstance(batch, Damage):
                    break
                if _leaves_out(batch, batch.base_offset if offset is None else offset):
                    return True
                offset = batch.last_offset + 1
    return False
