"""Another version of klog, measured in the same run: built beside the corpora, and raced command by command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from bench.installed import ROOT, NotInstalledError
from bench.jobs import Bench
from bench.measure import Command, Race
from bench.table import Row

_BUILD = "from setuptools import setup; setup()"


class Version(NamedTuple):
    """A version of klog: its commit, its interpreter, and the command line that starts it."""

    commit: str
    python: str
    klog: list[str]


def built(commit: str, data: str, tell: Callable[[str], None]) -> Version:
    """Return klog as of *commit*, built under *data* the first time, with the packages of this interpreter."""
    name = _output(["git", "-C", ROOT, "rev-parse", "--short=12", f"{commit}^{{commit}}"])
    folder = os.path.join(data, f"klog-{name}")
    python = os.path.join(folder, ".venv", "bin", "python")
    if not os.path.isdir(folder):
        unfinished = f"{folder}.making"
        shutil.rmtree(unfinished, ignore_errors=True)
        os.makedirs(unfinished)
        _output(["sh", "-c", 'git -C "$1" archive "$2" | tar -x -C "$3"', "sh", ROOT, name, unfinished])
        os.rename(unfinished, folder)
    if not os.path.exists(python):
        _output([sys.executable, "-m", "venv", "--without-pip", os.path.join(folder, ".venv")])
    site = _output([python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])"])
    paths = [os.path.join(folder, "core"), os.path.join(folder, "cli")]
    with open(os.path.join(site, "klog.pth"), "w", encoding="utf-8") as file:
        file.writelines(f"{path}\n" for path in [*paths, *(path for path in sys.path if "site-packages" in path)])
    if not any(file.endswith(".so") for file in os.listdir(os.path.join(folder, "core", "klog", "kernel"))):
        tell(f"building klog of {name} (once, about a minute)")
        _output([python, "-c", _BUILD, "build_ext", "--inplace"], folder)
    _output([python, "-m", "compileall", "-q", *paths])
    return Version(name, python, [_script(python)])


def _script(python: str) -> str:
    """Return a console script for that interpreter, as an installation writes it."""
    path = os.path.join(os.path.dirname(python), "klog")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#!{python}\nimport re\nimport sys\nfrom klog_cli.app import main\n")
        file.write("if __name__ == '__main__':\n    sys.exit(main())\n")
    os.chmod(path, 0o755)
    return path


def _output(words: Sequence[str], folder: str | None = None) -> str:
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise NotInstalledError(f"{' '.join(words)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


class Pair:
    """A job, done for two versions in step: races that both reach are run as one, so that both meet the same weather.

    Only one side runs at a time.  *ours* starts; its race waits until the other side has reached its own.
    """

    def __init__(self, ours: Bench, theirs: Bench, python: str) -> None:
        self._benches = [replace(ours, run=self._first), replace(theirs, run=self._second)]
        self._python = python
        self._changed = threading.Condition()
        self._turn = 0
        self._over = [False, False]
        self._waiting: tuple[Mapping[str, Command], int] | None = None
        self._result: Race | None = None

    def measured(self, job: Callable[[Bench], list[Row]]) -> tuple[list[Row], list[Row]]:
        """Return the rows of *job* for our version and for the other."""
        rows: list[list[Row]] = [[], []]

        def side(number: int) -> None:
            try:
                self._wait_for(number)
                rows[number] = job(self._benches[number])
            finally:
                self._over[number] = True
                self._give(1 - number)

        other = threading.Thread(target=side, args=(1,), daemon=True)
        other.start()
        side(0)
        other.join()
        return rows[0], rows[1]

    def _wait_for(self, number: int) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._turn == number or self._over[1 - number])

    def _give(self, number: int) -> None:
        with self._changed:
            self._turn = number
            self._changed.notify_all()

    def _first(
        self, commands: Mapping[str, Command], rounds: int, over: str | Sequence[str], tell: Callable[[str], None]
    ) -> Race:
        self._waiting, self._result = (commands, rounds), None
        self._give(1)
        self._wait_for(0)
        if self._result is None:  # the other side has ended without a race of its own
            self._waiting = None
            return Race(commands, rounds, over, tell)
        return self._result

    def _second(
        self, commands: Mapping[str, Command], rounds: int, over: str | Sequence[str], tell: Callable[[str], None]
    ) -> Race:
        theirs = {name: self._theirs(command) for name, command in commands.items()}
        if self._waiting is None:
            return Race(theirs, rounds, over, tell)
        ours, _ = self._waiting
        self._waiting = None
        both: dict[str, Command] = {}
        shared = {name: name if ours.get(name) == command else f"{name}, other" for name, command in theirs.items()}
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            both |= {name: ours[name]} if name in ours else {}
            both |= {shared[name]: theirs[name]} if name in theirs else {}
        race = Race(both, rounds, over, tell)
        self._result = race.part({name: name for name in ours})
        self._give(0)
        self._wait_for(1)
        return race.part(shared)

    def _theirs(self, command: Command) -> Command:
        """Return the command with the other version's interpreter where ours runs klog's library."""
        words = command.words
        is_library = list(words[:2]) == [sys.executable, "-c"] and "klog" in words[2]
        return replace(command, words=[self._python, *words[1:]]) if is_library else command


def compared(ours: Sequence[Row], theirs: Sequence[Row], commit: str) -> list[Row]:
    """Return a row for each of both versions: the new value over the old, turned so that more is better."""
    rows = []
    for now, then in zip(ours, theirs, strict=True):
        told = f"{now.measured}; {commit}: {then.measured}"
        if now.value is None or then.value is None or min(now.value, then.value) <= 0:
            rows.append(Row(now.job, told, None))
        elif now.at_least is None and now.at_most is None:
            rows.append(Row(now.job, told, now.value / then.value, "× the value"))
        else:
            better = now.value / then.value if now.at_least is not None else then.value / now.value
            rows.append(Row(now.job, told, better, "× as good", at_least=0.95))
    return rows
