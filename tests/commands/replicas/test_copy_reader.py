"""The batches of one copy as they count for a comparison."""

from __future__ import annotations

from pathlib import Path

from klog.commands.replicas.batch_comparison import ComparedCopy, Comparison
from klog.commands.replicas.copy_reader import CopyReader
from klog.data_dir.partition import Partition

from tests.oracles.plain.encode import Record, batch, marker, wrapper


def written(folder: Path, *batches: bytes, base: int = 0) -> Partition:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{base:020}.log").write_bytes(b"".join(batches))
    return Partition(str(folder))


def data(first: int, count: int = 1, epoch: int = 0) -> bytes:
    return batch([Record(first + i, 1, b"k", b"%d" % (first + i)) for i in range(count)], leader_epoch=epoch)


def ended(offset: int) -> bytes:
    return marker(offset, commit=True, timestamp=1, producer_id=7, producer_epoch=0, coordinator_epoch=0)


def read(partition: Partition, log_start: int = 0) -> tuple[list[tuple[int, int]], list[int]]:
    """Return the offsets of each batch, and the base offsets of those that do not count."""
    reader, found = CopyReader(partition, log_start), []
    while (head := reader.head) is not None:
        found.append((head.base_offset, head.last_offset))
        reader.skip(1)
    return found, reader.bad_batches


def test_markers_hold_no_data(tmp_path: Path) -> None:
    """A copy that lacks only a marker loses no record."""
    whole = written(tmp_path / "1" / "t-0", data(0, 2), ended(2), data(3))
    short = written(tmp_path / "2" / "t-0", data(0, 2))
    found = Comparison([ComparedCopy(1, whole, 0, 4), ComparedCopy(2, short, 0, 2)]).run()
    assert (found.facts[2].lost.count, found.facts[2].lost.ranges) == (1, [(3, 3)])
    # Another batch overlaps the marker, and records are compared one by one: offset 3 has the same one in both.
    other = written(tmp_path / "3" / "t-0", data(0, 2), data(2, 2, epoch=1))
    found = Comparison([ComparedCopy(1, whole, 0, 4), ComparedCopy(3, other, 0, 4)]).run()
    assert {node: facts.lost.ranges for node, facts in found.facts.items()} == {1: [(2, 2)], 3: []}


def test_a_compressed_message_may_begin_anywhere_behind_the_one_before(tmp_path: Path) -> None:
    """In the old formats a wrapper's header has only the offset of its last message."""
    records = [Record(offset, 1, b"k", b"%d" % offset) for offset in range(4)]
    packed = written(tmp_path / "1" / "t-0", wrapper(records, 1, "gzip"))
    single = written(tmp_path / "2" / "t-0", *(data(offset) for offset in range(3)))
    reader = CopyReader(packed, 0)
    assert reader.head is not None
    assert (reader.head.base_offset, reader.first_possible) == (3, 0)
    found = Comparison([ComparedCopy(1, packed, 0, 4), ComparedCopy(2, single, 0, 3)]).run()
    assert found.facts[2].lost.ranges == [(3, 3)]
    assert found.facts[1].lost.count == 0


def test_a_batch_that_leads_too_far_does_not_count_and_the_ones_behind_it_do(tmp_path: Path) -> None:
    """The checksum does not cover the base offset: a flipped bit there must not hide the rest of the log."""
    batches = [data(offset) for offset in range(4)]
    high = bytearray(batches[1])
    high[4] ^= 1  # the base offset, 2^24 more
    partition = written(tmp_path / "t-0", batches[0], bytes(high), *batches[2:])
    assert read(partition) == ([(0, 0), (2, 2), (3, 3)], [1 + (1 << 24)])


def test_a_batch_that_goes_back_does_not_count(tmp_path: Path) -> None:
    partition = written(tmp_path / "t-0", data(0), data(1), data(0), data(2))
    assert read(partition) == ([(0, 0), (1, 1), (2, 2)], [0])


def test_an_epoch_goes_never_down(tmp_path: Path) -> None:
    """Nor does the checksum cover the leader epoch, which decides who truncates what."""
    batches = [data(0, epoch=1), data(1, epoch=3), data(2, epoch=2), data(3, epoch=3)]
    assert read(written(tmp_path / "t-0", *batches)) == ([(0, 0), (1, 1), (3, 3)], [2])


def test_a_batch_beyond_its_segment_does_not_count(tmp_path: Path) -> None:
    written(tmp_path / "t-0", data(0), data(5))
    partition = written(tmp_path / "t-0", data(2), base=2)
    assert read(partition) == ([(0, 0), (2, 2)], [5])


def test_what_lies_below_the_log_start_is_passed_over(tmp_path: Path) -> None:
    """Bad batches there too: a broker has deleted them."""
    spoilt = bytearray(data(0))
    spoilt[-1] ^= 0xFF
    written(tmp_path / "t-0", bytes(spoilt), data(1))
    partition = written(tmp_path / "t-0", data(2, 3), data(5), base=2)
    assert read(partition, 3) == ([(2, 4), (5, 5)], [])
    assert read(partition) == ([(1, 1), (2, 4), (5, 5)], [0])
