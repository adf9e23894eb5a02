"""The page of a partition: its segments, and the check that runs while one looks at them."""

from __future__ import annotations

from klog.base.errors import KlogError
from klog.commands.describe.log_facts import LogSummary, summarize
from klog.data_dir.partition import Partition, SegmentFiles
from klog.formats.damage import DamageKind

from klog_cli.browse.batches import BatchesPage, batches_at
from klog_cli.browse.check import Check, run_check
from klog_cli.browse.command_run import CommandRun
from klog_cli.browse.page import Page, fitted, offset_at_time, shell_word
from klog_cli.display import human_size, range_text, time_text
from klog_cli.style import bad, faint

_SUMMARIES = 20_000


class SegmentsPage(Page):
    """The segments of a partition: names and sizes first, the headers of those that are shown."""

    def __init__(self, partition: Partition, checks: dict[str, Check]) -> None:
        super().__init__(partition.path, ("describe", partition.path), partition.path)
        self.partition = partition
        self._segments: tuple[SegmentFiles, ...] = ()
        self._facts: dict[str, LogSummary | str] = {}
        self._checks = checks
        self._run: CommandRun | None = None

    def load(self, columns: int) -> None:
        """List the segments, then check the partition."""
        self.partition.check_listed()
        self._segments = self.partition.segments
        self.changed()
        check = self._checks.get(self.partition.path)
        if check is None or not check.is_done:
            check = Check()
            self._run = CommandRun(["verify", "-o", "json", self.partition.path])
            if self.stop.is_set():
                return
            self.status = "checking the partition; Esc cancels"
            self.changed()
            self.problem = run_check(check, self._run)
            self._checks[self.partition.path] = check
        self.status = (
            f"{check.verdict if check.is_done else 'no result'} (klog verify {shell_word(self.partition.path)})"
        )
        self.changed()

    def leave(self) -> None:
        """End the check."""
        super().leave()
        if self._run is not None:
            self._run.cancel()

    def fill(self, first: int, end: int) -> bool:
        """Read the headers of the segments that are shown."""
        wanted = [one for one in self._segments[first:end] if one.log not in self._facts]
        if len(self._facts) > _SUMMARIES:
            self._facts.clear()
        for one in wanted:
            if self.stop.is_set():
                return False
            try:
                self._facts[one.log] = summarize(self.partition.file(one.log))
            except KlogError as error:
                self._facts[one.log] = str(error)
            self.changed()
        return bool(wanted)

    def heading(self, columns: int) -> str:
        """Return the names of the columns."""
        return _columns("segment", "size", "offsets", "batches", "records", "codec, notes", columns)

    def __len__(self) -> int:
        return len(self._segments)

    def line(self, row: int, columns: int) -> str:
        """Return a row, with marks of `style`."""
        one = self._segments[row]
        found = self._facts.get(one.log)
        size = human_size(one.size)
        if not isinstance(found, LogSummary):
            line = _columns(one.log, size, f"{one.base_offset}–", "", "", found or "", columns)
            return bad(line) if found else line
        offsets = range_text(one.base_offset, found.last.last_offset) if found.last else "empty"
        records = "?" if found.records is None else str(found.records)
        notes = " ".join([*found.codecs, *found.flags])
        damage = found.damage
        is_reserved = damage is not None and damage.kind is DamageKind.ZEROED_TAIL and row == len(self) - 1
        if damage is not None:
            kind = "preallocated zeros" if is_reserved else damage.kind.value
            notes = f"{kind} at {damage.place.position}  {notes}"
        line = _columns(one.log, size, offsets, str(found.batches), records, notes, columns)
        check = self._checks.get(self.partition.path)
        is_bad = (damage is not None and not is_reserved) or (check is not None and one.log in check.damaged_files)
        return bad(line) if is_bad else line

    def panel(self, row: int, columns: int) -> list[str]:
        """Return the timestamps of a segment."""
        found = self._facts.get(self._segments[row].log)
        if not isinstance(found, LogSummary) or found.first_timestamp is None or found.last_timestamp is None:
            return [""]
        return [faint(f"times {time_text(found.first_timestamp)} to {time_text(found.last_timestamp)}")]

    def enter(self, row: int) -> Page:
        """Return the page of the batches of a segment."""
        return BatchesPage(self.partition.file(self._segments[row].log), self.partition)

    def paths(self, row: int) -> tuple[str, str]:
        """Return the log dir and the partition of the page."""
        return self.partition.log_dir, self.partition.path

    def at_offset(self, row: int, offset: int) -> Page:
        """Return the page of the batches around an offset."""
        return batches_at(self.partition, offset)

    def at_time(self, row: int, timestamp: int) -> Page:
        """Return the page of the batches around a time (ms).  Raises Jump."""
        return batches_at(self.partition, offset_at_time(self.partition, timestamp))


def _columns(name: str, size: str, offsets: str, batches: str, records: str, notes: str, columns: int) -> str:
    wide = columns >= 110
    cells = [
        fitted(name, 24) if wide else fitted(name.removesuffix(".log"), 20),
        fitted(size, 9, right=True),
        fitted(offsets, 30 if wide else 13),
        fitted(batches, 9 if wide else 7, right=True),
        fitted(records, 9 if wide else 7, right=True),
    ]
    used = sum(map(len, cells)) + 2 * len(cells)
    return "  ".join([*cells, fitted(notes, max(1, columns - used))])
