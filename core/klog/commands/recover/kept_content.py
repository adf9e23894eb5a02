"""What the batches that a segment keeps give: its indexes, its leader epochs, its aborted transactions, its producers.

Built batch by batch, in their order, by the caller that decides what is kept; so the log need not be read again for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.spliced import PatchedLog
from klog.commands.recover.kept_ranges import KeptRanges
from klog.formats.batch import BatchFacts
from klog.formats.snapshot import Snapshot
from klog.kernel import IndexBuilder, Window
from klog.log.bit_flips import Patch
from klog.log.txn_index import AbortedTxn
from klog.log.windows import window_of
from klog.partition.transactions.markers import CompletedTxn
from klog.partition.transactions.producer_replay import apply_window
from klog.partition.transactions.producer_state import ProducerState

_NEVER_FULL = 2**31 - 1


class KeptContent:
    """What the kept batches of one segment give.  *state*: of the producers before them; it goes along.

    *aborted*: entries of the transaction index, by the offsets of their markers.  `is_exact`: nothing was taken back,
    and everything belongs to this segment; else none of it counts.  `end_offset`: behind the last batch.
    """

    def __init__(self, log: str, base: int, interval: int, state: ProducerState) -> None:
        self.builder: IndexBuilder | None = IndexBuilder(base, interval, _NEVER_FULL)
        self.state = state
        self.aborted: dict[int, AbortedTxn] = {}
        self.is_exact = True
        self.kept: KeptRanges | None = None
        self.epochs: list[tuple[int, int]] = []
        self.end_offset = base
        self._log, self._base = log, base

    def take(self, window: Window, first: int, end: int) -> None:
        """Take batches *first* to *end* of a window, which are intact."""
        assert self.builder is not None
        self.builder.walk(window, first, end)
        for event in apply_window(self.state, window, self._log, first, end):
            if isinstance(event, CompletedTxn) and event.index_entry is not None:
                self.aborted[event.last_offset] = event.index_entry

    def take_one(self, source: ReadOnlyFile, facts: BatchFacts, patches: Iterable[Patch]) -> None:
        """Take a batch that is in no window any more, or only now with *patches*."""
        try:
            data = PatchedLog(source, patches).read(facts.position, facts.size)
        except UnreadableError:
            self.is_exact = False
            return
        window = window_of(data, facts.position)
        window.scan(0)
        if window.count != 1 or window.check(0, 1):
            self.is_exact = False
            return
        self.take(window, 0, 1)

    def finish(self, *, with_indexes: bool = True) -> None:
        """Come to the segment's end; without *with_indexes* these are known otherwise, and take no memory."""
        assert self.builder is not None
        self.builder.finish()
        self.epochs = self.builder.epochs
        self.end_offset = max(self.builder.last_offset + 1, self._base)
        if not with_indexes:
            self.builder = None


class PartitionContent:
    """The same for the segments of a partition, one after another.  *start*: the log start offset.

    *snapshots*: those that a broker took, by offset.  They know of the producers whose batches are lost.
    """

    def __init__(self, start: int, snapshots: Mapping[int, Snapshot], interval: int) -> None:
        self.segments: dict[str, KeptContent] = {}
        self.state = ProducerState(start)
        self._snapshots, self._interval = snapshots, interval

    def begin(self, log: str, base: int) -> KeptContent:
        """Return the content of the next segment, to be filled."""
        if base in self._snapshots:
            self.state = ProducerState.load(self._snapshots[base], base)
        self.segments[log] = KeptContent(log, base, self._interval, self.state)
        return self.segments[log]
