"""The coordinator's decisions, and their subjects: a consumer of committed data receives no more than that."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from klog.commands.serve.view import ServeOptions, View
from klog.formats.error_codes import ErrorCode

from tests.commands.serve.coordinator_logs import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    T,
    ending,
    rows,
    state,
    write_batches,
    write_records,
)
from tests.commands.serve.readers import with_kafka_python, with_librdkafka
from tests.commands.serve.serving import Serving
from tests.conftest import run_klog
from tests.oracles.plain.encode import Producer, Record, batch, snapshot

P = 7001
HERE, ELSEWHERE = [("tx", 0)], [("tx", 1), ("other", 0)]
States = Sequence[tuple[bytes, bytes, int]]


def counts(tmp_path: Path, states: States, *batches: bytes, first: int = 0) -> bool:
    """Write the log and the coordinator's records; return whether open data from offset *first* on is returned."""
    write_batches(tmp_path / "tx-0", *batches)
    write_records(tmp_path / "__transaction_state-0", states)
    found = set()
    for how in ("abort", "hide"):
        with View.open([str(tmp_path)], ServeOptions(open_transactions=how)) as view:  # type: ignore[arg-type]
            seen = view.partition("tx", 0)
            assert seen is not None
            got = seen.fetch(first, 1 << 20, isolation="read_committed")
            assert got.error is ErrorCode.NONE
            hidden = any(one.producer_id == P and one.first_offset == first for one in got.aborted)
            assert hidden == (how == "abort" and seen.last_stable_offset > first and bool(got.aborted))
            found.add(seen.last_stable_offset > first and not hidden)
            assert any("counts as committed" in line for line in view.take_messages()) == (not hidden and got.size > 0)
    assert len(found) == 1, "however the undecided are shown, what is decided is the same"
    return found.pop()


LATE = (rows(0, 5, 0, pid=P), ending(5, 105), rows(6, 3, 200, pid=P, sequence=5))
"""A transaction, its marker, and what its producer sent too late."""


@pytest.mark.parametrize(
    ("why", "expected", "states"),
    [
        ("PrepareCommit names it", True, [state(PREPARE_COMMIT, 190, 210, HERE)]),
        ("PrepareCommit names others", False, [state(PREPARE_COMMIT, 190, 210, ELSEWHERE)]),
        ("PrepareCommit from before it came", False, [state(PREPARE_COMMIT, 190, 199, HERE)]),
        ("PrepareCommit of what began later", False, [state(PREPARE_COMMIT, 300, 310, HERE)]),
        ("PrepareCommit of the transaction whose marker is here", False, [state(PREPARE_COMMIT, 0, 210, HERE)]),
        ("PrepareCommit of another producer", False, [state(PREPARE_COMMIT, 190, 210, HERE, producer=7002)]),
        ("PrepareCommit of a later epoch", False, [state(PREPARE_COMMIT, 190, 210, HERE, epoch=1)]),
        ("PrepareAbort", False, [state(PREPARE_ABORT, 190, 210, HERE)]),
        ("CompleteCommit within its time", True, [state(COMPLETE_COMMIT, 190, 210)]),
        ("CompleteCommit from before it came", False, [state(COMPLETE_COMMIT, 0, 110)]),
        ("CompleteCommit of what began later", False, [state(COMPLETE_COMMIT, 201, 310)]),
        ("CompleteCommit of another epoch", False, [state(COMPLETE_COMMIT, 190, 210, epoch=1)]),
        ("CompleteAbort", False, [state(COMPLETE_ABORT, 190, 210)]),
        ("Empty", False, [state(EMPTY, -1, 210)]),
        ("nothing", False, []),
        (
            "it went on",
            True,
            [state(PREPARE_COMMIT, 190, 210, HERE), state(COMPLETE_COMMIT, 190, 211), state(ONGOING, 300, 300, HERE)],
        ),
        (
            "it went on, and the decision was compacted away",
            True,
            [state(COMPLETE_COMMIT, 190, 211), state(ONGOING, 300, 300, HERE)],
        ),
        (
            "CompleteCommit after a PrepareCommit that names others",
            False,
            [state(PREPARE_COMMIT, 190, 210, ELSEWHERE), state(COMPLETE_COMMIT, 190, 211)],
        ),
        (
            "CompleteCommit after a PrepareCommit that names it, once it had come",
            True,
            [state(PREPARE_COMMIT, 190, 210, HERE), state(COMPLETE_COMMIT, 190, 211)],
        ),
        (
            "CompleteCommit after another transaction's PrepareCommit",
            True,
            [state(PREPARE_COMMIT, 0, 100, ELSEWHERE), state(COMPLETE_COMMIT, 190, 210)],
        ),
        (
            "it is the next one's beginning",
            False,
            [state(PREPARE_COMMIT, 0, 100, HERE), state(COMPLETE_COMMIT, 0, 110), state(ONGOING, 195, 195, HERE)],
        ),
        (
            "the next one was aborted",
            False,
            [
                state(PREPARE_COMMIT, 0, 100, HERE),
                state(COMPLETE_COMMIT, 0, 110),
                state(PREPARE_ABORT, 195, 230, HERE),
                state(COMPLETE_ABORT, 195, 231),
            ],
        ),
    ],
)
def test_a_decision_counts_for_what_it_was_about(tmp_path: Path, why: str, expected: bool, states: States) -> None:
    """To return uncommitted data is worse than to leave out hanging data: a broker would wait with it for ever."""
    assert counts(tmp_path, states, *LATE, first=6) == expected, why


