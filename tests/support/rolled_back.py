"""A broker's disk with one partition, whose metadata log may be older than the partition's log."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from klog.formats.producer_snapshot import Producer, write_snapshot
from klog.kernel import crc32c

from tests.oracles.plain.encode import Record, batch
from tests.support.metadata_logs import MetadataLog, topic, uuid, value

NOW_MS = int(time.time() * 1000)
DAYS_2 = 2 * 86_400_000


def data(offset: int, epoch: int = 0, producer_id: int = -1, timestamp: int = NOW_MS) -> bytes:
    """Return a batch of two records."""
    records = [Record(offset + i, timestamp, b"k", b"v") for i in range(2)]
    producer = (producer_id, 0, 0) if producer_id >= 0 else (-1, -1, -1)
    return batch(records, leader_epoch=epoch, producer=producer)


def known(producer_id: int, timestamp: int = NOW_MS, txn: int = -1) -> Producer:
    """Return a producer as a snapshot has it."""
    return Producer(producer_id, 0, 1, 1, 1, timestamp, -1, txn)


def metadata(
    folder: Path, leader_epoch: int, next_producer_id: int | None, name: str = "orders", replicas: Sequence[int] = (1,)
) -> MetadataLog:
    """Write a log dir with the metadata log of a cluster with one partition."""
    log = MetadataLog(folder)
    meta = folder / "meta.properties"
    meta.write_text(f"{meta.read_text()}directory.id={uuid(101)}\n")
    (folder / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":11}')
    log.add(value("FeatureLevel", name="metadata.version", featureLevel=20))
    for node in replicas:
        log.add(
            value("RegisterBroker", brokerId=node, brokerEpoch=11, incarnationId=uuid(1), logDirs=[uuid(100 + node)])
        )
    log.add(
        topic(name, 7),
        value(
            "Partition", topicId=uuid(7), partitionId=0, replicas=[*replicas], isr=[*replicas], leader=replicas[0],
            leaderEpoch=leader_epoch, partitionEpoch=leader_epoch, directories=[uuid(100 + one) for one in replicas],
        ),
    )  # fmt: skip
    if next_producer_id is not None:
        log.add(value("ProducerIds", brokerId=1, brokerEpoch=11, nextProducerId=next_producer_id))
    return log


def partition(
    folder: Path,
    batches: Iterable[bytes],
    epochs: Iterable[tuple[int, int]] = (),
    snapshots: dict[int, Iterable[Producer]] | None = None,
    name: str = "orders",
) -> Path:
    """Write partition 0 of the topic."""
    path = folder / f"{name}-0"
    path.mkdir()
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(7)}")
    lines = [f"{epoch} {start}" for epoch, start in epochs]
    (path / "leader-epoch-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")
    (path / f"{0:020}.log").write_bytes(b"".join(batches))
    for kind in ("index", "timeindex"):
        (path / f"{0:020}.{kind}").touch()
    for offset, producers in (snapshots or {}).items():
        (path / f"{offset:020}.snapshot").write_bytes(write_snapshot(producers, crc32c))
    return path
