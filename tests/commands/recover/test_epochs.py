"""Leader epochs made anew: batches decide, and entries of the checkpoint alone are kept if no batch contradicts
them."""

from __future__ import annotations

from pathlib import Path

import pytest
from klog.change.partition_plan.desired_files import rebuilt
from klog.formats.checkpoint import Checkpoint, EpochEntry

from tests.brokers import clients, kafka
from tests.conftest import run_klog
from tests.support.rolled_back import data, metadata, partition

SEEN = [(1, 10), (3, 50)]
"""Epoch 1 begins with the batch at offset 10, epoch 3 with the one at 50; the log ends at 90."""


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ([], [(1, 10), (3, 50)]),
        ([(1, 10), (3, 50)], [(1, 10), (3, 50)]),
        # Nothing was written in epochs 0, 2 and 4; they are between the batches.
        ([(0, 5), (2, 30), (4, 70)], [(0, 5), (1, 10), (2, 30), (3, 50), (4, 70)]),
        ([(2, 11)], [(1, 10), (2, 11), (3, 50)]),
        ([(4, 89)], [(1, 10), (3, 50), (4, 89)]),
        # A leader of epoch 3 that wrote its first batch later than it became leader.
        ([(1, 8), (3, 41)], [(1, 8), (3, 41)]),
        # The entry that a batch contradicts: its epoch began before, or an earlier one was written there, or behind.
        ([(1, 11), (3, 51)], [(1, 10), (3, 50)]),
        ([(2, 10)], [(1, 10), (3, 50)]),
        ([(2, 51)], [(1, 10), (3, 50)]),
        ([(3, 10)], [(1, 10), (3, 50)]),
        # At the end of the log nothing begins, nor behind it.
        ([(4, 90)], [(1, 10), (3, 50)]),
        ([(4, 91)], [(1, 10), (3, 50)]),
    ],
)
def test_batches_decide(said: list[tuple[int, int]], wanted: list[tuple[int, int]]) -> None:
    found = Checkpoint(tuple(EpochEntry(*entry) for entry in said)) if said else None
    assert [tuple(entry) for entry in rebuilt(found, SEEN, 90)] == wanted


def test_an_epoch_begins_with_its_first_batch() -> None:
    """It is seen again in each segment."""
    assert [tuple(entry) for entry in rebuilt(None, [(1, 0), (1, 20), (2, 40), (2, 60)], 80)] == [(1, 0), (2, 40)]


def test_batches_that_will_be_gone_begin_nothing() -> None:
    assert [tuple(entry) for entry in rebuilt(None, SEEN, 50)] == [(1, 10)]
    assert rebuilt(None, SEEN, 0) == []


TEN = [data(offset, offset // 4) for offset in range(0, 10, 2)]
"""Five batches of two records each, in the leader epochs 0 (from 0 on), 1 (4) and 2 (8)."""


@pytest.mark.parametrize("mode", [(), ("--salvage",)])
@pytest.mark.parametrize(
    ("epochs", "log_start", "wanted"),
    [
        (None, 6, "1 6|2 8"),
        (None, 4, "1 4|2 8"),
        (None, 0, "0 0|1 4|2 8"),
        (None, 10, "2 10"),
        ("0 0|1 4", 6, "1 6|2 8"),
    ],
)
def test_they_begin_at_the_log_start(
    epochs: str | None, log_start: int, wanted: str, mode: tuple[str, ...], tmp_path: Path
) -> None:
    """A broker cuts them there in each start."""
    assert remade(tmp_path / "data", epochs, log_start, *mode) == wanted


@pytest.mark.parametrize("mode", [(), ("--salvage",)])
def test_they_still_show_that_no_broker_has_raised_the_log_start(mode: tuple[str, ...], tmp_path: Path) -> None:
    """The records between would count as deleted from then on."""
    assert remade(tmp_path / "data", "0 2|1 4", 6, *mode) == "0 2|1 4|2 8"
    found = run_klog("verify", tmp_path / "data")
    assert found.exit_code == 4
    assert b"log-start-raised" in found.stdout


def remade(folder: Path, epochs: str | None, log_start: int, *mode: str) -> str:
    """Make a partition with these epochs (None: no file), recover it, and return its epochs."""
    metadata(folder, leader_epoch=2, next_producer_id=1000)
    (folder / "log-start-offset-checkpoint").write_text(f"0\n1\norders 0 {log_start}\n")
    entries = [line.split() for line in (epochs or "").split("|") if line]
    path = partition(folder, TEN, [(int(epoch), int(start)) for epoch, start in entries])
    if epochs is None:
        (path / "leader-epoch-checkpoint").unlink()
    run_klog("recover", path, *mode, "--apply")
    return "|".join((path / "leader-epoch-checkpoint").read_text().splitlines()[2:])


@pytest.mark.kafka
def test_a_broker_makes_the_same(tmp_path: Path) -> None:
    """After DeleteRecords, without the checkpoint, and with all segments above the recovery point."""
    from confluent_kafka import TopicPartition

    with kafka.Cluster(kafka.NEWEST, tmp_path / "one") as cluster:
        clients.create(cluster.bootstrap, {"orders": {}})
        given = [clients.Given(b"k", b"v", (), 1_700_000_000_000 + i) for i in range(20)]
        clients.with_librdkafka(cluster.bootstrap, "orders", "none", given, batch_num_messages=1)
        client = clients.admin(cluster.bootstrap)
        for done in client.delete_records([TopicPartition("orders", 0, 7)]).values():
            done.result(clients.WAIT_S)
    log_dir = tmp_path / "one/data"
    file = log_dir / "orders-0/leader-epoch-checkpoint"
    file.unlink()
    run_klog("recover", log_dir / "orders-0", "--apply")
    mine = file.read_text()
    file.unlink()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (log_dir / name).unlink()
    with kafka.Cluster(kafka.NEWEST, tmp_path / "one") as cluster:
        clients.consume(cluster.bootstrap, "orders", "read_committed")
        theirs = file.read_text()
    assert mine.splitlines()[2:] == ["0 7"]
    assert theirs.splitlines()[2] == "0 7"
