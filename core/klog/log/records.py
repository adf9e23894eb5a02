"""Selects records by range, key and number; decodes those of a window's intact batches, and reports damage in place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from klog.formats.damage import Damage, DamageKind, Location
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.kernel import BAD_COUNT, BAD_LENGTH, DONE, MORE, KeySet, Window
from klog.log.header_walk import window_of
from klog.log.resync import bad_crc

if TYPE_CHECKING:
    import re

    from klog.base.read_only import ReadOnlyFile


class RecordFilter(NamedTuple):
    """The requested records: offsets and times from … up to, not including, to; *keys* None for all; *controls*:
    include markers.  A negative offset counts from the log end: `before_end` makes it absolute.

    *limit*: the largest number of records (or batches), None for all.  *tail*: only the newest batches.  *header*: name
    and value of a header; None instead of the value for any, null too.  *pattern*: found somewhere in the value.
    """

    from_offset: int = LONG_MIN
    to_offset: int = LONG_MAX
    from_time: int = LONG_MIN
    to_time: int = LONG_MAX
    keys: KeySet | None = None
    controls: bool = True
    limit: int | None = None
    tail: bool = False
    header: tuple[bytes, bytes | None] | None = None
    pattern: re.Pattern[bytes] | None = None

    @property
    def in_range(self) -> bool:
        """Whether offsets or times are limited."""
        return (self.from_offset, self.to_offset, self.from_time, self.to_time) != (
            LONG_MIN,
            LONG_MAX,
            LONG_MIN,
            LONG_MAX,
        )

    @property
    def all_records(self) -> bool:
        """Whether all records are selected."""
        of_content = self.keys is not None or self.header is not None or self.pattern is not None
        return not self.in_range and not of_content and self.controls and self.limit is None

    def before_end(self, log_end: Callable[[], int]) -> RecordFilter:
        """Return the filter with offsets in place of those that count from the log end."""
        if not (LONG_MIN < self.from_offset < 0 or self.to_offset < 0):
            return self
        end = log_end()
        found = self
        if LONG_MIN < self.from_offset < 0:
            found = found._replace(from_offset=max(end + self.from_offset, 0))
        return found._replace(to_offset=max(end + self.to_offset, 0)) if self.to_offset < 0 else found

    def skip(self, window: Window) -> bool:
        """Skip the batches that cannot have a selected record; True if no later one can either."""
        return self.in_range and window.skip_outside(self.from_offset, self.to_offset, self.from_time)

    def keep(self, window: Window) -> None:
        """Keep only the matching ones of the decoded records."""
        if self.in_range or self.keys is not None or not self.controls:
            window.keep(self.from_offset, self.to_offset, self.from_time, self.to_time, self.controls, self.keys)
        if self.header is not None:
            window.keep_with_header(*self.header)
        if self.pattern is not None:
            window.keep_values(self.pattern.search)


class RecordLimit:
    """Counts down the number of records (or batches) that may still be returned.  *found*: whether there was one."""

    def __init__(self, limit: int | None) -> None:
        self.left, self.found = limit, False

    def take(self, window: Window) -> bool:
        """Cut the decoded records to that number; True when none remains."""
        if window.records:
            self.found = True
        if self.left is None:
            return False
        window.cut_records(self.left)
        self.left -= window.records
        return self.left == 0

    def take_batch(self) -> bool:
        """Count a batch; True when none remains."""
        self.found = True
        if self.left is not None:
            self.left -= 1
        return self.left == 0


def start_position(
    log: ReadOnlyFile, index: str | None, time_index: str | None, base_offset: int, wanted: RecordFilter
) -> int:
    """Return the position in the log from which reading may begin: at or before the first matching record.

    An index entry is used only if the log confirms it.
    """
    from klog.log.index import position_by_time, position_of_offset

    start = 0
    if wanted.from_offset > base_offset and index:
        start = position_of_offset(log, index, base_offset, wanted.from_offset)
    if wanted.from_time > LONG_MIN and index and time_index:
        start = max(start, position_by_time(log, index, time_index, base_offset, wanted.from_time))
    return start


Codecs = tuple[Callable[[memoryview, int], "bytes | bytearray"], ...]
BatchTaker = Callable[[Window, int, int], int]
"""Takes intact, decompressed batches of a window from one to another; returns the first batch that it does not take."""

_TRIES = 1000
MOST_ROWS = 1 << 20
"""The most records of one batch that are shown as text, which Python makes of each."""


class OffsetRange:
    """The possible offsets of batches behind damage: *min_offset* up to and with *max_offset*."""

    def __init__(self, min_offset: int = 0, max_offset: int = LONG_MAX) -> None:
        self.min_offset, self.max_offset = min_offset, max_offset

    def below(self, end: int | None) -> OffsetRange:
        """Return the part of it below offset *end*; all of it for None."""
        return self if end is None else OffsetRange(self.min_offset, min(self.max_offset, end - 1))


class BatchRun(NamedTuple):
    """Batches *first* to *end* of a window, whose checksums match; with *damage*, the one whose checksum does not."""

    window: Window
    first: int
    end: int
    damage: Damage | None = None


def intact_runs(window: Window, file: str, span: OffsetRange) -> Iterator[BatchRun]:
    """Check all batches of *window* that are not skipped, and yield them in runs, each damaged one as a run of its own.

    Intact batches inside the extent of a damaged length are yielded in another window.
    """
    window.check(0, window.count)
    first, end = 0, window.count
    while first < end:
        bad = window.first_bad(first, end)
        if bad > first:
            yield BatchRun(window, first, bad)
        if bad < end:
            swallowed, at = _swallowed(window, bad, span)
            yield BatchRun(window, bad, bad + 1, bad_crc(window, bad, file, at or None))
            if swallowed is not None:
                yield from intact_runs(swallowed, file, span)
        first = bad + 1


def decode_window(
    window: Window, codecs: Codecs, file: str, span: OffsetRange
) -> Iterator[tuple[Window, Damage | None]]:
    """Check and decode all batches of *window* that are not skipped.

    Yields (window, None) each time that record rows are filled, to be used before the next step, and (window, Damage)
    for a broken batch.  The window of the rows is another one after a damaged length that had swallowed intact batches.
    """
    for run in intact_runs(window, file, span):
        if run.damage:
            yield run.window, run.damage
            continue
        for damage in decode_run(run, codecs, file):
            yield run.window, damage


def decoded_rows(
    runs: Iterable[BatchRun | Damage], codecs: Codecs, file: str, taker: BatchTaker | None = None
) -> Iterator[Window | Damage]:
    """Decode *runs*; yield their window each time it is filled with rows of records, and each Damage in its place.

    Use the rows before the next step.  Batches that *taker* takes have no rows.
    """
    for run in runs:
        if isinstance(run, Damage):
            yield run
        elif run.damage:
            yield run.damage
        else:
            for damage in decode_run(run, codecs, file, taker):
                yield damage or run.window


def decode_run(run: BatchRun, codecs: Codecs, file: str, taker: BatchTaker | None = None) -> Iterator[Damage | None]:
    """Decode batches whose checksums match (or do not matter), but for those that *taker* takes.

    Yields None each time that record rows are filled, to be used before the next step, and a Damage for a broken batch.
    """
    window, first, end = run.window, run.first, run.end
    while first < end:
        ready = window.decompress(first, end, codecs)
        if window.error is not None and ready == first:
            yield batch_damage(window, first, DamageKind.BAD_COMPRESSION, str(window.error), file)
            first += 1
            continue
        if taker is not None:
            first = taker(window, first, ready)
            if first == ready:
                continue
            ready = first + 1  # decompressing it again costs nothing: there is no other way to continue behind it
        window.begin(first, ready)
        status = MORE
        while status == MORE:
            status = window.decode()
            if window.records:
                yield None
        if status == DONE:
            first = ready
        else:
            yield batch_damage(window, window.decoding, DamageKind.BAD_RECORD, broken_record(window, status), file)
            first = window.decoding + 1


def message_damages(rows: Window, file: str) -> list[Damage]:
    """Return the damages of messages inside intact wrappers (v0, v1) whose own checksums do not match."""
    found = []
    for i in rows.bad_inner_crcs():
        offset, batch = rows.record(i, False)[0], rows.record(i, False)[6]
        place = Location(file, rows.batch(batch).position, offset)
        detail = "the message's own CRC-32 inside an intact wrapper does not match"
        found.append(Damage(DamageKind.BAD_CRC, place, detail))
    return found


def drop_crowded(rows: Window, file: str) -> list[Damage]:
    """Drop the records with more headers than columns can hold in bounded memory; return a damage for each."""
    found = []
    for offset, headers, batch in rows.drop_crowded():
        place = Location(file, rows.batch(batch).position, offset)
        detail = f"the record has {headers} headers, more than columns take: left out (JSON lines show it)"
        found.append(Damage(DamageKind.BAD_RECORD, place, detail))
    return found


class BatchRowLimit:
    """Counts the rows of each batch that are shown as text, and drops those beyond MOST_ROWS.

    A batch of a mebibyte has fewer records than that, unless it was made to unpack to millions.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self._position, self._count = -1, 0

    def cut(self, rows: Window) -> Damage | None:
        """Drop *rows* if their batch has had its number; return the damage for the first of them."""
        if not rows.records:
            return None
        position = rows.batch(rows.record(rows.records - 1, False)[6]).position
        before = self._count if position == self._position else 0  # then all of them are in this batch
        self._position, self._count = position, before + rows.records
        if self._count <= MOST_ROWS:
            return None
        offset = rows.record(0, False)[0]
        rows.cut_records(0)
        detail = f"more than {MOST_ROWS:,} records in one batch: the rest is left out (JSON lines have it)"
        place = Location(self.file, position, offset)
        return Damage(DamageKind.BAD_RECORD, place, detail) if before <= MOST_ROWS else None


