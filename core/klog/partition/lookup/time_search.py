"""Lookup by time, as a broker answers ListOffsets: segment by largest timestamp, time index, scan.

If the time indexes are those that a broker would have written, the answer is a broker's, even "none" where a segment
was chosen by its modification time.  If one is missing or contradicts the log, the log answers. Kafka:
UnifiedLog.searchOffsetInLocalLog, LogSegment.findOffsetByTimestamp, FileRecords.searchForTimestamp.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from klog.base.errors import time_text
from klog.kernel import Window
from klog.log.index import IndexEntries, IndexSlot, time_entries
from klog.partition.lookup.batch_body import Body
from klog.partition.lookup.lookup_notes import about_record
from klog.partition.lookup.lookup_trail import LookupOutcome, TimeIndexTrail, Trail, TrailDetail
from klog.partition.lookup.offset_search import SearchResult, SegmentChoice, SegmentSearch

_TRIES = 8


class LargestTimestamp(NamedTuple):
    """The largest timestamp of a segment (ms), -1 for none; a broker then uses the *modified_ms* of its log.

    *problem*: the reason why the time index disagrees.
    """

    timestamp: int
    modified_ms: int
    problem: str | None = None

    @property
    def as_broker(self) -> int:
        """The value that a broker compares."""
        return self.timestamp if self.timestamp >= 0 else self.modified_ms


class TimeQuery:
    """The first batch with a record at or after *timestamp* (ms), and with an offset not below *start*."""

    def __init__(self, timestamp: int, start: int) -> None:
        self._timestamp, self._start = timestamp, start

    def candidate(self, window: Window, row: int) -> int:
        """Return the first row from *row* on whose largest timestamp is not below it."""
        return window.first_as_late(self._timestamp, row)

    def accepts(self, body: Body) -> bool:
        """Whether the batch has a record at or after the timestamp."""
        return body.first(self._start, self._timestamp) is not None

    def is_suspect(self, body: Body) -> bool:
        """The answer is final."""
        return False


class SegmentTimes:
    """The time index of one segment, and the search in it.

    *lags*: the segment is the last one, and there is no clean-shutdown marker; the index may then lack the latest
    records.
    """

    def __init__(self, folder: str, search: SegmentSearch, lags: bool) -> None:
        self._search = search
        self._lags = lags
        self._base = search.files.base_offset
        name = search.files.time_index
        self.entries: IndexEntries | None = None if name is None else time_entries(os.path.join(folder, name))
        self._judged: dict[int, str | None] = {}

    def close(self) -> None:
        """Close the file."""
        if self.entries is not None:
            self.entries.close()

    # the largest timestamp

    def largest(self) -> LargestTimestamp:
        """Return the segment's largest timestamp; the last entry is believed if the log behind it agrees."""
        modified_ms = self._search.log.modified_ms()
        entries = self.entries
        if entries is None or not entries.count:
            timestamp = self._latest_from(0)
            problem = None
            if entries is None and timestamp >= 0:
                problem = "there is no time index"
            elif timestamp >= 0 and not self._lags:
                problem = f"it is empty, but the log has timestamps up to {time_text(timestamp)}"
            return LargestTimestamp(timestamp, modified_ms, problem)
        last = entries.count - 1
        timestamp, relative = entries[last]
        problem = entries.problem or self._wrong(last)
        if problem is not None:
            return LargestTimestamp(self._latest_from(0), modified_ms, problem)
        behind = self._latest_from(self._base + relative)
        if behind > timestamp and not self._lags:
            says, has = time_text(timestamp), time_text(behind)
            problem = f"its last entry says {says} is the largest timestamp, but the log has {has}"
            return LargestTimestamp(self._latest_from(0), modified_ms, problem)
        return LargestTimestamp(max(timestamp, behind), modified_ms)

    def _latest_from(self, offset: int) -> int:
        """Return the largest timestamp in the headers of the batches from the one that reaches *offset* on."""
        search = self._search
        walk = search.walk
        trail, row = search.start(max(offset, self._base))
        row = walk.window.first_reaching(offset, row) if walk.window.count else 0
        largest = -1
        while True:
            largest = max(largest, walk.window.latest(row))
            if not walk.more():
                break
            row = 0
        if walk.at_end:
            return largest
        from klog.log.segment import Batch, Segment

        walk.forget()
        batches = (batch for batch in Segment(search.path).batches(trail.position) if isinstance(batch, Batch))
        return max((batch.max_timestamp for batch in batches if batch.last_offset >= offset), default=-1)

    def _wrong(self, slot: int) -> str | None:
        """Return why an entry cannot be right: the batch with its offset has another timestamp."""
        if slot not in self._judged:
            self._judged[slot] = self._judge(slot)
        return self._judged[slot]

    def _judge(self, slot: int) -> str | None:
        assert self.entries is not None
        timestamp, relative = self.entries[slot]
        named = f"entry {slot} (timestamp {timestamp}, offset {self._base + relative})"
        if relative < 0 or (slot and self.entries[slot - 1][0] >= timestamp):
            return f"{named} does not ascend from the one before it"
        found = self._search.find(self._base + relative)
        if found.body is None:
            return None if self._lags else f"{named} is about an offset beyond the log's end"
        facts = found.body.facts
        # in a gap there is nothing to compare with
        if found.damages or facts.max_timestamp == timestamp or found.body.first_offset > self._base + relative:
            return None
        return f"{named} is about a batch whose largest timestamp is {facts.max_timestamp}"

    # the search

    def find(self, timestamp: int, start: int) -> tuple[TimeIndexTrail, SearchResult]:
        """Search the first record at or after *timestamp* (ms), not below offset *start*."""
        sought = self.entries.search(timestamp) if self.entries is not None else IndexSlot(-1, 0, None)
        slot, problem = sought.slot, self.entries.problem if self.entries else None
        for tried in range(slot, max(slot - _TRIES, -1), -1):
            wrong = self._wrong(tried)
            if wrong is None and self.entries is not None and self.entries[tried][0] <= timestamp:
                slot = tried
                break
            problem = problem or wrong
        else:
            slot = -1
        query = TimeQuery(timestamp, start)
        found = self._from(slot, start, query)
        if slot >= 0 and self.entries is not None and self.entries[slot][0] == timestamp:
            # such an entry should name the earliest batch that reaches the timestamp: only the log shows which one
            before = self._from(slot - 1, start, query)
            if before.body and (found.body is None or before.body.facts.position < found.body.facts.position):
                problem = problem or f"entry {slot} is not about the first batch with timestamp {timestamp}"
                slot, found = slot - 1, before
            else:
                found = self._from(slot, start, query)
        return self._trail(slot, sought, problem), found

    def _from(self, slot: int, start: int, query: TimeQuery) -> SearchResult:
        """Search from the position of a time index entry (-1: from the segment's beginning)."""
        relative = self.entries[slot][1] if self.entries is not None and slot >= 0 else 0
        return self._search.scan(*self._search.start(max(self._base + relative, start)), query)

    def _trail(self, slot: int, sought: IndexSlot, problem: str | None) -> TimeIndexTrail:
        count = self.entries.count if self.entries is not None else 0
        timestamp, relative = self.entries[slot] if self.entries is not None and slot >= 0 else (-1, 0)
        return TimeIndexTrail(
            self._search.files.time_index,
            slot if slot >= 0 else None,
            count,
            timestamp,
            self._base + relative,
            sought.probes,
            sought.warm_from,
            problem=problem,
        )


