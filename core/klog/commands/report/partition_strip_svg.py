"""The strip of a partition: its segments, damage, gaps, transactions and marks in the order of offsets, as SVG."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from xml.etree.ElementTree import Element

from klog.base.errors import UnreadableError, counted
from klog.commands.report.html_elements import element, letters, offsets, size
from klog.formats.batch import CODEC_NAMES
from klog.log.index import read_txn_index
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
    are no notes, by severity.  *node*: whose log dir it is, None: unknown.  *notes*: further problems, in klog's words.
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
    node: int | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_sick(self) -> bool:
        """Whether something is wrong with the partition, or a transaction in it has no end."""
        return any(self.problems) or bool(self.notes) or any(span.kind == "open" for span in self.spans)


def strip_of(facts: PartitionFacts) -> PartitionStrip:
    """Return the strip of a partition after the pass over its segments."""
    partition = facts.partition
    segments = [_segment(facts, segment) for segment in facts.segments]
    log_end = segments[-1].end if segments else partition.log_start_offset or 0
    log_start = max(partition.log_start_offset or 0, segments[0].first if segments else 0)
    open_now = (facts.replay.open_now() if facts.replay is not None else None) or ()
    opened = [StripSpan("open", first, log_end, f"producer {producer}") for first, producer in open_now]
    gaps = [StripSpan("gap", first, end) for first, end in facts.gaps]
    found = (gaps, _damages(facts), _aborted(facts), opened)
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


STRIP_WIDTH = 1000
_TOP, _HEIGHT = 22, 30
_LETTER = 7.0
"""A letter is at most that wide, in units of the picture."""

_MARKS = {
    "log-start": "log start",
    "cleaner": "cleaner",
    "last-stable": "last stable offset",
    "high-watermark": "high watermark",
    "log-end": "log end",
}
_SPANS = {"gap": "no records", "damage": "damage", "aborted": "aborted transaction", "open": "open transaction"}
_ROWS = {"gap": (_TOP, _HEIGHT), "aborted": (_TOP + _HEIGHT + 2, 6), "open": (_TOP + _HEIGHT + 9, 6)}


class _Scale:
    """The conversion from offsets to the picture's units; a partition without records is one offset wide."""

    def __init__(self, first: int, end: int) -> None:
        self._first, self._width = first, max(end - first, 1)

    def __call__(self, offset: int) -> float:
        share = (offset - self._first) / self._width
        return round(min(max(share, 0.0), 1.0) * STRIP_WIDTH, 2)


def draw_strip(strip: PartitionStrip, name: str) -> Element:
    """Return the picture of a partition called *name*.

    Each shape has a title; a letter, a pattern or a place repeats the meaning of each colour.
    """
    first = min([strip.log_start, *(segment.first for segment in strip.segments[:1])])
    end = max([strip.log_end, first + 1, *(offset for _, offset in strip.marks)])
    scale = _Scale(first, end)
    return element(
        "svg",
        {
            "class": "strip",
            "viewBox": f"0 0 {STRIP_WIDTH} 86",
            "preserveAspectRatio": "none",
            "role": "img",
            "aria-label": describe(strip, name),
        },
        element("title", None, describe(strip, name)),
        *(_segment_shape(segment, scale) for segment in strip.segments),
        *(shape for span in strip.spans if (shape := _span_shape(span, scale)) is not None),
        *_epoch_shapes(strip, scale),
        *_mark_shapes(strip, scale),
    )


def describe(strip: PartitionStrip, name: str) -> str:
    """Return one sentence about the picture, for those who do not see it."""
    counts = {kind: sum(span.kind == kind for span in strip.spans) for kind in _SPANS}
    seen = "".join(f", {count} × {_SPANS[kind]}" for kind, count in counts.items() if count)
    segments = counted(sum(segment.segments for segment in strip.segments), "segment")
    held = "no offsets"
    if strip.log_end > strip.log_start:
        is_one = strip.log_end == strip.log_start + 1
        held = f"offset{'' if is_one else 's'} {offsets(strip.log_start, strip.log_end - 1)}"
    return f"{name}: {held}, {segments}{seen}"


