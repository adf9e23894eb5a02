"""A stopped broker of one partition, `orders-0`, whose metadata log is made by hand; and sources for it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from klog.formats.checkpoint import write_partition_metadata
from klog.formats.producer_snapshot import read_snapshot
from klog.kernel import crc32c

from tests.oracles.plain.encode import Record, batch
from tests.support.metadata_logs import MetadataLog, topic, uuid, value

NOW_MS = 1_790_000_000_000
NOW = f"--now={NOW_MS}"
CLUSTER_ID = "x"
"""The id of every cluster that `MetadataLog` makes."""
ORDERS, FORMER, UNKNOWN = 7, 8, 9
"""Numbers of topic ids: of the topic that the cluster has, of one of its name that it had, of one it never had."""
EPOCH = 5


def made_home(
    folder: Path,
    next_id: int | None,
    topics: Iterable[tuple[str, int, int]] = (("orders", ORDERS, 1),),
    epoch: int = EPOCH,
    replicas: int = 1,
) -> Path:
    """Make the log dir of node 1; the metadata log has handed out the producer ids below *next_id*.

    *topics*: name, number of the id, partitions; all but `orders` have so many *replicas*.
    A topic `orders` with another id was deleted before.
    """
    log = MetadataLog(folder)
    add_topic(log, "orders", FORMER, 1, epoch)
    log.add(value("RemoveTopic", topicId=uuid(FORMER)))
    for name, number, count in topics:
        add_topic(log, name, number, count, epoch, 1 if name == "orders" else replicas)
    if next_id is not None:
        log.add(value("ProducerIds", brokerId=1, brokerEpoch=1, nextProducerId=next_id))
    (folder / "meta.properties").write_text(f"version=1\ncluster.id={CLUSTER_ID}\nnode.id=1\n")
    return folder


def add_topic(log: MetadataLog, name: str, number: int, count: int, epoch: int = EPOCH, replicas: int = 1) -> None:
    """Add a topic with partitions on node 1, and on more nodes where *replicas* is more."""
    log.add(topic(name, number))
    nodes = list(range(1, replicas + 1))
    for partition in range(count):
        log.add(
            value(
                "Partition", partitionId=partition, topicId=uuid(number), replicas=nodes, isr=nodes, leader=1,
                leaderEpoch=epoch, partitionEpoch=0, removingReplicas=[], addingReplicas=[], directories=[],
            )
        )  # fmt: skip


def made_source(folder: Path, topic_number: int | None, *batches: bytes) -> Path:
    """Make a partition directory; *topic_number*: that of its topic's id, None: a directory without a topic id."""
    folder.mkdir(parents=True)
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    if topic_number is not None:
        (folder / "partition.metadata").write_bytes(write_partition_metadata(uuid(topic_number)))
    return folder


def sent(
    base: int, producer: int, *, count: int = 1, epoch: int = 0, sequence: int = 0, transactional: bool = False,
    age_ms: int = 1000, leader_epoch: int = 0,
) -> bytes:  # fmt: skip
    """Return a batch of a producer, at *base*."""
    records = [Record(base + at, NOW_MS - age_ms, b"k", b"v%d" % (base + at)) for at in range(count)]
    return batch(records, transactional=transactional, producer=(producer, epoch, sequence), leader_epoch=leader_epoch)


def producers_known(partition: Path) -> set[int]:
    """Return the ids in the newest snapshot of a partition."""
    newest = max(partition.glob("*.snapshot"))
    return {one.producer_id for one in read_snapshot(newest.read_bytes(), crc32c).producers}
