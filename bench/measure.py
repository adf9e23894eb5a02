"""Running commands and counting their cost.

CPU seconds are those of the whole process (wait4): start, garbage collector and compiler threads included.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

MIB = 1 << 20


class CommandFailedError(Exception):
    """A measured command ended with an exit code that it should not have."""


@dataclass(frozen=True)
class Cost:
    """The cost of one run of a command; *output* is its output if the sink was ``capture``."""

    cpu_s: float
    wall_s: float
    peak_bytes: int
    output: str


@dataclass(frozen=True)
class Command:
    """A command to measure.

    *sink* is the destination of its standard output: ``null``, ``file`` (at *target*), ``pipe`` (into ``cat``, whose
    CPU seconds count as well) or ``capture``.  *target* is removed before each run.  *at_most* limits its rounds, for
    commands that take long.  *codes*: exit codes with which it has done its work.  *cold*: files that are dropped from
    the page cache before each run.
    """

    words: Sequence[str]
    sink: str = "capture"
    target: str = ""
    at_most: int = 1000
    codes: tuple[int, ...] = (0,)
    cold: tuple[str, ...] = ()


def run(command: Command) -> Cost:
    """Run *command* once.  CommandFailedError when it does not exit as it should."""
    if command.target:
        discard(command.target)  # emptying an old file would be charged to the command
    for file in command.cold:
        forget(file)
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as captured:
        began = time.perf_counter()
        usages = _finish(command, captured, errors)
        wall_s = time.perf_counter() - began
        for status, _ in usages:
            code = os.waitstatus_to_exitcode(status)
            if code not in command.codes:
                errors.seek(0)
                last_words = errors.read()[-600:].decode(errors="replace").strip()
                raise CommandFailedError(f"exit {code} of {' '.join(command.words)}: {last_words}")
        captured.seek(0)
        return Cost(
            cpu_s=sum(usage.ru_utime + usage.ru_stime for _, usage in usages),
            wall_s=wall_s,
            # Kibibytes on Linux. The kernel counts the forking parent's memory in, so this process must stay small.
            peak_bytes=usages[0][1].ru_maxrss * 1024,
            output=captured.read().decode(),
        )


def _finish(command: Command, captured: object, errors: object) -> list[tuple[int, resource.struct_rusage]]:
    """Start *command* on its sink, wait, and return status and usage: its own first, then the reader's of a pipe."""
    null = os.open(os.devnull, os.O_RDWR)
    ends = [null]
    processes: list[subprocess.Popen[bytes]] = []

    def start(words: Sequence[str], stdin: int, stdout: object) -> None:
        processes.append(subprocess.Popen(words, stdin=stdin, stdout=stdout, stderr=errors))  # type: ignore[call-overload]

    try:
        if command.sink == "pipe":
            read_end, write_end = os.pipe()
            ends += [read_end, write_end]
            start(command.words, null, write_end)
            start(["cat"], read_end, null)
        elif command.sink == "file":
            ends.append(os.open(command.target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
            start(command.words, null, ends[-1])
        else:
            start(command.words, null, null if command.sink == "null" else captured)
    finally:
        for end in ends:
            os.close(end)
    return [_reap(process) for process in processes]


def _reap(process: subprocess.Popen[bytes]) -> tuple[int, resource.struct_rusage]:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return status, usage


def discard(path: str) -> None:
    """Remove *path*, a file or a folder, if it is there."""
    if os.path.isdir(path):
        shutil.rmtree(path)
    elif os.path.exists(path):
        os.unlink(path)


class Race:
    """Several commands, run in turn round after round so that all meet the same weather, and the cost of each.

    The files *over* which they run are dropped from the page cache, and read from beginning to end before each round.
    A file that was cached in another way is there in small pieces, and reading it takes up to three times as long; and
    it may leave the cache between two rounds.
    """

    def __init__(
        self, commands: Mapping[str, Command], rounds: int, over: str | Sequence[str], tell: Callable[[str], None]
    ) -> None:
        self._costs: dict[str, list[Cost]] = {name: [] for name in commands}
        files = [over] if isinstance(over, str) else over
        for file in files:
            forget(file)
        for turn in range(rounds):
            for file in files:
                warm(file)
            # Every other round runs backwards, so that no contestant always follows the same neighbour.
            for name, command in list(commands.items())[:: -1 if turn % 2 else 1]:
                if turn < command.at_most:
                    tell(f"round {turn + 1} of {rounds}: {name}")
                    self._costs[name].append(run(command))

    def part(self, names: Mapping[str, str]) -> Race:
        """Return a race of some of the commands, each under another name (*names*: by the new one)."""
        race = object.__new__(Race)
        race._costs = {name: self._costs[of] for name, of in names.items()}
        return race

    def cpu_s(self, name: str) -> float:
        """Return the median of the CPU seconds of *name*."""
        return median(cost.cpu_s for cost in self._costs[name])

    def best_wall_s(self, name: str) -> float:
        """Return the shortest wall time of *name*."""
        return min(cost.wall_s for cost in self._costs[name])

    def peak_bytes(self, name: str) -> int:
        """Return the largest resident size that *name* ever had."""
        return max(cost.peak_bytes for cost in self._costs[name])

    def runs(self, name: str) -> int:
        """Return how often *name* ran."""
        return len(self._costs[name])

    def output(self, name: str) -> str:
        """Return what *name* printed in its last run, without the line's end."""
        return self._costs[name][-1].output.strip()

    def number(self, name: str) -> float:
        """Return the median of the number that *name* printed last on its line, run after run."""
        return median(float(cost.output.split()[-1]) for cost in self._costs[name])


def forget(path: str) -> None:
    """Drop *path* from the page cache, as far as the system does that."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)  # only synced data is dropped
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def warm(path: str) -> None:
    """Bring *path* into the page cache."""
    window = bytearray(MIB)
    with open(path, "rb", buffering=0) as file:
        while file.readinto(window):
            pass


def count_lines(path: str) -> int:
    """Return the number of line ends in *path*."""
    lines = 0
    window = bytearray(MIB)
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(window):
            lines += window.count(b"\n", 0, size)
    return lines
