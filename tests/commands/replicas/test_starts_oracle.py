"""The results of `klog replicas` for harmed disks, against Kafka's own load of each of them.

A record is lost if a node leads when some disk has it intact now, and that node's log does not have it once Kafka has
loaded it; below the log start only DeleteRecords excuses that.
"""

from __future__ import annotations

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import crc32c
import pytest

from tests.commands.replicas.test_batch_comparison import Made, end, histories
from tests.oracles.broker_load import Loader
from tests.support import metadata_logs
from tests.support.metadata_logs import uuid

Run = Callable[..., Any]
pytestmark = [pytest.mark.kafka, pytest.mark.usefixtures("hasty")]
Records = set[tuple[int, bytes]]


def intact(folder: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the records of the batches whose checksums hold: offset, and the batch with its position there."""
    for path in sorted(folder.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at + 61 <= len(data):
            base, length = struct.unpack_from(">qi", data, at)
            batch = data[at : at + 12 + length]
            at += 12 + length
            if len(batch) == 12 + length and struct.unpack_from(">I", batch, 17)[0] == crc32c.crc32c(batch[21:]):
                for delta in range(struct.unpack_from(">i", batch, 57)[0]):
                    yield base + delta, batch


def end_on_disk(folder: Path) -> int:
    """Return the offset behind the last batch that is whole, intact or not."""
    path = max(folder.glob("*.log"))
    data, at, found = path.read_bytes(), 0, int(path.stem)
    while at + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        if at + 12 + length > len(data):
            break
        found = base + struct.unpack_from(">i", data, at + 23)[0] + 1
        at += 12 + length
    return int(found)


class Harmed:
    """The disks of one seed.  *lines*: by node, the log start that DeleteRecords has left."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root, self.random, self.lines = root, Random(seed), dict[int, int]()
        nodes, elections = self.random.choice(((2, 1), (2, 3), (3, 1), (3, 4)))
        self.nodes = tuple(range(1, nodes + 1))
        logs = histories(seed, nodes, elections)
        if self.random.random() < 0.5:  # all in sync
            longest = max(logs.values(), key=end)
            logs = dict.fromkeys(logs, longest)
        self._metadata(self.place(1).parent, elections)
        for node, log in logs.items():
            self._write(node, log)
            self._harm(node, log)

    def place(self, node: int) -> Path:
        return self.root / str(node) / "t-0"

    @property
    def disks(self) -> list[Path]:
        return [self.place(node).parent for node in self.nodes]

    def _metadata(self, place: Path, epoch: int) -> None:
        made = metadata_logs.MetadataLog(place)
        made.add(metadata_logs.value("FeatureLevel", name="metadata.version", featureLevel=16))
        made.add(metadata_logs.topic("t", 7))
        fields = {"replicas": list(self.nodes), "isr": list(self.nodes), "leader": 1, "leaderEpoch": epoch}
        made.add(metadata_logs.value("Partition", topicId=uuid(7), partitionId=0, **fields))
        made.add(metadata_logs.config(2, "t", "retention.ms", "-1"))

    def _write(self, node: int, log: list[Made]) -> None:
        place, base = self.place(node), 0
        place.mkdir(parents=True)
        properties = f"version=1\ncluster.id=x\nnode.id={node}\ndirectory.id={uuid(100 + node)}\n"
        (place.parent / "meta.properties").write_text(properties)
        (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(7)}\n")
        epochs = {one.epoch: one.first for one in reversed(log)}
        lines = [f"{epoch} {first}" for epoch, first in sorted(epochs.items())]
        (place / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
        for number, one in enumerate(log):
            if number and self.random.random() < 0.3:
                base = one.first
            with open(place / f"{base:020}.log", "ab") as file:
                file.write(one.data)
        for path in [*place.glob("*.log")] or [place / f"{0:020}.log"]:
            path.touch()
            path.with_suffix(".index").touch()
            path.with_suffix(".timeindex").touch()

    def _harm(self, node: int, log: list[Made]) -> None:
        random, place, log_end = self.random, self.place(node), end(log)
        if random.random() < 0.5:
            (place.parent / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":1}')
        self._checkpoint(node, "recovery-point", random.choice((0, log_end, random.randint(0, log_end))))
        self._checkpoint(node, "replication", log_end)
        paths = sorted(place.glob("*.log"))
        if random.random() < 0.4:
            for path in paths[: random.randrange(len(paths))]:
                for one in place.glob(f"{path.stem}.*"):
                    one.unlink()
            paths = sorted(place.glob("*.log"))
        if random.random() < 0.2:
            self.lines[node] = random.randint(0, log_end)
            self._checkpoint(node, "log-start", self.lines[node])
        for _ in range(random.choice((0, 0, 1, 2))):
            path = random.choice(paths)
            data = bytearray(path.read_bytes())
            starts, at = [], 0
            while at < len(data):
                starts.append(at)
                at += 12 + struct.unpack_from(">i", data, at + 8)[0]
            if starts:
                data[random.choice(starts) + 61 + random.randrange(3)] ^= 1 << random.randrange(8)
                path.write_bytes(data)
        if random.random() < 0.2 and paths[-1].stat().st_size > 61:
            data = paths[-1].read_bytes()
            paths[-1].write_bytes(data[: -random.randint(1, 60)])

    def _checkpoint(self, node: int, kind: str, offset: int) -> None:
        (self.place(node).parent / f"{kind}-offset-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")

    def line(self, node: int) -> int:
        """Return the log start in a disk's checkpoint; 0 without one."""
        path = self.place(node).parent / "log-start-offset-checkpoint"
        rows = path.read_text().split("\n")[2:] if path.exists() else []
        return next((int(row.split()[2]) for row in rows if row.startswith("t 0 ")), 0)

    def loaded(self, node: int, loader: Loader) -> tuple[int, Records]:
        """Return log start and records of a node's log once Kafka has loaded it; a copy is loaded."""
        copy = self.root / f"loaded-{node}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.place(node).parent, copy, ignore=shutil.ignore_patterns("__cluster_metadata-0"))
        outcome = loader.load(copy)
        assert outcome.ok, outcome
        bases = [int(path.stem) for path in sorted((copy / "t-0").glob("*.log"))]
        start = max(bases[0], self.line(node))
        return start, {one for one in intact(copy / "t-0") if one[0] >= start}


def lost(disks: Harmed, node: int, held: Records, loaded: dict[int, tuple[int, Records]]) -> Records:
    """Return the losses if *node* leads, by sets."""
    start, kept = loaded[node]
    # A line beyond the end of its log is ignored: the end is lost, or the line was never right.
    lines = [line for other, line in disks.lines.items() if line <= end_on_disk(disks.place(other))]
    excused = min(max([0, *lines]), start)
    return {one for one in held - kept if one[0] >= excused}


def check(seed: int, root: Path, klog: Run, loader: Loader) -> int:
    disks = Harmed(root, seed)
    loaded = {node: disks.loaded(node, loader) for node in disks.nodes}
    held: Records = set()
    for node in disks.nodes:
        held |= {one for one in intact(disks.place(node)) if one[0] >= loaded[node][0]}
    done = klog("replicas", "diff", *disks.disks, "--output", "json")
    assert done.exit_code in (0, 4), (seed, done.stderr)
    found = json.loads(done.stdout)["partitions"][0]
    total = 0
    for node in disks.nodes:
        wanted = lost(disks, node, held, loaded)
        total += len(wanted)
        assert found["copies"][str(node)]["log_start"] == loaded[node][0], (seed, node)
        assert found["lost_if_leads"][str(node)]["records"] == len(wanted), (seed, node)
        ran = klog("replicas", "rescue", *disks.disks, "--if-leads", str(node), "--to", "-")
        unread = b"cannot be read" in ran.stderr  # a damaged batch that no copy has intact
        assert ran.exit_code == (4 if unread else 0), (seed, node, ran.stderr)
        offsets = sorted(json.loads(line)["offset"] for line in ran.stdout.splitlines())
        assert offsets == sorted(offset for offset, _ in wanted), (seed, node)
    assert done.exit_code == (4 if total or found["verdict"] not in ("same", "behind") else 0), (seed, found["verdict"])
    return total


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 40), *(pytest.param(first, 200, marks=pytest.mark.long) for first in range(1000, 2000, 200))],
)
def test_what_is_lost_is_what_kafka_does_not_load(first: int, count: int, tmp_path: Path, klog: Run) -> None:
    with Loader() as loader:
        records = [check(seed, tmp_path / str(seed), klog, loader) for seed in range(first, first + count)]
    assert sum(map(bool, records)) > count // 4


