"""Runs of klog on a pseudo-terminal of a given size: in this process, and programs that are steered with keys."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from klog_cli import progress

from tests.conftest import klog_main, text_stream

COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""The only sequences that klog sends to a terminal, but for those of the progress bar."""
_NAMES = {"0": "", "1": "bold", "2": "dim", "31": "red", "32": "green", "33": "yellow", "36": "cyan"}
_PATIENCE_S = 30


SCREENS = Path(__file__).parent.parent / "cli" / "screens"


def check_screen(name: str, seen: str) -> None:
    """Compare *seen* with the golden file; `KLOG_SCREENS=write` writes it anew: read the change like code."""
    golden = SCREENS / f"{name}.txt"
    if os.environ.get("KLOG_SCREENS") == "write":
        golden.write_text(seen)
    assert seen == golden.read_text()


class Screen(NamedTuple):
    """*text*: what the terminal was sent, with colour codes and `\\n` as the end of a line."""

    text: str
    exit_code: int

    @property
    def plain(self) -> str:
        """The text without colours."""
        return COLOURS.sub("", self.text)

    @property
    def marked(self) -> str:
        """The text with the names of colours, as `[red]lost[]`: a golden file of it can be read."""
        return COLOURS.sub(lambda code: f"[{_NAMES[code[0][2:-1]]}]", self.text)


def on_screen(*words: str | os.PathLike[str], columns: int = 80, rows: int = 24, colours: bool = True) -> Screen:
    """Run the command line with stdout and stderr on a terminal of *columns* and *rows*; no progress bar is drawn."""
    environment = {"TERM": "xterm-256color", "COLUMNS": "", "NO_COLOR": "" if colours else "1"}
    sent: list[bytes] = []
    code: object = None
    with (
        patch.dict(os.environ, environment),
        patch.object(progress, "_PATIENCE_SECONDS", 1e9),
        _screen(columns, rows, sent),
        patch.object(sys, "argv", ["klog", *map(os.fspath, words)]),
    ):
        try:
            code = klog_main()()
        except SystemExit as left:
            code = left.code
    assert code is None or isinstance(code, int), f"klog left with {code!r}"
    return Screen(b"".join(sent).decode(), code or 0)


@contextmanager
def _screen(columns: int, rows: int, sent: list[bytes]) -> Iterator[None]:
    """Make descriptors 1 and 2 a terminal; what it is sent is added to *sent*."""
    mine, theirs = pty.openpty()
    tty.setraw(theirs)
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    reader = threading.Thread(target=_drain, args=(mine, sent))
    reader.start()
    before, saved = (sys.stdout, sys.stderr), [os.dup(1), os.dup(2)]
    for number in (1, 2):
        os.dup2(theirs, number)
    os.close(theirs)
    sys.stdout, sys.stderr = text_stream(1), text_stream(2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        sys.stdout, sys.stderr = before
        for number, descriptor in enumerate(saved, start=1):
            os.dup2(descriptor, number)
            os.close(descriptor)
        reader.join()
        os.close(mine)


def _drain(descriptor: int, sent: list[bytes]) -> None:
    while True:
        try:
            piece = os.read(descriptor, 1 << 16)
        except OSError:  # EIO: all ends of the terminal are closed
            return
        if not piece:
            return
        sent.append(piece)


def press_in_terminal(
    command: Sequence[str],
    keys: Sequence[tuple[bytes, bytes]],
    environment: Mapping[str, str] = os.environ,
    size: tuple[int, int] = (80, 24),
) -> tuple[bytes, int]:
    """Run a program in a terminal of so many columns and lines; return its output and its exit code.

    *keys*: texts, and the keys to press once the output has each of them, in this order.
    """
    process, terminal = pty.fork()
    if process == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        os.execvpe(command[0], command, {**environment, "TERM": "xterm-256color"})
    seen, rest, end = b"", list(keys), time.monotonic() + _PATIENCE_S
    while True:
        if time.monotonic() > end:
            os.kill(process, signal.SIGKILL)
        if rest and rest[0][0] in seen:
            os.write(terminal, rest.pop(0)[1])
        if not select.select([terminal], [], [], 0.2)[0]:
            continue
        try:
            seen += os.read(terminal, 1 << 16)
        except OSError:  # EIO: the program has ended
            break
    code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os.close(terminal)
    return seen, code
