"""Whether a leader's cleaner may have removed deletions, or ends of transactions, before they were copied.

A tombstone and a marker stay in a compacted log for delete.retention.ms.  A copy that was not caught up for longer may
have the records that they delete or end, and never receives them: deleted keys exist again, aborted records may count
as committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from klog.base.read_only import ReadOnlyFile
from klog.commands.follow.copied_history import first_batch
from klog.commands.follow.copied_partition import CopiedPartition
from klog.data_dir.partition import Partition
from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage
from klog.log.header_walk import walk_headers

ANEW: Final = "--on-cleaned anew copies the partition anew"

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
