"""Which segments become one: each limit, to the byte; and what of aborted transactions reaches into a range."""

from __future__ import annotations

import pytest
from klog.commands.compact.cleaned_segments import CleanedTransactions, SourceSegment, aborted_between, between, grouped
from klog.log.index import AbortedTxn
from klog.partition.transactions.markers import Marker

FAR = 2**31 - 1


def source(
    base: int, size: int = 100, index: int = 8, times: int = 12, aborted: tuple[AbortedTxn, ...] = ()
) -> SourceSegment:
    return SourceSegment(base, f"{base:020}.log", size, 0, index, times, aborted, (base,))


def bases(groups: list[list[SourceSegment]]) -> list[list[int]]:
    return [[one.base for one in group] for group in groups]


@pytest.mark.parametrize(
    ("segment_bytes", "index_bytes", "wanted"),
    [
        (300, 1000, [[0, 10, 20]]),
        (299, 1000, [[0, 10], [20]]),
        (200, 1000, [[0, 10], [20]]),
        (50, 1000, [[0], [10], [20]]),
        (1000, 36, [[0, 10, 20]]),
        (1000, 35, [[0, 10], [20]]),
    ],
)
def test_segments_become_one_up_to_the_limits(segment_bytes: int, index_bytes: int, wanted: list[list[int]]) -> None:
    """A limit may be reached.  The limit of the time index is reached first, because its entries are larger."""
    assert bases(grouped([source(0), source(10), source(20)], segment_bytes, index_bytes, 30)) == wanted


def test_the_offset_index_has_its_own_limit() -> None:
    """A time index has fewer entries if timestamps do not increase."""
    segments = [source(0, index=80, times=12), source(10, index=80, times=12)]
    assert bases(grouped(segments, 1000, 160, 30)) == [[0, 10]]
    assert bases(grouped(segments, 1000, 159, 30)) == [[0], [10]]


@pytest.mark.parametrize(("end", "wanted"), [(FAR + 1, [[0, 10]]), (FAR + 2, [[0], [10]])])
def test_what_is_too_far_away_for_an_index_stays_apart(end: int, wanted: list[list[int]]) -> None:
    """An index has 31 bits for an offset; the base of the next segment shows how far one reaches."""
    assert bases(grouped([source(0), source(10)], 1000, 1000, end)) == wanted
    assert bases(grouped([source(0), source(10), source(end)], 1000, 1000, end + 5))[0] == wanted[0]


def test_an_empty_segment_reaches_nowhere() -> None:
    assert bases(grouped([source(0), source(10, size=0)], 1000, 1000, 2**40)) == [[0, 10]]


@pytest.mark.parametrize(
    ("start", "end", "wanted"),
    [
        (0, 30, [0, 10, 20]),
        (9, 10, [0]),
        (10, 11, [10]),
        (10, 21, [10, 20]),
        (10, 20, [10]),
        (25, 99, [20]),
        (5, 5, []),
    ],
)
def test_a_range_has_the_segments_that_hold_it(start: int, end: int, wanted: list[int]) -> None:
    assert [one.base for one in between([source(0), source(10), source(20)], start, end)] == (wanted or [0][: end > 0])


def test_aborted_transactions_of_a_range_are_found_as_far_as_they_may_reach() -> None:
    """Transactions that ended below the log's start are not included, nor those that begin behind the range."""
    one = AbortedTxn(0, 1, 2, 8, 9)
    other = AbortedTxn(0, 2, 12, 15, 12)
    third = AbortedTxn(0, 3, 19, 25, 26)
    segments = [source(0, aborted=(one,)), source(10, aborted=(other,)), source(20, aborted=(third,))]
    assert aborted_between(segments, 0, 0, 30) == [one, other, third]
    assert aborted_between(segments, 8, 0, 30) == [one, other, third]
    assert aborted_between(segments, 9, 0, 30) == [other, third]
    assert aborted_between(segments, 0, 10, 30) == [other, third]
    assert aborted_between(segments, 0, 0, 19) == [one, other]
    assert aborted_between(segments, 0, 0, 9) == [one], "what is stable at its end ends the search"
    assert aborted_between(segments, 0, 10, 13) == [other], "its last stable offset is below, the next begins above"


def test_an_empty_marker_is_nobodys() -> None:
    """A marker whose producer's state no longer needs it may be removed."""
    assert CleanedTransactions().control(7, 10, None).discardable


def test_the_marker_of_a_committed_transaction_stays_as_long_as_its_data() -> None:
    """Once: the next one of the same producer, which has no data, belongs to no transaction."""
    transactions, commit = CleanedTransactions(), Marker(False, 0, 1)
    assert not transactions.data(7, 10).discardable
    assert not transactions.control(7, 11, commit).discardable
    assert transactions.control(7, 12, commit).discardable
