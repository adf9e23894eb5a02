"""The pages above a partition: the log dirs that were named, and the partitions of one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from klog.base.errors import KlogError, counted
from klog.commands.describe import PartitionRow, describe_log_dir
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import PartitionChoice, is_selected

from klog_cli.browse.batches import batches_at
from klog_cli.browse.check import Check
from klog_cli.browse.page import Page, fitted, offset_at_time
from klog_cli.browse.segments import SegmentsPage
from klog_cli.display import human_size, range_text
from klog_cli.style import bad, faint, strong, warning

Checks = dict[str, Check]
ORDERS = ("size", "damage", "age", "name")
_BAR = 10


class Narrowing(NamedTuple):
    """The partitions that --topic and --partition choose."""

    topics: Sequence[str] = ()
    numbers: Sequence[PartitionChoice] = ()

    @property
    def words(self) -> tuple[str, ...]:
        """The options."""
        numbers = [str(one) if isinstance(one, int) else f"{one[0]}-{one[1]}" for one in self.numbers]
        return (
            *(word for one in self.topics for word in ("-t", one)),
            *(word for one in numbers for word in ("-p", one)),
        )

    def of(self, log_dir: LogDir) -> list[Partition]:
        """Return the partitions of a log dir that are chosen.  Raises UnreadableError."""
        every = log_dir.partitions
        return [one for one in every if is_selected(one.topic, one.number, self.topics, self.numbers)]


class LogDirsPage(Page):
    """The log dirs that were named."""

    def __init__(self, log_dirs: Sequence[LogDir], checks: Checks, chosen: Narrowing = Narrowing()) -> None:  # noqa: B008
        words = ("describe", *(one.path for one in log_dirs), *chosen.words)
        super().__init__("log dirs", words, log_dirs[0].path)
        self._log_dirs, self._checks, self._chosen = log_dirs, checks, chosen
        self._facts: dict[int, str] = {}

    def load(self, columns: int) -> None:
        """Count the partitions and the bytes of each log dir."""
        for row, log_dir in enumerate(self._log_dirs):
            if self.stop.is_set():
                return
            try:
                chosen = self._chosen.of(log_dir)
                count, size = len(chosen), sum(one.size for one in chosen)
                node = "-" if log_dir.node_id is None else str(log_dir.node_id)
                self._facts[row] = f"{fitted(node, 6, right=True)}{count:>12}{human_size(size):>12}"
            except KlogError as error:
                self._facts[row] = f"  {bad(str(error))}"
            self.changed()

    def heading(self, columns: int) -> str:
        """Return the names of the columns."""
        return f"{fitted('log dir', columns - 30)}  node  partitions        size"

    def __len__(self) -> int:
        return len(self._log_dirs)

    def line(self, row: int, columns: int) -> str:
        """Return a row, with marks of `style`."""
        return f"{fitted(self._log_dirs[row].path, columns - 30)}{self._facts.get(row, '')}"

    def enter(self, row: int) -> Page:
        """Return the page of the partitions of a log dir."""
        return PartitionsPage(LogDir(self._log_dirs[row].path), self._checks, self._chosen)

    def paths(self, row: int) -> tuple[str, str]:
        """Return the log dir of a row, twice."""
        return self._log_dirs[row].path, self._log_dirs[row].path


class _Facts(NamedTuple):
    partition: Partition
    size: int


class PartitionsPage(Page):
    """The partitions of a log dir: names and sizes first, the rest of those that are shown."""

    def __init__(self, log_dir: LogDir, checks: Checks, chosen: Narrowing = Narrowing()) -> None:  # noqa: B008
        super().__init__(log_dir.path, ("describe", log_dir.path, *chosen.words), log_dir.path)
        self._log_dir, self._checks, self.chosen = log_dir, checks, chosen
        self._rows: list[_Facts] = []
        self._details: dict[str, PartitionRow] = {}
        self._largest, self._total = 1, 0
        self.order = ORDERS[0]

    def load(self, columns: int) -> None:
        """List the partitions with the sizes of their files."""
        self.status = "reading the names of files"
        rows = []
        for partition in self.chosen.of(self._log_dir):
            if self.stop.is_set():
                return
            rows.append(_Facts(partition, partition.size))
        self._largest = max([1, *(one.size for one in rows)])
        self._total = sum(one.size for one in rows)
        self._rows = rows
        self._sort()
        self.title = " · ".join([self._log_dir.path, *self._owner()])
        self.status = ""

    def _owner(self) -> list[str]:
        shutdown = "clean shutdown" if self._log_dir.clean_shutdown else "no clean shutdown"
        return [
            *([] if self._log_dir.node_id is None else [f"node {self._log_dir.node_id}"]),
            "in use by a running process" if self._log_dir.lock.held else shutdown,
            counted(len(self._rows), "partition"),
            human_size(self._total),
        ]

    def _sort(self) -> None:
        keys: dict[str, Callable[[_Facts], object]] = {
            "size": lambda one: -one.size,
            "damage": lambda one: self._checks.get(one.partition.path, Check()).rank,
            "age": lambda one: _modified(one.partition),
            "name": lambda one: (one.partition.topic or "", one.partition.number or 0),
        }
        key = keys[self.order]
        self._rows = sorted(self._rows, key=lambda one: (key(one), one.partition.directory))
        self.changed()

    def reorder(self) -> None:
        """Sort the rows by the next order."""
        self.order = ORDERS[(ORDERS.index(self.order) + 1) % len(ORDERS)]
        self._sort()
        self.goal = 0

    def fill(self, first: int, end: int) -> bool:
        """Read the checkpoints and the log ends of the rows that are shown."""
        wanted = [one.partition for one in self._rows[first:end] if one.partition.directory not in self._details]
        if not wanted:
            return False
        for row in describe_log_dir(self._log_dir, wanted, with_remote=False).partitions:
            self._details[row.directory] = row
        self.changed()
        return True

    def heading(self, columns: int) -> str:
        """Return the names of the columns."""
        return self._columns(f"partition (by {self.order})", "size", "share", "segs", "offsets", "state", columns)

    @staticmethod
    def _columns(name: str, size: str, share: str, segments: str, offsets: str, state: str, columns: int) -> str:
        bar = _BAR if columns >= 100 else _BAR // 2
        left = columns - 9 - bar - 4 - 10
        room = min(60, max(12, left // 2))
        cells = [fitted(name, room), fitted(size, 9, right=True), fitted(share, bar), fitted(segments, 4, right=True)]
        wide = min(26, (left - room) // 2)
        return "  ".join([*cells, fitted(offsets, wide), fitted(state, left - room - wide)])

    def __len__(self) -> int:
        return len(self._rows)

    def line(self, row: int, columns: int) -> str:
        """Return a row, with marks of `style`."""
        partition, size = self._rows[row]
        most = _BAR if columns >= 100 else _BAR // 2
        bar = "▇" * max(1, round(most * size / self._largest)) if size else ""
        detail, check = self._details.get(partition.directory), self._checks.get(partition.path)
        notes = "; ".join(detail.notes) if detail else ""
        state = check.verdict if check is not None and check.is_done else notes
        cells = (partition.directory, human_size(size), bar, str(len(partition.segments)), _offsets(detail), state)
        line = self._columns(*cells, columns)
        if check is None or not check.is_done:
            return line
        return bad(line) if check.damages else warning(line) if check.warnings else line

    def panel(self, row: int, columns: int) -> list[str]:
        """Return the facts of a partition, and a picture of its segments."""
        partition, _ = self._rows[row]
        detail = self._details.get(partition.directory)
        facts = "" if detail is None else f"high watermark {_number(detail.high_watermark)}  log end "
        facts += "" if detail is None else f"{_number(detail.log_end_offset)}  epoch {_number(detail.leader_epoch)}"
        strip = segment_strip(partition, self._checks.get(partition.path), columns - 2)
        check = self._checks.get(partition.path)
        remarks = [check.verdict] if check is not None and check.is_done else []
        remarks += detail.notes if detail else ()
        return [f"{strong(partition.directory)}  {facts}", strip, *(["; ".join(remarks)] if remarks else [])]

    def enter(self, row: int) -> Page:
        """Return the page of the segments of a partition."""
        partition = Partition(self._rows[row].partition.path, self._log_dir.checkpoints)
        return SegmentsPage(partition, self._checks)

    def paths(self, row: int) -> tuple[str, str]:
        """Return the log dir, twice: its commands are about all partitions."""
        return self._log_dir.path, self._log_dir.path

    def at_offset(self, row: int, offset: int) -> Page:
        """Return the page of the batches around an offset."""
        return batches_at(self._rows[row].partition, offset)

    def at_time(self, row: int, timestamp: int) -> Page:
        """Return the page of the batches around a time (ms).  Raises Jump."""
        partition = self._rows[row].partition
        return batches_at(partition, offset_at_time(partition, timestamp))


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _offsets(row: PartitionRow | None) -> str:
    if row is None or row.log_start_offset is None or row.log_end_offset is None:
        return ""
    start, end = row.log_start_offset, row.log_end_offset
    return range_text(start, end - 1) if end > start else "empty"


def _modified(partition: Partition) -> float:
    """Return when the newest log was last written; the oldest partition is the first."""
    try:
        return os.stat(partition.file(partition.segments[-1].log)).st_mtime if partition.segments else 0
    except OSError:
        return 0


def segment_strip(partition: Partition, check: Check | None, columns: int) -> str:
    """Return the segments side by side, as wide as they are large; ✗ is for damage that the check has found."""
    segments = partition.segments
    if not segments:
        return faint("no segments")
    if len(segments) * 2 > columns:
        return faint(f"{counted(len(segments), 'segment')}, too many for a picture")
    room, total = columns - len(segments), max(1, partition.size)
    parts = []
    for one in segments:
        bar = "▇" * max(1, room * one.size // total)
        is_bad = check is not None and one.log in check.damaged_files
        parts.append(bad(f"{bar[:-1]}✗") if is_bad else bar)
    return "│".join(parts)
