"""A real broker that owns everything removes the committed offsets that `--only-broker` names, and keeps the others."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from klog.data_dir.partition import Partition

from tests.brokers import clients, kafka
from tests.brokers.quorum import BROKERS, Combined
from tests.commands.doctor.test_expired_offsets_brokers import committed
from tests.commands.replicas import serving
from tests.commands.replicas.test_only_broker_brokers import applied
from tests.support.group_records import DAY_MS, append, classic, commit

pytestmark = pytest.mark.kafka
SETTINGS = {"offsets.retention.check.interval.ms": "3000", "offsets.topic.replication.factor": "3"}


def age(disk: Path, now_ms: int) -> None:
    """Append groups to a copy of the coordinators' partition: one that was empty for 8 days, and one for 6."""
    part = Partition(str(disk / "__consumer_offsets-0"))
    assert part.log_end is not None
    assert part.epochs is not None
    old, young = now_ms - 8 * DAY_MS, now_ms - 6 * DAY_MS
    pairs = [commit("idle", old), classic("idle", old), commit("young", young), classic("young", young)]
    append(Path(part.path), pairs, part.log_end.offset, now_ms, part.epochs.entries[-1].epoch)


def test_offsets_that_have_expired(tmp_path: Path, klog: Callable[..., Any], state_home: Path) -> None:
    """All copies are equal, nothing else is lost, and an operator would not look at doctor any more."""
    cluster = Combined(kafka.NEWEST, tmp_path, settings=SETTINGS)
    with cluster:
        cluster.start(*BROKERS)
        serving.create(cluster.bootstrap, {"t": (1, 3)})
        group = {"bootstrap.servers": cluster.bootstrap, "group.id": "fresh", **clients.SILENT}
        consumer = Consumer(group)
        clients.coordinated(consumer.commit, offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
        consumer.close()
        cluster.stop(*BROKERS)
    now_ms = int(time.time() * 1000)
    for node in BROKERS:
        age(cluster.disk(node), now_ms)
    disks = [cluster.disk(node) for node in BROKERS]
    same = json.loads(klog("replicas", "plan", *disks, "--output", "json").stdout)
    assert (same["copies"], same["left"]) == ([], [])
    assert [(one["group"], one["has_replicas"]) for one in same["offsets"]] == [("idle", False)]

    cluster.alone = 1
    plan = applied(klog, cluster, 1)
    assert [one["group"] for one in plan["offsets"]] == ["idle"]
    with cluster:
        cluster.start(1)
        until = time.monotonic() + clients.WAIT_S
        while committed(cluster.bootstrap, ["idle"])["idle"]:
            assert time.monotonic() < until, "the broker keeps the offset that was named"
            time.sleep(0.2)
        assert committed(cluster.bootstrap, ["idle", "young", "fresh"]) == {"idle": [], "young": [0], "fresh": [0]}
