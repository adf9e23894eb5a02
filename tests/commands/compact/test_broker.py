"""A real broker on compacted partitions: the same latest values, and its own cleaner and its producers continue."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING

import pytest
from klog.data_dir.log_dir import LogDir

from tests.brokers import clients, kafka
from tests.conftest import Ran

if TYPE_CHECKING:
    from confluent_kafka import Producer

pytestmark = [pytest.mark.kafka, pytest.mark.slow]
ISOLATIONS = ("read_committed", "read_uncommitted")
TOPICS = {"plain": "none", "packed": "lz4", "decided": "none"}
CLEANED = re.compile(r"cleaned log (\S+) \(dirty section")
Table = dict[bytes, bytes | None]


class Shop:
    """A broker without a cleaner, and producers that outlive its restarts."""

    def __init__(self, cluster: kafka.Cluster) -> None:
        from confluent_kafka import Producer

        self.cluster, self.random = cluster, Random(3)
        common = {"bootstrap.servers": cluster.bootstrap, "linger.ms": 5, **clients.SILENT}
        settings = {"cleanup.policy": "compact", "internal.segment.bytes": "20000", "delete.retention.ms": "0"}
        settings["min.cleanable.dirty.ratio"] = "0.01"
        clients.create(cluster.bootstrap, dict.fromkeys(TOPICS, settings))
        self.producers = {
            topic: Producer({**common, "enable.idempotence": True, "compression.type": codec})
            for topic, codec in TOPICS.items()
            if topic != "decided"
        }
        self.decided = Producer({**common, "transactional.id": "shop", "transaction.timeout.ms": 600_000})
        self.decided.init_transactions(30)

    def trade(self, rounds: int) -> None:
        """Write over keys, delete some, decide some for nothing."""
        for number in range(rounds):
            for producer, topic in [(one, topic) for topic, one in self.producers.items()]:
                self._send(producer, topic, number)
            self.decided.begin_transaction()
            self._send(self.decided, "decided", number)
            (self.decided.abort_transaction if number % 3 == 2 else self.decided.commit_transaction)(30)

    def _send(self, producer: Producer, topic: str, number: int) -> None:
        failed: list[object] = []

        def delivered(error: object, _: object) -> None:
            failed.extend([error] if error is not None else [])

        producer.list_topics(topic, 30)
        for _ in range(20):
            key = b"key %d" % self.random.randrange(40)
            value = None if self.random.random() < 0.1 else b"%d " % number * self.random.randrange(1, 30)
            producer.produce(topic, key=key, value=value, on_delivery=delivered)
        assert producer.flush(60) == 0
        assert not failed, failed[:3]

    def tables(self) -> Mapping[tuple[str, str], Table]:
        """Return what consumers make of each topic: the latest value of each key that has one."""
        found = {}
        for topic in TOPICS:
            for isolation in ISOLATIONS:
                table: Table = {}
                for one in clients.consume(self.cluster.bootstrap, topic, isolation):
                    assert one.key is not None
                    table[one.key] = one.value
                found[topic, isolation] = {key: value for key, value in table.items() if value is not None}
        return found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shop]:
    settings = {"log.cleaner.enable": "false", "log.cleaner.backoff.ms": "200", "log.segment.delete.delay.ms": "100"}
    with kafka.Cluster(kafka.NEWEST, tmp_path_factory.mktemp("shop"), settings=settings) as cluster:
        one = Shop(cluster)
        one.trade(80)
        yield one
        for producer in (*one.producers.values(), one.decided):
            producer.purge()


def test_a_broker_goes_on_with_what_was_compacted(shop: Shop, klog: Callable[..., Ran]) -> None:
    """Tables in both isolation levels, sequences and transactions of living producers, and its own cleaner."""
    before = shop.tables()
    shop.cluster.stop()
    data = shop.cluster.data
    sizes = {one.directory: one.size for one in LogDir(str(data)).partitions}
    done = klog("compact", data, "--apply")
    assert done.exit_code == 0, done
    after = {one.directory: one.size for one in LogDir(str(data)).partitions}
    assert all(after[f"{topic}-0"] < 0.7 * sizes[f"{topic}-0"] for topic in TOPICS), (sizes, after)
    assert klog("verify", data, "--deep", "--quiet").exit_code == 0

    said = len(shop.cluster.log())
    shop.cluster.start()
    assert shop.tables() == before
    shop.trade(2)
    middle = shop.tables()
    shop.trade(30)
    shop.cluster.stop()
    shop.cluster.settings["log.cleaner.enable"] = "true"
    shop.cluster.start()
    wanted = shop.tables()
    assert wanted != middle
    cleaned = await_cleaner(shop.cluster, said)
    assert {f"{topic}-0" for topic in TOPICS} <= cleaned
    assert shop.tables() == wanted
    lines = shop.cluster.log()[said:].splitlines()
    assert [line for line in lines if (" ERROR " in line and not kafka.is_of_load(line)) or "uncleanable" in line] == []


def await_cleaner(cluster: kafka.Cluster, start: int) -> set[str]:
    """Wait until the broker's own cleaner has cleaned the topics; return which partitions it cleaned."""
    began = time.monotonic()
    while time.monotonic() - began < 60:
        cleaned = set(CLEANED.findall(cluster.log()[start:]))
        if {f"{topic}-0" for topic in TOPICS} <= cleaned:
            break
        time.sleep(0.5)
    return cleaned
