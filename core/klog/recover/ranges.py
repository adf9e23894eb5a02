"""What salvage keeps of a partition: every intact batch, before and behind damage, once and in order.

    for segment in salvage_ranges(Partition("data/orders-3"), Request()).segments:
        print(segment.files.log, list(segment.kept.pairs()), segment.cuts)

The last segment comes first, so that each one knows where the next begins that has anything to keep.  Batches whose
checksum holds but whose records do not decode are intact to a broker, and are kept.  Nothing is changed.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from klog.bits import Patch
from klog.check.log import IDS
from klog.decode import runs
from klog.errors import KlogError
from klog.formats.damage import Damage, DamageKind
from klog.kernel import Window
from klog.lanes import Silence, Sink
from klog.partition import Partition, SegmentFiles
from klog.recover.chain import Chain
from klog.recover.kept import Gap, Kept, batches
from klog.recover.left import HIGHEST, MOST_LEFT, Left, Request, key
from klog.recover.salvaged import Salvaged
from klog.recover.splice import Patched
from klog.segment import Segment
from klog.source import Source


class Cut(NamedTuple):
    """Bytes of a log that are not kept: *bytes* from *start* to *end*; fewer only in the last of too many to tell.

    *reason*: the id of a finding; *detail*: in words.  *before*, *after*: the last offset that is kept before it and
    the first behind it in this segment, None where there is none.  *offsets_lost*: at most so many, None where nothing
    bounds them.  *batches*, *records*: what it has with checksums that hold; *copies* of these batches, with
    *copied_records*, are kept elsewhere, so they are not lost.
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
        """Whether all that it holds is kept elsewhere."""
        return 0 < self.batches == self.copies


class SegmentRanges(NamedTuple):
    """What is kept of a segment: the stretches of *kept* with *patches* made, one behind the other.

    *size*: bytes of the log.  *batches*, *records*: those that are kept; a message set counts as one record.
    *unreadable*: why the log cannot be opened; then nothing is known of it, and it is to be left alone.  *unsure*: bits
    that could be all that is wrong, but are not put right.
    """

    files: SegmentFiles
    size: int
    kept: Kept
    patches: tuple[Patch, ...] = ()
    cuts: tuple[Cut, ...] = ()
    batches: int = 0
    records: int = 0
    unreadable: KlogError | None = None
    unsure: tuple[Patch, ...] = ()

    @property
    def is_whole(self) -> bool:
        """Whether it stays as it is."""
        return not self.patches and not self.cuts

    @property
    def last_offset(self) -> int | None:
        """The last offset that is kept; None when nothing is."""
        return self.kept.lasts[-1] if self.kept else None


class Salvage(NamedTuple):
    """What is kept of a partition, by segments, base offsets ascending."""

    segments: tuple[SegmentRanges, ...]

    @property
    def in_the_way(self) -> tuple[SegmentRanges, ...]:
        """Segments of which nothing is kept, though an earlier one has offsets from their base on: these must go.

        Else a broker would look for those offsets in them, and in vain.
        """
        found, last = [], -1
        for segment in self.segments:
            if not segment.kept and segment.files.base_offset <= last:
                found.append(segment)
            last = max(last, -1 if segment.last_offset is None else segment.last_offset)
        return tuple(found)


class _Walked(NamedTuple):
    """A segment after the walk.  *limit*: the offset that the next one with anything to keep begins at."""

    files: SegmentFiles
    size: int
    limit: int
    log: Salvaged | None
    unreadable: KlogError | None = None


def salvage_ranges(partition: Partition, request: Request, sink: Sink | None = None) -> Salvage:
    """Return what salvage keeps of *partition*.  Content never raises, nor does a log that cannot be opened.

    *sink* hears of progress.  Kafka has no such thing: a broker cuts at the first damage, and drops all later segments.
    """
    walked: list[_Walked] = []
    limit, window = HIGHEST, Window()
    for files in reversed(partition.segments):
        is_last = not walked
        walked.insert(0, _walk(partition.path, files, limit, is_last, request, sink or Silence(), window))
        if walked[0].log is None or walked[0].log.kept:
            limit = files.base_offset
    for number, segment in enumerate(walked):
        if segment.log is not None and segment.log.dropped.offsets:
            _count_copies(partition.path, walked, number)
    return Salvage(tuple(_ranges(segment) for segment in walked))


def _walk(
    folder: str, files: SegmentFiles, limit: int, is_last: bool, request: Request, sink: Sink, window: Window
) -> _Walked:
    path = os.path.join(folder, files.log)
    span = Segment(path).span
    try:
        with Source(path) as source:
            chain = Chain(source, files.base_offset, limit, request)
            reader = Segment(path).reader(source, max_batch_bytes=request.max_batch_bytes)
            sink.expect(source.size)
            while piece := reader.next(window):
                for run in runs(window, path, span):
                    if run.damage:
                        chain.damage(run.damage, _reason(run.damage, is_last, source.size))
                    else:
                        chain.rows(run.window, run.first, run.end)
                if piece.damage:
                    chain.damage(piece.damage, _reason(piece.damage, is_last, source.size))
                sink.advance(piece.consumed)
            chain.finish()
            return _Walked(files, reader.end, limit, chain.log)
    except KlogError as error:
        return _Walked(files, files.size, limit, None, error)


def _reason(damage: Damage, is_last: bool, size: int) -> str:
    """Return the id of the finding that *damage* is."""
    at_end = (damage.place.position or 0) + (damage.size or 0) >= size
    if damage.kind is DamageKind.ZEROED_TAIL and is_last and at_end:
        return "zero-tail"
    return IDS[damage.kind]


