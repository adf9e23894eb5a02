"""Lookups in a partition's log: the segment, what its search came to, and what that means."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple

from klog.errors import UsageError
from klog.formats.batch import CODEC_NAMES
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind
from klog.indexes import header_at
from klog.lookup.body import Body
from klog.lookup.search import Found, SegmentSearch
from klog.lookup.trail import BatchTrail, Outcome, SegmentTrail, Trail
from klog.partition import Partition, SegmentFiles

if TYPE_CHECKING:
    from klog.lookup.times import TimeSearch


class Located(NamedTuple):
    """The segment with the batch, what its search came to, and what was met on the way.

    *damages* (each with its segment) lie right before the batch, or before the end of the log.
    """

    number: int
    found: Found
    damages: list[tuple[int, Damage]]
    notes: list[str]
    problems: list[str]


class Lookup:
    """Searches a partition's log as a broker does, and says where its indexes led it.

        with Lookup(Partition("data/orders-3")) as lookup:
            print(lookup.offset(368776).position)

    *segments* are those to search (base offsets ascending), all by default.  *records*: whether the record is decoded
    as well; without it a batch without gaps in its offsets is not looked into.  *origin*: what every JSON line of a
    record ends with (`klog.dump.lines.Origin.json`), None when no lines are wanted.  *explains*: whether notes say what
    becomes of a record (transaction, high watermark).  One thread at a time.

    Raises UsageError when there is no segment; what is asked of it raises UnreadableError when a log cannot be opened.
    """

    def __init__(
        self,
        partition: Partition,
        segments: Sequence[SegmentFiles] | None = None,
        *,
        records: bool = True,
        origin: bytes | None = None,
        explains: bool = True,
    ) -> None:
        self.partition = partition
        self.segments = tuple(partition.segments if segments is None else segments)
        if not self.segments:
            raise UsageError(f"{partition.path}: there is no segment (a file such as 00000000000000000000.log) in it")
        self.records, self.origin, self._explains = records, origin, explains
        self.is_whole = segments is None
        whole = partition.log_start_offset if self.is_whole else None
        self.log_start_offset = self.segments[0].base_offset if whole is None else whole
        self.codecs = Decompressor().functions
        self._bases = [segment.base_offset for segment in self.segments]
        self._following = self._next_base_offsets()
        self._open: tuple[int, SegmentSearch] | None = None
        self._by_time: TimeSearch | None = None
        self._stopped_cleanly: bool | None = None

    def _next_base_offsets(self) -> list[int | None]:
        """Return for each segment the base offset of the one after it, searched or not."""
        every = [segment.base_offset for segment in self.partition.segments]
        places = (bisect_right(every, base) for base in self._bases)
        return [every[place] if place < len(every) else None for place in places]

    @property
    def stopped_cleanly(self) -> bool:
        """Whether the log dir around the partition has the marker of a clean stop."""
        if self._stopped_cleanly is None:
            folder = os.path.dirname(os.path.abspath(self.partition.path))
            self._stopped_cleanly = os.path.exists(os.path.join(folder, ".kafka_cleanshutdown"))
        return self._stopped_cleanly

    def search(self, number: int) -> SegmentSearch:
        """Return the search in one of the segments; that in the one before is closed."""
        if self._open is None or self._open[0] != number:
            self.close()
            found = SegmentSearch(self.partition.path, self.segments[number], self.codecs, self.stopped_cleanly)
            self._open = number, found
        return self._open[1]

    def segment_trail(self, number: int) -> SegmentTrail:
        """Return what the trail says of one of the segments."""
        files = self.segments[number]
        return SegmentTrail(files.log, files.base_offset, self._following[number], len(self.segments))

    def is_last(self, number: int) -> bool:
        """Whether a segment is the partition's last."""
        return self._following[number] is None

    def close(self) -> None:
        """Close what is open."""
        if self._by_time is not None:
            self._by_time.close()
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def __enter__(self) -> Lookup:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # by offset

    def offset(self, offset: int) -> Trail:
        """Search *offset*."""
        if offset < self.log_start_offset:
            return self._below_start(offset)
        return self._ended(offset, self.locate(offset, bisect_right(self._bases, offset) - 1))

    def timestamp(self, timestamp: int) -> Trail:
        """Search the first record that is as late as *timestamp* (ms), as ListOffsets does.  Kafka: UnifiedLog."""
        if self._by_time is None:
            from klog.lookup.times import TimeSearch

            self._by_time = TimeSearch(self)
        return self._by_time.search(timestamp)

    def locate(self, offset: int, number: int) -> Located:
        """Return where the first batch is, from segment *number* on, that reaches *offset*."""
        notes: list[str] = []
        problems: list[str] = []
        damages: list[tuple[int, Damage]] = []
        adjacent = False
        while True:
            found = self.search(number).find(offset)
            problems += self.problems_of(number, found)
            damages += [(number, damage) for damage in found.damages]
            adjacent = found.adjacent or (adjacent and found.scan.batches <= 1)
            if found.body is not None or number + 1 == len(self.segments):
                return Located(number, found, damages if adjacent else [], notes, problems)
            notes.append(f"{self.segments[number].log} holds nothing from {offset} on: the search goes on in the next")
            number += 1

    def problems_of(self, number: int, found: Found) -> list[str]:
        """Return what a search in a segment found wrong with its index and its log."""
        files = self.segments[number]
        told = []
        if found.offset_index.problem:
            told.append(f"{files.offset_index or files.log}: {found.offset_index.problem}")
        is_last = self.is_last(number)
        for damage in found.damages:
            # what a broker was writing when it died, it will cut off itself; zeros there may be preallocated
            zeros = damage.kind is DamageKind.ZEROED_TAIL
            if not (is_last and damage.is_unfinished and (zeros or not self.stopped_cleanly)):
                told.append(f"{files.log} @ {damage.place.position}: {damage.kind.value}: {damage.detail}")
        return told

    def _below_start(self, offset: int) -> Trail:
        first = self._bases[0]
        notes = [f"below the log start offset {self.log_start_offset}: a broker answers OffsetOutOfRange"]
        if not self.is_whole:
            notes = [f"below {first}, where this segment begins: only this one was searched"]
        elif offset >= first:
            notes.append(f"its batch may still be in {self.segments[bisect_right(self._bases, offset) - 1].log}")
        return Trail(offset, False, Outcome.BELOW_START, notes=tuple(notes))

    def _ended(self, offset: int, located: Located) -> Trail:
        number, found = located.number, located.found
        trail = Trail(
            offset, False, Outcome.GAP, None, self.segment_trail(number), None, found.offset_index, found.scan
        )
        if found.body is not None:
            trail = self.in_batch(trail, found.body, located.problems)
        if found.body is not None and trail.offset == offset:
            located.notes.extend(self.notes(number, found.body, offset))
        else:
            hit = next((pair for pair in located.damages if self._claims(*pair, offset)), None)
            if hit or (located.damages and trail.batch is not None and trail.batch.base_offset > offset):
                trail = self._in_damage(trail, hit or located.damages[-1], located)
            elif found.body is None:
                trail = self._at_end(trail, located)
            elif trail.outcome is Outcome.GAP:
                trail = self._in_gap(trail, located)
        return trail._replace(notes=tuple(located.notes), problems=tuple(located.problems))

    def in_batch(self, trail: Trail, body: Body, problems: list[str]) -> Trail:
        """Return *trail* with the batch, and the first record in it that is not below the target."""
        facts = body.facts
        whole = facts.magic >= 2 and facts.records_count == facts.last_offset_delta + 1
        hit = Outcome.CONTROL if body.is_control else Outcome.RECORD
        if not self.records and whole and facts.base_offset <= trail.target:
            return trail._replace(outcome=hit, offset=trail.target, batch=batch_trail(body))
        record = body.first(trail.target)
        if record is None:
            if body.broken:
                problems.append(f"batch at {facts.position}: {body.broken}")
            outcome = Outcome.DAMAGED if body.broken else Outcome.GAP
            return trail._replace(outcome=outcome, batch=batch_trail(body))
        line = None if self.origin is None else body.line(self.origin)
        return trail._replace(
            outcome=Outcome.GAP if record.offset > trail.target else hit,
            offset=record.offset,
            batch=batch_trail(body),
            record=record,
            record_json=line,
        )

    def notes(self, number: int, body: Body, offset: int) -> tuple[str, ...]:
        """Return what should be known of a record; nothing when many are asked for."""
        if not self._explains:
            return ()
        from klog.lookup.notes import about_record

        return tuple(about_record(self, number, body, offset))

    def _at_end(self, trail: Trail, located: Located) -> Trail:
        """Say where beyond the last batch the target is."""
        number, found = located.number, located.found
        end = self._bases[number] if found.end_offset is None else found.end_offset
        is_last = self.is_last(number)
        name = "the log end offset" if is_last else f"the end of {self.segments[number].log}"
        for damage in found.damages if found.adjacent else ():
            located.notes.append(f"{damage.kind.value} from {damage.place.position} on, {damage.size} bytes")
        if trail.target == end:
            more = f" {end}: the next record to be written gets it" if is_last else f", {end}"
            located.notes.append(f"{name}{more}")
            return trail._replace(outcome=Outcome.AT_END)
        if trail.target > end:
            more = ": a broker answers OffsetOutOfRange" if is_last else ": only this segment was searched"
            located.notes.append(f"beyond {name} {end}{more}")
            return trail._replace(outcome=Outcome.BEYOND_END)
        located.notes.append(f"below {name} {end}, but no record follows: what stood there was compacted away")
        return trail

    def _claims(self, number: int, damage: Damage, offset: int) -> bool:
        """Whether the header of what is damaged claims *offset*."""
        if damage.is_unfinished:
            return False
        header = header_at(self.search(number).log, damage.place.position or 0)
        return header is not None and header.base_offset <= offset <= header.last_offset

    def _in_damage(self, trail: Trail, damaged: tuple[int, Damage], located: Located) -> Trail:
        """Show the damaged batch, as far as its header can be read, and say what follows."""
        number, damage = damaged
        located.notes.append(f"{trail.target} lies in what is damaged at {damage.place.position}")
        if trail.batch is not None:
            after = trail.batch
            where = f"{after.position}, offsets {after.base_offset} to {after.last_offset}"
            located.notes.append(f"the next intact batch is at {where}")
        header = header_at(self.search(number).log, damage.place.position or 0)
        batch = None
        if header is not None and header.base_offset <= trail.target <= header.last_offset:
            codec = CODEC_NAMES[header.codec] if header.codec < len(CODEC_NAMES) else f"unknown ({header.codec})"
            batch = BatchTrail(header.position, header.size, header.base_offset, header.last_offset, False, codec)
        if not located.problems:
            located.problems.append(f"{self.segments[number].log}: {damage.kind.value} at {damage.place.position}")
        return trail._replace(outcome=Outcome.DAMAGED, batch=batch)

    def _in_gap(self, trail: Trail, located: Located) -> Trail:
        """Say what kind of gap it is, and show the next record, from whatever batch."""
        assert trail.batch is not None
        between = trail.batch.base_offset > trail.target
        following, number = trail, located.number
        while following.offset is None and following.batch is not None:
            offset = following.batch.last_offset + 1
            further = self.locate(offset, number)
            located.problems.extend(problem for problem in further.problems if problem not in located.problems)
            number = further.number
            empty = trail._replace(target=offset, batch=None)
            body = further.found.body
            following = empty if body is None else self.in_batch(empty, body, located.problems)
        where = "between two batches" if between else "inside the batch's offsets"
        shown = f"the next record is {following.offset}" if following.offset is not None else "no record follows"
        located.notes.append(f"in a gap, {where}: {trail.target} was compacted away, or never written; {shown}")
        return trail._replace(offset=following.offset, record=following.record, record_json=following.record_json)


def batch_trail(body: Body) -> BatchTrail:
    """Return what the trail says of a batch; a wrapper is opened for its base offset."""
    facts = body.facts
    return BatchTrail(facts.position, facts.size, body.first_offset, facts.last_offset, body.holds, body.codec)
