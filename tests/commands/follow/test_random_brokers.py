"""A real broker that is rolled back and cleaned, whose topics are created again, with `klog follow` in between.

After each run the copy is compared with the broker's disk: batch by batch, and key by key where the topic is compacted.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from klog.base.errors import ExitCode

from tests.brokers import clients, kafka
from tests.commands.follow.following import batches, follow
from tests.commands.follow.scripted import base_of, end_of, split
from tests.conftest import Ran, run_klog_process
from tests.support.counts import count

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.long]
SETTINGS = {
    "log.cleaner.backoff.ms": "300",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.check.interval.ms": "500",
    "log.initial.task.delay.ms": "500",
}
STATE = {
    "cleanup.policy": "compact",
    "delete.retention.ms": "100",
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
}
STEPS = 26


class History:
    """A broker, its copy, and the changes of both."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance, self.copy, self.saved = Random(seed), folder / "copy", folder / "saved"
        self.broker = kafka.Cluster(kafka.NEWEST, (folder / "broker").resolve(), settings=SETTINGS)
        self.partitions = self.saved_partitions = 2
        self.told = [f"seed {seed}"]

    def begin(self) -> None:
        self.broker.start()
        self.make_plain()
        self.retry(lambda: clients.create(self.broker.bootstrap, {"state": STATE}))
        self.stop_and(lambda: shutil.copytree(self.broker.data, self.saved))

    def retry(self, work: Callable[[], object]) -> None:
        """Send a request that a broker that has just started may refuse."""
        for attempt in range(20):
            try:
                work()
                return
            except Exception:
                if attempt == 19:
                    raise
                time.sleep(0.5)

    def make_plain(self) -> None:
        settings = {"segment.ms": "1500"}
        self.retry(lambda: clients.create(self.broker.bootstrap, {"plain": settings}, partitions=self.partitions))

    def stop_and(self, work: Callable[[], object]) -> None:
        self.broker.stop()
        work()
        self.broker.start()

    # ------------------------------------------------------------ what happens

    def produce(self) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "acks": "all"} | clients.SILENT)
        tag, topic = self.chance.randrange(10**9), self.chance.choice(["plain", "plain", "state"])
        number = self.chance.randrange(self.partitions) if topic == "plain" else 0
        for _ in range(self.chance.randint(1, 3)):
            for at in range(self.chance.choice([1, 5, 10, 10, 10])):
                key = b"k%d" % self.chance.randrange(8)
                is_deletion = topic == "state" and self.chance.random() < 0.3
                value = None if is_deletion else b"%d-%d" % (tag, at)
                producer.produce(topic, key=key, value=value, partition=number)
            assert producer.flush(clients.WAIT_S) == 0

    def delete_records(self) -> None:
        from confluent_kafka import TopicPartition

        number = self.chance.randrange(self.partitions)
        log = split(batches(self.broker.data / f"plain-{number}"))
        if log:
            offset = self.chance.randint(base_of(log[0]), end_of(log[-1]))
            client = clients.admin(self.broker.bootstrap)
            for future in client.delete_records([TopicPartition("plain", number, offset)]).values():
                future.exception(clients.WAIT_S)

    def create_again(self) -> None:
        client = clients.admin(self.broker.bootstrap)
        for future in client.delete_topics(["plain"]).values():
            future.result(clients.WAIT_S)
        time.sleep(1)
        self.partitions = self.chance.randint(1, 3)
        self.make_plain()

    def save(self) -> None:
        self.stop_and(lambda: (shutil.rmtree(self.saved), shutil.copytree(self.broker.data, self.saved)))
        self.saved_partitions = self.partitions

    def roll_back(self) -> None:
        self.stop_and(lambda: (shutil.rmtree(self.broker.data), shutil.copytree(self.saved, self.broker.data)))
        self.partitions = self.saved_partitions

    def wait(self) -> None:
        time.sleep(2)

    def step(self) -> None:
        rare = [self.delete_records, self.create_again, self.save, self.roll_back, self.roll_back, self.wait]
        work = self.chance.choice([*[self.produce] * 5, *[self.follow] * 5, *rare])
        self.told.append(work.__name__)
        self.retry(work) if work in (self.produce, self.create_again) else work()

    # ------------------------------------------------------------ laws

    def follow(self) -> None:
        words = ["--on-cleaned", "anew"] * self.chance.randint(0, 1)
        ran = follow(self.broker.bootstrap, self.copy, "--timeout", "20s", *words)
        self.told.append(f"-> {int(ran.exit_code)}: {ran.stderr.decode()}")
        assert int(ran.exit_code) & ~(ExitCode.CORRECTED | ExitCode.PROBLEMS_LEFT) == 0, self.told
        self.compare(ran)

    def compare(self, ran: Ran) -> None:
        there = {path.name for path in self.broker.data.glob("plain-?")}
        assert {path.name for path in self.copy.glob("plain-*")} == there, self.told
        for name in sorted(there):
            theirs, mine = (split(batches(one / name)) for one in (self.broker.data, self.copy))
            first = max((base_of(log[0]) for log in (theirs, mine) if log), default=0)
            left = [[one for one in log if base_of(one) >= first] for log in (theirs, mine)]
            assert left[0] == left[1], (name, self.told)
            count("batches of copies compared with a broker's after random histories", len(left[0]))
        if not int(ran.exit_code) & ExitCode.PROBLEMS_LEFT:
            assert self.alive(self.copy / "state-0") == self.alive(self.broker.data / "state-0"), self.told

    def alive(self, directory: Path) -> dict[str, str]:
        """Return the latest value of each key that is not deleted."""
        ran = run_klog_process("dump", directory, "--output", "jsonl")
        rows = [json.loads(line) for line in ran.stdout.splitlines()]
        latest = {row["key"]: row["value"] for row in rows}
        return {key: value for key, value in latest.items() if value is not None}


@pytest.mark.parametrize("seed", range(6))
def test_a_copy_is_the_broker_s_log_whatever_happened(tmp_path: Path, seed: int, klog: Callable[..., Ran]) -> None:
    """Or it reports its gaps: offsets deleted before they were copied, deletions that were cleaned away."""
    history = History(tmp_path, seed)
    try:
        history.begin()
        for _ in range(STEPS):
            history.step()
        history.follow()
    finally:
        history.broker.kill()
    assert klog("verify", history.copy, "--deep").exit_code == 0, history.told
