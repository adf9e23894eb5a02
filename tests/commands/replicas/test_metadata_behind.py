"""`klog replicas` and `klog metadata compare` where the metadata log is older than the copies, or ends at damage."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.support.metadata_logs import topic, uuid
from tests.support.rolled_back import data, metadata, partition

Klog = Callable[..., Ran]
pytestmark = [pytest.mark.usefixtures("hasty")]


def two_disks(folder: Path, epoch: int, producer_id: int) -> list[Path]:
    """Write two brokers' disks with equal copies of a partition; the metadata log has epoch 3 and ids below 1000."""
    disks = []
    for node in (1, 2):
        disk = folder / f"broker-{node}"
        log = metadata(disk, 3, 1000, replicas=(1, 2))
        meta = log.log_dir / "meta.properties"
        meta.write_text(f"version=1\ncluster.id=x\nnode.id={node}\ndirectory.id={uuid(100 + node)}\n")
        partition(disk, [data(0), data(2, epoch, producer_id)], [(0, 0), (epoch, 2)])
        disks.append(disk)
    return disks


def compared(klog: Klog, *disks: Path) -> tuple[int, Any]:
    ran = klog("metadata", "compare", *disks, "--output", "json")
    return ran.exit_code, json.loads(ran.stdout)["behind_logs"]


@pytest.mark.parametrize(("epoch", "producer_id"), [(4, -1), (90, -1), (3, 1000), (9, 77_000)])
def test_it_is_said_and_the_exit_code_is_4(epoch: int, producer_id: int, klog: Klog, tmp_path: Path) -> None:
    disks = two_disks(tmp_path, epoch, producer_id)
    for words in (("diff",), ("plan",), ("diff", "--output", "jsonl")):
        ran = klog("replicas", *words, *disks)
        assert ran.exit_code == 4, ran
        assert b"__cluster_metadata-0 is behind the logs: " in ran.stderr
    code, behind = compared(klog, *disks)
    assert (code, f"{epoch}, it has 3" in behind) == (4, epoch > 3)
    assert "from 1000 on" in behind or producer_id < 0


@pytest.mark.parametrize(("epoch", "producer_id"), [(3, 999), (2, -1), (0, 0)])
def test_nothing_is_said_where_the_metadata_know_all(epoch: int, producer_id: int, klog: Klog, tmp_path: Path) -> None:
    disks = two_disks(tmp_path, epoch, producer_id)
    for words in (("diff",), ("plan",)):
        ran = klog("replicas", *words, *disks)
        assert (ran.exit_code, b"is behind the logs" in ran.stderr) == (0, False), ran
    assert compared(klog, *disks) == (0, None)


def test_only_the_partitions_that_are_asked_for_count(klog: Klog, tmp_path: Path) -> None:
    disks = two_disks(tmp_path, 9, -1)
    for disk in disks:
        partition(disk, [data(0)], name="other")
    ran = klog("replicas", "diff", *disks, "--topic", "other")
    assert b"is behind the logs" not in ran.stderr


def test_a_node_that_is_some_records_behind_the_others(klog: Klog, tmp_path: Path) -> None:
    """Nothing is at stake as long as its logs contain only facts of its own metadata log."""
    disks = two_disks(tmp_path, 3, 999)
    log = disks[1] / f"__cluster_metadata-0/{0:020}.log"
    whole = log.read_bytes()
    log.write_bytes(whole[:-5])  # the block of producer ids
    assert klog("replicas", "diff", *disks).exit_code == 0
    assert compared(klog, *disks) == (0, None)


def test_the_metadata_log_ends_where_its_node_truncates_it(klog: Klog, tmp_path: Path) -> None:
    """A damaged log is not treated as one that is ahead, nor read behind the damage."""
    disks = two_disks(tmp_path, 3, 999)
    log = disks[0] / f"__cluster_metadata-0/{0:020}.log"
    at = len(log.read_bytes())
    for disk, names in ((disks[0], ("a", "b", "c")), (disks[1], ("a",))):
        with (disk / f"__cluster_metadata-0/{0:020}.log").open("ab") as file:
            for number, name in enumerate(names):
                file.write(appended(6 + number, topic(name, 50 + number)))
    content = bytearray(log.read_bytes())
    content[at + 70] ^= 1
    log.write_bytes(content)
    ran = klog("replicas", "diff", *disks)
    assert f"metadata: {disks[1]} of node 2" in ran.stderr.decode()


def appended(offset: int, value: bytes) -> bytes:
    from tests.oracles.plain.encode import Record, batch

    return batch([Record(offset, 1, None, value)])
