"""The removal of tombstones and markers: to the millisecond, and never before their data."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from tests.commands.compact.compacting import NOW_MS
from tests.commands.compact.logs import RETENTION_MS, T_MS, Log, Segment, log_of
from tests.commands.compact.test_properties import compacted
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record

horizons = pytest.mark.parametrize(
    ("horizon_ms", "stays"), [(NOW_MS - 1, False), (NOW_MS, False), (NOW_MS + 1, True), (None, True)]
)


def marker(offset: int, horizon_ms: int | None) -> bytes:
    end = Record(offset, T_MS, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 0))
    producer = (8, 0, -1)
    return encode.batch([end], transactional=True, control=True, producer=producer, delete_horizon_ms=horizon_ms)


def log(*batches: bytes) -> Log:
    """A sealed segment of these, with one more behind them, and the active one."""
    last = encode.batch([Record(10, T_MS, b"last", b"v")])
    return Log([Segment(0, [*batches, last]), Segment(11, [encode.batch([Record(11, T_MS, b"active", b"v")])])])


@horizons
def test_a_marker_without_data_goes_at_its_horizon(horizon_ms: int | None, stays: bool, tmp_path: Path) -> None:
    """And gets one where it has none: the next compaction but one may take it away."""
    # Its producer has continued since, otherwise the marker alone would keep the producer's state.
    on = encode.batch([Record(1, T_MS, b"k", b"v")], producer=(8, 0, 5))
    data = log(marker(0, horizon_ms), on).write(tmp_path / "data")
    compacted(data)
    left = [batch for batch in log_of(data) if batch.control]
    assert len(left) == stays
    for batch in left:
        assert batch.delete_horizon_ms == (horizon_ms or NOW_MS + RETENTION_MS)


@horizons
def test_a_marker_stays_as_it_is_while_there_is_data_of_its_transaction(
    horizon_ms: int | None, stays: bool, tmp_path: Path
) -> None:
    """Otherwise a consumer treats committed records as still open."""
    written = encode.batch([Record(0, T_MS, b"k", b"v")], producer=(8, 0, 0), transactional=True)
    data = log(written, marker(1, horizon_ms)).write(tmp_path / "data")
    compacted(data)
    assert [batch.delete_horizon_ms for batch in log_of(data) if batch.control] == [horizon_ms]


@horizons
def test_a_tombstone_goes_at_its_horizon(horizon_ms: int | None, stays: bool, tmp_path: Path) -> None:
    tombstone = encode.batch([Record(0, T_MS, b"k"), Record(1, T_MS, b"l", b"v")], delete_horizon_ms=horizon_ms)
    data = log(tombstone).write(tmp_path / "data")
    compacted(data)
    first = log_of(data)[0]
    assert [record.offset for record in first.records] == ([0, 1] if stays else [1])
    # Once it is there it stays, also when no tombstone is left.
    assert first.delete_horizon_ms == (horizon_ms or NOW_MS + RETENTION_MS)
    assert [record.timestamp for record in first.records] == [T_MS] * len(first.records)
