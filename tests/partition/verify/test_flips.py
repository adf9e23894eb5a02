"""Every single flipped bit, and every length that a file can be cut to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.formats.batch import BATCH
from klog.formats.index import OFFSET_ENTRY, TIME_ENTRY
from klog.log.segment import Segment
from klog.partition.verify.findings import Severity

from tests.partition.verify.partitions import Damageable, flipped
from tests.support.samples import some_or_all

LOG, TIME = "tx-0/00000000000000000247.log", "tx-0/00000000000000000247.timeindex"
INDEX, TIMES = "tx-0/00000000000000000016.index", "tx-0/00000000000000000016.timeindex"
TXN_INDEX = "tx-0/00000000000000000016.txnindex"
SNAPSHOT = "tx-0/00000000000000000247.snapshot"


def unnoticed(damageable: Damageable, file: str, every: int) -> list[int]:
    """Flip each *every*-th bit of *file* in turn; return the numbers of those without a finding."""
    path = damageable.path / file
    data = path.read_bytes()
    silent = []
    for bit in range(0, 8 * len(data), every):
        damageable.change(file, flipped(bit // 8, bit % 8))
        if not damageable.problems():
            silent.append(bit)
        path.write_bytes(data)
    return silent


def batches(path: Path) -> list[tuple[int, int, int, int]]:
    """Position, base offset, last offset and largest timestamp of each batch."""
    return [
        (found.position, found.base_offset, found.last_offset, found.max_timestamp)
        for found in Segment(str(path)).batches()
        if hasattr(found, "base_offset")
    ]


def lookups_hold(log: Path, index: bytes) -> bool:
    """Whether, for every offset, a scan from where the index leads finds the batch that a scan of everything finds."""
    base, found = int(log.stem), batches(log)
    entries = [OFFSET_ENTRY.read(index[at : at + OFFSET_ENTRY.size]) for at in range(0, len(index), OFFSET_ENTRY.size)]
    starts = {position for position, *_ in found}
    for offset in range(base, found[-1][2] + 1):
        slot = bisect_right([relative for relative, _ in entries], offset - base) - 1
        start = entries[slot][1] if slot >= 0 else 0
        if start and start not in starts:
            return False
        wanted = next(position for position, _, last, _ in found if last >= offset)
        if wanted != next((position for position, _, last, _ in found if position >= start and last >= offset), None):
            return False
    return True


def time_lookups_hold(log: Path, times: bytes) -> bool:
    """Whether no batch at or before an entry's offset is younger than the entry."""
    base, found = int(log.stem), batches(log)
    for at in range(0, len(times), TIME_ENTRY.size):
        timestamp, relative = TIME_ENTRY.read(times[at : at + TIME_ENTRY.size])
        if any(latest > timestamp for _, first, _, latest in found if first <= base + relative):
            return False
    return True


@some_or_all
def test_every_bit_of_a_log(tmp_path: Path, every: int) -> None:
    """Whatever is flipped, in the data or in the header fields outside the checksum, is noticed."""
    damageable = Damageable(tmp_path, "tx-0")
    assert not damageable.problems()
    assert unnoticed(damageable, LOG, every) == []


@some_or_all
@pytest.mark.parametrize(
    ("file", "holds"), [(INDEX, lookups_hold), (TIMES, time_lookups_hold), (TIME, time_lookups_hold)]
)
def test_every_bit_of_an_index(tmp_path: Path, file: str, holds: Callable[[Path, bytes], bool], every: int) -> None:
    """An unnoticed flip is proven harmless: lookups find the same as before."""
    damageable = Damageable(tmp_path, "tx-0")
    path = tmp_path / file
    data = path.read_bytes()
    for bit in unnoticed(damageable, file, every):
        assert holds(path.with_suffix(".log"), bytes(flipped(bit // 8, bit % 8)(bytearray(data)))), bit


@some_or_all
@pytest.mark.parametrize("file", [SNAPSHOT, TXN_INDEX])
def test_every_bit_of_a_snapshot_and_of_a_transaction_index(tmp_path: Path, file: str, every: int) -> None:
    assert unnoticed(Damageable(tmp_path, "tx-0"), file, every) == []


def test_every_length_of_a_transaction_index(tmp_path: Path) -> None:
    """A missing entry shows a consumer aborted records; a broker does not notice."""
    damageable = Damageable(tmp_path, "tx-0")
    path = tmp_path / TXN_INDEX
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        found = {finding.id for finding in damageable.problems(deep=False)}
        assert "txn-index-disagrees" in found, size
        assert ("txn-index-ragged" in found) == (size % 34 > 0), size
    path.unlink()
    assert {finding.id for finding in damageable.problems(deep=False)} == {"txn-index-disagrees"}


@some_or_all
def test_every_length_of_a_log(tmp_path: Path, every: int) -> None:
    """A segment in the middle that ends too early: torn inside a batch, or offsets are missing."""
    damageable = Damageable(tmp_path, "tx-0")
    path = tmp_path / LOG
    data = path.read_bytes()
    starts = {position for position, *_ in batches(path)}
    for size in sorted({*range(0, len(data), every), *starts}):
        path.write_bytes(data[:size])
        found = {finding.id: finding for finding in damageable.findings() if finding.file == LOG}
        if size in starts:
            assert found["offset-gap"].position == size
        else:
            start = max(start for start in starts if start < size)
            assert found["torn-tail"].position == start, size


def test_every_length_of_the_last_log(tmp_path: Path) -> None:
    """The same in the active segment, where nothing follows: a cut between batches shows elsewhere."""
    damageable = Damageable(tmp_path, "idempotent-0")
    path = sorted((tmp_path / "idempotent-0").glob("*.log"))[-1]
    data = path.read_bytes()
    starts = {position for position, *_ in batches(path)}
    for size in sorted({*range(BATCH.size + 3), *range(len(data) - 700, len(data)), *starts}):
        path.write_bytes(data[:size])
        found = {finding.id for finding in damageable.findings() if finding.severity is not Severity.NOTE}
        assert found, size
        assert ("torn-tail" in found) == (size not in starts), size


@pytest.mark.parametrize(("file", "entry_bytes", "prefix"), [(INDEX, 8, ""), (TIMES, 12, "time-")])
def test_every_length_of_an_index(tmp_path: Path, file: str, entry_bytes: int, prefix: str) -> None:
    """Between entries it is ragged; at an entry the log shows it, or it is only sparse, which is harmless."""
    damageable = Damageable(tmp_path, "tx-0")
    path = tmp_path / file
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        found = {finding.id for finding in damageable.problems()}
        if size % entry_bytes:
            assert f"{prefix}index-ragged" in found, size
        elif prefix:
            assert "time-index-short" in found, size
        else:
            assert not found, size


def test_every_length_of_a_snapshot(tmp_path: Path) -> None:
    damageable = Damageable(tmp_path, "tx-0")
    path = tmp_path / SNAPSHOT
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        assert "snapshot-corrupt" in {finding.id for finding in damageable.findings()}, size
