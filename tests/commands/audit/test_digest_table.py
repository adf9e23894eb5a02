"""The table of digests: the same answer whatever fits into memory; equal digests by the million; no room, no rest."""

from __future__ import annotations

import os
import random
import struct
import tracemalloc
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest
from klog.base.errors import KlogError, UsageError
from klog.commands.audit.digest_table import ENTRY_BYTES, MOST_PLACES, DigestTable
from klog.kernel import EntryList

from tests.commands.audit.auditing import audit, place
from tests.commands.audit.clusters import Cluster

Entry = tuple[int, int, int, int, int]


def packed(entries: list[Entry]) -> bytes:
    return b"".join(struct.pack("=QIIII", *one) for one in entries)


def repeated(table: DigestTable) -> list[Entry]:
    return [one for content in table.repeated() for one in struct.iter_unpack("=QIIII", content)]


def wanted(entries: list[Entry]) -> list[Entry]:
    counts = Counter(one[0] for one in entries)
    return sorted(one for one in entries if counts[one[0]] > 1)


def made_up(count: int, seed: int) -> list[Entry]:
    """Return entries, some of which share their digest, also digests that differ in one bit only."""
    chance = random.Random(seed)
    digests = [chance.getrandbits(64) for _ in range(count)]
    digests += [chance.choice(digests) for _ in range(count // 20)]
    digests += [chance.choice(digests) ^ 1 << chance.randrange(64) for _ in range(count // 20)]
    chance.shuffle(digests)
    return [
        (one, chance.randrange(50), at, chance.getrandbits(32), chance.getrandbits(32))
        for at, one in enumerate(digests)
    ]


@pytest.mark.parametrize("memory", [1 << 10, 1 << 16, 1 << 24])
@pytest.mark.parametrize("seed", range(3))
def test_what_is_repeated_is_found_whatever_fits_into_memory(memory: int, seed: int) -> None:
    """Through files, buckets that have to be split, and a second time."""
    entries = made_up(30_000, seed)
    table = DigestTable(memory)
    for at in range(0, len(entries), 777):
        table.add(packed(entries[at : at + 777]))
    assert table.spilled_bytes <= ENTRY_BYTES * len(entries)
    assert (table.spilled_bytes > 0) == (memory < ENTRY_BYTES * len(entries))
    for _ in range(2):
        assert sorted(repeated(table)) == wanted(entries)
    table.close()


@pytest.mark.parametrize("memory", [1 << 21, 1 << 23])
def test_batches_of_long_and_short_logs_keep_their_numbers_and_places(memory: int) -> None:
    """The order in a log is known from its beginning: logs that threads read in turn, and logs of one batch."""
    chance = random.Random(5)
    digests = [chance.getrandbits(64) for _ in range(120_000)]
    entries: list[Entry] = []
    following: Counter[int] = Counter()
    while len(entries) < len(digests):
        log, many = chance.choice([(1, 4096), (2, 4096), *[(3 + len(entries), 1)] * 8])
        for _ in range(many):
            number = following[log]
            following[log] += 1
            digest = chance.choice(digests) if chance.random() < 0.001 else digests[len(entries) % len(digests)]
            entries.append((digest, log, 300 * number, chance.getrandbits(32), number << 3 | chance.randrange(5)))
    table = DigestTable(memory)
    for at in range(0, len(entries), 4096):
        table.add(packed(entries[at : at + 4096]))
    assert (table.spilled_bytes > 0) == (memory < ENTRY_BYTES * len(entries))
    assert repeated(table) == wanted(entries)
    table.close()


def test_entries_whose_digests_begin_alike_are_split_by_other_bits() -> None:
    """A bucket of all entries, down to the last eight bits of 64."""
    entries: list[Entry] = [(0xABCDEF << 40 | at % 5000, 1, at, 0, 0) for at in range(9000)]
    table = DigestTable(1)
    table.add(packed(entries))
    assert sorted(repeated(table)) == wanted(entries)
    table.close()


def test_one_digest_a_million_times_stays_in_bounds() -> None:
    """A file of one batch over and over: a thousand places of each log are kept, the others counted."""
    table = DigestTable(1 << 16)
    once = packed([(7, 3, at, 0, 0) for at in range(10_000)])
    tracemalloc.start()
    for _ in range(100):
        table.add(once)
    table.add(packed([(7, 4, 0, 0, 0)]))
    for _ in range(2):
        found = repeated(table)
        assert (7, 4, 0, 0, 0) in found
        assert len(found) <= 60 * MOST_PLACES
        assert len(found) + table.thinned[7, 3] == 1_000_001
    assert tracemalloc.get_traced_memory()[1] < 16 << 20
    tracemalloc.stop()
    table.close()


def test_files_have_no_name_and_no_room_is_said_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is left after a kill, for there is nothing that has a name."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    table = DigestTable(1)
    table.add(packed(made_up(3000, 1)))
    assert table.spilled_bytes
    assert list(tmp_path.iterdir()) == []
    table.close()
    real = os.fstatvfs
    monkeypatch.setattr(os, "fstatvfs", lambda fd: SimpleNamespace(f_bavail=10, f_frsize=real(fd).f_frsize))
    table = DigestTable(1)
    with pytest.raises(KlogError, match="no room for"):
        table.add(packed(made_up(3000, 1)))
    assert table.spilled_bytes == 0
    table.close()


def test_no_log_dir_is_a_place_for_spill_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Cluster()
    made.add("a-0")
    root = made.write(tmp_path / "data")
    monkeypatch.setenv("TMPDIR", str(root / "a-0"))
    monkeypatch.setattr("tempfile.tempdir", None)
    table = DigestTable(1)
    with pytest.raises(UsageError):
        table.add(packed(made_up(3000, 1)))


def test_a_batch_a_thousand_times_over_is_counted_and_not_listed(tmp_path: Path) -> None:
    """Beside it a batch that is really misrouted is still found."""
    made = Cluster(9)
    for _ in range(2000):
        made.add("b-0")
    data = made.add("a-0")
    for _ in range(MOST_PLACES + 5):
        made.put("a-0", data)
    made.put("b-0", data)
    other = made.add("a-0")
    made.put("b-0", other)
    for memory in ("1KiB", "256MiB"):
        found = audit(made.write(tmp_path / memory), "--memory", memory)
        assert [place(row) for row in found["misrouted"]] == [("b-0", made.offset("b-0", 2001))]
        assert [(one["topics"], one["why"]) for one in found["legal_twins"]] == [(["a", "b"], "repeats")]


def test_bytes_that_are_no_entries_are_refused() -> None:
    entries = EntryList(10)
    for content, start in ((b"x" * 23, 0), (b"x" * 24, 1), (b"", 24)):
        with pytest.raises(ValueError, match="entries of"):
            entries.add(content, start)
    assert len(entries) == 0
    assert entries.repeated(0, 0, 48) == b""
    for first, end in ((-1, 0), (0, 1), (1, 0)):
        with pytest.raises(IndexError, match="of 0"):
            entries.repeated(first, end, 48)