def misplaced_records(rows: Window, file: str) -> list[Damage]:
    """Return a damage for each batch (v2) with a record whose offset is not its own, or not above the one before it."""
    found = []
    for i in rows.stray_records():
        offset, batch = rows.record(i, False)[0], rows.record(i, False)[6]
        detail = f"a record of offset {offset}, which is outside of it or not above the one before"
        found.append(batch_damage(rows, batch, DamageKind.BAD_RECORD, detail, file))
    return found


def broken_record(window: Window, status: int) -> str:
    """Return how the batch is broken at which decoding stopped."""
    if status == BAD_COUNT:
        return f"its records do not fill it, or overfill it (record {window.decoding_record})"
    return f"the structure of record {window.decoding_record} is broken"


def batch_damage(window: Window, i: int, kind: DamageKind, detail: str, file: str) -> Damage:
    """Return the damage of batch *i*, whose checksum matches."""
    facts = window.batch(i)
    return Damage(kind, Location(file, facts.position, facts.base_offset), detail, facts.size)


def _swallowed(window: Window, bad: int, span: OffsetRange) -> tuple[Window | None, int]:
    """Return a window of the intact batches inside the extent that damaged batch *bad* claims, and its start.

    This finds batches after damage to the length of *bad*.  Their offsets must lie between those of its neighbours.
    """
    facts = window.batch(bad)
    start, size = window.at(bad), facts.size
    min_offset = min(window.batch(bad - 1).last_offset, LONG_MAX - 1) + 1 if bad else span.min_offset
    max_offset = max(window.batch(bad + 1).base_offset, -LONG_MAX) - 1 if bad + 1 < window.count else span.max_offset
    status, at = window.find(start + 1, start + size, min_offset, max_offset)
    tries = _TRIES
    while status == MORE and tries and not window.entry_holds(at):
        tries -= 1  # a hostile batch could have a large one begin at every byte
        status, at = window.find(at + 1, start + size, min_offset, max_offset)
    if status == BAD_LENGTH or not tries:
        return None, 0
    inner = window_of(window.copy(at, start + size), facts.position + at - start, output=1 << 16)
    inner.scan(0)
    return inner, at - start
