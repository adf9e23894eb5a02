"""A partition's log for fetches: finds batches once and remembers them."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from contextlib import closing
from functools import cached_property
from typing import Final, Literal, NamedTuple

from klog.base.errors import KlogError
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.damage import Damage
from klog.log.header_walk import header_at, walk_headers
from klog.log.index import position_of_offset
from klog.log.records import OffsetRange
from klog.log.segment import Segment
from klog.partition.fetch.open_logs import OpenFiles, is_lack
from klog.partition.fetch.read_slices import Key, Slice, SliceCache, WindowPool
from klog.partition.fetch.verified_ranges import UnservedRange, VerifiedRanges

Damaged = Literal["skip", "stop", "serve"]
"""The treatment of damage: skip it, return an error at its beginning, or send it as a broker does."""

_REMEMBERED: Final = 256


class CorruptError(Exception):
    """The fetch would begin at damage."""


class FirstBatch(NamedTuple):
    """The first batch of an answer, in segment *number*: *position* and *size* in bytes of its log.

    More batches follow up to byte *end*; *known* are the ones, this one included, that were read before.
    """

    number: int
    position: int
    size: int
    last_offset: int
    magic: int
    end: int
    known: Slice | None


class _Place(NamedTuple):
    """Byte *position* of the log of segment *number*; *known*: the slice there, intact with others up to byte *end*."""

    number: int
    position: int
    known: Key | None
    end: int


class SegmentLog:
    """A segment; *sound* is None if checksums are not checked.  *size*: bytes that there were when it was listed."""

    def __init__(self, path: str, files: SegmentFiles, span: OffsetRange, sound: VerifiedRanges | None) -> None:
        self.path, self.files, self.span, self.sound = path, files, span, sound
        self.index = os.path.join(os.path.dirname(path), files.offset_index) if files.offset_index else None

    @property
    def size(self) -> int:
        """Up to which byte it is read."""
        return self.files.size if self.sound is None else self.sound.size


class FetchLog:
    """The log of *partition* in its state at construction: later batches are not included.  Any number of threads may
    use it.

    *report* receives each damaged range that is skipped, once; *problem* receives files that cannot be read or became
    shorter.
    """

    def __init__(
        self,
        partition: Partition,
        files: OpenFiles,
        *,
        damaged: Damaged = "serve",
        slices: SliceCache | None = None,
        report: Callable[[UnservedRange], None] = lambda loss: None,
        problem: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.partition, self.files, self.damaged, self.problem = partition, files, damaged, problem
        self.slices = slices or SliceCache(WindowPool())
        self._report = report
        following: list[SegmentFiles | None] = [*partition.segments[1:], None]
        self.segments = tuple(
            self._segment(one, None if after is None else after.base_offset)
            for one, after in zip(partition.segments, following, strict=False)
        )
        self._bases = [segment.files.base_offset for segment in self.segments]
        self._next: OrderedDict[int, _Place] = OrderedDict()
        self._edges: dict[int, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self.end_is_unknown = False  # the last segment could not be read when its end was looked for
        self.searches = 0
        """The number of searches in an index: a sequential reader needs one."""

    def _segment(self, files: SegmentFiles, next_base: int | None) -> SegmentLog:
        path = self.partition.file(files.log)
        own = Segment(path).span
        span = own.below(next_base)
        checked = self.damaged != "serve"
        sound = VerifiedRanges(path, own, files.size, self.slices, self._report) if checked else None
        return SegmentLog(path, files, span, sound)

    @cached_property
    def end(self) -> int:
        """The offset after the last batch, which must be intact if checksums are verified; the base of an empty log.

        If the last segment cannot be read, the result is its base.  Kafka: LogSegment.readNextOffset.
        """
        if not self.segments:
            return 0
        last = self.segments[-1]
        try:
            by_headers = self.partition.log_end
            assert by_headers is not None
            found = self._intact_end(last, by_headers.walked_from) if last.sound is not None else by_headers.offset
        except KlogError as error:
            self.problem(str(error))
            self.end_is_unknown, found = True, None
        return last.files.base_offset if found is None else found

    def _intact_end(self, last: SegmentLog, walked_from: int) -> int | None:
        assert last.sound is not None
        log = self.files.opened(last.path)
        for start in (walked_from, 0):
            position = start
            while position < last.sound.size:
                position = last.sound.intact(log, position, last.sound.size)[1]
            if last.sound.next_offset is not None:
                break
        return last.sound.next_offset

    # ------------------------------------------------------------ where batches are

    def first(self, offset: int, ahead: int) -> FirstBatch | None:
        """Return the first batch that reaches *offset*; None when none does.  Batches are known for *ahead* bytes.

        Raises CorruptError, UnreadableError.
        """
        place = self._next.get(offset)
        if place is None:
            number, position = self._searched(offset)
        elif (known := self._known(place, offset, ahead)) is not None:
            return known
        else:
            number, position = place.number, place.position
        while number < len(self.segments):
            found = self._at(number, position, offset, ahead)
            if found is not None:
                return found
            self._check_whole(number)
            number, position = number + 1, 0
        return None

    def _known(self, place: _Place, offset: int, ahead: int) -> FirstBatch | None:
        """Return the batch at *place* if it is known and reaches *offset*, and so much behind it is known as well."""
        number, position, key, end = place
        known = None if key is None or end - position < ahead else self.slices.kept(key)
        if known is None:
            return None
        size, last_offset, magic = known.batch(position)
        try:
            is_there = self.files.opened(self.segments[number].path).current_size() >= end
        except KlogError:
            return None  # the search reports it
        if last_offset < offset or not is_there:
            return None
        return FirstBatch(number, position, size, last_offset, magic, end, known)

    def remember(self, offset: int, first: FirstBatch, position: int, known: Slice | None) -> None:
        """Remember for the next fetch that *offset* is at byte *position* or after it, in segment *first*.

        *known*: batches the last of which ends there, or after it.
        """
        key = known.key if known is not None and position < known.ends[-1] else None
        self._next[offset] = _Place(first.number, position, key, first.end)
        if len(self._next) > _REMEMBERED:
            self._next.popitem(last=False)

    def edge(self, offset: int) -> tuple[int, int]:
        """Return the segment and the position of the first batch that reaches *offset*; each result is cached.

        The result lies behind the last segment if there is no such batch.  Kafka:
        UnifiedLog.convertToOffsetMetadataOrThrow.
        """
        found = self._edges.get(offset)
        if found is None:
            try:
                first = self.first(offset, 1)
            except (CorruptError, KlogError):
                first = None  # the fetch that reaches it reports it
            found = (len(self.segments), 0) if first is None else (first.number, first.position)
            with self._lock:
                if len(self._edges) > _REMEMBERED:
                    self._edges.clear()
                self._edges[offset] = found
        return found

    def _searched(self, offset: int) -> tuple[int, int]:
        """Return the segment with *offset* and where in it the first batch begins that reaches it; the next's start."""
        number = max(bisect_right(self._bases, offset) - 1, 0)
        segment = self.segments[number]
        self.searches += 1
        position = self._by_headers(segment, offset) if segment.sound is None else self._intact(segment, offset)
        if position is None:
            self._check_whole(number)
        return (number + 1, 0) if position is None else (number, position)

    def _check_whole(self, number: int) -> None:
        """Raise CorruptError if damage is an error, and a segment's object in remote storage ends too early."""
        if self.damaged == "stop" and self.files.opened(self.segments[number].path).missing_bytes:
            raise CorruptError(self.segments[number].path)

    def _by_headers(self, segment: SegmentLog, offset: int) -> int | None:
        """Search as a broker does.  Kafka: LogSegment.translateOffset, FileRecords.searchForOffsetFromPosition."""
        log, base = self.files.opened(segment.path), segment.files.base_offset
        start = position_of_offset(log, segment.index, base, offset) if segment.index and offset > base else 0
        for found in walk_headers(log, start):
            if isinstance(found, Damage):
                if found.is_unfinished:
                    return None
                raise CorruptError(str(found))
            if found.last_offset >= offset:
                return found.position
        return None

    def _intact(self, segment: SegmentLog, offset: int) -> int | None:
        """Search the first intact batch, and report the damage before it."""
        from klog.formats.codec import Decompressor
        from klog.partition.lookup.offset_search import SegmentSearch

        assert segment.sound is not None
        try:
            search = SegmentSearch(self.partition.path, segment.files, Decompressor().functions)
        except KlogError as error:
            self._lost(segment, error)
            return None
        with closing(search):
            found = search.find(offset)
        for damage in found.damages:
            segment.sound.note(damage)
        if found.adjacent and (found.body is None or found.body.first_offset > offset):
            return found.damages[-1].place.position  # the offset may be in it: a fetch that begins there reports it
        return None if found.body is None else found.body.facts.position

    # ------------------------------------------------------------ the segments

    def _at(self, number: int, position: int, offset: int, ahead: int) -> FirstBatch | None:
        """Return the first batch of a segment, from *position* on, that reaches *offset*; None when none does."""
        segment = self.segments[number]
        try:
            log = self.files.opened(segment.path)
            size = self._hold_to_size(segment, log)
            while True:
                start, end = self._range(number, log, position, ahead)
                found = _batch(segment, log, start) if start < min(end, size) else None
                if found is None or start + found[0] > size:
                    return None
                if found[1] >= offset:
                    return FirstBatch(number, start, *found[:3], min(end, size), found[3])
                position = start + found[0]  # the remembered position may be too high if offsets go backwards
        except KlogError as error:
            self._lost(segment, error)
            return None

    def _range(self, number: int, log: ReadOnlyFile, position: int, ahead: int) -> tuple[int, int]:
        """Return from where to where batches can be handed out.  Raises CorruptError if damage is an error."""
        segment = self.segments[number]
        if segment.sound is None:
            return position, segment.size
        start, end = segment.sound.intact(log, position, ahead)
        is_tail = start >= end and number + 1 == len(self.segments)
        if start > position and self.damaged == "stop" and not is_tail:
            raise CorruptError(f"{segment.path} @ {position}")
        return start, end

    def _hold_to_size(self, segment: SegmentLog, log: ReadOnlyFile) -> int:
        """Return how large the log is by now, in bytes."""
        size = log.current_size()
        if size < segment.size:
            if log.missing_bytes:
                self.problem(f"{log.path}: {log.missing_bytes} bytes less than the metadata have: records are missing")
            elif log.fileno() >= 0:  # only a part of a remote segment may belong to the log
                self.problem(f"{segment.path}: it became shorter, {size} bytes where there were {segment.size}")
            if segment.sound is not None:
                segment.sound.shrink(size)
        return size

    def _lost(self, segment: SegmentLog, error: KlogError) -> None:
        """Report an unreadable log; it is skipped in the same way as damage, otherwise the error is raised.

        The error is also raised if only this process cannot read it, because of too many open files: the log may be
        intact.
        """
        if self.damaged != "skip" or is_lack(error):
            raise error
        self.problem(str(error))


def _batch(segment: SegmentLog, log: ReadOnlyFile, position: int) -> tuple[int, int, int, Slice | None] | None:
    """Return size, last offset and magic of the batch that begins at byte *position*, and the slice it was found in.

    None if no batch is possible.
    """
    if segment.sound is None:
        header = header_at(log, position)
        return None if header is None else (header.size, header.last_offset, header.magic, None)
    found = segment.sound.slice_at(log, position)
    return None if found is None else (*found.batch(position), found)
