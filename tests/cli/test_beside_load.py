"""Beside a broker that is written to all the time: answers lie between what clients knew before and after them."""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from klog.formats.names import FileKind, parse_file

from tests.brokers import clients, kafka
from tests.conftest import Ran, run_klog_process

pytestmark = pytest.mark.kafka

SETTINGS = {
    "log.cleaner.backoff.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.001",
    "log.segment.delete.delay.ms": "1",
    "log.retention.check.interval.ms": "200",
    "log.initial.task.delay.ms": "500",
}
CHURN = {"internal.segment.bytes": "4000", "retention.bytes": "20000"}
PARTITIONS, ROUNDS = 3, 5
PAUSE_S = 0.01
"""Between two actions of a client.  Without it the logs grow faster than klog reads them, and the reading takes the
time, not the moment between two looks, which is the subject of the test."""


class Ended(NamedTuple):
    """A transaction of a client: how it ended, and its records by partition."""

    state: str
    parts: dict[int, int]


class Load:
    """Clients that write until they are stopped, and record their requests and the answers."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.ended: dict[str, list[Ended]] = {}
        self.begun: Counter[str] = Counter()
        self.committed: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.failures: list[BaseException] = []
        self._stop = threading.Event()
        works = [lambda n=n: self._transactions(n) for n in range(3)]
        works += [lambda n=n: self._commits(f"group-{n}") for n in range(2)]
        self._threads = [threading.Thread(target=self._run, args=(one,)) for one in (*works, self._churn, self._new)]

    def __enter__(self) -> Load:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for one in self._threads:
            one.join(clients.WAIT_S)

    def _run(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:  # the test asks for it
            self.failures.append(error)

    def _producer(self, **more: object) -> Any:
        from confluent_kafka import Producer

        return Producer({"bootstrap.servers": self.bootstrap, "linger.ms": 0, **clients.SILENT, **more})

    def _transaction(self, producer: Any, name: str, chance: random.Random) -> None:
        self.begun[name] += 1
        producer.begin_transaction()
        parts = {n: chance.randrange(1, 4) for n in chance.sample(range(PARTITIONS), chance.randrange(1, PARTITIONS))}
        for number, count in parts.items():
            for _ in range(count):
                producer.produce("t", chance.randbytes(20), partition=number)
        assert producer.flush(clients.WAIT_S) == 0
        commits = chance.random() < 0.7
        end = producer.commit_transaction if commits else producer.abort_transaction
        end(clients.WAIT_S)
        self.ended.setdefault(name, []).append(Ended("committed" if commits else "aborted", parts))

    def _transactions(self, number: int) -> None:
        """One transaction after another, of one id."""
        chance, name = random.Random(number), f"steady-{number}"
        producer = self._producer(**{"transactional.id": name})
        producer.init_transactions(clients.WAIT_S)
        while not self._stop.wait(PAUSE_S):
            self._transaction(producer, name, chance)

    def _new(self) -> None:
        """Transactions of new ids."""
        chance = random.Random(9)
        while not self._stop.wait(PAUSE_S):
            name = f"new-{len(self.begun)}"
            producer = self._producer(**{"transactional.id": name})
            producer.init_transactions(clients.WAIT_S)
            self._transaction(producer, name, chance)

    def _commits(self, group: str) -> None:
        from confluent_kafka import Consumer, KafkaException, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group, **clients.SILENT})
        while not self._stop.wait(PAUSE_S):
            offset = self.asked[group] + 1
            self.asked[group] = offset
            try:
                consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
            except KafkaException:  # the coordinator is still looked for
                assert not self.committed[group]
                time.sleep(0.2)
                continue
            self.committed[group] = offset
        consumer.close()

    def _churn(self) -> None:
        """Segments that are rolled, and deleted at once."""
        producer = self._producer()
        while not self._stop.wait(PAUSE_S):
            for _ in range(20):
                producer.produce("churn", os.urandom(300), partition=0)
            assert producer.flush(clients.WAIT_S) == 0


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Cluster]:
    cluster = kafka.Cluster(kafka.NEWEST, tmp_path_factory.mktemp("load"), settings=SETTINGS)
    with cluster:
        clients.create(cluster.bootstrap, {"t": {}}, partitions=PARTITIONS)
        clients.create(cluster.bootstrap, {"churn": CHURN})
        yield cluster


@pytest.fixture(scope="module")
def load(broker: kafka.Cluster) -> Iterator[Load]:
    with Load(broker.bootstrap) as load:
        until = time.monotonic() + clients.WAIT_S
        while min(len(load.ended), load.committed["group-0"], load.committed["group-1"]) < 6:
            assert load.failures == []
            assert time.monotonic() < until
            time.sleep(0.1)
        _roll_often(broker.bootstrap)
        yield load
    assert load.failures == []


def _roll_often(bootstrap: str) -> None:
    """Give the cleaner segments of `__consumer_offsets` all the time."""
    from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

    entry = ConfigEntry("segment.ms", "300", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "__consumer_offsets", incremental_configs=[entry])
    client = AdminClient({"bootstrap.servers": bootstrap, **clients.SILENT})
    client.incremental_alter_configs([resource])[resource].result(clients.WAIT_S)


def klog(*words: object) -> Ran:
    """Run klog, not behind whatever else runs on this machine; its note about a running broker is not in the result."""
    done = run_klog_process(*map(str, words), "--priority", "normal")
    assert b"Traceback" not in done.stderr
    first, _, others = done.stderr.partition(b"\n")
    is_note = (
        first.startswith(b"klog: a broker is running on ") and b": klog leaves the page cache as it was (" in first
    )
    return replace(done, stderr=others) if is_note else done


def is_between(before: int, found: int, after: int) -> bool:
    return before <= found <= after


def test_transactions_are_those_of_the_clients(broker: kafka.Cluster, load: Load) -> None:
    """Each that had ended is there once, with its state and its records; nothing hangs, and each id is known."""
    for _ in range(ROUNDS):
        before = {name: list(ended) for name, ended in list(load.ended.items())}
        done = klog("transactions", broker.data, "--output", "json")
        begun = dict(load.begun)
        assert (done.exit_code, done.stderr) == (0, b"")
        found: dict[str | None, list[Any]] = {}
        for one in json.loads(done.stdout)["transactions"]:
            assert one["state"] in ("committed", "aborted", "open")
            assert (one["duration"] or 0) >= 0
            found.setdefault(one["transactional_id"], []).append(one)
        assert found.keys() <= begun.keys()
        for name, ended in before.items():
            told = sorted(found[name], key=lambda one: one["began"] or one["coordinator"]["began"])
            states = [Ended(one["state"], {p["partition"]: p["records"] for p in one["partitions"]}) for one in told]
            assert states[: len(ended)] == ended, name
            assert len(states) <= begun[name]
            assert [one.state for one in states].count("open") <= 1


def test_groups_are_where_their_consumers_are(broker: kafka.Cluster, load: Load) -> None:
    """Also while the cleaner replaces the segments in which their commits are."""
    for _ in range(ROUNDS):
        before = dict(load.committed)
        done = klog("groups", broker.data, "--output", "json")
        after = dict(load.asked)
        assert (done.exit_code, done.stderr) == (0, b"")
        found = {one["group"]: one["offsets"] for one in json.loads(done.stdout)["groups"]}
        assert sorted(found) == ["group-0", "group-1"]
        for group, (row,) in found.items():
            assert is_between(before[group], row["offset"], after[group])
            assert (row["topic"], row["partition"], row["lag"]) == ("t", 0, row["log_end"] - row["offset"])
    cleaned = [path.stat().st_size for path in broker.data.glob("__consumer_offsets-*/0*0.log")]
    assert min(cleaned) < 1000, "the cleaner has not run"


def test_the_timeline_tells_of_all_that_was(broker: kafka.Cluster, load: Load) -> None:
    """Each transaction's end once, and no damage."""
    before = {name: len(ended) for name, ended in list(load.ended.items())}
    done = klog("timeline", broker.data, "--output", "jsonl")
    begun = dict(load.begun)
    assert (done.exit_code, done.stderr) == (0, b"")
    kinds = Counter((one["kind"], one.get("transactional_id")) for one in map(json.loads, done.stdout.splitlines()))
    assert "damage" not in {kind for kind, _ in kinds}
    for name, count in before.items():
        assert is_between(count, kinds["txn-commit", name] + kinds["txn-abort", name], begun[name])


