"""Searches a segment: index, header walk, batch; checks every batch after a problem.  Opens segments.

1. `start` finds the greatest index entry not above the target.  The log has to confirm it (`_confirm`): an intact batch
   begins at its position, the walk from the entry before reaches it, and its offsets are not above the entry's.
   Otherwise one of the entries before it is used, after eight of them the start of the log.
2. `scan` walks from header to header to the first batch that may be the target, and verifies its checksum.
3. A target behind a gap is accepted only if the batch before it is intact and the next one has higher offsets: a
   damaged length could hide the real target.
4. After any failed check `_careful` reads every batch from the start of the walk on, past damage.
5. `_judged` notes a problem of the index if the walk was longer than three of its intervals.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from klog.base.errors import UsageError
from klog.base.overlays import OverlayFile, overlay_file
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.batch import BatchFacts
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.names import FileKind
from klog.kernel import Window
from klog.log.header_walk import HeaderWalk, header_at
from klog.log.index import IndexEntries, offset_entries
from klog.partition.lookup.batch_body import Bodies, Body
from klog.partition.lookup.lookup_trail import IndexTrail, ScanTrail, SegmentTrail

if TYPE_CHECKING:
    from klog.log.records import Codecs

INDEX_INTERVAL_BYTES = 4096
"""Kafka's default of index.interval.bytes."""

_TRIES = 8
_GAPS = 3


class LookupQuery(Protocol):
    """The target of a search."""

    def candidate(self, window: Window, row: int) -> int:
        """Return the first row from *row* on whose header allows a match, the count without one."""

    def accepts(self, body: Body) -> bool:
        """Whether an intact candidate is the answer."""

    def is_suspect(self, body: Body) -> bool:
        """Whether it is the answer only if nothing was passed over right before it."""


