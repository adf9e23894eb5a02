"""One segment that serves, with all that it is compared with."""

from __future__ import annotations

from typing import NamedTuple

from klog.cluster.remote_log.events import RemoteSegment, TopicIdPartition
from klog.commands.remote.remote_findings import RemoteFinding, kind_of
from klog.formats.checkpoint import EpochEntry
from klog.tier.tier import Tier
from klog.tier.tier_layout import INDEXES, TierSegment


class SegmentCheck(NamedTuple):
    """A segment, and all that it is compared with.  *last*: the last offset that belongs to the partition's history.

    *local_epochs*: the history of the local log; empty without one.  *needs_txn_index*: whether the entry itself shows
    that there are aborted transactions.  *folder*: where the objects of the partition are.
    """

    whose: TopicIdPartition
    tier: Tier
    entry: RemoteSegment
    objects: TierSegment | None
    last: int
    local_epochs: tuple[EpochEntry, ...] = ()
    needs_txn_index: bool = False
    folder: str = ""

    @property
    def heading(self) -> str:
        """The segment in words."""
        entry = self.entry
        return f"{self.whose}  segment {entry.segment_id}, {entry.start_offset} to {entry.end_offset}"

    def key(self, part: str) -> str:
        """Return the key of the object with a part; of a missing one the key that it would have."""
        layout = self.tier.layout
        kind = part if layout is None or part in layout.kinds else INDEXES
        known = self.objects.keys if self.objects is not None else {}
        return known.get(kind) or f"{self.folder}{self.entry.start_offset:020}-{self.entry.segment_id}.{kind}"

    def finding(
        self, finding_id: str, kind: str, message: str, position: int | None = None, offset: int | None = None
    ) -> RemoteFinding:
        """Return a finding about the object of a *kind*."""
        return RemoteFinding(
            *(kind_of(finding_id), self.whose.topic, self.whose.number, "remote", self.entry.segment_id),
            *(self.key(kind), position, offset, message, self.heading),
        )