def test_what_came_too_late_stays_hidden_whatever_time_it_has(tmp_path: Path) -> None:
    """Records have the time when they were made: a batch that was sent when the marker was written has a good one."""
    batches = (rows(0, 5, 0, pid=P), ending(5, 105), rows(6, 3, 50, pid=P, sequence=5))
    for states in (
        [state(COMPLETE_COMMIT, 0, 110)],
        [state(PREPARE_COMMIT, 0, 100, HERE), state(COMPLETE_COMMIT, 0, 110)],
    ):
        assert not counts(tmp_path, states, *batches, first=6)


def test_the_marker_before_may_stand_in_a_snapshot_only(tmp_path: Path) -> None:
    """The earlier part is not read again, and its producers are remembered all the same."""
    states = [state(PREPARE_COMMIT, 0, 210, HERE)]
    for marked_ms, expected in ((T + 105, False), (T - 50, True)):
        write_batches(tmp_path / "tx-0", rows(0, 6, 0))
        known = Producer(P, 0, 4, 4, 0, marked_ms, 0, -1)
        (tmp_path / "tx-0" / f"{6:020}.snapshot").write_bytes(snapshot([known]))
        (tmp_path / "tx-0" / f"{6:020}.log").write_bytes(LATE[2])
        write_records(tmp_path / "__transaction_state-0", states)
        view = View.open([str(tmp_path)], ServeOptions(open_transactions="hide"))
        seen = view.partition("tx", 0)
        assert seen is not None
        assert (seen.last_stable_offset == 9) == expected


def test_all_that_is_open_has_to_be_of_the_transaction(tmp_path: Path) -> None:
    """Its marker is lost here, and its producer has continued: the first part was committed, the second is unknown."""
    states = [state(PREPARE_COMMIT, 0, 100, HERE), state(COMPLETE_COMMIT, 0, 110), state(ONGOING, 195, 195, HERE)]
    assert counts(tmp_path, states, rows(0, 5, 0, pid=P), rows(5, 3, 90, pid=P, sequence=5))
    assert not counts(tmp_path, states, rows(0, 5, 0, pid=P), rows(5, 3, 200, pid=P, sequence=5))
    assert not counts(tmp_path, states, rows(0, 5, 0, pid=P), rows(5, 3, 90, pid=P, epoch=1))


def test_records_are_made_shortly_before_their_transaction_begins(tmp_path: Path) -> None:
    """A producer makes a record, then adds its partition at the coordinator; before, it had ended the one before."""
    data = rows(0, 5, 1000, pid=P)
    begins = state(PREPARE_COMMIT, 1020, 1100, HERE)
    assert not counts(tmp_path, [begins], data), "nobody knows what was before"
    assert counts(tmp_path, [state(EMPTY, -1, 900), state(ONGOING, 1020, 1020, HERE), begins], data)
    assert counts(tmp_path, [state(COMPLETE_ABORT, 100, 900), begins], data)
    assert not counts(tmp_path, [state(EMPTY, -1, 1010), begins], data), "it is of the time before"
    much_later = state(PREPARE_COMMIT, 9000, 9100, HERE)
    assert not counts(tmp_path, [state(EMPTY, -1, 900), much_later], data)


