"""The events in coordinators' logs, record by record: commits, rebalances, the ends of transactions."""

from __future__ import annotations

import struct
from pathlib import Path

from klog.commands.timeline.timeline import Timeline
from klog.commands.timeline.timeline_event import EventFilter, TimelineEvent
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.selection import PartitionQuery

from tests.cluster.coordinator.test_groups import ABORT, COMMIT, commit, data, marker
from tests.commands.serve.coordinator_logs import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    T,
    state,
    write_batches,
    write_records,
)
from tests.oracles.plain.encode import Record, batch

P = 7001
"""The producer of `coordinator_logs.state`."""


def told(folder: Path, *kinds: str) -> list[TimelineEvent]:
    (folder / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    selections = PartitionQuery([str(folder)]).selections()
    with Timeline(selections, EventFilter(kinds=kinds), Disk()) as timeline:
        timeline.read()
        assert timeline.problems == []
        return list(timeline.events())


def test_commits_of_a_second_are_one_event(tmp_path: Path) -> None:
    """Counted from the first of them; one whose time is before it is of another second."""
    times = (0, 999, 1000, 500)
    write_batches(tmp_path / "__consumer_offsets-0", *(commit(i, i, ms) for i, ms in enumerate(times)))
    found = told(tmp_path, "commit")
    assert [(one.time - T, one.commits) for one in found] == [(0, 2), (500, 1), (1000, 1)]


def test_a_commit_of_a_transaction_is_told_with_its_commit(tmp_path: Path) -> None:
    began = [commit(0, 10, 0, producer=7), commit(1, 20, 1, producer=8)]
    ends = [marker(2, ABORT, 2000, 7), marker(3, COMMIT, 5000, 8)]
    write_batches(tmp_path / "__consumer_offsets-0", *began, *ends)
    (event,) = told(tmp_path, "commit")
    assert (event.time - T, event.message) == (5000, "1 commit: t-0 = 20")


def test_a_group_that_changes_its_protocol_is_not_deleted(tmp_path: Path) -> None:
    """Its classic record is deleted and another is written at the same time; without another, the group is deleted."""
    classic = [struct.pack(">hh", 2, len(name)) + name for name in (b"changed", b"gone")]
    new = struct.pack(">hh", 3, 7) + b"changed"
    logs = [data(i, key, None, T) for i, key in enumerate(classic)]
    write_batches(tmp_path / "__consumer_offsets-0", *logs, data(2, new, struct.pack(">hi", 0, 5) + b"\0", T))
    found = told(tmp_path, "group-deleted", "rebalance")
    assert sorted((one.kind, one.group) for one in found) == [("group-deleted", "gone"), ("rebalance", "changed")]


def test_an_abort_before_its_timeout_did_not_time_out(tmp_path: Path) -> None:
    named = [("t", 0)]
    write_records(
        tmp_path / "__transaction_state-0",
        [
            state(ONGOING, 0, 0, named),
            state(PREPARE_ABORT, 0, 59_999, named),
            state(COMPLETE_ABORT, 0, 59_999),
            state(ONGOING, 100_000, 100_000, named),
            state(PREPARE_ABORT, 100_000, 160_000, named),
        ],
    )
    assert [one.message.split(" after")[0] for one in told(tmp_path, "txn-abort")] == ["aborts", "timed out"]


def test_a_log_is_silent_about_what_its_coordinator_tells(tmp_path: Path) -> None:
    """Only the log has the time before the coordinator's oldest record."""
    named = [("t", 0)]
    write_records(
        tmp_path / "__transaction_state-0",
        [state(PREPARE_COMMIT, 10, 12, named), state(COMPLETE_COMMIT, 10, 12), state(ONGOING, 20, 20, named)],
    )
    batches = []
    for at, (ms, end) in enumerate([(0, None), (5, COMMIT), (11, None), (13, COMMIT), (21, None)]):
        rows = [Record(at, T + ms, end or b"k", b"\0\0\0\0\0\0")]
        batches.append(batch(rows, transactional=True, control=end is not None, producer=(P, 0, -1)))
    write_batches(tmp_path / "t-0", *batches)
    found = told(tmp_path, "txn-begin", "txn-commit", "txn-open")
    assert [(one.time - T, one.kind, one.transactional_id) for one in found] == [
        (0, "txn-begin", None),
        (5, "txn-commit", None),
        (10, "txn-begin", "app"),
        (12, "txn-commit", "app"),
        (20, "txn-begin", "app"),
        (20, "txn-open", "app"),
    ]
