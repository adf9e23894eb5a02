"""Deletions in compacted copies: a cleaner's removal is no loss, and a deletion that a copy never had is one."""

from __future__ import annotations

from pathlib import Path

import pytest
from klog.commands.replicas.batch_comparison import ComparedCopy
from klog.commands.replicas.compacted import CompactedComparison
from klog.data_dir.partition import Partition

from tests.oracles.plain.encode import Record, batch, marker

KEEP, GONE = b"value", None
Row = tuple[int, bytes, bytes | None]


def copy(folder: Path, node: int, log: list[Row | bytes], log_start: int = 0) -> ComparedCopy:
    """Write a copy: a batch for each of *log*, a record or bytes as they are."""
    place = folder / str(node) / "t-0"
    place.mkdir(parents=True)
    content = [one if isinstance(one, bytes) else batch([Record(one[0], 1, one[1], one[2])]) for one in log]
    (place / f"{0:020}.log").write_bytes(b"".join(content))
    return ComparedCopy(node, Partition(str(place)), log_start, 100)


def lost(
    folder: Path, one: list[Row | bytes], other: list[Row | bytes], cleaned: int = 90, log_start: int = 0
) -> object:
    """Return the offsets that are lost if node 2, which has *other* and is cleaned up to *cleaned*, leads."""
    copies = [copy(folder, 1, one), copy(folder, 2, other, log_start)]
    found = CompactedComparison(copies, 0, {1: 0, 2: cleaned}).run()
    return [offset for first, last in found.facts[2].lost.ranges for offset in range(first, last + 1)]


def ended(offset: int, commit: bool) -> bytes:
    """Return the marker of producer 7."""
    return marker(offset, commit=commit, timestamp=1, producer_id=7, producer_epoch=0, coordinator_epoch=0)


TAIL: Row = (99, b"tail", KEEP)
CASES: dict[str, tuple[list[Row | bytes], list[Row | bytes], list[int]]] = {
    "the key is alive without it": ([(10, b"k", KEEP), (50, b"k", GONE), TAIL], [(10, b"k", KEEP), TAIL], [50]),
    "another value is alive without it": ([(50, b"k", GONE), TAIL], [(40, b"k", b"older"), TAIL], [50]),
    "the copy has no record of the key": ([(50, b"k", GONE), TAIL], [(20, b"x", KEEP), TAIL], []),
    "an older tombstone is left": ([(10, b"k", GONE), (50, b"k", GONE), TAIL], [(10, b"k", GONE), TAIL], []),
    "a later record of the key": ([(50, b"k", GONE), TAIL], [(60, b"k", KEEP), TAIL], []),
    "one key of two": (
        [(10, b"a", KEEP), (20, b"b", KEEP), (50, b"a", GONE), (51, b"b", GONE), TAIL],
        [(10, b"a", KEEP), (70, b"b", KEEP), TAIL],
        [50],
    ),
    "the record went with its deletion": ([(10, b"k", KEEP), (50, b"k", GONE), TAIL], [TAIL], []),
    "two records went with their deletion": (
        [(10, b"k", KEEP), (20, b"k", b"w"), (50, b"k", GONE), TAIL],
        [(30, b"x", KEEP), TAIL],
        [],
    ),
    "no deletion took the record": ([(10, b"k", KEEP), (20, b"x", GONE), TAIL], [TAIL], [10]),
    "the deletion is behind the cleaner": ([(10, b"k", KEEP), (95, b"k", GONE), TAIL], [TAIL], [10, 95]),
    "it was written again behind the cleaner": (
        [(10, b"k", KEEP), (50, b"k", GONE), (95, b"k", b"w"), TAIL],
        [TAIL],
        [95],
    ),
    "what would be alive was aborted": (
        [(50, b"k", GONE), TAIL],
        [
            batch([Record(10, 1, b"k", KEEP)], transactional=True, producer=(7, 0, 0)),
            ended(11, False),
            TAIL,
        ],
        [],
    ),
    "what came later was aborted": (
        [(10, b"k", KEEP), TAIL],
        [
            batch([Record(60, 1, b"k", KEEP)], transactional=True, producer=(7, 0, 0)),
            ended(61, False),
            TAIL,
        ],
        [10],
    ),
    "what is alive was committed": (
        [(50, b"k", GONE), TAIL],
        [
            batch([Record(10, 1, b"k", KEEP)], transactional=True, producer=(7, 0, 0)),
            ended(11, True),
            TAIL,
        ],
        [50],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_deletion_is_explained_only_where_the_key_is_not_alive(case: str, tmp_path: Path) -> None:
    one, other, wanted = CASES[case]
    assert lost(tmp_path, one, other) == wanted


@pytest.mark.parametrize(("cleaned", "wanted"), [(51, []), (50, [50]), (0, [50])])
def test_only_where_the_cleaner_has_been_a_deletion_may_be_missing(
    cleaned: int, wanted: list[int], tmp_path: Path
) -> None:
    assert lost(tmp_path, [(50, b"k", GONE), TAIL], [(20, b"x", KEEP), TAIL], cleaned) == wanted


def test_a_record_below_the_log_start_keeps_no_key_alive(tmp_path: Path) -> None:
    """Its bytes are there, and no consumer gets it."""
    one: list[Row | bytes] = [(50, b"k", GONE), TAIL]
    assert lost(tmp_path, one, [(10, b"k", KEEP), (20, b"x", KEEP), TAIL], log_start=15) == []


def test_both_directions_are_told_in_one_pass(tmp_path: Path) -> None:
    """Each of two forks has a deletion of a key that is alive in the other."""
    common: list[Row | bytes] = [(10, b"a", KEEP), (20, b"b", KEEP)]
    copies = [
        copy(tmp_path, 1, [*common, (50, b"a", GONE), TAIL]),
        copy(tmp_path, 2, [*common, (60, b"b", GONE), TAIL]),
    ]
    found = CompactedComparison(copies, 0, {1: 90, 2: 90}).run()
    assert {node: facts.lost.ranges for node, facts in found.facts.items()} == {1: [(60, 60)], 2: [(50, 50)]}
    assert {node: ranges.ranges for node, ranges in found.unexplained.items()} == {1: [(60, 60)], 2: [(50, 50)]}
