"""Metadata logs and snapshots of a real quorum, spoilt: the result is a state, a history and plans, or klog's errors.

logs = MetadataLogs(Random(1), folder)
logs.spoil_and_read()

The kernel's bulk path has to lead to the same state as the rules for single records.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.oracles.plain import mutate
from tests.oracles.plain.decode import scan

if TYPE_CHECKING:
    from klog.cluster.metadata.change_history import HistorySubject
    from klog.commands.replicas.quorum_plan import QuorumPlanner
    from klog.kernel import Window

DISKS = Path(__file__).resolve().parents[2] / "fixtures" / "replicas" / "quorum"
NODES = (1, 2, 3)
FOLDER = "__cluster_metadata-0"
LAST_OFFSET = 120
"""A little behind the end of all logs."""


def spoilt(content: bytes, chance: Random) -> bytes:
    """Return a log or a snapshot with a few changes, mostly inside of batches, whose checksums are put right."""
    entries = [content[one.position : one.position + (one.size or 0)] for one in scan(content)]
    for _ in range(chance.choice((1, 1, 2, 5))):
        if not entries or chance.random() < 0.2:
            return mutate.mutate(b"".join(entries), chance)
        at = chance.randrange(len(entries))
        way = chance.random()
        if way < 0.8:
            entries[at] = mutate.mutate_inside(entries[at], chance, chance.choice((1, 1, 3)))
        elif way < 0.9:
            del entries[at]
        else:
            entries.insert(at, chance.choice(entries))
    return b"".join(entries)


class MetadataLogs:
    """Copies of the disks in *folder*, where they are changed and put right again."""

    def __init__(self, chance: Random, folder: Path) -> None:
        self.chance = chance
        self.disks = {node: folder / f"broker-{node}" for node in NODES}
        for node, disk in self.disks.items():
            shutil.copytree(DISKS / f"broker-{node}", disk)
        found = sorted(path for disk in self.disks.values() for path in (disk / FOLDER).iterdir())
        self.files = {path: path.read_bytes() for path in found if path.suffix in (".log", ".checkpoint")}

    def spoil_and_read(self) -> None:
        """Spoil some files, ask everything, and put the files right."""
        chosen = self.chance.sample(sorted(self.files), self.chance.choice((1, 1, 2, 4)))
        for path in chosen:
            path.write_bytes(spoilt(self.files[path], self.chance))
        try:
            for path in chosen:
                self.read_both_ways(path)
            self.tell_state(self.chance.choice(NODES))
            self.tell_history(self.chance.choice(NODES))
            self.plan()
        finally:
            for path in chosen:
                path.write_bytes(self.files[path])

    def read_both_ways(self, path: Path) -> None:
        """Replay a file as it is, and record by record."""
        from klog.cluster.metadata.metadata_image import MetadataImage
        from klog.cluster.metadata.metadata_replay import Problems, Replay

        class OneByOne(Replay):
            def pass_over(self, rows: Window, first: int, until: int) -> int:
                return first

        answers = []
        for kind in (Replay, OneByOne):
            replay = kind(MetadataImage(), Problems())
            replay.log(str(path), 0, 2**62, is_in_use=False)
            answers.append((replay.state, replay.problems.sentences(), replay.expected, replay.in_transaction))
        assert answers[0] == answers[1], f"{path.name}: records in bulk and one by one"
        for partitions in answers[0][0].topics.partitions.values():
            assert [one["partition"] for one in json.loads(partitions.json())] == list(partitions)

    def tell_state(self, node: int) -> None:
        """Print the output of `show`, as of the end and of some offset."""
        from klog.base.errors import KlogError
        from klog.cluster.metadata.metadata_directory import open_metadata
        from klog_cli.views.metadata.json import document

        for at in (None, self.chance.randrange(LAST_OFFSET)):
            with suppress(KlogError):
                directory = open_metadata(str(self.disks[node]))
                found = directory.read(at)
                shown = json.loads(b"".join(document(directory, found, directory.end, sorted(found.topic_ids))))
                assert shown["at"] == found.end_offset
                assert {one["topic_id"] for one in shown["topics"]} == set(found.partitions)

    def tell_history(self, node: int) -> None:
        """Changes are in the order of their offsets."""
        from klog.base.errors import KlogError
        from klog.cluster.metadata.change_history import BrokerSubject, PartitionSubject, QuorumSubject, read_history
        from klog.cluster.metadata.metadata_replay import Problems
        from klog.data_dir.partition import Partition

        subjects: tuple[HistorySubject, ...] = (PartitionSubject("elr16", 0), BrokerSubject(2), QuorumSubject())
        with suppress(KlogError):
            partition = Partition(str(self.disks[node] / FOLDER))
            changes = list(read_history(partition, self.chance.choice(subjects), Problems()))
            assert all(not change.changed or change.record for change in changes)

    def plan(self) -> None:
        """One of the plans, drafted and not saved: its future content is read back before it is one."""
        from klog.base.errors import KlogError
        from klog.cluster.metadata.topic_config import TopicConfig
        from klog.commands.replicas.copy_choice import CopyChoice
        from klog.commands.replicas.copy_plan import CopyPlanSettings
        from klog.commands.replicas.voter_addresses import VoterAddress

        addresses = {node: VoterAddress(f"new-{node}", 9090 + node) for node in NODES}
        node, uses_disk_ids = self.chance.choice(NODES), self.chance.random() < 0.3
        copies = CopyPlanSettings(CopyChoice("newest"), TopicConfig(), 0, 0)
        with suppress(KlogError), self.planner() as planner:
            way = self.chance.randrange(3)
            if way == 0:
                planner.move_voters(addresses, uses_disk_ids=uses_disk_ids)
            elif way == 1:
                planner.lead_alone(node, addresses[node], uses_disk_ids=uses_disk_ids)
            else:
                planner.own_everything(node, copies, addresses[node])
            assert planner.drafts()

    @contextmanager
    def planner(self) -> Iterator[QuorumPlanner]:
        """Give what plans on the three disks."""
        from klog.change.plan.session import PlanOptions, PlanSession
        from klog.commands.replicas.disks import BrokerDisk, open_disks
        from klog.commands.replicas.quorum_plan import QuorumPlanner, QuorumSettings
        from klog.data_dir.selection import PartitionQuery

        paths = [str(disk) for disk in self.disks.values()]
        nodes = [disk.node for disk in open_disks(paths)]
        with PlanSession(PartitionQuery(paths), PlanOptions("metadata")) as session:
            disks = [BrokerDisk(node, one.log_dir) for node, one in zip(nodes, session.selections, strict=True)]
            yield QuorumPlanner(disks, session.staging, QuorumSettings(0), session.disk)
