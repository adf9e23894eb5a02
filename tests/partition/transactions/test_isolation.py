"""The view of consumers: read_committed before the log is read, in any part of it, and whatever its index contains."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random

import pytest
from klog.base.read_only import ReadOnlyFile
from klog.commands.dump.dump_request import DumpRequest
from klog.data_dir.partition import Partition
from klog.jobs.slices import LogSlice, slice_partition
from klog.jobs.spark_rows import RowQuery, read
from klog.kernel import Window
from klog.partition.transactions.isolation import AbortedRange, Isolation, IsolationState, visible_range

from tests.commands.dump.sinks import JSON_LINES, dump
from tests.commands.dump.test_isolation import abort, commit, data
from tests.oracles.plain import encode
from tests.oracles.plain.decode import Batch, scan
from tests.oracles.plain.encode import batch, empty_batch
from tests.oracles.plain.shapes import MS, some_records
from tests.oracles.read_committed import learn

ASKED = RowQuery(("offset", "damage"), damage="column", isolation="read_committed")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "orders-3"
    path.mkdir()
    return path


def write(folder: Path, *segments: bytes, indexed: bool = True) -> None:
    """Write *segments*, each under its first offset, with the transaction indexes that a broker makes of them."""
    begun: dict[int, int] = {}
    for content in segments:
        stem = folder / f"{struct.unpack('>q', content[:8])[0]:020}"
        stem.with_suffix(".log").write_bytes(content)
        entries = []
        for found in scan(content):
            if not isinstance(found, Batch) or not found.transactional:
                continue
            if not found.control:
                begun.setdefault(found.producer_id, found.base_offset)
                continue
            first = begun.pop(found.producer_id, None)
            key = found.records[0].key or b""
            if first is not None and key[3] == 0:
                stable = min([*begun.values(), found.base_offset + 1])
                entries.append((found.producer_id, first, found.base_offset, stable))
        if entries and indexed:
            stem.with_suffix(".txnindex").write_bytes(encode.aborted_entries(entries))


def seen(folder: Path, split: int = 1 << 40) -> list[int]:
    """Return the offsets that are seen; nothing may be damaged."""
    found = rows(slice_partition(Partition(str(folder)), split, isolation="read_committed"))
    assert [text for _, text in found if text] == []
    return [offset for offset, _ in found]


def rows(unit: list[LogSlice]) -> list[tuple[int, str | None]]:
    return [(row["offset"], row["damage"]) for made in read(unit, ASKED) for row in made.to_pylist()]


@pytest.mark.parametrize("indexed", [True, False])
@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (data(0, producer=1) + commit(2, 1) + data(3), [0, 1, 3, 4]),
        (data(0) + data(2, producer=1) + data(4, producer=1) + abort(6, 1) + data(7), [0, 1, 7, 8]),
        (data(0, producer=1) + abort(2, 1) + data(3, producer=1) + commit(5, 1) + data(6), [3, 4, 6, 7]),
        (data(0, producer=1) + data(2, producer=2) + abort(4, 2) + commit(5, 1) + data(6), [0, 1, 6, 7]),
        (data(0) + data(2, producer=1) + data(4), [0, 1]),
        (data(0, producer=1) + abort(2, 1) + data(3) + data(5, producer=2) + abort(7, 1) + data(8), [3, 4]),
    ],
)
def test_only_what_was_decided_and_committed_is_seen(
    folder: Path, content: bytes, expected: list[int], indexed: bool
) -> None:
    """Without snapshots the whole log decides, without an index: the part without a snapshot behind it is replayed."""
    write(folder, content, indexed=indexed)
    for split in (64, 200, 1 << 40):
        assert seen(folder, split) == expected


def random_log(chance: Random, transactions: int) -> bytes:
    """Return a log of producers whose transactions overlap."""
    made, offset, begun = bytearray(), 0, [False] * 4
    for _ in range(transactions):
        producer = chance.randrange(4)
        kind = chance.randrange(4)
        if kind and producer:
            made += data(offset, 2, producer=producer)
            begun[producer] = True
        elif kind:
            made += data(offset, 2)
        elif producer:
            made += (commit if chance.random() < 0.5 else abort)(offset, producer)
            offset -= 1
        offset += 2
    return bytes(made)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("kept", ["index", "snapshot", "index and snapshot"])
def test_index_and_snapshot_say_what_the_whole_log_says(folder: Path, seed: int, kept: str) -> None:
    """In every part of a log the same as for one who reads all of it from the start."""
    content = random_log(Random(seed), 120)
    found = [entry for entry in scan(content) if isinstance(entry, Batch)]
    middle = found[70]
    segments = (content[: middle.position], content[middle.position :])
    write(folder, *segments)
    if "index" not in kept:
        for path in folder.glob("*.txnindex"):
            path.write_bytes(path.read_bytes()[:-5])  # it cannot be right, and the log is asked
    if "snapshot" in kept:
        begun = {}
        for entry in found[:70]:
            if entry.transactional and not entry.control:
                begun.setdefault(entry.producer_id, entry.base_offset)
            elif entry.control:
                begun.pop(entry.producer_id, None)
        producers = [
            encode.Producer(one, last_sequence=0, last_offset=1, timestamp=MS, transaction_start=begun.get(one, -1))
            for one in (1, 2, 3)
        ]
        (folder / f"{middle.base_offset:020}.snapshot").write_bytes(encode.snapshot(producers))
    expected = by_learning(Partition(str(folder)))
    for split in (300, 2000, 1 << 40):
        assert seen(folder, split) == expected


def by_learning(partition: Partition) -> list[int]:
    """Return the offsets that are seen by one who reads the whole log first, its markers included."""
    logs = [f"{partition.path}/{segment.log}" for segment in partition.segments]
    committed = learn(logs)
    shown: set[tuple[str, int]] = set()
    for log in logs:
        window = Window()
        with ReadOnlyFile(log) as source:
            window.buffer(source.size)[: source.size] = source.read(0, source.size)
            window.load(0, source.size)
        window.scan(0)
        committed.skip(window)
        window.check(0, window.count)  # not of those that are skipped
        batches = [window.batch(i) for i in range(window.count)]
        shown |= {(log, entry.position) for entry in batches if entry.crc_checked}
    return [
        row["offset"]
        for made in read(slice_partition(partition), RowQuery(("offset", "position", "file"), damage="skip"))
        for row in made.to_pylist()
        if (row["file"], row["position"]) in shown and row["offset"] < committed.last_stable_offset
    ]


# an index that lies


def abort_that_nobody_knows(folder: Path, before: bytes = b"") -> None:
    """Write two segments whose transaction indexes are empty, the snapshot at their end saying that all is well."""
    write(folder, before + data(10, producer=1) + data(12), data(14, producer=1) + abort(16, 1) + data(17))
    for stem in (f"{0 if before else 10:020}", f"{14:020}"):
        (folder / f"{stem}.txnindex").write_bytes(b"")
    ended = encode.Producer(1, last_sequence=0, last_offset=15, timestamp=MS)
    (folder / f"{19:020}.snapshot").write_bytes(encode.snapshot([ended]))


@pytest.mark.parametrize("split", [64, 150, 1 << 40])
def test_an_abort_that_the_index_does_not_know_is_damage(folder: Path, split: int) -> None:
    """Otherwise aborted records would pass for committed, unnoticed."""
    abort_that_nobody_knows(folder)
    found = rows(slice_partition(Partition(str(folder)), split, isolation="read_committed"))
    told = [(offset, text) for offset, text in found if text]
    assert len(told) == 1
    assert told[0][0] == 16
    assert "bad index: an ABORT marker that the transaction index does not know" in (told[0][1] or "")
    assert "klog recover" in (told[0][1] or "")


def test_an_abort_of_nothing_needs_no_index(folder: Path) -> None:
    """A producer may abort before it wrote; brokers index only what had data."""
    write(folder, data(0) + abort(2, 1) + data(3) + abort(5, 1), data(6) + abort(8, 2) + data(9))
    (folder / f"{11:020}.snapshot").write_bytes(encode.snapshot([]))
    assert seen(folder, 64) == [0, 1, 3, 4, 6, 7, 9, 10]


@pytest.mark.parametrize("apart", [True, False])
def test_what_compaction_left_of_an_aborted_transaction_needs_no_index(folder: Path, apart: bool) -> None:
    """The producer's last batch stays, empty, and its marker; the entry goes with the data."""
    left = empty_batch(2, 3, producer=(1, 0, 0), transactional=True)
    segments = (data(0) + left, abort(4, 1) + data(5))
    write(folder, *(segments if apart else (b"".join(segments),)), indexed=False)
    (folder / f"{7:020}.snapshot").write_bytes(encode.snapshot([encode.Producer(1, timestamp=MS)]))
    for split in (64, 1 << 40):
        assert seen(folder, split) == [0, 1, 5, 6]


