"""Undo after a real broker has run on the repaired files: nothing may be undone over that."""

from __future__ import annotations

import json
import struct
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
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


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.parametrize("version", [kafka.NEWEST, pytest.param(kafka.BEFORE, marks=pytest.mark.long)])
def test_a_broker_takes_no_notice_of_a_pointer_in_its_log_dir(
    klog: Callable[..., Ran], tmp_path: Path, version: str
) -> None:
    """Not when it starts, not when it cleans, and not when it is asked for the sizes of its logs."""
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500"}
    settings = {"log.cleaner.backoff.ms": "200"}
    given = [one for one in clients.records(TOPIC, 50) if one.key is not None]
    with kafka.Cluster(version, tmp_path / "broker", settings=settings) as cluster:
        clients.create(cluster.bootstrap, {TOPIC: config})
        clients.with_librdkafka(cluster.bootstrap, TOPIC, "none", given)
        cluster.kill()
        log = cluster.data / f"{TOPIC}-0" / f"{0:020}.log"
        log.write_bytes(log.read_bytes() + struct.pack(">qi", 50, 500))
        assert klog("recover", cluster.data, "--apply", "--backup", tmp_path / "kept").exit_code == 1
        (pointer,) = cluster.data.glob("*.klog-backup")
        cluster.start()
        cleaned = cluster.data / "cleaner-offset-checkpoint"
        for _ in range(60):
            now_ms = int(time.time() * 1000)  # a segment ends by the times of its records
            clients.with_librdkafka(
                cluster.bootstrap, TOPIC, "none", [replace(one, timestamp_ms=now_ms) for one in given]
            )
            if cleaned.exists() and TOPIC in cleaned.read_text():
                break
            time.sleep(0.5)
        assert TOPIC in cleaned.read_text()
        tool = ("org.apache.kafka.tools.LogDirsCommand", "--describe", "--bootstrap-server", cluster.bootstrap)
        described = subprocess.run(kafka.java(version, *tool), capture_output=True, text=True, check=True).stdout
        assert f'"partition":"{TOPIC}-0"' in described
        assert pointer.name not in described
        cluster.stop()
        assert pointer.name not in cluster.log()
        assert pointer.read_text() == str(tmp_path / "kept")
        assert pointer.name.removesuffix(".klog-backup") in klog("plans", cluster.data).stdout.decode()
