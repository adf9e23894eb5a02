"""A list of lines that are made when they are drawn, however many there are."""

from __future__ import annotations

import re
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from klog_cli import output
from klog_cli.browse.page import Page
from klog_cli.control_characters import printable
from klog_cli.style import rendered

_CODE = re.compile(r"\x1b\[([0-9;]*)m")
_STYLES = {
    "1": Style(bold=True),
    "2": Style(dim=True),
    "31": Style(color="red"),
    "32": Style(color="green"),
    "33": Style(color="yellow"),
    "36": Style(color="cyan"),
}
_CURSOR = Style(reverse=True)


def strip_of(line: str) -> Strip:
    """Return *line*, which may have marks of `style` or colour sequences of klog's own, for the screen.

    Everything else in it is text: no markup is read, and control characters are escapes.
    """
    with_colours = output.takes_colour()
    parts = re.split(_CODE, line)
    texts = [rendered(text, with_colours) if at % 2 == 0 else f"\x1b[{text}m" for at, text in enumerate(parts)]
    segments, style = [], Style()
    for at, text in enumerate(re.split(_CODE, "".join(texts))):
        if at % 2:
            style = style + _STYLES[text] if text in _STYLES else Style()
        elif text:
            segments.append(Segment(printable(text), style))
    return Strip(segments)


class LinesView(ScrollView, can_focus=True):
    """Shows a page.  Up and down move the cursor of pages that have one; they scroll the others."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home", "edge(0)", show=False),
        Binding("end", "edge(1)", show=False),
    ]

    class Moved(Message):
        """The cursor has another row, or other rows are shown."""

    class Chosen(Message):
        """The row of the cursor was clicked twice."""

    def __init__(self, page: Page) -> None:
        super().__init__(id="lines")
        self.page = page
        self.cursor = 0

    @property
    def columns(self) -> int:
        """The columns of a row."""
        return max(20, self.size.width - 1)

    @property
    def shown(self) -> tuple[int, int]:
        """The first of the rows that are shown, and the one behind the last."""
        first = self.scroll_offset.y
        return first, min(len(self.page), first + max(1, self.size.height))

    def renew(self) -> None:
        """Draw the page again."""
        count = len(self.page)
        if self.page.goal is not None:
            self.go(self.page.goal)
            self.page.goal = None
        self.cursor = max(0, min(self.cursor, count - 1))
        widest = self.columns
        if not self.page.has_cursor:
            first, end = self.shown
            widest = max([widest, *(strip_of(self.page.line(row, widest)).cell_length for row in range(first, end))])
        self.virtual_size = Size(widest, count)
        self.refresh()

    def go(self, row: int) -> None:
        """Move the cursor to a row, and show it."""
        self.virtual_size = Size(self.virtual_size.width, len(self.page))
        self.cursor = max(0, min(row, len(self.page) - 1))
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if not self.page.has_cursor or self.cursor < top:
            top = self.cursor
        elif self.cursor >= top + height:
            top = self.cursor - height + 1
        self.scroll_to(y=top, animate=False, immediate=True)
        self.refresh()
        self.post_message(self.Moved())

    def render_line(self, y: int) -> Strip:
        """Draw a line."""
        row, width = y + self.scroll_offset.y, self.size.width
        if row >= len(self.page):
            return Strip.blank(width)
        strip = strip_of(self.page.line(row, self.columns))
        left = self.scroll_offset.x
        strip = strip.crop_extend(left, left + width, None)
        return strip.apply_style(_CURSOR) if self.page.has_cursor and row == self.cursor else strip

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Tell the screen that other rows are shown."""
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.Moved())

    def action_move(self, by: int) -> None:
        """Move by some rows."""
        self.go((self.cursor if self.page.has_cursor else self.scroll_offset.y) + by)

    def action_page(self, by: int) -> None:
        """Move by a screen."""
        self.action_move(by * max(1, self.size.height - 1))

    def action_edge(self, at_end: int) -> None:
        """Move to the first or the last row."""
        self.go(len(self.page) - 1 if at_end else 0)

    def on_click(self, event: events.Click) -> None:
        """Move the cursor to the row; a second click on it goes in."""
        row = event.y + self.scroll_offset.y
        if not self.page.has_cursor or row >= len(self.page):
            return
        again = row == self.cursor and event.chain > 1
        self.go(row)
        if again:
            self.post_message(self.Chosen())
