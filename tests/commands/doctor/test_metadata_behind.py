"""`klog doctor` where the metadata log is older than the logs: producer ids and leader epochs would be used twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from klog.formats.producer_snapshot import Producer

from tests.conftest import Ran
from tests.oracles.plain.encode import Record, batch
from tests.support.rolled_back import DAYS_2, NOW_MS, data, known, metadata, partition

Klog = Callable[..., Ran]
BEHIND = "metadata-log-behind"


def notes(klog: Klog, *words: object) -> dict[str, str]:
    """Return the notes of the answer by their ids; the exit code agrees with them."""
    done = klog("doctor", "--output", "json", *map(str, words))
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["starts"]
    said = {one["id"]: one["message"] for one in found["notes"]}
    assert done.exit_code == (4 if said else 0), found
    return said


@pytest.mark.parametrize(
    ("epoch", "checkpoint", "is_behind"),
    [
        (3, [(0, 0), (3, 2)], False),
        (4, [(0, 0), (4, 2)], True),
        (90, [(0, 0), (90, 2)], True),
        (90, [], True),  # only the batches show it
        (3, [(0, 0), (4, 2)], True),  # the checkpoint alone does
        (3, [(0, 0), (3, 2), (9, 4)], False),  # an epoch in which nothing was written: a broker removes it
        (-1, [(0, 0)], False),
    ],
)
def test_a_leader_epoch_that_the_metadata_do_not_know(
    epoch: int, checkpoint: list[tuple[int, int]], is_behind: bool, klog: Klog, tmp_path: Path
) -> None:
    """The next leader would have an epoch that is not new, and the broker forgets the later ones."""
    metadata(tmp_path / "data", leader_epoch=3, next_producer_id=None)
    partition(tmp_path / "data", [data(0), data(2, epoch)], checkpoint)
    said = notes(klog, tmp_path / "data")
    assert (BEHIND in said) == is_behind
    if is_behind:
        assert f"orders-0: {max(epoch, checkpoint[-1][0] if checkpoint else 0)}, it has 3" in said[BEHIND]


@pytest.mark.parametrize(
    ("free", "ids", "is_behind"),
    [
        (2000, [0, 1999], False),
        (2000, [0, 2000], True),
        (2000, [77_000], True),
        (None, [], False),
        (None, [0], True),
        (2000, [1 << 62, (1 << 62) + 5], False),  # klog's own, which no controller assigns
    ],
)
@pytest.mark.parametrize("where", ["log", "snapshot", "both"])
def test_a_producer_id_that_would_be_handed_out_again(
    free: int | None, ids: list[int], is_behind: bool, where: str, klog: Klog, tmp_path: Path
) -> None:
    """A new producer with the id of an old one: its records are acknowledged and not appended."""
    metadata(tmp_path / "data", leader_epoch=0, next_producer_id=free)
    batches = [data(2 * i, 0, one) for i, one in enumerate(ids)] if where != "snapshot" else [data(0)]
    producers = [known(one) for one in ids]
    snapshots = {"log": {}, "snapshot": {2: producers}, "both": {2 * len(ids): producers}}[where]
    partition(tmp_path / "data", batches, [(0, 0)], {at: one for at, one in snapshots.items() if at})
    said = notes(klog, tmp_path / "data")
    assert (BEHIND in said) == is_behind
    if is_behind:
        assert f"from {free or 0} on" in said[BEHIND]


@pytest.mark.parametrize("is_behind", [True, False])
def test_a_partition_that_must_be_repaired_first_counts(is_behind: bool, klog: Klog, tmp_path: Path) -> None:
    """A broker refuses its leader epochs: the next start does not use its ids, the one after the repair does."""
    metadata(tmp_path / "data", leader_epoch=0, next_producer_id=2000)
    path = partition(tmp_path / "data", [data(0, 0, 77_000 if is_behind else 1999)], [(0, 0)])
    (path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n")
    done = klog("doctor", "--output", "json", str(tmp_path / "data"))
    found = json.loads(done.stdout)
    commands = [" ".join((one["command"] or "").split()[:3]) for one in found["next"]]
    expected = [*(["klog metadata plan"] if is_behind else []), f"klog recover {path}"]
    assert (commands, BEHIND in {one["id"] for one in found["notes"]}) == (expected, False)


@pytest.mark.parametrize(
    ("producer", "is_behind"),
    [
        (known(5000, NOW_MS - DAYS_2), False),
        (known(5000, NOW_MS - DAYS_2, txn=0), True),  # with an open transaction none expires
        (known(5000, NOW_MS - 3_600_000), True),
    ],
)
def test_a_producer_that_the_broker_forgets_is_no_danger(
    producer: Producer, is_behind: bool, klog: Klog, tmp_path: Path
) -> None:
    metadata(tmp_path / "data", leader_epoch=0, next_producer_id=1000)
    partition(tmp_path / "data", [data(0)], [(0, 0)], {2: [producer]})
    assert (BEHIND in notes(klog, tmp_path / "data")) == is_behind


def test_how_long_a_producer_counts_is_the_brokers_own(klog: Klog, tmp_path: Path) -> None:
    """With `producer.id.expiration.ms` of a week one of two days ago is still known."""
    metadata(tmp_path / "data", leader_epoch=0, next_producer_id=1000)
    partition(tmp_path / "data", [data(0, 0, 5000, NOW_MS - DAYS_2)], [(0, 0)])
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs={tmp_path / 'data'}\nproducer.id.expiration.ms=604800000\n")
    assert notes(klog, tmp_path / "data") == {}
    assert BEHIND in notes(klog, "--server-properties", config)


def state_of(transactional_id: bytes, producer_id: int, status: int, updated: int) -> bytes:
    """Return a batch of `__transaction_state` with one record of version 0."""
    key = b"\0\0" + len(transactional_id).to_bytes(2, "big") + transactional_id
    value = b"\0\0" + producer_id.to_bytes(8, "big") + b"\0\5" + (60_000).to_bytes(4, "big") + bytes([status])
    value += b"\xff\xff\xff\xff" + updated.to_bytes(8, "big") + (2**64 - 1).to_bytes(8, "big")
    return batch([Record(0, updated, key, value)])


@pytest.mark.parametrize(
    ("status", "idle_ms", "is_behind"),
    [(0, 0, True), (4, DAYS_2, True), (4, 5 * DAYS_2, False), (1, 5 * DAYS_2, True)],
)
def test_the_producer_of_a_transactional_id(
    status: int, idle_ms: int, is_behind: bool, klog: Klog, tmp_path: Path
) -> None:
    """The coordinator has it for a week: two transactional ids with one producer id end each other's transactions."""
    name = "__transaction_state"
    metadata(tmp_path / "data", 0, 1000, name)
    partition(tmp_path / "data", [state_of(b"app", 1000, status, NOW_MS - idle_ms)], [(0, 0)], name=name)
    assert (BEHIND in notes(klog, tmp_path / "data")) == is_behind


