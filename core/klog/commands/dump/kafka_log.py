"""`.log` and `.checkpoint` files as Kafka's dump tool prints them, byte for byte.

Kafka: DumpLogSegments.dumpLog of 4.3.1.  If that tool dies with a stack trace, its output up to that point is printed
here too, and the rest is one line for people.
"""

from __future__ import annotations

from collections.abc import Sequence

from klog.base.errors import KlogError
from klog.commands.dump.dump_request import Decoder, LogInput, LogStyle
from klog.commands.dump.reports import OffsetGaps
from klog.formats.batch import ENTRY, OVERHEAD
from klog.formats.codec import Decompressor
from klog.formats.damage import Location
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.kernel import BAD_LENGTH, BAD_MAGIC, DONE, MORE, TEXT_LAZY, Window
from klog.log.ordered_pipeline import OrderedOutput, Work
from klog.log.reader import WindowResult
from klog.log.records import RecordLimit, broken_record
from klog.partition.transactions.isolation import TxnBatch


class _DiedError(Exception):
    """Kafka's tool would have died in batch *batch*; *partial* is the part of the line that it had printed."""

    def __init__(self, reason: str, partial: bytes, batch: int) -> None:
        super().__init__(reason)
        self.partial = partial
        self.batch = batch


class LogDump:
    """The text of one log.  `trouble`: there was a fault; `stop`: the reason and the position of the walk's end."""

    def __init__(self, log: LogInput, style: LogStyle, count: RecordLimit) -> None:
        self.log, self.style, self.count = log, style, count
        self.max_batch_bytes = log.request.max_batch_bytes
        wanted = log.wanted
        picks_records = (
            wanted.keys is not None
            or wanted.from_time > LONG_MIN
            or wanted.to_time < LONG_MAX
            or wanted.limit is not None
        )
        self.flags = style.flags | (TEXT_LAZY if picks_records and style.deep else 0)
        self.gaps = OffsetGaps()
        self.trouble = self.died = False
        self.stop: tuple[int, int] | None = None

    def work(self) -> Work:
        """Return a worker's function."""
        return _Worker(self).text

    def end_text(self, file_name: str, end: int, head: bytes, all_bytes: bool) -> tuple[bytes, str | None]:
        """Return the text at the end of the walk, and for people the reason if Kafka's tool died there.

        *end*: the end of the walked part of the file; *head*: the bytes at the stop; *all_bytes*: no --max-bytes.
        """
        if self.died or self.stop is None or self.stop[0] == DONE:
            return b"", None
        status, at = self.stop
        place = Location(self.log.file, at)
        if status == BAD_LENGTH:
            self.trouble = True
            return b"", f"{place}: a size of {ENTRY.read(head)[1]} bytes, where at least 14 was expected"
        if status == BAD_MAGIC:
            self.trouble = True
            offset, _, _, magic = ENTRY.read(head)
            return f"offset: {offset}".encode(), f"{place}: format version {magic}"
        rest = end - at
        if rest > ENTRY.size and ENTRY.read(head)[1] <= rest - OVERHEAD:
            self.trouble = True
            return b"", f"{place}: {self._why_not_read(ENTRY.read(head)[1] + OVERHEAD)}"
        if not all_bytes:
            return b"", None
        self.trouble = True
        return f"Found {rest} invalid bytes at the end of {file_name}\n".encode("utf-8", "surrogateescape"), None

    def _why_not_read(self, size: int) -> str:
        if size > self.max_batch_bytes:
            return f"a batch of {size} bytes (--max-batch-bytes {self.max_batch_bytes}; raise it if the batch is real)"
        return f"an entry of {size} bytes, too small for its header, at the end of the file"


