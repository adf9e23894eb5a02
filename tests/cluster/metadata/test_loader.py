"""The metadata log of a log dir as a state: by Kafka's rules, with any damage in it."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.cluster.election import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from klog.cluster.metadata import metadata_loader as loader
from klog.cluster.metadata.cluster_image import BrokerRegistration, ListenerEndpoint
from klog.cluster.metadata.metadata_image import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage
from klog.cluster.metadata.metadata_loader import ClusterMetadata, read_metadata
from klog.cluster.metadata.topics_image import PartitionRegistration
from klog.data_dir.log_dir import Lock, LogDir
from klog.data_dir.partition import Partition
from klog.formats.checkpoint import PartitionMetadata
from klog.formats.internal_topics import MetadataRecord, metadata_record

from tests.brokers import kafka
from tests.conftest import CORPORA, FIXTURES, writable_copy
from tests.oracles.plain.encode import Record, batch
from tests.support.metadata_logs import SNAPSHOT_FOOTER, SNAPSHOT_HEADER, MetadataLog, config, topic, uuid, value

MODERN = FIXTURES / "modern" / "__cluster_metadata-0"
BEGIN, END, ABORT = value("BeginTransaction", name="x"), value("EndTransaction"), value("AbortTransaction")


def read(folder: Path) -> ClusterMetadata:
    found = read_metadata(LogDir(str(folder)))
    assert found is not None
    return found


@pytest.fixture
def log(tmp_path: Path) -> MetadataLog:
    return MetadataLog(tmp_path)


@pytest.fixture
def modern(tmp_path: Path) -> Path:
    """The metadata directory of a copy of fixtures/modern."""
    return writable_copy(MODERN, tmp_path / "data" / "__cluster_metadata-0")


def partition(number: int = 0, topic_number: int = 1, **fields: object) -> bytes:
    usual = {"replicas": [1, 2, 3], "isr": [1, 2], "leader": 1, "leaderEpoch": 5, "partitionEpoch": 7}
    return value("Partition", partitionId=number, topicId=uuid(topic_number), **{**usual, **fields})


def change(number: int = 0, topic_number: int = 1, **fields: object) -> bytes:
    return value("PartitionChange", partitionId=number, topicId=uuid(topic_number), **fields)


def broker(node_id: int, epoch: int, **fields: object) -> bytes:
    usual = {"incarnationId": uuid(9), "logDirs": [uuid(4)], "rack": None}
    return value("RegisterBroker", brokerId=node_id, brokerEpoch=epoch, **{**usual, **fields})


# real ones


def test_a_real_metadata_log_says_what_the_log_dir_around_it_says() -> None:
    """Ids, epochs and settings are in other files too: all must agree."""
    log_dir = LogDir(str(FIXTURES / "modern"))
    found = read(FIXTURES / "modern")
    assert (found.complete, found.problems, found.end_offset) == (True, (), 691)
    for directory in log_dir.partitions:
        if isinstance(directory.metadata, PartitionMetadata) and directory.topic != "__cluster_metadata":
            assert found.topic_ids[directory.topic or ""] == directory.topic_id
            assert found.partition(directory.topic or "", directory.number or 0) is not None
    assert log_dir.clean_shutdown is not None
    assert found.brokers[1].epoch == log_dir.clean_shutdown.broker_epoch
    assert log_dir.directory_id in found.brokers[1].log_dirs
    assert found.topic_config("dense") == {"index.interval.bytes": "1", "internal.segment.bytes": "20000"}
    assert found.topic_config("nobody") == {}
    assert found.broker_config(1) == {"min.insync.replicas": "1"}
    assert found.features["metadata.version"] == 30


def test_every_snapshot_says_what_the_log_before_it_says(modern: Path) -> None:
    """The node wrote them from its own state: each is a second opinion about all records below it."""
    snapshots = {path.name: path.read_bytes() for path in modern.glob("*.checkpoint")}
    assert len(snapshots) >= 8
    for name in snapshots:
        (modern / name).unlink()
    whole = read(modern.parent)
    assert (whole.complete, whole.end_offset) == (True, 691)
    for name, content in snapshots.items():
        (modern / name).write_bytes(content)
        assert read(modern.parent) == whole, name
        (modern / name).unlink()


def test_records_below_the_snapshot_are_not_needed(modern: Path) -> None:
    whole = read(modern.parent)
    for path in modern.glob("*"):
        if path.name < "00000000000000000493" and path.suffix in (".log", ".checkpoint"):
            path.unlink()
    again = read(modern.parent)
    # The newest snapshot, 633, lies in the segment from 493 on.
    assert (again.complete, again.problems) == (True, ())
    assert again == whole


@pytest.mark.corpora
def test_a_metadata_log_of_3_9_has_no_snapshot() -> None:
    found = read(CORPORA / "v39" / "data")
    assert (found.complete, found.problems, found.end_offset) == (True, (), 194)
    assert (found.brokers[1].epoch, found.features) == (118, {"metadata.version": 21})
    assert "gone" not in found.topic_ids
    assert not found.topic_config("gone")
    assert found.topic_config("retained")["retention.bytes"] == "70000"


def test_a_log_dir_without_a_metadata_log_has_no_metadata(tmp_path: Path) -> None:
    """Before KRaft, and in all log dirs of a broker but one."""
    assert read_metadata(LogDir(str(FIXTURES / "legacy"))) is None
    (tmp_path / "__cluster_metadata-0").touch()
    assert read_metadata(LogDir(str(tmp_path))) is None


# the rules


def test_a_partition_is_changed_field_by_field(log: MetadataLog) -> None:
    """Recovery must not take an old leader epoch for the newest."""
    log.add(topic("t", 1), partition(), partition(1), change(isr=[1]))
    kept = PartitionRegistration((1, 2, 3), (1, 2), 1, 5, 7)
    found = read(log.log_dir)
    assert found.partition("t", 1) == kept
    assert found.partition("t", 0) == kept._replace(isr=(1,), partition_epoch=8)
    assert (found.partition("t", 2), found.partition("u", 0)) == (None, None)
    log.add(change(leader=1))
    # The same leader again is a new leader epoch.
    assert read(log.log_dir).partition("t", 0) == PartitionRegistration((1, 2, 3), (1,), 1, 6, 9)
    log.add(change(leader=-1, isr=[], replicas=[4], eligibleLeaderReplicas=[1], lastKnownElr=[2]))
    assert read(log.log_dir).partition("t", 0) == PartitionRegistration((4,), (), -1, 7, 10, (1,), (2,))


@pytest.mark.parametrize(("named", "cleared"), [("t", (True, False)), ("", (True, True))])
def test_eligible_leaders_are_cleared_of_one_topic_or_of_all(
    log: MetadataLog, named: str, cleared: tuple[bool, bool]
) -> None:
    for number, name in ((1, "t"), (2, "u")):
        log.add(topic(name, number), partition(0, number, eligibleLeaderReplicas=[3]), partition(1, number))
        # That had one, but has it no more: nothing is cleared, so its epoch stays.
        log.add(partition(2, number, lastKnownElr=[3]), partition(2, number))
    log.add(value("ClearElr", topicName=named))
    found = read(log.log_dir)
    assert found.complete
    for name, is_cleared in zip(("t", "u"), cleared, strict=True):
        registered = found.partition(name, 0)
        assert registered is not None
        assert (registered.elr, registered.partition_epoch) == (((), 8) if is_cleared else ((3,), 7))
        for number in (1, 2):
            untouched = found.partition(name, number)
            assert untouched is not None
            assert untouched.partition_epoch == 7


def test_a_topic_that_is_removed_takes_its_settings_along(log: MetadataLog) -> None:
    """A new topic of the same name is another topic."""
    log.add(topic("t", 1), partition(), config(TOPIC_RESOURCE, "t", "cleanup.policy", "compact"))
    log.add(value("RemoveTopic", topicId=uuid(1)))
    found = read(log.log_dir)
    assert (found.topic_ids, found.partitions, found.configs, found.complete) == ({}, {}, {}, True)
    log.add(topic("t", 2))
    found = read(log.log_dir)
    assert (found.topic_ids, dict(found.partitions[uuid(2)]), found.topic_config("t")) == ({"t": uuid(2)}, {}, {})


def test_a_topic_whose_removal_is_lost_does_not_lend_its_settings(log: MetadataLog) -> None:
    log.add(topic("t", 1), partition(), config(TOPIC_RESOURCE, "t", "cleanup.policy", "compact"))
    log.add(topic("t", 2), partition(0, 2))
    found = read(log.log_dir)
    assert (found.topic_ids, list(found.partitions), found.topic_config("t")) == ({"t": uuid(2)}, [uuid(2)], {})


def test_a_setting_is_set_and_taken_back(log: MetadataLog) -> None:
    log.add(config(TOPIC_RESOURCE, "t", "segment.bytes", "1"), config(TOPIC_RESOURCE, "t", "segment.bytes", "2"))
    log.add(config(BROKER_RESOURCE, "", "log.roll.ms", "5"), config(BROKER_RESOURCE, "", "log.retention.ms", "5"))
    log.add(config(BROKER_RESOURCE, "1", "log.roll.ms", "6"))
    found = read(log.log_dir)
    assert found.topic_config("t") == {"segment.bytes": "2"}
    assert found.broker_config(1) == {"log.roll.ms": "6", "log.retention.ms": "5"}
    assert found.broker_config(2) == found.broker_config(None) == {"log.roll.ms": "5", "log.retention.ms": "5"}
    log.add(config(TOPIC_RESOURCE, "t", "segment.bytes", None), config(BROKER_RESOURCE, "7", "x", None))
    assert (TOPIC_RESOURCE, "t") not in read(log.log_dir).configs


def test_features_have_levels_until_they_are_taken_back(log: MetadataLog) -> None:
    levels = {"metadata.version": 30, "share.version": 1, "kraft.version": 1, "group.version": 1}
    log.add(*(value("FeatureLevel", name=name, featureLevel=level) for name, level in levels.items()))
    log.add(value("FeatureLevel", name="share.version", featureLevel=0))
    assert read(log.log_dir).features == {"metadata.version": 30, "group.version": 1}


def test_a_broker_has_the_epoch_of_its_last_registration(log: MetadataLog) -> None:
    """The marker of a clean stop must carry it: with another one the controller takes the stop for a crash."""
    log.add(broker(1, 10), broker(2, 11))
    log.add(value("UnfenceBroker", id=1, epoch=10), value("BrokerRegistrationChange", brokerId=2, brokerEpoch=11))
    log.add(broker(1, 20, fenced=True, logDirs=[uuid(5)]))
    log.add(value("BrokerRegistrationChange", brokerId=1, brokerEpoch=20, fenced=-1))
    log.add(value("BrokerRegistrationChange", brokerId=2, brokerEpoch=11, fenced=-1, logDirs=[uuid(6), uuid(7)]))
    log.add(value("FenceBroker", id=2, epoch=11))
    found = read(log.log_dir)
    assert (found.complete, found.problems) == (True, ())
    assert found.brokers == {
        1: BrokerRegistration(20, uuid(9), False, (uuid(5),)),
        2: BrokerRegistration(11, uuid(9), True, (uuid(6), uuid(7))),
    }
    log.add(value("UnregisterBroker", brokerId=1, brokerEpoch=20))
    assert read(log.log_dir).brokers[1] == BrokerRegistration(20, uuid(9), False, (uuid(5),), unregistered=True)


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (change(5), "PARTITION_CHANGE_RECORD: topic t has no partition 5"),
        (change(0, 8), f"PARTITION_CHANGE_RECORD: no topic has the id {uuid(8)}"),
        (partition(0, 8), f"PARTITION_RECORD: no topic has the id {uuid(8)}"),
        (value("RemoveTopic", topicId=uuid(8)), f"REMOVE_TOPIC_RECORD: no topic has the id {uuid(8)}"),
        (value("ClearElr", topicName="u"), "CLEAR_ELR_RECORD: there is no topic u"),
        (value("FenceBroker", id=1, epoch=2), "FENCE_BROKER_RECORD: broker 1 has epoch 3, not 2"),
        (value("UnfenceBroker", id=7, epoch=3), "UNFENCE_BROKER_RECORD: there is no broker 7"),
        (value("UnregisterBroker", brokerId=7, brokerEpoch=3), "UNREGISTER_BROKER_RECORD: there is no broker 7"),
        (
            value("UnfenceBroker", id=2, epoch=4),
            "UNFENCE_BROKER_RECORD: there is no broker 2",
        ),
        (END, "a transaction ends that has not begun"),
        (ABORT, "a transaction ends that has not begun"),
        (b"\1\x63\0\0", "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id 99"),
        (b"\1", "Error while reading type"),
    ],
)
def test_a_record_that_does_not_fit_is_said_and_changes_nothing(log: MetadataLog, record: bytes, said: str) -> None:
    log.add(
        topic("t", 1), partition(), broker(1, 3), broker(2, 4), value("UnregisterBroker", brokerId=2, brokerEpoch=4)
    )
    before = read(log.log_dir)
    assert before.complete
    offset = log.add(record)
    found = read(log.log_dir)
    assert (found.complete, found.problems) == (False, (f"{log.log} (offset {offset}): {said}",))
    assert found.end_offset == offset + 1
    for part in ("topic_ids", "partitions", "configs", "features", "brokers"):
        assert getattr(found, part) == getattr(before, part)


def test_records_about_other_things_change_nothing(log: MetadataLog) -> None:
    log.add_control()
    log.add(value("NoOp"), value("ProducerIds", brokerId=1, nextProducerId=5), value("ZkMigrationState"))
    found = read(log.log_dir)
    assert (found.complete, found.problems, found.end_offset) == (True, (), 4)


# transactions


def test_a_transaction_counts_once_it_has_ended(log: MetadataLog) -> None:
    """A controller that died in between left half a topic: it was never there."""
    log.add(topic("a", 1), BEGIN, topic("b", 2))
    assert list(read(log.log_dir).topic_ids) == ["a"]
    log.add(topic("c", 3), END, topic("d", 4))
    found = read(log.log_dir)
    assert (list(found.topic_ids), found.complete, found.problems) == (["a", "b", "c", "d"], True, ())


def test_an_aborted_transaction_leaves_nothing(log: MetadataLog) -> None:
    log.add(BEGIN, topic("a", 1))
    log.add(ABORT, topic("b", 2), BEGIN, topic("c", 3), END)
    found = read(log.log_dir)
    assert (list(found.topic_ids), found.complete) == (["b", "c"], True)


def test_a_transaction_inside_of_another_is_part_of_it(log: MetadataLog) -> None:
    log.add(BEGIN, topic("a", 1), BEGIN, topic("b", 2))
    assert list(read(log.log_dir).topic_ids) == []
    log.add(END)
    found = read(log.log_dir)
    assert list(found.topic_ids) == ["a", "b"]
    assert "a transaction begins inside of another" in found.problems[0]


def test_a_transaction_whose_end_is_lost_does_not_swallow_the_rest(log: MetadataLog) -> None:
    log.add(BEGIN, topic("a", 1))
    lost = log.log.stat().st_size
    log.add(END)
    kept = log.log.stat().st_size
    log.add(topic("b", 2))
    content = bytearray(log.log.read_bytes())
    content[lost + 30 : kept] = bytes(byte ^ 0xFF for byte in content[lost + 30 : kept])
    log.log.write_bytes(content)
    found = read(log.log_dir)
    assert (list(found.topic_ids), found.complete) == (["a", "b"], False)


# snapshots


def test_the_newest_snapshot_counts_and_the_log_from_there_on(log: MetadataLog) -> None:
    log.add(topic("old", 1), topic("older", 2), topic("kept", 3), topic("new", 4))
    log.snapshot(1, topic("x", 8))
    log.snapshot(3, topic("y", 9))
    for name in (
        "00000000000000000004-0000000001.checkpoint.deleted",
        "00000000000000000004-0000000001-5.checkpoint.part",
    ):
        (log.path / name).write_bytes(b"")
    found = read(log.log_dir)
    assert (list(found.topic_ids), found.end_offset, found.problems) == (["y", "new"], 4, ())


def test_a_snapshot_may_end_where_the_log_ends_or_beyond(log: MetadataLog) -> None:
    log.add(topic("a", 1))
    log.snapshot(1, topic("b", 2))
    assert (list(read(log.log_dir).topic_ids), read(log.log_dir).end_offset) == (["b"], 1)
    log.snapshot(9, topic("c", 3))
    found = read(log.log_dir)
    assert (list(found.topic_ids), found.end_offset, found.complete) == (["c"], 9, True)


def test_a_record_that_only_a_newer_kafka_knows_is_missing_from_the_state(log: MetadataLog) -> None:
    log.add(topic("a", 1))
    path = log.snapshot(1, topic("b", 2), b"\1\x63\0\0")
    found = read(log.log_dir)
    assert (list(found.topic_ids), found.complete) == (["b"], False)
    assert found.problems[0].startswith(f"{path} (offset 2): ")


def test_a_file_that_only_looks_like_a_snapshot_is_left_alone(log: MetadataLog) -> None:
    log.add(topic("a", 1))
    for name in ("x.checkpoint", "5.checkpoint", "bootstrap.checkpoint"):
        log.snapshot(1, topic("b", 2)).rename(log.path / name)
    found = read(log.log_dir)
    assert (list(found.topic_ids), found.problems) == (["a"], ())


def spoil(path: Path, position: int = -1) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 0xFF
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["header", "footer", "gap", "flip", "torn", "empty", "directory"])
def test_a_snapshot_that_is_not_whole_is_passed_over(log: MetadataLog, how: str) -> None:
    """As long as an older one, or the log's beginning, leads to the same state, nothing is missing."""
    log.add(topic("a", 1), topic("b", 2), topic("c", 3))
    newest = log.snapshot(2, topic("x", 8), finished=how != "footer")
    content = newest.read_bytes()
    if how == "header":
        newest.write_bytes(
            batch([Record(0, 1, None, topic("x", 8))]) + batch([Record(1, 1, *SNAPSHOT_FOOTER)], control=True)
        )
    elif how == "gap":
        last = batch([Record(2, 1, *SNAPSHOT_FOOTER)], control=True)
        newest.write_bytes(batch([Record(0, 1, *SNAPSHOT_HEADER)], control=True) + last)
    elif how == "flip":
        spoil(newest, len(content) // 2)
    elif how == "torn":
        newest.write_bytes(content[:-1])
    elif how == "empty":
        newest.write_bytes(b"")
    elif how == "directory":
        newest.unlink()
        newest.mkdir()
    found = read(log.log_dir)
    assert (list(found.topic_ids), found.end_offset, found.complete) == (["a", "b", "c"], 3, True)
    assert len(found.problems) == (how != "directory")
    log.snapshot(1, topic("y", 9))
    assert list(read(log.log_dir).topic_ids) == ["y", "b", "c"]


def test_the_intact_part_of_a_broken_snapshot_is_better_than_nothing(tmp_path: Path) -> None:
    log = MetadataLog(tmp_path, start=100)
    log.add(topic("new", 5))
    path = log.snapshot(100, topic("a", 1), topic("b", 2), topic("c", 3))
    spoil(path, len(path.read_bytes()) // 2)
    log.snapshot(50, topic("much", 6), topic("older", 7))
    found = read(log.log_dir)
    assert (list(found.topic_ids), found.end_offset, found.complete) == (["a", "c", "new"], 101, False)


# damage


def test_what_is_missing_is_said(log: MetadataLog) -> None:
    log.add(topic("a", 1))
    middle = log.log.stat().st_size
    log.add(topic("b", 2))
    log.add(topic("c", 3))
    spoil(log.log, middle + 70)
    found = read(log.log_dir)
    assert (list(found.topic_ids), found.end_offset, found.complete) == (["a", "c"], 3, False)
    assert any("bad CRC" in problem for problem in found.problems)
    assert f"{log.log}: offset 2 where 1 was expected" in found.problems


def test_a_torn_tail_is_not_missing(log: MetadataLog) -> None:
    """The last batch of a running node may not have reached the disk."""
    log.add(topic("a", 1))
    log.add(topic("b", 2))
    content = log.log.read_bytes()
    for cut in (1, 30, len(content) // 2 - 3):
        log.log.write_bytes(content[:-cut])
        found = read(log.log_dir)
        assert (list(found.topic_ids), found.end_offset, found.complete) == (["a"], 1, True)
        assert len(found.problems) == 1


def test_a_torn_segment_in_the_middle_is_missing(log: MetadataLog) -> None:
    log.add(topic("a", 1))
    log.add(topic("b", 2))
    log.log.write_bytes(log.log.read_bytes()[:-1])
    log.roll()
    log.add(topic("c", 3))
    found = read(log.log_dir)
    assert (list(found.topic_ids), found.complete) == (["a", "c"], False)


@pytest.mark.parametrize("with_records", [True, False])
def test_a_lost_segment_is_missing(log: MetadataLog, with_records: bool) -> None:
    log.add(topic("a", 1))
    log.roll()
    lost = log.log
    log.add(topic("b", 2))
    log.roll()
    if with_records:
        log.add(topic("c", 3))
    lost.unlink()
    found = read(log.log_dir)
    assert (found.end_offset, found.complete) == (2 + with_records, False)
    assert found.problems == (f"{log.log}: offset 2 where 1 was expected",)


def test_a_log_that_does_not_begin_at_the_beginning_needs_a_snapshot(tmp_path: Path) -> None:
    log = MetadataLog(tmp_path, start=7)
    log.add(topic("a", 1))
    found = read(tmp_path)
    assert (list(found.topic_ids), found.end_offset, found.complete) == (["a"], 8, False)


def test_an_empty_directory_is_not_an_empty_cluster(log: MetadataLog) -> None:
    """A program that removes unknown partitions must not rely on this."""
    log.log.unlink()
    found = read(log.log_dir)
    assert (found.complete, found.problems) == (False, (f"{log.path}: neither a log nor a snapshot",))
    gone = loader.read_log(Partition(str(log.path / "gone")))
    assert (gone.complete, gone.problems) == (
        False,
        (f"{log.path}/gone: cannot be listed: No such file or directory",),
    )


def test_files_that_cannot_be_opened_are_problems(log: MetadataLog) -> None:
    """They were there when the directory was listed."""
    log.add(topic("a", 1))
    first = log.log
    log.roll()
    log.add(topic("b", 2))
    newest = log.snapshot(1, topic("c", 3))
    listed = Partition(str(log.path))
    assert len(listed.segments) == 2
    first.unlink()
    newest.unlink()
    found = loader.read_log(listed)
    assert (list(found.topic_ids), found.end_offset, found.complete) == (["b"], 2, False)
    assert [problem.partition(": ")[0] for problem in found.problems] == [str(newest), str(first), str(log.log)]


def test_problems_are_counted_when_they_are_many(log: MetadataLog) -> None:
    """A log full of garbage must not fill the memory with sentences about it."""
    for _ in range(30):
        log.add(END)
    found = read(log.log_dir)
    assert len(found.problems) == 21
    assert found.problems[-1] == "and 10 more"


def test_beside_a_running_node_it_is_read_again(log: MetadataLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment that vanished between the list and its opening is no hole: a snapshot has taken its place."""
    log.add(topic("a", 1))
    log.roll()
    log.add(topic("b", 2))
    kept = log.log.read_bytes()
    spoil(log.log)
    reads = []
    once = loader.read_log

    def counted(partition: Partition, at: int | None, is_in_use: bool) -> ClusterMetadata:
        reads.append(partition)
        if len(reads) == 2:
            log.log.write_bytes(kept)
        return once(partition, at, is_in_use)

    monkeypatch.setattr(loader, "read_log", counted)
    log_dir = LogDir(str(log.log_dir))
    assert not read(log.log_dir).complete
    reads.clear()
    log_dir.lock = Lock(True)
    found = read_metadata(log_dir)
    assert found is not None
    assert (found.complete, len(reads)) == (True, 2)


def test_no_damage_raises_or_goes_unsaid(modern: Path) -> None:
    """One flipped byte anywhere in the files that count: nothing is raised, and every shown fact was written."""
    kept = {path.name: path.read_bytes() for path in modern.iterdir()}
    for name in kept:
        if not name.endswith(".log"):
            (modern / name).unlink()
    whole = read(modern.parent)
    random_ = random.Random(7)
    logs = sorted(name for name in kept if name.endswith(".log"))
    for _ in range(150):
        name = random_.choice(logs)
        spoil(modern / name, random_.randrange(len(kept[name])))
        found = read(modern.parent)
        assert set(found.topic_ids) <= set(whole.topic_ids)
        assert not found.complete or found.problems or found == whole
        (modern / name).write_bytes(kept[name])


def test_records_in_any_order_leave_a_state_that_holds_together(tmp_path: Path) -> None:
    """A crafted log, or one with holes, must not end in a traceback."""
    for seed in range(60):
        random_, log = random.Random(seed), MetadataLog(tmp_path / str(seed))
        for _ in range(60):
            name, number = f"t{random_.randrange(4)}", random_.randrange(4)
            others = [topic(name, number), value("RemoveTopic", topicId=uuid(number)), BEGIN, END, ABORT]
            log.add(random_.choice([*others, *(_random_record(random_) for _ in range(5))]))
        found = read(log.log_dir)
        assert set(found.topic_ids.values()) == set(found.partitions)
        assert found.end_offset == log.end


def test_reading_leaves_no_trace(modern: Path) -> None:
    def state() -> list[tuple[str, int, int]]:
        return sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in modern.iterdir())

    before = state()
    read(modern.parent)
    assert state() == before


# Kafka's own loader


class Loader:
    """Kafka 4.3.1's MetadataBatchLoader in one JVM."""

    def lines(self, *directories: Path) -> list[list[str]]:
        asked = "".join(f"{directory}\n" for directory in directories)
        done = subprocess.run(
            kafka.program(kafka.NEWEST, "ReadMetadata"),
            input=asked,
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
        return [answer.splitlines() for answer in done.stdout.split("\n\n")[:-1]]


def as_lines(found: ClusterMetadata) -> list[str]:
    lines = [f"topic {name} {topic_id}" for name, topic_id in found.topic_ids.items()]
    for topic_id, partitions in found.partitions.items():
        for number, p in partitions.items():
            sets = [str(list(nodes)) for nodes in (p.replicas, p.isr, p.elr, p.last_known_elr, p.adding, p.removing)]
            epochs = f"{p.leader} {p.leader_epoch} {p.partition_epoch}"
            directories = p.directories or [MIGRATING_DIRECTORY] * len(p.replicas)
            dirs, recovery = f"[{', '.join(directories)}]", "RECOVERING" if p.recovering else "RECOVERED"
            others = f"{sets[2]} {sets[3]} {sets[4]} {sets[5]} {dirs} {recovery}"
            lines.append(f"partition {topic_id} {number} {sets[0]} {sets[1]} {epochs} {others}")
    for (kind, name), texts in found.configs.items():
        lines += [f"config {kind} {name} {key}={text}" for key, text in texts.items()]
    lines += [f"feature {name} {level}" for name, level in found.features.items()]
    for node_id, b in found.brokers.items():
        if not b.unregistered:
            dirs, fenced = ", ".join(b.log_dirs), str(b.fenced).lower()
            rack = "Optional.empty" if b.rack is None else f"Optional[{b.rack}]"
            cordoned = f"[{', '.join(b.cordoned_log_dirs)}]"
            more = f"{str(b.shutting_down).lower()} {rack} {cordoned} {_listeners(b.endpoints)}"
            lines.append(f"broker {node_id} {b.epoch} {b.incarnation_id} {fenced} [{dirs}] {more}")
    cluster, settings = found.state.cluster, found.state.settings
    for node_id, c in cluster.controllers.items():
        lines.append(f"controller {node_id} {c.incarnation_id} {_listeners(c.endpoints)}")
    for entity, quotas in settings.quotas.items():
        names = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
        lines += [f"quota {{{names}}} {key}={quota}" for key, quota in quotas.items()]
    lines += [f"scram {user} {mechanism} {count}" for (user, mechanism), count in settings.scram.items()]
    lines += [f"acl {acl_id} {' '.join(acl)}" for acl_id, acl in settings.acls.items()]
    lines.append(f"reserved {MIGRATING_DIRECTORY} {UNASSIGNED_DIRECTORY} {LOST_DIRECTORY}")
    return sorted([*lines, f"producers {settings.next_producer_id or -1}", f"tokens {len(settings.tokens)}"])


def _listeners(endpoints: tuple[ListenerEndpoint, ...]) -> str:
    return f"[{', '.join(sorted(map(str, endpoints)))}]"


def _random_record(random_: random.Random) -> bytes:
    number, topic_number, node = random_.randrange(3), random_.randrange(1, 5), random_.randrange(1, 4)
    nodes = [random_.sample([1, 2, 3, 4], random_.randrange(4)) for _ in range(4)]
    name = f"t{topic_number}"
    makers: list[Callable[[], bytes]] = [
        lambda: partition(number, topic_number, replicas=nodes[0], isr=nodes[1], leader=node),
        lambda: partition(number, topic_number, eligibleLeaderReplicas=nodes[2], directories=[uuid(7)] * 3),
        lambda: change(number, topic_number, isr=nodes[0]),
        lambda: change(number, topic_number, leader=random_.choice([-1, node]), replicas=nodes[1]),
        lambda: change(number, topic_number, eligibleLeaderReplicas=nodes[2], lastKnownElr=nodes[3], leader=-2),
        lambda: value("ClearElr", topicName=random_.choice(["", name])),
        lambda: config(TOPIC_RESOURCE, name, f"k{number}", random_.choice([None, "a", "b"])),
        lambda: config(BROKER_RESOURCE, random_.choice(["", "1"]), f"k{number}", random_.choice([None, "a"])),
        lambda: value("FeatureLevel", name=f"f{number}", featureLevel=random_.randrange(3)),
        lambda: broker(node, node, fenced=random_.random() < 0.5, logDirs=[uuid(number)]),
        lambda: value("FenceBroker", id=node, epoch=node),
        lambda: value("UnfenceBroker", id=node, epoch=node),
        lambda: value(
            "BrokerRegistrationChange",
            brokerId=node,
            brokerEpoch=random_.choice([node, 1]),
            fenced=random_.choice([-1, 0, 1]),
            logDirs=random_.choice([[], [uuid(8), uuid(9)]]),
        ),
        lambda: value("UnregisterBroker", brokerId=node, brokerEpoch=node),
        lambda: value("NoOp"),
        lambda: change(number, topic_number, addingReplicas=nodes[0], removingReplicas=nodes[1]),
        lambda: change(number, topic_number, leaderRecoveryState=random_.randrange(2), leader=node),
        lambda: change(number, topic_number, replicas=[1, 2], directories=[uuid(node), uuid(5)]),
        lambda: value("BrokerRegistrationChange", brokerId=node, brokerEpoch=node, inControlledShutdown=1),
        lambda: value("BrokerRegistrationChange", brokerId=node, brokerEpoch=node, cordonedLogDirs=[uuid(6)][number:]),
        *(lambda make=make: make(random_) for make in _OTHERS),
    ]
    return random_.choice(makers)()


def _endpoints(random_: random.Random) -> list[dict[str, object]]:
    names = random_.sample(["A", "B", "C"], random_.randrange(4))
    return [{"name": name, "host": "h", "port": random_.randrange(65536), "securityProtocol": 0} for name in names]


_OTHERS: list[Callable[[random.Random], bytes]] = [
    lambda random_: value(
        "RegisterBroker",
        brokerId=(node := random_.randrange(1, 4)),
        brokerEpoch=node,
        incarnationId=uuid(9),
        rack=random_.choice([None, "", "a"]),
        endPoints=_endpoints(random_) or [{"name": "P", "host": "h", "port": 1, "securityProtocol": 0}],
        inControlledShutdown=random_.random() < 0.5,
        cordonedLogDirs=random_.choice([None, [], [uuid(8)]]),
    ),
    lambda random_: value(
        "RegisterController",
        controllerId=random_.randrange(3),
        incarnationId=uuid(random_.randrange(3)),
        zkMigrationReady=False,
        endPoints=_endpoints(random_),
    ),
    lambda random_: value(
        "ClientQuota",
        entity=random_.choice(
            [
                [{"entityType": "user", "entityName": "u"}, {"entityType": "client-id", "entityName": None}],
                [{"entityType": "client-id", "entityName": "c"}],
            ]
        ),
        key=random_.choice(["producer_byte_rate", "consumer_byte_rate"]),
        value=random_.choice([1.5, 1024.0]),
        remove=random_.random() < 0.3,
    ),
    lambda random_: value(
        "UserScramCredential",
        name=random_.choice("uv"),
        mechanism=random_.randrange(1, 3),
        salt=b"s",
        storedKey=b"k",
        serverKey=b"k",
        iterations=random_.randrange(4096, 4099),
    ),
    lambda random_: value("RemoveUserScramCredential", name=random_.choice("uv"), mechanism=random_.randrange(1, 3)),
    lambda random_: value(
        "AccessControlEntry",
        id=uuid(random_.randrange(1, 5)),
        resourceType=random_.randrange(2, 8),
        resourceName="r",
        patternType=random_.randrange(3, 5),
        principal="User:u",
        host="*",
        operation=random_.randrange(2, 16),
        permissionType=random_.randrange(2, 4),
    ),
    lambda random_: value("RemoveAccessControlEntry", id=uuid(random_.randrange(1, 5))),
    lambda random_: value("ProducerIds", brokerId=1, brokerEpoch=1, nextProducerId=random_.randrange(1, 9) * 1000),
    lambda random_: value("DelegationToken", owner="User:o", requester="User:o", tokenId=random_.choice("xyz")),
    lambda random_: value("RemoveDelegationToken", tokenId=random_.choice("xyz")),
]
"""Records whose order matters only for removals, and which fill Kafka's own classes."""


class _Controller:
    """Writes random records that fit, as a controller does: one that does not makes Kafka drop its whole batch."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random, self.log, self.state = random.Random(seed), MetadataLog(folder), MetadataImage()
        self.taken: list[bytes] = []
        self.write(value("FeatureLevel", name="metadata.version", featureLevel=30))
        for _ in range(150):
            if self.random.random() < 0.15:
                self.create_or_remove(self.random.randrange(1, 5))
            elif self.random.random() < 0.2:
                self.transaction()
            else:
                self.write(*self.records(3))
            if self.random.random() < 0.05:
                self.log.roll()

    def write(self, *records: bytes) -> None:
        for each in records:
            self.fits(each)
        self.log.add(*records)

    def fits(self, record: bytes) -> bool:
        decoded = metadata_record(record)
        fits = isinstance(decoded, MetadataRecord) and self.state.apply(decoded) is None
        if fits:
            self.taken.append(record)
        return fits

    def forget(self, count: int) -> None:
        """Go back to the state after the first *count* records."""
        taken, self.taken, self.state = self.taken[:count], [], MetadataImage()
        assert all(map(self.fits, taken))

    def records(self, most: int) -> list[bytes]:
        before, found = len(self.taken), [value("NoOp")]
        for _ in range(self.random.randrange(1, 3 * most)):
            record = _random_record(self.random)
            if self.fits(record):
                found.append(record)
        self.forget(before)
        return found

    def create_or_remove(self, number: int) -> None:
        name = f"t{number}"
        is_there = name in self.state.topics.ids
        self.write(value("RemoveTopic", topicId=uuid(number)) if is_there else topic(name, number))

    def transaction(self) -> None:
        before, records = len(self.taken), self.records(6)
        cut = self.random.randrange(len(records))
        self.write(BEGIN, *records[:cut])
        for each in records[cut:]:
            self.write(each)
        ending = self.random.choice([END, ABORT])
        self.write(ending)
        if ending == ABORT:
            self.forget(before)


@pytest.mark.kafka
@pytest.mark.parametrize("seeds", [12, pytest.param(40, marks=pytest.mark.long)])
def test_random_logs_are_to_kafkas_own_loader_what_they_are_to_klog(tmp_path: Path, seeds: int) -> None:
    """The rules are many and small, and Kafka's own code is the only full list of them."""
    folders = [FIXTURES / "modern"]
    for snapshots in ("00000000000000000089", "00000000000000000504", ""):
        copied = tmp_path / f"modern-{snapshots}"
        writable_copy(MODERN, copied / MODERN.name)
        for path in copied.glob("*/*.checkpoint"):
            if not snapshots or path.name > f"{snapshots}-9":
                path.unlink()
        folders.append(copied)
    folders += [_Controller(tmp_path / str(seed), seed).log.log_dir for seed in range(seeds)]
    answers = Loader().lines(*(folder / MODERN.name for folder in folders))
    assert len(answers) == len(folders)
    for folder, lines in zip(folders, answers, strict=True):
        assert as_lines(read(folder)) == lines, folder
        assert read(folder).complete
