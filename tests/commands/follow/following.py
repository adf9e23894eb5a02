"""`klog follow` as a process, and what its copies have to be compared with."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.conftest import Ran, run_klog_process

PATIENCE_S = 90.0
Row = dict[str, Any]


def follow(bootstrap: str, copy: Path, *words: str | Path) -> Ran:
    """Run until it has caught up."""
    return run_klog_process("follow", bootstrap, "--to", copy, *words)


def followed(bootstrap: str, copy: Path, *words: str | Path, exit_code: int = 0) -> dict[str, Row]:
    """Run until it has caught up; return the partitions by name, with the backups as `backups` of each."""
    ran = follow(bootstrap, copy, "--output", "json", *words)
    assert ran.exit_code == exit_code, ran
    told = json.loads(ran.stdout)
    rows = {f"{row['topic']}-{row['partition']}": row for row in told["partitions"]}
    return {name: row | {"backups": told["backups"], "said": ran.stderr.decode()} for name, row in rows.items()}


class Following:
    """`klog follow … --continuous --trace` as a process, in the background; *said*: stderr, *traced*: stdout."""

    def __init__(
        self, bootstrap: str, copy: Path, *words: str | Path, trace: bool = True, continuous: bool = True
    ) -> None:
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        # The parent may ignore ^C, as shells let programs in the background do; that would be inherited.
        start = "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
        start += "from klog_cli.app import main\nsys.exit(main())"
        command = [sys.executable, "-c", start, "follow", bootstrap, "--to", str(copy)]
        command += ["--continuous"] * continuous + ["--trace"] * trace + ["--max-wait", "100ms", *map(str, words)]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)
        self._lines: dict[str, list[str]] = {"stdout": [], "stderr": []}
        self._readers = [threading.Thread(target=self._read, args=(name,), daemon=True) for name in self._lines]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str) -> None:
        with getattr(self.process, name) as pipe:
            for line in pipe:
                self._lines[name].append(line)

    @property
    def traced(self) -> str:
        return "".join(self._lines["stdout"])

    @property
    def said(self) -> str:
        return "".join(self._lines["stderr"])

    def wait_for(
        self, pattern: str, where: Callable[[Following], str] = lambda one: one.traced, times: int = 1
    ) -> None:
        """Wait until *pattern* was printed so many *times*."""
        until = time.monotonic() + PATIENCE_S
        while len(re.findall(pattern, where(self), re.MULTILINE)) < times:
            assert self.process.poll() is None, (self.process.returncode, self.said)
            assert time.monotonic() < until, f"no {pattern}: {self.said}\n{self.traced[-2000:]}"
            time.sleep(0.05)

    def end(self, number: signal.Signals = signal.SIGTERM, seconds: float = 20.0) -> int:
        """Send a signal; return the exit code."""
        self.process.send_signal(number)
        code = self.process.wait(seconds)
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return code

    def __enter__(self) -> Following:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)
        for reader in self._readers:
            reader.join(PATIENCE_S)


def batches(partition: Path) -> bytes:
    """Return the batches of a partition directory, of all its segments."""
    return b"".join(path.read_bytes() for path in sorted(partition.glob("*.log")))


def marks(copy: Path) -> dict[str, tuple[int, int]]:
    """Return inode and time of each file below *copy* that a run may rewrite only when there is something new."""
    found = {}
    for path in sorted(copy.rglob("*")):
        if path.is_file() and path.name not in ("klog-follow.json", ".lock"):
            status = path.stat()
            found[str(path.relative_to(copy))] = status.st_ino, status.st_mtime_ns
    return found
