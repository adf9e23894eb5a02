"""The records of an offset span are counted by headers as they are counted one by one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.batch import BatchFacts
from klog.formats.damage import Damage
from klog.log.segment import Segment
from klog.partition.retention.due_records import count_in
from klog.partition.start.record_tally import EVERYTHING, OffsetSpan, tally_records

from tests.conftest import FIXTURES
from tests.oracles.plain.encode import Record, batch


def headers(partition: Partition) -> Iterator[BatchFacts]:
    for files in partition.segments:
        for one in Segment(partition.file(files.log)).batches():
            if not isinstance(one, Damage):
                yield one


@pytest.mark.parametrize("name", ["modern", "legacy"])
def test_headers_tell_as_much_as_records(name: str) -> None:
    """Transactions, old formats and compacted logs; from their start on and from the middle of a batch."""
    counted = 0
    for partition in LogDir(str(FIXTURES / name)).partitions:
        if not partition.segments:
            continue
        first = partition.segments[0].base_offset
        for span in (OffsetSpan(first), OffsetSpan(first + 7, first + 60), OffsetSpan(first + 5, first + 5)):
            expected = tally_records(partition, span, EVERYTHING).records
            is_compacted = any(one.records_count <= one.last_offset - one.base_offset for one in headers(partition))
            found = count_in(partition)(span)
            assert found == expected or (is_compacted and found >= expected), (partition.path, span)
            counted += found
    assert counted > 1000


def test_a_log_of_two_formats_is_decoded(tmp_path: Path) -> None:
    """Messages before v2 have no count in their headers."""
    old = (FIXTURES / "legacy").glob("*/00000000000000000000.log")
    for number, log in enumerate(sorted(old)):
        path = tmp_path / f"t-{number}"
        path.mkdir()
        content = log.read_bytes()
        (path / log.name).write_bytes(batch([Record(0, 1), Record(1, 1)]) + content)
        (partition,) = [one for one in LogDir(str(tmp_path)).partitions if one.number == number]
        assert count_in(partition)(OffsetSpan()) == tally_records(partition, OffsetSpan(), EVERYTHING).records
