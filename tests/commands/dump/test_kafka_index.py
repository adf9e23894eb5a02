"""The text of indexes and snapshots: what goldens from healthy brokers do not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands.dump.sinks import TEXT, DumpRequest, dump_file
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Producer, Record, batch
from tests.oracles.plain.shapes import MS


@pytest.fixture
def stem(tmp_path: Path) -> Path:
    """Three batches of a record each, two of them equally old."""
    path = tmp_path / f"{0:020}"
    log = [batch([Record(i, timestamp, None, b"v")]) for i, timestamp in enumerate((MS, MS + 5, MS + 5))]
    path.with_suffix(".log").write_bytes(b"".join(log))
    entries = [(i, i * len(log[0])) for i in (1, 2)]
    path.with_suffix(".index").write_bytes(encode.offset_entries(0, entries))
    return path


def test_entries_before_the_one_that_ends_the_tool_are_printed(stem: Path) -> None:
    """The lines that it had written by then are on the screen; the rest is a line for people."""
    path = stem.with_suffix(".index")
    path.write_bytes(path.read_bytes() + encode.offset_entries(0, [(3, 1 << 20)]))
    code, kept = dump_file(path, DumpRequest(output=TEXT))
    size = stem.with_suffix(".log").stat().st_size
    assert bytes(kept.data).decode().splitlines()[1:] == [
        f"offset: {offset} position: {offset * size // 3}" for offset in (1, 2)
    ]
    assert code == 4
    assert kept.reports == [f"{stem}.log: the index points to 1048576, outside the log's {size} bytes"]


def test_two_entries_of_one_timestamp_are_out_of_order(stem: Path) -> None:
    """A broker adds an entry only for a larger timestamp.  Kafka: DumpLogSegments.dumpTimeIndex."""
    path = stem.with_suffix(".timeindex")
    path.write_bytes(encode.time_entries(0, [(MS + 5, 1), (MS + 5, 2)]))
    code, kept = dump_file(path, DumpRequest(output=TEXT))
    assert code == 4
    assert kept.reports == [
        f"Found out of order timestamp in :{path}",
        f"  Index timestamp: {MS + 5}, Previously indexed timestamp: {MS + 5}",
    ]


def test_a_producer_whose_last_record_has_offset_0_has_one(tmp_path: Path) -> None:
    path = tmp_path / f"{1:020}.snapshot"
    path.write_bytes(encode.snapshot([Producer(7, 0, 0, 0, 0, MS), Producer(8, 1)]))
    code, kept = dump_file(path, DumpRequest(output=TEXT))
    first, second = bytes(kept.data).decode().splitlines()[1:]
    assert (code, kept.reports) == (0, [])
    assert first.endswith(f" firstSequence: 0 lastSequence: 0 lastOffset: 0 offsetDelta: 0 timestamp: {MS}")
    assert second.endswith(" lastTimestamp: -1")