class OffsetQuery:
    """The first batch whose last offset is not below *offset*."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def candidate(self, window: Window, row: int) -> int:
        """Return the first row from *row* on that reaches the offset."""
        return window.first_reaching(self._offset, row)

    def accepts(self, body: Body) -> bool:
        """Every one is the answer."""
        return True

    def is_suspect(self, body: Body) -> bool:
        """A gap may be empty, or contain batches that a damaged length hides."""
        return body.first_offset > self._offset


class SearchResult(NamedTuple):
    """The result of a search in a segment.

    *body* is None when no batch was found.  *damages* lie between the start of the walk and the batch; *adjacent*: the
    last of them right before it.  *end_offset*: the next offset after the last batch, where none was found; None for a
    segment without any.
    """

    offset_index: IndexTrail
    scan: ScanTrail
    body: Body | None = None
    damages: tuple[Damage, ...] = ()
    adjacent: bool = False
    end_offset: int | None = None


class SegmentSearch:
    """One segment, opened for any number of searches; they are fastest in ascending order.

    *unfinished*: it is the last one, and no clean-shutdown marker is there; then index and log may
    differ at their ends.
    Raises UnreadableError when the log cannot be opened.
    """

    def __init__(self, folder: str, files: SegmentFiles, codecs: Codecs, unfinished: bool = False) -> None:
        self.files = files
        self.path = os.path.join(folder, files.log)
        self.log = ReadOnlyFile(self.path)
        self.walk = HeaderWalk(self.log)
        self.bodies = Bodies(self.log, codecs)
        self._folder = folder
        self._unfinished = unfinished
        self._entries: IndexEntries | None = None
        self._confirmed: set[tuple[int, int]] = set()

    def close(self) -> None:
        """Close the files."""
        self.log.close()
        if self._entries is not None:
            self._entries.close()

    # the index

    @property
    def entries(self) -> IndexEntries | None:
        """The offset index; None when there is no such file."""
        if self._entries is None and self.files.offset_index is not None:
            self._entries = offset_entries(os.path.join(self._folder, self.files.offset_index), self.log.size)
            self._entries.problem = self._entries.problem or self._leftovers(self._entries)
        return self._entries

    def _leftovers(self, entries: IndexEntries) -> str | None:
        """Describe the slot after the last used entry if it is neither zeros nor the leftover of a truncation."""
        if entries.count == entries.slots:
            return None
        relative, position = entries[entries.count]
        if (relative, position) == (0, 0):
            return None
        if relative > 0 and position >= self.log.size:
            if position == self.log.size or self._unfinished:
                return None
            return f"entry {entries.count} points at {position}, beyond the log's end at {self.log.size}"
        return f"entry {entries.count} is offset {self.files.base_offset + relative}, position {position}"

    def start(self, offset: int) -> tuple[IndexTrail, int]:
        """Return the index's answer for *offset*, and the row of the walk's window at which scanning begins.

        An entry is used only if the log confirms it; otherwise an earlier one, or the start of the log.
        """
        base, entries = self.files.base_offset, self.entries
        if entries is None:
            problem = "there is no offset index" if self.log.size else None
            return IndexTrail(None, None, 0, base, 0, problem=problem), self._from(0)
        sought = entries.search(offset - base)
        problem = entries.problem
        for slot in range(sought.slot, max(sought.slot - _TRIES, -1), -1):
            if entries[slot][0] > offset - base:
                continue  # out of order
            row, wrong = self._confirm(entries, slot)
            if row >= 0:
                relative, position = entries[slot]
                if problem is None and slot + 1 < entries.count and not _ascend(entries[slot], entries[slot + 1]):
                    problem = f"entry {slot + 1} does not ascend from the one before it"
                facts = (slot, entries.count, base + relative, position, sought.probes, sought.warm_from, problem)
                return IndexTrail(self.files.offset_index, *facts), row
            problem = problem or wrong
            self.walk.forget()
        trail = IndexTrail(
            self.files.offset_index, None, entries.count, base, 0, sought.probes, sought.warm_from, problem
        )
        return trail, self._from(0)

    def _from(self, position: int) -> int:
        row = self.walk.row_at(position)
        if row < 0:
            self.walk.go(position, position)
        return max(row, 0)

    def _confirm(self, entries: IndexEntries, slot: int) -> tuple[int, str | None]:
        """Return the row of the batch at which an entry points, or -1 and why that cannot be right.

        The log confirms an entry if a whole batch begins there, the walk from the entry before reaches it, and its
        first offset is not above the entry's.
        """
        base = self.files.base_offset
        relative, position = entries[slot]
        if (relative, position) in self._confirmed and (row := self.walk.row_at(position)) >= 0:
            return row, None
        before = entries[slot - 1] if slot else (0, 0)
        named = f"entry {slot} (offset {base + relative}, position {position})"
        if not (0 < position < self.log.size and relative > 0):
            return -1, f"{named} points out of the log"
        if not _ascend(before, (relative, position)):
            return -1, f"{named} does not ascend from the one before it"
        row = self.walk.row_at(position)
        if row < 0:
            self.walk.go(before[1], position)
            row = self.walk.row_at(position)
        if row < 0 and self._unfinished and self.walk.broken and self.walk.next_position <= position:
            return -1, None  # the index had reached the disk before the log did
        if row < 0:
            return -1, f"{named} does not point at the beginning of a batch"
        body = self.bodies.of(self.walk.window, row)
        if body is None or not body.holds:
            return -1, f"{named} points at a batch whose checksum does not match"
        if not base <= body.first_offset <= base + relative:
            return -1, f"{named} points at a batch with higher offsets"
        self._confirmed.add((relative, position))
        return row, None

    # the scan

    def find(self, offset: int) -> SearchResult:
        """Search the first batch that reaches *offset*."""
        return self.scan(*self.start(offset), OffsetQuery(offset))

    def scan(self, trail: IndexTrail, row: int, query: LookupQuery) -> SearchResult:
        """Walk on from *row*, the result for *trail*, to the target; repeat it with all checks after a problem."""
        walk, batches = self.walk, 0
        while True:
            window, first = walk.window, row
            count = window.count
            while (row := query.candidate(window, row)) < count:
                body = self.bodies.of(window, row)
                if body is None or not body.holds:
                    return self._careful(trail, query)
                if query.accepts(body):
                    if query.is_suspect(body) and not (self._before_is_intact(row) and self._ascends(body.facts)):
                        return self._careful(trail, query)
                    scan = ScanTrail(trail.position, batches + row + 1 - first)
                    return SearchResult(self._judged(trail, window.position + window.at(row)), scan, body)
                row += 1
            batches += count - first
            if not walk.more():
                break
            row = 0
        if not walk.at_end or (count and not self._before_is_intact(count)):
            return self._careful(trail, query)
        scan = ScanTrail(trail.position, batches)
        if not count:
            return SearchResult(trail, scan)
        last = window.batch(count - 1)
        return SearchResult(self._judged(trail, last.position), scan, end_offset=last.last_offset + 1)

    def _before_is_intact(self, row: int) -> bool:
        """Whether the batch before *row* is: then its length is right, and nothing is between the two."""
        if row == 0:
            return self.walk.previous is None or self.bodies.holds(*self.walk.previous)
        body = self.bodies.of(self.walk.window, row - 1)
        return body is not None and body.holds

    def _ascends(self, facts: BatchFacts) -> bool:
        """Whether the next batch has higher offsets; a batch's own are outside of the part that its checksum covers."""
        header = header_at(self.log, facts.position + facts.size)
        return header is None or header.last_offset > facts.last_offset

    def _careful(self, trail: IndexTrail, query: LookupQuery) -> SearchResult:
        """Walk again, checking every batch, past damage."""
        from klog.log.segment import Segment

        self.walk.forget()
        damages: list[Damage] = []
        batches, end_offset, adjacent = 0, None, False
        for found in Segment(self.path).batches(trail.position):
            if isinstance(found, Damage):
                damages.append(found)
                adjacent = True
                continue
            batches += 1
            if query.candidate(found.window, found.row) == found.row:
                body = self.bodies.of(found.window, found.row)
                if body is not None and query.is_suspect(body) and not self._ascends(body.facts):
                    place = Location(self.path, found.position, found.base_offset)
                    damages.append(Damage(DamageKind.OFFSET_BACKWARDS, place, "the next batch is below it", found.size))
                    continue
                if body is not None and query.accepts(body):
                    scan = ScanTrail(trail.position, batches)
                    return SearchResult(trail, scan, body, tuple(damages), adjacent)
            end_offset, adjacent = found.last_offset + 1, False
        scan = ScanTrail(trail.position, batches)
        return SearchResult(trail, scan, damages=tuple(damages), adjacent=adjacent, end_offset=end_offset)

    def _judged(self, trail: IndexTrail, reached: int) -> IndexTrail:
        """Return the trail with a problem when the walk was longer than the index should have made it."""
        entries = self.entries
        walked = reached - trail.position
        if trail.problem or entries is None or walked <= _GAPS * INDEX_INTERVAL_BYTES:
            return trail
        following = 0 if trail.slot is None else trail.slot + 1
        if following < entries.count:
            relative, position = entries[following]
            if self.walk.row_at(position) >= 0:
                return trail
            header = header_at(self.log, position)
            if header and (header.is_wrapper or header.base_offset <= self.files.base_offset + relative):
                return trail
            return trail._replace(
                problem=f"entry {following} (position {position}) points at no batch that it can mean"
            )
        if walked <= _GAPS * max(entries.largest_gap(), INDEX_INTERVAL_BYTES):
            return trail
        return trail._replace(problem=f"it ends {self.log.size - trail.position} bytes before the log does")


