"""A start after a clean stop that reads a log all the same: the newest producer snapshot is below the log end."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.formats.producer_snapshot import write_snapshot
from klog.kernel import crc32c

from tests.brokers import clients, kafka
from tests.commands.doctor.test_indexes import ONE, THIRD, disk, offsets, segment
from tests.conftest import Ran, writable_copy

__all__ = ["disk"]  # a fixture
Klog = Callable[..., Ran]
BAD_SIZE = struct.pack(">i", 5)
REFUSED = (False, "log-refused", 4)
STARTS = (True, None, 0)


def ask(klog: Klog, log_dir: Path) -> tuple[bool, str | None, int]:
    """Return whether the broker starts, the id of the reason if not, and the exit code."""
    done = klog("doctor", "--output", "json", log_dir)
    found = json.loads(done.stdout)
    return found["starts"], found["fatal"] and found["fatal"]["id"], done.exit_code


@pytest.mark.parametrize(
    ("snapshots", "is_damaged", "answer"),
    [
        ((20,), True, REFUSED),
        ((20, 30), True, STARTS),
        ((), True, STARTS),
        ((20,), False, STARTS),
        ((20, 30), False, STARTS),
    ],
)
def test_the_start_reads_the_log_from_the_newest_snapshot_on(
    snapshots: tuple[int, ...], is_damaged: bool, answer: tuple[bool, str | None, int], klog: Klog, disk: Path
) -> None:
    """With one of the log end it reads nothing, and without any it assumes that there are no producers."""
    content = bytearray(segment(20))
    if is_damaged:
        content[3 * ONE + 8 : 3 * ONE + 12] = BAD_SIZE
    (disk / f"{THIRD}.log").write_bytes(content)
    (disk / f"{THIRD}.index").write_bytes(offsets((3, 2 * ONE), (6, 6 * ONE), (8, 8 * ONE)))
    for offset in snapshots:
        (disk / f"{offset:020}.snapshot").write_bytes(write_snapshot([], crc32c))
    assert ask(klog, disk.parent) == answer


@pytest.mark.kafka
def test_a_real_broker_stops_at_damage_there(klog: Klog, tmp_path: Path) -> None:
    """It does so although it stopped cleanly, and although it serves the same log if the newest snapshot is there."""
    first = kafka.Cluster(kafka.NEWEST, tmp_path / "first")
    with first:
        clients.create(first.bootstrap, {"orders": {"internal.segment.bytes": "20000", "index.interval.bytes": "900"}})
        given = [clients.Given(b"k", b"v" * 200, (), 1_700_000_000_000 + i) for i in range(200)]
        clients.with_librdkafka(first.bootstrap, "orders", "none", given, batch_num_messages=1)
        first.stop()
    path = first.data / "orders-0"
    log = max(path.glob("*.log"))
    content = bytearray(log.read_bytes())
    at = (12 + int.from_bytes(content[8:12], "big")) * 20
    content[at + 8 : at + 12] = BAD_SIZE
    log.write_bytes(content)
    for is_there in (True, False):
        cluster = kafka.Cluster(kafka.NEWEST, tmp_path / f"{is_there}")
        data = writable_copy(first.data, cluster.data)
        if not is_there:
            max((data / "orders-0").glob("*.snapshot")).unlink()
        assert ask(klog, data) == (STARTS if is_there else REFUSED)
        if is_there:
            with cluster:
                assert clients.admin(cluster.bootstrap).list_topics(timeout=clients.WAIT_S).topics["orders"]
                cluster.stop()
        else:
            with pytest.raises(RuntimeError, match="stopped at its start"), cluster:
                pass
            assert "CorruptRecordException: Found record size 5 smaller than minimum" in cluster.log()
