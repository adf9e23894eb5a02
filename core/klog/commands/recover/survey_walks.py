"""Which batches salvage keeps, decided while a survey reads the logs, so that no log is read again for that.

As long as every batch continues the log, a few numbers are all there is to know of a segment.  At the first damage, or
the first batch that does not follow, a BatchSequencer goes on from these numbers.

The later segments, whose offsets a segment must not have, come after it in a survey.  So a walk assumes that they keep
all from the next one's base offset on; `KnownWalk.agrees` compares that with what they do keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from klog.base.errors import KlogError
from klog.base.read_only import ReadOnlyFile
from klog.commands.recover.dropped import SalvageOptions, damage_id
from klog.commands.recover.leading_batches import LeadingBatches
from klog.data_dir.partition import SegmentFiles
from klog.formats.damage import Damage
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.log.records import BatchRun
from klog.log.segment import MAX_RELATIVE_OFFSET
from klog.partition.verify.segment_pass import SegmentFacts

if TYPE_CHECKING:  # most logs are intact, and need none of this
    from klog.commands.recover.free_offsets import AssumedOffsets, FreeOffsets
    from klog.commands.recover.kept_batches import KeptBatches
    from klog.commands.recover.kept_content import KeptContent, PartitionContent
    from klog.commands.recover.kept_ranges import KeptRanges
    from klog.commands.recover.sequencer import BatchSequencer


class KnownWalk(NamedTuple):
    """What a walk over a segment of *size* bytes has kept; *assumed*: of later segments, None where all follows."""

    log: KeptBatches
    size: int
    assumed: AssumedOffsets | None

    def agrees(self, free: FreeOffsets) -> bool:
        """Whether the walk would have been the same with what later segments leave *free*."""
        if self.assumed is None:
            return free.limit(LONG_MIN) > self.log.last_offset
        return self.assumed.agrees(free)


class _EndedPass(NamedTuple):
    base: int
    source: ReadOnlyFile
    size: int
    leading: LeadingBatches
    sequencer: BatchSequencer | None
    assumed: AssumedOffsets | None


class SurveyWalks:
    """A BatchObserver: the walk over each segment that a survey has read to its end, by the name of its log.

    *content*: takes what is kept; None: it is not wanted.
    """

    def __init__(
        self, segments: Sequence[SegmentFiles], request: SalvageOptions, content: PartitionContent | None = None
    ) -> None:
        self._request, self.content = request, content
        self._next_bases = dict(_next_bases(segments))
        self._last = segments[-1] if segments else None
        self._ended: dict[str, _EndedPass] = {}

    def begin(self, source: ReadOnlyFile, facts: SegmentFacts) -> None:
        """Take note that the pass over a segment begins."""
        self._source, self._files = source, facts.files
        self._leading = LeadingBatches(facts.files.base_offset, self._next_bases[facts.files.log])
        self._sequencer: BatchSequencer | None = None
        self._assumed: AssumedOffsets | None = None
        self._has_failed = False
        self._kept: KeptContent | None = None
        if self.content is not None:
            self._kept = self.content.begin(facts.files.log, facts.files.base_offset)

    def take(self, run: BatchRun) -> None:
        """Take intact batches."""
        if self._sequencer is None and self._leading.take(run.window, run.first, run.end):
            if self._kept is not None:
                self._kept.take(run.window, run.first, run.end)
            return
        try:
            self._continued().rows(run.window, run.first, run.end)
        except KlogError:
            self._has_failed = True

    def damaged(self, damage: Damage) -> None:
        """Take a stretch without intact batches."""
        reason = damage_id(damage, self._files == self._last, self._source.size)
        try:
            self._continued().damage(damage, reason)
        except KlogError:
            self._has_failed = True

    def end(self, size: int) -> None:
        """Take note that the pass is over."""
        try:
            if self._sequencer is not None:
                self._sequencer.finish()
        except KlogError:
            self._has_failed = True
        if self._kept is not None:
            self._kept.finish(with_indexes=self._sequencer is not None)
            self._kept.is_exact &= not self._has_failed
        if self._has_failed:
            return
        if self._sequencer is None:
            self._leading.recent.clear()  # no neighbour of what follows is needed
        self._ended[self._files.log] = _EndedPass(
            self._files.base_offset, self._source, size, self._leading, self._sequencer, self._assumed
        )

    def walk(self, log: str) -> KnownWalk | None:
        """Return the walk over a log; None if there was none, or it failed."""
        ended = self._ended.get(log)
        if ended is None:
            return None
        if ended.sequencer is not None:
            return KnownWalk(ended.sequencer.log, ended.size, ended.assumed)
        from klog.commands.recover.free_offsets import FreeOffsets
        from klog.commands.recover.kept_batches import KeptBatches

        return KnownWalk(KeptBatches(ended.base, FreeOffsets(), ended.source, ended.leading), ended.size, None)

    def has_content(self, log: str, kept: KeptRanges, is_whole: bool) -> bool:
        """Whether the content of a log is that of what salvage has *kept*; *is_whole*: that is all of it."""
        found = self.content.segments.get(log) if self.content is not None else None
        ended = self._ended.get(log)
        if found is None or ended is None or not found.is_exact:
            return False
        return is_whole if ended.sequencer is None else found.kept is kept

    def _continued(self) -> BatchSequencer:
        """Return the sequencer that goes on where a batch does not follow."""
        if self._sequencer is None:
            from klog.commands.recover.free_offsets import AssumedOffsets
            from klog.commands.recover.sequencer import BatchSequencer

            next_base, last = self._next_bases[self._files.log], self._last or self._files
            self._assumed = AssumedOffsets(next_base, last.base_offset + MAX_RELATIVE_OFFSET)
            base = self._files.base_offset
            self._sequencer = BatchSequencer(
                self._source, base, self._assumed, self._request, leading=self._leading, content=self._kept
            )
        return self._sequencer


def _next_bases(segments: Sequence[SegmentFiles]) -> list[tuple[str, int]]:
    """Return for each log the base offset of the next one that is not empty; LONG_MAX where there is none."""
    found, next_base = [], LONG_MAX
    for files in reversed(segments):
        found.append((files.log, next_base))
        next_base = files.base_offset if files.size else next_base
    return found
