"""klog in one static file beside the package: start, checks, JSON lines, each codec read and written."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import replace

from bench.installed import ROOT
from bench.jobs import CODECS, JSONL, Bench
from bench.measure import Command, run
from bench.table import Row
from bench.write import write_command

_LARGEST_MIB = 30


def one_file(bench: Bench) -> Iterator[Row]:
    """The file that `make one-file` left in dist/, and the package; each once a round."""
    found = [path for path in glob.glob(os.path.join(ROOT, "dist", "klog-*-linux-x86_64")) if os.path.isfile(path)]
    if len(found) != 1:
        yield Row("one-file", "not measured: `make one-file` builds the file", None)
        return
    alone = replace(bench, klog=found)
    size = os.path.getsize(found[0]) / (1 << 20)
    yield Row("one file, size", os.path.basename(found[0]), size, "MiB", at_most=_LARGEST_MIB)
    yield _row(bench, "start", {"file": alone.start, "package": bench.start}, at_most=1.2)
    path = bench.log("quarter")
    yield _row(bench, "verify", {"file": alone.verify(path), "package": bench.verify(path)}, path, 1.1)
    both = {"file": alone.dump(path, *JSONL), "package": bench.dump(path, *JSONL)}
    yield _row(bench, "JSON lines", both, path, 1.1)
    for codec in CODECS:
        path = bench.log(codec)
        both = {"file": alone.verify(path, "--deep"), "package": bench.verify(path, "--deep")}
        yield _row(bench, f"read {codec}", both, path, 1.3)
    lines = bench.file("lines.jsonl")
    run(bench.dump(bench.log("plain"), *JSONL, "--limit", "400000", sink="file", target=lines))
    for codec in CODECS:
        both = {
            name: write_command(one, lines, bench.file(f"out.{name}"), "--codec", codec)
            for name, one in (("file", alone), ("package", bench))
        }
        yield _row(bench, f"write {codec}", both, lines, 1.3)


def _row(bench: Bench, what: str, both: dict[str, Command], over: str = "", at_most: float = 1.0) -> Row:
    race = bench.race(over or (), both)
    ours, theirs = race.cpu_s("file"), race.cpu_s("package")
    told = f"file {ours:.3f} s, package {theirs:.3f} s ({race.runs('file')})"
    return Row(f"one file, {what}", told, ours / theirs, "×", at_most=at_most)
