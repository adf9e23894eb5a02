"""Lines of files that users name: each has a bound, for a file may be /dev/zero."""

from __future__ import annotations

from collections.abc import Iterator
from io import BufferedReader

from klog.base.errors import UsageError


def input_lines(file: BufferedReader, name: str, longest: int) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of the lines of *file*, without their ends.  *name*: of the file, for messages.

    Raises UsageError for a line of more than *longest* bytes.
    """
    number = 0
    while line := file.readline(longest + 3):
        number += 1
        content = line.rstrip(b"\r\n")
        if len(content) > longest:
            raise UsageError(f"{name}, line {number}: longer than {longest} bytes")
        yield number, content
