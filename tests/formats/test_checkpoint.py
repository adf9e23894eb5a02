"""The text files: a broker's reading, and the lines at which it would give up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from klog.formats.checkpoint import (
    Checkpoint,
    EpochEntry,
    Malformed,
    OffsetEntry,
    PartitionMetadata,
    epochs_in_force,
    offsets_by_partition,
    read_epochs,
    read_offsets,
    read_partition_metadata,
    write_epochs,
    write_offsets,
    write_partition_metadata,
)

from tests.conftest import FIXTURES

OFFSETS = (
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
ORDERS = OffsetEntry("orders", 3, 1841)


def malformed(content: bytes) -> Malformed:
    found = read_offsets(content).malformed
    assert found is not None
    return found


@pytest.mark.parametrize("content", [b"", b"0", b"0\n", b"0\n0\n", b"0\n0", b"+0\n0\n"])
def test_a_file_without_entries_is_valid(content: bytes) -> None:
    """Brokers create these files with 0 bytes, so that is no damage."""
    assert read_offsets(content) == Checkpoint()
    assert read_epochs(content).entries == ()
    assert read_epochs(content).malformed is None


@pytest.mark.parametrize(
    "content",
    [
        b"0\n1\norders 3 1841\n",
        b"0\n1\norders 3 1841",
        b"0\r\n1\r\norders 3 1841\r\n",
        b"0\r1\rorders 3 1841",
        b"0\n1\norders  3\t1841  \n",
        b"0\n+1\norders +3 0000000000000000000000001841\n",
        "0\n1\norders ٣ ١٨٤١\n".encode(),
    ],
)
def test_whatever_javas_reader_takes_is_read(content: bytes) -> None:
    assert read_offsets(content) == Checkpoint((ORDERS,))


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (b"x\n0\n", 1, "'x' is not a version"),
        (b"\n", 1, "'' is not a version"),
        (b"0 \n0\n", 1, "'0 ' is not a version"),
        (b"\xef\xbb\xbf0\n0\n", 1, "'\\ufeff0' is not a version"),
        (b"1\n0\n", 1, "version 1, expected 0"),
        (b"0\nmany\n", 2, "'many' is not a number of entries"),
        (b"0\n-1\n", 2, "'-1' is not a number of entries"),
        (b"0\n3\norders 3 1841\n", 2, "3 entries announced, 1 found"),
        (b"0\n0\norders 3 1841\n", 2, "0 entries announced, 1 found"),
        (b"0\n2147483647\n", 2, "2147483647 entries announced, 0 found"),
        (b"0\n1\n__t", 3, "'__t': 1 fields, expected topic, partition, offset"),
        (b"0\n1\n orders 3 1841\n", 3, "' orders 3 1841': 4 fields, expected topic, partition, offset"),
        (b"0\n1\norders 3 1841\n\n", 4, "'': 1 fields, expected topic, partition, offset"),
        (b"0\n1\norders\xc2\xa03 1841\n", 3, "'orders\\xa03 1841': 2 fields, expected topic, partition, offset"),
        (b"0\n1\norders 3 1_841\n", 3, "'orders 3 1_841': partition or offset is not a number"),
        (b"0\n1\norders 2147483648 0\n", 3, "'orders 2147483648 0': partition or offset is not a number"),
        (
            b"0\n1\norders 3 9223372036854775808\n",
            3,
            "'orders 3 9223372036854775808': partition or offset is not a number",
        ),
        (b"0\n1\nor\xffders 3 0\n", 3, "byte 0xff is not UTF-8"),
    ],
)
def test_what_a_broker_refuses_is_said_with_its_line(content: bytes, line: int, reason: str) -> None:
    """Such a file takes the whole log dir offline, so the operator needs the line and not a stack trace."""
    assert malformed(content) == Malformed(line, reason)
    assert str(Malformed(line, reason)) == f"line {line}: {reason}"


def test_entries_in_front_of_a_bad_line_are_kept_for_people_but_count_for_nothing() -> None:
    found = read_offsets(b"0\n2\norders 3 1841\norders\n")
    assert found.entries == (ORDERS,)
    assert offsets_by_partition(found) == {}


def test_an_entry_without_a_topic_is_read_as_java_does() -> None:
    """One blank in front of two numbers makes three fields, the first empty."""
    assert read_offsets(b"0\n1\n 3 1841\n").entries == (OffsetEntry("", 3, 1841),)


def test_the_last_of_two_lines_for_a_partition_counts() -> None:
    assert offsets_by_partition(read_offsets(b"0\n2\norders 3 1\norders 3 1841\n")) == {("orders", 3): 1841}


def test_lines_that_nobody_wants_are_checked_and_not_kept() -> None:
    """A million lines about other partitions cost time alone; one of them that is malformed refuses the file."""
    content = b"0\n3\ntx 0 7\norders 3 1841\ntx 1 9\n"
    assert read_offsets(content, {("orders", 3)}) == Checkpoint((ORDERS,))
    assert read_offsets(content.replace(b"\n3\n", b"\n2\n"), {("orders", 3)}).malformed is not None
    assert read_offsets(content.replace(b"tx 1 9", b"tx 1"), {("orders", 3)}).malformed is not None


def test_a_flood_of_garbage_makes_a_short_message() -> None:
    assert len(malformed(b"0\n1\n" + b"x" * 1_000_000).reason) < 150


def test_offsets_are_written_as_brokers_write_them() -> None:
    entries = (ORDERS, OffsetEntry("tx", 0, 0))
    assert write_offsets(entries) == b"0\n2\norders 3 1841\ntx 0 0\n"
    assert read_offsets(write_offsets(entries)).entries == entries
    assert write_offsets(()) == b"0\n0\n"


def test_epochs_are_read_and_written() -> None:
    entries = (EpochEntry(3, 0), EpochEntry(7, 1541))
    assert write_epochs(entries) == b"0\n2\n3 0\n7 1541\n"
    assert read_epochs(b"0\n2\n3 0\n7 1541\n") == Checkpoint(entries)


@pytest.mark.parametrize("line", [b"-1 0", b"0 -1"])
def test_a_negative_epoch_or_offset_is_malformed(line: bytes) -> None:
    """The line reads well, but the broker's epoch cache refuses it and the log is not loaded."""
    found = read_epochs(b"0\n2\n0 0\n" + line + b"\n")
    assert found.entries == (EpochEntry(0, 0),)
    assert found.malformed is not None
    assert found.malformed.line == 4


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ([(0, 0), (1, 100)], [(0, 0), (1, 100)]),
        ([(0, 0), (2, 60), (4, 50)], [(0, 0), (4, 50)]),
        ([(3, 10), (1, 20)], [(1, 20)]),
        ([(1, 10), (1, 20)], [(1, 10)]),
        ([(1, 10), (1, 5)], [(1, 5)]),
        ([(0, 0), (1, 10), (2, 10)], [(0, 0), (2, 10)]),
        ([(0, 0), (5, 50), (6, 60), (2, 70)], [(0, 0), (2, 70)]),
    ],
)
def test_a_later_epoch_drops_those_that_contradict_it(
    given: list[tuple[int, int]], kept: list[tuple[int, int]]
) -> None:
    assert epochs_in_force(EpochEntry(*entry) for entry in given) == kept