class _Worker:
    """One worker's part: its decompressor, and the gaps in its current range."""

    def __init__(self, dump: LogDump) -> None:
        self._dump = dump
        self._codecs = Decompressor(dump.max_batch_bytes).functions
        self._found: list[tuple[int, int, bytes]] = []

    def text(self, window: Window, piece: WindowResult, lane: OrderedOutput) -> bool:
        """Make text of a window; True when the output is complete."""
        dump = self._dump
        last, txns = dump.log.leave_out(window)
        if window.check(0, window.count):
            dump.trouble = True
        known = window.first_unknown_codec(0, window.count)
        self._found = []
        try:
            ended = self._records(window, known, lane) if dump.style.deep else self._batch_lines(window, known, lane)
            if known < window.count and not ended:
                self._lines_up_to(window, known, lane)
                raise _DiedError("there is no such codec", window.batch_head(known), known)
        except _DiedError as death:
            self._bury(death, window, lane)
            return True
        self._in_turn(txns, lane)
        if piece.stop:
            dump.stop = piece.stop
        return ended or last

    def _in_turn(self, txns: Sequence[TxnBatch], lane: OrderedOutput) -> None:
        """Do the checks that need the windows in order: gaps between records, markers that contradict the index."""
        dump = self._dump
        if self._found or txns:
            lane.wait()
        for found in self._found:
            dump.gaps.add(*found)
        for damage in dump.log.aborted.contradictions(txns) if txns and dump.log.aborted else ():
            lane.report(str(damage))
            dump.trouble = True

    def _bury(self, death: _DiedError, window: Window, lane: OrderedOutput) -> None:
        lane.flush(window)
        lane.write(death.partial)
        facts = window.batch(death.batch)
        lane.report(f"{Location(self._dump.log.file, facts.position, facts.base_offset)}: {death}")
        self._dump.trouble = self._dump.died = True

    def _batch_lines(self, window: Window, end: int, lane: OrderedOutput) -> bool:
        """Print batches up to *end*; True at the requested number."""
        count = self._dump.count
        stops = (end,) if count.left is None else range(1, end + 1)  # a filter leaves some batches out
        return any(self._lines_up_to(window, stop, lane) and count.take_batch() for stop in stops)

    def _lines_up_to(self, window: Window, stop: int, lane: OrderedOutput) -> bool:
        """Print batches up to *stop*; return whether there was one to print."""
        used, flushed = window.out_used, False
        while not window.batch_lines(stop, self._dump.flags):
            lane.flush(window)
            flushed = True
        return flushed or window.out_used > used

    def _records(self, window: Window, end: int, lane: OrderedOutput) -> bool:
        """Print batches up to *end* with their records; True at the requested number."""
        first = 0
        while first < end:
            ready = window.decompress(first, end, self._codecs)
            if window.error is not None and ready == first:
                self._lines_up_to(window, first + 1, lane)
                raise _DiedError(str(window.error), b"", first)
            window.begin(first, ready, True)
            status = MORE
            while status == MORE:
                status = window.decode()
                if window.records and self._rows(window, lane):
                    return True
            self._lines_up_to(window, ready if status == DONE else window.decoding + 1, lane)
            if status != DONE:
                raise _DiedError(broken_record(window, status), b"", window.decoding)
            first = ready
        return False

    def _rows(self, window: Window, lane: OrderedOutput) -> bool:
        """Print the decoded records; True at the requested number."""
        wanted = self._dump.log.wanted
        if wanted.all_records:
            self._found.append((*window.ends(), window.gaps()))
        wanted.keep(window)
        ended = self._dump.count.take(window)
        contents, death = self._contents(window, lane)
        if death is not None:
            self._die(window, contents or [], *death, lane)
        self._print(window, window.records, contents, lane)
        return ended

    def _print(self, window: Window, end: int, contents: list[bytes | None] | None, lane: OrderedOutput) -> None:
        at = 0
        while (at := window.text_lines(at, end, self._dump.flags, contents)) < end:
            lane.flush(window)

    def _die(self, window: Window, contents: list[bytes | None], row: int, reason: str, lane: OrderedOutput) -> None:
        """Print the rows before the one that kills Kafka's tool, then that one's batch and metadata, and die."""
        batch = window.record(row, False)[6]
        self._print(window, row, contents, lane)
        self._lines_up_to(window, batch + 1, lane)
        lane.flush(window)
        contents[row] = b""
        window.text_lines(row, row + 1, self._dump.flags, contents)
        partial = bytes(window.output())[:-1]  # without the line's end
        window.flushed()
        raise _DiedError(reason, partial, batch)

    def _contents(
        self, window: Window, lane: OrderedOutput
    ) -> tuple[list[bytes | None] | None, tuple[int, str] | None]:
        """Return the text of each row that only Python can decode, and the row that kills Kafka's tool."""
        style = self._dump.style
        others = [] if style.bare else window.unknown_controls()
        decoder = style.decoder if style.content else None
        liars = window.overlong_values() if style.content else []
        if decoder is None and not others and not liars:
            return None, None
        contents: list[bytes | None] = [None] * window.records
        deaths: list[tuple[int, str]] = []
        if decoder is None:
            deaths += [(row, f"its value claims {claimed} bytes, {left} are there") for row, claimed, left in liars[:1]]
        for row in others:
            from klog.formats.control import control_record

            control = control_record(*window.record(row, False)[2:4])
            contents[row] = control.text.encode("utf-8", "replace")
            if control.failure:
                deaths.append((row, control.failure))
                break
        if decoder is not None:
            deaths += self._decode(window, decoder, contents, liars, lane)
        return contents, min(deaths, default=None)

    def _decode(
        self,
        window: Window,
        decoder: Decoder,
        contents: list[bytes | None],
        liars: list[tuple[int, int, int]],
        lane: OrderedOutput,
    ) -> list[tuple[int, str]]:
        """Fill in the decoder's output for each row; return the row that kills Kafka's tool, if one does."""
        from klog.formats.internal_topics import TooLargeRecordError, unreadable_value

        problems = {row: f"newLimit > capacity: ({claimed} > {left})" for row, claimed, left in liars}
        facts_of = -1
        for row in range(window.records):
            offset, _, key, value, _, _, batch = window.record(row, False)
            if batch != facts_of:
                facts, facts_of = window.batch(batch), batch
            if facts.is_control:
                continue
            try:
                if row in problems:
                    shown_key, shown_value = unreadable_value(decoder, key, offset, problems[row])
                else:
                    shown_key, shown_value = decoder(key, value, offset)
            except TooLargeRecordError as error:
                shown_key, shown_value = None, f"Error at offset {offset}, skipping. {error}"
                lane.report(f"{Location(self._dump.log.file, facts.position, offset)}: a record is left out: {error}")
                self._dump.trouble = True
            except KlogError as error:
                return [(row, str(error))]
            text = "" if shown_key is None else f" key: {shown_key}"
            text += "" if shown_value is None else f" payload: {shown_value}"
            contents[row] = ("|" * bool(self._dump.style.bare and text) + text).encode("utf-8", "replace")
        return []