POLICIES: tuple[tuple[str, ...], ...] = ((), (), ("--keep", "longest"), ("--keep", "newest"), ("--keep", "1"))


def check_plan(seed: int, root: Path, klog: Run, loader: Loader) -> tuple[int, int]:
    """Apply a plan; return how many records it named as lost, and how many copies it changed."""
    disks = Harmed(root, seed)
    policy = (*disks.random.choice(POLICIES), *disks.random.choice(((), ("--repair",))))
    before = {node: disks.loaded(node, loader) for node in disks.nodes}
    held: Records = set()
    for node in disks.nodes:
        held |= {one for one in intact(disks.place(node)) if one[0] >= before[node][0]}
    lines = [line for node, line in disks.lines.items() if line <= end_on_disk(disks.place(node))]
    was_lost = {node: lost(disks, node, held, before) for node in disks.nodes}
    done = klog("replicas", "plan", *disks.disks, *policy, "--apply", "--output", "json")
    assert done.exit_code in (0, 4, 5), (seed, policy, done.stderr)
    plan = json.loads(done.stdout)
    after = {node: disks.loaded(node, loader) for node in disks.nodes}
    named = sum(loss["records"] for loss in plan.get("losses", []))
    if not plan["copies"]:
        assert after == before, (seed, policy)
        assert done.exit_code == 4 or not any(was_lost.values()), (seed, policy)
        return 0, 0
    begin = max(start for start, _ in after.values())
    contents = [{one for one in kept if one[0] >= begin} for _, kept in after.values()]
    assert all(content == contents[0] for content in contents), (seed, policy)
    for node, (start, kept) in after.items():
        gone = {one for one in held - kept if one[0] >= min(max([0, *lines]), start)}
        assert len(gone) <= named, (seed, policy, node, len(gone), named)
    if not named:
        found = json.loads(klog("replicas", "diff", *disks.disks, "--output", "json").stdout)["partitions"][0]
        assert not any(one["records"] for one in found["lost_if_leads"].values()), (seed, policy)
    return named, len(plan["copies"][0]["targets"])


@pytest.mark.parametrize(
    ("first", "count"),
    [
        (0, 25),
        (1144, 1),
        (1763, 1),
        *(pytest.param(first, 200, marks=pytest.mark.long) for first in range(1000, 2000, 200)),
    ],
)
def test_a_plan_loses_nothing_that_it_does_not_name(first: int, count: int, tmp_path: Path, klog: Run) -> None:
    """All copies are equal once Kafka has loaded them, and hold all records that no loss names."""
    with Loader() as loader:
        done = [check_plan(seed, tmp_path / str(seed), klog, loader) for seed in range(first, first + count)]
    assert sum(targets > 0 for _, targets in done) > count // 5
