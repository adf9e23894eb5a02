"""Recovers a segment without reading it again, from the results of an earlier pass over its log.

A broker's recovery ends at the first damage.  Any pass that verifies the checksums of the batches before it and builds
the indexes has the result of that recovery; only producers need more.  Only open transactions can make a recovery stop
or fail because of a producer (Kafka: ProducerAppendInfo), and they alone are compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.partition.start.start_files import ReadSettings, StartSegment

if TYPE_CHECKING:
    from klog.partition.start.producer_recovery import ProducerLoader
    from klog.partition.transactions.producer_replay import OpenTxns

_SPARE_ENTRIES = 4
"""An index with fewer free entries may have filled up on the way."""


class IntactPrefix(NamedTuple):
    """The intact batches (v2, offsets ascending) at the start of a segment, up to its end or its first damage.

    *log_bytes*: size of the whole log; *size*: of these batches.  *epochs*: the leader epochs that they begin, with
    their first offsets.  *last_entry*: of the rebuilt offset index; *index_bytes*, *time_index_bytes*: sizes of the
    rebuilt indexes.  *has_producers*: some batches have producer ids; *open_before*, *open_after*: the transactions
    that were open at the start and the end of the segment.
    """

    log_bytes: int
    size: int
    batches: int
    last_offset: int
    epochs: tuple[tuple[int, int], ...]
    last_entry: bytes
    index_bytes: int
    time_index_bytes: int
    has_producers: bool
    open_before: OpenTxns
    open_after: OpenTxns

    def is_of(self, segment: StartSegment, producers: ProducerLoader, settings: ReadSettings) -> bool:
        """Whether a recovery of *segment* that begins with *producers* takes these batches and then stops."""
        if len(segment.log) != 1 or segment.log[0].start or segment.size not in (self.size, self.log_bytes):
            return False
        room = settings.index_bytes // OFFSET_ENTRY.size - _SPARE_ENTRIES
        time_room = settings.index_bytes // TIME_ENTRY.size - _SPARE_ENTRIES
        if self.index_bytes > room * OFFSET_ENTRY.size or self.time_index_bytes > time_room * TIME_ENTRY.size:
            return False
        from klog.partition.transactions.producer_replay import open_txns

        return not self.has_producers or open_txns(producers.state) == self.open_before

    def apply_to(self, producers: ProducerLoader) -> None:
        """Bring *producers* behind the batches, as far as a recovery depends on them: to the open transactions."""
        if not self.batches:
            return
        producers.end = self.last_offset + 1
        if self.has_producers:
            from klog.formats.snapshot import Producer, Snapshot
            from klog.partition.transactions.producer_state import ProducerState

            found = tuple(Producer(producer_id, -1, -1, -1, 0, -1, -1, first) for first, producer_id in self.open_after)
            producers.state = ProducerState.load(Snapshot(found), producers.end)