def test_a_commit_that_the_index_takes_for_an_abort_is_damage(folder: Path) -> None:
    write(folder, data(0, producer=1) + commit(2, 1) + data(3))
    (folder / f"{0:020}.txnindex").write_bytes(encode.aborted_entries([(1, 0, 2, 3)]))
    found = rows(slice_partition(Partition(str(folder)), isolation="read_committed"))
    assert [offset for offset, text in found if not text] == [3, 4]
    assert "a COMMIT marker" in next(text for _, text in found if text)


@pytest.mark.parametrize(
    ("first", "shown", "told"),
    [
        (0, [8, 9], "a COMMIT marker that the transaction index takes for an ABORT"),
        (5, [0, 1, 3, 4, 8, 9], "an ABORT marker whose transaction begins earlier than in the transaction index"),
    ],
)
def test_an_entry_with_a_wrong_first_offset_is_damage(folder: Path, first: int, shown: list[int], told: str) -> None:
    """One flipped bit there hides committed records, or shows aborted ones: a consumer is deceived, an operator not."""
    aborted = data(3, producer=1) + data(5, producer=1) + abort(7, 1)
    write(folder, data(0, producer=1) + commit(2, 1) + aborted + data(8))
    (folder / f"{0:020}.txnindex").write_bytes(encode.aborted_entries([(1, first, 7, 8)]))
    (folder / f"{10:020}.snapshot").write_bytes(encode.snapshot([]))
    _, kept = dump([folder], DumpRequest(JSON_LINES, committed=True))
    assert kept.offsets == shown
    assert [f"bad index: {told}" in report for report in kept.reports] == [True]
    found = rows(slice_partition(Partition(str(folder)), isolation="read_committed"))
    assert [offset for offset, text in found if not text] == shown
    # a slice need not have the data before its marker
    assert any(f"bad index: {told}" in (text or "") for _, text in found) == ("COMMIT" in told)


