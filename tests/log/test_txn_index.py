"""Transaction indexes: every whole entry comes, whatever the size of the file, and memory does not grow with it."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition
from klog.formats.index import ABORTED_TXN
from klog.log import index
from klog.log.index import AbortedTxn, aborted_txns, newer_version, read_txn_index, txn_index_content
from klog.partition.verify.verify import verify_partition

from tests.conftest import FIXTURES


def entries(count: int) -> list[AbortedTxn]:
    return [AbortedTxn(0, i % 7, 10 * i, 10 * i + 9, 10 * i + 10) for i in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2047, 2048, 2049, 5000])
def test_all_whole_entries_come_in_their_order(tmp_path: Path, count: int) -> None:
    """A crash leaves half an entry at the end: the others still count."""
    path = tmp_path / "0.txnindex"
    path.write_bytes(txn_index_content(entries(count)) + bytes(ABORTED_TXN.size - 1))
    with ReadOnlyFile(str(path)) as source:
        assert list(aborted_txns(source)) == entries(count)
        assert list(aborted_txns(source, ABORTED_TXN.size * (count // 2) + 5)) == entries(count // 2)
    assert read_txn_index(str(tmp_path), path.name) == (entries(count), ABORTED_TXN.size * (count + 1) - 1)


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    """A damaged directory can have a huge file under this name."""
    path = tmp_path / "0.txnindex"
    path.write_bytes(txn_index_content(entries(1)) * 60_000)
    with ReadOnlyFile(str(path)) as source:
        tracemalloc.start()
        assert sum(1 for _ in aborted_txns(source)) == 60_000
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 1 << 20


def test_entries_behind_the_bound_are_not_reported_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unread entries are no evidence against the index."""
    partition = Partition(str(FIXTURES / "modern" / "tx-0"))
    before = verify_partition(partition)
    monkeypatch.setattr(index, "_MOST_TXN_BYTES", 0)
    assert verify_partition(partition).findings == before.findings


def test_a_version_of_which_only_the_second_byte_is_set_is_no_newer_one() -> None:
    """A broker shifts the second byte away."""
    assert [newer_version(version) for version in (0, 1, 0xFF, 0x100, 0x1FF, -1)] == [0, 0, 0, 1, 1, 0]
