"""Undo after a real broker has run on what was repaired: nothing may be taken back over that."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.conftest import Ran
from tests.support.power import tree

TOPIC = "acked"


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.usefixtures("state_home")
@pytest.mark.parametrize("end", ["stop", pytest.param("kill", marks=pytest.mark.long)])
def test_nothing_is_taken_back_once_a_broker_has_run(klog: Callable[..., Ran], tmp_path: Path, end: str) -> None:
    """It wrote nothing to the partition; but below its marker a torn tail would cost acknowledged records."""
    given = list(clients.records("acked", 50))
    with kafka.Cluster(kafka.NEWEST, tmp_path / "broker") as cluster:
        clients.create(cluster.bootstrap, {TOPIC: {}})
        clients.with_librdkafka(cluster.bootstrap, TOPIC, "none", given)
        cluster.kill()
        log = cluster.data / f"{TOPIC}-0" / f"{0:020}.log"
        content = log.read_bytes()
        log.write_bytes(content + struct.pack(">qi", 50, 500) + content[12:40])
        done = klog("recover", cluster.data, "--apply", "--output", "json")
        assert done.exit_code == 1
        backup = json.loads(done.stdout)["backup"]
        cluster.start()
        cluster.stop() if end == "stop" else cluster.kill()
        before = tree(cluster.data)
        done = klog("undo", backup, "--apply")
        assert (done.exit_code, tree(cluster.data)) == (8, before)
        assert b"used since" in done.stderr
        cluster.start()
        assert [(one.key, one.value) for one in clients.consume(cluster.bootstrap, TOPIC, "read_uncommitted")] == [
            (one.key, one.value) for one in given
        ]
