"""Adopted partitions on real brokers: nothing is set aside, readers receive the source's records at their offsets, and
producers continue, also after a kill and a recovery.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.brokers.clients import Received
from tests.commands.adopt.disks import adopted, doctor, set_epochs
from tests.conftest import FIXTURES

pytestmark = pytest.mark.kafka

LEVELS = ("read_uncommitted", "read_committed")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OLD = {"v0": "v0-gzip-0", "v1": "v1-snappy-0"}
TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
UNIQUE = "0123456789abcdef0123456789abcdef"
Truth = dict[tuple[str, str], list[tuple[object, ...]]]


def plain(found: list[Received]) -> list[tuple[object, ...]]:
    """Return records without their leader epochs."""
    return [(one.offset, one.timestamp, one.key, one.value, one.headers) for one in found]


def consumed(bootstrap: str, topics: Iterable[str]) -> Truth:
    """Return what consumers of both levels get; several at a time, for most of it is waiting."""
    wanted = [(topic, level) for topic in topics for level in LEVELS]
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda one: plain(clients.consume(bootstrap, *one)), wanted)
        return dict(zip(wanted, found, strict=True))


class Source:
    """The remains of another cluster: its log dir, and the records that its consumers received of each topic before it
    stopped."""

    topics = (*(f"codec-{codec}" for codec in CODECS), "idem", "tx", "open", "many", "trimmed", "compacted", "above")

    def __init__(self, folder: Path) -> None:
        small, keyed = {"internal.segment.bytes": "3000"}, {"cleanup.policy": "compact"}
        with kafka.Cluster(kafka.NEWEST, folder, settings={"log.cleaner.backoff.ms": "200"}) as cluster:
            soon = {"min.cleanable.dirty.ratio": "0.01"}
            special = {
                "many": {"internal.segment.bytes": "400"}, "compacted": small | keyed | soon, "trimmed": small
            }  # fmt: skip
            clients.create(cluster.bootstrap, {name: special.get(name, {}) for name in self.topics})
            self._fill(cluster.bootstrap)
            with clients.open_transaction(cluster.bootstrap, "open", clients.records("open", 7)):
                self._trim(cluster.bootstrap)
                self._await_cleaner(cluster.data)
                self.truth = consumed(cluster.bootstrap, self.topics)
                cluster.stop()
        self.data = cluster.data
        assert len(list(self.data.glob("many-0/*.log"))) > 200, "a segment for each batch"
        set_epochs(self.data / "above-0", 50)

    @staticmethod
    def _fill(bootstrap: str) -> None:
        for codec in CODECS:
            clients.with_librdkafka(bootstrap, f"codec-{codec}", codec, clients.records(codec, 60))
        sizes = {"many": 200}
        for topic, count in (("many", 600), ("trimmed", 120), ("compacted", 120), ("above", 40), ("open", 10)):
            given = [
                one
                for one in clients.records(topic, count)
                if one.key and len(one.value or b"") < sizes.get(topic, 1000)
            ]
            alone = {"batch_num_messages": 1} if topic == "many" else {}
            for _ in range(2 if topic == "compacted" else 1):
                clients.with_librdkafka(bootstrap, topic, "none", given, **alone)
        given = list(clients.records("idem", 40))
        clients.with_librdkafka(bootstrap, "idem", "none", given, enable_idempotence=True)
        clients.with_librdkafka(bootstrap, "tx", "none", clients.records("tx", 60), transaction="adopted")

    @staticmethod
    def _trim(bootstrap: str) -> None:
        from confluent_kafka import TopicPartition

        client = clients.admin(bootstrap)
        for future in client.delete_records([TopicPartition("trimmed", 0, 37)]).values():
            future.result(clients.WAIT_S)

    @staticmethod
    def _await_cleaner(data: Path) -> None:
        """Return when all but the active segment is compacted; repeated records are there once then."""
        end = time.monotonic() + 60
        while f"compacted 0 {max(int(log.stem) for log in data.glob('compacted-0/*.log'))}" not in (
            (data / "cleaner-offset-checkpoint").read_text().splitlines()
        ):
            assert time.monotonic() < end, "the cleaner does not run"
            time.sleep(0.1)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return Source(tmp_path_factory.mktemp("source"))


class Home:
    """A broker of *version* with the topics of the source, each empty; the source is adopted into it, while it is
    stopped."""

    def __init__(self, version: str, folder: Path) -> None:
        # The time after a kill until the broker takes part again.
        settings = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
        self.cluster = kafka.Cluster(version, folder, settings=settings)
        self.more: dict[str, list[tuple[object, ...]]] = {}

    def make(self, topics: list[str]) -> None:
        with self.cluster:
            name = "internal.segment.bytes" if self.cluster.version == kafka.NEWEST else "segment.bytes"
            settings = {"compacted": {"cleanup.policy": "compact"}, "many": {name: "1400"}}
            clients.create(self.cluster.bootstrap, {topic: settings.get(topic, {}) for topic in topics})
            self._commit("went-on-before", "above", 12, epoch=50)

    def _commit(self, group: str, topic: str, offset: int, epoch: int) -> None:
        """Commit for a group the offset that it would have committed when it read the source under the source's
        epoch."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.cluster.bootstrap, "group.id": group})
        consumer.commit(offsets=[TopicPartition(topic, 0, offset, leader_epoch=epoch)], asynchronous=False)
        consumer.close()

    def check(self, truth: Truth, topics: list[str]) -> None:
        """Compare the records of consumers: the source's, and behind them later ones."""
        for (topic, level), found in consumed(self.cluster.bootstrap, topics).items():
            wanted = truth[topic, level]
            assert found[: len(wanted)] == wanted, (topic, level)
            behind = [(key, value) for _, _, key, value, _ in found[len(wanted) :]]
            assert behind == self.more.get(topic, []), (topic, level)

    def send(self, topics: list[str]) -> None:
        """Let an idempotent and a transactional producer continue, by turns."""
        with ThreadPoolExecutor(8) as pool:
            sent = pool.map(self._send, topics, (bool(number % 2) for number in range(len(topics))))
            for topic, behind in zip(topics, sent, strict=True):
                self.more.setdefault(topic, []).extend(behind)

    def _send(self, topic: str, is_idempotent: bool) -> list[tuple[object, ...]]:
        given = [one for one in clients.records(f"{topic}-{len(self.more.get(topic, []))}", 4) if one.key]
        more = {"enable_idempotence": True} if is_idempotent else {"transaction": f"goes-on-{topic}"}
        clients.with_librdkafka(self.cluster.bootstrap, topic, "none", given, **more)
        return [(one.key, one.value) for one in given]

    def is_quiet(self) -> None:
        """Nothing was set aside, made anew, cut or taken offline."""
        log = self.cluster.log()
        assert not re.search(r"marked stray|Loaded stray|Deleting all segments|is offline|Corruption found", log)
        assert not list(self.cluster.data.glob("*-stray")), "a partition was set aside"


