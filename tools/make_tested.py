"""Writes docs/tested.md from the counts of test runs: `make tested`.

    python -m tools.make_tested build/counts
    python -m tools.make_tested --keep build/counts

Each figure is the sum of a count in that directory ("at most": the largest), which tests/support/counts.py,
tests/coverage and tests/mutation write; none is written by hand.

--keep: sections without counts stay as they are on the page.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from klog import __version__

from tests.support.counts import AT_MOST

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
    "release": "of the one static file, in a root that has nothing else",
}
HEAD = """# What was tested

`make tested` runs the complete suite and writes this page; every figure was counted while the tests ran.
The suite takes samples of power cuts, kills and failing calls; `make test ARGS="-m long"` runs all of them.
"""


class Part(NamedTuple):
    """A table: the counts whose names begin with *prefix*, and the description of one of them."""

    title: str
    prefix: str
    about: str
    unit: str


class Share(NamedTuple):
    """A table of parts of a whole: the counts whose names begin with *whole*, and those of *part* beside them."""

    title: str
    whole: str
    part: str
    about: str
    units: tuple[str, str]


_CUTS = """A change runs on a disk that loses its power before one of the calls. The disk then has the content
that one of three models keeps; klog must finish or undo the change, and nothing may be lost."""
_LOSSY = """Unchanged commands run on a file system of the tests' own. It loses its power before one of its
calls; then it has the synced data, and the part of the rest that one of four models leaves. klog
must finish or undo the change, and nothing may be lost."""
_CALLS = """A command that changes a disk runs, and one of its system calls fails. Exit code and message must be
right; the former data must still exist, or the command in the message must restore it."""
PARTS = (
    Part("Tests", "tests that passed", "Tests that passed, by what they need.", "tests"),
    Part("Power cuts", "power cuts", _CUTS, "cuts"),
    Part("Power cuts on a file system that loses what was not synced", "cuts below klog", _LOSSY, "cuts"),
    Part("System calls that failed", "system calls that failed", _CALLS, "calls"),
    Part("Real brokers", "starts of real brokers", "Starts of brokers and controllers, by version of Kafka.", "starts"),
)
_BRANCHES = """The branches of each `if`, loop and condition, and those that a test took. They were counted in a
second run, of the tests that need no broker, Spark, browser or strace, with counters in klog's
Python and in its compiled kernel. Checks of types, bounds and errors that Cython adds by itself do
not count, because they are not in the source."""
_MUTANTS = """A tool puts one small mistake at a time into a package: a changed comparison, limit, condition,
constant or result, a missing statement, two exchanged arguments. A mutant is killed if a test fails
or takes far too long. The tests are those of klog alone that run the changed line; the mutants are
a sample, always the same."""
SHARES = (
    Share("Branches", "branches", "branches taken", _BRANCHES, ("branches", "taken")),
    Share("Mutants", "mutants made", "mutants killed", _MUTANTS, ("mutants", "killed")),
)
SINGLE = {
    "rounds of the proof": "rounds in which real brokers started on harmed disks, and no record was lost that klog had "
    "not named",
    "kills": "times a change was killed before a call",
    "refused calls": "calls of a change that a disk refused",
    "outputs of dump held against Kafka's tool": "outputs of `klog dump` that were compared with Kafka's",
    "runs over logs that want to become gigabytes": "runs of commands over logs of kilobytes that unpack to gigabytes",
    "MiB of memory at most, over logs that want to become gigabytes": "MiB of memory in the largest of those runs",
    "mutated inputs of the kernel": "mutated batches and messages that the kernel read, compiled with sanitizers",
}
"""The entries of the list at the end, by the name of their count."""


def counted(folder: Path) -> Counter[str]:
    """Return the sums of all processes.  Raises SystemExit if there are none."""
    sums: Counter[str] = Counter()
    for file in folder.glob("*.json"):
        for name, number in json.loads(file.read_text()).items():
            sums[name] = max(sums[name], number) if AT_MOST in name else sums[name] + number
    if not sums:
        raise SystemExit(f"make_tested: {folder}: nothing was counted there")
    return sums


def page(sums: Counter[str]) -> Iterator[str]:
    """Yield the page in pieces: its head, then its sections."""
    yield f"{HEAD}\nklog {__version__}.\n"
    for part in PARTS:
        if rows := _rows(sums, part.prefix):
            yield f"\n## {part.title}\n\n{part.about}\n\n| | {part.unit} |\n|---|--:|\n" + "".join(
                f"| {name} | {grouped(number)} |\n" for name, number in (*rows, ("together", sum(dict(rows).values())))
            )
    for share in SHARES:
        if rows := _rows(sums, share.whole):
            taken = {name: sums[f"{share.part}: {name}"] for name, _ in rows}
            rows.append(("together", sum(dict(rows).values())))
            taken["together"] = sum(taken.values())
            head = f"| | {share.units[0]} | {share.units[1]} | |\n|---|--:|--:|--:|\n"
            yield f"\n## {share.title}\n\n{share.about}\n\n{head}" + "".join(
                f"| {name} | {grouped(number)} | {grouped(taken[name])} | {taken[name] / number:.1%} |\n"
                for name, number in rows
            )
    if lines := [f"* {grouped(sums[name])} {words}\n" for name, words in SINGLE.items() if sums[name]]:
        yield "\n## And\n\n" + "".join(lines)


def _rows(sums: Counter[str], prefix: str) -> list[tuple[str, int]]:
    """Return the counts whose names begin with *prefix*, by the rest of the name."""
    found = sorted((*name.partition(": "), number) for name, number in sums.items())
    return [(KINDS.get(name, name), number) for begin, _, name, number in found if begin == prefix and number]


def merged(old: str, new: Iterator[str]) -> str:
    """Return the new page, with those sections of the old one that the new one lacks, in the order of a whole page."""
    pieces = {_title(piece): piece for text in (old, "".join(new)) for piece in re.split(r"(?m)^(?=## )", text)}
    order = ["", *(part.title for part in PARTS), *(share.title for share in SHARES), "And"]
    return "\n".join(pieces[title].strip() + "\n" for title in order if title in pieces)


def _title(piece: str) -> str:
    return piece.partition("\n")[0].removeprefix("## ") if piece.startswith("## ") else ""


def grouped(number: int) -> str:
    """Return 12 345 for 12345."""
    return f"{number:,}".replace(",", " ")


def main() -> None:
    """Write the page from the directory that is named."""
    parser = argparse.ArgumentParser(prog="python -m tools.make_tested")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--keep", action="store_true", help="keep sections of which nothing was counted")
    options = parser.parse_args()
    made = page(counted(options.folder))
    PAGE.write_text(merged(PAGE.read_text() if options.keep else "", made))


if __name__ == "__main__":
    main()
