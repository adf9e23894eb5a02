"""Reads a whole batch: whether its checksum matches, and the first record that matches the search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.formats.batch import CODEC_BITS, BatchFacts
from klog.formats.codec import MAX_OUTPUT
from klog.formats.java_integers import LONG_MAX, LONG_MIN
from klog.formats.record import Record
from klog.kernel import MORE, Window
from klog.log.header_walk import window_of
from klog.partition.lookup.lookup_trail import BatchTrail

if TYPE_CHECKING:
    from klog.log.records import Codecs

_ROWS = 256


class Body:
    """Batch *row* of *window*, all of it in memory.  *own*: only this object decodes in that window."""

    def __init__(
        self, window: Window, row: int, codecs: Codecs, facts: BatchFacts | None = None, own: bool = False
    ) -> None:
        self.window, self.row = window, row
        self._codecs = codecs
        self._own, self._ready = own, False
        self.holds = not window.check(row, row + 1)
        self.facts: BatchFacts = facts or window.batch(row)
        """The content of the header."""
        self.broken: str | None = None
        """Why reading the records failed; None if it did not, or was not tried."""
        self._first_offset: int | None = None

    @property
    def first_offset(self) -> int:
        """The base offset; a wrapper (v0, v1), whose header has only the last one, is opened for it."""
        if self._first_offset is None:
            facts = self.facts
            record = self.first(LONG_MIN) if facts.is_wrapper else None
            self._first_offset = facts.base_offset if record is None else record.offset
        return self._first_offset

    def first(self, from_offset: int, from_time: int = LONG_MIN) -> Record | None:
        """Return the first record with an offset and a timestamp (ms) not below these, None if there is none.

        The record is without its headers if they are more than a million; the window then has that one row.
        """
        window, row = self.window, self.row
        if not self._ready and window.decompress(row, row + 1, self._codecs) == row:
            self.broken = str(window.error)
            return None
        self._ready = self._own
        window.begin(row, row + 1)
        status = MORE
        while status == MORE:
            status = window.decode()
            window.keep(from_offset, LONG_MAX, from_time, LONG_MAX, True, None)
            if window.records:
                window.cut_records(1)
                offset, timestamp, key, value, headers, sequence, _ = window.record(0)
                return Record(offset, timestamp, key, value, headers or (), sequence)
        if status:
            from klog.log.records import broken_record

            self.broken = broken_record(window, status)
        return None

    def line(self, origin: bytes) -> bytes:
        """Return the row that `first` left as a JSON line, without its end."""
        window = self.window
        window.flushed()
        if window.json_lines(0, origin, 0, 1) == 0:
            from klog.log.json_lines import LineStyle, huge_line

            return b"".join(huge_line(window, 0, origin, LineStyle())).rstrip(b"\n")
        line = bytes(window.output())
        window.flushed()
        return line.rstrip(b"\n")

    def trail(self) -> BatchTrail:
        """Return the batch for the trail."""
        facts = self.facts
        return BatchTrail(facts.position, facts.size, self.first_offset, facts.last_offset, self.holds, facts.codec)


class Bodies:
    """Bodies of a log's batches: from a walk's window if it contains them, else from the file.

    A compressed one is read into a window of its own, which is kept until the next: several searches may end in it.
    """

    def __init__(self, log: ReadOnlyFile, codecs: Codecs) -> None:
        self._log = log
        self._codecs = codecs
        self._position = -1
        self._body: Body | None = None

    def of(self, window: Window, row: int) -> Body | None:
        """Return the body of batch *row*; None when it is too large, or cannot be read."""
        facts = window.batch(row)
        start = window.at(row)
        inside = start + facts.size <= window.size
        if inside and not facts.attributes & CODEC_BITS:
            return Body(window, row, self._codecs, facts)
        if facts.position != self._position:
            self._position = facts.position
            content = window.copy(start, start + facts.size) if inside else self._read(facts.position, facts.size)
            self._body = self._own(facts.position, content)
        return self._body

    def holds(self, position: int, size: int) -> bool:
        """Whether the checksum matches of a batch that is no longer in a window."""
        body = self._own(position, self._read(position, size))
        return body is not None and body.holds

    def _read(self, position: int, size: int) -> bytes:
        try:
            return self._log.read(position, size) if size <= MAX_OUTPUT else b""
        except UnreadableError:
            return b""

    def _own(self, position: int, content: bytes) -> Body | None:
        window = window_of(content, position, _ROWS)
        window.scan(0)
        return Body(window, 0, self._codecs, own=True) if window.count else None
