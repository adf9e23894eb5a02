"""The page of a batch: its records, as `klog records` prints them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

from klog.commands.dump.dump_request import DumpRequest, partition_targets
from klog.commands.records.record_rows import RecordRows
from klog.data_dir.partition import Partition
from klog.log.records import RecordFilter, RecordLimit

from klog_cli.browse.page import Page, offset_at_time
from klog_cli.display import range_text
from klog_cli.typed_values import ValueStyle
from klog_cli.views.records.text import RowLines, RowStyle

_MOST = 1000
_CHUNK = 256


class RecordsPage(Page):
    """The records of a partition from offset *first* up to and including *last*; of many, the first 1000.

    *batches_at* makes the page of the batches around an offset.
    """

    has_cursor = False

    def __init__(self, path: str, first: int, last: int, batches_at: Callable[[Partition, int], Page]) -> None:
        words = ("records", path, "--from-offset", str(first), "--to-offset", str(last + 1), "-n", str(_MOST))
        super().__init__(f"{path} · offsets {range_text(first, last)}", words, path)
        self._path, self._first, self._last = path, first, last
        self._batches_at = batches_at
        self._lines: list[str] = []

    def load(self, columns: int) -> None:
        """Read the records, a chunk at a time."""
        wanted = RecordFilter(from_offset=self._first, to_offset=self._last + 1)
        partition = Partition(self._path)
        partition.check_listed()
        request = DumpRequest("jsonl", wanted=wanted)
        targets = list(partition_targets(partition, False, wanted))
        looks = RowLines(RowStyle(ValueStyle("auto"), ValueStyle("auto"), columns))
        reader = RecordRows(request)
        rows = reader.read(targets, RecordLimit(_MOST))
        while some := list(islice(rows, _CHUNK)):
            if self.stop.is_set():
                return
            self._lines += looks.lines(some)
            self.changed()
        if reader.has_vanished:
            self.problem = "the broker has replaced segments meanwhile: press R to read again"
        elif not self._lines:
            self.status = "no records: compaction has removed them, or the batch never had any"
        elif self._last - self._first >= _MOST:
            self.status = f"at most {_MOST} records are shown; the command takes a larger -n"
        self.changed()

    def __len__(self) -> int:
        return len(self._lines)

    def line(self, row: int, columns: int) -> str:
        """Return a line, with marks of `style`."""
        return self._lines[row]

    def paths(self, row: int) -> tuple[str, str]:
        """Return the log dir and the partition of the page."""
        return Partition(self._path).log_dir, self._path

    def bytes_words(self, row: int) -> tuple[str, ...] | None:
        """Return the arguments of `klog bytes` for the first batch."""
        return (self._path, "--offset", str(self._first))

    def at_offset(self, row: int, offset: int) -> Page | None:
        """Return the page of the batches around an offset."""
        return self._batches_at(Partition(self._path), offset)

    def at_time(self, row: int, timestamp: int) -> Page | None:
        """Return the page of the batches around a time (ms).  Raises Jump."""
        partition = Partition(self._path)
        return self._batches_at(partition, offset_at_time(partition, timestamp))
