"""The picture of a disk's content: topics as tiles, each as large as its bytes, split by the reasons.

Squarified treemaps: Bruls, Huizing, van Wijk, 2000.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from xml.etree.ElementTree import Element

from klog.commands.report.html_elements import element, visible

WIDTH, HEIGHT = 1000.0, 420.0
MOST_TILES = 200
_LETTER, _LINE = 7.0, 16.0
"""A character is about that wide, and that high, in units of the picture."""


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
    for size in row:
        part = size / total if total > 0 else 0.0
        if room.width >= room.height:
            yield Rectangle(room.x, room.y + done * room.height, room.width * share, room.height * part)
        else:
            yield Rectangle(room.x + done * room.width, room.y, room.width * part, room.height * share)
        done += part


def _rest(room: Rectangle, share: float) -> Rectangle:
    if room.width >= room.height:
        return Rectangle(room.x + room.width * share, room.y, room.width * (1 - share), room.height)
    return Rectangle(room.x, room.y + room.height * share, room.width, room.height * (1 - share))


def draw(tiles: Sequence[Tile]) -> Element:
    """Return the picture of *tiles*; the smallest beyond MOST_TILES share one."""
    known = sorted((tile for tile in tiles if tile.bytes > 0), key=lambda tile: (-tile.bytes, tile.name))
    shown, rest = known[:MOST_TILES], known[MOST_TILES:]
    if rest:
        shown.append(Tile(f"{len(rest)} smaller topics", sum(tile.bytes for tile in rest), {}))
        shown.sort(key=lambda tile: -tile.bytes)
    total = sum(tile.bytes for tile in shown)
    label = f"Bytes by topic: {len(known)} topics, {total} bytes"
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
    reasons = sorted(((size, reason) for reason, size in tile.reasons.items() if size > 0), reverse=True)
    parts = ", ".join(f"{reason} {size}" for size, reason in reasons)
    title = f"{visible(tile.name)}: {tile.bytes} bytes ({tile.bytes / total:.1%}){', ' if parts else ''}{parts}"
    group = element("g", None, element("title", None, title))
    sizes = [float(size) for size, _ in reasons]
    known = sum(sizes)
    inner = squarify(sizes, place) if known else iter(())
    for (size, reason), part in zip(reasons, inner, strict=False):
        label = element("title", None, f"{tile.name}, {reason}: {size} bytes")
        group.append(element("rect", {**_rounded(part), "class": f"r {reason}"}, label))
        if part.width > (len(reason) + 1) * _LETTER and part.height > 2 * _LINE:
            place_of = {"x": round(part.x + 4, 2), "y": round(part.y + part.height - 5, 2), "class": "reason"}
            group.append(element("text", place_of, reason))
    group.append(element("rect", {**_rounded(place), "class": "tile"}))
    if place.width > (min(len(tile.name), 24) + 1) * _LETTER and place.height > _LINE:
        name = tile.name if len(tile.name) <= 24 else f"{tile.name[:23]}…"
        group.append(element("text", {"x": round(place.x + 4, 2), "y": round(place.y + 14, 2)}, name))
    return group


def _rounded(place: Rectangle) -> dict[str, float]:
    return {name: round(value, 2) for name, value in place._asdict().items()}
