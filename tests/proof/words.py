"""The statements of klog before a start: the records it names as lost, the partitions it doubts, and the end of its
runs."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Named = tuple[str, int]
"""A topic's name and a partition."""
REFUSED = 8 | 16 | 32
LEFT = 4
PATIENCE_S = 40
CODES = frozenset({0, 1, 4, 5, 8, 9, 12, 13, 16, 20, 24, 28})
UNHARMED = frozenset({"serves", "creates", "promotes", "replaced", "moves"})


@dataclass
class Run:
    """One run of klog."""

    line: str
    code: int
    stdout: str
    stderr: str

    @property
    def said(self) -> str:
        return self.stdout + self.stderr

    def result(self) -> dict[str, Any]:
        """Return the object that it printed, an empty one where it printed none."""
        try:
            found = json.loads(self.stdout)
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}


class Klog:
    """The klog under test: a command line and an environment."""

    def __init__(self, command: Iterable[str], home: Path, environment: Mapping[str, str] | None = None) -> None:
        self.command, self.home = list(command), home
        self.environment = os.environ | {"XDG_STATE_HOME": str(home / "state")} | dict(environment or {})
        self.runs: list[Run] = []

    def __call__(self, *words: object) -> Run:
        texts = [str(word) for word in words]
        process = subprocess.Popen(
            [*self.command, *texts],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=self.environment,
        )
        try:
            out, err = process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            err += f"\nkilled: it did not end within {PATIENCE_S} s"
        run = Run(shlex.join(["klog", *texts]), process.returncode, out, err)
        self.runs.append(run)
        return run


@dataclass
class Words:
    """The losses and doubts that a command named.

    *ranges*: offsets by partition, first and last.  *doubted*: partitions that are reported as in trouble, however much
    of them is lost.  *ended*: partitions whose open transactions it aborts.
    """

    runs: list[Run] = field(default_factory=list)
    ranges: dict[Named, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    doubted: set[Named] = field(default_factory=set)
    ended: set[Named] = field(default_factory=set)

    @property
    def code(self) -> int:
        return self.runs[-1].code if self.runs else 0

    @property
    def is_done(self) -> bool:
        """Whether it was not refused."""
        return bool(self.runs) and not self.code & REFUSED

    @property
    def said(self) -> str:
        """Return the messages of the runs for people, and the notes in their output for programs."""
        return "\n".join(f"{run.stderr} {run.result().get('notes', '')}" for run in self.runs)

    def names(self, place: Named, offset: int) -> bool:
        """Return whether a record was named, or all of its partition."""
        if place in self.doubted:
            return True
        return any(first <= offset <= last for first, last in self.ranges.get(place, ()))

    def add_losses(self, losses: Iterable[Mapping[str, Any]]) -> None:
        """Add the entries of a plan."""
        for loss in losses:
            place = str(loss["topic"]), int(loss["partition"])
            if loss["first_offset"] is None or loss["last_offset"] is None:
                self.doubted.add(place)
            else:
                self.ranges[place].append((loss["first_offset"], loss["last_offset"]))

    def take(self, run: Run) -> Words:
        """Take in a run that plans, and return these words."""
        self.runs.append(run)
        result = run.result()
        self.add_losses(result.get("losses", ()))
        self.add_losses(result.get("lost", ()) if isinstance(result.get("lost"), list) else ())
        for row in (*result.get("left", ()), *result.get("refused", ())):
            if isinstance(row, Mapping) and row.get("topic") is not None and row.get("partition") is not None:
                self.doubted.add((row["topic"], row["partition"]))
        self.ended |= {(row["topic"], row["partition"]) for row in result.get("adopted", ()) if row["ended"]}
        metadata = result.get("metadata")
        if isinstance(metadata, Mapping):
            self.doubted |= {
                (row["topic"], row["partition"]) for row in (*metadata.get("lost", ()), *metadata.get("unknown", ()))
            }
        return self


@dataclass
class Prediction:
    """The prediction of doctor for one node's start.  The lost records by partition (*lost*); *fates*, *reasons*: of
    directories."""

    run: Run
    starts: bool = True
    lost: dict[Named, int] = field(default_factory=lambda: defaultdict(int))
    fates: dict[Named, set[str]] = field(default_factory=lambda: defaultdict(set))
    reasons: dict[Named, set[str]] = field(default_factory=lambda: defaultdict(set))
    notes: list[str] = field(default_factory=list)

    def doubts(self, place: Named) -> bool:
        """Return whether a directory of the partition has a fate that is not to be served."""
        return bool(self.fates.get(place, set()) - UNHARMED)


def predict(klog: Klog, disks: Iterable[Path]) -> Prediction:
    """Ask doctor of a node's start."""
    run = klog("doctor", *disks, "--output", "json")
    result = run.result()
    found = Prediction(run, bool(result.get("starts", False)))
    for row in result.get("partitions", ()):
        place = row["topic"], row["partition"]
        found.lost[place] += row["lost_records"] or 0
        found.fates[place].add(row["fate"])
        found.reasons[place] |= {row["reason"]} - {None}
    for one in result.get("log_dirs", ()):
        if one["fate"] != "loads":
            found.notes.append(f"{one['path']} {one['fate']} {one['reason']}")
    found.notes += [f"{note['id']}: {note['message']}" for note in result.get("notes", ())]
    return found


@dataclass
class Comparison:
    """The result of replicas diff.  *lost*: ranges by partition and by the node that leads."""

    run: Run
    lost: dict[Named, dict[int, list[tuple[int, int]]]] = field(default_factory=dict)
    verdicts: dict[Named, str] = field(default_factory=dict)

    def names(self, place: Named, leader: int, offset: int) -> bool:
        """Return whether it reported that a record is lost if that node leads, or that it is unknown."""
        verdict = self.verdicts.get(place)
        if verdict is None or verdict in ("incomparable", "missing"):
            return True
        ranges = self.lost[place].get(leader)
        return ranges is None or any(first <= offset <= last for first, last in ranges)


def compare(klog: Klog, disks: Iterable[Path]) -> Comparison:
    """Ask replicas diff of all disks."""
    run = klog("replicas", "diff", *disks, "--output", "json")
    found = Comparison(run)
    for row in run.result().get("partitions", ()):
        place = row["topic"], row["partition"]
        found.verdicts[place] = row["verdict"]
        found.lost[place] = {
            int(node): [(each[0], each[-1]) for each in lost["ranges"]] for node, lost in row["lost_if_leads"].items()
        }
    return found
