"""A JSON object with one array, made of JSON lines."""

from __future__ import annotations

from collections.abc import Callable


class JsonArray:
    """Makes the member *name* of an object of JSON lines, and hands its bytes to *write*."""

    def __init__(self, name: str, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._is_open = self._has_lines = False
        write(f'{{"{name}": [\n'.encode())

    def take(self, content: bytes) -> None:
        """Take lines; the content may begin and end within one."""
        if not content:
            return
        ended, body = content.endswith(b"\n"), content.removesuffix(b"\n").replace(b"\n", b",\n")
        self._write(b",\n" * self._is_open + body)
        self._is_open, self._has_lines = ended, True

    def close(self) -> None:
        """End the array and the object."""
        self._write(b"\n" * self._has_lines + b"]}\n")
