"""The treemap of topics: a tile as large as the bytes of its topic, split by the reasons why they are still there.

Squarified treemaps: Bruls, Huizing, van Wijk, 2000.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from klog.base.errors import counted
from klog.commands.report.html_elements import element, letters, size, visible

WIDTH, HEIGHT = 1000.0, 420.0
MOST_TILES = 200
_LETTER, _LINE = 7.0, 16.0
"""A letter is about that wide, and that high, in units of the picture."""
_LARGE = 2.6
"""On a narrow screen letters are so many times larger; names that are then too wide are left out."""
_MOST_LETTERS = 24


class Tile(NamedTuple):
    """A future rectangle: a name, its bytes, and the bytes by reason."""

    name: str
    bytes: int
    reasons: Mapping[str, int]


class Rectangle(NamedTuple):
    """A place in the picture, in its units."""

    x: float
    y: float
    width: float
    height: float


def squarify(sizes: Sequence[float], room: Rectangle) -> Iterator[Rectangle]:
    """Yield a rectangle in *room* for each of *sizes* (above 0, descending), as near to squares as rows allow."""
    left = sum(sizes)
    at = 0
    while at < len(sizes):
        side = min(room.width, room.height)
        scale = room.width * room.height / left if left > 0 else 0.0
        end = at + 1
        while end < len(sizes) and _worst(sizes[at : end + 1], side, scale) <= _worst(sizes[at:end], side, scale):
            end += 1
        row = sum(sizes[at:end])
        yield from _row(sizes[at:end], room, row / left if left > 0 else 0.0)
        room, left, at = _rest(room, row / left if left > 0 else 1.0), left - row, end


def _worst(row: Sequence[float], side: float, scale: float) -> float:
    """Return the longest of a row's rectangles: its length by its breadth."""
    area, largest, smallest = sum(row) * scale, row[0] * scale, row[-1] * scale
    if area <= 0 or smallest <= 0 or side <= 0:
        return float("inf")
    return max(side * side * largest / (area * area), area * area / (side * side * smallest))


def _row(row: Sequence[float], room: Rectangle, share: float) -> Iterator[Rectangle]:
    total, done = sum(row), 0.0
    for one in row:
        part = one / total if total > 0 else 0.0
        if room.width >= room.height:
            yield Rectangle(room.x, room.y + done * room.height, room.width * share, room.height * part)
        else:
            yield Rectangle(room.x + done * room.width, room.y, room.width * part, room.height * share)
        done += part


def _rest(room: Rectangle, share: float) -> Rectangle:
    if room.width >= room.height:
        return Rectangle(room.x + room.width * share, room.y, room.width * (1 - share), room.height)
    return Rectangle(room.x, room.y + room.height * share, room.width, room.height * (1 - share))


def draw_treemap(tiles: Sequence[Tile]) -> Element:
    """Return the picture of *tiles*; the smallest beyond MOST_TILES share one."""
    known = sorted((tile for tile in tiles if tile.bytes > 0), key=lambda tile: (-tile.bytes, tile.name))
    shown, rest = known[:MOST_TILES], known[MOST_TILES:]
    if rest:
        shown.append(Tile(f"{len(rest)} smaller topics", sum(tile.bytes for tile in rest), {}))
        shown.sort(key=lambda tile: -tile.bytes)
    total = sum(tile.bytes for tile in shown)
    label = f"Bytes by topic: {counted(len(known), 'topic')}, {size(total)}"
    picture = element(
        "svg",
        {"class": "treemap", "viewBox": f"0 0 {WIDTH:g} {HEIGHT:g}", "role": "img", "aria-label": label},
        element("title", None, label),
    )
    places = squarify([tile.bytes for tile in shown], Rectangle(0.0, 0.0, WIDTH, HEIGHT))
    for tile, place in zip(shown, places, strict=True):
        picture.append(_tile(tile, place, total))
    return picture


def _tile(tile: Tile, place: Rectangle, total: int) -> Element:
    reasons = sorted(((bytes_, reason) for reason, bytes_ in tile.reasons.items() if bytes_ > 0), reverse=True)
    parts = ", ".join(f"{reason} {size(bytes_)}" for bytes_, reason in reasons)
    title = f"{visible(tile.name)}: {size(tile.bytes)} ({tile.bytes / total:.1%}){', ' if parts else ''}{parts}"
    group = element("g", None, element("title", None, title))
    sizes = [float(bytes_) for bytes_, _ in reasons]
    known = sum(sizes)
    inner = squarify(sizes, place) if known else iter(())
    for (bytes_, reason), part in zip(reasons, inner, strict=False):
        label = element("title", None, f"{tile.name}, {reason}: {size(bytes_)}")
        group.append(element("rect", {**_rounded(part), "class": f"r {reason}"}, label))
        if part.width > (len(reason) + 1) * _LETTER and part.height > 2 * _LINE:
            place_of = {"x": round(part.x + 4, 2), "y": round(part.y + part.height - 5, 2), "class": "reason"}
            group.append(element("text", place_of, reason))
    group.append(element("rect", {**_rounded(place), "class": "tile"}))
    name = _cut(visible(tile.name))
    if place.width > (letters(name) + 1) * _LETTER and place.height > _LINE:
        is_large = place.width > (letters(name) + 1) * _LARGE * _LETTER and place.height > _LARGE * _LINE
        where = {"x": round(place.x + 4, 2), "y": round(place.y + 14, 2), "class": "large" if is_large else "name"}
        group.append(element("text", where, name))
    return group


def _cut(name: str) -> str:
    """Return the beginning of a long name."""
    if letters(name) <= _MOST_LETTERS:
        return name
    while letters(name) >= _MOST_LETTERS:
        name = name[:-1]
    return f"{name}…"


def _rounded(place: Rectangle) -> dict[str, float]:
    return {name: round(value, 2) for name, value in place._asdict().items()}
