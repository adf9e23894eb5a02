"""`klog doctor` if a batch near the end of a log has offsets beyond the log end: no checksum covers a base offset."""

from __future__ import annotations

import json
import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import clients, kafka
from tests.brokers.raw import Raw
from tests.conftest import Ran
from tests.support.rolled_back import data, metadata, partition

Klog = Callable[..., Ran]
BATCHES = [data(offset) for offset in range(0, 12, 2)]
"""Six batches of two records each; in the tests the base offset of one of them is another."""


def log_dir(folder: Path, number: int, base: int) -> Path:
    """Write a log dir whose log has the batch of this number at offset *base*."""
    metadata(folder, leader_epoch=0, next_producer_id=1000)
    moved = struct.pack(">q", base) + BATCHES[number][8:]
    partition(folder, [*BATCHES[:number], moved, *BATCHES[number + 1 :]], [(0, 0)])
    return folder


def ask(klog: Klog, folder: Path) -> tuple[dict[str, Any], int]:
    """Return the row of the partition, and the exit code."""
    done = klog("doctor", "--output", "json", str(folder))
    (row,) = (one for one in json.loads(done.stdout)["partitions"] if one["topic"] == "orders")
    return row, done.exit_code


@pytest.mark.parametrize("number", range(5))
def test_what_follows_a_batch_beyond_the_log_end_is_lost(number: int, klog: Klog, tmp_path: Path) -> None:
    """The records behind it have their own offsets, but a client that asks for them receives that batch first."""
    row, code = ask(klog, log_dir(tmp_path / "data", number, 2 * number + 64))
    assert (row["reason"], row["log_end"], code) == ("torn-tail", 12, 4)
    assert (row["records"], row["lost_records"]) == (2 * number, 12 - 2 * number)
    assert row["lost_bytes"] == sum(map(len, BATCHES[number:]))
    assert "Java clients skip the rest" in row["message"]


def test_a_last_batch_beyond_the_others_is_the_log_end(klog: Klog, tmp_path: Path) -> None:
    row, code = ask(klog, log_dir(tmp_path / "data", 5, 74))
    assert (row["reason"], row["log_end"], row["lost_records"], code) == (None, 76, 0, 0)


def test_recover_counts_the_same(klog: Klog, tmp_path: Path) -> None:
    disk = log_dir(tmp_path / "data", 3, 70)
    done = klog("recover", str(disk / "orders-0"), "--like-broker", "--output", "json")
    assert sum(one["records"] for one in json.loads(done.stdout)["lost"]) == 6


def read_by_java(bootstrap: str, offset: int) -> list[int]:
    """Return the offsets that Kafka's consumer prints from one on."""
    name = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    words = ["--bootstrap-server", bootstrap, "--topic", "orders", "--partition", "0", "--offset", str(offset)]
    words += ["--timeout-ms", "3000", "--formatter-property", "print.offset=true"]
    done = subprocess.run(kafka.java(kafka.NEWEST, name, *words), capture_output=True, check=False)
    return [int(found) for found in re.findall(rb"^Offset:(\d+)", done.stdout, re.MULTILINE)]


@pytest.mark.kafka
def test_what_a_broker_and_a_java_client_make_of_it(klog: Klog, tmp_path: Path) -> None:
    """Two records have another offset, and four behind them are skipped: the six that doctor names."""
    cluster = kafka.Cluster(kafka.NEWEST, tmp_path)
    with cluster:
        clients.create(cluster.bootstrap, {"orders": {}})
        with Raw(cluster.bootstrap) as broker:
            assert [broker.produce_at("orders", 0, BATCHES[0])[1] for _ in BATCHES] == [*range(0, 12, 2)]
        cluster.stop()
        log = cluster.data / "orders-0" / f"{0:020}.log"
        content = bytearray(log.read_bytes())
        content[sum(map(len, BATCHES[:3])) + 7] ^= 64
        log.write_bytes(content)
        row, code = ask(klog, cluster.data)
        assert (row["reason"], row["records"], row["lost_records"], code) == ("torn-tail", 6, 6, 4)
        cluster.start()
        assert read_by_java(cluster.bootstrap, 0) == [*range(6), 70, 71]
        assert read_by_java(cluster.bootstrap, 9) == [70, 71]
