"""One pass over a segment: reads its batches, and compares its indexes with them."""

from __future__ import annotations

import os
import threading
from typing import NamedTuple, Protocol

from klog.base.errors import KlogError
from klog.base.progress import Sink
from klog.base.read_only import ReadableLog, ReadOnlyFile
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.formats.java_integers import LONG_MAX
from klog.kernel import IndexBuilder, SegmentSurvey, Window, offset_index_used, time_index_used
from klog.log.index import content_before_zeros
from klog.log.ordered_pipeline import OrderedOutput, Work, run
from klog.log.reader import MAX_BATCH_BYTES, WindowResult
from klog.log.records import BatchRun, Codecs, decode_run, intact_runs, message_damages, misplaced_records
from klog.log.segment import Segment
from klog.partition.transactions.producer_replay import ProducerReplay

NO_NEXT = LONG_MAX
_LARGE_BYTES = 8 << 20
_kept = threading.local()

MOST_DAMAGES = 1000
"""How many are reported one by one for a segment; a file can be all damage, and a million lines help no one."""


class IndexFile(NamedTuple):
    """The used part of an offset or time index, and its rest; *entries* is its last entry after a pass.

    *why*: the reason why the used part ends (see `kernel.offset_index_used`).  *hole*: position of the first bytes
    after zeros that are not zero, None if all are.  *problem*: the reason why it cannot be read.
    """

    name: str
    size: int
    used: int
    entries: bytes
    why: str
    hole: int | None = None
    problem: str | None = None


class ByteRange(NamedTuple):
    """Damage, with its position between intact batches.

    *end*: its end, in bytes.  *batches*, *records*: the number of intact ones before it in the segment.  *expected*:
    the next offset before it; None for damage inside a batch whose checksum matches.
    """

    damage: Damage
    end: int
    batches: int
    records: int
    expected: int | None

    @property
    def offset(self) -> int | None:
        """The offset that identifies it in messages."""
        return self.damage.place.offset if self.expected is None else self.expected


class SegmentFacts:
    """The results of a pass over a segment.

    *damages* are sorted by position, the first MOST_DAMAGES of them; *more_damages* counts the others. *size* is that
    of the log in bytes, *end_offset* the offset after its last intact batch, or the base offset. *builder* rebuilds the
    indexes, if requested, from the batches before the first damaged stretch; *is_broken*: there is one; *resumes_at*:
    base offset of the first intact batch behind it.
    """

    def __init__(
        self,
        files: SegmentFiles,
        survey: SegmentSurvey,
        indexes: tuple[IndexFile | None, IndexFile | None],
        builder: IndexBuilder | None = None,
    ) -> None:
        self.files = files
        self.survey = survey
        self.offset_index, self.time_index = indexes
        self.size, self.end_offset = 0, files.base_offset
        self.damages: list[ByteRange] = []
        self.more_damages = 0
        self.unreadable: KlogError | None = None
        self.builder = builder
        self.is_broken = False
        self.resumes_at: int | None = None

    def add(self, damage: Damage, is_inside: bool) -> None:
        """Take the next damage; *is_inside*: in a batch whose checksum matches."""
        self.is_broken |= not is_inside
        if len(self.damages) == MOST_DAMAGES:
            self.more_damages += 1
            return
        self._advance()
        expected = None if is_inside else self.end_offset
        self.damages.append(ByteRange(damage, damage.end, self.survey.batches, self.survey.records, expected))

    def finish(self) -> None:
        """End the pass: only the last of the indexes' entries is used after it, and is kept."""
        self._advance()
        if self.offset_index is not None and self.offset_index.used > 1:
            self.offset_index = self.offset_index._replace(entries=self.offset_index.entries[-OFFSET_ENTRY.size :])
        if self.time_index is not None and self.time_index.used > 1:
            self.time_index = self.time_index._replace(entries=self.time_index.entries[-TIME_ENTRY.size :])

    def _advance(self) -> None:
        self.end_offset = max(self.survey.last_offset + 1, self.files.base_offset)


class IndexSettings(NamedTuple):
    """The settings for rebuilt indexes: index.interval.bytes and segment.index.bytes."""

    interval: int = 4096
    index_bytes: int = 10 << 20


