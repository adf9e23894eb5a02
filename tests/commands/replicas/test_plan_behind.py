"""`klog metadata plan` on a metadata log that is older than the logs: it appends the missing records."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.cluster.metadata.metadata_loader import ClusterMetadata, read_metadata
from klog.data_dir.log_dir import LogDir

from tests.commands.replicas.test_metadata_plan import ADDRESSES, disks, quorum
from tests.support.metadata_logs import topic, uuid, value
from tests.support.rolled_back import data, known, metadata, partition

Run = Callable[..., Any]
pytestmark = [pytest.mark.usefixtures("hasty")]
__all__ = ["quorum"]


def planned(klog: Run, *words: object) -> dict[str, Any]:
    """Apply a plan; return its message about the metadata."""
    ran = klog("metadata", "plan", *map(str, words), "--apply", "--output", "json")
    assert ran.exit_code == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)["metadata"]
    return found


def state(log_dir: Path) -> ClusterMetadata:
    found = read_metadata(LogDir(str(log_dir)))
    assert found is not None
    assert not found.problems
    return found


def is_behind(klog: Run, *log_dirs: Path) -> bool:
    notes = json.loads(klog("doctor", "--output", "json", *log_dirs).stdout)["notes"]
    return any(one["id"] == "metadata-log-behind" for one in notes)


@pytest.mark.parametrize(
    ("epoch", "free", "after"), [(4, None, (5, None)), (90, 1000, (91, 1000)), (3, 1000, (4, 1000))]
)
def test_a_partition_gets_an_epoch_that_no_log_has(
    epoch: int, free: int | None, after: tuple[int, int | None], klog: Run, tmp_path: Path
) -> None:
    """One that leads alone is not raised by one, but above what its log has."""
    folder = tmp_path / "data"
    metadata(folder, 3, free)
    partition(folder, [data(0), data(2, epoch)], [(0, 0), (epoch, 2)])
    assert is_behind(klog, folder) == (epoch > 3)
    made = planned(klog, folder, "--only-broker", 1)
    assert (made["mended"] is not None) == (epoch > 3)
    found = state(folder)
    owned = found.partitions[uuid(7)][0]
    assert (owned.leader_epoch, found.state.settings.next_producer_id) == after
    assert (owned.replicas, owned.isr, owned.leader, owned.directories) == ((1,), (1,), 1, (uuid(101),))
    assert not is_behind(klog, folder)


@pytest.mark.parametrize(
    ("ids", "free", "after"),
    [([999], 1000, 1000), ([1000], 1000, 2000), ([0], None, 1000), ([5, 77_123, 40_000], 2000, 78_000)],
)
def test_producer_ids_go_on_behind_those_in_use(
    ids: list[int], free: int | None, after: int, klog: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    metadata(folder, 0, free)
    partition(folder, [data(0)], [(0, 0)], {2: [known(one) for one in ids]})
    made = planned(klog, folder, "--only-broker", 1)
    assert state(folder).state.settings.next_producer_id == after
    assert (made["mended"] or {"next_producer_id": free})["next_producer_id"] == after
    assert not is_behind(klog, folder)


def test_all_disks_count(klog: Run, tmp_path: Path) -> None:
    """The longer copy is taken, and the shorter one has the later epoch and the higher id: both count."""
    for node, batches in ((1, [data(0), data(2, 4)]), (2, [data(0, 9, 5000)])):
        folder = tmp_path / f"broker-{node}"
        log = metadata(folder, 3, 1000, replicas=(1, 2))
        meta = log.log_dir / "meta.properties"
        meta.write_text(f"version=1\ncluster.id=x\nnode.id={node}\ndirectory.id={uuid(100 + node)}\n")
        partition(folder, batches, [(0, 0)])
    made = planned(klog, *disks(tmp_path), "--only-broker", 1, "--keep", "1")
    assert made["mended"]["epochs"] == [{"topic": "orders", "partition": 0, "log": 9, "metadata": 3}]
    found = state(tmp_path / "broker-1")
    assert (found.partitions[uuid(7)][0].leader_epoch, found.state.settings.next_producer_id) == (10, 6000)


@pytest.mark.parametrize("words", [("--voters", ADDRESSES), ("--only-voter", 3)])
def test_a_plan_for_the_voters_mends_it_as_well(words: tuple[object, ...], klog: Run, quorum: Path) -> None:
    """A plan writes only one batch more: brokers, replicas and leaders are unchanged."""
    before = state(quorum / "broker-1")
    topic_id = before.topic_ids["solo95"]
    place = partition(quorum / "broker-3", [data(0, 70)], [(70, 0)], name="solo95")
    (place / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    key = 0
    made = planned(klog, *disks(quorum), *words)
    assert [(one["log"], one["partition"]) for one in made["mended"]["epochs"]] == [(70, key)]
    after = state(quorum / "broker-3")
    known_before = before.partitions[topic_id][key]
    wanted = known_before._replace(leader_epoch=71, partition_epoch=known_before.partition_epoch + 1)
    assert after.partitions[topic_id][key] == wanted
    others = {number: one for number, one in after.partitions[topic_id].items() if number != key}
    assert others == {number: one for number, one in before.partitions[topic_id].items() if number != key}


def test_static_voters_are_mended_as_well(klog: Run, tmp_path: Path) -> None:
    """Their addresses are in the configuration: only missing records are appended, the same on each disk."""
    for node in (1, 2):
        folder = tmp_path / f"broker-{node}"
        log = metadata(folder, 3, 1000, replicas=(1, 2))
        meta = log.log_dir / "meta.properties"
        meta.write_text(f"version=1\ncluster.id=x\nnode.id={node}\ndirectory.id={uuid(100 + node)}\n")
        partition(folder, [data(0), data(2, 8, 4000)], [(0, 0), (8, 2)])
    voters = "1@a:9093,2@b:9093"
    made = planned(klog, *disks(tmp_path), "--voters", voters)
    assert [one["records"] for one in made["appended"]] == [["PARTITION", "PRODUCER_IDS"]]
    assert f"on every node, including brokers: controller.quorum.voters={voters}" in made["next"]
    logs = [sorted((disk / "__cluster_metadata-0").glob("*.log")) for disk in disks(tmp_path)]
    assert [one.read_bytes() for one in logs[0]] == [one.read_bytes() for one in logs[1]]
    for disk in disks(tmp_path):
        found = state(disk)
        after = found.partitions[uuid(7)][0]
        assert (after.leader_epoch, after.replicas, found.state.settings.next_producer_id) == (9, (1, 2), 5000)
        assert not is_behind(klog, disk)
    ran = klog("metadata", "plan", *disks(tmp_path), "--voters", voters)  # nothing is missing any more
    assert (ran.exit_code, b"kraft.version is 0" in ran.stderr) == (8, True)


def damaged(folder: Path, roll: bool = False) -> None:
    """Write a log dir whose metadata log is damaged where a topic and the block from 5000 on were added."""
    log = metadata(folder, 3, 1000)
    log.add_control()
    at = log.log.stat().st_size
    log.add(topic("gone", 9))
    damaged_log = log.log
    if roll:
        log.roll()
    log.add(value("ProducerIds", brokerId=1, brokerEpoch=11, nextProducerId=6000))
    content = bytearray(damaged_log.read_bytes())
    content[at + 70] ^= 1
    damaged_log.write_bytes(content)
    for one in log.path.glob("*.log"):
        one.with_suffix(".index").touch()
    partition(folder, [data(0), data(2, 4, 5000)], [(0, 0), (4, 2)])


@pytest.mark.parametrize("roll", [False, True])
def test_a_damaged_base_is_built_on_as_far_as_its_node_has_it(roll: bool, klog: Run, tmp_path: Path) -> None:
    """Only if --base requests it: the part behind the damage is lost, as at the node's own start; that is reported."""
    folder = tmp_path / "data"
    damaged(folder, roll)
    ran = klog("metadata", "plan", folder, "--only-broker", "1")
    assert (ran.exit_code, b"--base chooses another" in ran.stderr) == (8, True)
    ran = klog("metadata", "plan", folder, "--only-broker", "1", "--base", "1", "--apply", "--output", "json")
    assert ran.exit_code == 5, ran
    made = json.loads(ran.stdout)["metadata"]
    assert made["base"]["offset"] == 6
    assert any("2 offsets, which its own start would also truncate" in one for one in made["next"])
    found = state(folder)
    assert (found.state.settings.next_producer_id, "gone" in found.topic_ids) == (6000, False)
    assert found.partitions[uuid(7)][0].leader_epoch == 5
    done = klog("doctor", "--output", "json", folder)
    assert (done.exit_code, json.loads(done.stdout)["notes"]) == (0, [])


def test_an_older_base_of_which_the_logs_need_no_more(klog: Run, quorum: Path) -> None:
    """--base 2 is 13 records behind; the logs have nothing of these, and nothing is appended for them."""
    made = planned(klog, *disks(quorum), "--only-voter", 2, "--base", 2)
    assert (made["base"]["node"], made["mended"]) == (2, None)
    assert [one["records"] for one in made["appended"]] == [["VOTERS"]]
