"""`klog bytes`, and the line with which other commands name it."""

from __future__ import annotations


def see_bytes(path: str, *, offset: int | None = None, position: int | None = None) -> str:
    """Return the command that shows the bytes of a batch: that with *offset*, or the one at *position* of a file."""
    from shlex import quote

    from klog_cli import output, style

    place = f"--offset {offset}" if offset is not None else f"--position {position}"
    return style.command(output.printable(f"klog bytes {quote(path)} {place}"))