class SurveyOptions(NamedTuple):
    """How a pass is made: *deep*: every record too; *jobs*: threads for a large segment; *build*: rebuild indexes.

    *producers*: each batch of theirs is followed, as by *deep*: microseconds for one.

    Small segments are read by one thread: because of the interpreter's lock several only get in each other's way
    (`klog.jobs.verify` has processes for many of them).
    """

    deep: bool = False
    jobs: int = 1
    max_batch_bytes: int = MAX_BATCH_BYTES
    build: IndexSettings | None = None
    producers: bool = False


class BatchObserver(Protocol):
    """Receives the results of a pass over a segment, in order, for a purpose of its own without another pass.

    It must not raise.  A segment without a call of `end` could not be read to its end.
    """

    def begin(self, source: ReadOnlyFile, facts: SegmentFacts) -> None:
        """Take note that the pass over a segment begins; *source* is open until it is over."""

    def take(self, run: BatchRun) -> None:
        """Take intact batches, which stay in their window until this returns."""

    def damaged(self, damage: Damage) -> None:
        """Take a stretch without intact batches."""

    def end(self, size: int) -> None:
        """Take note that the pass is over, after *size* bytes."""


def survey_segment(
    partition: Partition,
    files: SegmentFiles,
    next_base: int,
    request: SurveyOptions,
    sink: Sink,
    replay: ProducerReplay | None,
    observer: BatchObserver | None = None,
) -> SegmentFacts:
    """Read a whole segment.  Nothing is raised: an unreadable part is a fact.

    The indexes are read before the log is opened: they are then never ahead of the log of a running broker.
    """
    path = os.path.join(partition.path, files.log)
    raw = _read(partition, files.offset_index, OFFSET_ENTRY.size) if files.offset_index else None
    time_index = read_time_index(partition, files)
    builder = IndexBuilder(files.base_offset, *request.build) if request.build is not None else None
    facts = SegmentFacts(files, SegmentSurvey(files.base_offset, next_base, b"", b""), (raw, time_index), builder)
    try:
        with ReadOnlyFile(path) as source:
            _survey(source, facts, request, sink, replay, observer)
    except KlogError as error:
        facts.unreadable = error
    facts.finish()
    return facts


def survey_log(
    source: ReadableLog,
    files: SegmentFiles,
    next_base: int,
    indexes: tuple[ReadableLog | None, ReadableLog | None],
    request: SurveyOptions,
    sink: Sink,
    replay: ProducerReplay | None = None,
) -> SegmentFacts:
    """Read a log that need not be a file, with its offset index and its time index, as `survey_segment` does."""
    raw, times = (
        None if index is None else _content(index, name or "", layout.size)
        for index, name, layout in zip(
            indexes, (files.offset_index, files.time_index), (OFFSET_ENTRY, TIME_ENTRY), strict=True
        )
    )
    time_index = None if times is None else _used(times, TIME_ENTRY.size, *time_index_used(times.entries))
    facts = SegmentFacts(files, SegmentSurvey(files.base_offset, next_base, b"", b""), (raw, time_index))
    try:
        _survey(source, facts, request, sink, replay)
    except KlogError as error:
        facts.unreadable = error
    facts.finish()
    return facts


def _survey(
    source: ReadableLog,
    facts: SegmentFacts,
    request: SurveyOptions,
    sink: Sink,
    replay: ProducerReplay | None = None,
    observer: BatchObserver | None = None,
) -> None:
    facts.size = source.size
    raw = facts.offset_index
    if raw is not None:
        facts.offset_index = _used(raw, OFFSET_ENTRY.size, *offset_index_used(raw.entries, source.size))
    entries = [index.entries if index else b"" for index in (facts.offset_index, facts.time_index)]
    facts.survey = SegmentSurvey(facts.files.base_offset, facts.survey.next_base, *entries)
    jobs = request.jobs if source.size >= _LARGE_BYTES else 1
    segment = Segment(source.path, bounded=False)
    reader = segment.reader(source, max_batch_bytes=request.max_batch_bytes, checked=jobs == 1)
    if observer is not None and isinstance(source, ReadOnlyFile):
        observer.begin(source, facts)
    run(reader, lambda: _work(segment, facts, request, replay, observer), sink, jobs, _own_window())
    if observer is not None:
        observer.end(reader.end)
    facts.survey.finish()
    if facts.builder is not None:
        facts.builder.finish()


