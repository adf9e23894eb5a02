"""Prints the figures of docs/neighbour.md: `python -m tests.neighbour [pages] [broker] [--klog COMMAND]…`.

As root, with 8 GB of free disk; `broker` takes about four minutes for each klog, and needs Java 17 and Maven.
"""

from __future__ import annotations

import argparse
import fcntl
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

from tests.neighbour.load import BROKER_SIZES, ROUNDS, SECONDS, beside
from tests.neighbour.logs import make_log_dir
from tests.neighbour.pages import KLOG, LARGE, MIB, kept_beside
from tests.neighbour.test_page_cache import COMMANDS


def main() -> None:
    ask = argparse.ArgumentParser(prog="python -m tests.neighbour")
    ask.add_argument("figures", nargs="*", default=["pages", "broker"], help="pages, broker; all if none is named")
    ask.add_argument("--klog", action="append", help="a klog to measure, with its words (repeatable); this one")
    ask.add_argument("--folder", type=Path, default=Path("/var/tmp"), help="where the disk is")
    given = ask.parse_args()
    klogs = {each: shlex.split(each) for each in given.klog or []} or {"klog": list(KLOG)}
    with tempfile.TemporaryDirectory(dir=given.folder) as name:
        size = BROKER_SIZES.data if "broker" in given.figures else LARGE.data
        data = make_log_dir(Path(name, "data"), size)
        with open(data / ".lock", "r+") as lock:
            fcntl.lockf(lock, fcntl.LOCK_EX)
            if "pages" in given.figures:
                _pages(data, klogs)
            if "broker" in given.figures:
                _broker(Path(name), data, klogs)


def _pages(data: Path, klogs: Mapping[str, Sequence[str]]) -> None:
    for command, options in COMMANDS.items():
        words = [command.split()[0], data, *options.split()]
        for name, klog in klogs.items():
            kept = kept_beside(words, data, LARGE, klog=klog)
            told = f"{100 * kept.broker:5.1f} % of the broker's pages left, {kept.own // MIB:5} MiB of klog's own"
            print(f"{command:18}  {told}  exit {kept.exit_code}  {name}", flush=True)


def _broker(folder: Path, data: Path, klogs: Mapping[str, Sequence[str]]) -> None:
    print(f"medians of {ROUNDS} rounds of {SECONDS} s")
    for name, phases in beside(folder / "broker", data, {k: [*klogs[k], "verify", data] for k in klogs}).items():
        disk, produce, fetch, runs = (median(values) for values in zip(*phases, strict=True))
        print(
            f"{name:20}  disk {disk / MIB:6.1f} MiB  p99 of produce {produce:6.1f} ms, fetch {fetch:6.1f} ms"
            f"  {runs:.0f} runs\n    {[tuple(round(value) for value in phase) for phase in phases]}"
        )


if __name__ == "__main__":
    main()
