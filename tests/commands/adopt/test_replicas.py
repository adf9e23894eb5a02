"""Three brokers, three replicas: adopted on one disk alone the records are lost, on all three they are served."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.brokers.quorum import BROKERS, CONTROLLER, Brokers
from tests.commands.adopt.disks import adopted, foreign, records
from tests.conftest import run_klog

pytestmark = pytest.mark.kafka
TOPIC = "orders"


def in_sync(brokers: Brokers) -> list[int]:
    """Return the replicas that may lead, as the controller has it, which runs on."""
    shown = json.loads(run_klog("metadata", "show", brokers.disk(CONTROLLER), "--output", "json").stdout)
    (topic,) = [one for one in shown["topics"] if one["topic"] == TOPIC]
    found: list[int] = topic["partitions"][0]["isr"]
    return found


def served(brokers: Brokers) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return the records of a consumer."""
    found = clients.consume(brokers.bootstrap, TOPIC, "read_uncommitted", seconds=90)
    return [(one.offset, one.key, one.value) for one in found]


def wait_for_isr(brokers: Brokers, seconds: float = 60) -> None:
    """Wait until all replicas are in sync."""
    client, until = clients.admin(brokers.bootstrap), time.monotonic() + seconds
    while time.monotonic() < until:
        partition = client.list_topics(TOPIC, timeout=clients.WAIT_S).topics[TOPIC].partitions[0]
        if len(partition.isrs) == len(BROKERS):
            return
        time.sleep(0.3)
    raise TimeoutError("a replica is not in sync")


def wait_until_out_of_isr(brokers: Brokers, node: int, seconds: float = 60) -> None:
    """Wait until a replica may no longer lead: else it might, being the last one of which the controller knows."""
    until = time.monotonic() + seconds
    while node in in_sync(brokers):
        assert time.monotonic() < until, "a broker that has stopped is still in sync"
        time.sleep(0.3)


def test_one_disk_alone_loses_and_all_of_them_do_not(tmp_path: Path) -> None:
    """An empty leader truncates the others, and klog has reported that; the recipe is the same adoption on every
    disk."""
    source = foreign(tmp_path / "other") / "plain-1"
    wanted = [line["offset"] for line in records(source)]
    with Brokers(kafka.NEWEST, tmp_path / "cluster") as brokers:
        brokers.start(*BROKERS)
        clients.create(brokers.bootstrap, {TOPIC: {}}, replicas=3)
        wait_for_isr(brokers)
        alone = BROKERS[0]
        brokers.stop(alone)
        wait_until_out_of_isr(brokers, alone)
        brokers.stop(*BROKERS[1:])
        words = (source, "--as", f"{TOPIC}-0", "--apply", "--to")
        said = adopted(*words, brokers.disk(alone))
        assert "adopt the same on the disk of each" in " ".join(said["notes"])
        assert [line["offset"] for line in records(brokers.disk(alone) / f"{TOPIC}-0")] == wanted
        brokers.start(*BROKERS)
        wait_for_isr(brokers)
        assert served(brokers) == []
        brokers.stop(*BROKERS)
        assert records(brokers.disk(alone) / f"{TOPIC}-0") == []
        for node in BROKERS:
            adopted(*words, brokers.disk(node))
        brokers.start(*BROKERS)
        wait_for_isr(brokers)
        everything = served(brokers)
        assert [offset for offset, _, _ in everything] == wanted
        leader = clients.admin(brokers.bootstrap).list_topics(TOPIC).topics[TOPIC].partitions[0].leader
        brokers.kill(leader)
        time.sleep(8)  # until the controller has fenced it
        assert served(brokers) == everything
