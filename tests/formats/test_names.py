"""Directory and file names: a broker's reading of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from klog.formats.java_text import parse_int, parse_long
from klog.formats.names import (
    FileKind,
    FileName,
    Stage,
    file_name,
    kraft_snapshot_name,
    parse_file,
    parse_partition,
)

UNIQUE = "0f8fad5bd9cb469fa16570867728950e"


@pytest.mark.parametrize(
    ("name", "topic", "partition", "state"),
    [
        ("orders-3", "orders", 3, "current"),
        ("my-app.v1-2-0", "my-app.v1-2", 0, "current"),
        ("a--1", "a-", 1, "current"),
        (f"orders-3.{UNIQUE}-delete", "orders", 3, "delete"),
        (f"a.b-0.{UNIQUE}-future", "a.b", 0, "future"),
        (f"x-1.{UNIQUE}-stray", "x", 1, "stray"),
        (f"a-b.c-7.{UNIQUE}-delete", "a-b.c", 7, "delete"),
        ("delete-3", "delete", 3, "current"),
        ("__cluster_metadata-0", "__cluster_metadata", 0, "current"),
        ("t-2147483647", "t", 2147483647, "current"),
    ],
)
def test_a_partition_directory_tells_topic_number_and_state(name: str, topic: str, partition: int, state: str) -> None:
    found = parse_partition(name)
    assert found is not None
    assert (found.topic, found.partition, found.state.value, found.canonical) == (topic, partition, state, True)
    assert found.unique_id == (None if state == "current" else UNIQUE)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-",
        "orders",
        "lost+found",
        ".snapshot",
        "old.bak",
        "foo-bar",
        "x-1.5",
        "x-",
        "-1",
        "x-delete",
        "x-1-delete",
        "x-1.-delete",
        "x-1.u v-delete",
        f"-1.{UNIQUE}-delete",
        f"x-y.{UNIQUE}-stray",
        "x-2147483648",
        "x-1_0",
        "x- 1",
        "remote-log-index-cache",
    ],
)
def test_a_directory_over_which_no_broker_starts_is_no_partition(name: str) -> None:
    assert parse_partition(name) is None


@pytest.mark.parametrize("name", ["x-+1", "x-01", "x-٣", "x-1.abc-delete", f"x-1.{UNIQUE.upper()}-delete"])
def test_a_name_that_brokers_read_but_never_write_is_not_canonical(name: str) -> None:
    """Such a directory counts for the broker, and must be seen; and somebody made it by hand, which must be
    reported."""
    found = parse_partition(name)
    assert found is not None
    assert not found.canonical


def test_the_last_dash_splits_so_a_partition_is_never_negative() -> None:
    found = parse_partition("orders--3")
    assert found is not None
    assert (found.topic, found.partition) == ("orders-", 3)


def test_names_that_are_not_utf8_survive(tmp_path: Path) -> None:
    """A file system takes any bytes; a name that cannot be decoded must still lead back to its file."""
    (tmp_path / os.fsdecode(b"caf\xe9-3")).mkdir()
    (tmp_path / os.fsdecode(b"\xff\xfe.log")).touch()
    names = sorted(os.listdir(tmp_path))
    found = parse_partition(names[0])
    assert found is not None
    assert os.fsencode(found.topic) == b"caf\xe9"
    assert parse_file(names[1]) == FileName(names[1], FileKind.LOG, canonical=False)
    assert (tmp_path / names[1]).exists()


def test_a_name_of_255_bytes_is_read() -> None:
    found = parse_partition(f"{'t' * 249}-12345")
    assert found is not None
    assert found.partition == 12345
    assert parse_file("9" * 251 + ".log").offset is None


@pytest.mark.parametrize("kind", [FileKind.LOG, FileKind.INDEX, FileKind.TIME_INDEX, FileKind.TXN_INDEX])
@pytest.mark.parametrize("stage", [Stage.IN_USE, Stage.DELETED, Stage.CLEANED, Stage.SWAP])
def test_every_file_of_a_segment_is_known_in_every_stage(kind: FileKind, stage: Stage) -> None:
    name = f"00000000000000001841.{kind.value}{stage.value}"
    assert parse_file(name) == FileName(name, kind, stage, 1841)
    assert file_name(1841, kind, stage) == name


@pytest.mark.parametrize(
    ("name", "kind", "stage"),
    [
        ("leader-epoch-checkpoint", FileKind.LEADER_EPOCHS, Stage.IN_USE),
        ("leader-epoch-checkpoint.tmp", FileKind.LEADER_EPOCHS, Stage.TMP),
        ("partition.metadata", FileKind.PARTITION_METADATA, Stage.IN_USE),
        ("partition.metadata.tmp", FileKind.PARTITION_METADATA, Stage.TMP),
        ("quorum-state", FileKind.QUORUM_STATE, Stage.IN_USE),
        ("meta.properties", FileKind.META_PROPERTIES, Stage.IN_USE),
        (".kafka_cleanshutdown", FileKind.CLEAN_SHUTDOWN, Stage.IN_USE),
        (".lock", FileKind.LOCK, Stage.IN_USE),
        ("bootstrap.checkpoint", FileKind.BOOTSTRAP, Stage.IN_USE),
        ("bootstrap.checkpoint.tmp", FileKind.BOOTSTRAP, Stage.TMP),
        ("recovery-point-offset-checkpoint", FileKind.RECOVERY_POINTS, Stage.IN_USE),
        ("replication-offset-checkpoint.tmp", FileKind.HIGH_WATERMARKS, Stage.TMP),
        ("log-start-offset-checkpoint", FileKind.LOG_STARTS, Stage.IN_USE),
        ("cleaner-offset-checkpoint", FileKind.CLEANER_OFFSETS, Stage.IN_USE),
    ],
)
def test_files_with_fixed_names_are_known(name: str, kind: FileKind, stage: Stage) -> None:
    assert parse_file(name) == FileName(name, kind, stage)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000312-0000000007.checkpoint", (Stage.IN_USE, 312, 7, True)),
        ("00000000000000000312-0000000007-4711.checkpoint.part", (Stage.PART, 312, 7, True)),
        ("00000000000000000312-0000000007.checkpoint.deleted", (Stage.DELETED, 312, 7, True)),
        ("00000000000000000312-0000000007.checkpoint.part", (Stage.PART, 312, 7, False)),
        ("00000000000000000312_0000000007.checkpoint", (Stage.IN_USE, 312, 7, False)),
        ("00000000000000000312-0000000007x.checkpoint", (Stage.IN_USE, 312, 7, False)),
        ("312-7.checkpoint", (Stage.IN_USE, None, None, False)),
        (".checkpoint", (Stage.IN_USE, None, None, False)),
    ],
)
def test_kraft_snapshots_are_read_by_their_columns(name: str, expected: tuple[Stage, int, int, bool]) -> None:
    found = parse_file(name)
    assert found.kind is FileKind.KRAFT_SNAPSHOT
    assert (found.stage, found.offset, found.epoch, found.canonical) == expected
    assert kraft_snapshot_name(312, 7) == "00000000000000000312-0000000007.checkpoint"


@pytest.mark.parametrize(
    ("name", "kind", "offset"),
    [
        ("5.log", FileKind.LOG, 5),
        ("+5.log", FileKind.LOG, 5),
        ("٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١٢٣.log", FileKind.LOG, 123),
        ("000000000000000000005.index", FileKind.INDEX, 5),
        ("5.old.log", FileKind.LOG, 5),
        ("saved.log", FileKind.LOG, None),
        (".log", FileKind.LOG, None),
        ("09223372036854775808.log", FileKind.LOG, None),
        ("00000000000000000005.snapshot.swap", FileKind.SNAPSHOT, 5),
        ("00000000000000000005.log.tmp", FileKind.LOG, 5),
        ("5.txt", FileKind.OTHER, 5),
        ("notes", FileKind.OTHER, None),
    ],
)
def test_names_that_no_broker_writes_are_told_apart(name: str, kind: FileKind, offset: int | None) -> None:
    """`5.log` is offset 5 to a broker, which then opens another file and loses the data without a word."""
    found = parse_file(name)
    assert (found.kind, found.offset, found.canonical) == (kind, offset, False)


def test_the_largest_offset_is_a_usual_name() -> None:
    assert parse_file("09223372036854775807.log") == FileName(
        "09223372036854775807.log", FileKind.LOG, offset=2**63 - 1
    )


def test_the_least_numbers_are_numbers() -> None:
    """Java's parsers take one more below zero than above."""
    assert (parse_int("-2147483648"), parse_int("-2147483649")) == (-(2**31), None)
    assert (parse_long("-9223372036854775808"), parse_long("-9223372036854775809")) == (-(2**63), None)
