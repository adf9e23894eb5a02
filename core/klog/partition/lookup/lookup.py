"""Lookups in a partition's log; the one by offset: the segment, the result of its search, and its meaning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from klog.base.closing import Closing
from klog.base.errors import UnreadableError, offsets_text
from klog.base.overlays import overlay_at
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.damage import Damage
from klog.log.header_walk import header_at
from klog.partition.lookup.batch_body import Body
from klog.partition.lookup.lookup_notes import about_record
from klog.partition.lookup.lookup_trail import BatchTrail, LookupOutcome, Trail, TrailDetail
from klog.partition.lookup.offset_search import SearchResult, SegmentChoice

if TYPE_CHECKING:
    from klog.partition.lookup.time_search import TimeSearch
    from klog.partition.tiered.below_local import BelowLocalLog


class LocatedSegment(NamedTuple):
    """The segment with the batch, the result of its search, and the problems on the way.

    *damages* (each with its segment) lie right before the batch, or before the end of the log.
    """

    number: int
    found: SearchResult
    damages: list[tuple[int, Damage]]
    notes: list[str]
    problems: list[str]


class OffsetSearch:
    """Searches by offset; those in ascending order are the fastest."""

    def __init__(self, segments: SegmentChoice, wanted: TrailDetail) -> None:
        self._segments, self._wanted = segments, wanted

    def search(self, offset: int) -> Trail:
        """Search *offset*."""
        if offset < self._segments.log_start_offset:
            return self._below_start(offset)
        return self._ended(offset, self.locate(offset, self._segments.floor(offset)))

    def locate(self, offset: int, number: int) -> LocatedSegment:
        """Return the place of the first batch, from segment *number* on, that reaches *offset*."""
        notes: list[str] = []
        problems: list[str] = []
        damages: list[tuple[int, Damage]] = []
        first, adjacent = number, False
        while True:
            found = self._segments.search(number).find(offset)
            problems += self._segments.problems(number, found)
            damages += [(number, damage) for damage in found.damages]
            adjacent = found.adjacent or (adjacent and found.scan.batches <= 1)
            if found.body is not None or number + 1 == len(self._segments.files):
                break
            number += 1
        if number > first:
            passed = [self._segments.files[i].log for i in (first, number - 1)]
            which = f"{passed[0]} has" if first == number - 1 else f"{passed[0]} to {passed[1]} have"
            notes.append(f"{which} nothing from {offset} on: the search continued in the next segment")
        return LocatedSegment(number, found, damages if adjacent else [], notes, problems)

    @cached_property
    def _in_remote_storage(self) -> BelowLocalLog | None:
        from klog.partition.tiered.below_local import below_local_log  # most searches are in the log

        if overlay_at(self._segments.partition.path) is not None:
            return None  # the files of remote storage are those of this search
        return below_local_log(self._segments.partition, self._segments.bases[0] - 1)

    def _below_start(self, offset: int) -> Trail:
        first = self._segments.bases[0]
        below = self._in_remote_storage if self._segments.is_whole else None
        if below is not None and below.first <= offset <= below.last:
            return Trail(offset, False, LookupOutcome.BELOW_START, notes=(str(below),))
        partition = self._segments.partition
        is_hole = overlay_at(partition.path) is not None and offset >= partition.tiered_log_start()
        place = "in neither tier" if is_hole else f"below the log start offset {self._segments.log_start_offset}"
        notes = [f"{place}: a broker answers OffsetOutOfRange"]
        if not self._segments.is_whole:
            notes = [f"below {first}, where this segment begins: only this one was searched"]
        elif offset >= first:
            notes.append(f"its batch may still be in {self._segments.files[self._segments.floor(offset)].log}")
        return Trail(offset, False, LookupOutcome.BELOW_START, notes=tuple(notes))

    def _ended(self, offset: int, located: LocatedSegment) -> Trail:
        number, found = located.number, located.found
        trail = Trail(
            offset, False, LookupOutcome.GAP, None, self._segments.trail(number), None, found.offset_index, found.scan
        )
        if found.body is not None:
            trail = self.in_batch(trail, found.body, located.problems)
        if found.body is not None and trail.offset == offset:
            if self._wanted.explains:
                self._explain(located, found.body, offset)
        else:
            hit = next((pair for pair in located.damages if self._claims(*pair, offset)), None)
            if hit or (located.damages and trail.batch is not None and trail.batch.base_offset > offset):
                trail = self._in_damage(trail, hit or located.damages[-1], located)
            elif found.body is None:
                trail = self._at_end(trail, located)
            elif trail.outcome is LookupOutcome.GAP:
                trail = self._in_gap(trail, located)
        if not located.notes and not located.problems:
            return trail
        return trail._replace(notes=tuple(located.notes), problems=tuple(located.problems))

    def _explain(self, located: LocatedSegment, body: Body, offset: int) -> None:
        """Add notes on the record.  Raises UnreadableError if a file of the log dir cannot be read."""
        from klog.partition.tiered.remote_files import is_of_object  # few records are explained

        try:
            located.notes.extend(about_record(self._segments, located.number, body, offset))
        except UnreadableError as error:
            if not is_of_object(error):
                raise
            located.problems.append(f"the end of its transaction is not known: {error}")

    def in_batch(self, trail: Trail, body: Body, problems: list[str]) -> Trail:
        """Return *trail* with the batch, and the first record in it that is not below the target."""
        facts = body.facts
        whole = facts.magic >= 2 and facts.records_count == facts.last_offset_delta + 1
        hit = LookupOutcome.CONTROL if body.facts.is_control else LookupOutcome.RECORD
        if not self._wanted.records and whole and facts.base_offset <= trail.target:
            return Trail(trail.target, False, hit, trail.target, *trail[4:8], body.trail())
        record = body.first(trail.target)
        if record is None:
            if body.broken:
                problems.append(f"batch at {facts.position}: {body.broken}")
            outcome = LookupOutcome.DAMAGED if body.broken else LookupOutcome.GAP
            return trail._replace(outcome=outcome, batch=body.trail())
        line = None if self._wanted.origin is None else body.line(self._wanted.origin)
        return trail._replace(
            outcome=LookupOutcome.GAP if record.offset > trail.target else hit,
            offset=record.offset,
            batch=body.trail(),
            record=record,
            record_json=line,
        )

    def _at_end(self, trail: Trail, located: LocatedSegment) -> Trail:
        """Add the position of the target beyond the last batch to the trail."""
        number, found = located.number, located.found
        end = self._segments.bases[number] if found.end_offset is None else found.end_offset
        is_last = self._segments.is_last(number)
        name = "the log end offset" if is_last else f"the end of {self._segments.files[number].log}"
        for damage in found.damages if found.adjacent else ():
            located.notes.append(f"{damage.kind.value} from {damage.place.position} on, {damage.size} bytes")
        if trail.target == end:
            more = f" {end}: the next record to be written gets it" if is_last else f", {end}"
            located.notes.insert(0, f"{name}{more}")
            return trail._replace(outcome=LookupOutcome.AT_END)
        if trail.target > end:
            more = ": a broker answers OffsetOutOfRange" if is_last else ": only this segment was searched"
            located.notes.insert(0, f"beyond {name} {end}{more}")
            return trail._replace(outcome=LookupOutcome.BEYOND_END)
        located.notes.insert(0, f"below {name} {end}, but no record follows: the records there were compacted away")
        return trail

    def _claims(self, number: int, damage: Damage, offset: int) -> bool:
        """Whether the header of the damaged batch claims *offset*."""
        if damage.is_unfinished:
            return False
        header = header_at(self._segments.search(number).log, damage.place.position or 0)
        return header is not None and header.base_offset <= offset <= header.last_offset

    def _in_damage(self, trail: Trail, damaged: tuple[int, Damage], located: LocatedSegment) -> Trail:
        """Add the damaged batch, as far as its header can be read, and the next record to the trail."""
        number, damage = damaged
        located.notes.insert(0, f"{trail.target} is in the damaged range at {damage.place.position}")
        if trail.batch is not None:
            after = trail.batch
            where = f"{after.position}, {offsets_text(after.base_offset, after.last_offset)}"
            located.notes.append(f"the next intact batch is at {where}")
        header = header_at(self._segments.search(number).log, damage.place.position or 0)
        batch = None
        if header is not None and header.base_offset <= trail.target <= header.last_offset:
            offsets = header.base_offset, header.last_offset
            batch = BatchTrail(header.position, header.size, *offsets, False, header.codec)
        if not located.problems:
            located.problems.append(
                f"{self._segments.files[number].log}: {damage.kind.value} at {damage.place.position}"
            )
        return trail._replace(outcome=LookupOutcome.DAMAGED, batch=batch)

    def _in_gap(self, trail: Trail, located: LocatedSegment) -> Trail:
        """Note the kind of the gap, and add the next record, from whatever batch."""
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
        located.notes.insert(0, f"in a gap, {where}: {trail.target} was compacted away, or never written; {shown}")
        return trail._replace(offset=following.offset, record=following.record, record_json=following.record_json)


class Lookup(Closing):
    """Searches a partition's log as a broker does, and reports the steps of the search.

        with Lookup(Partition("data/orders-3")) as lookup:
            print(lookup.offset(368776).position)

    *segments* are those to search (base offsets ascending), all by default; *wanted*: the requested details of the
    record. Many searches are fastest in ascending order.  Use it from one thread at a time. Raises UsageError when
    there is no segment; searches raise UnreadableError when a log cannot be opened.
    """

    def __init__(
        self, partition: Partition, segments: Sequence[SegmentFiles] | None = None, wanted: TrailDetail | None = None
    ) -> None:
        self.segments = SegmentChoice(partition, segments)
        self._wanted = wanted or TrailDetail()
        self._by_offset = OffsetSearch(self.segments, self._wanted)
        self._by_time: TimeSearch | None = None

    @property
    def log_start_offset(self) -> int:
        """The first offset that can be read."""
        return self.segments.log_start_offset

    def offset(self, offset: int) -> Trail:
        """Search *offset*."""
        return self._by_offset.search(offset)

    def timestamp(self, timestamp: int) -> Trail:
        """Search the first record at or after *timestamp* (ms), as a broker answers ListOffsets."""
        return self._times().search(timestamp)

    def first_record(self, timestamp: int) -> Trail | None:
        """Return the first record at or after *timestamp* (ms), also where a broker does not look; None for none."""
        return self._times().first_record(timestamp)

    def _times(self) -> TimeSearch:
        if self._by_time is None:
            from klog.partition.lookup.time_search import TimeSearch

            self._by_time = TimeSearch(self.segments, self._wanted)
        return self._by_time

    def many(self, targets: Sequence[int], by_time: bool = False) -> Iterator[tuple[int, Trail]]:
        """Search all *targets*, offsets or (*by_time*) timestamps, and yield each answer with its place in *targets*.

        Answers are in ascending order, so that each part of an index and of a log is read once.
        """
        search = self.timestamp if by_time else self.offset
        trail: Trail | None = None
        for place in sorted(range(len(targets)), key=targets.__getitem__):
            if trail is None or trail.target != targets[place]:
                trail = search(targets[place])
            yield place, trail

    def close(self) -> None:
        """Close all open files."""
        if self._by_time is not None:
            self._by_time.close()
        self.segments.close()