@pytest.mark.parametrize("content", [b"\x7f" * 34, b"x" * 20, encode.aborted_entries([(1, 5, 4, 6)]), None])
def test_an_index_that_cannot_be_right_is_not_asked(folder: Path, content: bytes | None) -> None:
    """The log answers."""
    write(folder, data(0) + data(2, producer=1) + abort(4, 1), data(5) + data(7, producer=1) + commit(9, 1))
    path = folder / f"{0:020}.txnindex"
    path.unlink() if content is None else path.write_bytes(content)
    if content is not None:
        (folder / f"{10:020}.snapshot").write_bytes(encode.snapshot([]))
    assert seen(folder, 64) == [0, 1, 5, 6, 7, 8]


def test_aborted_batches_that_a_damaged_length_swallowed_stay_hidden(folder: Path) -> None:
    """They are read in a way of their own."""
    made = [data(0), data(2), data(4, producer=1), data(6), abort(8, 1), data(9)]
    content = bytearray(b"".join(made))
    write(folder, bytes(content))
    struct.pack_into(">i", content, len(made[0]) + 8, sum(len(one) for one in made[1:5]) - 12)
    (folder / f"{0:020}.log").write_bytes(content)
    found = rows(slice_partition(Partition(str(folder)), isolation="read_committed"))
    assert [offset for offset, text in found if text is None] == [0, 1, 6, 7, 9, 10]
    assert [offset for offset, text in found if text] == [2]


# where the log begins and ends


