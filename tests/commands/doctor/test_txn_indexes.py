"""`klog doctor` if a transaction index contradicts the log: aborted records would be served."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path

import pytest
from klog.formats.producer_snapshot import Producer, write_snapshot
from klog.kernel import crc32c

from tests.commands.doctor.test_hanging_transactions import add_coordinators
from tests.conftest import Ran
from tests.oracles.plain.encode import Record, aborted_entries, batch, empty_batch, marker, offset_entries
from tests.support.rolled_back import NOW_MS, metadata, partition

Klog = Callable[..., Ran]
TXNS = f"{0:020}.txnindex"


def data(offset: int, producer_id: int = 5, *, transactional: bool = True) -> bytes:
    """Return a batch of two records of a transaction."""
    records = [Record(offset + i, NOW_MS, b"k", b"v") for i in range(2)]
    return batch(records, transactional=transactional, producer=(producer_id, 0, 0))


def end(offset: int, producer_id: int = 5, *, commit: bool = False) -> bytes:
    """Return the marker that ends a transaction."""
    return marker(
        offset, commit=commit, timestamp=NOW_MS, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0
    )


def ask(klog: Klog, log_dir: Path) -> tuple[str | None, str, int]:
    """Return the reason and message of the partition, and the exit code."""
    done = klog("doctor", "--output", "json", str(log_dir))
    found = json.loads(done.stdout)
    assert found["starts"]
    (row,) = found["partitions"]
    return row["reason"], row["message"], done.exit_code


def disk(folder: Path, batches: list[bytes], index: bytes | None, *, has_coordinators: bool = True) -> Path:
    """Write a log dir that was stopped cleanly, with one partition; *index*: None for no file.

    *has_coordinators*: another node has `__transaction_state`, which may know the open transactions.
    """
    log = metadata(folder, leader_epoch=0, next_producer_id=1000)
    if has_coordinators:
        add_coordinators(log, (2,))
    path = partition(folder, batches, [(0, 0)])
    if index is not None:
        (path / TXNS).write_bytes(index)
    return path


TWO = [data(0), end(2), data(3, 6), data(5), end(7, 6), end(8)]
"""Two aborted transactions of producers 5 and 6, and a third of 5 that overlaps the second."""
ENTRIES = [(5, 0, 2, 3), (6, 3, 7, 5), (5, 5, 8, 9)]


@pytest.mark.parametrize(
    ("index", "said"),
    [
        (None, "producer 5 aborted offsets 0–2, and there is no .txnindex"),
        (b"", f"producer 5 aborted offsets 0–2, and {TXNS} has no entry for it"),
        (aborted_entries(ENTRIES)[:-1], f"producer 5 aborted offsets 5–8, and {TXNS} has no entry for it"),
        (aborted_entries(ENTRIES[:2]), f"producer 5 aborted offsets 5–8, and {TXNS} has no entry for it"),
        (aborted_entries([(9, 0, 2, 3), *ENTRIES[1:]]), "producer 5 aborted offsets 0–2"),
        (aborted_entries([(5, 1, 2, 3), *ENTRIES[1:]]), f"the entry in {TXNS} begins at 1"),
        (aborted_entries([(5, 0, 2, 77), *ENTRIES[1:]]), "has the last stable offset 77"),
        (aborted_entries([*ENTRIES[:2], (5, 5, 8, 10)]), "has the last stable offset 10"),
    ],
)
def test_an_abort_that_the_index_does_not_have(index: bytes | None, said: str, klog: Klog, tmp_path: Path) -> None:
    """Behind a clean stop a broker takes the index as it is."""
    disk(tmp_path / "data", TWO, index)
    reason, message, code = ask(klog, tmp_path / "data")
    assert (reason, code) == ("txn-index-wrong", 4)
    assert said in message


def test_an_entry_that_hides_what_was_committed(klog: Klog, tmp_path: Path) -> None:
    """Consumers leave out all records of the producer from its first offset on."""
    batches = [data(0), end(2, commit=True), data(3), end(5)]
    disk(tmp_path / "data", batches, aborted_entries([(5, 0, 5, 6)]))
    reason, message, code = ask(klog, tmp_path / "data")
    assert (reason, code) == ("txn-index-wrong", 4)
    assert "where it committed records" in message


@pytest.mark.parametrize(
    ("batches", "index"),
    [
        (TWO, aborted_entries(ENTRIES)),
        ([data(0), end(2, commit=True)], None),
        ([data(0), end(2, commit=True)], b""),
        ([end(0), end(1)], None),  # aborted without a record: a broker writes no entry
        ([data(0, transactional=False), data(2, transactional=False)], None),
        ([empty_batch(0, 1, max_timestamp=NOW_MS, producer=(5, 0, 0), transactional=True), end(2)], None),  # compacted
        ([data(3), end(5)], aborted_entries([(5, 0, 5, 6)])),  # compaction has removed its first record
        # A follower has appended all of it at once.
        ([data(0), end(2), data(3, 6), end(5, 6)], aborted_entries([(5, 0, 2, 3), (6, 3, 5, 6)])),
    ],
)
def test_an_index_with_nothing_amiss(batches: list[bytes], index: bytes | None, klog: Klog, tmp_path: Path) -> None:
    disk(tmp_path / "data", batches, index)
    assert ask(klog, tmp_path / "data") == (None, "", 0)


@pytest.mark.parametrize(
    ("batches", "index", "log_end", "is_open"),
    [
        ([data(0)], None, 2, (5, 0)),
        # A follower has appended all of it at once.
        ([data(0), end(2), data(3), data(5, 6), end(7, commit=True)], aborted_entries([(5, 0, 2, 5)]), 8, (6, 5)),
        ([data(0), end(2), data(3, 6, transactional=False), data(5, 6)], aborted_entries([(5, 0, 2, 5)]), 7, (6, 5)),
    ],
)
def test_with_nothing_amiss_and_an_open_transaction(
    batches: list[bytes], index: bytes | None, log_end: int, is_open: tuple[int, int], klog: Klog, tmp_path: Path
) -> None:
    """A clean stop writes a snapshot, which has the open transaction."""
    path, (producer, first) = disk(tmp_path / "data", batches, index), is_open
    state = Producer(producer, 0, 0, log_end - 1, 0, NOW_MS, -1, first)
    (path / f"{log_end:020}.snapshot").write_bytes(write_snapshot([state], crc32c))
    assert ask(klog, tmp_path / "data") == (None, "", 0)


FOLLOWED = [data(0), end(2), data(3), data(5), end(7), data(8, 6)]
"""Two aborted transactions of producer 5, and an open one of 6; a follower appends all of it at once."""
POSITIONS = list(accumulate(map(len, FOLLOWED), initial=0))


def followed(folder: Path, stable: int, slots: list[tuple[int, int]], roll: int | None = None) -> Path:
    """Write them with the last stable offset *stable* in the first entry.

    *slots*: offset and position of entries of the offset index; *roll*: the number of the batch that begins the second
    segment.
    """
    path = disk(folder, FOLLOWED[:roll], aborted_entries([(5, 0, 2, stable), (5, 3, 7, 8)]))
    (path / f"{0:020}.index").write_bytes(offset_entries(0, slots))
    if roll is not None:
        (path / f"{8:020}.log").write_bytes(b"".join(FOLLOWED[roll:]))
        for kind in ("index", "timeindex"):
            (path / f"{8:020}.{kind}").touch()
    state = [Producer(5, 0, 0, 7, 0, NOW_MS, 0, -1), Producer(6, 0, 0, 9, 0, NOW_MS, -1, 8)]
    (path / f"{10:020}.snapshot").write_bytes(write_snapshot(state, crc32c))
    return path


@pytest.mark.parametrize(
    ("stable", "slots"),
    [(8, []), (8, [(4, POSITIONS[2])]), (8, [(9, POSITIONS[5])]), (5, [(6, POSITIONS[3])]), (3, [(6, POSITIONS[3])])],
)
def test_a_followers_entry_at_which_no_search_ends(
    stable: int, slots: list[tuple[int, int]], klog: Klog, tmp_path: Path
) -> None:
    """Fetches that contain the second transaction have later upper bounds."""
    path = followed(tmp_path / "data", stable, slots)
    assert ask(klog, path.parent) == (None, "", 0)
    if stable == 8:  # as brokers write it
        done = klog("verify", path)
        assert b"txn-index-disagrees" not in done.stdout


@pytest.mark.parametrize(
    ("stable", "slots", "roll"),
    [
        (8, [(6, POSITIONS[3])], None),
        (8, [(4, POSITIONS[2]), (7, POSITIONS[4])], None),
        (6, [(6, POSITIONS[3])], None),
        (8, [], 5),  # the next segment
        (10, [], None),  # the log end
    ],
)
def test_a_followers_entry_at_which_a_search_ends_too_early(
    stable: int, slots: list[tuple[int, int]], roll: int | None, klog: Klog, tmp_path: Path
) -> None:
    path = followed(tmp_path / "data", stable, slots, roll)
    reason, message, code = ask(klog, path.parent)
    assert (reason, code) == ("txn-index-wrong", 4)
    assert f"has the last stable offset {stable}" in message
    assert b"txn-index-disagrees" in klog("verify", path).stdout


def test_a_start_that_recovers_the_segment_makes_its_index_again(klog: Klog, tmp_path: Path) -> None:
    disk(tmp_path / "data", TWO, None)
    (tmp_path / "data/.kafka_cleanshutdown").unlink()
    assert ask(klog, tmp_path / "data") == (None, "", 0)


def two_segments(folder: Path, recovery_point: int) -> Path:
    """Write a log of a broker that was killed: an aborted transaction across two segments, and behind it another."""
    path = disk(folder, [data(0), data(2, 6)], None)
    for kind in ("index", "timeindex"):
        (path / f"{4:020}.{kind}").touch()
        (path / f"{7:020}.{kind}").touch()
    (path / f"{4:020}.log").write_bytes(end(4) + data(5))
    (path / f"{7:020}.log").write_bytes(data(7, 7) + end(9, 7))
    (folder / ".kafka_cleanshutdown").unlink()
    (folder / "recovery-point-offset-checkpoint").write_text(f"0\n1\norders 0 {recovery_point}\n")
    return path


@pytest.mark.parametrize(("recovery_point", "is_wrong"), [(0, False), (4, False), (7, True), (10, True)])
def test_a_killed_broker_recovers_from_the_recovery_point_on(
    recovery_point: int, is_wrong: bool, klog: Klog, tmp_path: Path
) -> None:
    """The index of the segment before is taken as it is; the marker ends data of the segment before that."""
    two_segments(tmp_path / "data", recovery_point)
    reason, message, code = ask(klog, tmp_path / "data")
    assert (reason, code) == (("txn-index-wrong", 4) if is_wrong else (None, 0))
    assert ("producer 5 aborted offsets 0–4" in message) == is_wrong


def test_data_below_the_log_start_is_nobodys(klog: Klog, tmp_path: Path) -> None:
    path = disk(tmp_path / "data", [data(0), end(2), data(3, transactional=False)], None)
    (tmp_path / "data/log-start-offset-checkpoint").write_text("0\n1\norders 0 3\n")
    (path / "leader-epoch-checkpoint").write_text("0\n1\n0 3\n")
    assert ask(klog, tmp_path / "data") == (None, "", 0)


def test_the_way_out_makes_the_index_again(klog: Klog, tmp_path: Path) -> None:
    path = disk(tmp_path / "data", TWO, None)
    (step,) = json.loads(klog("doctor", "--output", "json", str(tmp_path / "data")).stdout)["next"]
    assert step["command"] == f"klog recover {path} --apply"
    klog("recover", str(path), "--apply")
    assert (path / TXNS).read_bytes() == aborted_entries(ENTRIES)
    assert ask(klog, tmp_path / "data") == (None, "", 0)


def test_large_logs_are_compared_when_asked(klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer mentions that they were not."""
    monkeypatch.setattr("klog.commands.doctor.index_check._MOST_BYTES", 100)
    path = disk(tmp_path / "data", TWO, aborted_entries(ENTRIES[:2]), has_coordinators=False)
    done = klog("doctor", str(tmp_path / "data"))
    assert b"the transaction indexes of 1 partition were not compared with the logs" in done.stdout
    assert klog("doctor", "--records", str(tmp_path / "data")).exit_code == 4
    (path / TXNS).unlink()
    assert b"transaction indexes" not in klog("doctor", str(tmp_path / "data")).stdout  # no topic of transactions here


