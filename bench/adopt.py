"""`klog adopt --apply` of the large segment beside `cp` of the same bytes, both until they are on the disk."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from shlex import join, quote

from bench.installed import HERE
from bench.jobs import Bench
from bench.measure import Command
from bench.table import Row

_TOPIC = "gzip-broker-0"
"""A partition that the metadata log in fixtures/modern has, and no directory."""
_AT_MOST = {"adopt": 2, "adopt, epochs rewritten": 2}


def adopt(bench: Bench) -> Iterator[Row]:
    """A plain log, as it is and with another leader epoch in each batch."""
    path = bench.log("topic")
    folder = bench.file("adopt")
    shutil.rmtree(folder, ignore_errors=True)
    template, home = os.path.join(folder, "template"), os.path.join(folder, "home/data")
    shutil.copytree(os.path.join(HERE, "..", "fixtures/modern"), template, ignore=_without_logs)
    os.makedirs(os.path.dirname(home))
    words = [*bench.klog, "adopt", os.path.dirname(path), "--as", _TOPIC, "--to", home, "--apply", "--quiet"]
    commands = {
        "cp": _on_a_fresh_disk(template, home, f"cp {quote(path)} {quote(home)} && sync {quote(home)}/*.log"),
        "adopt": _on_a_fresh_disk(template, home, join([*words, "--epochs", "keep"])),
        "adopt, epochs rewritten": _on_a_fresh_disk(template, home, join([*words, "--epochs", "rewrite"])),
    }
    race = bench.race(path, commands, bench.slow)
    size = os.path.getsize(path) >> 20
    for name, at_most in _AT_MOST.items():
        ours, theirs = race.best_wall_s(name), race.best_wall_s("cp")
        told = f"{size} MiB, wall time, best of {race.runs(name)}: {ours:.2f} s, cp and fsync {theirs:.2f} s"
        yield Row(name, told, ours / theirs, at_most=at_most)
    yield Row("memory, adopt", f"largest resident size, {size} MiB", race.peak_bytes("adopt") / 1e6, "MB", at_most=120)
    shutil.rmtree(folder)


def _without_logs(_: str, names: list[str]) -> set[str]:
    """Return the directories of partitions, but for that of the metadata log."""
    return {name for name in names if name[-2:-1] == "-" and name[-1:].isdigit() and name != "__cluster_metadata-0"}


def _on_a_fresh_disk(template: str, home: str, command: str) -> Command:
    beside = quote(os.path.dirname(home))
    state = f"XDG_STATE_HOME={beside}/state"
    return Command(
        ["sh", "-c", f"rm -rf {beside}/* && cp -r {quote(template)} {quote(home)} && {state} {command}"], "null"
    )
