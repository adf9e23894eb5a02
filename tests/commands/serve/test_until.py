"""The state at that time: `--at-time` shows nothing later, neither records nor notes about them."""

from __future__ import annotations

from pathlib import Path

import pytest
from klog.commands.serve.view import ServeOptions, View

from tests.brokers.clients import SILENT, WAIT_S
from tests.commands.serve.coordinator_logs import T, commit_of, ending, rows, state, write_batches, write_records
from tests.commands.serve.serving import Serving, Wire
from tests.oracles.plain.encode import Record, batch

LATEST, MAX_TIMESTAMP = -1, -3


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """A hundred records, ten each second, with leaders of the epochs 3, 5 and 9, and a group that reads along."""
    write_batches(tmp_path / "t-0", *(rows(10 * i, 10, 1000 * i) for i in range(10)))
    (tmp_path / "t-0" / "leader-epoch-checkpoint").write_text("0\n3\n3 0\n5 30\n9 50\n")
    write_records(
        tmp_path / "__consumer_offsets-0",
        [
            commit_of(20, 2500),
            commit_of(45, 4800),
            commit_of(95, 9500),
            commit_of(90, 9500, group="later"),
            commit_of(10, 1500, group="gone"),
            commit_of(None, 6000, group="gone"),
            commit_of(5, 1500, group="reset"),
            commit_of(None, 3000, group="reset"),
        ],
    )
    return tmp_path


def shown(log_dir: Path, until: int | None, **more: str) -> View:
    return View.open([str(log_dir)], ServeOptions(until_ms=None if until is None else T + until, **more))  # type: ignore[arg-type]


def groups(log_dir: Path, until: int | None) -> dict[str, int]:
    view = shown(log_dir, until)
    return {name: offset for name in view.groups for offset, _, _ in view.committed(name).values()}


@pytest.mark.parametrize(
    ("until", "end", "largest"),
    [
        (5000, 50, (49, T + 4009, 0)),
        (5001, 50, (49, T + 4009, 0)),
        (4009, 40, (39, T + 3009, 0)),
        (1, 0, (-1, -1, -1)),
        (99_000, 100, (99, T + 9009, 0)),
        (None, 100, (99, T + 9009, 0)),
    ],
)
def test_the_largest_timestamp_is_that_of_what_was_there(
    log_dir: Path, until: int | None, end: int, largest: tuple[int, int, int]
) -> None:
    """A consumer that looked for the newest record was answered that there is none."""
    seen = shown(log_dir, until).partition("t", 0)
    assert seen is not None
    assert (seen.high_watermark, seen.list_offset(MAX_TIMESTAMP)) == (end, largest)
    assert seen.list_offset(MAX_TIMESTAMP, "read_committed") == largest


def test_the_largest_timestamp_is_below_the_checkpointed_end_too(log_dir: Path) -> None:
    """For any kind of end: later batches are not shown."""
    (log_dir / "replication-offset-checkpoint").write_text("0\n1\nt 0 30\n")
    for until in (None, 5000):
        seen = shown(log_dir, until, end="checkpoint").partition("t", 0)
        assert seen is not None
        assert (seen.high_watermark, seen.list_offset(MAX_TIMESTAMP)) == (30, (29, T + 2009, 0))


def test_the_largest_timestamp_need_not_be_the_last_nor_in_the_last_segment(tmp_path: Path) -> None:
    write_batches(tmp_path / "t-0", rows(0, 5, 1000), rows(5, 5, 4000), rows(10, 5, 2000))
    later = b"".join([rows(15, 5, 3000), rows(20, 5, 3500), rows(25, 5, 9000)])
    (tmp_path / "t-0" / f"{15:020}.log").write_bytes(later)
    for until, largest in ((9000, 9), (3000, 4), (99_000, 29)):
        seen = shown(tmp_path, until).partition("t", 0)
        assert seen is not None
        assert seen.list_offset(MAX_TIMESTAMP)[0] == largest, until


def test_leaders_that_came_later_are_not_known_yet(log_dir: Path) -> None:
    """Who checks its position against a later epoch would be sent on, behind the end."""
    facts = {}
    for until in (None, 5000, 2500, 1):
        seen = shown(log_dir, until).partition("t", 0)
        assert seen is not None
        facts[until] = seen.leader_epoch, seen.epoch_end(3), seen.epoch_end(5), seen.epoch_end(9)
    assert facts == {
        None: (9, (3, 30), (5, 50), (9, 100)),
        5000: (5, (3, 30), (5, 50), (-1, -1)),
        2500: (3, (3, 30), (-1, -1), (-1, -1)),
        1: (-1, (-1, -1), (-1, -1), (-1, -1)),
    }


