"""A cluster with two replicas on an attached tier: the follower rebuilds its log, and serves the same as leader."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, jars, kafka
from tests.brokers.clients import Given
from tests.brokers.quorum import Brokers
from tests.brokers.tiered import LEVELS, QUICK, SETTINGS, ends, objects, wait_until
from tests.conftest import run_klog

pytestmark = pytest.mark.kafka
TOPIC = {"remote.storage.enable": "true", "local.retention.bytes": "1"}
TWICE = ("rlmm.config.remote.log.metadata.topic", "offsets.topic", "transaction.state.log")


class Pair(Brokers):
    """Brokers 1 and 2 with a controller, and remote storage in a directory."""

    def __init__(self, version: str, folder: Path) -> None:
        self.tier = folder / "tier"
        own = QUICK | SETTINGS | {f"{one}.replication.factor": "2" for one in TWICE}
        own["rlmm.config.remote.log.metadata.topic.min.isr"] = "1"
        own["remote.log.storage.manager.class.path"] = f"{jars.install_tiered(version)}/*"
        super().__init__(version, folder, settings=own | {"rsm.config.dir": str(self.tier)})

    @property
    def bootstrap(self) -> str:
        """Return the addresses of the two."""
        return ",".join(f"localhost:{self.port + node}" for node in (1, 2))

    def create(self, settings: dict[str, str]) -> None:
        """Create the topic, again if the client has meanwhile replaced its connection to a bootstrap address."""
        from confluent_kafka import KafkaError, KafkaException

        for _ in range(5):
            try:
                clients.create(self.bootstrap, {"orders": settings}, replicas=2)
            except KafkaException as error:
                if error.args[0].code() != KafkaError._DESTROY_BROKER:
                    raise
            else:
                return

    def partition(self) -> Any:
        """Return the metadata of the partition as a broker answers it."""
        return clients.admin(self.bootstrap).list_topics("orders", timeout=60).topics["orders"].partitions[0]

    def await_leader(self, leader: int, *isr: int) -> None:
        """Return when the partition has this leader, and these replicas in sync."""
        wait_until(lambda: (self.partition().leader, sorted(self.partition().isrs)) == (leader, [*isr]))

    def consumed(self) -> dict[str, list[int]]:
        """Return the offsets that consumers of both isolation levels get."""
        return {level: [one.offset for one in clients.consume(self.bootstrap, "orders", level)] for level in LEVELS}

    def segments(self) -> int:
        """Return how many logs are in remote storage."""
        return len(list(self.tier.glob("kafka-tiered-storage/orders-0-*/*.log")))

    def send(self, who: str, count: int, **settings: object) -> None:
        """Send small records, each in a batch of its own."""
        given = (Given(f"{who}-{i}".encode(), b"x" * 80, (), 1_750_000_000_000 + i) for i in range(count))
        clients.with_librdkafka(self.bootstrap, "orders", "none", given, batch_num_messages=1, **settings)  # type: ignore[arg-type]

    def attach(self, node: int) -> dict[str, Any]:
        """Attach the partition to a broker that is stopped, and return what was attached."""
        words = ("--to", self.disk(node), "--topic", "orders", "--apply", "-o", "json")
        done = run_klog("remote", "attach", "--remote", self.tier, *words)
        assert done.exit_code == 0, done
        (found,) = json.loads(done.stdout)["attached"]
        return dict(found)


def fate(disk: Path) -> str:
    rows = json.loads(run_klog("doctor", disk, "-o", "json").stdout)["partitions"]
    return next(str(row["fate"]) for row in rows if row["topic"] == "orders")


@pytest.mark.long
@pytest.mark.parametrize("version", [kafka.NEWEST, kafka.BEFORE])
@pytest.mark.parametrize("attached_to", [(1,), (1, 2)])
def test_both_replicas_lost_their_logs(tmp_path: Path, version: str, attached_to: tuple[int, ...]) -> None:
    """Attached to the leader alone, or to each broker; after a failover the other one has every record, and copies."""
    size = "internal.segment.bytes" if version == kafka.NEWEST else "segment.bytes"
    with Pair(version, tmp_path) as pair:
        pair.start(1, 2)
        pair.create({**TOPIC, size: "2000"})
        pair.send("tx", 60, transaction="first")
        pair.send("plain", 120, enable_idempotence=True)
        wait_until(lambda: pair.segments() > 10)
        wanted = pair.consumed()
        assert wanted["read_committed"] != wanted["read_uncommitted"]
        pair.stop(2)
        pair.stop(1)
        for node in (1, 2):
            shutil.rmtree(pair.disk(node) / "orders-0")
        assert fate(pair.disk(1)) == "forgets-remote", "it was the last one in sync"
        before = objects(pair.tier)
        for node in attached_to:
            found = pair.attach(node)
            assert found["mode"] == "log"
        assert fate(pair.disk(1)) == "serves"
        assert fate(pair.disk(2)) == ("serves" if 2 in attached_to else "creates")
        wanted = {level: [one for one in every if one <= found["remote_end_offset"]] for level, every in wanted.items()}

        pair.start(1)
        pair.start(2)
        pair.await_leader(1, 1, 2)
        assert pair.consumed() == wanted
        pair.send("more", 60, enable_idempotence=True)
        pair.send("again", 60, transaction="second")
        wait_until(lambda: pair.segments() > found["segments"] + 1)
        wanted = pair.consumed()

        pair.stop(1)
        pair.await_leader(2, 2)
        assert pair.consumed() == wanted
        assert ends(pair.bootstrap, "orders", 0).earliest == found["remote_start_offset"] == 0
        copied = pair.segments()
        pair.send("follower", 60, enable_idempotence=True)
        wait_until(lambda: pair.segments() > copied)
        assert pair.consumed()["read_committed"][: len(wanted["read_committed"])] == wanted["read_committed"]
        after = objects(pair.tier)
        assert {key: after.get(key) for key in before} == before
        for node in (1, 2):
            for words in ("marked stray", "Deleting all segments", "is offline", "Corruption found"):
                assert words not in pair.log(node), (node, words)
        pair.stop(2)
    checked = run_klog("remote", "verify", pair.disk(2), "--remote", pair.tier, "-t", "orders", "--deep", "-o", "json")
    assert not [one for one in json.loads(checked.stdout)["findings"] if one["severity"] == "damage"]