def test_partition_metadata_is_read_and_written() -> None:
    content = b"version: 0\ntopic_id: rJv2bIYmQBmpTVV5UtZBLw"
    assert read_partition_metadata(content) == PartitionMetadata(0, "rJv2bIYmQBmpTVV5UtZBLw")
    assert write_partition_metadata("rJv2bIYmQBmpTVV5UtZBLw") == content


@pytest.mark.parametrize(
    "content",
    [
        b"version: 0\ntopic_id: rJv2bIYmQBmpTVV5UtZBLw==\nmore: of it\n",
        b"v: \t 0\r\n: rJv2bIYmQBmpTVV5UtZBLw\r\n",
        b"version: 9\ntopic_id: rJv2bIYmQBmpTVV5UtZBLw: ",
    ],
)
def test_partition_metadata_is_read_as_leniently_as_by_a_broker(content: bytes) -> None:
    found = read_partition_metadata(content)
    assert isinstance(found, PartitionMetadata)
    assert found.topic_id == "rJv2bIYmQBmpTVV5UtZBLw"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", 1),
        (b"version:0\ntopic_id: rJv2bIYmQBmpTVV5UtZBLw", 1),
        (b"version: 0 \ntopic_id: rJv2bIYmQBmpTVV5UtZBLw", 1),
        (b"version: -1\ntopic_id: rJv2bIYmQBmpTVV5UtZBLw", 1),
        (b"version: 0", 2),
        (b"version: 0\n", 2),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", 2),
        (b"version: 0\ntopic_id: rJv2bIYmQBmpTVV5UtZBL", 2),
        (b"version: 0\ntopic_id: rJv2bIYmQBmpTVV5UtZBLw=", 2),
        (b"version: 0\ntopic_id: rJv2bIYm+BmpTVV5UtZBLw", 2),
        (b"version: 0\ntopic_id: \xff", 2),
    ],
)
def test_partition_metadata_that_keeps_a_broker_from_starting(content: bytes, line: int) -> None:
    found = read_partition_metadata(content)
    assert isinstance(found, Malformed)
    assert found.line == line


def test_every_text_file_of_real_brokers_is_read_and_written_back_the_same() -> None:
    """Three broker versions wrote these; a reader that loses a line or a writer that adds one shows here."""
    seen = 0
    for path in sorted(FIXTURES.rglob("*")):
        if path.name in OFFSETS:
            offsets = read_offsets(path.read_bytes())
            assert offsets.malformed is None, path
            assert path.read_bytes() in (write_offsets(offsets.entries), b""), path
        elif path.name == "leader-epoch-checkpoint":
            epochs = read_epochs(path.read_bytes())
            assert epochs.malformed is None, path
            assert path.read_bytes() in (write_epochs(epochs.entries), b""), path
        elif path.name == "partition.metadata":
            metadata = read_partition_metadata(path.read_bytes())
            assert isinstance(metadata, PartitionMetadata), path
            assert write_partition_metadata(metadata.topic_id) == path.read_bytes()
        else:
            continue
        seen += 1
    assert seen > 40


@pytest.mark.corpora
@pytest.mark.parametrize(
    ("name", "file", "line"),
    [
        ("v4.3.1-epochs-malformed", "torn-0/leader-epoch-checkpoint", 2),
        ("v3.9.1-epochs-malformed", "torn-0/leader-epoch-checkpoint", 2),
        ("v4.3.1-checkpoint-torn", "recovery-point-offset-checkpoint", 3),
    ],
)
def test_the_files_over_which_real_brokers_stopped_are_malformed(
    image: Callable[[str], Path], corpora: Path, name: str, file: str, line: int
) -> None:
    content = (image(f"crash/{name}/before.tar.gz") / file).read_bytes()
    found = (read_epochs(content) if "epoch" in file else read_offsets(content)).malformed
    assert found is not None
    assert found.line == line
    outcome = (corpora / "crash" / name / "golden" / "outcome.txt").read_text()
    assert outcome.startswith("failed: java.io.IOException")
    assert file in outcome
