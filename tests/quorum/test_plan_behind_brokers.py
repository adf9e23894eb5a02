"""Real brokers on a metadata log that is older than the logs: what is lost, and that a plan mends it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka

Run = Callable[..., Any]
pytestmark = [pytest.mark.kafka]
TOPIC = "orders"


def send(bootstrap: str, value: bytes) -> None:
    """Send one record by an idempotent producer of its own, as a job that ends at once; it is acknowledged."""
    from confluent_kafka import Producer

    config = {"bootstrap.servers": bootstrap, "enable.idempotence": True, **clients.SILENT}
    said: list[object] = []
    producer = Producer(config)
    producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _: said.append(error))
    assert producer.flush(clients.WAIT_S) == 0
    assert said == [None]


class RolledBack:
    """A broker whose metadata log is restored from before *starts* starts, each with two producers."""

    def __init__(self, version: str, folder: Path, starts: int = 1, is_killed: bool = False) -> None:
        self.cluster = kafka.Cluster(version, folder)
        self.metadata = self.cluster.data / "__cluster_metadata-0"
        self.sent: list[bytes] = []
        with self.cluster:
            clients.create(self.cluster.bootstrap, {TOPIC: {}})
        shutil.copytree(self.metadata, folder / "backup")
        for number in range(starts):
            self.go_on(f"old-{number}", 2, is_killed=is_killed)
        shutil.rmtree(self.metadata)
        shutil.copytree(folder / "backup", self.metadata)

    def go_on(self, name: str, producers: int, is_killed: bool = False) -> list[bytes]:
        """Start, send, stop; return what is served then."""
        with self.cluster:
            for number in range(producers):
                self.sent.append(f"{name}-{number}".encode())
                send(self.cluster.bootstrap, self.sent[-1])
            served = [one.value or b"" for one in clients.consume(self.cluster.bootstrap, TOPIC, "read_uncommitted")]
            if is_killed:
                self.cluster.kill()
        return served

    @property
    def epochs(self) -> list[str]:
        return (self.cluster.data / f"{TOPIC}-0/leader-epoch-checkpoint").read_text().splitlines()[2:]


def notes(klog: Run, log_dir: Path) -> list[str]:
    return [one["id"] for one in json.loads(klog("doctor", "--output", "json", log_dir).stdout)["notes"]]


def is_mended(klog: Run, tmp_path: Path, version: str, starts: int, is_killed: bool) -> None:
    broker = RolledBack(version, tmp_path, starts, is_killed)
    data = broker.cluster.data
    before = broker.epochs
    assert notes(klog, data) == ["metadata-log-behind"]
    assert klog("metadata", "plan", data, "--only-broker", "1", "--apply").exit_code == 0
    assert notes(klog, data) == []
    for again in range(2 if starts > 1 else 1):
        assert broker.go_on(f"new-{again}", 3) == broker.sent
    assert broker.epochs[: len(before)] == before
    assert klog("verify", "--deep", data / f"{TOPIC}-0").exit_code == 0


def test_a_plan_mends_a_metadata_log_that_is_behind(klog: Run, tmp_path: Path) -> None:
    """Every record that is acknowledged afterwards is served, and the epochs of before stay."""
    is_mended(klog, tmp_path, kafka.NEWEST, 1, False)


@pytest.mark.long
@pytest.mark.parametrize("version", [kafka.NEWEST, "3.9.1"])
@pytest.mark.parametrize(("starts", "is_killed"), [(3, False), (2, True)])
def test_a_plan_mends_it_after_many_starts(
    version: str, starts: int, is_killed: bool, klog: Run, tmp_path: Path
) -> None:
    is_mended(klog, tmp_path, version, starts, is_killed)


@pytest.mark.long
@pytest.mark.parametrize("version", [kafka.NEWEST, "3.9.1"])
def test_without_the_plan_records_are_acknowledged_and_lost(version: str, klog: Run, tmp_path: Path) -> None:
    """The danger that the doctor names is real."""
    broker = RolledBack(version, tmp_path, 3)
    before = broker.epochs
    assert notes(klog, broker.cluster.data) == ["metadata-log-behind"]
    served = broker.go_on("new", 3)
    assert set(broker.sent) - set(served) == {b"new-0", b"new-1"}
    assert broker.epochs[: len(before)] != before
