"""The changes of a copy besides appending: gaps, log starts, pruning, cuts, topics that were created anew."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from klog.base.errors import DamagedError
from klog.commands.follow.copied_partition import CrcMismatchError
from klog.commands.follow.copy_dir import CopyDir
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.partition.append.appender import AppendSettings

from tests.commands.follow.feeding import CLUSTER, TOPIC_ID, open_copy
from tests.conftest import Ran
from tests.oracles.plain.encode import Record, batch

pytestmark = pytest.mark.usefixtures("state_home")
Klog = Callable[..., Ran]
SMALL = AppendSettings(segment_bytes=1000, index_interval=100)
OTHER_ID = "9aXkBv7lIQ9uTBvXnC8d4A"
MS = 1_700_000_000_000


def made(first: int, count: int, *, epoch: int = 0, size: int = 20, **how: object) -> bytes:
    """Return a batch of *count* records from offset *first* on."""
    records = [Record(offset, MS + offset, b"key", bytes(size)) for offset in range(first, first + count)]
    return batch(records, leader_epoch=epoch, **how)  # type: ignore[arg-type]


def run(firsts: Sequence[int], count: int = 5, **how: object) -> bytes:
    return b"".join(made(first, count, **how) for first in firsts)  # type: ignore[arg-type]


def content(path: Path) -> bytes:
    """Return the bytes of all logs of a partition, one behind the other."""
    return b"".join(log.read_bytes() for log in sorted(path.glob("*.log")))


def names(path: Path) -> list[int]:
    return [int(log.stem) for log in sorted(path.glob("*.log"))]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy"


def clean(klog: Klog, copy: Path) -> bool:
    verified = klog("verify", copy, "--deep")
    assert verified.exit_code == 0, verified.stdout.decode()
    return True


def test_a_tail_that_is_cut_is_left_for_the_next_answer(copy: Path, klog: Klog) -> None:
    """An answer of limited size ends in the middle of a batch nearly always."""
    data = run(range(0, 50, 5))
    with open_copy(copy, "orders-3", SMALL) as (_, copied):
        at = 0
        while at < len(data):
            taken = copied.append(data[at : at + 500])
            assert taken
            at += taken
        assert copied.append(b"") == copied.append(data[:7]) == 0
        assert (copied.end, copied.latest_epoch, copied.batches) == (50, 0, 10)
    assert content(copy / "orders-3") == data
    assert len(names(copy / "orders-3")) > 1
    assert clean(klog, copy)


def test_a_batch_that_fails_its_checksum_is_not_appended(copy: Path, klog: Klog) -> None:
    """Those before it are; the error names its offset, so that it can be asked for again."""
    good, bad = run([0, 5]), bytearray(made(10, 5))
    bad[-1] ^= 0xFF
    with open_copy(copy, "orders-3", SMALL) as (_, copied):
        with pytest.raises(CrcMismatchError, match="orders-3: batch 10: its checksum is 0x") as error:
            copied.append(good + bad + made(15, 5))
        assert (error.value.offset, error.value.taken, copied.end) == (10, len(good), 10)
        with pytest.raises(CrcMismatchError) as error:
            copied.append(bad)
        assert (error.value.offset, error.value.taken, copied.end) == (10, 0, 10)
        assert copied.append(made(10, 5)) == len(bad)
    assert content(copy / "orders-3") == run([0, 5, 10])
    assert clean(klog, copy)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (made(5, 5), "batch 5 of leader epoch 0 cannot follow: the log ends at 10"),
        (made(9, 5), "cannot follow"),
        (made(20, 5)[:-3] + b"abc", "checksum"),
        (bytes(100), "are not a batch"),
        (b"\xff" * 100, "are not a batch"),
        (made(10, 5)[:8] + b"\0\0\0\x10" + made(10, 5)[12:], "are not a batch"),
        (made(10, 5)[:16] + b"\x07" + made(10, 5)[17:], "are not a batch"),
    ],
)
def test_what_cannot_follow_is_refused(copy: Path, klog: Klog, wrong: bytes, why: str) -> None:
    """No bytes of a server, wrong or hostile, are appended unless they continue the log."""
    with open_copy(copy, "orders-3", SMALL) as (_, copied):
        copied.append(run([0, 5], epoch=0))
        with pytest.raises(DamagedError, match=why):
            copied.append(wrong)
        assert copied.end == 10
    assert content(copy / "orders-3") == run([0, 5])
    assert clean(klog, copy)


def test_leader_epochs_must_not_go_back(copy: Path) -> None:
    """A batch of an older epoch behind a newer one is another history."""
    with open_copy(copy, "orders-3", SMALL) as (_, copied):
        copied.append(made(0, 5, epoch=4))
        with pytest.raises(DamagedError, match="leader epoch 3 cannot follow: the log ends at 5, in leader epoch 4"):
            copied.append(made(5, 5, epoch=3))
        copied.append(made(5, 5, epoch=6))
        assert [tuple(entry) for entry in copied.epochs] == [(4, 0), (6, 5)]


def test_a_log_that_starts_inside_of_a_batch(copy: Path, klog: Klog) -> None:
    """DeleteRecords to 108 inside of 107 to 118: the segment is called 107, the log starts at 108."""
    with open_copy(copy, "orders-3", SMALL) as (_, copied):
        copied.skip_to(108)
        copied.move_start(108)
        assert (copied.end, copied.log_start) == (108, 108)
        copied.append(made(107, 12))
        copied.set_high_watermark(1000)
        assert (copied.end, copied.log_start, copied.high_watermark) == (119, 108, 119)
    assert names(copy / "orders-3") == [107]
    assert (copy / "log-start-offset-checkpoint").read_text() == "0\n1\norders 3 108\n"
    assert (copy / "replication-offset-checkpoint").read_text() == "0\n1\norders 3 119\n"
    with open_copy(copy, "orders-3", SMALL) as (_, copied):
        assert (copied.end, copied.log_start, copied.high_watermark) == (119, 108, 119)
    assert clean(klog, copy)


@pytest.mark.parametrize("reopened", [False, True])
def test_a_gap_begins_a_segment_and_keeps_the_older_ones(copy: Path, klog: Klog, reopened: bool) -> None:
    """The leader deleted 20 to 59 before they were copied: 0 to 19 are kept, and it continues with the batch that has
    60."""
    with open_copy(copy, "orders-3", SMALL) as (_, copied):
        copied.append(run([0, 5, 10, 15]))
        copied.skip_to(60)
        copied.move_start(60)
        assert copied.end == 60
        if not reopened:
            copied.append(made(58, 5))
    if reopened:
        assert names(copy / "orders-3")[-1] == 60
        with open_copy(copy, "orders-3", SMALL) as (_, copied):
            assert copied.end == 60
            with pytest.raises(DamagedError, match="batch 19 cannot follow: the log ends at 20"):
                copied.append(made(19, 50))
            copied.append(made(58, 5))
    assert names(copy / "orders-3")[-1] == 58
    assert 60 not in names(copy / "orders-3")
    assert content(copy / "orders-3") == run([0, 5, 10, 15, 58])
    assert clean(klog, copy)


def test_an_empty_copy_takes_a_batch_only_where_it_has_the_offset(copy: Path) -> None:
    """A batch below the offset that was asked for, without it, is an answer to something else."""
    with open_copy(copy, "orders-3", SMALL) as (_, copied):
        copied.skip_to(60)
        with pytest.raises(DamagedError, match="cannot follow"):
            copied.append(made(50, 5))
        assert copied.append(made(60, 5))


def test_pruning_takes_whole_segments_below_the_log_start(copy: Path, klog: Klog) -> None:
    """And nothing else; without it only the checkpoint moves."""
    with open_copy(copy, "orders-3", SMALL) as (_, copied):
        copied.append(run(range(0, 100, 5)))
        copied.move_start(52)
        before = names(copy / "orders-3")
        assert copied.prune() == sum(base <= 52 for base in before) - 1 > 0
        assert copied.prune() == 0
    kept = names(copy / "orders-3")
    assert kept == [base for base in before if base >= max(base for base in before if base <= 52)]
    assert content(copy / "orders-3") == run(range(kept[0], 100, 5))
    assert not [path for path in (copy / "orders-3").iterdir() if path.stem.isdigit() and int(path.stem) < kept[0]]
    assert clean(klog, copy)


@pytest.mark.parametrize("offset", [40, 43, 0, 25, 99, 100])
def test_a_cut_keeps_every_batch_in_the_backup(copy: Path, klog: Klog, offset: int) -> None:
    """Histories diverge at any offset: the cut part can be read, and restored while nothing follows."""
    whole = run(range(0, 50, 5), epoch=0) + run(range(50, 100, 5), epoch=1)
    with open_copy(copy, "orders-3", SMALL) as (_, copied):
        copied.append(whole)
        copied.set_high_watermark(100)
    before = content(copy / "orders-3")
    with open_copy(copy, "orders-3", SMALL) as (_, copied):
        backup = copied.cut(offset)
        end = offset // 5 * 5
        assert copied.end == end
        assert copied.high_watermark == end
        assert copied.latest_epoch == (1 if end > 50 else 0 if end else -1)
    assert content(copy / "orders-3") == run(range(0, min(end, 50), 5)) + run(range(50, end, 5), epoch=1)
    assert clean(klog, copy)
    if offset == 100:
        assert backup is None
        return
    assert backup is not None
    assert os.path.basename(backup) in klog("plans", copy).stdout.decode()
    undone = klog("undo", backup, "--apply")
    assert undone.exit_code == 0, undone.stderr
    assert content(copy / "orders-3") == before
    assert clean(klog, copy)


def test_after_a_cut_the_other_history_goes_on(copy: Path, klog: Klog) -> None:
    """In the same run, as it does after an unclean election; then the cut can no longer be taken back blindly."""
    with open_copy(copy, "orders-3", SMALL) as (_, copied):
        copied.append(run(range(0, 60, 5)))
        backup = copied.cut(20)
        copied.append(run(range(20, 40, 5), epoch=2))
        assert (copied.end, copied.latest_epoch) == (40, 2)
        copied.set_high_watermark(40)
    assert content(copy / "orders-3") == run(range(0, 20, 5)) + run(range(20, 40, 5), epoch=2)
    assert clean(klog, copy)
    assert backup is not None
    assert klog("undo", backup, "--apply").exit_code == 8


def test_a_topic_that_was_made_anew_begins_anew(copy: Path, klog: Klog) -> None:
    """The files of the old one are in the backup, all of them."""
    with open_copy(copy, "orders-3", SMALL) as (opened, copied):
        copied.append(run(range(0, 60, 5)))
        copied.set_high_watermark(60)
        copied.move_start(7)
        other = opened.partition("orders", 4, TOPIC_ID, SMALL)
        other.append(made(0, 5))
    before = {path.name: path.read_bytes() for path in (copy / "orders-3").iterdir()}
    with CopyDir(str(copy)) as opened:
        opened.claim(CLUSTER, "broker:9092")
        copied = opened.partition("orders", 3, OTHER_ID, SMALL)
        assert copied.topic_id == TOPIC_ID
        backup = copied.replace(OTHER_ID)
        assert backup is not None
        assert (copied.topic_id, copied.end, copied.log_start, copied.high_watermark) == (OTHER_ID, 0, 0, 0)
        copied.append(made(0, 3))
    assert content(copy / "orders-3") == made(0, 3)
    assert Partition(str(copy / "orders-3")).topic_id == OTHER_ID
    kept = {path.name: path.read_bytes() for path in (Path(backup) / "originals" / "orders-3").iterdir()}
    assert kept == before
    assert [one.directory for one in LogDir(str(copy)).partitions] == ["orders-3", "orders-4"]
    assert clean(klog, copy)


def test_partitions_without_anything_are_as_a_broker_leaves_them(copy: Path, klog: Klog) -> None:
    """Else a topic's empty partitions would be missing from the copy."""
    with open_copy(copy, "orders-3", SMALL) as (opened, copied):
        assert (copied.end, copied.latest_epoch, copied.epochs) == (0, -1, [])
        assert opened.partition("orders", 3, TOPIC_ID, SMALL) is copied
        assert opened.names() == [("orders", 3)]
    base = f"{0:020}"
    there = sorted(path.name for path in (copy / "orders-3").iterdir())
    assert there == [f"{base}.index", f"{base}.log", f"{base}.timeindex", "partition.metadata"]
    assert clean(klog, copy)
