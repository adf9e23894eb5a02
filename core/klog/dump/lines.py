"""Records and batches as JSON lines or CSV, damage in its place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from klog.dump.isolation import Committed
from klog.dump.request import LineStyle
from klog.formats.codec import MAX_OUTPUT, Decompressor
from klog.formats.damage import Damage
from klog.kernel import VALUES, Window, is_utf8, json_text
from klog.log.pipeline import OrderedOutput, Work
from klog.log.reader import WindowResult
from klog.log.record_filter import RecordFilter, RecordLimit
from klog.log.records import BatchRun, OffsetRange, decode_window, intact_runs, message_damages

_PIECE_BYTES = 3 << 18  # a multiple of three, so that pieces of base64 fit together

CSV_COLUMNS = (
    "offset,timestamp,timestamp_type,key,key_base64,value,value_base64,headers,partition,topic,leader_epoch,producer_id,"
    "producer_epoch,sequence,transactional,control,coordinator_epoch,position,damage"
)
CSV_BATCH_COLUMNS = (
    "base_offset,last_offset,records,position,size,magic,codec,crc,crc_holds,leader_epoch,producer_id,producer_epoch,"
    "base_sequence,last_sequence,max_timestamp,timestamp_type,transactional,control,delete_horizon_ms,partition,topic"
)


@dataclass(frozen=True)
class RecordOrigin:
    """Which log the lines are about: its file as it is shown, its topic and partition where the directory tells."""

    file: str
    topic: str | None = None
    partition: int | None = None

    def json(self) -> bytes:
        """Return the members that every JSON line carries."""
        if self.topic is None:
            return b""
        return f',"partition":{self.partition},"topic":{_json(self.topic)}'.encode()

    def csv(self) -> bytes:
        """Return the fields that every CSV line carries."""
        if self.topic is None:
            return b","
        name = self.topic.encode("utf-8", "replace").replace(b'"', b'""')
        return str(self.partition).encode() + b',"' + name + b'"'


def _json(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # a name that is no UTF-8: its bytes show as escapes
        return json.dumps(text)
    return json.dumps(text, ensure_ascii=False)


class LineDump:
    """Makes lines of a log's windows.  `damages` counts what was wrong.

    *unfinished*: a batch that is cut off at the end is no damage.
    """

    def __init__(
        self,
        origin: RecordOrigin,
        style: LineStyle,
        wanted: RecordFilter,
        span: OffsetRange,
        *,
        count: RecordLimit,
        committed: Committed | None = None,
        max_batch_bytes: int = MAX_OUTPUT,
        unfinished: bool = False,
    ) -> None:
        self._origin = origin
        self._style = style
        self._wanted = wanted
        self._span = span
        self._count = count
        self._committed = committed
        self._max_batch_bytes = max_batch_bytes
        self._unfinished = unfinished
        self._fields = origin.csv() if style.csv else origin.json()
        self.damages = 0

    def work(self) -> Work:
        """Return a worker's function."""
        if self._style.batches:
            return self._batches
        codecs = Decompressor(self._max_batch_bytes).functions

        def records(window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
            last = self._wanted.skip(window)
            if self._committed:
                self._committed.skip(window)
            for rows, damage in decode_window(window, codecs, self._origin.file, self._span):
                if damage:
                    lane.flush(window)
                    self._show(damage, lane)
                elif self._rows(rows, window, lane):
                    return True
            return self._after(window, piece, lane) or last

        return records

    def _rows(self, rows: Window, window: Window, lane: OrderedOutput) -> bool:
        """Make lines of the decoded records; True when there are to be no more."""
        self._wanted.keep(rows)
        last = self._count.take(rows)
        at = 0
        for damage, end in _by_batch(rows, message_damages(rows, self._origin.file)):
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

    def _batches(self, window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        """Make a line of each batch, damaged ones too; True when there are to be no more."""
        last = self._wanted.skip(window)
        if self._committed:
            self._committed.skip(window)
        for run in intact_runs(window, self._origin.file, self._span):
            ended = self._batch_rows(run, lane)
            if run.window is not window or run.damage:
                lane.flush(run.window)
            if run.damage:
                self._report(run.damage, lane)
            if ended:
                return True
        return self._after(window, piece, lane) or last

    def _batch_rows(self, run: BatchRun, lane: OrderedOutput) -> bool:
        """Make lines of a run; True when the wanted number is reached."""
        at = run.first
        step = run.end if self._count.left is None else at + 1
        while at < run.end:
            used = run.window.out_used
            at = run.window.batch_rows(at, max(step, at + 1), self._style.csv, self._fields)
            if self._count.left is not None and run.window.out_used > used:  # it was not a skipped one
                self._count.left -= 1
                if self._count.left == 0:
                    return True
            if run.window.out_used == used or at < step:
                lane.flush(run.window)
            step = run.end if self._count.left is None else at + 1
        return False

    def _after(self, window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        """Say what is wrong behind the window's batches."""
        if piece.damage and not (self._unfinished and piece.damage.is_unfinished):
            lane.flush(window)
            self._show(piece.damage, lane)
        return False

    def _report(self, damage: Damage, lane: OrderedOutput) -> None:
        lane.report(str(damage))
        self.damages += 1

    def _show(self, damage: Damage, lane: OrderedOutput) -> None:
        """Put *damage* among the lines, and report it."""
        lane.write(
            damage_csv(damage)
            if self._style.csv and not self._style.batches
            else damage_json(damage)
            if not self._style.csv
            else b""
        )
        self._report(damage, lane)


def _by_batch(rows: Window, damages: list[Damage]) -> Iterator[tuple[Damage, int]]:
    """Yield each damage of a message with the row at which the records of its batch end."""
    ends: dict[int, int] = {}
    if damages:
        for i in range(rows.records):
            ends[rows.batch(rows.record(i)[6]).position] = i + 1
    for damage in damages:
        yield damage, ends[damage.place.position or 0]


def record_lines(rows: Window, first: int, end: int, fields: bytes, style: LineStyle) -> Iterator[bytes | memoryview]:
    """Make lines of the rows from *first* to *end*, which carry *fields*; what is not yielded waits in the output."""
    write = rows.csv_lines if style.csv else rows.json_lines
    at = first
    while at < end and (at := write(at, fields, style.values, end)) < end:
        yield rows.output()
        rows.flushed()
        if rows.is_huge(at, fields, style.values):
            # Escaped, a value can be six times as large as it is.
            before, value, after = rows.split_line(at, style.csv, fields, style.values)
            yield before
            yield from huge_value(value, style)
            yield after
            at += 1


def huge_value(value: memoryview, style: LineStyle) -> Iterator[bytes]:
    """Yield the member (JSON) or the two fields (CSV) that a value gives, in pieces."""
    text = style.values == VALUES.index("text") and is_utf8(value)
    encoding = "text" if text else "hex" if style.values == VALUES.index("hex") else "base64"
    named = {"text": b',"value":"', "hex": b',"value_hex":"', "base64": b',"value_base64":"'}
    fields = {"text": (b'"', b'",,'), "hex": (b"", b",,"), "base64": (b",", b",")}
    opening, closing = fields[encoding] if style.csv else (named[encoding], b'"')
    yield opening
    at = 0
    while at < len(value):
        end = min(at + _PIECE_BYTES, len(value))
        while text and end < len(value) and value[end] & 0xC0 == 0x80:
            end -= 1  # not inside a character
        yield _encoded(value[at:end], encoding, style.csv)
        at = end
    yield closing


def _encoded(piece: memoryview, encoding: str, csv: bool) -> bytes:
    if encoding == "hex":
        return piece.hex().encode()
    if encoding == "base64":
        import base64

        return base64.b64encode(piece)
    return bytes(piece).replace(b'"', b'""') if csv else json_text(piece) or b""


def damage_json(damage: Damage) -> bytes:
    """Return the JSON line of *damage*; what is not known is left out."""
    members: dict[str, object] = {
        "damage": damage.kind.value,
        "position": damage.place.position,
        "offset": damage.place.offset,
    }
    members |= {"stored": damage.stored_crc, "computed": damage.computed_crc, "size": damage.size}
    members |= {"detail": damage.detail, "file": damage.place.file}
    return (
        json.dumps(
            {name: value for name, value in members.items() if value is not None},
            ensure_ascii=True,
            separators=(",", ":"),
        ).encode()
        + b"\n"
    )


def damage_csv(damage: Damage) -> bytes:
    """Return the CSV line of *damage*: its offset, its position and, in the last column, what it is."""
    offset = "" if damage.place.offset is None else damage.place.offset
    text = f"{damage.kind.value}: {damage.detail}".replace('"', '""')
    return f'{offset}{"," * 17}{damage.place.position},"{text}"\n'.encode("utf-8", "replace")