@pytest.fixture(scope="module", params=[kafka.NEWEST, pytest.param(kafka.BEFORE, marks=pytest.mark.long)])
def home(
    request: pytest.FixtureRequest, source: Source, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Home, Truth, list[str]]]:
    """A broker with everything adopted, in one command and some more: other names, old formats, an empty partition."""
    home = Home(request.param, tmp_path_factory.mktemp("home"))
    topics = [*Source.topics, *OLD, "renamed", "empty"]
    home.make(topics)
    truth = dict(source.truth)
    data = home.cluster.data
    words = [word for topic in Source.topics for word in ("--topic", topic)]
    adopted(source.data, *words, "--to", data, "--apply")
    for topic, name in OLD.items():
        adopted(FIXTURES / "legacy" / name, "--as", f"{topic}-0", "--to", data, "--apply")
    aside = data / f"whatever-3.{UNIQUE}-delete"
    shutil.copytree(source.data / "tx-0", aside)
    adopted(aside, "--as", "renamed-0", "--to", data, "--apply")
    aside.rename(data.parent / "away")
    adopted(FIXTURES / "modern/empty-0", "--as", "empty-0", "--to", data, "--apply")
    for level in LEVELS:
        truth["renamed", level], truth["empty", level] = truth["tx", level], []
    found = doctor(data)
    assert (found["starts"], found["loses"]) == (True, 0)
    with home.cluster:
        old = consumed(home.cluster.bootstrap, OLD)
        assert all(len(found) > 100 for found in old.values())
        truth |= old
        # The aborted transaction of "open" no longer holds back later records.
        undecided = len(truth["open", "read_committed"])
        assert len(truth["open", "read_uncommitted"]) == undecided + 7
        yield home, truth, topics


def test_all_of_it_is_served_and_goes_on(home: tuple[Home, Truth, list[str]]) -> None:
    """In both isolation levels; producers whose ids collide with the source's are taken; and so after a kill."""
    broker, truth, topics = home
    broker.check(truth, topics)
    broker.is_quiet()
    broker.send(topics)
    broker.check(truth, topics)
    broker.cluster.kill()
    broker.cluster.start()
    broker.check(truth, topics)
    broker.send(topics)
    broker.check(truth, topics)
    broker.is_quiet()


def resume(broker: Home, group: str, topic: str, count: int, seconds: int = 40) -> list[int]:
    """Return the offsets that a Java consumer of a group gets next."""
    words = (broker.cluster.bootstrap, group, topic, str(count), str(seconds))
    done = subprocess.run(
        kafka.program(kafka.NEWEST, "ResumeGroup", *words), capture_output=True, check=True, timeout=180
    )
    return [int(line) for line in done.stdout.split()]


def test_a_java_consumer_goes_on_where_it_was(home: tuple[Home, Truth, list[str]]) -> None:
    """It has committed epochs of the adopted log, which were above the cluster's; then the leader's epoch changes."""
    broker, truth, _ = home
    there = len(truth["above", "read_uncommitted"]) + len(broker.more.get("above", []))
    first = resume(broker, "resuming", "above", there)
    assert len(first) == there
    broker.cluster.stop()
    broker.cluster.start()
    time.sleep(1)
    broker.send(["above"])
    new = len(broker.more["above"]) + len(truth["above", "read_uncommitted"]) - there
    found = resume(broker, "resuming", "above", new)
    assert len(found) == new
    assert found[0] > first[-1]


def test_a_group_that_had_committed_the_old_epochs(home: tuple[Home, Truth, list[str]]) -> None:
    """Its commit names an epoch that this cluster never had: the client waits for that, until the commit is made again.

    An adoption cannot change it, for the commit is in this cluster's own topic; the page names the command.
    """
    broker, truth, _ = home
    group, topic, first = "went-on-before", "above", 12
    wanted = [one[0] for one in truth[topic, "read_uncommitted"] if isinstance(one[0], int) and one[0] >= first]
    assert resume(broker, group, topic, 1, 8) == []
    words = ("--group", group, "--topic", topic, "--reset-offsets", "--to-current", "--execute")
    done = kafka.Tools(broker.cluster.version).run_class(TOOL, "--bootstrap-server", broker.cluster.bootstrap, *words)
    assert done.exit_code == 0, done
    assert resume(broker, group, topic, len(wanted), 15)[: len(wanted)] == wanted
