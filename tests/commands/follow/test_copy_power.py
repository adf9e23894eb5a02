"""A copy whose process dies, or whose disk loses power, at any call: a prefix of the appended data, and it
continues."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from klog.change.plan.model import BACKUPS
from klog.commands.follow.copied_partition import CopiedPartition
from klog.commands.follow.copy_dir import CopyDir
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.log_dir import LogDir
from klog.partition.verify.verify import log_dir_facts, verify_partition

from tests.commands.follow.feeding import CLUSTER, TOPIC_ID, whole_bytes
from tests.commands.follow.test_changes import OTHER_ID, SMALL, content, made, run
from tests.oracles.plain.encode import Record, batch
from tests.support.power import MODELS, DeadlyDisk, HastyDisk, KilledError, PowerCutDisk, PowerCutError
from tests.support.samples import some_or_all

MARKER = b"\0\0\0\0"


def aborted(first: int, producer: int, epoch: int) -> bytes:
    """Return a transaction that is aborted at once: a batch and its marker."""
    data = made(first, 3, epoch=epoch, transactional=True, producer=(producer, 0, 0))
    control = Record(first + 3, 1_700_000_000_000 + first + 3, MARKER, b"\0\0\0\0\0\1")
    return data + batch([control], leader_epoch=epoch, transactional=True, control=True, producer=(producer, 0, -1))


PIECES = [
    run([0, 5, 10]),
    run([15, 20], epoch=1) + aborted(25, 7, 1),
    run(range(29, 69, 5), epoch=1),
    run([69], epoch=3) + aborted(74, 8, 3) + run([78, 83], epoch=3),
]
"""The leader's answers; the segments of the copy are of 1000 bytes."""
WHOLE = b"".join(PIECES)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A disk, in memory where that is possible."""
    memory = Path("/dev/shm")
    found = Path(tempfile.mkdtemp(dir=memory)) if memory.is_dir() else tmp_path / "disk"
    found.mkdir(exist_ok=True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    yield found
    shutil.rmtree(found)


def opened(copy: CopyDir, number: int = 3) -> CopiedPartition:
    copy.claim(CLUSTER, "broker:9092")
    return copy.partition("orders", number, TOPIC_ID, SMALL)


def fill(data: Path, disk: Disk, flushed: Callable[[int], None] = lambda _: None) -> None:
    """Copy everything in two runs, with flushes, and a second partition beside it."""
    at = 0
    for pieces in (PIECES[:2], PIECES[2:]):
        with CopyDir(str(data), disk) as copy:
            copied, other = opened(copy), opened(copy, 4)
            other.append(made(other.end, 2))
            for piece in pieces:
                at += copied.append(piece)
                copied.set_high_watermark(copied.end)
                copy.flush()
                flushed(at)
            copied.move_start(12)


def go_on(data: Path, whole: bytes) -> None:
    """Check that a copy is a prefix of the appended data, and that it becomes the whole of it."""
    with CopyDir(str(data), HastyDisk()) as copy:
        copied, _ = opened(copy), opened(copy, 4)
        found = content(data / "orders-3")
        assert whole.startswith(found)
        assert whole_bytes(found) == len(found)
        copied.append(whole[len(found) :])
        copied.set_high_watermark(copied.end)
    assert content(data / "orders-3") == whole
    check(data)


def check(data: Path) -> None:
    """See that nothing is wrong with a log dir."""
    log_dir = LogDir(str(data))
    facts = log_dir_facts(log_dir)
    for partition in log_dir.partitions:
        assert [found.message for found in verify_partition(partition, facts).findings] == []


def restore(original: Path | None, root: Path) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    if original is not None:
        shutil.copytree(original, root / "data")
    return root / "data"


@some_or_all
@pytest.mark.parametrize("model", MODELS)
def test_power_may_go_at_any_call(folder: Path, model: str, every: int) -> None:
    """Flushed data is there, unflushed data may be, and nothing else is."""
    whole_run = PowerCutDisk(folder)
    flushes: list[tuple[int, int]] = []
    fill(folder / "data", whole_run, lambda at: flushes.append((len(whole_run.calls), at)))
    assert len(flushes) == len(PIECES)
    check(folder / "data")
    for at in range(0, len(whole_run.calls), every):
        data = restore(None, folder)
        disk = PowerCutDisk(folder, at)
        with pytest.raises(PowerCutError):
            fill(data, disk)
        disk.lose_power(model, Random(at))
        safe = max((size for calls, size in flushes if calls <= at), default=0)
        found = content(data / "orders-3")
        assert found[:safe] == WHOLE[:safe], f"call {at}: {whole_run.calls[at]}"
        go_on(data, WHOLE)


@some_or_all
def test_the_process_may_be_killed_at_any_call(folder: Path, every: int) -> None:
    """All written data is there then, though no checkpoint shows it."""
    fill(folder / "data", whole_run := DeadlyDisk(folder, 1 << 30))
    for at in range(0, len(whole_run.calls), every):
        data = restore(None, folder)
        with pytest.raises(KilledError):
            fill(data, DeadlyDisk(folder, at))
        go_on(data, WHOLE)


OLD = run(range(0, 50, 5)) + run(range(50, 100, 5), epoch=1)
NEW = run(range(0, 40, 5)) + run(range(40, 70, 5), epoch=2)
COMMON = len(run(range(0, 40, 5)))


def diverge(data: Path, disk: Disk) -> None:
    """Cut the records that a new leader does not have, and copy its own."""
    with CopyDir(str(data), disk) as copy:
        copied = opened(copy)
        if not NEW.startswith(content(data / "orders-3")):
            assert copied.cut(40) is not None
        copied.append(NEW[len(content(data / "orders-3")) :])
        copied.set_high_watermark(copied.end)


def make_anew(data: Path, disk: Disk) -> None:
    """Begin anew with a topic of another id."""
    with CopyDir(str(data), disk) as copy:
        copied = opened(copy)
        if copied.topic_id != OTHER_ID:
            assert copied.replace(OTHER_ID) is not None
        copied.append(NEW[len(content(data / "orders-3")) :])


def take_away(data: Path, disk: Disk) -> None:
    """Take the partition out of the copy, with its directory, and begin one of another topic in its place."""
    with CopyDir(str(data), disk) as copy:
        copy.claim(CLUSTER, "broker:9092")
        if ("orders", 3) in copy.names() and copy.topic_id("orders", 3) != OTHER_ID:
            copy.remove("orders", 3)
            assert not (data / "orders-3").exists()
        copied = copy.partition("orders", 3, OTHER_ID, SMALL)
        copied.append(NEW[len(content(data / "orders-3")) :])


@some_or_all
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("change", "common"), [(diverge, COMMON), (make_anew, 0), (take_away, 0)])
def test_power_may_go_while_a_history_is_put_aside(
    folder: Path, change: Callable[[Path, Disk], None], common: int, model: str, every: int
) -> None:
    """Then either all of the old is there, or the new; and each batch that was cut is in the backup."""
    with CopyDir(str(folder / "data"), HastyDisk()) as copy:
        opened(copy).append(OLD)
    original = folder.parent / f"{folder.name}-original"
    shutil.copytree(folder / "data", original)
    try:
        change(folder / "data", whole_run := PowerCutDisk(folder))
        for at in range(0, len(whole_run.calls), every):
            data = restore(original, folder)
            disk = PowerCutDisk(folder, at)
            with suppress(PowerCutError):
                change(data, disk)
            disk.lose_power(model, Random(at))
            change(data, HastyDisk())
            assert content(data / "orders-3") == NEW, f"call {at}: {whole_run.calls[at]}"
            check(data)
            kept = b"".join(path.read_bytes() for path in sorted((folder / BACKUPS).rglob("*.log")))
            position = common
            while position < len(OLD):
                size = whole_bytes(OLD[position : position + 400])
                one = OLD[position : position + 12 + int.from_bytes(OLD[position + 8 : position + 12], "big")]
                assert size
                assert one in kept
                position += len(one)
    finally:
        shutil.rmtree(original)


def prune(data: Path, disk: Disk, is_kept: bool) -> None:
    """Remove what lies wholly below the leader's log start, or move it to the backup."""
    with CopyDir(str(data), disk) as copy:
        copied = opened(copy)
        copied.move_start(52)
        if is_kept:
            copied.put_aside()
        else:
            copied.prune()