class TimeSearch:
    """Searches by time in a partition: the facts about its segments are kept between searches."""

    def __init__(self, segments: SegmentChoice, wanted: TrailDetail) -> None:
        self._segments, self._wanted = segments, wanted
        self._largest: dict[int, LargestTimestamp] = {}
        self._times: tuple[SegmentSearch, SegmentTimes] | None = None

    def times(self, number: int) -> SegmentTimes:
        """Return the time index of a segment; the one before is closed."""
        segments = self._segments
        search = segments.search(number)
        if self._times is None or self._times[0] is not search:
            self.close()
            lags = segments.is_last(number) and not segments.stopped_cleanly
            self._times = search, SegmentTimes(segments.partition.path, search, lags)
        return self._times[1]

    def close(self) -> None:
        """Close all open files."""
        if self._times is not None:
            self._times[1].close()
            self._times = None

    def largest(self, number: int) -> LargestTimestamp:
        """Return the largest timestamp of a segment."""
        if number not in self._largest:
            remote = self._segments.remote(number)
            in_metadata = None if remote is None else LargestTimestamp(remote.modified_ms, remote.modified_ms)
            self._largest[number] = in_metadata or self.times(number).largest()
        return self._largest[number]

    def search(self, timestamp: int) -> Trail:
        """Search the first record at or after *timestamp* (ms)."""
        segments = self._segments
        problems: list[str] = []
        missed: Trail | None = None
        for number, files in enumerate(segments.files):
            remote = segments.remote(number)
            if remote is not None and not problems and (missed is not None or not remote.is_asked_for_times):
                continue  # a broker looks in one remote segment of the lineage, and then in the local log
            largest = self.largest(number)
            if largest.problem:
                problems.append(f"{files.time_index or files.log}: {largest.problem}")
            if largest.as_broker < timestamp:
                continue
            time_trail, found = self.times(number).find(timestamp, segments.log_start_offset)
            time_trail = time_trail._replace(largest=largest.as_broker, by_mtime=largest.timestamp < 0)
            if time_trail.problem and not largest.problem:
                problems.append(f"{files.time_index}: {time_trail.problem}")
            problems += segments.problems(number, found)
            trail = Trail(timestamp, True, LookupOutcome.NOTHING_SO_LATE, None, segments.trail(number), time_trail)
            trail = trail._replace(offset_index=found.offset_index, scan=found.scan)
            if found.body is not None:
                return self._hit(trail, number, found.body, problems)
            missed = missed or trail
            if not problems and remote is None:
                return trail._replace(notes=self._missed(number, largest, timestamp))
        trail = missed or Trail(timestamp, True, LookupOutcome.NOTHING_SO_LATE)
        known = max((self.largest(number).timestamp for number in range(len(segments.files))), default=-1)
        notes = (f"no timestamp is that late: the largest is {known}",) if known >= 0 else ("nothing has a timestamp",)
        return trail._replace(notes=notes, problems=tuple(problems))

    def first_record(self, timestamp: int) -> Trail | None:
        """Return the first record at or after *timestamp* (ms), in whichever segment; None if there is none.

        A broker looks in one segment, and in one remote segment before the local log.
        """
        for number in range(len(self._segments.files)):
            largest = self.largest(number).as_broker
            if largest >= timestamp:
                time_trail, found = self.times(number).find(timestamp, self._segments.log_start_offset)
                if found.body is not None:
                    where = self._segments.trail(number), time_trail._replace(largest=largest)
                    trail = Trail(timestamp, True, LookupOutcome.NOTHING_SO_LATE, None, *where)
                    return self._hit(trail, number, found.body, [])
        return None

    def _hit(self, trail: Trail, number: int, body: Body, problems: list[str]) -> Trail:
        batch = body.trail()
        record = body.first(self._segments.log_start_offset, trail.target)
        assert record is not None
        line = None if self._wanted.origin is None else body.line(self._wanted.origin)
        trail = trail._replace(
            outcome=LookupOutcome.CONTROL if body.facts.is_control else LookupOutcome.RECORD,
            offset=record.offset,
            batch=batch,
            record=record,
            record_json=line,
            problems=tuple(problems),
        )
        explains = self._wanted.explains
        notes = tuple(about_record(self._segments, number, body, record.offset)) if explains else ()
        if explains and problems and (theirs := self.as_broker(trail.target)) != record.offset:
            said = "none" if theirs is None else f"offset {theirs}"
            notes = (f"a broker on these indexes answers {said}", *notes)
        return trail._replace(notes=notes)

    def _missed(self, number: int, largest: LargestTimestamp, timestamp: int) -> tuple[str, ...]:
        """Note why the chosen segment has no answer, and whether a later one would have one."""
        name = self._segments.files[number].log
        if largest.timestamp < 0:
            modified = time_text(largest.modified_ms)
            why = f"{name} has no timestamps, so a broker goes by its time of modification, {modified}"
        else:
            why = (
                f"{name} has batches up to {time_text(largest.timestamp)}, but no remaining record in them is that late"
            )
        for later in range(number + 1, len(self._segments.files)):
            if self.largest(later).timestamp >= timestamp:
                _, found = self.times(later).find(timestamp, self._segments.log_start_offset)
                record = found.body.first(self._segments.log_start_offset, timestamp) if found.body else None
                if record is not None:
                    there = f"{self._segments.files[later].log} has one, offset {record.offset}"
                    return why, f"{there}; a broker does not look there, and answers none"
        return (why, "a broker returns none")

    def as_broker(self, timestamp: int) -> int | None:
        """Return a broker's answer with the present indexes, None for none."""
        segments = self._segments
        for number, files in enumerate(segments.files):
            times, search = self.times(number), segments.search(number)
            entries = times.entries
            last = entries[entries.count - 1][0] if entries is not None and entries.count else -1
            largest = last if last >= 0 else self.largest(number).modified_ms
            if largest < timestamp:
                continue
            slot = entries.search(timestamp).slot if entries is not None else -1
            relative = entries[slot][1] if entries is not None and slot >= 0 else 0
            offset = max(files.base_offset + relative, segments.log_start_offset)
            pointed = search.entries.search(offset - files.base_offset).slot if search.entries is not None else -1
            position = search.entries[pointed][1] if search.entries is not None and pointed >= 0 else 0
            return self._scanned(search, position, timestamp)
        return None

    def _scanned(self, search: SegmentSearch, position: int, timestamp: int) -> int | None:
        """Return the offset of the first such record from *position* on; also None if no batch begins there."""
        query = TimeQuery(timestamp, self._segments.log_start_offset)
        walk = search.walk
        walk.forget()
        walk.go(position, position)
        row = 0
        while True:
            while (row := query.candidate(walk.window, row)) < walk.window.count:
                body = search.bodies.of(walk.window, row)
                record = body.first(self._segments.log_start_offset, timestamp) if body else None
                if record is not None:
                    walk.forget()
                    return record.offset
                row += 1
            if not walk.more():
                walk.forget()
                return None
            row = 0
