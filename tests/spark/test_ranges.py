"""From bounds to offsets: the start of the log, deleted and future records, and times."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from klog.base.errors import UsageError
from klog.data_dir.partition import Partition
from klog.formats.java_integers import LONG_MAX
from klog.spark.ranges import batch_ranges, hold_names_against
from klog.spark.source_options import read_options

from tests.oracles.plain.encode import Record
from tests.support.lookup_logs import MS, of_records, write_segment


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    """Offsets 100 to 199 in two segments, a millisecond each; those below 120 were deleted."""
    for base in (100, 150):
        groups = [[Record(base + 10 * i + j, MS + base + 10 * i + j, None, b"v") for j in range(10)] for i in range(5)]
        write_segment(tmp_path / "orders-0", base, of_records(groups), interval=100)
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\norders 0 120\n")
    return Partition(str(tmp_path / "orders-0"))


def bounds(partition: Partition, **options: object) -> tuple[int, int]:
    given = {name: json.dumps({"orders": {"0": value}}) for name, value in options.items() if type(value) is int}
    words = {name: value for name, value in options.items() if isinstance(value, str)}
    (found,) = batch_ranges([partition], read_options({"path": "/x"} | given | words))
    assert found.partition is partition
    return found[1:]


def test_earliest_is_the_start_of_the_log_not_of_the_file(partition: Partition) -> None:
    """Records that were deleted are still in the file, and no consumer is given them."""
    assert bounds(partition) == (120, LONG_MAX)
    assert bounds(partition, startingOffsets=-2, endingOffsets=-1) == (120, LONG_MAX)


def test_offsets_are_taken_as_they_are(partition: Partition) -> None:
    assert bounds(partition, startingOffsets=131, endingOffsets=155) == (131, 155)
    assert bounds(partition, startingOffsets=120, endingOffsets=200) == (120, 200)
    assert bounds(partition, startingOffsets=200) == (200, LONG_MAX)


@pytest.mark.parametrize(
    ("option", "offset"), [("startingOffsets", 119), ("startingOffsets", 201), ("endingOffsets", 201)]
)
def test_an_offset_that_is_not_there_is_data_loss(partition: Partition, option: str, offset: int) -> None:
    """A job that counts on these records must be informed that they are deleted, or missing yet."""
    with pytest.raises(
        UsageError, match=rf"{option}: offset {offset} of orders-0 is not there: its log is from 120 to 200"
    ):
        bounds(partition, **{option: offset})
    first, end = bounds(partition, failOnDataLoss="false", **{option: offset})
    assert first == max(120, offset) if option == "startingOffsets" else end == offset


def test_a_time_is_the_first_record_as_late(partition: Partition) -> None:
    """And from there on all records count, in the order of the log, as a consumer that seeks there gets them."""
    assert bounds(partition, startingTimestamp=str(MS + 157), endingTimestamp=str(MS + 170)) == (157, 170)
    assert bounds(partition, startingOffsetsByTimestamp=MS + 157, endingOffsetsByTimestamp=MS + 9999) == (157, LONG_MAX)
    assert bounds(partition, startingTimestamp=str(MS)) == (120, LONG_MAX)


def test_where_nothing_is_as_late_that_is_said_or_the_end_meant(partition: Partition) -> None:
    late = str(MS + 200)
    with pytest.raises(UsageError, match=f"nothing in orders-0 is as late as {late}"):
        bounds(partition, startingTimestamp=late)
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert bounds(partition, startingTimestamp=late, **latest) == (200, LONG_MAX)


def test_a_partition_without_a_segment_has_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()
    options = read_options({"path": "/x", "startingTimestamp": "5"})
    assert batch_ranges([Partition(str(tmp_path / "orders-0"))], options) == []


def test_a_partition_that_cannot_be_listed_is_read_to_say_so(tmp_path: Path) -> None:
    """Left out, it would look as empty as one that never had a record."""
    for options in ({}, {"startingTimestamp": "5"}, {"startingOffsets": json.dumps({"orders": {"0": 7}})}):
        (found,) = batch_ranges([Partition(str(tmp_path / "orders-0"))], read_options({"path": "/x"} | options))
        assert found.to_offset == LONG_MAX


def test_a_name_that_is_not_here_is_a_mistake(partition: Partition) -> None:
    """As in Spark's own source: offsets of a partition that is not read would be ignored in silence."""
    options = read_options({"path": "/x", "startingOffsets": json.dumps({"orders": {"0": 1, "7": 1}})})
    with pytest.raises(UsageError, match="startingOffsets: no partition orders-7 is read here"):
        hold_names_against((options.starting, options.ending), [partition])
