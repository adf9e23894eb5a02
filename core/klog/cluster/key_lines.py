"""Keys from a file, one a line: as JSON lines with their partitions, or one after the other.

A line ends with LF or CR LF, the last one perhaps with neither: a key that ends in CR needs another form than text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from io import BufferedReader
from typing import Final

from klog.base.errors import UsageError
from klog.cluster.partitioners import Partitioner
from klog.kernel import KEY_FORMS, KeyLines, read_key

MOST_KEY_BYTES: Final = 16 << 20
"""A longer line is refused, so that memory stays bounded; by default producers send a record of 1 MiB at most."""
_FIRST_BYTES: Final = 1 << 20
_EXPECTED: Final = {
    "hex": "pairs of hexadecimal digits",
    "base64": "base64 with its padding",
    "int32": "a number from -2147483648 to 2147483647",
    "int64": "a number from -9223372036854775808 to 9223372036854775807",
}
_SHOWN: Final = 60


def key_of(text: bytes, form: str, where: str) -> bytes:
    """Return the key that *text* represents in *form*, one of KEY_FORMS.  Raises UsageError with the place *where*."""
    key = read_key(text, KEY_FORMS.index(form))
    if key is None:
        raise _not_a_key(text, form, where)
    return key


def _not_a_key(text: bytes, form: str, where: str) -> UsageError:
    shown = text[:_SHOWN].decode("utf-8", "backslashreplace") + ("…" if len(text) > _SHOWN else "")
    return UsageError(f"{where}: {shown!r} is no {form}: expected {_EXPECTED[form]}")


def keys_in(file: BufferedReader, form: str, name: str) -> Iterator[bytes]:
    """Yield the keys of a file's lines.  *name*: of the file, for messages.  Raises UsageError, OSError."""
    number = 0
    while line := file.readline(MOST_KEY_BYTES + 3):
        number += 1
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if len(text) > MOST_KEY_BYTES:
            raise _too_long(name, number)
        yield key_of(text, form, f"{name}, line {number}")


def _too_long(name: str, number: int) -> UsageError:
    return UsageError(f"{name}, line {number}: longer than {MOST_KEY_BYTES >> 20} MiB")


def json_lines_of(partitioners: Sequence[Partitioner], partitions: int, form: str) -> KeyLines:
    """Return a formatter of JSON lines with keys in *form*, and their partitions of so many *partitions*."""
    members = []
    for number, one in enumerate(partitioners):
        name = ("," if number else "") + json.dumps(one.name) + ":"
        members.append((name.encode(), one.rule, one.partition(b"", partitions)))
    return KeyLines(partitions, members, KEY_FORMS.index(form))


def write_json_lines(
    file: BufferedReader, lines: KeyLines, form: str, name: str, write: Callable[[memoryview], object]
) -> None:
    """Write a line for each key of *file*.  *name*: of it, for messages.  Raises UsageError, OSError."""
    buffer, filled, last = bytearray(_FIRST_BYTES), 0, False
    while not last:
        if filled == len(buffer):
            buffer += bytes(min(filled, MOST_KEY_BYTES + 3 - filled))
        read = file.readinto1(memoryview(buffer)[filled:])
        last, filled, at = not read, filled + read, 0
        if filled > MOST_KEY_BYTES and len(_first_line(buffer, filled)) > MOST_KEY_BYTES:
            raise _too_long(name, lines.lines + 1)
        while True:
            with memoryview(buffer)[:filled] as data:
                at = lines.take(data, at, last)
            waiting = lines.output()
            if not len(waiting):
                break
            write(waiting)
            waiting.release()
            lines.flushed()
        if lines.bad:
            raise _not_a_key(_first_line(buffer[at:], filled - at), form, f"{name}, line {lines.lines + 1}")
        buffer[: filled - at] = buffer[at:filled]
        filled -= at


def _first_line(buffer: bytearray, filled: int) -> bytes:
    """Return the first line of the *filled* bytes of *buffer*, or its beginning."""
    end = buffer.find(b"\n", 0, filled)
    return bytes(buffer[: filled if end < 0 else end]).removesuffix(b"\r")
