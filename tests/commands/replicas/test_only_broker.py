"""`klog metadata plan --only-broker`: the appended records, the copies, and the refusals."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.cluster.metadata.metadata_loader import ClusterMetadata, read_metadata
from klog.commands.replicas import metadata_changes as new_batches
from klog.data_dir.log_dir import LogDir
from klog.formats.control import kraft_control
from klog.formats.internal_topics import MetadataRecord, metadata_record
from klog.log.segment import Segment

from tests.commands.replicas.test_copy_plan import batches, trees
from tests.commands.replicas.test_metadata_plan import disks, refused, taken
from tests.oracles.plain.encode import Record
from tests.oracles.plain.encode import batch as encoded
from tests.support import metadata_logs
from tests.support.metadata_logs import uuid

Run = Callable[..., Any]
Image = Callable[[str], Path]
pytestmark = [pytest.mark.usefixtures("hasty")]


def own(klog: Run, root: Path, node: int, *options: object, code: int = 0) -> Any:
    words = map(str, ("--only-broker", node, *options, "--apply", "--output", "json"))
    ran = klog("metadata", "plan", *disks(root), *words)
    assert ran.exit_code == code, ran.stderr
    return json.loads(ran.stdout)


def state(root: Path, node: int) -> ClusterMetadata:
    found = read_metadata(LogDir(str(root / f"broker-{node}")))
    assert found is not None
    assert not found.problems
    return found


def appended(root: Path, node: int, offset: int) -> list[MetadataRecord]:
    """Return the metadata records of a node's log from *offset* on."""
    partition = LogDir(str(root / f"broker-{node}")).metadata_log
    assert partition is not None
    found = []
    for files in partition.segments:
        for batch in Segment(partition.file(files.log)).batches():
            if batch.base_offset >= offset and not batch.is_control:  # type: ignore[union-attr]
                for record in batch.records():  # type: ignore[union-attr]
                    decoded = metadata_record(record.value)  # type: ignore[union-attr]
                    assert isinstance(decoded, MetadataRecord)
                    found.append(decoded)
    return found


# ---------------------------------------------------------------- real disks


@pytest.mark.corpora
def test_a_broker_that_was_behind_owns_everything(klog: Run, image: Image, tmp_path: Path) -> None:
    """Node 2 was killed before the others: its metadata log is filled up, and it gets what only they have."""
    root = taken(image, "quorum", tmp_path)
    before, original = state(root, 1), trees(root)
    others = {name: one for name, one in original.items() if name != "broker-2"}
    plan = own(klog, root, 2, code=5)
    made = plan["metadata"]
    assert {name: one for name, one in trees(root).items() if name != "broker-2"} == others
    assert made["extended"] == {"2": 13}
    assert [one["records"][0] for one in made["appended"]] == ["VOTERS", "PARTITION_CHANGE"]
    assert {one["topic"] for one in made["lost"]} == {"grown7", "tuned21"}
    after, mine = state(root, 2), LogDir(str(root / "broker-2"))
    assert [voter.id for voter in after.quorum.voters or ()] == [2]
    assert {node for node, broker in after.brokers.items() if not broker.unregistered} == {2}
    lost = {(one["topic"], one["partition"]) for one in made["lost"]}
    for topic, topic_id in before.topic_ids.items():
        for number, known in before.partitions[topic_id].items():
            found = after.partitions[topic_id][number]
            if (topic, number) in lost:
                assert found == known
                continue
            assert (found.replicas, found.isr, found.leader) == ((2,), (2,), 2)
            assert (found.elr, found.last_known_elr, found.adding, found.removing) == ((), (), (), ())
            assert found.directories == (mine.directory_id,)
            assert (found.leader_epoch, found.partition_epoch) == (known.leader_epoch + 1, known.partition_epoch + 1)
            held = [disk / f"{topic}-{number}" for disk in disks(root) if (disk / f"{topic}-{number}").is_dir()]
            logs = [batches(LogDir(str(path.parent)).partition(path.name)) for path in held]
            assert batches(mine.partition(f"{topic}-{number}")) == max(logs, key=len)
    assert klog("undo", plan["backup"], "--apply").exit_code == 0
    assert trees(root) == original


