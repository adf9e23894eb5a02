"""The output of Kafka's dump tool for a set of files, kept in text that can be read: `zcat fixtures/golden/deep.gz`.

One file for each set of flags.  Every answer has a header line,

    === modern/plain-1/00000000000000000000.log exit=0 stdout=5120 stderr=0

then so many bytes of stdout and of stderr, then a line end.  Absolute paths in stderr start with {root}.  If the tool
died, stderr holds the exception in place of the stack trace, and exit is 1.
"""

from __future__ import annotations

import gzip
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.brokers.kafka import Dumped, DumpTool

LOG_FLAGS = {
    "plain": (),
    "deep": ("--deep-iteration",),
    "print": ("--print-data-log",),
    "deep-skip": ("--deep-iteration", "--skip-record-metadata"),
    "print-skip": ("--print-data-log", "--skip-record-metadata"),
    "deep-max-0": ("--deep-iteration", "--max-bytes", "0"),
    "deep-max-100": ("--deep-iteration", "--max-bytes", "100"),
    "deep-max-4096": ("--deep-iteration", "--max-bytes", "4096"),
}
INDEX_FLAGS = {"plain": (), "verify": ("--verify-index-only",), "sanity": ("--index-sanity-check",)}
DECODERS = {
    "__consumer_offsets": "--offsets-decoder",
    "__transaction_state": "--transaction-log-decoder",
    "__cluster_metadata": "--cluster-metadata-decoder",
    "__share_group_state": "--share-group-state-decoder",
}
HEADER = re.compile(rb"=== (.*) exit=(\d+) stdout=(\d+) stderr=(\d+)\n")
Answers = dict[str, dict[str, Dumped]]  # name of the flag set → file → answer


def flag_sets(file: str) -> dict[str, tuple[str, ...]]:
    """Return the sets of flags that make sense for *file*, by name; its directory's name chooses the decoder."""
    suffix = os.path.splitext(file)[1]
    if suffix in (".index", ".timeindex"):
        return INDEX_FLAGS
    if suffix not in (".log", ".checkpoint"):
        return {"plain": ()}
    topic = os.path.basename(os.path.dirname(file)).rpartition("-")[0]
    if topic in DECODERS:
        return LOG_FLAGS | {"decoded": (DECODERS[topic],), "decoded-skip": (DECODERS[topic], "--skip-record-metadata")}
    return LOG_FLAGS


def ask(tool: DumpTool, root: Path, files: Iterable[str]) -> Answers:
    """Return the answers of *tool* (its cwd is *root*) about *files*, each asked alone."""
    answers: Answers = {}
    for file in files:
        for name, flags in flag_sets(file).items():
            said = tool.run("--files", file, *flags)
            died = said.died.replace(f"{root}/", "{root}/")
            stderr = said.stderr.replace(f"{root}/".encode(), b"{root}/") + (f"{died}\n".encode() if died else b"")
            answers.setdefault(name, {})[file] = Dumped(said.stdout, stderr, said.exit_code, died)
    return answers


def write(folder: Path, answers: Answers) -> None:
    for name, by_file in answers.items():
        parts = []
        for file in sorted(by_file):
            said = by_file[file]
            sizes = f"exit={said.exit_code} stdout={len(said.stdout)} stderr={len(said.stderr)}"
            parts += [f"=== {file} {sizes}\n".encode(), said.stdout, said.stderr, b"\n"]
        (folder / f"{name}.gz").write_bytes(gzip.compress(b"".join(parts), mtime=0))


def read(golden: Path) -> Iterator[tuple[str, Dumped]]:
    """Yield each file's name and the tool's answer about it, from one golden file."""
    text = gzip.decompress(golden.read_bytes())
    position = 0
    while position < len(text):
        header = HEADER.match(text, position)
        assert header, (golden, position, text[position : position + 80])
        code, out, err = map(int, header.groups()[1:])
        begin, middle, end = header.end(), header.end() + out, header.end() + out + err
        stderr = text[middle:end]
        died = stderr.splitlines()[-1].decode() if code else ""
        yield header[1].decode(), Dumped(text[begin:middle], stderr, code, died)
        assert text[end : end + 1] == b"\n", (golden, header[0])
        position = end + 1
