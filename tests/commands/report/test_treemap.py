"""Tiles whose areas are as their sizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from klog.commands.report.html_elements import letters
from klog.commands.report.treemap_svg import MOST_TILES, Rectangle, Tile, draw_treemap, squarify

SIZES = st.lists(st.integers(1, 2**50), min_size=1, max_size=60).map(lambda sizes: sorted(sizes, reverse=True))


@given(SIZES)
def test_areas_are_as_sizes_and_fill_the_room(sizes: list[int]) -> None:
    """A treemap that lies about areas is worse than a table."""
    room = Rectangle(10.0, 20.0, 1000.0, 400.0)
    places = list(squarify(sizes, room))
    total = sum(sizes)
    for size, place in zip(sizes, places, strict=True):
        assert abs(place.width * place.height / (room.width * room.height) - size / total) < 1e-6
        assert place.x >= room.x - 1e-6
        assert place.y >= room.y - 1e-6
        assert place.x + place.width <= room.x + room.width + 1e-6
        assert place.y + place.height <= room.y + room.height + 1e-6


def test_equal_sizes_make_squares() -> None:
    """Four equal parts of a square are four squares."""
    places = list(squarify([1.0] * 4, Rectangle(0.0, 0.0, 8.0, 8.0)))
    assert {(place.width, place.height) for place in places} == {(4.0, 4.0)}


def test_what_is_too_small_shares_a_tile() -> None:
    """The picture of ten thousand topics has some hundred."""
    picture = draw_treemap([Tile(f"t{number}", 1000 + number, {}) for number in range(MOST_TILES + 50)])
    titles = [title.text or "" for title in picture.iter("title")]
    assert any(text.startswith("50 smaller topics: ") for text in titles)
    assert len([one for one in picture.iter("rect") if one.get("class") == "tile"]) == MOST_TILES + 1


def test_a_label_is_as_wide_as_the_name_is_shown() -> None:
    """A letter of East Asia is as wide as two, and a control character is shown as an escape."""
    for name in ("\u5927" * 30, "\u202e" * 30, "m" * 30):
        (label,) = (one.text or "" for one in draw_treemap([Tile(name, 1, {})]).iter("text"))
        assert letters(label) <= 24
    assert letters("a\u5927") == 3


def test_nothing_at_all_is_an_empty_picture() -> None:
    """A disk without topics, or with empty ones."""
    assert not list(draw_treemap([Tile("empty", 0, {})]).iter("rect"))
