"""The end of Kafka's dump tool's output, in its own words and order."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest
from klog.commands.dump.reports import DumpReports, OffsetGaps, absolute, shown


def test_paths_are_shown_as_java_shows_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Doubled slashes folded, nothing else resolved."""
    monkeypatch.chdir(tmp_path)
    for path, as_shown in (
        ("a//b///c.log", "a/b/c.log"),
        ("/a/b/", "/a/b"),
        ("//", "/"),
        ("./../x.log", "./../x.log"),
        ("/", "/"),
        ("", ""),
    ):
        assert shown(path) == as_shown
    assert absolute("x//y.log") == f"{tmp_path}/x/y.log"
    assert absolute("./x.log") == f"{tmp_path}/./x.log"
    assert absolute("//x/../y.log") == "/x/../y.log"


def test_each_section_is_worded_and_ordered_as_by_kafka() -> None:
    """Offset mismatches descend, one a line for each index offset; the others stay as they were found."""
    reports = DumpReports(
        mismatches={"/a.index": [(5, 6), (9, 8), (5, 7)]},
        timestamp_mismatches={"/a.timeindex": [(100, 200), (50, 60)]},
        out_of_order={"/a.timeindex": [(5, 10)]},
        not_found={"/a.timeindex": [(7, -1), (3, 2)]},
        gaps={"/a.log": [(1, 3), (7, 9)]},
    )
    assert list(reports.lines()) == [
        "Mismatches in :/a.index",
        "  Index offset: 9, log offset: 8",
        "  Index offset: 5, log offset: 7",
        "Found timestamp mismatch in :/a.timeindex",
        "  Index timestamp: 100, log timestamp: 200",
        "  Index timestamp: 50, log timestamp: 60",
        "Found out of order timestamp in :/a.timeindex",
        "  Index timestamp: 5, Previously indexed timestamp: 10",
        "The following indexed offsets are not found in :/a.timeindex",
        "Indexed offset: 7, found log offset: -1",
        "Indexed offset: 3, found log offset: 2",
        "Non-consecutive offsets in /a.log",
        "  1 is followed by 3",
        "  7 is followed by 9",
    ]


def test_gaps_are_no_disagreement_and_everything_else_is() -> None:
    """A compacted topic has gaps and is whole: exit code 0."""
    pair = [(1, 2)]
    assert not DumpReports().disagreement
    assert not DumpReports(gaps={"f": pair}).disagreement
    assert list(DumpReports().lines()) == []
    for found in (
        DumpReports(mismatches={"f": pair}),
        DumpReports(timestamp_mismatches={"f": pair}),
        DumpReports(out_of_order={"f": pair}),
        DumpReports(not_found={"f": pair}),
    ):
        assert found.disagreement


def test_gaps_that_do_not_ascend_are_kept_once_and_not_without_end() -> None:
    """A batch that unpacks from nothing had one for each of eighteen million records, and memory for all of them."""
    same, descending = OffsetGaps(), OffsetGaps()
    for at in range(40):
        same.add(0, 0, array("q", [0, 0] * 100_000).tobytes())
        first = 4_000_000 - at * 100_000
        numbers = (number for offset in range(first, first - 100_000, -1) for number in (offset, offset - 1))
        descending.add(first, first - 100_000, array("q", numbers).tobytes())
    assert len(same) <= 3 << 20
    assert set(same) == {(0, 0)}
    assert 1 << 20 <= len(descending) <= 3 << 20


def test_gaps_that_ascend_are_all_kept() -> None:
    """A compacted log may have a gap before each record."""
    gaps = OffsetGaps(last=0)
    for first in range(1, 3_000_000, 100_000):
        pairs = array("q", (number for at in range(first, first + 99_999) for number in (2 * at, 2 * at + 2)))
        gaps.add(2 * first, 2 * first + 199_998, pairs.tobytes())
    assert len(gaps) >= 2_999_900
    lines = DumpReports(gaps={"/a.log": gaps}).lines()
    assert next(lines) == "Non-consecutive offsets in /a.log"
    assert sum(1 for _ in lines) == len(gaps)
