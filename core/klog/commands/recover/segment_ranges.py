"""The part of a partition that salvage keeps: every intact batch, before and after damage, once and in order.

    for segment in salvage_ranges(Partition("data/orders-3"), Request()).segments:
        print(segment.files.log, list(segment.kept.pairs()), segment.cuts)

The last segment is the first, so that each one has the offsets of the later ones that keep any batch.  Batches whose
offsets their segment cannot hold are moved into segments of their own, as a broker splits it.  Batches whose checksum
matches but whose records do not decode are intact to a broker, and are kept.  Nothing is changed.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from klog.base.errors import KlogError
from klog.base.progress import Silence, Sink
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import PatchedLog
from klog.commands.recover.kept_batches import KeptBatches
from klog.commands.recover.kept_ranges import FreeOffsets, KeptGap, KeptRanges, SegmentPart, batches
from klog.commands.recover.sequencer import BatchSequencer
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.kernel import Window
from klog.log.bit_flips import Patch
from klog.log.records import intact_runs
from klog.log.segment import Segment
from klog.partition.repair.partition_survey import OrderedLogs
from klog.partition.repair.recover_outcome import MOST_LEFT, DroppedRange, SalvageOptions, damage_id, key


class DroppedBytes(NamedTuple):
    """Dropped bytes of a log: *bytes* from *start* to *end*; fewer only in the last one of too many.

    *reason*: the id of a finding; *detail*: in words.  *before*, *after*: the last kept offset before it and the first
    behind it in this log, None without one.  *offsets_lost*: at most so many, None without a bound, or if the log is
    split there.  *batches*, *records*: those whose checksums match; *copies* of these batches, with *copied_records*,
    are kept elsewhere and are not lost.
    """

    start: int
    end: int
    bytes: int
    reason: str
    detail: str
    before: int | None
    after: int | None
    offsets_lost: int | None
    batches: int = 0
    records: int = 0
    copies: int = 0
    copied_records: int = 0

    @property
    def is_duplicate(self) -> bool:
        """Whether all of it is kept elsewhere."""
        return 0 < self.batches == self.copies


class PartRanges(NamedTuple):
    """A segment for stretches of a log: its base offset, and the kept ranges in it."""

    base: int
    kept: KeptRanges


class SegmentRanges(NamedTuple):
    """The kept part of a segment: the stretches of *kept* with *patches* made, one behind the other.

    *parts*: the segments for them, their base offsets ascending; the first is the segment itself, whatever it keeps.
    *size*: bytes of the log.  *batches*, *records*: the kept ones; a message set counts as one record.  *unreadable*:
    the reason why the log cannot be opened; it is then unknown, and must be left alone.  *unsure*: bits that could be
    the only fault, but are not repaired.
    """

    files: SegmentFiles
    size: int
    kept: KeptRanges
    patches: tuple[Patch, ...] = ()
    cuts: tuple[DroppedBytes, ...] = ()
    batches: int = 0
    records: int = 0
    unreadable: KlogError | None = None
    unsure: tuple[Patch, ...] = ()
    parts: tuple[PartRanges, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it stays as it is."""
        return not self.patches and not self.cuts and not self.is_split

    @property
    def is_split(self) -> bool:
        """Whether it becomes several segments."""
        return len(self.parts) > 1

    @property
    def last_offset(self) -> int | None:
        """The last offset that is kept; None when nothing is."""
        return self.kept.lasts[-1] if self.kept else None


class PartitionRanges(NamedTuple):
    """The kept part of a partition, by segments, base offsets ascending."""

    segments: tuple[SegmentRanges, ...]

    @property
    def in_the_way(self) -> tuple[SegmentRanges, ...]:
        """Segments that keep no batch themselves, though another one begins before and has offsets from their base on,
        or begins at the same offset: these must be deleted.

        Otherwise a broker would look for those offsets in them, without success.
        """
        by_base = {segment.files.base_offset: segment for segment in self.segments}
        parts = [(part.base, not part.kept, part.kept) for segment in self.segments for part in segment.parts]
        found, last = [], -1
        for base, is_empty, kept in sorted(parts, key=lambda part: part[:2]):
            if is_empty and base <= last:
                found.append(by_base[base])
            last = last if is_empty else max(last, kept.lasts[-1])
        return tuple(found)


class _SegmentWalk(NamedTuple):
    """A segment after the walk.  *limit*: the first offset behind its kept part that another one has."""

    files: SegmentFiles
    size: int
    limit: int
    log: KeptBatches | None
    unreadable: KlogError | None = None