def marks_of(strip: PartitionStrip) -> str:
    """Return the labels of the marks, for a screen that is too narrow for them in the picture."""
    return " · ".join(label for _, _, label in _labels(strip))


def _labels(strip: PartitionStrip) -> Iterator[tuple[int, str, str]]:
    """Yield the marks by offset: the offset, the first kind, and the label of all marks there."""
    kinds: dict[int, list[str]] = {}
    for kind, offset in strip.marks:
        kinds.setdefault(offset, []).append(kind)
    for offset, here in sorted(kinds.items()):
        yield offset, here[0], f"{', '.join(_MARKS[kind] for kind in here)} {offset}"


def _segment_shape(segment: StripSegment, scale: _Scale) -> Element:
    left, right = scale(segment.first), scale(segment.end)
    codec = "+".join("uncompressed" if one == "none" else one for one in segment.codecs) or "empty"
    kind = segment.codecs[0] if len(segment.codecs) == 1 else "mixed" if segment.codecs else "empty"
    many = f"{segment.segments} segments" if segment.segments > 1 else "segment"
    shape = {"x": left, "y": _TOP, "width": max(round(right - left, 2), 0.5), "height": _HEIGHT, "class": f"s {kind}"}
    held = f"offsets {offsets(segment.first, segment.end - 1)}" if segment.end > segment.first else "no offsets"
    title = f"{many}, {held}, {size(segment.bytes)}, {codec}"
    box = element("g", None, element("rect", shape, element("title", None, title)))
    if kind not in ("none", "empty") and right - left > letters(codec) * _LETTER + 6:
        box.append(element("text", {"x": left + 3, "y": _TOP + 19, "class": "codec"}, codec))
    return box


def _span_shape(span: StripSpan, scale: _Scale) -> Element | None:
    left, right = scale(span.first), scale(span.end)
    where = f"at {span.first}" if span.first == span.end else offsets(span.first, span.end - 1)
    title = element("title", None, f"{_SPANS[span.kind]} {where}{': ' if span.text else ''}{span.text}")
    if span.kind == "damage":
        points = f"{left},{_TOP} {left - 6},{_TOP - 10} {left + 6},{_TOP - 10}"
        line = {"x1": left, "x2": left, "y1": _TOP, "y2": _TOP + _HEIGHT, "class": "damage"}
        return element(
            "g", None, title, element("polygon", {"points": points, "class": "damage"}), element("line", line)
        )
    top, height = _ROWS[span.kind]
    shape = {"x": left, "y": top, "width": max(round(right - left, 2), 1.0), "height": height, "class": span.kind}
    return element("rect", shape, title)


def _epoch_shapes(strip: PartitionStrip, scale: _Scale) -> Iterator[Element]:
    free = -1.0
    for epoch, offset in strip.epochs:
        at = scale(offset)
        title = element("title", None, f"leader epoch {epoch} from offset {offset}")
        yield element("line", {"x1": at, "x2": at, "y1": 70, "y2": 76, "class": "epoch"}, title)
        label = f"e{epoch}"
        if at >= free and at < STRIP_WIDTH - len(label) * _LETTER:
            free = at + (len(label) + 1) * _LETTER
            yield element("text", {"x": at + 2, "y": 82, "class": "epoch"}, label)


def _mark_shapes(strip: PartitionStrip, scale: _Scale) -> Iterator[Element]:
    """Yield a line for each mark; labels that would meet another one are in the titles alone."""
    free = -1.0
    for offset, kind, label in _labels(strip):
        at = scale(offset)
        title = element("title", None, label)
        yield element("line", {"x1": at, "x2": at, "y1": 12, "y2": 70, "class": f"mark {kind}"}, title)
        width = letters(label) * _LETTER
        is_last = at + width > STRIP_WIDTH
        left = STRIP_WIDTH - width if is_last else at
        if left >= free:
            free = left + width + _LETTER
            anchor = {"x": STRIP_WIDTH, "text-anchor": "end"} if is_last else {"x": round(left, 2)}
            yield element("text", {**anchor, "y": 10, "class": "mark"}, label)