def test_nothing_below_the_log_start_is_seen(folder: Path) -> None:
    (folder.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 3 4\n")
    write(folder, batch(some_records(0, 3)) + batch(some_records(3, 4)))
    assert seen(folder) == [4, 5, 6]
    assert visible_range(Partition(str(folder))).from_offset == 4


def test_the_snapshot_saves_reading_what_lies_below(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning must not read every log to its end."""
    write(folder, data(0) + data(2, producer=1) + commit(4, 1), data(5) + data(7, producer=1))
    begun = encode.Producer(1, last_sequence=1, last_offset=8, timestamp=MS, transaction_start=7)
    (folder / f"{9:020}.snapshot").write_bytes(encode.snapshot([begun]))
    opened: list[str] = []
    original = ReadOnlyFile.read_into
    monkeypatch.setattr(
        ReadOnlyFile, "read_into", lambda self, at, view: opened.append(self.path) or original(self, at, view)
    )
    found = visible_range(Partition(str(folder)), "read_committed")
    assert (found.to_offset, found.aborted) == (7, ())
    assert f"{folder}/{0:020}.log" not in opened


@pytest.mark.parametrize("seed", range(8))
def test_what_was_learnt_before_changes_nothing(folder: Path, seed: int) -> None:
    """A log grows, rolls and is cut back; a follower of it sees the same as a new reader."""
    chance = Random(seed)
    content = random_log(chance, 120)
    starts = [entry.position for entry in scan(content) if isinstance(entry, Batch)]
    learnt = IsolationState()
    roll, end = starts[60], 0
    for step in range(40):
        end = chance.randrange(end // 2, end + 1) if step % 9 == 8 else min(end + chance.randrange(400), len(content))
        for path in folder.iterdir():
            path.unlink()
        write(folder, *(part for part in (content[:end][:roll], content[:end][roll:]) if part))
        assert visible_range(Partition(str(folder)), "read_committed", learnt) == visible_range(
            Partition(str(folder)), "read_committed"
        )


def test_of_a_log_that_grows_only_what_is_new_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream asks every second, and the segment that is written may be a gigabyte."""
    content = b"".join(data(2 * i, 2, producer=1) for i in range(200))
    starts = [entry.position for entry in scan(content) if isinstance(entry, Batch)]
    write(folder, content)
    index = encode.offset_entries(0, [(2 * i + 1, starts[i]) for i in range(5, 200, 5)])
    (folder / f"{0:020}.index").write_bytes(index)
    learnt = IsolationState()
    assert visible_range(Partition(str(folder)), "read_committed", learnt).to_offset == 0
    write(folder, content + commit(400, 1))
    read_from: list[int] = []
    original = ReadOnlyFile.read_into
    monkeypatch.setattr(
        ReadOnlyFile, "read_into", lambda self, at, view: read_from.append(at) or original(self, at, view)
    )
    assert visible_range(Partition(str(folder)), "read_committed", learnt).to_offset == 401
    assert min(read_from) > starts[180]


def test_slices_carry_only_the_transactions_that_concern_them(folder: Path) -> None:
    """A million aborted transactions are not to travel with each of a thousand tasks."""
    content = b"".join(data(5 * i, producer=1) + abort(5 * i + 2, 1) + data(5 * i + 3) for i in range(40))
    write(folder, content)
    parts = slice_partition(Partition(str(folder)), 1000, isolation="read_committed")
    assert len(parts) > 8
    assert sum(len(part.aborted or ()) for part in parts) < 40 + 2 * len(parts)
    assert seen(folder, 1000) == [5 * i + j for i in range(40) for j in (3, 4)]


def test_slices_and_queries_of_different_isolation_do_not_go_together(folder: Path) -> None:
    """Aborted records would slip through."""
    write(folder, data(0))
    with pytest.raises(ValueError, match="isolation"):
        list(read(slice_partition(Partition(str(folder))), ASKED))


def test_an_unreadable_log_leaves_the_rest_to_be_seen(folder: Path) -> None:
    write(folder, data(0) + data(2, producer=1) + abort(4, 1), data(5))
    partition = Partition(str(folder))
    assert len(partition.segments) == 2
    (folder / f"{5:020}.log").unlink()
    found = rows(slice_partition(partition, isolation="read_committed"))
    assert [offset for offset, text in found if text is None] == [0, 1]
    assert sum(text is not None for _, text in found) <= 1


def test_isolations_are_kafka_s() -> None:
    """The user should not have to look them up."""
    assert Isolation.__args__ == ("read_uncommitted", "read_committed")
    assert AbortedRange._fields == ("producer_id", "first_offset", "last_offset")
