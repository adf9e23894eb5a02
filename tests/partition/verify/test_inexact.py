"""Index entries that no broker writes are noted, though lookups are right; those that brokers write are not."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.partition.verify.findings import Finding, Severity

from tests.conftest import CORPORA, FIXTURES, extract
from tests.oracles.plain.decode import Batch, scan
from tests.partition.verify.partitions import Damageable, findings_in, flipped
from tests.support.samples import sampled

OFFSETS, TIMES = struct.Struct(">ii"), struct.Struct(">qi")
ARCHIVES = sorted(path for kind in ("crash", "compaction") for path in CORPORA.glob(f"{kind}/**/*.tar.gz"))
CLOSED = sorted(
    {
        path.parent.parent
        for root in (FIXTURES, *(CORPORA / name for name in ("modern", "legacy", "v39", "public")))
        for path in root.glob("**/*-*/*.log")
    }
)


FLIPPED = [
    ("idempotent-0", 375),
    *(pytest.param(*one, marks=pytest.mark.long) for one in (("gzip-0", 0), ("tx-0", 138))),
]


def batches(log: Path) -> list[Batch]:
    found = [one for one in scan(log.read_bytes()) if isinstance(one, Batch)]
    assert found
    return found


def may_be_a_brokers(index: bytes, log: Path) -> bool:
    """Whether every entry of an offset index leads to where a batch begins, and is about the end of an append there."""
    there, base = batches(log), int(log.stem)
    starts = {batch.position: batch for batch in there}
    entries = [(base + relative, starts.get(position)) for relative, position in OFFSETS.iter_unpack(index)]
    return all(
        batch is not None
        and any(offset in (batch.base_offset, one.last_offset) for one in there if one.position >= batch.position)
        for offset, batch in entries
    )


def may_be_a_brokers_times(index: bytes, log: Path) -> bool:
    """Whether every entry of a time index has a batch's timestamp, and its last offset or that of a record with it."""
    base = int(log.stem)
    right = {(batch.max_timestamp, batch.last_offset) for batch in batches(log)}
    right |= {(one.timestamp, one.offset) for batch in batches(log) for one in batch.records}
    return {(timestamp, base + relative) for timestamp, relative in TIMES.iter_unpack(index)} <= right


@pytest.mark.parametrize(("suffix", "is_right"), [("index", may_be_a_brokers), ("timeindex", may_be_a_brokers_times)])
@pytest.mark.parametrize(("partition", "base"), FLIPPED)
def test_every_flipped_bit_of_an_index_is_found(
    partition: str, base: int, suffix: str, is_right: Callable[[bytes, Path], bool], tmp_path: Path
) -> None:
    """But for the few that make an entry which a broker might have written: of an append of several batches."""
    damageable = Damageable(tmp_path, partition)
    log = tmp_path / partition / f"{base:020}.log"
    index = log.with_suffix(f".{suffix}")
    good = index.read_bytes()
    assert is_right(good, log)
    silent = 0
    for bit in range(8 * len(good)):
        damageable.change(f"{partition}/{index.name}", flipped(bit // 8, bit % 8))
        bad = index.read_bytes()
        if not [one for one in damageable.findings(deep=False) if one.file == f"{partition}/{index.name}"]:
            silent += 1
            assert is_right(bad, log), bit
        index.write_bytes(good)
    assert silent <= len(good) // 8 * 3


def noted(path: Path) -> list[Finding]:
    return [one for one in findings_in(path, deep=False) if one.id == "index-inexact"]


@pytest.mark.parametrize("path", CLOSED, ids=lambda path: "/".join(path.parts[-3:]))
def test_no_index_that_a_broker_wrote_is_inexact(path: Path) -> None:
    """The indexes of 0.10 to 4.3: messages of all formats, followers, LogAppendTime, brokers that index records' own
    offsets."""
    assert noted(path) == []


@pytest.mark.corpora
@pytest.mark.parametrize("archive", sampled(ARCHIVES, 3), ids=lambda path: "/".join(path.parts[-3:]))
def test_no_index_that_a_cleaner_or_a_recovery_wrote_is_inexact(archive: Path, tmp_path: Path) -> None:
    extract(archive, tmp_path)
    assert noted(tmp_path) == []


def test_a_time_entry_about_a_record_inside_a_batch_is_a_brokers_when_it_has_the_timestamp(tmp_path: Path) -> None:
    """Brokers before 3.8 write that offset, those since then the batch's last."""
    damageable = Damageable(tmp_path, "idempotent-0")
    name = f"idempotent-0/{375:020}"
    (first, *_) = batches(tmp_path / f"{name}.log")
    newest = max(first.records, key=lambda record: record.timestamp)
    for record in first.records:
        entry = TIMES.pack(first.max_timestamp, record.offset - 375)
        damageable.change(f"{name}.timeindex", with_first(entry, first.max_timestamp))
        assert bool(noted(tmp_path)) == (record.timestamp != newest.timestamp and record.offset != first.last_offset)


def with_first(entry: bytes, timestamp: int) -> Callable[[bytearray], bytes]:
    """Return a change that puts *entry* before the entries with a later timestamp."""

    def change(data: bytearray) -> bytes:
        later = [one for one in TIMES.iter_unpack(bytes(data)) if one[0] > timestamp]
        return entry + b"".join(TIMES.pack(*one) for one in later)

    return change


def test_an_inexact_entry_is_a_note(tmp_path: Path) -> None:
    """Nothing is lost by it, and no exit code follows from it."""
    damageable = Damageable(tmp_path, "idempotent-0")
    damageable.change(f"idempotent-0/{375:020}.index", flipped(3))
    (found,) = noted(tmp_path)
    assert found.severity is Severity.NOTE
    assert (found.position, found.file) == (0, f"idempotent-0/{375:020}.index")
    assert damageable.problems() == []


def test_an_append_of_several_batches_has_one_entry_that_is_right(tmp_path: Path) -> None:
    """As followers write them: about the last offset of the last batch, at the position of the first."""
    damageable = Damageable(tmp_path, "idempotent-0")
    there = batches(tmp_path / f"idempotent-0/{375:020}.log")
    for first, last in ((1, 2), (1, 5), (2, len(there) - 1)):
        entry = OFFSETS.pack(there[last].last_offset - 375, there[first].position)
        damageable.change(f"idempotent-0/{375:020}.index", lambda _, entry=entry: entry)
        assert noted(tmp_path) == [], (first, last)
        wrong = OFFSETS.pack(there[last].last_offset - 376, there[first].position)
        damageable.change(f"idempotent-0/{375:020}.index", lambda _, wrong=wrong: wrong)
        assert len(noted(tmp_path)) == 1, (first, last)