def damaged(folder: Path) -> None:
    """Flip a bit in the last batch of the metadata log, the one with the producer ids, with another behind it."""
    log = folder / f"__cluster_metadata-0/{0:020}.log"
    content = bytearray(log.read_bytes())
    content[content.rindex(b"\x00\x0b") - 1] ^= 1
    log.write_bytes(content)


def test_a_metadata_log_that_recovery_will_cut(klog: Klog, tmp_path: Path) -> None:
    """It counts in its state after its own recovery: the block of producer ids behind the damage is lost."""
    log = metadata(tmp_path / "data", leader_epoch=0, next_producer_id=1000)
    log.add_control()
    partition(tmp_path / "data", [data(0, 0, 500)], [(0, 0)])
    assert notes(klog, tmp_path / "data") == {}
    damaged(tmp_path / "data")
    said = notes(klog, tmp_path / "data")
    assert list(said) == ["metadata-log-damaged", BEHIND]
    text = klog("doctor", tmp_path / "data").stdout.decode()
    assert text.startswith("STARTS, MAY LOSE RECORDS LATER; its metadata log is behind the logs and damaged\n")
    assert "loses nothing" not in text.lower()
    assert "older than the logs" in text


def test_what_recovery_cuts_of_a_partition_does_not_count(klog: Klog, tmp_path: Path) -> None:
    """A later epoch and a new producer in batches that the broker will not keep."""
    metadata(tmp_path / "data", leader_epoch=0, next_producer_id=1000)
    (tmp_path / "data/.kafka_cleanshutdown").unlink()
    torn = data(2, 7, 5000)
    partition(tmp_path / "data", [data(0, 0, 500), torn[:-3]], [(0, 0), (7, 2)])
    assert BEHIND not in notes(klog, tmp_path / "data")


def test_directories_that_the_broker_does_not_serve_do_not_count(klog: Klog, tmp_path: Path) -> None:
    """A -stray directory is never asked by a producer."""
    metadata(tmp_path / "data", leader_epoch=0, next_producer_id=1000)
    partition(tmp_path / "data", [data(0, 7, 5000)], [(7, 0)]).rename(tmp_path / f"data/orders-0.{'0' * 32}-stray")
    done = klog("doctor", "--output", "json", tmp_path / "data")
    assert not any(one["id"] == BEHIND for one in json.loads(done.stdout)["notes"])


def steps(klog: Klog, folder: Path) -> Iterable[str]:
    found = json.loads(klog("doctor", "--output", "json", folder).stdout)["next"]
    return [one.get("command") or one["manual"] for one in found]


def test_the_only_node_is_led_on_by_a_plan(klog: Klog, tmp_path: Path) -> None:
    metadata(tmp_path / "data", leader_epoch=0, next_producer_id=1000)
    partition(tmp_path / "data", [data(0, 7, 5000)], [(7, 0)])
    assert list(steps(klog, tmp_path / "data")) == [f"klog metadata plan {tmp_path / 'data'} --only-broker=1 --apply"]


def test_one_of_several_nodes_is_led_to_the_others(klog: Klog, tmp_path: Path) -> None:
    metadata(tmp_path / "data", leader_epoch=0, next_producer_id=1000, replicas=(1, 2))
    partition(tmp_path / "data", [data(0, 7, 5000)], [(7, 0)])
    (step,) = steps(klog, tmp_path / "data")
    assert "another node whose copy is not behind" in step
    said = notes(klog, tmp_path / "data")[BEHIND]
    assert "the log of another voter may have the rest, which these disks do not show" in said


def test_a_node_that_is_alone_has_no_other_voter(klog: Klog, tmp_path: Path) -> None:
    metadata(tmp_path / "data", leader_epoch=0, next_producer_id=1000)
    partition(tmp_path / "data", [data(0, 7, 5000)], [(7, 0)])
    assert "another voter" not in notes(klog, tmp_path / "data")[BEHIND]