def _ascend(entry: tuple[int, ...], following: tuple[int, ...]) -> bool:
    return entry[0] < following[0] and entry[1] < following[1]


class SegmentChoice:
    """A partition's segments, or some of them (base offsets ascending).

    *is_whole*: all of them.  *log_start_offset*: the first offset that can be read.
    Raises UsageError when there is no segment; searches raise UnreadableError when a log cannot be opened.
    """

    def __init__(self, partition: Partition, chosen: Sequence[SegmentFiles] | None = None) -> None:
        partition.check_listed()
        self.partition = partition
        self.files = tuple(partition.segments if chosen is None else chosen)
        if not self.files:
            raise UsageError(f"{partition.path}: there is no segment (a file such as 00000000000000000000.log) in it")
        self.is_whole = chosen is None
        whole = partition.log_start_offset if self.is_whole else None
        self.log_start_offset = self.files[0].base_offset if whole is None else whole
        self.codecs = Decompressor().functions
        self.bases = [files.base_offset for files in self.files]
        every = [files.base_offset for files in partition.segments]
        places = (bisect_right(every, base) for base in self.bases)
        self._following = [every[place] if place < len(every) else None for place in places]
        self._trails: dict[int, SegmentTrail] = {}
        self._open: tuple[int, SegmentSearch] | None = None
        self._stopped_cleanly: bool | None = None

    @property
    def stopped_cleanly(self) -> bool:
        """Whether the log dir around the partition has the clean-shutdown marker."""
        if self._stopped_cleanly is None:
            folder = self.partition.log_dir
            self._stopped_cleanly = os.path.exists(os.path.join(folder, FileKind.CLEAN_SHUTDOWN.value))
        return self._stopped_cleanly

    def floor(self, offset: int) -> int:
        """Return the number of the segment with the greatest base offset that is not above *offset*; -1 for none."""
        return bisect_right(self.bases, offset) - 1

    def is_last(self, number: int) -> bool:
        """Whether a segment is the partition's last."""
        return self._following[number] is None

    def remote(self, number: int) -> OverlayFile | None:
        """Return the log of a segment that is in remote storage; None for a local one."""
        return overlay_file(self.partition.file(self.files[number].log))

    def search(self, number: int) -> SegmentSearch:
        """Return the search in a segment; that in another is closed."""
        if self._open is None or self._open[0] != number:
            self.close()
            unfinished = self.is_last(number) and not self.stopped_cleanly
            found = SegmentSearch(self.partition.path, self.files[number], self.codecs, unfinished)
            self._open = number, found
        return self._open[1]

    def trail(self, number: int) -> SegmentTrail:
        """Return the trail of a segment."""
        if number not in self._trails:
            files = self.files[number]
            trail = SegmentTrail(files.log, files.base_offset, self._following[number], len(self.files))
            self._trails[number] = trail
        return self._trails[number]

    def problems(self, number: int, found: SearchResult) -> list[str]:
        """Return the problems that a search in a segment found in its index and its log."""
        files = self.files[number]
        told = []
        if found.offset_index.problem:
            told.append(f"{files.offset_index or files.log}: {found.offset_index.problem}")
        for damage in found.damages:
            # a broker cuts off an unfinished batch at its next start; zeros there may be preallocated
            zeros = damage.kind is DamageKind.ZEROED_TAIL
            expected = damage.is_unfinished and (zeros or not self.stopped_cleanly)
            if not (expected and self.is_last(number)):
                told.append(f"{files.log} @ {damage.place.position}: {damage.kind.value}: {damage.detail}")
        return told

    def close(self) -> None:
        """Close all open files."""
        if self._open is not None:
            self._open[1].close()
            self._open = None
