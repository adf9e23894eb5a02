"""Run every command of two versions of klog over the same data, and print the differing lines of their output.

    python tools/compare_versions.py OLD_CHECKOUT NEW_CHECKOUT [--commands verify,recover] DIRECTORY...

Each checkout needs its `.venv`.  Every log dir below a DIRECTORY, and in archives there, is copied to one scratch
place; both versions see it under the same path.  A command that changes data runs on a copy of its own: then the trees
are compared as well.  Times and ids of plans are left out.  Lines that differ are counted by their shape.  A file or a
partition that occurs twice is read once.  Commands that the old version does not have are skipped.
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
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

COMMANDS = "describe,verify,plans,dump,lookup,fetch,stats,search,export,space,audit,keys,recover,compact,truncate"
NOW = "--now=1795254454586"
PLAN_ID = re.compile(r"\b20\d{6}-\d{6}-([a-z-]+)-[0-9a-f]{4}\b")
RUNNER = """
import importlib, json, os, pkgutil, sys
import klog, klog_cli, klog_cli.app as app
for package in (klog, klog_cli):  # every fork starts with all modules loaded
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if "spark" not in module.name:
            importlib.import_module(module.name)
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
    """The result of a command: its exit code, its two streams by lines, and the tree that it left."""

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
        """Run commands with `&&` between them in *cwd*; look at the tree they left when they *change* data.

        PLAN is replaced by the id of the newest plan with a backup.
        """
        out: list[str] = []
        err: list[str] = []
        code = 0
        for command in " ".join(words).split(" && "):
            ids = sorted(found.group() for path in cwd.rglob("*") if (found := PLAN_ID.fullmatch(path.name)))
            code = self._run([ids[-1] if word == "PLAN" and ids else word for word in command.split()], cwd)
            out += lines(self._scratch / "out")
            err += lines(self._scratch / "err")
        return Result(code, out, err, tree(cwd) if changes else [])

    def knows(self, command: str) -> bool:
        """Return whether this version has *command*."""
        return self._run([command, "--help"], self._scratch) == 0

    def _run(self, words: list[str], cwd: Path) -> int:
        """Run one command line and return its exit code; the streams are in two files of the scratch place."""
        out, err = self._scratch / "out", self._scratch / "err"
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([words, str(out), str(err), str(cwd)]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


def lines(path: Path) -> list[str]:
    """Return the lines of a file without parts that differ from run to run: times of now, ids of plans."""
    text = path.read_bytes().decode("utf-8", "backslashreplace")
    return plain(text).split("\n")


def plain(text: str) -> str:
    """Return *text* with ids of plans and the times of this day replaced."""
    text = PLAN_ID.sub(r"ID-\1", text)
    text = re.sub(r'"(modified_ns|probes|collisions)": \d+', r'"\1": N', text)  # the map's hash has a random key
    text = re.sub(r'"free": \d+|data: [0-9.]+ .iB of', "FREE", text)
    text = re.sub(r"\d+ collisions? in \d+ probes?", "N collisions in N probes", text)
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


def reading(data: Path, seen: set[str]) -> Iterator[list[str]]:
    """Yield the command lines that only read; `data` is the log dir's name in them, *seen* what was read before."""
    for form in ("text", "table", "json", "jsonl", "csv"):
        yield ["describe", "data", "--output", form]
    yield ["describe", "data", "--deep", "--output", "json"]
    for deep in ([], ["--deep"]):
        for form in ("text", "table", "json", "jsonl"):
            yield ["verify", "data", *deep, "--output", form]
    yield ["verify", "data", "--sample", "1/3", "--output", "json"]
    yield ["verify", "data", "--since", "2020-01-01", "--jobs", "1", "--output", "json"]
    yield ["plans", "data"]
    yield ["stats", "data", "--output", "json"]
    yield ["search", "data", "--regex", "1", "--isolation", "read_committed"]
    for form in ("json", "csv"):
        yield ["space", "data", NOW, "--output", form]
    yield ["space", "data", NOW, "--by", "segment"]
    for form in ("text", "json"):
        yield ["audit", "misrouted", "data", "--output", form]
        yield ["audit", "headers", "data", NOW, "--output", form]
        yield ["keys", "check", "data", "--min-keys", "5", "--output", form]
    yield ["export", "data", "--to", "exported", "--output", "jsonl"]
    for file in sorted(path for path in data.rglob("*") if path.is_file()):
        if is_new(seen, f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}"):
            yield from file_commands(f"data/{file.relative_to(data)}", file)
    for partition in partitions_of(data):
        if is_new(seen, "\n".join([partition.name, *tree(partition)])):
            yield from partition_commands(f"data/{partition.name}", partition)


def is_new(seen: set[str], content: str) -> bool:
    """Return whether *content* is not among those *seen*, and add it."""
    before = len(seen)
    seen.add(content)
    return len(seen) > before


def partitions_of(data: Path) -> list[Path]:
    """Return the partitions of a log dir."""
    found = sorted(path for path in data.iterdir() if re.search(r"-\d+$", path.name) and path.is_dir())
    return [path for path in found if not (path / "meta.properties").exists()]  # broker-1 is a log dir


def file_commands(name: str, file: Path) -> Iterator[list[str]]:
    """Yield the command lines about one file."""
    yield ["dump", "--files", name, "--print-data-log", "--deep-iteration"]
    yield ["dump", name]
    yield ["dump", name, "--output", "jsonl", "--values", "text"]
    yield ["describe", name, "--output", "json"]
    if file.suffix in (".index", ".timeindex"):
        yield ["dump", "--files", name, "--verify-index-only"]
        yield ["dump", "--files", name, "--index-sanity-check"]
    if file.suffix == ".log":
        yield ["dump", "--files", name, "--print-data-log", "--skip-record-metadata", "--max-bytes", "3000"]
        yield ["dump", name, "--with-indexes", "--output", "csv"]
        yield ["dump", "--files", name, *decoder(file.parent.name)]
        for values in ("base64", "hex", "redacted", "none"):
            yield ["dump", name, "--output", "jsonl", "--values", values, "--limit", "20"]


def decoder(partition: str) -> list[str]:
    """Return the options that decode the records of an internal topic."""
    names = {
        "__consumer_offsets": "--offsets-decoder",
        "__transaction_state": "--transaction-log-decoder",
        "__cluster_metadata": "--cluster-metadata-decoder",
        "__remote_log_metadata": "--remote-log-metadata-decoder",
        "__share_group_state": "--share-group-state-decoder",
    }
    return [names.get(partition.rpartition("-")[0], "--deep-iteration")]


def partition_commands(name: str, partition: Path) -> Iterator[list[str]]:
    """Yield the command lines about one partition."""
    bases = sorted(int(path.stem) for path in partition.glob("*.log") if path.stem.isdigit())
    for form in ("text", "jsonl", "csv"):
        for isolation in ("read_uncommitted", "read_committed"):
            yield ["dump", name, "--output", form, "--isolation", isolation]
    yield ["dump", name, "--output", "parquet", "--to", "rows.parquet", "&&", "dump", name, "--to", "rows.txt"]
    yield ["dump", name, "--batches", "--output", "jsonl"]
    yield ["dump", name, "--no-control", "--tail", "--limit", "5", "--output", "jsonl"]
    yield ["dump", name, "--from-time", "2025-06-01", "--to-time", "2030-01-01", "--output", "csv", "--jobs", "1"]
    yield ["dump", name, "--key", "key-1", "--output", "jsonl", "--max-batch-bytes", "1MiB"]
    for base in bases[:6]:
        yield ["dump", name, "--from-offset", str(base + 1), "--to-offset", str(base + 9), "--output", "jsonl"]
        for offset in (base, base + 3):
            yield from offset_commands(name, str(offset))
    yield ["fetch", name, "--offset", str(bases[-1] + 10**6 if bases else 0)]
    for timestamp in ("0", "1750000000000", "1795000000000", "earliest", "latest", "max"):
        yield ["lookup", name, "--timestamp", timestamp, "--output", "json"]


def offset_commands(name: str, offset: str) -> Iterator[list[str]]:
    """Yield the command lines about one offset of a partition."""
    yield ["lookup", name, "--offset", offset]
    yield ["lookup", name, "--offset", offset, "--position-only"]
    yield ["lookup", name, "--offset", offset, "--output", "json"]
    yield ["fetch", name, "--offset", offset, "--output", "json", "--isolation", "read_committed"]
    yield ["fetch", name, "--offset", offset, "--max-bytes", "100", "--partial", "--isolation", "log_end"]
    yield ["fetch", name, "--offset", offset, "--end", "checkpoint", "--output", "json"]


MODES = (
    [],
    ["--salvage"],
    ["--like-broker"],
    ["--salvage", "--repair-bits"],
    ["--mark-clean"],
    ["--indexes-only"],
    ["--from-recovery-point"],
    ["--like-broker", "--mark-clean"],
    ["--salvage", "--mark-clean", "--broker-epoch", "none"],
)


def changing(data: Path) -> Iterator[list[str]]:
    """Yield the command lines that change data, or plan to."""
    for apply in ([], ["--apply"]):
        for mode in MODES:
            yield ["recover", "data", *mode, NOW, "--output", "json", *apply]
        for mode in ([], ["--salvage"], ["--mark-clean"]):
            yield ["recover", "data", *mode, NOW, *apply]
        for mode in ([], ["--like-broker"]):
            yield ["compact", "data", "--policy", "compact", "--all", *mode, NOW, "--output", "json", *apply]
        for partition in partitions_of(data)[:4]:
            yield from truncations(partition, apply)
    for mode in (
        "--estimate",
        "--explain",
        "--like-broker --kafka-version 2.8",
        "--like-broker --kafka-version 3.9 --explain",
    ):
        yield ["compact", "data", "--policy", "compact", "--all", NOW, *mode.split()]
    yield ["compact", "data", "--policy", "compact", "--all", NOW, "--to", "compacted"]
    yield ["recover", "data", "--salvage", NOW, "--rescue-records", "rescued.jsonl"]
    undone = ["undo", "PLAN", "--backup", "data/klog-backup", "--output", "json"]
    yield [
        *["recover", "data", "--salvage", NOW, "--apply", "&&", "plans", "data", "&&", *undone, "&&"],
        *[*undone, "--apply", "&&", "plans", "data", "--output", "json"],
    ]
    yield [
        "recover",
        "data",
        NOW,
        "--save-plan",
        "saved.json",
        "&&",
        "apply",
        "saved.json",
        "&&",
        "verify",
        "data",
        "--deep",
    ]


def truncations(partition: Path, apply: list[str]) -> Iterator[list[str]]:
    """Yield the command lines that truncate a partition."""
    bases = sorted(int(path.stem) for path in partition.glob("*.log") if path.stem.isdigit())
    for offset in {bases[len(bases) // 2] + 7 if bases else 7, 1}:
        yield ["truncate", f"data/{partition.name}", "--to-offset", str(offset), NOW, "--output", "json", *apply]
    yield ["truncate", f"data/{partition.name}", "--to-log-start", NOW, *apply]
    yield ["truncate", f"data/{partition.name}", "--to-timestamp", "1750000000000", NOW, "--output", "json", *apply]


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


def command_lines(data: Path, wanted: set[str], seen: set[str]) -> list[tuple[list[str], bool]]:
    """Return the command lines for a log dir, and whether each changes data; *wanted*: only these commands."""
    every = [(words, "--to" in words or words[0] == "export") for words in reading(data, seen)]
    every += [(words, True) for words in changing(data)]
    return [(words, changes) for words, changes in every if words[0] in wanted]


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
            if key not in self._examples:
                self._examples[key] = f"{name}: klog {' '.join(words)}\n        {line[:300]}"
                print(f"{key[0]}: {self._examples[key]}", file=sys.stderr, flush=True)

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
    parser.add_argument("--commands", default=COMMANDS)
    parser.add_argument("--one-in", type=int, default=1, help="run one in N command lines, others in each log dir")
    options = parser.parse_args()
    report = Report()
    seen: set[str] = set()
    with tempfile.TemporaryDirectory() as temporary:
        scratch = Path(temporary)
        work = scratch / "work"
        versions = [Version(checkout.resolve(), scratch) for checkout in (options.old, options.new)]
        wanted = {name for name in options.commands.split(",") if versions[0].knows(name)}
        for name, folder in log_dirs([root.resolve() for root in options.roots], scratch):
            fresh(folder, work)
            for words, changes in command_lines(work / "data", wanted, seen):
                if zlib.crc32(f"{name} {words}".encode()) % options.one_in:
                    continue
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
