"""Runs a klog command in a process of its own, so that its screen shows what the command prints, and Esc ends it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Sequence

from klog_cli import output

_LINES = 50
_ITSELF = "/proc/self/exe"


class CommandRun:
    """One run of `klog` with *words* as arguments."""

    def __init__(self, words: Sequence[str]) -> None:
        self._command = [*_klog(), *words]
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cancelled = False
        self.errors = b""
        """The lines for stderr, once the command has ended."""

    def cancel(self) -> None:
        """End the command."""
        self._is_cancelled = True
        if self._process is not None:
            self._process.kill()

    def on_terminal(self, columns: int, take: Callable[[bytes], bool]) -> int:
        """Run it as on a terminal with so many columns; return the exit code.

        *take* receives the output in parts, and returns False to end the command.
        """
        parent, child = pty.openpty()
        try:
            fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, columns, 0, 0))
            process = self._start(child)
        finally:
            os.close(child)
        reader = threading.Thread(target=self._read_errors, args=(process,), daemon=True)
        reader.start()
        try:
            while data := _read(parent):
                if not take(data):
                    self.cancel()
                    break
        finally:
            os.close(parent)
        reader.join()
        return process.wait()

    def in_pipe(self) -> tuple[int, bytes]:
        """Run it into a pipe; return the exit code and the output."""
        process = self._start(subprocess.PIPE)
        found, self.errors = process.communicate()
        return process.returncode, found

    def _start(self, stdout: int) -> subprocess.Popen[bytes]:
        more = {} if output.takes_colour() else {"NO_COLOR": "1"}
        folders = os.pathsep.join(folder for folder in sys.path if folder)
        environment = os.environ | more | {"PYTHONPATH": folders}
        process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, env=environment
        )
        self._process = process
        if self._is_cancelled:
            process.kill()
        return process

    def _read_errors(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stderr is not None
        with process.stderr:
            self.errors = process.stderr.read()


def _klog() -> list[str]:
    """Return the beginning of a command that starts this klog; the one file has no Python and starts itself."""
    if __spec__.origin != "frozen":
        return [sys.executable, "-m", "klog_cli.app"]
    return [_ITSELF if os.path.exists(_ITSELF) else sys.argv[0]]


def _read(descriptor: int) -> bytes:
    """Return a part of the output; empty at its end, where Linux has an error."""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""
