"""`klog browse`: the first screen, and the commands behind the keys."""

from __future__ import annotations

import os
from collections.abc import Sequence

from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import KafkaFile, PartitionChoice, open_path
from klog.formats.names import FileKind

from klog_cli import output
from klog_cli.browse.batches import BatchesPage
from klog_cli.browse.check import Check
from klog_cli.browse.command_page import CommandPage
from klog_cli.browse.page import Jump, Page
from klog_cli.browse.page_screen import PageScreen, Program
from klog_cli.browse.partitions import LogDirsPage, Narrowing, PartitionsPage
from klog_cli.browse.segments import SegmentsPage
from klog_cli.command_tree import COMMANDS

_CSS = """
Screen { background: ansi_default; color: ansi_default; }
#title { text-style: bold reverse; height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
#heading { text-style: underline; height: 1; text-wrap: nowrap; }
#lines { height: 1fr; background: ansi_default; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 1; }
#panel { border-top: solid ansi_default; max-height: 4; text-wrap: nowrap; text-overflow: ellipsis; }
#status { max-height: 2; text-style: bold; }
#command { height: 1; text-style: dim; text-wrap: nowrap; text-overflow: ellipsis; }
#prompt { height: 1; border: none; padding: 0; background: ansi_default; color: ansi_default; }
"""
_LOG_DIR_COMMANDS = ("doctor", "groups")


class BrowseApp(Program):
    """The program on the screen.  *paths*: log dirs, partition directories and files.

    *chosen*: the partitions of the log dirs.
    """

    CSS = _CSS
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [("ctrl+c", "cancel", "quit")]  # noqa: RUF012  # Textual's own form

    def __init__(self, paths: Sequence[str], chosen: Narrowing = Narrowing()) -> None:  # noqa: B008
        super().__init__(ansi_color=True)
        self.checks: dict[str, Check] = {}
        self._chosen = chosen
        opened = [open_path(path) for path in paths]
        self._log_dirs = [one for one in opened if isinstance(one, LogDir)]
        self._first = self._first_pages(opened)

    def _first_pages(self, opened: Sequence[LogDir | Partition | KafkaFile]) -> list[Page]:
        pages: list[Page] = []
        if len(self._log_dirs) > 1:
            pages.append(LogDirsPage(self._log_dirs, self.checks, self._chosen))
        else:
            pages += [PartitionsPage(one, self.checks, self._chosen) for one in self._log_dirs]
        for one in opened:
            if isinstance(one, Partition):
                pages.append(SegmentsPage(one, self.checks))
            elif isinstance(one, KafkaFile):
                pages.append(self._file_page(one))
        return pages

    @staticmethod
    def _file_page(file: KafkaFile) -> Page:
        folder = os.path.dirname(file.path) or "."
        if file.name.kind is FileKind.LOG:
            return BatchesPage(file.path, Partition(folder))
        return CommandPage(("describe", file.path), file.path, (os.path.dirname(os.path.abspath(folder)), folder))

    def on_mount(self) -> None:
        """Show the first page; with several paths, the last one is on top."""
        for page in reversed(self._first):
            self.push_screen(PageScreen(page))

    def leave(self, code: int = 0) -> None:
        """End the work of all pages, and the program with this exit code."""
        for screen in self.screen_stack:
            if isinstance(screen, PageScreen):
                screen.page.leave()
        self.exit(code)

    def action_cancel(self) -> None:
        """Quit, as ^C does."""
        self.leave(32)

    def again(self, page: Page) -> Page | None:
        """Return a page anew, None for one that does not change."""
        if isinstance(page, PartitionsPage):
            return PartitionsPage(LogDir(page.watched), self.checks, page.chosen)
        if isinstance(page, SegmentsPage):
            self.checks.pop(page.watched, None)
            return SegmentsPage(Partition(page.watched), self.checks)
        if isinstance(page, BatchesPage):
            return BatchesPage(page.watched, Partition(os.path.dirname(page.watched) or "."))
        if isinstance(page, LogDirsPage):
            return LogDirsPage([LogDir(one.path) for one in self._log_dirs], self.checks, self._chosen)
        return CommandPage(page.words, page.watched, page.paths(0)) if isinstance(page, CommandPage) else None

    def words(self, name: str, page: Page, row: int) -> tuple[tuple[str, ...], tuple[str, str]]:
        """Return the arguments of a command for a row, and the log dir and partition that it is about.  Raises Jump."""
        if name == "replicas":
            if len(self._log_dirs) < 2:
                raise Jump("copies are compared between several log dirs: klog browse DISK1 DISK2")
            paths = [one.path for one in self._log_dirs]
            return (name, "diff", *paths), (paths[0], paths[0])
        log_dir, partition = page.paths(row)
        if name == "bytes":
            place = page.bytes_words(row)
            if name not in COMMANDS or place is None:
                raise Jump("choose a batch first")
            return (name, *place), (log_dir, partition)
        return (name, log_dir if name in _LOG_DIR_COMMANDS else partition), (log_dir, partition)


def browse(paths: Sequence[str], topics: Sequence[str], numbers: Sequence[PartitionChoice]) -> int:
    """Show the screen until its user quits; return the exit code."""
    if not output.takes_colour():
        os.environ["NO_COLOR"] = "1"
    return BrowseApp(paths, Narrowing(topics, numbers)).run() or 0
