"""The screen of a page: title, list, facts about the chosen row, the command that prints the same, and the keys."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import ClassVar

from klog.base.errors import KlogError
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Input, Static
from textual.worker import get_current_worker

from klog_cli.browse.command_page import KEYS, CommandPage, KeysPage
from klog_cli.browse.lines_view import LinesView, strip_of
from klog_cli.browse.page import Jump, Page
from klog_cli.control_characters import printable
from klog_cli.style import without_marks
from klog_cli.units import parse_time

_TICK_S = 0.1
_TICKS_A_LOOK = 10
_MOST_SEARCHED = 1_000_000
_PROMPTS = {"search": "search for", "offset": "offset", "time": "time (UTC)"}


class Program(App[int]):
    """The program around the screens."""

    def leave(self, code: int = 0) -> None:
        """Quit; work in progress ends."""
        raise NotImplementedError

    def again(self, page: Page) -> Page | None:
        """Return *page* as the disk is now; None if there is no such page."""
        raise NotImplementedError

    def words(self, name: str, page: Page, row: int) -> tuple[tuple[str, ...], tuple[str, str]]:
        """Return the arguments of the command behind a key, and the log dir and partition that it is about.

        Raises Jump if there is nothing for it.
        """
        raise NotImplementedError


class PageScreen(Screen[None]):
    """Shows one page."""

    app: Program
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "enter", "in", key_display="⏎"),
        Binding("escape", "out", "out", key_display="Esc"),
        Binding("slash", "ask('search')", "search", key_display="/"),
        Binding("g", "ask('offset')", "offset"),
        Binding("t", "ask('time')", "time"),
        Binding("question_mark", "keys", "keys", key_display="?"),
        Binding("q", "leave", "quit"),
        Binding("d", "command('doctor')", "doctor"),
        Binding("s", "command('space')", "space"),
        Binding("G", "command('groups')", "groups"),
        Binding("T", "command('transactions')", "transactions"),
        Binding("L", "command('timeline')", "timeline"),
        Binding("v", "command('verify')", "verify"),
        Binding("r", "command('replicas')", "replicas"),
        Binding("b", "command('bytes')", "bytes"),
        Binding("o", "order", "order"),
        Binding("y", "copy", "copy"),
        Binding("R", "reload", "reload"),
        Binding("n", "find_next", show=False),
    ]

    def __init__(self, page: Page) -> None:
        super().__init__()
        self.page = page
        self.shows_input = False
        self._view = LinesView(page)
        self._seen, self._ticks = -1, 0
        self._filled: tuple[int, int, int] | None = None
        self._asked, self._searched = "", ""
        self._stamp: tuple[int, int] | None = None
        self._notice = ""

    def compose(self) -> ComposeResult:
        """Make the parts of the screen."""
        yield Static(id="title", markup=False)
        yield Static(id="heading", markup=False)
        yield self._view
        yield Static(id="panel", markup=False)
        yield Static(id="status", markup=False)
        yield Input(id="prompt")
        yield Static(id="command", markup=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Start the work of the page."""
        self.query_one("#prompt").display = False
        self._view.focus()
        self._stamp = _stamp(self.page.watched)
        self.set_interval(_TICK_S, self._tick)
        self.call_after_refresh(self._start)

    def _start(self) -> None:
        columns = self._view.columns
        self._in_thread(lambda: self.page.load(columns), "load")
        self._draw()

    def _in_thread(self, work: Callable[[], object], group: str) -> None:
        def guarded() -> None:
            try:
                work()
            except (KlogError, OSError, Jump) as error:
                self.page.problem, self.page.status = str(error), ""
            self.page.changed()

        self.run_worker(guarded, thread=True, group=group, exclusive=True)

    def on_unmount(self) -> None:
        """End the work of the page."""
        self.page.leave()

    def on_screen_resume(self) -> None:
        """Draw what has changed while another screen was shown."""
        self._notice = ""
        if self._stamp is not None:
            self._look_at_disk()
        self._draw()

    def on_resize(self, _event: events.Resize) -> None:
        """Draw for the new width."""
        self.call_after_refresh(self._draw)

    def on_lines_view_moved(self) -> None:
        """Draw what is about the cursor."""
        self._draw()

    def on_lines_view_chosen(self) -> None:
        """Go into the row."""
        self.action_enter()

    # drawing

    def _tick(self) -> None:
        self._ticks += 1
        if self._ticks % _TICKS_A_LOOK == 0 and self.is_current:
            self._look_at_disk()
        if self.page.version != self._seen:
            self._draw()

    def _look_at_disk(self) -> None:
        now = _stamp(self.page.watched)
        if now == self._stamp:
            return
        self._stamp = now
        what = printable(self.page.watched)
        self._notice = f"{what} is gone" if now is None else f"{what} has changed: R reads it again"
        self.page.changed()

    def _draw(self) -> None:
        if not self.is_mounted:
            return
        page, columns = self.page, self._view.columns
        self._seen = page.version
        self._view.renew()
        rows = self._view.cursor
        try:
            panel = page.panel(rows, columns) if len(page) else []
        except (KlogError, OSError) as error:
            panel = [str(error)]
        where = f"{rows + 1}/{len(page)}  " if len(page) and page.has_cursor else ""
        self._show("#title", where + page.title)
        self._show("#heading", page.heading(columns))
        self._show("#panel", "\n".join(strip_of(line).text for line in panel))
        self._show("#status", " · ".join(filter(None, [page.problem, self._notice, page.status])))
        self._show("#command", f"$ {page.command}")
        self._fill()

    def _show(self, where: str, text: str) -> None:
        part = self.query_one(where, Static)
        shown = "\n".join(printable(without_marks(line)) for line in text.split("\n"))
        part.update(shown)
        part.display = bool(shown)

    def _fill(self) -> None:
        first, end = self._view.shown
        if end > first and self._filled != (first, end, len(self.page)):
            self._filled = (first, end, len(self.page))
            self._in_thread(lambda: self.page.fill(first, end), "fill")

    # keys

    def _carry_out(self, make: Callable[[int], Page | None]) -> None:
        """Open the page that *make* returns for the row of the cursor."""
        try:
            found = make(self._view.cursor)
        except (Jump, KlogError, OSError) as error:
            self._say(str(error))
            return
        if found is not None:
            self.app.push_screen(PageScreen(found))
        self._draw()

    def _say(self, text: str) -> None:
        self._notice = text
        self._draw()

    def action_enter(self) -> None:
        """Go into the row of the cursor."""
        if isinstance(self.page, KeysPage):
            action, below = KEYS[self._view.cursor][0], self.app.screen_stack[-2]
            self.app.pop_screen()
            if isinstance(below, PageScreen):
                below.do(action)
        elif len(self.page):
            self._carry_out(self.page.enter)

    def do(self, action: str) -> None:
        """Do what a key does, by its name in KEYS."""
        if action in _PROMPTS:
            self.action_ask(action)
        elif method := getattr(self, f"action_{action}", None):
            method()
        else:
            self.action_command(action)

    def action_out(self) -> None:
        """Go back to the screen before."""
        if self.query_one("#prompt").display:
            self._end_prompt()
        elif len(self.app.screen_stack) > 2:
            self.page.leave()
            self.app.pop_screen()
        else:
            self.page.leave()
            self._say("this is the first screen: q quits")

    def action_leave(self) -> None:
        """Quit."""
        self.app.leave()

    def action_keys(self) -> None:
        """Show the keys."""
        self.app.push_screen(PageScreen(KeysPage()))

    def action_order(self) -> None:
        """Sort by the next order."""

        def sort(_row: int) -> None:
            self.page.reorder()

        self._carry_out(sort)

    def action_copy(self) -> None:
        """Copy the command to the terminal's clipboard."""
        self.app.copy_to_clipboard(self.page.command)
        self._say("copied the command")

    def action_reload(self) -> None:
        """Read the screen again, from the disk."""
        again = self.app.again(self.page)
        if again is None:
            self._say("this screen shows what was there: go out and in again")
            return
        self.page.leave()
        self.app.switch_screen(PageScreen(again))

    def action_command(self, name: str) -> None:
        """Show the output of another command about the row of the cursor."""

        def page(row: int) -> Page:
            words, where = self.app.words(name, self.page, row)
            return CommandPage(words, where[1], where)

        self._carry_out(page)

    # prompts

    def action_ask(self, what: str) -> None:
        """Ask for a text, an offset or a time."""
        self._asked = what
        prompt = self.query_one("#prompt", Input)
        prompt.value, prompt.placeholder = "", _PROMPTS[what]
        prompt.display = True
        prompt.focus()

    def _end_prompt(self) -> None:
        self.query_one("#prompt").display = False
        self._view.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Go to where the prompt says."""
        event.stop()
        self._end_prompt()
        text = event.value.strip()
        if not text:
            return
        if self._asked == "search":
            self._searched = text
            self._search(self._view.cursor)
        elif self._asked == "offset":
            if text.lstrip("-").isdecimal() and text.isascii():
                self._carry_out(lambda row: self.page.at_offset(row, int(text)))
            else:
                self._say(f"{text} is no offset")
        else:
            self._carry_out(lambda row: self.page.at_time(row, parse_time(text, self._say)))

    def action_find_next(self) -> None:
        """Go to the next row with the text of the last search."""
        if self._searched:
            self._search(self._view.cursor + 1)

    def _search(self, begin: int) -> None:
        wanted, columns = self._searched.casefold(), self._view.columns
        self.page.status = "searching"

        def work() -> None:
            worker = get_current_worker()
            for row in _in_turn(begin, len(self.page)):
                if worker.is_cancelled or self.page.stop.is_set():
                    return
                if wanted in strip_of(self.page.line(row, columns)).text.casefold():
                    self.page.goal, self.page.status = row, ""
                    return
            self.page.status = f"no row has {self._searched}"

        self._in_thread(work, "search")
        self._draw()


def _in_turn(begin: int, count: int) -> Iterator[int]:
    """Yield the rows from *begin* on, then those before it; a million of them at most."""
    for at in range(min(count, _MOST_SEARCHED)):
        yield (begin + at) % count


def _stamp(path: str) -> tuple[int, int] | None:
    """Return what changes when a file or directory does; None if it is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ino