def test_the_brokers_time_counts_where_the_batch_has_it(tmp_path: Path) -> None:
    records = [Record(i, T - 86_400_000, b"k", b"v") for i in range(3)]
    data = batch(records, transactional=True, producer=(P, 0, 0), append_time_ms=T + 50)
    assert counts(tmp_path, [state(PREPARE_COMMIT, 40, 100, HERE)], data)
    assert not counts(tmp_path, [state(PREPARE_COMMIT, 60, 100, HERE)], data)


def test_with_an_epoch_for_each_transaction_the_epoch_tells(tmp_path: Path) -> None:
    """Transactions v2: the decision is written with the epoch that the next transaction has."""
    data = rows(0, 5, -86_400_000, pid=P, epoch=3)
    for epoch, expected in ((3, False), (4, True), (5, False)):
        states = [state(PREPARE_COMMIT, 40, 100, HERE, epoch=epoch, client_version=2)]
        assert counts(tmp_path, states, data) == expected
    assert not counts(tmp_path, [state(PREPARE_COMMIT, 40, 100, ELSEWHERE, epoch=4, client_version=2)], data)
    timed = rows(0, 5, 50, pid=P, epoch=3)
    for epoch, expected in ((3, False), (4, True)):
        assert counts(tmp_path, [state(COMPLETE_COMMIT, 40, 100, epoch=epoch, client_version=2)], timed) == expected


def test_the_last_epoch_of_a_producer_id_is_completed_under_the_next_id(tmp_path: Path) -> None:
    last = 2**15 - 2
    data = rows(0, 5, 50, pid=P, epoch=last)
    rotated = state(COMPLETE_COMMIT, 40, 100, epoch=0, producer=9001, previous=P, client_version=2)
    assert counts(tmp_path, [rotated], data)
    assert not counts(tmp_path, [rotated], rows(0, 5, 50, pid=P, epoch=last - 1))


def test_a_decision_of_later_is_none_yet(tmp_path: Path) -> None:
    """At that time the transaction was open, and its end unknown."""
    write_batches(tmp_path / "tx-0", rows(0, 5, 0, pid=P), rows(5, 5, 5000))
    for decided, written in ((3000, 3000), (7000, 7000), (3000, 7000), (7000, 3000)):
        write_records(tmp_path / "__transaction_state-0", [state(PREPARE_COMMIT, 0, decided, HERE, written=written)])
        view = View.open([str(tmp_path)], ServeOptions(until_ms=T + 4000, open_transactions="hide"))
        seen = view.partition("tx", 0)
        assert seen is not None
        assert seen.last_stable_offset == (5 if max(decided, written) < 4000 else 0)


@pytest.mark.parametrize("named", [True, False])
def test_clients_and_klog_fetch_agree_about_what_hangs(tmp_path: Path, named: bool) -> None:
    """A late batch behind a COMMIT marker: a broker keeps it back, and so do both of these."""
    write_batches(tmp_path / "tx-0", *LATE)
    prepared = [state(PREPARE_COMMIT, 190, 210, HERE)] if named else []
    write_records(tmp_path / "__transaction_state-0", [state(COMPLETE_COMMIT, 0, 110), *prepared])
    told = json.loads(
        run_klog(
            "fetch", tmp_path / "tx-0", "--offset", "0", "--isolation", "read_committed", "--output", "json"
        ).stdout
    )
    assert told["last_stable_offset"] == 6
    with Serving(tmp_path) as serving:
        for read in (with_librdkafka, with_kafka_python):
            offsets = [row[2] for row in read(serving.bootstrap, "tx", "read_committed", None)]
            assert offsets == [0, 1, 2, 3, 4, *([6, 7, 8] if named else [])]
            everything = [row[2] for row in read(serving.bootstrap, "tx", "read_uncommitted", None)]
            assert everything == [0, 1, 2, 3, 4, 6, 7, 8]
