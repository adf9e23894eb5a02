"""Records from outside: JSON lines and CSV, in the form in which `klog dump` prints them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, Protocol

from klog.base.errors import KlogError
from klog.kernel import InputRecords, RecordLines

_MOST_LINE_BYTES: Final = 256 << 20
_MOST_COLUMNS: Final = 256


class ByteSource(Protocol):
    """Bytes in their order."""

    def read_into(self, buffer: memoryview) -> int:
        """Read the next bytes; return how many, 0 at the end.  Raises OSError, UnreadableError."""


class DescriptorSource:
    """The bytes of an open descriptor: a pipe, or the terminal."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read_into(self, buffer: memoryview) -> int:
        """Read the next bytes."""
        return os.readv(self._descriptor, [buffer])


def json_records(source: ByteSource, name: str) -> Iterator[InputRecords]:
    """Yield the records of JSON lines, some at a time: each time the same rows, refilled.

    Raises KlogError for a line that is too long.
    """
    yield from _records(RecordLines(), source, name)


def csv_records(source: ByteSource, name: str) -> Iterator[InputRecords]:
    """Yield the records of a CSV file, whose first line names the columns; the same rows each time.

    Raises KlogError for a file without such a line, for one that is too long, and for a quote without end.
    """
    head = bytearray()
    buffer = memoryview(bytearray(1 << 16))
    while b"\n" not in head and len(head) < 1 << 20:
        size = source.read_into(buffer)
        if not size:
            break
        head += buffer[:size]
    first, found, rest = bytes(head).partition(b"\n")
    columns = [column.strip().strip(b'"') for column in first.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r").split(b",")]
    if not found or b"value" not in columns:
        raise KlogError(f"{name}, line 1: expected the names of columns, as 'klog dump --output csv' prints them")
    twice = [column.decode("utf-8", "replace") for column in {*columns} if column and columns.count(column) > 1]
    if twice or len(columns) > _MOST_COLUMNS:
        what = f"there are 2 columns {min(twice)}" if twice else f"{len(columns)} columns, and {_MOST_COLUMNS} at most"
        raise KlogError(f"{name}, line 1: {what}")
    lines = RecordLines(columns, max(1 << 20, 2 * len(rest)), 1)
    lines.buffer()[: len(rest)] = rest
    lines.loaded(len(rest)) if rest else None
    yield from _records(lines, source, name)


def _records(lines: RecordLines, source: ByteSource, name: str) -> Iterator[InputRecords]:
    while True:
        while lines.parse():
            yield lines
        if lines.unfinished > _MOST_LINE_BYTES:
            raise KlogError(f"{name}, line {lines.lines + 1}: a line of more than {_MOST_LINE_BYTES >> 20} MiB")
        size = source.read_into(lines.buffer())
        lines.loaded(size)
        if not size:
            while lines.parse():
                yield lines
            if lines.unfinished:
                raise KlogError(f"{name}, line {lines.lines + 1}: a quote that begins there has no end")
            return
