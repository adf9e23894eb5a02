"""Real brokers on a metadata log that is older than the logs: the losses, and that a plan repairs it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka
from tests.brokers.quorum import BROKERS, Combined
from tests.commands.replicas import serving
from tests.commands.replicas.test_copy_plan_brokers import await_full_isr

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
        """Start, send, stop; return the served records."""
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


@pytest.mark.long
@pytest.mark.parametrize("is_dynamic", [True, False])
def test_three_controllers_that_were_all_rolled_back(is_dynamic: bool, klog: Run, tmp_path: Path) -> None:
    """The plan for the voters mends all of their metadata logs alike; no copy of a partition is cut afterwards."""
    with Combined(kafka.NEWEST, tmp_path, is_dynamic=is_dynamic) as cluster:
        cluster.start(*BROKERS)
        serving.create(cluster.bootstrap, {TOPIC: (1, 3)})
        await_full_isr(cluster.bootstrap, (TOPIC,))
        cluster.stop(*BROKERS)
        disks = [cluster.disk(node) for node in BROKERS]
        for disk in disks:
            shutil.copytree(disk / "__cluster_metadata-0", tmp_path / "backup" / disk.name)
        sent = []
        for number in range(2):
            cluster.start(*BROKERS)
            await_full_isr(cluster.bootstrap, (TOPIC,))
            for again in range(3):
                sent.append(f"old-{number}-{again}".encode())
                send(cluster.bootstrap, sent[-1])
            cluster.stop(*BROKERS)
        for disk in disks:
            shutil.rmtree(disk / "__cluster_metadata-0")
            shutil.copytree(tmp_path / "backup" / disk.name, disk / "__cluster_metadata-0")
        assert all(notes(klog, disk) == ["metadata-log-behind"] for disk in disks)
        ran = klog("metadata", "plan", *disks, "--voters", cluster.voters, "--apply")
        assert ran.exit_code == 0, ran
        assert all(notes(klog, disk) == [] for disk in disks)
        for number in range(2):
            cluster.start(*BROKERS)
            await_full_isr(cluster.bootstrap, (TOPIC,))
            for again in range(3):
                sent.append(f"new-{number}-{again}".encode())
                send(cluster.bootstrap, sent[-1])
            served = [one.value for one in clients.consume(cluster.bootstrap, TOPIC, "read_uncommitted")]
            assert served == sent
            cluster.stop(*BROKERS)
        assert klog("replicas", "diff", *disks, "--topic", TOPIC).exit_code == 0
        assert all(klog("verify", "--deep", disk / f"{TOPIC}-0").exit_code == 0 for disk in disks)
