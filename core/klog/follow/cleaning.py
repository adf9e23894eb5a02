"""Whether a leader's cleaner may have removed deletions, or ends of transactions, before they were copied.

A tombstone and a marker stay in a compacted log for delete.retention.ms.  A copy that was not caught up for longer may
have the records that they end, and never gets them: deleted keys are back, aborted records may count as committed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from klog.follow.history import first_batch

DELETE_RETENTION_MS: Final = 86_400_000
"""Kafka's default of delete.retention.ms."""
_SHORTEST_MS: Final = 60_000
"""Within one run no gap is taken for too late sooner, however short delete.retention.ms is."""


@dataclass
class LeaderClock:
    """When the latest request was sent that a leader has answered, and all of whose answer is written (ms)."""

    asked_ms: int = 0


@dataclass
class CleaningWatch:
    """Watches what is appended to one copy.

    *caught_up_ms*: when the copy was known to have all that its leader had, or was begun; 0 for never.
    *retention_ms*: delete.retention.ms.  *is_earlier*: that was in an earlier run.  *lost_from*: the offset from which
    on deletions may be missing; None: none are.
    """

    caught_up_ms: int = 0
    retention_ms: int = DELETE_RETENTION_MS
    is_earlier: bool = False
    lost_from: int | None = None
    clock: LeaderClock = field(default_factory=LeaderClock)

    def note(self, is_caught_up: bool) -> None:
        """Take note of whether the copy has all that the leader's answers until now have told of."""
        if is_caught_up and self.clock.asked_ms > self.caught_up_ms:
            self.caught_up_ms, self.is_earlier = self.clock.asked_ms, False

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
        if not batch.is_wrapper and batch.base_offset > offset:
            return False
        if batch.magic == 2 and batch.records_count <= batch.last_offset_delta:
            return False
        offset, records = batch.last_offset + 1, records[batch.size :]
    return True
