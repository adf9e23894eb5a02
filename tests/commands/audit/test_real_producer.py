"""A real Java producer behind a link that stalls: klog finds the batches that the records' own values prove, and no
more."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.brokers import clients, jars, kafka
from tests.brokers.quorum import CONTROLLER, Brokers
from tests.brokers.stalling_link import StallingLink
from tests.commands.audit.auditing import Place, audit, place, places
from tests.oracles.plain.decode import Batch, scan

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

PARTITIONS = 4
SLOW, FAST = 1, 2
SECONDS, TRIES = 5, 5
# A batch has one record, so that all are equally long, and each fits where another was; a request to the slow broker is
# larger than the buffers of the system, so that most of it is still in the producer's memory while the link stalls; a
# batch has waited for the stall before, and expires in the next; few buffers are free, so that one is soon used again.
SETTINGS = {
    "batch.size": "16384",
    "buffer.memory": "4800000",
    "send.buffer.bytes": "4096",
    "request.timeout.ms": "1500",
    "delivery.timeout.ms": "1600",
    "linger.ms": "0",
    "max.block.ms": "5000",
    "acks": "all",
}


class Pair(Brokers):
    """Two brokers, one of which clients reach through a link."""

    def _properties(self, node: int) -> dict[str, str]:
        found = super()._properties(node)
        if node == SLOW:
            found["advertised.listeners"] = f"PLAINTEXT://localhost:{self.port + 20}"
        return found


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, StallingLink]]:
    folder = tmp_path_factory.mktemp("pair")
    port = kafka.PORT + 30
    with StallingLink(port + 20, port + SLOW) as link, Pair(kafka.NEWEST, folder, port=port) as brokers:
        brokers.start(SLOW, FAST)
        yield brokers, link


def produce(brokers: Pair, link: StallingLink, version: str, topics: list[str], seed: int, idempotent: bool) -> None:
    """Run the producer for some seconds; the topics that are slow are led by the broker behind the link."""
    settings = SETTINGS | {
        "bootstrap.servers": f"localhost:{brokers.port + FAST}",
        "enable.idempotence": str(idempotent).lower(),
    }
    words = [
        str(SECONDS),
        str(seed),
        str(PARTITIONS),
        ",".join(topics),
        *(f"{name}={value}" for name, value in settings.items()),
    ]
    libs = jars.install_clients(version)
    command = kafka.java(version, "StallingProducer", *words, libs=libs, more=str(jars.programs()))
    link.pause = 1.2
    try:
        subprocess.run(command, check=True, timeout=120, stdout=subprocess.DEVNULL)
    finally:
        link.pause = 0


def make_topics(brokers: Pair, prefix: str) -> list[str]:
    names = [f"{speed}_{prefix}{i}" for speed in ("fast", "slow") for i in range(5)]
    leaders = {name: SLOW if name.startswith("slow") else FAST for name in names}
    new = [
        NewTopic(name, num_partitions=PARTITIONS, replica_assignment=[[leader]] * PARTITIONS)
        for name, leader in leaders.items()
    ]
    clients.make(f"localhost:{brokers.port + FAST}", new)
    fill(brokers, [name for name in names if name.startswith("slow")])
    return names


def fill(brokers: Pair, topics: list[str]) -> None:
    """Give topics batches of another producer: where half of a topic is in another, too, no producer is to blame."""
    producer = Producer({"bootstrap.servers": f"localhost:{brokers.port + FAST}", "batch.num.messages": 1})
    for topic in topics:
        for n in range(10 * PARTITIONS):
            producer.produce(topic, f"{topic} {n % PARTITIONS} before {n}", partition=n % PARTITIONS)
    assert producer.flush(30) == 0


def written(disks: list[Path], topics: list[str]) -> Iterator[tuple[str, Batch, str]]:
    """Yield each batch of *topics*: where it is, and the partition that its values name."""
    for disk in disks:
        for directory in sorted(disk.iterdir()):
            if directory.name.rpartition("-")[0] not in topics:
                continue
            for log in sorted(directory.glob("*.log")):
                for one in scan(log.read_bytes()):
                    if isinstance(one, Batch) and one.records:
                        names = {"-".join((r.value or b"").decode().split(" ")[:2]) for r in one.records}
                        (meant,) = names
                        yield directory.name, one, meant


def astray(disks: list[Path], topics: list[str]) -> dict[Place, set[Place]]:
    """Return the batches that are not in the partition of their values, each with the places of the same values at
    home."""
    every = list(written(disks, topics))
    home: dict[bytes | None, set[Place]] = {}
    for where, one, meant in every:
        if where == meant:
            home.setdefault(one.records[0].value, set()).add((where, one.base_offset))
    return {
        (where, one.base_offset): home.get(one.records[0].value, set()) for where, one, meant in every if where != meant
    }


def logs(brokers: Pair, *nodes: int) -> list[Path]:
    return [brokers.disk(node) for node in nodes]


def test_what_the_producer_misrouted_is_found_exactly(pair: tuple[Pair, StallingLink]) -> None:
    """Producer 3.9.1, idempotent and not, each until it misroutes; then 3.9.2, which does not."""
    brokers, link = pair
    disks = logs(brokers, SLOW, FAST)
    topics: list[str] = []
    for idempotent in (False, True):
        for attempt in range(TRIES):
            some = make_topics(brokers, f"old{int(idempotent)}{attempt}_")
            topics += some
            produce(brokers, link, "3.9.1", some, attempt, idempotent)
            if astray(disks, some):
                break
        else:
            pytest.fail(f"the producer misrouted nothing in {TRIES} runs; idempotent: {idempotent}")
    fixed = make_topics(brokers, "new_")
    produce(brokers, link, "3.9.2", fixed, 99, idempotent=False)
    brokers.stop(SLOW, FAST)
    brokers.stop(CONTROLLER)
    found = astray(disks, topics)
    rows = audit(*disks, "--topic", "*_old*")["misrouted"]
    assert places(rows) == {where for where, homes in found.items() if homes}
    for row in rows:
        assert places(row["twins"]) & found[place(row)]
        assert row["home"] is None or place(row["home"]) in found[place(row)]
    assert astray(disks, fixed) == {}
    assert audit(*disks, "--topic", "*_new_*", exit_code=0)["misrouted"] == []