@pytest.mark.corpora
def test_diverged_copies_have_to_be_chosen(klog: Run, image: Image, tmp_path: Path) -> None:
    """No default on a fork: only the operator knows which branch counts."""
    root = taken(image, "split", tmp_path)
    controller = root / "controller-4"
    for disk in disks(root):
        shutil.rmtree(disk / "__cluster_metadata-0")
        shutil.copytree(controller / "__cluster_metadata-0", disk / "__cluster_metadata-0")
    words = ("--only-broker", 1, "--voter", "localhost:9093")
    said = refused(klog, root, *words, code=16)
    assert "orders-0: the copies diverge at offset 31: --keep or --choose" in said
    own(klog, root, 1, "--voter", "localhost:9093", "--keep", "newest", "--choose", "keyed-0=1")
    mine = {one.directory: batches(one) for one in LogDir(str(root / "broker-1")).partitions if one.topic == "orders"}
    theirs = {one.directory: batches(one) for one in LogDir(str(root / "broker-3")).partitions if one.topic == "orders"}
    assert mine["orders-0"] == theirs["orders-0"]


# ---------------------------------------------------------------- disks to order


class Disks:
    """Two brokers' log dirs in a cluster of two, with one metadata log on both.

    *level*: metadata.version.  *inside*: of a broker's directory, where its log dir is.  Node 1 is the only voter; of
    the topic `t` partition 0 is on both, 1 on node 2.
    """

    def __init__(self, root: Path, level: int, more: tuple[bytes, ...] = (), inside: str = "") -> None:
        self.root = root
        self.logs = []
        for node in (1, 2):
            log = metadata_logs.MetadataLog(root / f"broker-{node}" / inside)
            log.add(metadata_logs.value("FeatureLevel", name="metadata.version", featureLevel=level))
            for broker in (1, 2):
                register = {"brokerId": broker, "brokerEpoch": 10 + broker, "incarnationId": uuid(broker)}
                log.add(metadata_logs.value("RegisterBroker", **register, logDirs=[uuid(100 + broker)]))
            log.add(metadata_logs.topic("t", 7))
            for number, replicas in enumerate(([1, 2], [2])):
                fields = {"replicas": replicas, "isr": replicas, "leader": replicas[0], "leaderEpoch": 3}
                directories = [uuid(100 + each) for each in replicas] if level >= 17 else []
                reassigned = {"addingReplicas": [1], "removingReplicas": [2]} if number == 0 else {}
                partition = {"topicId": uuid(7), "partitionId": number, "partitionEpoch": 5, "directories": directories}
                log.add(metadata_logs.value("Partition", **fields, **partition, **reassigned))
            for each in more:
                log.add(each)
            self.logs.append(log)
            properties = f"version=1\ncluster.id=x\nnode.id={node}\ndirectory.id={uuid(100 + node)}\n"
            (log.log_dir / "meta.properties").write_text(properties)
        for node, number in ((1, 0), (2, 0), (2, 1)):
            path = root / f"broker-{node}" / inside / f"t-{number}"
            path.mkdir()
            (path / f"{0:020d}.log").write_bytes(encoded([Record(0, 1, b"k", b"v")]))
            (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(7)}")


@pytest.mark.parametrize(
    ("level", "version"), [(16, 0), (17, 1), (22, 1), (23, 2), (30, 2)], ids=["3.7", "3.7-IV2", "4.0-IV0", "elr", "4.3"]
)
def test_records_have_the_versions_of_the_cluster(klog: Run, tmp_path: Path, level: int, version: int) -> None:
    """A broker of 3.9 does not start over a record that it cannot read."""
    made = Disks(tmp_path / "disks", level)
    end = made.logs[0].end
    plan = own(klog, made.root, 1)
    assert [one["records"] for one in plan["metadata"]["appended"]] == [
        ["PARTITION_CHANGE"] * 2 + ["UNREGISTER_BROKER"]
    ]
    first, second, last = appended(made.root, 1, end)
    assert (first.version, second.version, last.version) == (version, version, 0)
    assert (last.data["brokerId"], last.data["brokerEpoch"]) == (2, 12)
    assert first.data["removingReplicas"] == first.data["addingReplicas"] == []
    assert second.data["removingReplicas"] is second.data["addingReplicas"] is None
    for record in (first, second):
        assert (record.data["replicas"], record.data["isr"], record.data["leader"]) == ([1], [1], 1)
        assert record.data["directories"] == ([uuid(101)] if version else None)
        emptied = [] if version == 2 else None
        assert record.data["eligibleLeaderReplicas"] == record.data["lastKnownElr"] == emptied
        assert record.data["leaderRecoveryState"] == -1
    assert state(made.root, 1).partitions[uuid(7)][0].adding == ()
    assert (made.root / "broker-1" / "t-1" / f"{0:020d}.log").exists()


