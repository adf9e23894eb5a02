"""Records and batches as JSON lines or CSV, with damage reported where it occurs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Literal

from klog.commands.dump.dump_request import LogInput
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage
from klog.kernel import Window
from klog.log.json_lines import LineStyle, RecordOrigin, damage_json, record_lines
from klog.log.ordered_pipeline import OrderedOutput, Work
from klog.log.reader import WindowResult
from klog.log.records import BatchRun, Codecs, RecordLimit, intact_runs, message_damages
from klog.partition.transactions.isolation import TxnBatch

CSV_COLUMNS = (
    "offset,timestamp,timestamp_type,key,key_base64,value,value_base64,headers,partition,topic,leader_epoch,producer_id,"
    "producer_epoch,sequence,transactional,control,coordinator_epoch,position,damage"
)
CSV_SCHEMA_COLUMNS = ",key_schema_id,key_error,value_schema_id,value_error"
CSV_BATCH_COLUMNS = (
    "base_offset,last_offset,records,position,size,magic,codec,crc,crc_holds,leader_epoch,producer_id,producer_epoch,"
    "base_sequence,last_sequence,max_timestamp,timestamp_type,transactional,control,delete_horizon_ms,partition,topic"
)


def csv_header(style: LineStyle) -> bytes:
    """Return the header of CSV in this style."""
    columns = CSV_BATCH_COLUMNS if style.batches else CSV_COLUMNS
    if style.tiers:
        columns = columns.replace("partition,topic", "partition,topic,tier,segment_id")
    return f"{columns}{',batch' * style.batch_offsets}{CSV_SCHEMA_COLUMNS * style.decoded}\n".encode()


class LineDump:
    """Makes lines of a log's windows.  `damages` counts faults."""

    def __init__(self, log: LogInput, style: LineStyle, count: RecordLimit) -> None:
        self._log, self._style, self._count = log, style, count
        origin = RecordOrigin(log.file, *log.target.origin)
        self._fields = origin.csv(style.tiers) if style.csv else origin.json()
        self.damages = 0

    def work(self) -> Work:
        """Return a worker's function."""
        codecs = Decompressor(self._log.request.max_batch_bytes).functions
        render = self._batches if self._style.batches else partial(self._records, codecs)

        def work(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
            last, txns = self._log.leave_out(window)
            return render(window, lane) or self._after(window, piece, txns, lane) or last

        return work

    def _records(self, codecs: Codecs, window: Window, lane: OrderedOutput) -> bool:
        """Make lines of the matching records; True when the output is complete."""
        for found in self._log.rows(window, codecs):
            if isinstance(found, Damage):
                lane.flush(window)
                self._show(found, lane)
            elif self._rows(found, window, lane):
                return True
        return False

    def _rows(self, rows: Window, window: Window, lane: OrderedOutput) -> bool:
        """Make lines of the decoded records; True when the output is complete."""
        last = self._count.take(rows)
        at = 0
        for damage, end in _by_batch(rows, message_damages(rows, self._log.file)):
            self._write(rows, at, end, lane)
            lane.flush(rows)
            self._show(damage, lane)
            at = end
        self._write(rows, at, rows.records, lane)
        if rows is not window:
            lane.flush(rows)
        return last

    def _write(self, rows: Window, at: int, end: int, lane: OrderedOutput) -> None:
        """Make lines of the rows from *at* to *end*."""
        for piece in record_lines(rows, at, end, self._fields, self._style):
            lane.write(piece)

    def _batches(self, window: Window, lane: OrderedOutput) -> bool:
        """Make a line of each batch, damaged ones too; True when the output is complete."""
        for run in intact_runs(window, self._log.file, self._log.span):
            ended = self._batch_rows(run, lane)
            if run.window is not window or run.damage:
                lane.flush(run.window)
            if run.damage:
                self._report(run.damage, lane)
            if ended:
                return True
        return False

    def _batch_rows(self, run: BatchRun, lane: OrderedOutput) -> bool:
        """Make lines of a run; True at the requested number."""
        at = run.first
        step = run.end if self._count.left is None else at + 1
        while at < run.end:
            used = run.window.out_used
            at = run.window.batch_rows(at, max(step, at + 1), self._style.csv, self._fields)
            if run.window.out_used > used and self._count.take_batch():  # it was not a skipped one
                return True
            if run.window.out_used == used or at < step:
                lane.flush(run.window)
            step = run.end if self._count.left is None else at + 1
        return False

    def _after(
        self, window: Window, piece: WindowResult, txns: Sequence[TxnBatch], lane: OrderedOutput
    ) -> Literal[False]:
        """Show the faults behind the window's batches, and those of the markers among them."""
        if txns:
            lane.wait()
        for damage in self._log.behind(piece, txns):
            lane.flush(window)
            self._show(damage, lane)
        return False

    def _report(self, damage: Damage, lane: OrderedOutput) -> None:
        lane.report(str(damage))
        self.damages += 1

    def _show(self, damage: Damage, lane: OrderedOutput) -> None:
        """Put *damage* among the lines, and report it."""
        lane.write(damage_line(damage, self._style))
        self._report(damage, lane)


def _by_batch(rows: Window, damages: list[Damage]) -> Iterator[tuple[Damage, int]]:
    """Yield each damage of a message with the row at which the records of its batch end."""
    ends: dict[int, int] = {}
    if damages:
        for i in range(rows.records):
            ends[rows.batch(rows.record(i, False)[6]).position] = i + 1
    for damage in damages:
        yield damage, ends[damage.place.position or 0]


def damage_line(damage: Damage, style: LineStyle) -> bytes:
    """Return the line of *damage* among records; nothing among batches in CSV, which show it themselves."""
    if not style.csv:
        return damage_json(damage)
    return b"" if style.batches else damage_csv(damage, style)


def damage_csv(damage: Damage, style: LineStyle) -> bytes:
    """Return the CSV line of *damage*: its offset, its position and, in the last column, its description."""
    offset, position = ("" if one is None else one for one in (damage.place.offset, damage.place.position))
    text = f"{damage.kind.value}: {damage.detail}".replace('"', '""')
    more = "," * (style.batch_offsets + 4 * style.decoded)
    return f'{offset}{"," * (17 + 2 * style.tiers)}{position},"{text}"{more}\n'.encode("utf-8", "replace")
