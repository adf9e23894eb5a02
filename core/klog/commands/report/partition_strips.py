"""A partition in offset order, as far as a picture shows it: segments, damage, gaps, transactions and marks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

from klog.base.errors import UnreadableError
from klog.formats.batch import CODEC_NAMES
from klog.log.txn_index import read_txn_index
from klog.partition.verify.findings import PartitionFacts
from klog.partition.verify.segment_pass import SegmentFacts

MOST_SEGMENTS = 200
"""A picture is 1 000 units wide: of more segments, neighbours share a box."""

MOST_SPANS = 300
"""Spans and marks of one kind that are drawn of a partition; the others are counted."""


class StripSegment(NamedTuple):
    """Offsets *first* up to *end*: a segment, or *segments* neighbours in one box; *bytes* of `.log`, *codecs*."""

    first: int
    end: int
    bytes: int
    codecs: tuple[str, ...]
    segments: int = 1


class StripSpan(NamedTuple):
    """Offsets *first* up to *end* (both the same for a place between two), and their content."""

    kind: str
    first: int
    end: int
    text: str = ""


class PartitionStrip(NamedTuple):
    """The content of a partition's picture.

    *spans*: kinds `gap`, `damage`, `aborted`, `open`.  *marks*: kinds `log-start`, `high-watermark`, `last-stable`,
    `cleaner`.  *epochs*: each with its first offset.  *more*: the number of omitted spans.  *problems*: findings that
    are no notes, by severity.
    """

    topic: str | None
    partition: int | None
    log_dir: str
    directory: str
    log_start: int
    log_end: int
    bytes: int
    segments: tuple[StripSegment, ...]
    spans: tuple[StripSpan, ...]
    marks: tuple[tuple[str, int], ...]
    epochs: tuple[tuple[int, int], ...]
    more: int
    problems: tuple[int, int] = (0, 0)


def strip_of(facts: PartitionFacts) -> PartitionStrip:
    """Return the strip of a partition after the pass over its segments."""
    partition = facts.partition
    segments = [_segment(facts, segment) for segment in facts.segments]
    log_end = segments[-1].end if segments else partition.log_start_offset or 0
    log_start = max(partition.log_start_offset or 0, segments[0].first if segments else 0)
    opened = [StripSpan("open", first, log_end, f"producer {producer}") for first, producer in _opened(facts)]
    found = (_gaps(facts), _damages(facts), _aborted(facts), opened)
    spans = [span for kind in found for span in kind[:MOST_SPANS]]
    return PartitionStrip(
        partition.topic,
        partition.number,
        partition.log_dir,
        partition.directory,
        log_start,
        log_end,
        sum(segment.bytes for segment in segments),
        tuple(_boxes(segments)),
        tuple(spans),
        tuple(_marks(facts, log_start, log_end, opened)),
        tuple(islice(_epochs(facts), MOST_SPANS)),
        sum(len(kind) for kind in found) - len(spans),
    )


def _segment(facts: PartitionFacts, segment: SegmentFacts) -> StripSegment:
    codecs = tuple(name for code, name in enumerate(CODEC_NAMES) if segment.survey.codecs >> code & 1)
    end = segment.end_offset if facts.is_active(segment) else max(segment.end_offset, segment.survey.next_base)
    return StripSegment(segment.files.base_offset, end, segment.size, codecs)


def _boxes(segments: Sequence[StripSegment]) -> Iterable[StripSegment]:
    """Yield the segments, with neighbours combined if there are too many for a picture."""
    step = -(-len(segments) // MOST_SEGMENTS) or 1
    for at in range(0, len(segments), step):
        some = segments[at : at + step]
        codecs = tuple(dict.fromkeys(name for one in some for name in one.codecs))
        yield StripSegment(some[0].first, some[-1].end, sum(one.bytes for one in some), codecs, len(some))


def _gaps(facts: PartitionFacts) -> list[StripSpan]:
    return [StripSpan("gap", first, end) for first, end in facts.gaps]


def _damages(facts: PartitionFacts) -> list[StripSpan]:
    """Return the damaged spans: each at the next expected offset."""
    found = []
    for segment in facts.segments:
        for one in segment.damages:
            at = segment.files.base_offset if one.expected is None else one.expected
            place = one.damage.place.position or 0
            text = f"{one.damage.kind.value} at byte {place} of {segment.files.log}, {one.end - place} bytes"
            found.append(StripSpan("damage", at, at, text))
        if segment.unreadable is not None:
            found.append(StripSpan("damage", segment.files.base_offset, segment.files.base_offset, "unreadable"))
    return found


def _aborted(facts: PartitionFacts) -> list[StripSpan]:
    """Return the aborted transactions that the transaction indexes name."""
    found = []
    for files in facts.partition.segments:
        if files.txn_index is None:
            continue
        try:
            entries, _ = read_txn_index(facts.partition.path, files.txn_index)
        except UnreadableError:
            continue  # verify's own check reports that
        found += [
            StripSpan("aborted", one.first_offset, one.last_offset + 1, f"producer {one.producer_id}")
            for one in entries
            if 0 <= one.first_offset <= one.last_offset
        ]
    return found


def _opened(facts: PartitionFacts) -> Sequence[tuple[int, int]]:
    return (facts.replay.open_now() or ()) if facts.replay is not None else ()


def _marks(
    facts: PartitionFacts, log_start: int, log_end: int, opened: Sequence[StripSpan]
) -> Iterable[tuple[str, int]]:
    partition = facts.partition
    stable = min((span.first for span in opened), default=None)
    for kind, offset in (
        ("log-start", log_start),
        ("cleaner", partition.cleaner_offset),
        ("last-stable", stable),
        ("high-watermark", partition.high_watermark),
        ("log-end", log_end),
    ):
        if offset is not None:
            yield kind, offset


def _epochs(facts: PartitionFacts) -> Iterable[tuple[int, int]]:
    """Yield the leader epochs: those of the checkpoint, or of the batches without a readable one."""
    kept = facts.partition.epochs
    if kept is not None and kept.malformed is None:
        yield from ((entry.epoch, entry.start_offset) for entry in kept.entries)
    else:
        yield from ((epoch, offset) for segment in facts.segments for epoch, offset, _ in segment.survey.epochs)