def test_people_read_what_becomes_of_it(klog: Run, tmp_path: Path) -> None:
    made = Disks(tmp_path / "disks", 30)
    for log in made.logs:
        log.add(metadata_logs.config(2, "t", "min.insync.replicas", "2"))
    shutil.rmtree(made.root / "broker-1" / "t-0")
    ran = klog("metadata", "plan", *disks(made.root), "--only-broker", "1", "--voter", "here:9093")
    assert ran.exit_code == 0
    end = made.logs[0].end
    assert ran.stdout.decode().splitlines()[:-2] == [
        "1 metadata log planned; 20 changes",
        f"base: node 1, offset {end}, epoch 0 ({made.root}/broker-1/__cluster_metadata-0)",
        f"    node 1: 1 batch from {end} on",
        f"batch at {end}, epoch 1: PARTITION_CHANGE × 2, UNREGISTER_BROKER",
        "node 1 owns 2 partitions; 2 copied from other disks",
        "    t-0 from node 2",
        "    t-1 from node 2",
        "next: on node 1: process.roles=broker,controller",
        "next: on node 1: controller.quorum.voters=1@here:9093",
        "next: on node 1: offsets.topic.replication.factor=1",
        "next: on node 1: transaction.state.log.replication.factor=1",
        "next: on node 1: transaction.state.log.min.isr=1",
        "next: on node 1: min.insync.replicas=1",
        "next: once it is running: kafka-configs --alter --entity-type topics --entity-name t"
        " --add-config min.insync.replicas=1 (now 2)",
    ]
    assert ran.stdout.decode().splitlines()[-2] == "nothing has been changed; next:"
    assert b"no disk of cluster x that was left out may start again with this cluster id" in ran.stderr
    assert b"once a controller has started on these logs, undo is impossible" in ran.stderr


def test_an_open_transaction_is_ended_first(klog: Run, tmp_path: Path) -> None:
    """Otherwise all appended records would be a part of it, and the controller aborts it."""
    begun = (metadata_logs.value("BeginTransaction", name="half"), metadata_logs.topic("never", 9))
    made = Disks(tmp_path / "disks", 30, begun)
    plan = own(klog, made.root, 1)
    assert [one["records"][0] for one in plan["metadata"]["appended"]] == ["ABORT_TRANSACTION", "PARTITION_CHANGE"]
    after = state(made.root, 1)
    assert not after.open_transaction
    assert "never" not in after.topic_ids
    assert after.partitions[uuid(7)][1].leader == 1


