"""Writes docs/tested.md from what a run of the tests counted: `make tested`.

    python -m tools.make_tested build/counts

Each figure is the sum of a count in that directory, which tests/support/counts.py writes; none is written by hand.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from klog import __version__

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "tested.md"
ALONE = "klog alone, and tools of the tests' own"
KINDS = {
    "alone": ALONE,
    "kafka": "beside real brokers, clients and Kafka's own tools",
    "corpora": "over the large corpora of data that real brokers wrote",
    "strace": "with system calls that fail",
    "fuse": "on a file system of the tests' own",
    "spark": "on Spark",
    "browser": "in a real browser",
    "release": "of the one static file, in a root that holds nothing else",
}
HEAD = """# What was tested

`make tested` runs the whole suite and writes this page; every figure was counted while the tests ran.
The suite takes samples of what `make test ARGS="-m long"` runs whole: cuts, kills and failing calls everywhere.

"""


class Part(NamedTuple):
    """A table: the counts whose names begin with *prefix*, and what one of them is."""

    title: str
    prefix: str
    about: str
    unit: str


_CUTS = """A change runs on a disk that loses its power before one of the calls. Then the disk shows what it kept, by
one of three models; the change must be finished or taken back, and nothing may be lost."""
_LOSSY = """Commands run, as they are, on a file system of the tests' own. Its power goes before one of the calls that
reach it; then it shows what was synced, and of the rest what one of four models leaves. The change must be finished or
taken back, and nothing may be lost."""
_CALLS = """A command that changes something runs, and one of its system calls fails. Exit code and message are right;
what was there before must be there, or come back by the command that the message names."""
PARTS = (
    Part("Tests", "tests that passed", "Tests that passed, by what they need.", "tests"),
    Part("Power cuts", "power cuts", _CUTS, "cuts"),
    Part("Power cuts on a file system that loses what was not synced", "cuts below klog", _LOSSY, "cuts"),
    Part("System calls that failed", "system calls that failed", _CALLS, "calls"),
    Part("Real brokers", "starts of real brokers", "Starts of brokers and controllers, by version of Kafka.", "starts"),
)
SINGLE = {
    "kills": "times a change was killed before a call",
    "refused calls": "calls of a change that a disk refused",
    "outputs of dump held against Kafka's tool": "outputs of `klog dump` that were compared with Kafka's",
    "mutated inputs of the kernel": "mutated batches and messages that the kernel read, compiled with sanitizers",
}
"""What stands in the list at the end, by the name of its count."""


def counted(folder: Path) -> Counter[str]:
    """Return the sums of all processes.  Raises SystemExit where there are none."""
    sums: Counter[str] = Counter()
    for file in folder.glob("*.json"):
        sums.update(json.loads(file.read_text()))
    if not sums:
        raise SystemExit(f"make_tested: {folder}: nothing was counted there")
    return sums


def page(sums: Counter[str]) -> Iterator[str]:
    """Yield the page in pieces."""
    yield HEAD
    yield f"klog {__version__}.\n"
    for part in PARTS:
        rows = sorted(
            (name.partition(": ")[2], number) for name, number in sums.items() if name.startswith(f"{part.prefix}: ")
        )
        if rows:
            yield f"\n## {part.title}\n\n{part.about}\n\n| | {part.unit} |\n|---|--:|\n"
            rows = [(KINDS.get(name, name), number) for name, number in rows]
            yield from (f"| {name} | {grouped(number)} |\n" for name, number in rows)
            yield f"| together | {grouped(sum(number for _, number in rows))} |\n"
    yield "\n## And\n\n"
    yield from (f"* {grouped(sums[name])} {words}\n" for name, words in SINGLE.items() if sums[name])


def grouped(number: int) -> str:
    """Return 12 345 for 12345."""
    return f"{number:,}".replace(",", " ")


def main(arguments: Sequence[str]) -> None:
    """Write the page from the directory that is named."""
    PAGE.write_text("".join(page(counted(Path(arguments[0])))))


if __name__ == "__main__":
    main(sys.argv[1:])