# copies of what is dropped


def _count_copies(folder: str, walked: list[_Walked], number: int) -> None:
    """Count which of the batches that one segment drops are kept in it, or in the one where their offsets belong."""
    log = walked[number].log
    assert log is not None
    offsets = log.dropped.offsets
    bases = [segment.files.base_offset for segment in walked]
    by_segment: dict[int, list[int]] = {}
    missing = sorted(range(len(offsets)), key=offsets.__getitem__)
    found = set(_kept_in(folder, walked[number], log, missing))
    for i in missing:
        if i not in found:
            by_segment.setdefault(bisect_right(bases, offsets[i]) - 1, []).append(i)
    for place, order in by_segment.items():
        if place not in (-1, number):
            found.update(_kept_in(folder, walked[place], log, order))
    for i in found:
        left = log.left[log.dropped.left[i]]
        left.copies += 1
        left.copied_records += log.dropped.records[i]


def _kept_in(folder: str, keeper: _Walked, dropper: Salvaged, order: list[int]) -> Iterator[int]:
    """Yield the numbers of the dropped batches, from *order*, that a segment keeps."""
    if keeper.log is not None and keeper.log.kept:
        with suppress(KlogError), Source(os.path.join(folder, keeper.files.log)) as source:
            yield from _kept_ones(source, keeper.log, dropper, order)


def _kept_ones(source: Source, keeper: Salvaged, dropper: Salvaged, order: list[int]) -> Iterator[int]:
    """Yield the numbers of the dropped batches, from *order* (offsets ascending), that *keeper* keeps."""
    offsets, keys = dropper.dropped.offsets, dropper.dropped.keys
    waiting = iter(order)
    wanted = next(waiting, None)
    log = Patched(source, keeper.patches.values())
    for (start, end), last in zip(keeper.kept.pairs(), keeper.kept.lasts, strict=True):
        if wanted is None:
            return
        if offsets[wanted] > last:
            continue  # not worth reading
        for window in batches(log, start, end):
            at = 0
            while wanted is not None and (at := window.first_reaching(offsets[wanted], at)) < window.count:
                found = window.batch(at)
                if found.base_offset == offsets[wanted] and key(found) == keys[wanted]:
                    yield wanted
                wanted = next(waiting, None)
            if wanted is None or offsets[wanted] > last:
                break


# from what is left out to cuts


def _ranges(walked: _Walked) -> SegmentRanges:
    log = walked.log
    if log is None:
        return SegmentRanges(walked.files, walked.size, Kept(), unreadable=walked.unreadable)
    patches = tuple(log.patches[at] for at in sorted(log.patches))
    cuts = tuple(_cuts(walked, log))
    unsure = tuple(log.unsure)
    return SegmentRanges(walked.files, walked.size, log.kept, patches, cuts, log.batches, log.records, unsure=unsure)


def _cuts(walked: _Walked, log: Salvaged) -> Iterator[Cut]:
    """Yield the cuts, in their order; when there are too many of them, the last one sums up the rest."""
    left = sorted(log.left, key=lambda one: one.start)
    at, count, rest = 0, 0, None
    for gap in log.kept.gaps(walked.size):
        first = at
        while at < len(left) and left[at].start < gap.end:
            at += 1
        here = [one for one in left[first:at] if one.start >= gap.start]
        if count >= MOST_LEFT:
            rest = _summed(rest, gap, here, walked)
            continue
        for cut in _gap_cuts(gap, here, walked):
            count += 1
            yield cut
    if rest is not None:
        yield rest


def _gap_cuts(gap: Gap, left: list[Left], walked: _Walked) -> Iterator[Cut]:
    """Yield the cuts that a gap is made of: one for each thing left out; the first of them has the gap's offsets."""
    lost = _offsets_lost(gap, left, walked)
    left = left or [Left(gap.start, gap.end, "bad-length", "bytes between batches")]
    starts = [gap.start, *(one.start for one in left[1:])]
    for one, start, end in zip(left, starts, [*starts[1:], gap.end], strict=True):
        yield Cut(
            start, end, end - start, one.reason, one.detail, gap.before, gap.after, lost,
            one.batches, one.records, one.copies, one.copied_records,
        )  # fmt: skip
        lost = 0


def _offsets_lost(gap: Gap, left: list[Left], walked: _Walked) -> int | None:
    """Return how many offsets may have been in a gap; None when nothing follows that would bound them."""
    if left and all(0 < one.batches == one.copies for one in left):
        return 0
    before = walked.files.base_offset - 1 if gap.before is None else gap.before
    after = walked.limit if gap.after is None else gap.after
    return None if after == HIGHEST else max(after - before - 1, 0)


def _summed(rest: Cut | None, gap: Gap, left: list[Left], walked: _Walked) -> Cut:
    """Return the cut that stands for all that is not told one by one, with another gap in it."""
    lost = _offsets_lost(gap, left, walked)
    if rest is None:
        rest = Cut(gap.start, gap.end, 0, "more-damage", "more damaged places from here on", gap.before, None, 0)
    return Cut(
        rest.start, gap.end, rest.bytes + gap.end - gap.start, rest.reason, rest.detail, rest.before, gap.after,
        None if lost is None or rest.offsets_lost is None else rest.offsets_lost + lost,
        rest.batches + sum(one.batches for one in left), rest.records + sum(one.records for one in left),
        rest.copies + sum(one.copies for one in left), rest.copied_records + sum(one.copied_records for one in left),
    )  # fmt: skip
