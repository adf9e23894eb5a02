"""A broker with remote storage in a directory: Kafka's LocalTieredStorage."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.brokers import clients, jars, kafka

LEVELS = ("read_uncommitted", "read_committed")
SETTINGS = {
    "remote.log.storage.system.enable": "true",
    "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
    "remote.log.metadata.manager.listener.name": "PLAINTEXT",
    "rlmm.config.remote.log.metadata.topic.num.partitions": "3",
    "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
    "rlmm.config.remote.log.metadata.initialization.retry.interval.ms": "300",
    "remote.log.manager.task.interval.ms": "400",
}
QUICK = {
    "log.retention.check.interval.ms": "400",
    "log.initial.task.delay.ms": "500",
    "log.flush.offset.checkpoint.interval.ms": "1000",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "log.segment.delete.delay.ms": "1000",
    "log.index.interval.bytes": "512",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}
TASKS_S = 4.0
"""The time after a start in which a leader has deleted what it deletes: some task intervals."""


class Ends(NamedTuple):
    """The offsets that a partition's leader answers: log start, last stable offset, high watermark."""

    earliest: int
    stable: int
    latest: int


class TieredCluster(kafka.Cluster):
    """One broker, whose objects are in *tier*.  *enabled*: the broker's file has remote storage on."""

    def __init__(
        self, version: str, folder: Path, tier: Path, *, enabled: bool = True, settings: dict[str, str] | None = None
    ) -> None:
        own = dict(QUICK)
        if enabled:
            own |= SETTINGS
            own["remote.log.storage.manager.class.path"] = f"{jars.install_tiered(version)}/*"
            own["rsm.config.dir"] = str(tier)
        super().__init__(version, folder, settings=own | (settings or {}))
        self.tier = tier

    def ends(self, topic: str, partition: int = 0) -> Ends:
        """Return the ends of a partition."""
        return ends(self.bootstrap, topic, partition)

    def consume(self, topic: str, partition: int = 0, level: str = LEVELS[0]) -> list[clients.Received]:
        """Return all records for a consumer from the log start on.

        A broker that has not yet read its events of the tier answers UNKNOWN_SERVER_ERROR.  Kafka's own consumer asks
        again then, and so does this one.
        """
        found: list[clients.Received] = []

        def is_answered() -> bool:
            try:
                found[:] = clients.consume(self.bootstrap, topic, level, partition=partition)
            except RuntimeError as error:
                if "Unknown broker error" not in str(error):
                    raise
                return False
            return True

        wait_until(is_answered)
        return found

    def objects(self) -> dict[str, bytes]:
        """Return the content of the tier, by key."""
        return objects(self.tier)


def objects(tier: Path) -> dict[str, bytes]:
    """Return the content of a tier, by key."""
    return {str(path.relative_to(tier)): path.read_bytes() for path in sorted(tier.rglob("*")) if path.is_file()}


def ends(bootstrap: str, topic: str, partition: int) -> Ends:
    """Return the answers of ListOffsets about a partition."""
    from confluent_kafka import Consumer, TopicPartition

    found = []
    for level in LEVELS:
        config = {"bootstrap.servers": bootstrap, "group.id": "klog-ends", "isolation.level": level}
        consumer = Consumer(config | clients.SILENT)
        try:
            found.append(consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=clients.WAIT_S))
        finally:
            consumer.close()
    (earliest, latest), (_, stable) = found
    return Ends(earliest, stable, latest)


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    """Return when *holds* returns True.  Raises TimeoutError."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("it does not hold")
        time.sleep(0.3)
