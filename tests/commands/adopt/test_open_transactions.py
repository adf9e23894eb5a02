"""Which open transactions get their end where a partition is adopted: those that no coordinator of the target has.

A coordinator that has one under way ends it after the start.  A marker before that would leave the records aborted that
the producer commits then.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.formats.checkpoint import write_partition_metadata

from tests.commands.adopt.disks import records
from tests.commands.adopt.made import NOW, NOW_MS, ORDERS, UNKNOWN, made_home, made_source, producers_known, sent
from tests.commands.serve.coordinator_logs import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    T,
    state,
    write_records,
)
from tests.conftest import Ran
from tests.support.metadata_logs import uuid

Klog = Callable[..., Ran]
Adopt = Callable[..., dict[str, Any]]
STATES = 6
"""The number of the topic id of `__transaction_state`."""
HERE = [("orders", 0)]
assert T == NOW_MS


@pytest.fixture
def run(klog: Klog) -> Adopt:
    def adopt(*words: object, code: int = 0) -> dict[str, Any]:
        done = klog("adopt", *words, NOW, "--output", "json")
        assert done.exit_code == code, (done.exit_code, done.stdout[-2000:], done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return adopt


def home(folder: Path, states: dict[int, list[tuple[bytes, bytes, int]]], count: int = 1, replicas: int = 1) -> Path:
    """Make a broker whose `__transaction_state` has *count* partitions; *states*: the records of those on its disk."""
    data = made_home(folder, 1000, [("orders", ORDERS, 2), ("__transaction_state", STATES, count)], replicas=replicas)
    for number, found in states.items():
        directory = data / f"__transaction_state-{number}"
        write_records(directory, found)
        (directory / "partition.metadata").write_bytes(write_partition_metadata(uuid(STATES)))
    return data


def opened(folder: Path, topic_number: int | None = ORDERS, *, epoch: int = 3, producer: int = 7) -> Path:
    """Make a source with a record that is committed for sure, and two of an open transaction."""
    plain, open_now = sent(0, -1, epoch=-1, sequence=-1), sent(1, producer, count=2, epoch=epoch, transactional=True)
    return made_source(folder / "copy/orders-0", topic_number, plain, open_now)


def one(found: dict[str, Any]) -> tuple[list[int], list[int], list[tuple[int, bool]]]:
    """Return who is aborted, committed and left open: the first offset of each; for the last whether that is known."""
    (adopted,) = found["adopted"]
    aborted, committed = ([each["first_offset"] for each in adopted[name]] for name in ("ended", "committed"))
    return aborted, committed, [(each["first_offset"], each["is_under_way"]) for each in adopted["left_open"]]


UNDER_WAY = {
    "ongoing": state(ONGOING, 0, 0, HERE, epoch=3, producer=7),
    "prepare-commit": state(PREPARE_COMMIT, 0, 0, HERE, epoch=3, producer=7),
    "prepare-abort": state(PREPARE_ABORT, 0, 0, HERE, epoch=3, producer=7),
    "prepare-abort-fenced": state(PREPARE_ABORT, 0, 0, HERE, epoch=4, producer=7),
    "ongoing-v2": state(ONGOING, 0, 0, HERE, epoch=3, producer=7, client_version=2),
    "prepare-commit-v2": state(PREPARE_COMMIT, 0, 0, HERE, epoch=4, producer=7, client_version=2),
    "of-two-partitions": state(ONGOING, 0, 0, [*HERE, ("orders", 1)], epoch=3, producer=7),
}
OVER = {
    "empty": state(EMPTY, -1, 0, (), epoch=3, producer=7),
    "complete-commit": state(COMPLETE_COMMIT, 0, 0, (), epoch=3, producer=7),
    "complete-abort": state(COMPLETE_ABORT, 0, 0, (), epoch=3, producer=7),
    "later-epoch": state(ONGOING, 0, 0, HERE, epoch=5, producer=7),
    "later-commit-v2": state(PREPARE_COMMIT, 0, 0, HERE, epoch=5, producer=7, client_version=2),
    "other-producer": state(ONGOING, 0, 0, HERE, epoch=3, producer=8),
    "other-partition": state(ONGOING, 0, 0, [("orders", 1)], epoch=3, producer=7),
}


@pytest.mark.parametrize("topic_number", [ORDERS, None])
@pytest.mark.parametrize("name", UNDER_WAY)
def test_what_the_coordinator_has_under_way_is_left_to_it(
    name: str, topic_number: int | None, tmp_path: Path, run: Adopt
) -> None:
    """It stays open, its producer is kept, and that is reported."""
    data = home(tmp_path / "data", {0: [UNDER_WAY[name]]})
    done = run(opened(tmp_path, topic_number), "--to", data, "--apply")
    assert one(done) == ([], [], [(1, True)])
    assert done["losses"] == []
    (note,) = done["notes"]
    assert "the transaction of producer 7, open from offset 1 on, is left open" in note
    if topic_number is None:
        assert producers_known(data / "orders-0") == {7}
    assert [each["offset"] for each in records(data / "orders-0")] == [0, 1, 2]
    assert [each["offset"] for each in records(data / "orders-0", "--isolation", "read_committed")] == [0]


@pytest.mark.parametrize("name", OVER)
def test_what_no_coordinator_has_under_way_is_aborted(name: str, tmp_path: Path, run: Adopt) -> None:
    """Nothing else would end it; no loss, for its commit was never decided."""
    data = home(tmp_path / "data", {0: [OVER[name]]})
    done = run(opened(tmp_path), "--to", data, "--apply")
    assert one(done) == ([1], [], [])
    assert (done["losses"], done["notes"]) == ([], [])


def test_a_cluster_without_transactional_ids(tmp_path: Path, run: Adopt) -> None:
    """No `__transaction_state` at all: no coordinator has it in progress."""
    data = made_home(tmp_path / "data", 1000)
    assert one(run(opened(tmp_path), "--to", data, "--apply")) == ([1], [], [])


def test_one_that_stays_and_one_that_ends(tmp_path: Path, run: Adopt) -> None:
    """Each transaction of a partition for itself."""
    data = home(tmp_path / "data", {0: [UNDER_WAY["ongoing"]]})
    source = made_source(
        tmp_path / "copy/orders-0", ORDERS, sent(0, 6, transactional=True), sent(1, 7, epoch=3, transactional=True)
    )
    assert one(run(source, "--to", data, "--apply")) == ([0], [], [(1, True)])
    assert [each.get("control") for each in records(data / "orders-0")] == [None, None, "ABORT"]


@pytest.mark.parametrize("words", [("--producers", "drop"), ()])
def test_the_producer_of_an_open_transaction_stays_known(words: tuple[str, ...], tmp_path: Path, run: Adopt) -> None:
    """Without it a broker would take the transaction for none, and all could read it."""
    data = home(tmp_path / "data", {0: [UNDER_WAY["ongoing"]]})
    made_source(tmp_path / "copy/orders-1", ORDERS)
    run(opened(tmp_path), "--to", data, *words, "--apply")
    (newest,) = (data / "orders-0").glob("*.snapshot") if words else [None]
    assert newest is None or producers_known(data / "orders-0") == {7}


def test_one_under_way_whose_id_is_handed_out_again(tmp_path: Path, run: Adopt) -> None:
    """The metadata log is behind: the producer is kept for its transaction, and that is reported."""
    data = home(tmp_path / "data", {0: [state(ONGOING, 0, 0, HERE, epoch=3, producer=1007)]})
    done = run(opened(tmp_path, producer=1007), "--to", data, "--apply")
    assert one(done) == ([], [], [(1, True)])
    assert any("1 id will be handed out again (the next is 1000)" in note for note in done["notes"])
    assert producers_known(data / "orders-0") == {1007}


# unknown on the disk


def test_some_partitions_of_the_coordinator_are_elsewhere(tmp_path: Path, run: Adopt) -> None:
    """It is left open, with a note and exit code 4: the id may be in another one."""
    data = home(tmp_path / "data", {0: [OVER["other-producer"]]}, count=2)
    done = run(opened(tmp_path), "--to", data, "--apply", code=4)
    assert one(done) == ([], [], [(1, False)])
    (note,) = done["notes"]
    assert "do not show whether its coordinator ends it" in note
    assert "--open-transactions abort" in note


def test_a_later_epoch_tells_although_partitions_are_elsewhere(tmp_path: Path, run: Adopt) -> None:
    """A producer id is in one transactional id, and epochs only rise: that transaction is over."""
    data = home(tmp_path / "data", {0: [OVER["later-epoch"]]}, count=2)
    assert one(run(opened(tmp_path), "--to", data, "--apply")) == ([1], [], [])


def test_another_topics_transaction_is_aborted_although_partitions_are_elsewhere(tmp_path: Path, run: Adopt) -> None:
    """A topic that this cluster never had: its coordinator is another one."""
    data = home(tmp_path / "data", {}, count=2)
    assert one(run(opened(tmp_path, UNKNOWN), "--to", data, "--apply")) == ([1], [], [])


def test_a_damaged_coordinators_log_does_not_tell(tmp_path: Path, run: Adopt) -> None:
    """The unreadable part may have concerned it."""
    data = home(tmp_path / "data", {0: [OVER["other-producer"], OVER["other-producer"]]})
    log = data / f"__transaction_state-0/{0:020}.log"
    content = bytearray(log.read_bytes())
    content[-5] ^= 0xFF
    log.write_bytes(content)
    assert one(run(opened(tmp_path), "--to", data, code=4)) == ([], [], [(1, False)])


def test_other_brokers_have_the_coordinator_as_well(tmp_path: Path, run: Adopt) -> None:
    """They may have continued since this one stopped."""
    data = home(tmp_path / "data", {0: [OVER["complete-abort"]]}, replicas=3)
    assert one(run(opened(tmp_path), "--to", data, code=4)) == ([], [], [(1, False)])


# as asked


@pytest.mark.parametrize("count", [1, 2])
def test_aborted_as_asked_with_a_loss(count: int, tmp_path: Path, run: Adopt) -> None:
    """The records that its coordinator may commit are then lost, and counted."""
    data = home(tmp_path / "data", {0: [UNDER_WAY["ongoing"]]} if count == 1 else {}, count)
    done = run(opened(tmp_path), "--to", data, "--open-transactions", "abort", "--apply")
    assert one(done) == ([1], [], [])
    (loss,) = done["losses"]
    assert (loss["first_offset"], loss["records"], loss["reason"]) == (1, 2, "transaction-aborted")


def test_aborted_as_asked_without_a_loss(tmp_path: Path, run: Adopt) -> None:
    data = home(tmp_path / "data", {0: [OVER["complete-abort"]]})
    done = run(opened(tmp_path), "--to", data, "--open-transactions", "abort", "--apply")
    assert (one(done), done["losses"]) == (([1], [], []), [])


def test_refused_as_asked_only_where_nobody_ends_it(tmp_path: Path, run: Adopt, klog: Klog) -> None:
    data = home(tmp_path / "data", {0: [UNDER_WAY["ongoing"]]})
    assert one(run(opened(tmp_path), "--to", data, "--open-transactions", "refuse")) == ([], [], [(1, True)])
    other = home(tmp_path / "other", {0: [OVER["empty"]]})
    done = klog("adopt", tmp_path / "copy/orders-0", "--to", other, "--open-transactions", "refuse", NOW)
    assert (done.exit_code, b"refused, open-transaction" in done.stdout) == (8, True)


# what had been decided


def test_a_commit_that_the_coordinator_has_completed_gets_its_marker(tmp_path: Path, run: Adopt) -> None:
    """The copy is older than its marker: the records were committed, and an abort would hide them."""
    decided = state(PREPARE_COMMIT, -2000, 0, HERE, epoch=3, producer=7)
    data = home(tmp_path / "data", {0: [decided, state(COMPLETE_COMMIT, -2000, 1, (), epoch=3, producer=7)]})
    assert one(run(opened(tmp_path), "--to", data, "--apply")) == ([], [1], [])
    assert records(data / "orders-0")[-1]["control"] == "COMMIT"
    assert [each["offset"] for each in records(data / "orders-0", "--isolation", "read_committed")] == [0, 1, 2]


def test_a_commit_that_was_decided_in_the_sources_cluster(tmp_path: Path, run: Adopt) -> None:
    """Its coordinator's log is beside the source: the decision is durable, and acknowledged."""
    data = made_home(tmp_path / "data", None)
    source = opened(tmp_path, UNKNOWN)
    write_records(source.parent / "__transaction_state-0", [state(PREPARE_COMMIT, -2000, 0, HERE, epoch=3, producer=7)])
    assert one(run(source, "--to", data, "--apply")) == ([], [1], [])
    assert producers_known(data / "orders-0") == set()