def salvage_ranges(
    partition: Partition, request: SalvageOptions, sink: Sink | None = None, ordered: OrderedLogs | None = None
) -> PartitionRanges:
    """Return the part of *partition* that salvage keeps.  Neither content nor a log that cannot be opened raises an
    error.

    *sink* receives progress.  *ordered*: the logs that a survey found in order; only the others are read.
    Kafka has no such thing: a broker cuts at the first damage, and drops all later segments.
    """
    walked: list[_SegmentWalk] = []
    free, window = FreeOffsets(), Window()
    for files in reversed(partition.segments):
        walk = _Walk(partition.path, files, free, not walked, request, window)
        known = walk.known(ordered) if ordered is not None else None
        walked.insert(0, walk.best(sink or Silence()) if known is None else known)
        _take(free, walked[0])
    for number, segment in enumerate(walked):
        if segment.log is not None and segment.log.dropped.offsets:
            _count_copies(partition.path, walked, number)
    return PartitionRanges(tuple(_ranges(segment) for segment in walked))


def _take(free: FreeOffsets, walked: _SegmentWalk) -> None:
    """Assign its offsets to a segment; one that cannot be opened has all up to the next."""
    base, log = walked.files.base_offset, walked.log
    if log is None:
        free.take(base, walked.limit - 1, -1)
        return
    free.take_parts(log.parts, [part.kept.lasts[-1] if part.kept else -1 for part in _parts(walked)], log.epoch)


class _Walk(NamedTuple):
    """A walk over one segment.  *free*: the offsets that no later segment has."""

    folder: str
    files: SegmentFiles
    free: FreeOffsets
    is_last: bool
    request: SalvageOptions
    window: Window

    def best(self, sink: Sink) -> _SegmentWalk:
        """Return the walk that keeps more: with a split of the segment, or without.

        A block of another log, written into this one, may have offsets so high that all later batches would seem to go
        backwards.
        """
        walked = self.walk(sink)
        if walked.log is None or len(walked.log.parts) == 1 or not walked.log.dropped.offsets:
            return walked
        other = self.walk(Silence(), splits=False)
        return other if other.log is not None and other.log.batches > walked.log.batches else walked

    def known(self, ordered: OrderedLogs) -> _SegmentWalk | None:
        """Return the walk over a log that is ordered, and ends below the offsets that later segments keep."""
        log, base = ordered.logs.get(self.files.log), self.files.base_offset
        if log is None or self.free.limit(LONG_MIN) <= log.last_offset:
            return None
        return _SegmentWalk(self.files, log.size, self.free.limit(log.last_offset), KeptBatches.whole(base, log))

    def walk(self, sink: Sink, *, splits: bool = True) -> _SegmentWalk:
        """Return the result of a walk."""
        path, base, largest = (
            os.path.join(self.folder, self.files.log),
            self.files.base_offset,
            self.request.max_batch_bytes,
        )
        segment = Segment(path, bounded=False)
        try:
            with ReadOnlyFile(path, again=True) as source:
                chain = BatchSequencer(source, base, self.free, self.request, splits)
                reader = segment.reader(source, max_batch_bytes=largest)
                sink.expect(source.size)
                while piece := reader.next(self.window):
                    for run in intact_runs(self.window, path, segment.span):
                        if run.damage:
                            chain.damage(run.damage, damage_id(run.damage, self.is_last, source.size))
                        else:
                            chain.rows(run.window, run.first, run.end)
                    if piece.damage:
                        chain.damage(piece.damage, damage_id(piece.damage, self.is_last, source.size))
                    sink.advance(piece.consumed, path)
                chain.finish()
                return _SegmentWalk(self.files, reader.end, self.free.limit(chain.log.last_offset), chain.log)
        except KlogError as error:
            return _SegmentWalk(self.files, self.files.size, self.free.limit(base), None, error)


def _parts(walked: _SegmentWalk) -> tuple[PartRanges, ...]:
    """Return the segments for the kept part of one."""
    log = walked.log
    if log is None or len(log.parts) == 1:
        return (PartRanges(walked.files.base_offset, log.kept if log is not None else KeptRanges()),)
    ends = [*(part.position for part in log.parts[1:]), walked.size]
    return tuple(
        PartRanges(part.base, log.kept.between(part.position, end)) for part, end in zip(log.parts, ends, strict=True)
    )


# copies of dropped batches


def _count_copies(folder: str, walked: list[_SegmentWalk], number: int) -> None:
    """Count which of the batches that one segment drops are kept in it, or in the one where their offsets belong."""
    log = walked[number].log
    assert log is not None
    offsets = log.dropped.offsets
    parts = sorted((part.base, place) for place, segment in enumerate(walked) for part in _bases(segment))
    by_segment: dict[int, list[int]] = {}
    missing = sorted(range(len(offsets)), key=offsets.__getitem__)
    found = set(_kept_in(folder, walked[number], log, missing))
    for i in missing:
        if i not in found:
            at = bisect_right(parts, (offsets[i], len(walked))) - 1
            by_segment.setdefault(parts[at][1] if at >= 0 else number, []).append(i)
    for place, order in by_segment.items():
        if place != number:
            found.update(_kept_in(folder, walked[place], log, order))
    for i in found:
        left = log.left[log.dropped.left[i]]
        left.copies += 1
        left.copied_records += log.dropped.records[i]


def _bases(walked: _SegmentWalk) -> list[SegmentPart]:
    return walked.log.parts if walked.log is not None else [SegmentPart(0, walked.files.base_offset)]


