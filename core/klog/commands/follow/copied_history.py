"""Whether a leader's log has the history of a copy: a history is its batches, not its leader epochs.

A cluster that was rolled back to an earlier disk assigns the same epochs and the same offsets again, to other batches.
The last batch of a copy is therefore compared with the leader's before anything is appended; if they differ,
`find_parting` finds the first difference.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Final, TypeAlias

from klog.base.errors import DamagedError
from klog.base.read_only import ReadOnlyFile
from klog.commands.follow.copied_partition import CopiedBatch, CopiedPartition
from klog.data_dir.partition import Partition
from klog.formats.batch import DELETE_HORIZON_BIT, BatchFacts
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage
from klog.formats.header import HEADER_BYTES, read_header
from klog.kernel import DONE
from klog.log.header_walk import walk_headers
from klog.log.records import BatchRun, decode_run
from klog.log.windows import window_of

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
        raise DamagedError(f"{len(records)} bytes from offset {own.last_offset} on, and no whole batch with it")
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