@pytest.mark.parametrize(
    ("until", "expected"),
    [
        (None, {"g": 95, "later": 90}),
        (9501, {"g": 95, "later": 90}),
        (9500, {"g": 45}),
        (5000, {"g": 45, "gone": 10}),
        (2501, {"g": 20, "gone": 10, "reset": 5}),
        (2500, {"gone": 10, "reset": 5}),
        (1000, {}),
    ],
)
def test_groups_are_where_they_were(log_dir: Path, until: int | None, expected: dict[str, int]) -> None:
    """Otherwise they begin behind the end, and clients reset them to any configured position."""
    assert groups(log_dir, until) == expected


@pytest.mark.parametrize(("at", "written"), [(3000, 7000), (7000, 3000), (7000, 7000)])
def test_a_commit_counts_once_it_was_made_and_written(tmp_path: Path, at: int, written: int) -> None:
    write_records(tmp_path / "__consumer_offsets-0", [commit_of(1, 1000), commit_of(2, at, written=written)])
    assert groups(tmp_path, 5000) == {"g": 1}


def test_what_compaction_took_away_is_not_made_up(tmp_path: Path) -> None:
    """The offset of that time is gone; a later commit is not the answer."""
    write_records(tmp_path / "__consumer_offsets-0", [commit_of(95, 9500)])
    assert groups(tmp_path, 5000) == {}


def test_a_commit_within_a_transaction_counts_once_its_marker_is_there(tmp_path: Path) -> None:
    key, value, _ = commit_of(20, 2000)
    pending = batch([Record(1, T + 2000, key, value)], transactional=True, producer=(7001, 0, 0))
    first = batch([Record(0, T + 1000, *commit_of(10, 1000)[:2])])
    write_batches(tmp_path / "__consumer_offsets-0", first, pending, ending(2, 6000))
    assert groups(tmp_path, 5000) == {"g": 10}
    assert groups(tmp_path, 6000) == {"g": 10}
    assert groups(tmp_path, 6001) == groups(tmp_path, None) == {"g": 20}


def test_aborts_that_came_later_are_not_told(tmp_path: Path) -> None:
    write_batches(
        tmp_path / "t-0",
        rows(0, 5, 0, pid=7),
        rows(5, 5, 1000, pid=8),
        ending(10, 2000, commit=False, pid=8),
        rows(11, 5, 3000, pid=9),
        ending(16, 4000, commit=False, pid=9),
        ending(17, 5000, pid=7),
    )
    told = {}
    for until in (2500, 3500, 99_000):
        seen = shown(tmp_path, until).partition("t", 0)
        assert seen is not None
        told[until] = {one.producer_id for one in seen.fetch(0, 1 << 20, isolation="read_committed").aborted}
    assert told == {2500: {7, 8}, 3500: {7, 8, 9}, 99_000: {8, 9}}


def test_clients_see_the_disk_as_it_was(log_dir: Path) -> None:
    """Ends, newest record, groups and their offsets, by librdkafka and by the wire."""
    from confluent_kafka import Consumer, TopicPartition
    from confluent_kafka.admin import AdminClient, OffsetSpec

    with Serving(log_dir, "--at-time", str(T + 5000)) as serving:
        settings = {"bootstrap.servers": serving.bootstrap, **SILENT}
        consumer = Consumer({**settings, "group.id": "g"})
        try:
            place = TopicPartition("t", 0)
            assert consumer.get_watermark_offsets(place, WAIT_S) == (0, 50)
            assert consumer.committed([place], WAIT_S)[0].offset == 45
        finally:
            consumer.close()
        admin = AdminClient(settings)
        newest = admin.list_offsets({place: OffsetSpec.max_timestamp()})[place].result(WAIT_S)
        assert (newest.offset, newest.timestamp) == (49, T + 4009)
        known = {one.group_id for one in admin.list_consumer_groups().result(WAIT_S).valid}
        assert {"g", "gone"} <= known
        assert not known & {"later", "reset"}
        with Wire(serving.port) as wire:
            body = {"topics": [{"topic": "t", "partitions": [{"partition": 0, "leaderEpoch": 9}]}]}
            (row,) = wire.ask("OffsetForLeaderEpoch", 4, body)["topics"][0]["partitions"]
            assert (row["leaderEpoch"], row["endOffset"]) == (-1, -1)
            (topic,) = wire.ask("Metadata", 12, {"topics": [{"name": "t", "topicId": "A" * 22}]})["topics"]
            assert topic["partitions"][0]["leaderEpoch"] == 5


def test_a_decision_that_came_later_hides_nothing_else(tmp_path: Path) -> None:
    """With a decision before the moment and its marker behind, the data counts as a coordinator would have ended it."""
    write_batches(tmp_path / "t-0", rows(0, 5, 0, pid=7001), ending(5, 6000), rows(6, 5, 7000))
    write_records(tmp_path / "__transaction_state-0", [state(2, 0, 3000, [("t", 0)])])
    for until, aborted in ((2000, 1), (4000, 0)):
        seen = shown(tmp_path, until).partition("t", 0)
        assert seen is not None
        got = seen.fetch(0, 1 << 20, isolation="read_committed")
        assert (seen.high_watermark, len(got.aborted)) == (5, aborted)
