"""Zeros at the end of a log are room, unless there is evidence of records there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from klog.data_dir.partition import Partition
from klog.data_dir.zeroed_tail import is_preallocated_tail
from klog.formats.checkpoint import OffsetEntry, write_offsets
from klog.formats.damage import Damage, DamageKind
from klog.formats.index import OFFSET_ENTRY
from klog.log.segment import Segment

from tests.support.lookup_logs import batches_of, write_segment

Proof = Callable[[Path], object]


def damage_at_the_end(folder: Path, base: int = 0) -> Damage:
    log = folder / f"{base:020}.log"
    (found,) = [one for one in Segment(str(log)).batches() if isinstance(one, Damage)]
    return found


def indexed(offset: int, position: int) -> Proof:
    return lambda log: log.with_suffix(".index").write_bytes(OFFSET_ENTRY.write(offset, position))


def snapshot(offset: int) -> Proof:
    return lambda log: (log.parent / f"{offset:020}.snapshot").write_bytes(b"")


def checkpointed(offset: int) -> Proof:
    content = write_offsets([OffsetEntry("t", 0, offset)])
    return lambda log: (log.parent.parent / "recovery-point-offset-checkpoint").write_bytes(content)


@pytest.mark.parametrize(
    ("zeros", "proof", "room"),
    [
        (4096, None, True),
        (17, None, True),
        (16, None, False),
        (4096, indexed(9, 2000), False),
        (4096, indexed(5, 1500), False),
        (4096, indexed(4, 1200), True),
        (4096, snapshot(10), False),
        (4096, snapshot(5), True),
        (4096, checkpointed(6), False),
        (4096, checkpointed(5), True),
    ],
)
def test_zeros_are_room_as_long_as_nothing_proves_more(
    tmp_path: Path, zeros: int, proof: Proof | None, room: bool
) -> None:
    """Five batches up to offset 4 and byte 1500; who counts as lost what never was makes people search for it."""
    log = write_segment(tmp_path / "t-0", 0, batches_of((i, i, 300) for i in range(5)))
    with log.open("ab") as file:
        file.write(bytes(zeros))
    if proof is not None:
        proof(log)
    partition, damage = Partition(str(tmp_path / "t-0")), damage_at_the_end(tmp_path / "t-0")
    assert (damage.place.position, damage.size) == (1500, zeros)
    assert is_preallocated_tail(partition, damage) is room
    assert not is_preallocated_tail(partition, damage._replace(kind=DamageKind.BAD_LENGTH))


def test_zeros_before_another_segment_are_none(tmp_path: Path) -> None:
    """Only the segment that is being written has room."""
    log = write_segment(tmp_path / "t-0", 0, batches_of((i, i, 300) for i in range(5)))
    with log.open("ab") as file:
        file.write(bytes(4096))
    write_segment(tmp_path / "t-0", 10, batches_of([(10, 10, 300)]))
    assert not is_preallocated_tail(Partition(str(tmp_path / "t-0")), damage_at_the_end(tmp_path / "t-0"))
