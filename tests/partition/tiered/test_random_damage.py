"""Random damage of objects in a tier: all intact records outside of it are read once, in order, and it is named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from klog.data_dir.partition import Partition
from klog.partition.tiered.mounts import MountRequest, mounted
from klog.tier.tier import open_tier

from tests.oracles.plain.decode import Batch, scan
from tests.partition.tiered.checks import records
from tests.support.samples import some_or_all
from tests.support.tiers import Situation, situation

pytestmark = pytest.mark.corpora

KINDS = ("log", "log", "log", "index", "timeindex", "txnindex", "snapshot", "leader_epoch_checkpoint")
HARM = ("missing", "cut", "bit", "zeros", "grown", "empty", "other")
CASES = 500
UNCHECKED = ((0, 8), (12, 16))
"""The bytes of a batch that no checksum covers: the base offset and the leader epoch."""


class Damage(NamedTuple):
    """The content of an object, None for a missing one, and the bytes that were lost: from … up to, not including."""

    content: bytes | None
    start: int
    end: int


def damaged(harm: str, content: bytes, other: bytes, draw: Random) -> Damage:
    size = len(content)
    at = draw.randrange(size) if size else 0
    if harm == "missing":
        return Damage(None, 0, size)
    if harm == "cut":
        return Damage(content[:at], at, size)
    if harm == "bit" and size:
        return Damage(content[:at] + bytes([content[at] ^ 1 << draw.randrange(8)]) + content[at + 1 :], at, at + 1)
    if harm == "zeros" and size:
        end = min(size, at + draw.randrange(1, 200))
        return Damage(content[:at] + bytes(end - at) + content[end:], at, end)
    if harm == "grown":
        return Damage(content + draw.randbytes(draw.randrange(1, 300)), size, size)
    if harm == "empty":
        return Damage(b"", 0, size)
    return Damage(other, 0, size)


def lost_offsets(content: bytes, damage: Damage) -> tuple[set[int], bool]:
    """The offsets of the batches that were hit, and whether a checksum shows it."""
    lost: set[int] = set()
    is_shown = damage.start < damage.end
    for batch in scan(content):
        assert isinstance(batch, Batch)
        start, end = batch.position, batch.position + batch.size
        if damage.start < end and start < damage.end:
            lost |= {*range(batch.base_offset, batch.last_offset + 1)}
            hit = range(max(damage.start, start) - start, min(damage.end, end) - start)
            if any(low <= at < high for at in (hit.start, hit.stop - 1) for low, high in UNCHECKED):
                is_shown = False
    return lost, is_shown


def read(found: Situation, tier: Path, partition: str, level: Any = "read_uncommitted") -> tuple[list[Any], list[Any]]:
    path = str(found.leader / partition)
    with mounted(MountRequest(open_tier(str(tier), "local"), [path])):
        return records(Partition(path), level)


@some_or_all
def test_all_records_outside_of_the_damage_are_read(image: Callable[[str], Path], tmp_path: Path, every: int) -> None:
    """A damaged index, snapshot or epoch file costs no record; damage of a log costs the batches that it hits."""
    found = situation(image, "house")
    tier = tmp_path / "tier"
    shutil.copytree(found.tier, tier)
    objects = sorted(one for one in tier.rglob("*.*") if one.is_file())
    for number in range(0, CASES, every):
        draw = Random(number)
        kind, harm = draw.choice(KINDS), draw.choice(HARM)
        mine = [one for one in objects if one.suffix == f".{kind}" and not one.parent.name.startswith(("kept", "off"))]
        target = draw.choice(mine)
        content, partition = target.read_bytes(), "-".join(target.parent.name.split("-")[:2])
        others = [one for one in mine if one.parent == target.parent and one != target]
        other = draw.choice(others).read_bytes() if others else b"?"
        damage = damaged(harm, content, other, draw)
        target.unlink() if damage.content is None else target.write_bytes(damage.content)
        try:
            rows, damages = read(found, tier, partition)
        finally:
            target.write_bytes(content)
        case = f"case {number}: {harm} of {target.name} of {partition}"
        lost, is_shown = lost_offsets(content, damage) if kind == "log" else (set(), False)
        theirs = [(*row[:4], row[5]) for row in found.clients[partition]["uncommitted"]]
        known = [row for row in rows if row[0] not in lost]
        assert [row[:4] for row in known] == [row[:4] for row in theirs if row[0] not in lost], case
        if is_shown:
            assert [row for row in rows if row in theirs] == rows, case
            shown = {row[0] for row in rows}
            if {row[0] for row in theirs if row[0] in lost} - shown:
                assert damages, case


@pytest.mark.parametrize("partition", ["tx-0"])
def test_aborted_records_are_left_out_without_their_index(
    image: Callable[[str], Path], tmp_path: Path, partition: str
) -> None:
    """A broker hands out aborted records where the transaction index is missing; klog reads the log for them."""
    found = situation(image, "house")
    tier = tmp_path / "tier"
    shutil.copytree(found.tier, tier)
    for one in tier.rglob("tx-0-*/*.txnindex"):
        one.unlink()
    rows, _ = read(found, tier, partition, "read_committed")
    assert [row[0] for row in rows] == found.clients[partition]["committed"]
