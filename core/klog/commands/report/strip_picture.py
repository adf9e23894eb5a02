"""The picture of a partition: an SVG from log start to log end, in offset order."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from klog.commands.report.html_elements import element
from klog.commands.report.partition_strips import PartitionStrip, StripSegment, StripSpan

WIDTH = 1000
_TOP, _HEIGHT = 22, 30
_LETTER = 6.5
"""A character is about that wide, in units of the picture."""

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
        return round(min(max(share, 0.0), 1.0) * WIDTH, 2)


def draw(strip: PartitionStrip, name: str) -> Element:
    """Return the picture of a partition called *name*.

    Each shape has a title; a letter, a pattern or a place repeats the meaning of each colour.
    """
    first = min([strip.log_start, *(segment.first for segment in strip.segments[:1])])
    end = max([strip.log_end, first + 1, *(offset for _, offset in strip.marks)])
    scale = _Scale(first, end)
    return element(
        "svg",
        {"class": "strip", "viewBox": f"0 0 {WIDTH} 86", "role": "img", "aria-label": describe(strip, name)},
        element("title", None, describe(strip, name)),
        *(_segment(segment, scale) for segment in strip.segments),
        *(shape for span in strip.spans if (shape := _span(span, scale)) is not None),
        *_epochs(strip, scale),
        *_marks(strip, scale),
    )


def describe(strip: PartitionStrip, name: str) -> str:
    """Return one sentence about the picture, for those who do not see it."""
    counts = {kind: sum(span.kind == kind for span in strip.spans) for kind in _SPANS}
    seen = ", ".join(f"{count} × {_SPANS[kind]}" for kind, count in counts.items() if count)
    segments = sum(segment.segments for segment in strip.segments)
    return f"{name}: offsets {strip.log_start} to {strip.log_end}, segments: {segments}{', ' if seen else ''}{seen}"


def _segment(segment: StripSegment, scale: _Scale) -> Element:
    left, right = scale(segment.first), scale(segment.end)
    codec = "+".join(segment.codecs) or "empty"
    kind = segment.codecs[0] if len(segment.codecs) == 1 else "mixed" if segment.codecs else "empty"
    many = f"{segment.segments} segments" if segment.segments > 1 else "segment"
    shape = {"x": left, "y": _TOP, "width": max(round(right - left, 2), 0.5), "height": _HEIGHT, "class": f"s {kind}"}
    title = f"{many} {segment.first} to {segment.end}, {segment.bytes} bytes, {codec}"
    box = element("g", None, element("rect", shape, element("title", None, title)))
    if right - left > len(codec) * _LETTER + 4:
        box.append(element("text", {"x": left + 3, "y": _TOP + 19, "class": "codec"}, codec))
    return box


def _span(span: StripSpan, scale: _Scale) -> Element | None:
    left, right = scale(span.first), scale(span.end)
    offsets = f"at {span.first}" if span.first == span.end else f"{span.first} to {span.end - 1}"
    title = element("title", None, f"{_SPANS[span.kind]} {offsets}{': ' if span.text else ''}{span.text}")
    if span.kind == "damage":
        points = f"{left},{_TOP} {left - 6},{_TOP - 10} {left + 6},{_TOP - 10}"
        line = {"x1": left, "x2": left, "y1": _TOP, "y2": _TOP + _HEIGHT, "class": "damage"}
        return element(
            "g", None, title, element("polygon", {"points": points, "class": "damage"}), element("line", line)
        )
    top, height = _ROWS[span.kind]
    shape = {"x": left, "y": top, "width": max(round(right - left, 2), 1.0), "height": height, "class": span.kind}
    return element("rect", shape, title)


def _epochs(strip: PartitionStrip, scale: _Scale) -> Iterator[Element]:
    free = -1.0
    for epoch, offset in strip.epochs:
        at = scale(offset)
        title = element("title", None, f"leader epoch {epoch} from offset {offset}")
        yield element("line", {"x1": at, "x2": at, "y1": 70, "y2": 76, "class": "epoch"}, title)
        label = f"e{epoch}"
        if at >= free and at < WIDTH - len(label) * _LETTER:
            free = at + (len(label) + 1) * _LETTER
            yield element("text", {"x": at + 2, "y": 82, "class": "epoch"}, label)


def _marks(strip: PartitionStrip, scale: _Scale) -> Iterator[Element]:
    """Yield a line for each mark; labels that would meet another one are in the titles alone."""
    free = -1.0
    for kind, offset in strip.marks:
        at, label = scale(offset), f"{_MARKS[kind]} {offset}"
        title = element("title", None, label)
        yield element("line", {"x1": at, "x2": at, "y1": 12, "y2": 70, "class": f"mark {kind}"}, title)
        left = min(at, WIDTH - len(label) * _LETTER)
        if left >= free:
            free = left + (len(label) + 1) * _LETTER
            yield element("text", {"x": round(left, 2), "y": 10, "class": "mark"}, label)