def test_many_records_are_several_batches(klog: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka takes no batch of more than 8 MiB."""
    monkeypatch.setattr(new_batches, "_MOST_RECORDS", 2)
    made = Disks(tmp_path / "disks", 30)
    plan = own(klog, made.root, 1)
    appended = [(one["offset"] - made.logs[0].end, one["records"]) for one in plan["metadata"]["appended"]]
    assert appended == [(0, ["PARTITION_CHANGE"] * 2), (2, ["UNREGISTER_BROKER"])]
    assert state(made.root, 1).partitions[uuid(7)][1].leader == 1


def test_a_partition_of_another_topic_is_in_the_way(klog: Run, tmp_path: Path) -> None:
    """A directory left from a topic of that name that was deleted: nothing is copied over it."""
    made = Disks(tmp_path / "disks", 30)
    (made.root / "broker-1" / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(8)}")
    assert "of another topic" in refused(klog, made.root, "--only-broker", 1)


def test_a_partition_that_no_disk_has_is_lost(klog: Run, tmp_path: Path) -> None:
    made = Disks(tmp_path / "disks", 30)
    shutil.rmtree(made.root / "broker-2" / "t-1")
    plan = own(klog, made.root, 1, code=5)
    assert plan["metadata"]["lost"] == [{"topic": "t", "partition": 1}]
    assert any("1 of 2 partitions of t have no copy" in line for line in plan["metadata"]["next"])
    assert state(made.root, 1).partitions[uuid(7)][1].replicas == (2,)


@pytest.mark.parametrize("directory", ["new-0", "t-2", "t-1"])
def test_a_partition_that_the_metadata_log_lacks_is_named(klog: Run, tmp_path: Path, directory: str) -> None:
    """Its topic was created after the end of a metadata log that was cut: no disk gets a copy."""
    made = Disks(tmp_path / "disks", 30)
    path = made.root / "broker-2" / directory
    path.mkdir(exist_ok=True)
    (path / f"{0:020d}.log").write_bytes(encoded([Record(0, 1, b"k", b"v")]))
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(7 if directory == 't-2' else 8)}")
    topic, number = directory.split("-")
    plan = own(klog, made.root, 1, code=5 if directory == "t-1" else 0)
    assert plan["metadata"]["unknown"] == [{"topic": topic, "partition": int(number)}]
    assert any(f"the metadata log does not have {directory}: " in line for line in plan["metadata"]["next"])


def test_a_partition_that_the_metadata_log_has_is_not_named(klog: Run, tmp_path: Path) -> None:
    made = Disks(tmp_path / "disks", 30)
    (made.root / "broker-2" / "t-1" / "partition.metadata").unlink()
    assert own(klog, made.root, 1)["metadata"]["unknown"] == []


def test_the_log_dir_of_the_assignment_gets_the_copy(klog: Run, tmp_path: Path) -> None:
    """A broker with two log dirs: the directory's id is that of the one that has the partition."""
    made = Disks(tmp_path / "disks", 30)
    second = made.root / "broker-1-more"
    second.mkdir()
    shutil.move(made.root / "broker-1" / "t-0", second / "t-0")
    (second / "meta.properties").write_text(f"version=1\ncluster.id=x\nnode.id=1\ndirectory.id={uuid(150)}\n")
    own(klog, made.root, 1)
    after = state(made.root, 1).partitions[uuid(7)]
    assert after[0].directories == (uuid(150),)
    assert after[1].directories == (uuid(101),)


def test_who_is_no_broker(klog: Run, tmp_path: Path) -> None:
    made = Disks(tmp_path / "disks", 30)
    properties = made.root / "broker-2" / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=2", "node.id=5"))
    assert "no broker has registered as 5; the log has 1, 2" in refused(klog, made.root, "--only-broker", 5, code=16)


def test_who_was_no_voter_needs_an_address(klog: Run, tmp_path: Path) -> None:
    """Its listener has the name that the voters' listeners have."""
    made = Disks(tmp_path / "disks", 30)
    versions = {"minSupportedVersion": 0, "maxSupportedVersion": 1}
    endpoints = [{"name": "QUORUM", "host": "old", "port": 9093}]
    voter = {"voterId": 1, "voterDirectoryId": uuid(101), "endpoints": endpoints, "kRaftVersionFeature": versions}
    for log in made.logs:
        log.add_control(kraft_control(5, {"version": 0, "kRaftVersion": 1}))
        log.add_control(kraft_control(6, {"version": 0, "voters": [voter]}))
    assert "--voter HOST:PORT" in refused(klog, made.root, "--only-broker", 2, code=16)
    own(klog, made.root, 2, "--voter", "[::1]:19093")
    (voter_now,) = state(made.root, 2).quorum.voters or ()
    assert (voter_now.id, voter_now.directory_id, voter_now.kraft_versions) == (2, uuid(102), (0, 1))
    assert [str(one) for one in voter_now.endpoints] == ["QUORUM://[::1]:19093"]


@pytest.mark.parametrize("is_longer", [False, True])
@pytest.mark.parametrize("harm", ["flipped", "zeros"])
def test_a_repaired_copy_lacks_only_what_is_behind_it(is_longer: bool, harm: str, klog: Run, tmp_path: Path) -> None:
    """The other copy has the bad batch intact; a batch that follows there is left out, and named."""
    made = Disks(tmp_path / "disks", 30)
    first, second, third = (encoded([Record(at, 1, b"k", b"v" * 40)]) for at in range(3))
    bad = second[:-9] + b"w" + second[-8:] if harm == "flipped" else second[:70] + bytes(39)
    folders = [made.root / f"broker-{node}/t-0" for node in (1, 2)]
    (folders[0] / f"{0:020d}.log").write_bytes(first + bad)
    (folders[1] / f"{0:020d}.log").write_bytes(first + second + third * is_longer)
    words = ("--voter", "localhost:9093", "--choose", "t-0=1", "--repair")
    shown = klog("metadata", "plan", *disks(made.root), "--only-broker", "1", *words).stdout.decode()
    assert ("    t-0: 1 record lost, offset 2 (only in copies that are left out)" in shown) == is_longer
    plan = own(klog, made.root, 1, *words)
    assert b"".join(path.read_bytes() for path in sorted(folders[0].glob("*.log"))) == first + second
    named = [(one["topic"], one["partition"], one["first_offset"], one["records"]) for one in plan["losses"]]
    assert named == [("t", 0, 2, 1)] * is_longer