@some_or_all
@pytest.mark.parametrize("is_kept", [False, True])
@pytest.mark.parametrize("model", MODELS)
def test_power_may_go_while_segments_are_pruned(folder: Path, model: str, is_kept: bool, every: int) -> None:
    """The log starts at the leader's log start by then, and nothing above it is missing."""
    with CopyDir(str(folder / "data"), HastyDisk()) as copy:
        opened(copy).append(WHOLE)
    original = folder.parent / f"{folder.name}-original"
    shutil.copytree(folder / "data", original)
    try:
        prune(folder / "data", whole_run := PowerCutDisk(folder), is_kept)
        pruned = content(folder / "data" / "orders-3")
        assert 0 < len(pruned) < len(WHOLE)
        for at in range(0, len(whole_run.calls), every):
            data = restore(original, folder)
            disk = PowerCutDisk(folder, at)
            with suppress(PowerCutError):
                prune(data, disk, is_kept)
            disk.lose_power(model, Random(at))
            found = content(data / "orders-3")
            assert WHOLE.endswith(found)
            assert found.endswith(pruned)
            prune(data, HastyDisk(), is_kept)
            assert content(data / "orders-3") == pruned, f"call {at}: {whole_run.calls[at]}"
            kept = {path.name: path.read_bytes() for path in (folder / BACKUPS).rglob("originals/orders-3/*.log")}
            assert not is_kept or b"".join(kept[name] for name in sorted(kept)) + pruned == WHOLE
            check(data)
    finally:
        shutil.rmtree(original)