def _kept_in(folder: str, keeper: _SegmentWalk, dropper: KeptBatches, order: list[int]) -> Iterator[int]:
    """Yield the numbers of the dropped batches, from *order*, that a segment keeps."""
    if keeper.log is not None and keeper.log.kept:
        with suppress(KlogError), ReadOnlyFile(os.path.join(folder, keeper.files.log), again=True) as source:
            yield from _kept_ones(source, keeper.log, dropper, order)


def _kept_ones(source: ReadOnlyFile, keeper: KeptBatches, dropper: KeptBatches, order: list[int]) -> Iterator[int]:
    """Yield the numbers of the dropped batches, from *order* (offsets ascending), that *keeper* keeps."""
    offsets, keys = dropper.dropped.offsets, dropper.dropped.keys
    waiting = iter(order)
    wanted = next(waiting, None)
    log = PatchedLog(source, keeper.patches.values())
    for (start, end), last in zip(keeper.kept.pairs(), keeper.kept.lasts, strict=True):
        if wanted is None:
            return
        if offsets[wanted] > last:
            continue  # not worth a read
        for window in batches(log, start, end):
            at = 0
            while wanted is not None and (at := window.first_reaching(offsets[wanted], at)) < window.count:
                found = window.batch(at)
                if found.base_offset == offsets[wanted] and key(found) == keys[wanted]:
                    yield wanted
                wanted = next(waiting, None)
            if wanted is None or offsets[wanted] > last:
                break


# from dropped ranges to cuts


def _ranges(walked: _SegmentWalk) -> SegmentRanges:
    log = walked.log
    if log is None:
        return SegmentRanges(
            walked.files, walked.size, KeptRanges(), unreadable=walked.unreadable, parts=_parts(walked)
        )
    patches = tuple(log.patches[at] for at in sorted(log.patches))
    cuts = tuple(_cuts(walked, log))
    return SegmentRanges(
        walked.files, walked.size, log.kept, patches, cuts, log.batches, log.records,
        unsure=tuple(log.unsure), parts=_parts(walked),
    )  # fmt: skip


def _cuts(walked: _SegmentWalk, log: KeptBatches) -> Iterator[DroppedBytes]:
    """Yield the cuts, in their order; when there are too many of them, the last one sums up the rest."""
    left = sorted(log.left, key=lambda one: one.start)
    begins = {part.position for part in log.parts[1:]}
    at, count, rest = 0, 0, None
    for gap in log.kept.gaps(walked.size):
        first = at
        while at < len(left) and left[at].start < gap.end:
            at += 1
        here = [one for one in left[first:at] if one.start >= gap.start]
        if count >= MOST_LEFT:
            rest = _summed(rest, gap, _offsets_lost(gap, here, walked, begins), here)
            continue
        for cut in _gap_cuts(gap, here, _offsets_lost(gap, here, walked, begins)):
            count += 1
            yield cut
    if rest is not None:
        yield rest


def _gap_cuts(gap: KeptGap, left: list[DroppedRange], lost: int | None) -> Iterator[DroppedBytes]:
    """Yield the cuts of a gap: one for each dropped range; the first of them has the gap's offsets."""
    left = left or [DroppedRange(gap.start, gap.end, "bad-length", "bytes between batches")]
    starts = [gap.start, *(one.start for one in left[1:])]
    for one, start, end in zip(left, starts, [*starts[1:], gap.end], strict=True):
        yield DroppedBytes(
            start, end, end - start, one.reason, one.detail, gap.before, gap.after, lost,
            one.batches, one.records, one.copies, one.copied_records,
        )  # fmt: skip
        lost = 0


def _offsets_lost(gap: KeptGap, left: list[DroppedRange], walked: _SegmentWalk, begins: set[int]) -> int | None:
    """Return how many offsets may have been in a gap; None when nothing follows that would bound them.

    *begins*: where other segments begin.  Offsets that no segment could hold were not all in the gap.
    """
    if left and all(0 < one.batches == one.copies for one in left):
        return 0
    if gap.end in begins:
        return None
    before = walked.files.base_offset - 1 if gap.before is None else gap.before
    after = walked.limit if gap.after is None else gap.after
    return None if after == LONG_MAX else max(after - before - 1, 0)


def _summed(rest: DroppedBytes | None, gap: KeptGap, lost: int | None, left: list[DroppedRange]) -> DroppedBytes:
    """Return the cut for everything that is not reported one by one, extended by another gap."""
    if rest is None:
        rest = DroppedBytes(
            gap.start, gap.end, 0, "more-damage", "more damaged places from here on", gap.before, None, 0
        )
    return DroppedBytes(
        rest.start, gap.end, rest.bytes + gap.end - gap.start, rest.reason, rest.detail, rest.before, gap.after,
        None if lost is None or rest.offsets_lost is None else rest.offsets_lost + lost,
        rest.batches + sum(one.batches for one in left), rest.records + sum(one.records for one in left),
        rest.copies + sum(one.copies for one in left), rest.copied_records + sum(one.copied_records for one in left),
    )  # fmt: skip