def _own_window() -> Window:
    """Return this thread's window: a new one for each of many small segments would cost more than reading them."""
    if not hasattr(_kept, "window"):
        _kept.window = Window(output=0)
    window: Window = _kept.window
    return window


def _work(
    segment: Segment,
    facts: SegmentFacts,
    request: SurveyOptions,
    replay: ProducerReplay | None,
    observer: BatchObserver | None,
) -> Work:
    codecs = Decompressor(request.max_batch_bytes).functions
    path, span = segment.path, segment.span

    def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        window.check(0, window.count)
        found: list[tuple[BatchRun, list[Damage]]] = []
        for part in intact_runs(window, path, span):
            deep = request.deep and part.damage is None
            found.append((part, _broken_inside(part, codecs, path) if deep else []))
        lane.wait()
        for part, broken in found:
            if part.damage:
                _damaged(facts, part.damage, replay, observer)
                continue
            facts.survey.walk(part.window, part.first, part.end)
            if facts.is_broken and facts.resumes_at is None and part.first < part.end:
                facts.resumes_at = part.window.batch(part.first).base_offset
            if facts.builder is not None and not facts.is_broken:
                facts.builder.walk(part.window, part.first, part.end)
            if replay is not None:
                replay.take(facts.files.log, part.window, part.first, part.end)
            if observer is not None:
                observer.take(part)
            for damage in broken:
                facts.add(damage, is_inside=True)
        if piece.damage:
            _damaged(facts, piece.damage, replay, observer)
        return False

    return work


def _broken_inside(part: BatchRun, codecs: Codecs, path: str) -> list[Damage]:
    """Decompress and decode batches whose checksums match; return the damage of their records."""
    broken, window, first = list[Damage](), part.window, part.first
    while first < part.end:
        ready = window.decompress(first, part.end, codecs)
        unsound = window.first_unsound(first, ready)
        if unsound == first or unsound < ready:
            ready = max(ready, first + 1)
            for damage in decode_run(part._replace(first=unsound, end=ready), codecs, path):
                broken += [damage] if damage else message_damages(window, path) + misplaced_records(window, path)
        first = ready
    return broken


def _damaged(
    facts: SegmentFacts, damage: Damage, replay: ProducerReplay | None, observer: BatchObserver | None
) -> None:
    start = damage.place.position or 0
    facts.add(damage, is_inside=False)
    facts.survey.damaged(start, start + (damage.size or 0))
    if replay is not None:
        replay.damaged()
    if observer is not None:
        observer.damaged(damage)


# the indexes


def _read(partition: Partition, name: str, entry_bytes: int) -> IndexFile:
    """Read an index up to its trailing zeros."""
    try:
        with ReadOnlyFile(os.path.join(partition.path, name)) as source:
            return _content(source, name, entry_bytes)
    except KlogError as error:
        return IndexFile(name, 0, 0, b"", "unreadable", problem=str(error))


def _content(source: ReadableLog, name: str, entry_bytes: int) -> IndexFile:
    content, zeros_follow = content_before_zeros(source, entry_bytes)
    return IndexFile(name, source.size, 0, content, "zeros" if zeros_follow else "end")


def read_time_index(partition: Partition, files: SegmentFiles) -> IndexFile | None:
    """Return the used part of a segment's time index; None when it has none."""
    if files.time_index is None:
        return None
    found = _read(partition, files.time_index, TIME_ENTRY.size)
    return _used(found, TIME_ENTRY.size, *time_index_used(found.entries))


def _used(found: IndexFile, entry_bytes: int, used: int, why: str) -> IndexFile:
    behind = found.entries[used * entry_bytes :]
    content = behind.lstrip(b"\0")
    hole = None
    if why == "zeros" and content:
        at = len(found.entries) - len(content)
        hole = at - at % entry_bytes
    return IndexFile(
        found.name, found.size, used, found.entries[: used * entry_bytes],
        found.why if why == "end" else why, hole, found.problem,
    )  # fmt: skip
