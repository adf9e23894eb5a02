"""Transaction indexes that a follower wrote, and those of logs with very many transactions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.oracles.plain.encode import Record, aborted_entries, batch, marker, offset_entries

Klog = Callable[..., Ran]
NOW_MS = 1_795_000_000_000


def data(offset: int, producer_id: int) -> bytes:
    """Return a batch of two records of a transaction."""
    records = [Record(offset + i, NOW_MS, b"k", b"v") for i in range(2)]
    return batch(records, transactional=True, producer=(producer_id, 0, -1))


def end(offset: int, producer_id: int, *, commit: bool = False) -> bytes:
    """Return the marker that ends a transaction."""
    return marker(
        offset, commit=commit, timestamp=NOW_MS, producer_id=producer_id, producer_epoch=0, coordinator_epoch=0
    )


def contradictions(klog: Klog, folder: Path, batches: Sequence[bytes], index: bytes) -> list[str]:
    """Return the messages of `klog verify` about the transaction index of a log."""
    folder.mkdir(exist_ok=True)
    (folder / f"{0:020}.log").write_bytes(b"".join(batches))
    (folder / f"{0:020}.txnindex").write_bytes(index)
    found = json.loads(klog("verify", str(folder), "--output", "json").stdout)["findings"]
    return [one["message"] for one in found if one["id"] == "txn-index-disagrees"]


@pytest.mark.parametrize(
    ("batches", "stable"),
    [
        ([data(3, 6), end(5, 6)], 3),
        ([data(3, 6), data(5, 7), end(7, 7), end(8, 6)], 3),
        ([data(3, 6)], 3),  # open still
        ([data(3, 5), data(5, 6), end(7, 5, commit=True)], 5),
    ],
)
def test_a_follower_takes_in_the_next_transaction_first(
    batches: list[bytes], stable: int, klog: Klog, tmp_path: Path
) -> None:
    """It appends an answer whole: Kafka 4.3.1 then writes the first offset of the next transaction of another."""
    ends = {6: (6, 3, 5, 6), 7: (7, 5, 7, 3)}
    more = [ends[6]] if len(batches) == 2 else [(7, 5, 7, 3), (6, 3, 8, 9)] if len(batches) == 4 else []
    index = aborted_entries([(5, 0, 2, stable), *more])
    assert contradictions(klog, tmp_path / "orders-0", [data(0, 5), end(2, 5), *batches], index) == []


@pytest.mark.parametrize(
    ("batches", "stable"),
    [
        ([data(3, 6), end(5, 6, commit=True)], 4),
        ([data(3, 6), end(5, 6, commit=True)], 6),
        ([data(3, 6), end(5, 6, commit=True)], 2),
        ([data(3, 5), data(5, 6), end(7, 5, commit=True)], 4),
    ],
)
def test_no_other_offset_behind_the_marker_is_right(
    batches: list[bytes], stable: int, klog: Klog, tmp_path: Path
) -> None:
    index = aborted_entries([(5, 0, 2, stable)])
    (message,) = contradictions(klog, tmp_path / "orders-0", [data(0, 5), end(2, 5), *batches], index)
    assert f"(last stable offset {stable})" in message


@pytest.mark.parametrize("slot", [3, 4])
def test_an_entry_that_hides_the_producers_next_abort(slot: int, klog: Klog, tmp_path: Path) -> None:
    """A broker ends its search at the first entry, and gives the consumer records of the second transaction.

    It does so only for a fetch whose upper bound is an entry of the offset index before the last stable offset.
    """
    batches = [data(0, 5), end(2, 5), data(3, 5), data(5, 5), data(7, 6), end(9, 5)]
    index = aborted_entries([(5, 0, 2, 7), (5, 3, 9, 7)])
    (tmp_path / "orders-0").mkdir()
    offsets = {3: 6, 4: 8}
    entry = (offsets[slot], sum(map(len, batches[:slot])))
    (tmp_path / f"orders-0/{0:020}.index").write_bytes(offset_entries(0, [entry]))
    found = contradictions(klog, tmp_path / "orders-0", batches, index)
    assert ["aborted offsets 0–2" in one for one in found] == [True] * (slot == 3)


def test_every_transaction_of_a_log_is_compared(klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bound on anomalies is none on transactions: recover would leave entries out of the index."""
    monkeypatch.setattr("klog.partition.transactions.producer_replay._MOST_ANOMALIES", 1)
    count, batches = 40, []
    for at in range(0, 3 * count, 3):
        batches += [data(at, 5), end(at + 2, 5)]
    entries = [(5, at, at + 2, at + 3) for at in range(0, 3 * count, 3)]
    folder = tmp_path / "orders-0"
    assert contradictions(klog, folder, batches, aborted_entries(entries)) == []
    (folder / f"{0:020}.txnindex").unlink()
    assert klog("recover", str(folder), "--apply", "--now", str(NOW_MS)).exit_code == 1
    assert (folder / f"{0:020}.txnindex").read_bytes() == aborted_entries(entries)


@pytest.mark.long
def test_a_log_with_more_transactions_than_anomalies_are_kept(klog: Klog, tmp_path: Path) -> None:
    count, batches = 110_000, []
    for at in range(0, 3 * count, 3):
        batches += [data(at, 5), end(at + 2, 5)]
    entries = [(5, at, at + 2, at + 3) for at in range(0, 3 * count, 3)]
    assert contradictions(klog, tmp_path / "orders-0", batches, aborted_entries(entries)) == []
