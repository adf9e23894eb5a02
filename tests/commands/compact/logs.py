"""Logs of everything that a cleaner may meet, drawn by hypothesis, and their required remains: a model of few lines."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import strategies as st

from tests.commands.compact.compacting import NOW_MS, aborted, batches
from tests.oracles.plain import encode
from tests.oracles.plain.decode import Batch
from tests.oracles.plain.encode import Record

T_MS = NOW_MS - 3_600_000
RETENTION_MS = 60_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PLAIN, IDEMPOTENT, TRANSACTIONAL = (-1,), (7,), (8, 9)
KEYS = (None, b"", b"a", b"b", b"c", b"the same for all of them, 1", b"the same for all of them, 2")
VALUES = (None, b"", b"v", b"value " * 40)
HEADERS = ((), ((b"trace", b"\x00\xff"), (b"", None), (b"trace", b"")))


@dataclass
class Segment:
    """A segment while it is drawn."""

    base: int
    content: list[bytes] = field(default_factory=list)
    aborted: list[tuple[int, int, int, int]] = field(default_factory=list)


@dataclass
class Log:
    """Segments, the last one active."""

    segments: list[Segment]

    def write(self, data: Path, directory: str = "t-0", *, cleaner_offset: int | None = None) -> Path:
        """Make the log dir *data* with this partition; return the log dir."""
        partition = data / directory
        partition.mkdir(parents=True)
        (data / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\n")
        for segment in self.segments:
            stem = partition / f"{segment.base:020}"
            stem.with_suffix(".log").write_bytes(b"".join(segment.content))
            stem.with_suffix(".index").touch()
            stem.with_suffix(".timeindex").touch()
            if segment.aborted:
                stem.with_suffix(".txnindex").write_bytes(encode.aborted_entries(segment.aborted))
        if cleaner_offset is not None:
            topic, _, number = directory.rpartition("-")
            (data / "cleaner-offset-checkpoint").write_text(f"0\n1\n{topic} {number} {cleaner_offset}\n")
        return data


@dataclass
class _Drawing:
    """A log while it is drawn: the next offset, and the open transactions with their beginnings."""

    segments: list[Segment] = field(default_factory=lambda: [Segment(0)])
    next_offset: int = 0
    sequences: dict[int, int] = field(default_factory=dict)
    open_since: dict[int, int] = field(default_factory=dict)

    def roll(self) -> None:
        if self.segments[-1].content:
            self.segments.append(Segment(self.next_offset))

    def append(self, batch: bytes) -> None:
        self.segments[-1].content.append(batch)

    def end(self, producer: int, *, commit: bool) -> None:
        """Write a marker, also of a transaction without data here."""
        at = self.next_offset
        self.append(
            encode.marker(
                at, commit=commit, timestamp=T_MS + at, producer_id=producer, producer_epoch=0, coordinator_epoch=1
            )
        )
        self.next_offset = at + 1
        since = self.open_since.pop(producer, None)
        if since is not None and not commit:
            stable = min(self.open_since.values(), default=at + 1)
            self.segments[-1].aborted.append((producer, since, at, stable))

    def sequence(self, producer: int, count: int) -> tuple[int, int, int]:
        if producer < 0:
            return -1, -1, -1
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + count
        return producer, 0, sequence

    def finish(self) -> Log:
        self.roll()
        self.append(encode.batch([Record(self.next_offset, T_MS, b"active", b"x")]))
        return Log(self.segments)


_contents = st.tuples(
    st.sampled_from(KEYS), st.sampled_from(VALUES), st.sampled_from(HEADERS), st.integers(-100, 100), st.integers(1, 3)
)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """Draw a log of record batches: codecs, transactions, gaps, horizons, empty batches, batches without data."""
    drawing = _Drawing()
    for _ in range(draw(st.integers(1, 14))):
        step = draw(st.sampled_from(("batch",) * 5 + ("marker", "marker", "empty", "gap", "roll", "roll")))
        if step == "batch":
            _draw_batch(draw, drawing)
        elif step == "marker":
            drawing.end(draw(st.sampled_from(TRANSACTIONAL)), commit=draw(st.booleans()))
        elif step == "empty":
            last = drawing.next_offset + draw(st.integers(0, 3))
            numbered = drawing.sequence(IDEMPOTENT[0], 1 + last - drawing.next_offset)
            drawing.append(encode.empty_batch(drawing.next_offset, last, producer=numbered))
            drawing.next_offset = last + 1
        elif step == "gap":
            drawing.next_offset += draw(st.integers(1, 5))
        else:
            drawing.roll()
    if draw(st.booleans()):
        for producer in list(drawing.open_since):
            drawing.end(producer, commit=draw(st.booleans()))
    return drawing.finish()


def _draw_batch(draw: st.DrawFn, drawing: _Drawing) -> None:
    producer = draw(st.sampled_from(PLAIN * 3 + IDEMPOTENT + TRANSACTIONAL))
    base = offset = drawing.next_offset
    records = []
    for key, value, headers, backwards, step in draw(st.lists(_contents, min_size=1, max_size=6)):
        records.append(Record(offset, T_MS + offset + backwards, key, value, headers))
        offset += step  # what an earlier compaction has left has holes
    last = offset - 1
    horizon = draw(st.sampled_from((None,) * 6 + (NOW_MS - 1, NOW_MS, NOW_MS + 1)))
    transactional = producer in TRANSACTIONAL
    if transactional:
        drawing.open_since.setdefault(producer, base)
    drawing.append(
        encode.batch(
            records,
            codec=draw(st.sampled_from(CODECS)),
            base_offset=base,
            last_offset=last,
            delete_horizon_ms=horizon,
            append_time_ms=draw(st.sampled_from((None, None, None, T_MS + base))),
            transactional=transactional,
            producer=drawing.sequence(producer, 1 + last - base),
        )
    )
    drawing.next_offset = last + 1


@st.composite
def old_logs(draw: st.DrawFn) -> Log:
    """Draw a log of message sets, v0 or v1, plain ones and wrapped ones."""
    drawing = _Drawing()
    magic = draw(st.sampled_from((0, 1)))
    for _ in range(draw(st.integers(1, 10))):
        if draw(st.integers(0, 3)) == 0:
            drawing.roll()
            continue
        records: list[Record] = []
        for key, value, _, backwards, _ in draw(st.lists(_contents, min_size=1, max_size=6)):
            at = drawing.next_offset + len(records)
            records.append(Record(at, T_MS + at + backwards if magic else -1, key, value))
        drawing.next_offset += len(records)
        codec = draw(st.sampled_from(CODECS[:4]))
        append_time_ms = draw(st.sampled_from((None, None, T_MS))) if magic else None
        if codec != "none":
            drawing.append(encode.wrapper(records, magic, codec, append_time_ms=append_time_ms))
            continue
        for one in records:
            timestamp = one.timestamp if append_time_ms is None else append_time_ms
            attributes = 0 if append_time_ms is None else 8
            drawing.append(
                encode.message(one.offset, magic, one.key, one.value, timestamp=timestamp, attributes=attributes)
            )
    return drawing.finish()


Row = tuple[object, ...]


def row_of(batch: Batch, at: int) -> Row:
    """Return what of a record must not change; of a marker too."""
    one = batch.records[at]
    return one.offset, one.timestamp, batch.timestamp_type, one.key, one.value, one.headers


def rows(found: Sequence[Batch]) -> list[Row]:
    """Return the records of batches, without markers."""
    return [row_of(batch, at) for batch in found if not batch.control for at in range(len(batch.records))]


def expected(found: Sequence[Batch], first_dirty: int, end: int, expired: Collection[int] = ()) -> list[Row]:
    """Return the records that a compaction of [*first_dirty*, *end*) leaves of a log, by a model of its own.

    *expired*: offsets of tombstones past their delete horizon, except those whose batch contains it.
    """
    gone = aborted(found)
    every = [(batch, at) for batch in found if not batch.control for at in range(len(batch.records))]
    last: dict[bytes, int] = {}
    for batch, at in every:
        record = batch.records[at]
        if record.key is not None and first_dirty <= record.offset < end and record.offset not in gone:
            last[record.key] = record.offset
    kept = []
    for batch, at in every:
        record = batch.records[at]
        over = record.value is None and batch.delete_horizon_ms is not None and batch.delete_horizon_ms <= NOW_MS
        over = over or record.offset in expired
        stays = record.key is not None and record.offset >= last.get(record.key, -1) and not over
        if record.offset >= end or (stays and record.offset not in gone):
            kept.append(row_of(batch, at))
    return kept


def fresh(folder: Path, make: Callable[[Path], Path]) -> Path:
    """Return the log dir that *make* writes at a place where nothing is."""
    shutil.rmtree(folder, ignore_errors=True)
    return make(folder / "data")


def log_of(data: Path, directory: str = "t-0") -> list[Batch]:
    """Return the batches of a partition."""
    return batches(data / directory)
