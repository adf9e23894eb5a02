"""The walk along headers: batches whose bodies lie beyond the window have a row, and their bodies are not read."""

from __future__ import annotations

import pytest
from klog.kernel import BAD_LENGTH, DONE, MORE, Window

from tests.kernel.windows import CODECS, loaded
from tests.oracles.plain import shapes
from tests.oracles.plain.encode import Record, batch, message
from tests.oracles.plain.shapes import MS

SMALL = batch([Record(0, MS, b"k", b"v")])
LARGE = batch([Record(1, MS + 5, b"k", bytes(5000)), Record(2, MS + 3, b"k", b"v")])
LAST = batch([Record(7, MS + 9, b"k", b"v")])
LOG = SMALL + LARGE + LAST


def walked(size: int, beyond: int | None = None) -> Window:
    """Return a window of the first *size* bytes of the log, scanned with the rest of it beyond."""
    window = loaded(LOG[:size])
    window.scan(0, False, len(LOG) - size if beyond is None else beyond)
    return window


@pytest.mark.parametrize("size", [len(SMALL) + 61, len(SMALL) + 100, len(SMALL) + len(LARGE) - 1])
def test_a_batch_counts_whose_header_is_in_the_window(size: int) -> None:
    window = walked(size)
    assert window.count == 2
    assert window.next_at == len(SMALL) + len(LARGE)
    facts = window.batch(1)
    assert (facts.base_offset, facts.last_offset, facts.max_timestamp) == (1, 2, MS + 5)


@pytest.mark.parametrize("size", [len(SMALL), len(SMALL) + 1, len(SMALL) + 17, len(SMALL) + 18, len(SMALL) + 60])
def test_a_batch_does_not_count_whose_header_is_cut(size: int) -> None:
    window = walked(size)
    assert (window.count, window.next_at) == (1, len(SMALL))


def test_a_body_beyond_the_file_is_no_batch() -> None:
    """A length is compared with what there is, window or not."""
    window = loaded(LOG[:200])
    assert window.scan(0, False, len(LARGE) - 1 - (200 - len(SMALL))) == MORE
    assert window.count == 1


def test_a_body_beyond_the_window_is_neither_checked_nor_decoded() -> None:
    """Its bytes are not there: reading them would be reading somebody else's memory."""
    window = walked(len(SMALL) + 100)
    assert window.check(0, 2) == 0
    assert [window.batch(i).crc_checked for i in range(2)] == [True, False]
    assert window.first_bad(0, 2) == 2
    assert window.decompress(0, 2, CODECS) == 2
    window.begin(0, 2)
    assert window.decode() == DONE
    assert [window.record(i)[0] for i in range(window.records)] == [0]
    assert not window.entry_holds(len(SMALL))
    with pytest.raises(IndexError):
        window.copy(len(SMALL), len(SMALL) + len(LARGE))


def test_without_a_rest_of_the_file_the_scan_is_what_it_was() -> None:
    for name, data in shapes.all_logs().items():
        for size in range(0, len(data), max(1, len(data) // 50)):
            plain, walking = loaded(data[:size]), loaded(data[:size])
            assert plain.scan(0) == walking.scan(0, False, 0), name
            assert (plain.count, plain.next_at) == (walking.count, walking.next_at)


@pytest.mark.parametrize("beyond", [-1, 2**62 + 1])
def test_an_absurd_rest_is_refused(beyond: int) -> None:
    with pytest.raises(IndexError):
        loaded(LOG).scan(0, False, beyond)


def test_small_messages_at_the_windows_end_count_whole() -> None:
    """A v0 message may be shorter than a header of v2."""
    data = message(0, 0, None, b"") + message(1, 1, None, b"x", timestamp=MS)
    window = loaded(data)
    assert window.scan(0, False, 1000) == DONE
    assert [window.batch(i).max_timestamp for i in range(window.count)] == [-1, MS]
    assert loaded(data[:-1]).scan(0, False, 1000) in (DONE, MORE)


def test_the_first_batch_to_reach_an_offset() -> None:
    window = walked(len(LOG), 0)
    assert [window.first_reaching(offset) for offset in (-1, 0, 1, 2, 3, 7, 8)] == [0, 0, 1, 1, 2, 2, 3]
    assert window.first_reaching(0, 2) == 2
    assert window.first_reaching(0, 3) == 3
    with pytest.raises(IndexError):
        window.first_reaching(0, 4)


def test_the_first_batch_that_is_as_late() -> None:
    window = walked(len(LOG), 0)
    assert [window.first_as_late(MS + late) for late in (-1, 0, 1, 5, 6, 9, 10)] == [0, 0, 1, 1, 2, 2, 3]
    assert window.first_as_late(0, 1) == 1
    assert (window.latest(), window.latest(3)) == (MS + 9, -1)
    with pytest.raises(IndexError):
        window.latest(4)


def test_the_row_of_a_place() -> None:
    window = walked(len(LOG), 0)
    places = (0, len(SMALL), len(SMALL) + len(LARGE))
    assert [window.row_at(place) for place in places] == [0, 1, 2]
    assert [window.row_at(place) for place in (-1, 1, len(SMALL) - 1, len(LOG), 2**40)] == [-1] * 5
    assert Window().row_at(0) == -1


def test_a_walk_stops_where_the_header_is_broken() -> None:
    broken = bytearray(LOG)
    broken[len(SMALL) + 8 : len(SMALL) + 12] = b"\0\0\0\5"
    window = loaded(bytes(broken))
    assert window.scan(0, False, 10**6) == BAD_LENGTH
    assert window.count == 1
