"""Run every command of two versions of klog over the same data, and say which lines of their output differ.

    python tools/compare_versions.py OLD_CHECKOUT NEW_CHECKOUT [--commands verify,recover] DIRECTORY...

Each checkout needs its `.venv`.  Every log dir below a DIRECTORY, and in archives there, is copied to one scratch
place; both versions see it under the same path.  A command that changes data runs on a copy of its own: then the trees
are compared as well.  Times and ids of plans are left out.  Lines that differ are counted by their shape.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

NOW = "--now=1795254454586"
RUNNER = """
import json, os, sys
import klog_cli.app as app
for line in sys.stdin:
    words, out, err, cwd = json.loads(line)
    child = os.fork()
    if child == 0:
        os.chdir(cwd)
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        sys.argv = ["klog", *words]
        try:
            app.main()
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else int(error.code is not None)
        else:
            code = 0
        sys.stdout.flush(); sys.stderr.flush()
        os._exit(code)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Result(NamedTuple):
    """What a command came to: its exit code, its two streams by lines, and the tree that it left."""

    code: int
    out: list[str]
    err: list[str]
    tree: list[str]


class Version:
    """One version of klog, in a process that runs each command in a fork of itself."""

    def __init__(self, checkout: Path, scratch: Path) -> None:
        environment = {**os.environ, "XDG_STATE_HOME": str(scratch / "state"), "PYTHONHASHSEED": "0", "COLUMNS": "100"}
        command = [str(checkout / ".venv" / "bin" / "python"), "-c", RUNNER]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._scratch = scratch

    def run(self, words: list[str], cwd: Path, *, changes: bool) -> Result:
        """Run a command in *cwd*; look at the tree it left when it *changes* data."""
        out, err = self._scratch / "out", self._scratch / "err"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([words, str(out), str(err), str(cwd)]) + "\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return Result(code, lines(out), lines(err), tree(cwd) if changes else [])


def lines(path: Path) -> list[str]:
    """Return the lines of a file without what differs from run to run: times of now, ids of plans."""
    text = path.read_bytes().decode("utf-8", "backslashreplace")
    return plain(text).split("\n")


def plain(text: str) -> str:
    """Return *text* with ids of plans and the times of this day replaced."""
    text = re.sub(r"\b20\d{6}-\d{6}-([a-z-]+)-[0-9a-f]{4}\b", r"ID-\1", text)
    text = re.sub(r'"(modified_ns|probes|collisions)": \d+', r'"\1": N', text)  # the map's hash has a random key
    return re.sub(r"\b202[6-9]-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z?", "TIME", text)


def tree(directory: Path) -> list[str]:
    """Return a line for each file below *directory*: its path, its mode, its size and its digest."""
    found = []
    for path in sorted(directory.rglob("*")):
        name = plain(path.relative_to(directory).as_posix())
        if path.is_file() and path.name not in ("plan.json",):
            content = path.read_bytes()
            if path.suffix == ".json":
                content = plain(content.decode("utf-8", "backslashreplace")).encode()
            digest = hashlib.sha256(content).hexdigest()[:16]
            found.append(f"{name} {path.stat().st_mode:o} {path.stat().st_size} {digest}")
    return found


def log_dirs(roots: list[Path], scratch: Path) -> Iterator[tuple[str, Path]]:
    """Yield a name and a directory for each log dir below *roots*, archives unpacked one after the other."""
    for root in roots:
        for folder in sorted({path.parent for path in root.rglob("*-[0-9]*") if path.is_dir()}):
            yield str(folder), folder
        for archive in sorted((*root.rglob("*.tar.gz"), *root.rglob("*.tar.xz"))):
            place = scratch / "unpacked"
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir()
            subprocess.run(["tar", "xf", str(archive), "-C", str(place)], check=True)
            for folder in sorted({path.parent for path in place.rglob("*-[0-9]*") if path.is_dir()}):
                yield f"{archive}:{folder.relative_to(place)}", folder


def reading(data: Path) -> Iterator[list[str]]:
    """Yield the command lines that only read; `data` is the log dir's name in them."""
    for form in ("text", "json", "csv"):
        yield ["describe", "data", "--output", form]
    yield ["describe", "data", "--deep", "--output", "json"]
    for deep in ([], ["--deep"]):
        for form in ("text", "json"):
            yield ["verify", "data", *deep, "--output", form]
    yield ["plans", "data"]
    for file in sorted(path for path in data.rglob("*") if path.is_file()):
        name = f"data/{file.relative_to(data)}"
        yield ["dump", "--files", name, "--print-data-log", "--deep-iteration"]
        yield ["dump", name]
        yield ["dump", name, "--output", "jsonl", "--values"]
    for partition in sorted(path for path in data.iterdir() if re.search(r"-\d+$", path.name) and path.is_dir()):
        yield from partition_commands(f"data/{partition.name}", partition)