def test_space_adds_up(broker: kafka.Cluster, load: Load) -> None:
    """Segments are created and deleted meanwhile; each record is counted once."""
    least = sum(path.stat().st_size for path in broker.data.glob("t-*/*.log"))
    done = klog("space", broker.data, "--output", "json")
    assert (done.exit_code, done.stderr) == (0, b"")
    found = json.loads(done.stdout)
    assert sum(one["bytes"] + one.get("index_bytes", 0) for one in found["segments"] + found["other"]) == found["bytes"]
    assert sum(one["bytes"] for one in found["segments"] if one["topic"] == "t") >= least
    assert any(one["topic"] == "churn" for one in found["segments"])


@pytest.mark.parametrize("words", [("verify", "--deep"), ("audit",), ("audit", "misrouted")], ids=" ".join)
def test_nothing_is_damaged(broker: kafka.Cluster, load: Load, words: tuple[str, ...]) -> None:
    """A file that is just being written or deleted is no damage, and no warning."""
    for _ in range(ROUNDS // 2):
        done = klog(*words, broker.data)
        assert (done.exit_code, done.stderr) == (0, b""), done


def test_the_report_has_all_of_it(broker: kafka.Cluster, load: Load, tmp_path: Path) -> None:
    done = klog("report", broker.data, "--to", tmp_path / "report.html")
    assert (done.exit_code, done.stderr.split(b" (")[0]) == (0, b"wrote %s" % bytes(tmp_path / "report.html"))
    (text,) = re.findall(
        r'<script type="application/json" id="data">(.*)</script>', (tmp_path / "report.html").read_text()
    )
    found = json.loads(text)
    assert {one["group"] for one in found["groups"]} == {"group-0", "group-1"}
    assert len(found["transactions"]) > 20
    assert found["findings"] == [one for one in found["findings"] if one["severity"] == "note"]
    assert found["problems"] == []


def test_nothing_of_klogs_stays(broker: kafka.Cluster, load: Load) -> None:
    """The log dir has Kafka's files alone, and the broker has no complaint."""
    names = {path.name for path in broker.data.rglob("*") if path.is_file()}
    assert {name for name in names if parse_file(name).kind is FileKind.OTHER} == set()
    assert [line for line in broker.log().splitlines() if " ERROR " in line and not kafka.is_of_load(line)] == []
