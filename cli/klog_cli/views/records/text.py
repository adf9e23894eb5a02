"""Records in columns: offset, time, transaction, key and value, with headers, markers and damage in their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Final, NamedTuple

from klog.commands.records.record_rows import RecordRow, TxnOutcome
from klog.formats.damage import Damage

from klog_cli import output, style
from klog_cli.display import time_text
from klog_cli.layout import cut, padded, wrap_line
from klog_cli.style import bad, columns_of, faint, strong, warning
from klog_cli.typed_values import ValueStyle

_TIME: Final = 24
_MOST_KEY: Final = 32
_LEAST_CONTENT: Final = 28
_INDENT: Final = 4


class RowStyle(NamedTuple):
    """*columns*: of the screen, to which values are cut; None if they are shown in full."""

    key: ValueStyle
    value: ValueStyle
    columns: int | None


class RowLines:
    """Makes lines of the rows of a partition; columns do not become narrower from one call to the next.

    On a narrow screen key and value have a line of their own.
    """

    def __init__(self, looks: RowStyle) -> None:
        self._style = looks
        self._offset, self._txn, self._key = len("offset"), 0, len("key")
        self._has_header = False

    def lines(self, rows: Sequence[RecordRow | Damage]) -> Iterator[str]:
        """Yield the lines of *rows*, below the names of the columns at the first call."""
        self._measure([row for row in rows if isinstance(row, RecordRow)])
        if not self._has_header:
            self._has_header = True
            names = self._head(strong("offset"), strong("time (UTC)"), strong("transaction"))
            yield from self._row(names, strong("key"), strong("value"))
        for row in rows:
            yield from self._damage(row) if isinstance(row, Damage) else self._record(row)

    def _measure(self, rows: Sequence[RecordRow]) -> None:
        for row in rows:
            self._offset = max(self._offset, len(str(row.record.offset)))
            if row.producer_id is not None and row.control is None:
                self._txn = max(self._txn, len("transaction"), columns_of(_txn(row)))
        for row in rows:
            self._key = max(self._key, min(self._most_key, columns_of(self._key_text(row))))

    @property
    def _before(self) -> int:
        """The columns in front of the key."""
        return self._offset + 2 + _TIME + 2 + (self._txn + 2 if self._txn else 0)

    @property
    def _indent(self) -> int:
        """The column at which the key begins."""
        return _INDENT if self._is_stacked else self._before

    @property
    def _is_stacked(self) -> bool:
        return self._style.columns is not None and self._style.columns - self._before < _LEAST_CONTENT

    @property
    def _most_key(self) -> int:
        columns = self._style.columns
        return _MOST_KEY if columns is None else min(_MOST_KEY, (columns - self._indent) // 2)

    def _head(self, offset: str, time: str, txn: str) -> str:
        txns = [padded(txn, self._txn)] if self._txn else []
        return "  ".join([padded(offset, self._offset, right=True), padded(time, _TIME), *txns])

    def _row(self, head: str, key: str, value: str) -> Iterator[str]:
        content = f"{padded(key, self._key)}  {value}".rstrip(" ")
        if self._is_stacked:
            yield head.rstrip(" ")
            yield " " * _INDENT + content
        else:
            yield f"{head}  {content}"

    def _beside(self, head: str, text: str) -> list[str]:
        """Return *text* on the line of *head*, if the screen has room for both."""
        line, columns = f"{head}  {text}", self._style.columns
        return [line] if columns is None or columns_of(line) <= columns else []

    def _record(self, row: RecordRow) -> Iterator[str]:
        record = row.record
        time = "-" if record.timestamp == -1 else time_text(record.timestamp)
        if row.control is not None:
            of = "" if row.producer_id is None else f" of producer {row.producer_id}"
            head, text = self._head(str(record.offset), time, ""), f"-- {row.control}{of} --"
            yield from map(
                faint, self._beside(head, text) or self._beside(head.rstrip(" "), text) or [head, f"    {text}"]
            )
            return
        columns, indent = self._style.columns, self._indent + self._key + 2
        key = cut(self._key_text(row), self._key)
        first, *others = self._value(row, None if columns is None else columns - indent)
        head = self._head(str(record.offset), time, "" if row.producer_id is None else _txn(row))
        is_faint = row.outcome is TxnOutcome.ABORTED
        yield from (faint(line) if is_faint else line for line in self._row(head, key, first))
        yield from (" " * indent + other for other in others)
        headers = [f"{_escaped(name)}={'null' if value is None else _escaped(value)}" for name, value in record.headers]
        headers += [] if row.has_all_headers else ["more headers than klog takes: klog dump -o jsonl has them"]
        if headers:
            text = " " * self._indent + "headers  " + "  ".join(headers)
            yield faint(text if columns is None else cut(text, columns))

    def _key_text(self, row: RecordRow) -> str:
        key = shown_key(row, self._style.key)
        return "null" if key is None else _one_line(self._style.key.text(key, _MOST_KEY + 1))

    def _value(self, row: RecordRow, room: int | None) -> list[str]:
        """Return the lines of the value: one, unless it is indented."""
        value = shown_value(row, self._style.value)
        if value is None:
            return [f"null  {faint('tombstone')}"]
        text = self._style.value.text(value, None if room is None else room + 1)
        if self._style.value.is_indented and "\n" in text:
            return text.split("\n")
        return [_one_line(text) if room is None else cut(_one_line(text), room)]

    def _damage(self, found: Damage) -> Iterator[str]:
        place = found.place
        where = place.file if place.position is None else f"{place.file} @ {place.position}"
        line = bad(f"{found.kind.value}: {where}: {found.detail}")
        yield from [line] if self._style.columns is None else wrap_line(line, self._style.columns)
        if place.position is not None:
            yield style.command(f"klog bytes {quote(place.file)} --position {place.position}")


def shown_key(row: RecordRow, style: ValueStyle) -> bytes | None:
    """Return the key of a record, decoded or as it is; None for null."""
    return row.record.key if row.decoded is None else style.chosen(row.record.key, row.decoded[0])


def shown_value(row: RecordRow, style: ValueStyle) -> bytes | None:
    """Return the value of a record, decoded or as it is; None for null."""
    return row.record.value if row.decoded is None else style.chosen(row.record.value, row.decoded[1])


def heading(name: str, offsets: str) -> str:
    """Return the line above the records of a partition: its name, and at the right its offsets."""
    space = max(2, output.width() - columns_of(name) - columns_of(offsets))
    return f"{strong(name)}{' ' * space}{faint(offsets)}".rstrip(" ") if offsets else strong(name)


def _txn(row: RecordRow) -> str:
    text = f"txn {row.producer_id}"
    if row.outcome is TxnOutcome.COMMITTED:
        return text
    return f"{text} {bad('aborted') if row.outcome is TxnOutcome.ABORTED else warning('open')}"


def _one_line(text: str) -> str:
    """Return *text* as it is shown: control characters are escapes, line ends too."""
    return output.printable(text)


def _escaped(data: bytes) -> str:
    return _one_line(data.decode("utf-8", "backslashreplace"))
