"""The page of a log: its batches, which are read when they are shown."""

from __future__ import annotations

from klog.base.errors import KlogError, counted
from klog.data_dir.partition import Partition, segments_between
from klog.formats.batch import Attributes, BatchFacts
from klog.formats.damage import Damage
from klog.log.batch_rows import BatchRows
from klog.log.segment import Segment

from klog_cli.browse.page import Jump, Page, fitted, offset_at_time
from klog_cli.browse.records import RecordsPage
from klog_cli.display import human_size, range_text, time_text
from klog_cli.style import bad


class BatchesPage(Page):
    """The batches of the log at *path*, and damage in its place.  *partition*: the one around it.

    *wanted_offset*: the offset to go to as soon as its batch is known.
    """

    def __init__(self, path: str, partition: Partition) -> None:
        super().__init__(path, ("dump", "--batches", "-o", "jsonl", path), path)
        self._path, self._partition = path, partition
        self._rows = BatchRows(path)
        self.wanted_offset: int | None = None

    def load(self, columns: int) -> None:
        """Count the batches; rows are read when they are shown."""
        self.status = "counting batches; Esc cancels"
        self._rows.survey(self._is_cancelled)
        self.status = self._counts() if self._rows.is_complete else "cancelled"
        self._go()
        if self.wanted_offset is not None and self._rows.is_complete:
            self.status = f"no batch has offset {self.wanted_offset} or a later one"
        self.changed()

    def _counts(self) -> str:
        damages = self._rows.damages
        batches = counted(len(self._rows) - damages, "intact batch", "es")
        return f"{batches}, {counted(damages, 'damaged place')}" if damages else batches

    def _is_cancelled(self) -> bool:
        self._go()
        self.status = f"counting batches: {len(self._rows)}, {human_size(self._rows.passed)}; Esc cancels"
        self.changed()
        return self.stop.is_set()

    def _go(self) -> None:
        if self.wanted_offset is not None:
            found = self._rows.row_of_offset(self.wanted_offset) if len(self._rows) else None
            if found is not None:
                self.goal, self.wanted_offset = found, None

    def heading(self, columns: int) -> str:
        """Return the names of the columns."""
        cells = ("position", "offsets", "records", "size", "codec", "producer", "latest time (UTC)", "flags")
        return _columns(cells, columns)

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, number: int) -> BatchFacts | Damage | str:
        """Return a batch, a damage, or the reason why there is neither."""
        try:
            return self._rows[number]
        except KlogError as error:
            return str(error)
        except IndexError:
            return "the log has changed: press R to read it again"

    def line(self, row: int, columns: int) -> str:
        """Return a row, with marks of `style`."""
        found = self.row(row)
        if isinstance(found, str):
            return bad(fitted(found, columns))
        if isinstance(found, Damage):
            place, text = found.place, f"✗ {found.kind.value}: {found.detail or ''}"
            return bad(fitted(f"{place.position or 0:>10}  {text} ({human_size(found.size or 0)})", columns))
        flags = Attributes(found.attributes)
        names = [name for bit, name in _FLAGS if flags & bit]
        cells = (
            str(found.position) if found.crc_holds else f"✗ {found.position}",
            range_text(found.base_offset, found.last_offset),
            "?" if found.records_count < 0 else str(found.records_count),
            human_size(found.size),
            found.codec,
            "-" if found.producer_id < 0 else str(found.producer_id),
            "-" if found.max_timestamp < 0 else time_text(found.max_timestamp),
            " ".join([*([] if found.crc_holds else ["bad CRC"]), f"v{found.magic}", *names]),
        )
        line = _columns(cells, columns)
        return line if found.crc_holds else bad(line)

    def enter(self, row: int) -> Page | None:
        """Return the page of the records of a batch, None for damage."""
        found = self.row(row)
        if not isinstance(found, BatchFacts):
            return None
        return RecordsPage(self._partition.path, self._first_offset(row, found), found.last_offset, batches_at)

    def _first_offset(self, row: int, batch: BatchFacts) -> int:
        """Return the first offset that a batch can have; the header of a wrapper has only the last one."""
        if not batch.is_wrapper:
            return batch.base_offset
        before = self.row(row - 1) if row else None
        if isinstance(before, BatchFacts):
            return before.last_offset + 1
        return Segment(self._path).base_offset or 0

    def paths(self, row: int) -> tuple[str, str]:
        """Return the log dir and the partition of the page."""
        return self._partition.log_dir, self._partition.path

    def bytes_words(self, row: int) -> tuple[str, ...] | None:
        """Return the arguments of `klog bytes` for a batch or a damage."""
        found = self.row(row)
        if isinstance(found, str):
            return None
        position = found.place.position if isinstance(found, Damage) else found.position
        return (self._path, "--position", str(position))

    def at_offset(self, row: int, offset: int) -> Page | None:
        """Go to an offset, in this log or in the one that has it."""
        other = batches_at(self._partition, offset)
        if not isinstance(other, BatchesPage) or other.watched != self.watched:
            return other
        self.wanted_offset = other.wanted_offset
        self._go()
        if self._rows.is_complete and self.wanted_offset is not None:
            self.status = f"no batch has offset {self.wanted_offset} or a later one"
        return None

    def at_time(self, row: int, timestamp: int) -> Page | None:
        """Go to a time (ms).  Raises Jump."""
        return self.at_offset(row, offset_at_time(self._partition, timestamp))


_FLAGS = (
    (Attributes.TRANSACTIONAL, "txn"),
    (Attributes.CONTROL, "control"),
    (Attributes.LOG_APPEND_TIME, "append-time"),
    (Attributes.DELETE_HORIZON, "horizon"),
)


def _columns(cells: tuple[str, ...], columns: int) -> str:
    """Return the cells in columns; a narrow screen has no producer, and of a time no date."""
    position, offsets, records, size, codec, producer, latest, flags = cells
    wide = columns >= 110
    if not wide:
        latest = latest[11:19] if latest[:4].isdigit() else latest.removeprefix("latest ").partition(" ")[0]
    first = [
        fitted(position, 10, right=True),
        fitted(offsets, 24 if wide else 15),
        fitted(records, 7, right=True),
        fitted(size, 9, right=True),
        fitted(codec, 6),
        *([fitted(producer, 20)] if wide else []),
        fitted(latest, 24 if wide else 8),
    ]
    used = sum(map(len, first)) + 2 * len(first)
    return "  ".join([*first, fitted(flags, max(1, columns - used))])


def batches_at(partition: Partition, offset: int) -> Page:
    """Return the batches of the segment that has *offset*, a negative one from the log end, with the cursor there."""
    if offset < 0:
        end = partition.log_end
        offset = max((end.offset if end is not None else 0) + offset, 0)
    found = segments_between(partition.segments, offset, offset + 1)
    if not found:
        raise Jump(f"{partition.directory} has no segment with offset {offset}")
    page = BatchesPage(partition.file(found[-1].log), partition)
    page.wanted_offset = offset
    return page
