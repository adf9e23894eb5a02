"""Several replicas: the same command on the log dir of each writes the same bytes, and a cluster starts on them."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.brokers.quorum import BROKERS, CONTROLLER, Brokers
from tests.commands.write.sources import SOURCE
from tests.conftest import Ran, run_klog

pytestmark = [pytest.mark.corpora, pytest.mark.kafka]
Klog = Callable[..., Ran]
TOPICS = ("order.tx", "order.bytes")


def files(disk: Path, topic: str) -> dict[str, bytes]:
    """Return the written files of a topic's partition 0: its segments with their indexes, epochs and snapshots."""
    return {path.name: path.read_bytes() for path in sorted((disk / f"{topic}-0").iterdir())}


@pytest.fixture(scope="module")
def brokers(image: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers that have stopped, on whose disks records of two topics were written by the same commands."""
    folder = tmp_path_factory.mktemp("replicas")
    records = folder / "records.jsonl"
    paths = [image(SOURCE) / "data" / f"{topic}-0" for topic in TOPICS]
    assert run_klog("dump", *paths, "--output", "jsonl", "--to", records).exit_code == 0
    settings = {"default.replication.factor": "3", "num.partitions": "1", "auto.create.topics.enable": "true"}
    with Brokers(kafka.NEWEST, folder / "cluster", settings=settings) as made:
        made.start(*BROKERS)
        clients.create(made.bootstrap, {topic: {} for topic in TOPICS}, replicas=3)
        made.stop(*BROKERS)
        made.stop(CONTROLLER)
        for node in BROKERS:
            words = ("--one-replica", "--metadata", made.disk(CONTROLLER), "--now", "1900000000000", "--keep-offsets")
            done = run_klog("write", records, "--to", made.disk(node), "--apply", "--output", "json", *words)
            assert done.exit_code == 0, done.stderr
            assert json.loads(done.stdout)["records"] > 200
        for node in (*BROKERS, CONTROLLER):
            shutil.copytree(made.disk(node), folder / "written" / str(node))
        yield made


def test_every_replica_has_the_same_bytes(brokers: Brokers) -> None:
    """Logs, indexes, snapshots and epochs."""
    for topic in TOPICS:
        first = files(brokers.disk(1), topic)
        assert sum(len(content) for name, content in first.items() if name.endswith(".log")) > 10_000
        assert files(brokers.disk(2), topic) == first
        assert files(brokers.disk(3), topic) == first
    assert run_klog("replicas", "diff", *(brokers.disk(node) for node in BROKERS)).exit_code == 0


@pytest.mark.parametrize("order", [(3, 1, 2), pytest.param((2, 3, 1), marks=pytest.mark.long)])
def test_the_cluster_starts_on_them_in_any_order(order: tuple[int, ...], brokers: Brokers) -> None:
    """Whoever leads: nothing is cut or complained of; consumers get everything, and new records are replicated."""
    for node in (*BROKERS, CONTROLLER):
        shutil.rmtree(brokers.disk(node))
        shutil.copytree(brokers.folder.parent / "written" / str(node), brokers.disk(node))
    before = {topic: files(brokers.disk(1), topic) for topic in TOPICS}
    logs = {topic: {n: c for n, c in one.items() if n.endswith(".log") and c} for topic, one in before.items()}
    brokers.start(CONTROLLER)
    marks = {node: len(brokers.log(node)) for node in BROKERS}
    for node in order:
        brokers.start(node)
    for topic in TOPICS:
        found = clients.consume(brokers.bootstrap, topic, "read_uncommitted")
        assert len(found) > 90
        committed = clients.consume(brokers.bootstrap, topic, "read_committed")
        assert (len(committed) < len(found)) == (topic == "order.tx")
        clients.with_librdkafka(brokers.bootstrap, topic, "none", clients.records("new", 20), acks="all")
        assert len(clients.consume(brokers.bootstrap, topic, "read_uncommitted")) == len(found) + 20
    # Before they stop: then each takes the leaders of the others away from them, and followers are fenced.
    logged = {node: brokers.log(node)[marks[node] :] for node in BROKERS}
    brokers.stop(*BROKERS)
    brokers.stop(CONTROLLER)
    for node in BROKERS:
        # A fetch request without a timely answer shows the load, not the content of the disk.
        said = [line for line in logged[node].splitlines() if "order." in line]
        assert said
        assert not [line for line in said if re.search(r"ERROR|WARN(?!.*Error in response for fetch request)", line)]
        for topic in TOPICS:
            now = files(brokers.disk(node), topic)
            assert all(now[name].startswith(content) for name, content in logs[topic].items())
    diff = run_klog("replicas", "diff", *(brokers.disk(node) for node in BROKERS))
    assert diff.exit_code == 0, diff.stdout
