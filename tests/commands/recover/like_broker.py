"""The result of `klog recover --like-broker`, beside that of a broker; the allowed differences, and why."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.conftest import Ran, run_klog
from tests.oracles.broker_load import Loader, Outcome, differences
from tests.support.damage import Case

RECOVERY_POINTS, HIGH_WATERMARKS = "recovery-point-offset-checkpoint", "replication-offset-checkpoint"
LOG_STARTS, CLEANER_OFFSETS = "log-start-offset-checkpoint", "cleaner-offset-checkpoint"
CHECKPOINTS = (RECOVERY_POINTS, HIGH_WATERMARKS, LOG_STARTS, CLEANER_OFFSETS)

IDENTITY = "partition.metadata"

Offsets = dict[str, int]


def recover(log_dir: Path, *options: str, now_ms: int) -> tuple[Ran, dict[str, Any]]:
    """Repair a log dir in this process, by the real executor; return the run and its output."""
    ran = run_klog("recover", log_dir, *options, f"--now={now_ms}", "--apply", "--output=json")
    assert ran.exit_code in (0, 1, 4, 5), ran
    return ran, json.loads(ran.stdout)


def options_of(settings: Mapping[str, str]) -> tuple[str, str]:
    """Return a broker's settings as options of klog."""
    interval = settings.get("log.index.interval.bytes", "4096")
    return f"--segment-index-bytes={settings['log.index.size.max.bytes']}", f"--index-interval={interval}"


def unlike(ours: Path, brokers: Path, before: Path) -> list[str]:
    """Return the differences between a log dir that klog repaired and a broker's result.

    All files of partitions count.  A running broker rewrites the log dir's own checkpoints, from its partitions and
    without missing ones; klog changes only the lines that the logs contradict.  These are therefore compared, partition
    by partition, with their required values.
    """
    found = [line for line in differences(ours, brokers) if not line.startswith(CHECKPOINTS)]
    said = {name: offsets(ours / name) for name in CHECKPOINTS}
    was = {name: offsets(before / name) for name in CHECKPOINTS}
    stopped = {name: offsets(brokers / name) for name in CHECKPOINTS}
    for name in CHECKPOINTS:
        found += [f"{name}: {key} at {said[name][key]}, which nobody said" for key in said[name].keys() - was[name]]
    for key, end in stopped[RECOVERY_POINTS].items():
        if (ours / key).is_dir() and key in was[RECOVERY_POINTS].keys() | was[HIGH_WATERMARKS].keys():
            start = max(_first_offset(brokers / key), stopped[LOG_STARTS].get(key, 0))
            found += _unlike(key, start, end, _first_offset(ours / key), said, was)
    return found


def _unlike(
    key: str, start: int, end: int, first: int, said: Mapping[str, Offsets], was: Mapping[str, Offsets]
) -> Iterator[str]:
    """Yield the faults of our checkpoints for a partition whose log has the offsets from *start* to *end*."""
    for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
        wanted = min(was[name][key], end) if key in was[name] else None
        if said[name].get(key) != wanted:
            yield f"{name}: {key} at {said[name].get(key)}, not at {wanted}"
    if max(said[LOG_STARTS].get(key, 0), first) != start:
        yield f"{LOG_STARTS}: {key} at {said[LOG_STARTS].get(key)}, and the log from {first} on, not from {start}"
    cleaned = was[CLEANER_OFFSETS].get(key)
    wanted = cleaned if cleaned is not None and start <= cleaned <= end else None
    if said[CLEANER_OFFSETS].get(key) != wanted:
        yield f"{CLEANER_OFFSETS}: {key} at {said[CLEANER_OFFSETS].get(key)}, not at {wanted}"


def offsets(checkpoint: Path) -> Offsets:
    """Return the content of a checkpoint of the log dir, by the names of partitions; none if there is no such file."""
    if not checkpoint.exists():
        return {}
    lines = [line.rsplit(" ", 2) for line in checkpoint.read_text().splitlines()[2:]]
    return {f"{topic}-{number}": int(offset) for topic, number, offset in lines}


def _first_offset(partition: Path) -> int:
    return min((int(log.stem) for log in partition.glob("*.log")), default=0)


# random damage


class Beside:
    """A case of random damage after klog's repair, to be held against what Kafka makes of it.

    *ours*: repaired.  *refused*: partitions in which klog changes nothing, since it predicts that a broker does not
    complete the start; *malformed*: checkpoints of the log dir with that finding.
    """

    def __init__(self, case: Case, folder: Path) -> None:
        self._case, self._folder = case, folder
        self.before, self.ours = folder / "before", folder / "ours"
        case.make(self.before)
        shutil.copytree(self.before, self.ours)
        _, said = recover(self.ours, "--like-broker", *options_of(case.settings), now_ms=case.now_ms)
        self.refused = [one["directory"] for one in said["partitions"] if one["reason"]]
        self.malformed = [one["file"] for one in said["left"] if one["id"] == "checkpoint-malformed"]

    def load(self, loader: Loader, kept: Mapping[str, bool], *, with_malformed: bool = False) -> tuple[Outcome, Path]:
        """Let Kafka load a copy of the damage; *kept*: the partitions in it.

        One without `partition.metadata` would be set aside, and klog repairs it in its place: so it gets an identity.
        """
        copy = self._folder / "theirs"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.before, copy)
        for name in [name for name, stays in kept.items() if not stays]:
            shutil.rmtree(copy / name)
        for name in () if with_malformed else self.malformed:
            (copy / name).unlink()
        nameless = [path for path in copy.iterdir() if path.is_dir() and not (path / IDENTITY).exists()]
        for path in nameless:
            (path / IDENTITY).write_text("version: 0\ntopic_id: " + "A" * 21 + "Q")
        outcome = loader.load(copy, self._case.settings, now_ms=self._case.now_ms)
        for path in nameless:
            (path / IDENTITY).unlink(missing_ok=True)
        return outcome, copy

    def wrong(self, loader: Loader) -> Iterator[str]:
        """Yield the differences between klog and Kafka."""
        partitions = [path.name for path in self.before.iterdir() if path.is_dir()]
        left = [name for name in partitions if name.endswith(("-delete", "-stray"))]
        for name in self.refused + left:
            yield from (f"{name}/{line}" for line in differences(self.before / name, self.ours / name))
        for name in self.refused:
            outcome, _ = self.load(loader, {other: other == name for other in partitions})
            if outcome.ok:
                yield f"{name}: klog does nothing, and Kafka comes through"
        for name in self.malformed:
            if (self.ours / name).read_bytes() != (self.before / name).read_bytes():
                yield f"{name}: has changed"
        outcome, theirs = self.load(loader, {name: name not in self.refused + left for name in partitions})
        if not outcome.ok:
            yield f"klog goes on, and Kafka does not: {outcome}"
            return
        for name in self.refused + left:
            shutil.rmtree(self.ours / name)
        for name in self.malformed:
            (self.ours / name).unlink()
            (self.before / name).unlink()
            (theirs / name).unlink(missing_ok=True)
        yield from unlike(self.ours, theirs, self.before)
