"""Pictures of terminals, as SVG: klog runs in a pseudo-terminal over fixtures/, and its own colour codes are drawn."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import struct
import subprocess
import sys
import termios

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FIXTURES = os.path.join(ROOT, "fixtures")
HEIGHT = 50
"""Lines of the terminal."""
THEME = TerminalTheme(
    (30, 34, 39),
    (220, 223, 228),
    [
        *((92, 99, 112), (240, 113, 120), (152, 195, 121), (229, 192, 123)),
        *((110, 180, 245), (205, 140, 230), (86, 182, 194), (220, 223, 228)),
    ],
    [
        *((140, 147, 160), (255, 135, 142), (170, 215, 140), (240, 205, 140)),
        *((130, 195, 250), (220, 160, 240), (110, 200, 212), (255, 255, 255)),
    ],
)
"""Background, foreground, and the eight colours of a terminal, plain and bright."""
NOT_INHERITED = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "COLORTERM", "CI", "TERM")


def command(*words: str) -> list[str]:
    """Return the command line that runs this checkout's klog."""
    return [sys.executable, "-m", "klog_cli.app", *words]


def environment() -> dict[str, str]:
    """Return the environment of such a run, without the caller's settings for terminals."""
    inherited = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    return {**inherited, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TERM": "xterm-256color"}


def in_terminal(words: list[str], width: int) -> str:
    """Return the output of klog on a terminal with *width* columns, colour codes included.

    Raises RuntimeError if klog fails; findings, exit code 4, are no failure.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", HEIGHT, width, 0, 0))
    process = subprocess.Popen(
        command(*words),
        cwd=FIXTURES,
        env=environment(),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    with os.fdopen(ours, "rb", buffering=0) as terminal, process:
        printed = _read_all(terminal)
        _, errors = process.communicate(timeout=60)
    if process.returncode not in (0, 4):
        raise RuntimeError(f"klog {' '.join(words)}: {errors.decode()}")
    return printed.decode().replace("\r\n", "\n")


def _read_all(terminal: io.FileIO) -> bytes:
    """Read until the last process has closed its side, which Linux reports as an error."""
    printed = b""
    try:
        while piece := terminal.read(1 << 16):
            printed += piece
    except OSError:
        pass
    return printed


def picture(name: str, words: list[str], width: int) -> str:
    """Return a terminal with klog's command line and output, as SVG that names no font of another host."""
    console = Console(record=True, width=width, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ klog {' '.join(words)}", style="bold"))
    console.print(Text.from_ansi(in_terminal(words, width).rstrip()), "", sep="\n", highlight=False)
    drawn = console.export_svg(title="klog", unique_id=name, theme=THEME)
    return re.sub(
        r"@font-face\s*\{.*?\}\s*|<text [^>]*>\n</text>|<!--.*?-->| +$", "", drawn, flags=re.DOTALL | re.MULTILINE
    )
