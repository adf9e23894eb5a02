"""Logs put together from pieces: no byte of a patch gets lost at a seam, and what cannot be read is never left out."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from klog.base.errors import UnreadableError
from klog.base.read_only import ReadOnlyFile
from klog.change.partition_plan.contents import FileRange, PatchedLog, SplicedLog
from klog.commands.recover import salvage
from klog.kernel import Window
from klog.log.bit_flips import Patch
from klog.log.reader import LogReader

from tests.conftest import Ran
from tests.partition.verify.partitions import Damageable, flipped
from tests.support.bad_sectors import spoil
from tests.support.power import tree

DATA = Random(1).randbytes(100)
PATCHES = [Patch(at, DATA[at : at + size], b"\xaa" * size, "") for at, size in ((0, 8), (20, 1), (40, 8), (92, 8))]
PIECES = [
    FileRange("a", 3, 45),
    FileRange("b", 10, 11),
    FileRange("a", 45, 50),
    FileRange("b", 60, 60),
    FileRange("b", 0, 100),
]


def righted() -> bytes:
    data = bytearray(DATA)
    for patch in PATCHES:
        data[patch.position : patch.position + len(patch.new)] = patch.new
    return bytes(data)


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Two files of the same content, one of which will be repaired."""
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(DATA)
    return str(tmp_path)


def spliced(folder: str) -> SplicedLog:
    return SplicedLog(folder, "log", PIECES, {"a": PATCHES[::-1]})


def both_ways(source: ReadOnlyFile, start: int, size: int) -> bytes:
    """Return the result of a read, and ensure that reading into memory gives the same."""
    data, view = source.read(start, size), bytearray(size)
    count = source.read_into(start, memoryview(view))
    assert view[:count] == data
    assert view[count:] == bytes(size - count)
    return data


def test_patches_are_made_wherever_a_read_begins_and_ends(folder: str) -> None:
    with ReadOnlyFile(os.path.join(folder, "a")) as source:
        log = PatchedLog(source, PATCHES[::-1])
        for start in range(102):
            for size in (0, 1, 2, 3, 7, 8, 9, 13, 50, 101):
                assert both_ways(log, start, size) == righted()[start : start + size], (start, size)


def test_pieces_stand_one_behind_the_other(folder: str) -> None:
    expected = righted()[3:45] + DATA[10:11] + righted()[45:50] + DATA
    with spliced(folder) as log:
        assert log.size == len(expected)
        for start in range(len(expected) + 2):
            for size in (0, 1, 2, 8, 43, 60, 200):
                assert both_ways(log, start, size) == expected[start : start + size], (start, size)


@pytest.mark.parametrize("size", [49, 30, 0])
def test_a_file_that_has_shrunk_is_no_end(folder: str, size: int) -> None:
    """Otherwise the kept part would lose its end on the way to its new file, unnoticed."""
    with spliced(folder) as log:
        os.truncate(os.path.join(folder, "a"), size)
        for read in (lambda: log.read(0, 200), lambda: log.read_into(0, memoryview(bytearray(200)))):
            with pytest.raises(UnreadableError, match=f"a @ {max(size, 3)}: the file has shrunk"):
                read()
        assert log.read(48, 100) == DATA  # the other one is as it was


def test_a_sector_that_cannot_be_read_is_no_damage(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A walk over a log skips an unreadable part; a kept part cannot be left out like that."""
    with spliced(folder) as log:
        spoil(monkeypatch, range(44, 45))
        assert log.read(0, 41) == righted()[3:44]
        with pytest.raises(UnreadableError, match="a @ 3: cannot read: Input/output error"):
            log.read(0, 200)
        with pytest.raises(UnreadableError):
            LogReader(log).next(Window(1, 1, 1))


def test_files_are_closed_when_one_of_them_is_not_there(folder: str) -> None:
    there = os.listdir("/proc/self/fd")
    with pytest.raises(UnreadableError):
        SplicedLog(folder, "log", [FileRange("a", 0, 1), FileRange("c", 0, 1)], {})
    assert os.listdir("/proc/self/fd") == there


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize(
    ("moment", "change"),
    [
        ("_Salvage", flipped(5000)),
        ("_Salvage", flipped(659 + 8)),
        ("_Salvage", lambda log: log[:-1000]),
        ("draft_changes", lambda log: log[:-1000]),
    ],
    ids=["other bytes", "another length", "shorter", "shorter while it is copied"],
)
def test_a_log_that_changes_while_it_is_salvaged_costs_its_partition_and_no_other(
    tmp_path: Path,
    klog: Callable[..., Ran],
    monkeypatch: pytest.MonkeyPatch,
    moment: str,
    change: Callable[[bytes], bytes],
) -> None:
    """Between the passes: an index made of half a log, or half a log put in its place, would be an unreported loss."""
    damageable = Damageable(tmp_path / "data", "idempotent-0", "zstd-0")
    log, other = f"idempotent-0/{375:020}.log", f"zstd-0/{0:020}.log"
    for name in (log, other):
        damageable.change(name, flipped(100))
    real = getattr(salvage, moment)
    changed: list[dict[str, object]] = []

    def at_this_moment(*arguments: Any) -> object:
        partition = arguments[1] if moment == "draft_changes" else arguments[0].original
        if "idempotent-0" in str(partition.path) and not changed:
            damageable.change(log, change)
            changed.append(tree(damageable.path / "idempotent-0"))
        return real(*arguments)

    monkeypatch.setattr(salvage, moment, at_this_moment)
    done = klog("recover", "--salvage", damageable.path, "--apply", "--output", "json")
    said = json.loads(done.stdout)
    assert done.exit_code & 8
    assert changed == [tree(damageable.path / "idempotent-0")]
    assert {one["file"].split("/")[0] for one in said["actions"]} >= {"zstd-0"}
    assert not any(one["file"].startswith("idempotent-0/") for one in said["actions"])
