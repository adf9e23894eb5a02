"""The full corpora, and real brokers on copies of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.brokers import clients, kafka
from tests.conftest import CORPORA, writable_copy

SETTINGS = {
    # Transactions left open stay open until this test ends it.
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "3600000",
    # Segments below a log's start go at once: while they are there, a broker finds no record for a time before it.
    "log.initial.task.delay.ms": "500",
}


@dataclass(frozen=True)
class Corpus:
    """A log dir, and the version of the broker that serves it.

    *listing*: a version of ListOffsets that this broker has; *special*: the special times in it.  *counts*: records,
    those of them that are committed, partitions.
    """

    name: str
    version: str
    listing: int
    special: tuple[int, ...]
    counts: tuple[int, int, int]
    options: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        return CORPORA / self.name / "data"

    @property
    def partitions(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for path in sorted(self.folder.glob("[!_]*-[0-9]*")):
            topic, _, number = path.name.rpartition("-")
            found.setdefault(topic, []).append(int(number))
        return found

    @contextmanager
    def broker(self, folder: Path) -> Iterator[kafka.Cluster]:
        """Run a broker of this version on a copy, with all topics."""
        cluster = kafka.Cluster(self.version, folder, settings=SETTINGS)
        writable_copy(self.folder, cluster.data)
        if not cluster.kraft:
            _alone(cluster.data)
        with cluster:
            if not cluster.kraft:
                for count in (1, 2):
                    topics = [topic for topic, numbers in self.partitions.items() if len(numbers) == count]
                    clients.create(cluster.bootstrap, {topic: {} for topic in topics}, count)
            yield cluster


def _alone(data: Path) -> None:
    """Leave out the link between a log dir and a lost ZooKeeper: the data joins a cluster of its own."""
    (data / "meta.properties").unlink()
    for internal in data.glob("__*"):
        shutil.rmtree(internal)


MODERN = Corpus("modern", kafka.NEWEST, 10, (-1, -2, -3, -4, -5), (10991, 10494, 28), ("--open-transactions", "hide"))
LEGACY = Corpus("legacy", kafka.LEGACY, 6, (-1, -2), (5344, 5184, 22))