# open transactions that a start forgets

OPEN = [data(0), end(2, commit=True), data(3, 6), data(5)]
"""A committed transaction of producer 5, then an open one of 6, and one of 5."""


def test_without_a_snapshot_a_clean_start_forgets_open_transactions(klog: Klog, tmp_path: Path) -> None:
    """The marker that aborts one later makes no entry: a broker of 4.3.1 served its records as committed ones."""
    path = disk(tmp_path / "data", OPEN, None)
    reason, message, code = ask(klog, path.parent)
    assert (reason, code) == ("txn-index-wrong", 4)
    assert "producer 6 has an open transaction from offset 3 on, and there is no .snapshot" in message
    done = klog("recover", path, "--apply")
    assert done.exit_code == 1, done
    assert ask(klog, path.parent) == (None, "", 0)


@pytest.mark.parametrize("state", ["after a kill", "ended", "not transactional"])
def test_it_forgets_nothing_that_counts(klog: Klog, tmp_path: Path, state: str) -> None:
    """A start without the marker replays the log; and without open transactions a clean one has nothing to forget."""
    batches = {"ended": [*OPEN, end(7, 6, commit=True), end(8, commit=True)], "not transactional": [data(0)]}
    if state == "not transactional":
        batches[state] = [data(0, transactional=False)]
    path = disk(tmp_path / "data", batches.get(state, OPEN), None)
    if state == "after a kill":
        (path.parent / ".kafka_cleanshutdown").unlink()
    assert ask(klog, path.parent) == (None, "", 0)