def partition_commands(name: str, partition: Path) -> Iterator[list[str]]:
    """Yield the command lines about one partition."""
    bases = sorted(int(path.stem) for path in partition.glob("*.log") if path.stem.isdigit())
    for form in ("jsonl", "csv"):
        for isolation in ("read_uncommitted", "read_committed"):
            yield ["dump", name, "--output", form, "--isolation", isolation]
    yield ["dump", name, "--batches", "--output", "jsonl"]
    for base in bases[:6]:
        for offset in (base, base + 3):
            yield ["lookup", name, "--offset", str(offset)]
            yield ["lookup", name, "--offset", str(offset), "--output", "json"]
            yield ["fetch", name, "--offset", str(offset), "--output", "json", "--isolation", "read_committed"]
    for timestamp in ("0", "1750000000000", "1795000000000"):
        yield ["lookup", name, "--timestamp", timestamp, "--output", "json"]


def changing(data: Path) -> Iterator[list[str]]:
    """Yield the command lines that change data, or plan to."""
    for apply in ([], ["--apply"]):
        for mode in ([], ["--salvage"], ["--like-broker"], ["--salvage", "--repair-bits"], ["--mark-clean"]):
            yield ["recover", "data", *mode, NOW, "--output", "json", *apply]
        yield ["recover", "data", NOW, *apply]
        for mode in ([], ["--like-broker"]):
            yield ["compact", "data", "--policy", "compact", "--all", *mode, NOW, "--output", "json", *apply]
        for partition in sorted(path for path in data.iterdir() if re.search(r"-\d+$", path.name) and path.is_dir())[
            :4
        ]:
            bases = sorted(int(path.stem) for path in partition.glob("*.log") if path.stem.isdigit())
            for offset in {bases[len(bases) // 2] + 7 if bases else 7, 1}:
                yield [
                    "truncate",
                    f"data/{partition.name}",
                    "--to-offset",
                    str(offset),
                    NOW,
                    "--output",
                    "json",
                    *apply,
                ]


def shape(line: str) -> str:
    """Return *line* without its numbers and digests, to count lines that differ alike."""
    return re.sub(r"[0-9a-f]{16,}|\d+", "N", line)[:160]


def compare(old: Result, new: Result) -> Iterator[str]:
    """Yield the lines in which two results differ, with - or + before them."""
    if old.code != new.code:
        yield f"- exit {old.code}"
        yield f"+ exit {new.code}"
    for before, after in ((old.out, new.out), (old.err, new.err), (old.tree, new.tree)):
        differences = difflib.unified_diff(before, after, n=0, lineterm="")
        yield from (line for line in differences if not line.startswith(("---", "+++", "@@")))


def command_lines(data: Path, wanted: set[str]) -> list[tuple[list[str], bool]]:
    """Return the command lines for a log dir, and whether each changes data; *wanted*: only these commands."""
    every = [(words, False) for words in reading(data)] + [(words, True) for words in changing(data)]
    return [(words, changes) for words, changes in every if not wanted or words[0] in wanted]


class Report:
    """Counts differences by their shape, with an example of each."""

    def __init__(self) -> None:
        self.commands = 0
        self.shapes = Counter[tuple[str, str]]()
        self._examples: dict[tuple[str, str], str] = {}

    def add(self, name: str, words: list[str], results: list[Result]) -> None:
        """Take the results of both versions for one command line."""
        self.commands += 1
        for line in compare(*results):
            key = (words[0], shape(line))
            self.shapes[key] += 1
            self._examples.setdefault(key, f"{name}: klog {' '.join(words)}\n        {line[:300]}")

    def show(self) -> None:
        """Print the counts, most frequent first."""
        print(f"{self.commands} command lines, {sum(self.shapes.values())} lines differ in {len(self.shapes)} ways")
        for key, number in self.shapes.most_common():
            print(f"{number:6} x {key[0]}: {self._examples[key]}")


def main() -> int:
    """Compare; return 1 when anything differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("roots", type=Path, nargs="+")
    parser.add_argument("--commands", default="")
    options = parser.parse_args()
    wanted = set(filter(None, options.commands.split(",")))
    report = Report()
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        work = scratch / "work"
        versions = [Version(checkout.resolve(), scratch) for checkout in (options.old, options.new)]
        for name, folder in log_dirs([root.resolve() for root in options.roots], scratch):
            fresh(folder, work)
            for words, changes in command_lines(work / "data", wanted):
                results = []
                for version in versions:
                    if changes:
                        fresh(folder, work)
                    results.append(version.run(words, work, changes=changes))
                report.add(name, words, results)
    report.show()
    return int(bool(report.shapes))


def fresh(folder: Path, work: Path) -> None:
    """Make *work* a directory that holds nothing but a copy of the log dir *folder*."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder, work / "data", symlinks=True)


if __name__ == "__main__":
    sys.exit(main())
