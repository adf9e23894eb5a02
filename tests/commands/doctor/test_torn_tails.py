"""A torn tail that the start leaves after a clean stop: new records are appended behind it."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.commands.doctor.test_indexes import ONE, THIRD, disk, offsets, segment
from tests.conftest import Ran

__all__ = ["disk"]  # a fixture
Klog = Callable[..., Ran]


def torn(disk: Path, rest: int) -> None:
    """Leave seven batches of the last segment, and *rest* bytes of the eighth."""
    (disk / f"{THIRD}.log").write_bytes(segment(20)[: 7 * ONE + rest])
    (disk / f"{THIRD}.index").write_bytes(offsets((3, 2 * ONE), (6, 6 * ONE)))


def test_no_record_is_lost_but_the_next_ones_are_unreadable(klog: Klog, disk: Path) -> None:
    torn(disk, 30)
    done = klog("doctor", disk.parent)
    assert done.exit_code == 4
    text = done.stdout.decode()
    assert text.startswith("STARTS, LOSES NOTHING, BUT NEW RECORDS WILL BE UNREADABLE\n")
    assert "  New records of 1 partition are appended behind a torn tail, where clients cannot read them:\n" in text
    assert f"klog recover {disk} --apply" in text
    klog("recover", disk, "--apply")
    done = klog("doctor", disk.parent)
    assert (done.exit_code, done.stdout.split(b"\n")[0]) == (0, b"STARTS, LOSES NOTHING")


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_whole_log_or_one_that_recovery_cuts(is_clean: bool, klog: Klog, disk: Path) -> None:
    """Nothing stays behind its last batch."""
    torn(disk, 0 if is_clean else 30)
    if not is_clean:
        (disk.parent / ".kafka_cleanshutdown").unlink()
    done = klog("doctor", "--output", "json", disk.parent)
    assert (done.exit_code, json.loads(done.stdout)["loses"]) == (0, 0)


@pytest.mark.kafka
def test_a_real_broker_acknowledges_records_that_no_client_gets(klog: Klog, tmp_path: Path) -> None:
    """After the repair that doctor names, clients get all of them."""
    for is_repaired in (False, True):
        cluster = kafka.Cluster(kafka.NEWEST, tmp_path / f"{is_repaired}")
        given = [clients.Given(b"k", b"v" * 200, (), 1_700_000_000_000 + i) for i in range(50)]
        with cluster:
            clients.create(cluster.bootstrap, {"orders": {"index.interval.bytes": "900"}})
            clients.with_librdkafka(cluster.bootstrap, "orders", "none", given, batch_num_messages=1)
            cluster.stop()
        path = cluster.data / "orders-0"
        (log,), (index,) = path.glob("*.log"), path.glob("*.index")
        one = 12 + int.from_bytes(log.read_bytes()[8:12], "big")
        log.write_bytes(log.read_bytes()[: 40 * one + 100])
        index.write_bytes(offsets(*(entry for entry in struct.iter_unpack(">ii", index.read_bytes()) if entry[0] < 38)))
        told = json.loads(klog("doctor", "--output", "json", cluster.data).stdout)
        (row,) = (one for one in told["partitions"] if one["reason"] is not None)
        assert (row["reason"], row["log_end"], row["lost_records"]) == ("torn-tail", 40, 0)
        if is_repaired:
            klog(*told["next"][0]["command"].split()[1:])
        with cluster:
            clients.with_librdkafka(cluster.bootstrap, "orders", "none", given, batch_num_messages=1)
            if is_repaired:
                found = clients.consume(cluster.bootstrap, "orders", "read_committed", start=0)
                assert [one.offset for one in found] == list(range(90))
            else:
                with pytest.raises(RuntimeError, match=r"CRC32C|Invalid message|INVALID_MSG"):
                    clients.consume(cluster.bootstrap, "orders", "read_committed", start=0)
