"""The output of `klog describe` for log dirs, partitions and files."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.base.errors import NotKafkaError, UnreadableError, UnsupportedError
from klog.commands.describe import FileFacts, describe_file, describe_log_dir, describe_partition
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.data_dir.selection import KafkaFile, open_path

from tests.conftest import FIXTURES, Ran
from tests.data_dir.test_log_dir import held, in_the_open, powerless
from tests.oracles.plain import decode, encode
from tests.oracles.plain.encode import Record

__all__ = ["in_the_open"]  # a fixture

Klog = Callable[..., Ran]
MODERN = FIXTURES / "modern"
NOW = 1_700_000_000_000
CONTRACT = (
    "topic",
    "partition",
    "topic_id",
    "segments",
    "bytes",
    "log_start_offset",
    "high_watermark",
    "log_end_offset",
    "recovery_point",
    "cleaner_offset",
    "leader_epoch",
)


def lines(ran: Ran) -> list[str]:
    assert (ran.stderr, ran.exit_code) == (b"", 0)
    return ran.stdout.decode().splitlines()


def document(ran: Ran) -> dict[str, object]:
    assert (ran.stderr, ran.exit_code) == (b"", 0)
    found = json.loads(ran.stdout)
    assert isinstance(found, dict)
    return found


def file_facts(path: Path, deep: bool = False) -> FileFacts:
    found = open_path(str(path))
    assert isinstance(found, KafkaFile)
    return describe_file(found, deep)


def make_log_dir(root: Path) -> Path:
    """A log dir that was not stopped cleanly: orders 0 and 1 and what an operator may find beside them."""
    for name in ("orders-0", "orders-1", "users-0"):
        (root / name).mkdir(parents=True)
        batch = encode.batch([Record(0, NOW, b"k", b"v"), Record(1, NOW + 5, b"k", b"w")])
        (root / name / f"{0:020}.log").write_bytes(batch)
        (root / name / f"{0:020}.index").touch()
        (root / name / f"{0:020}.timeindex").touch()
        (root / name / "leader-epoch-checkpoint").write_text("0\n1\n4 0\n")
    (root / "meta.properties").write_text("version=1\nnode.id=7\ncluster.id=abc\n")
    (root / "recovery-point-offset-checkpoint").write_text("0\n1\norders 1 2\n")
    return root


# log dirs


def test_a_log_dir_has_a_row_for_each_partition() -> None:
    facts = describe_log_dir(LogDir(str(MODERN)))
    assert (facts.node_id, facts.version, facts.clean_shutdown, facts.broker_epoch) == (
        1,
        "4.0 or later (KRaft)",
        True,
        568,
    )
    assert (facts.locked, facts.notes) == (False, ())
    assert [row.directory for row in facts.partitions] == [
        partition.directory for partition in LogDir(str(MODERN)).partitions
    ]
    row = next(row for row in facts.partitions if row.directory == "trimmed-0")
    logs = list((MODERN / "trimmed-0").glob("*.log"))
    assert (row.topic, row.partition, row.segments) == ("trimmed", 0, len(logs))
    assert row.bytes == sum(log.stat().st_size for log in logs)
    offsets = (row.log_start_offset, row.high_watermark, row.log_end_offset, row.recovery_point, row.cleaner_offset)
    assert offsets == (137, 360, 360, 360, None)
    assert (row.topic_id, row.leader_epoch, row.state, row.notes) == ("Wai8TIyBRnmDQ9v0ln3StQ", 4, "current", ())


def test_the_fields_of_the_contract_stand_in_json_jsonl_and_csv(klog: Klog) -> None:
    """Scripts are written against these names."""
    found = document(klog("describe", MODERN, "--output", "json"))
    rows = found["partitions"]
    assert isinstance(rows, list)
    assert found["kind"] == "log dir"
    assert found["cluster_id"] == "fXeC61JOQie3q2pvw8VSPQ"
    by_line = [json.loads(line) for line in lines(klog("describe", MODERN, "--output", "jsonl"))]
    by_csv = list(csv.DictReader(io.StringIO(klog("describe", MODERN, "--output", "csv").stdout.decode())))
    assert len(rows) == len(by_line) == len(by_csv) == 23
    for row, line, cells in zip(rows, by_line, by_csv, strict=True):
        assert tuple(row)[: len(CONTRACT)] == CONTRACT
        assert {name: line[name] for name in row} == row
        assert [cells[name] for name in CONTRACT] == ["" if row[name] is None else str(row[name]) for name in CONTRACT]
    single = document(klog("describe", MODERN / "tx-0", "--output", "json"))
    assert set(CONTRACT) <= set(single)
    row = next(row for row in rows if row["directory"] == "tx-0")
    assert {name: single[name] for name in row} == row


def test_the_text_has_header_lines_and_a_row_for_each_partition(klog: Klog) -> None:
    text = lines(klog("describe", FIXTURES / "crash" / "torn-in-batch"))
    assert "clean shutdown   no" in text
    assert "lock             free" in text
    assert "cluster id       wA34GK9KR822c2zXYwrPiw" in text
    assert "holds            2 partitions, 7 segments, 71.4 KiB" in text
    row = next(line for line in text if line.startswith("torn-0"))
    assert row.split() == [
        *("torn-0", "6", "68.1", "KiB", "0", "238", "406", "232", "2"),
        *("unclean;", "torn", "tail", "at", "8091,", "256", "bytes"),
    ]
    assert next(line for line in text if line.startswith("torn ")).split() == ["torn", "ESh_z699QoiLe3vQcARtwQ"]


def test_the_tables_fit_into_100_columns(klog: Klog) -> None:
    for path in (MODERN, FIXTURES / "v39" / "data1", FIXTURES / "crash" / "flip-middle", MODERN / "rolled-0"):
        if path.exists():
            assert max(map(len, lines(klog("describe", path, "--output", "text")))) <= 100, path


def test_only_what_a_broker_would_recover_is_unclean(tmp_path: Path) -> None:
    """Below the recovery point all is on disk; with the marker, or under a running broker, nothing is recovered."""
    data = make_log_dir(tmp_path / "data")
    facts = describe_log_dir(LogDir(str(data)))
    assert [row.notes for row in facts.partitions] == [("unclean",), (), ("unclean",)]
    assert not facts.clean_shutdown
    (data / ".lock").touch()
    with held(data / ".lock") as pid:
        facts = describe_log_dir(LogDir(str(data)))
        assert (facts.locked, facts.lock_pid) == (True, pid)
        assert [row.notes for row in facts.partitions] == [(), (), ()]
    (data / ".kafka_cleanshutdown").touch()
    facts = describe_log_dir(LogDir(str(data)))
    assert facts.clean_shutdown
    assert [row.notes for row in facts.partitions] == [(), (), ()]


def test_what_an_operator_should_know_is_noted(tmp_path: Path) -> None:
    data = make_log_dir(tmp_path / "data")
    (data / "old.bak").mkdir()
    (data / "orders-+1").mkdir()
    (data / "users-0.0f8fad5bd9cb469fa16570867728950e-stray").mkdir()
    for letter in "ab":  # a topic that was made and deleted twice leaves two of these, and that stops no broker
        (data / f"gone-0.{letter * 32}-delete").mkdir()
    (data / "replication-offset-checkpoint").write_text("0\n1\norders\n")
    (data / "meta.properties.tmp").touch()
    (data / "orders-0" / f"{0:020}.log.swap").touch()
    (data / "orders-0" / f"{0:020}.index.swap").touch()
    (data / "orders-0" / f"{9:020}.log.deleted").touch()
    (data / "orders-0" / "saved.log").touch()
    (data / "orders-0" / "9.index").touch()
    (data / "orders-1" / "leader-epoch-checkpoint").write_text("0\n3\n4 0\n")
    (data / "orders-1" / "partition.metadata").touch()
    with (data / "users-0" / f"{0:020}.log").open("ab") as log:
        log.write(b"\xff" * 100)
    facts = describe_log_dir(LogDir(str(data)))
    assert facts.notes == (
        "replication-offset-checkpoint: line 3: 'orders': 1 fields, expected topic, partition, offset",
        "old.bak/  is not a partition's directory; a broker does not start with it",
        "2 directories are orders-1; a broker does not start with them",
        "meta.properties.tmp was left by an interrupted write",
    )
    notes = {row.directory: row.notes for row in facts.partitions}
    assert notes["orders-0"] == (
        "unclean",
        "1 .deleted, 2 .swap left",
        "9.index: not the name that a broker reads",
        "saved.log: no offset in its name; a broker does not start with it",
    )
    assert notes["orders-1"] == (
        "partition.metadata: line 1: the file is empty",
        "leader-epoch-checkpoint: line 2: 3 entries announced, 1 found",
    )
    assert notes["orders-+1"] == ("no segments", "a broker would write the directory's name differently")
    assert notes["users-0.0f8fad5bd9cb469fa16570867728950e-stray"] == ("-stray", "no segments")
    assert notes["users-0"] == ("unclean", "bad length at 79, 100 bytes")


def test_csv_has_a_header_for_each_kind_of_rows(klog: Klog, tmp_path: Path) -> None:
    """A log dir's rows have other columns than a partition's: below one header they would be nonsense."""
    data = make_log_dir(tmp_path / "data")
    found = lines(klog("describe", data, data / "orders-0", data / "orders-1", "--output", "csv"))
    assert [line.startswith("topic,partition,") for line in found] == [True, False, False, False, True, False, False]


def test_topics_and_partitions_narrow_log_dirs(klog: Klog, tmp_path: Path) -> None:
    """In a JBOD a topic may be in one log dir only."""
    first, second = make_log_dir(tmp_path / "a"), make_log_dir(tmp_path / "b")
    shutil.rmtree(second / "orders-1")
    chosen = ("--topic", "ord*", "--partition", "1", "--output", "jsonl")
    rows = [json.loads(line) for line in lines(klog("describe", first, second, *chosen))]
    assert [(row["topic"], row["partition"], row["log_dir"]) for row in rows] == [("orders", 1, str(first))]
    two = klog("describe", first, second, "--topic", "users", "--topic", "orders", "--output", "json")
    documents = json.loads(two.stdout)
    assert [[row["directory"] for row in found["partitions"]] for found in documents] == [
        ["orders-0", "orders-1", "users-0"],
        ["orders-0", "users-0"],
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--topic", "order"), b"klog: no topic order; did you mean orders?\n"),
        (("--topic", "users", "--partition", "3"), b"klog: no partition 3 of users\n"),
    ],
)
def test_a_choice_that_matches_nothing_is_a_question_of_usage(
    klog: Klog, tmp_path: Path, arguments: tuple[str, ...], message: bytes
) -> None:
    assert klog("describe", make_log_dir(tmp_path / "data"), *arguments) == Ran(b"", message, 16)


def test_a_path_that_is_none_of_it_says_what_was_expected(klog: Klog, tmp_path: Path) -> None:
    path = tmp_path / "missing"
    ran = klog("describe", path)
    assert (ran.stdout, ran.exit_code) == (b"", 16)
    assert ran.stderr.startswith(f"klog: {path}: ".encode())
    assert b"expected a log dir (what log.dirs names), a partition directory (orders-3) or a Kafka file" in ran.stderr
    assert ran.stderr.count(b"\n") == 1
    ran = klog("describe", tmp_path)
    assert (ran.stdout, ran.exit_code) == (b"", 8)
    message = f"klog: {tmp_path} is not a Kafka log dir (no meta.properties, no checkpoints, no partitions)\n"
    assert ran.stderr.decode() == message


def test_a_partition_that_cannot_be_read_is_noted_and_counts_as_not_done(in_the_open: Path) -> None:
    """The others are shown all the same."""
    data = make_log_dir(in_the_open / "data")
    whole = describe_log_dir(LogDir(str(data)))
    os.chmod(data / "users-0" / f"{0:020}.log", 0)
    with powerless():
        facts = describe_log_dir(LogDir(str(data)))
    assert facts.partitions[:2] == whole.partitions[:2]
    assert facts.partitions[2].incomplete
    assert facts.partitions[2].log_end_offset is None
    assert "Permission denied" in facts.partitions[2].notes[0]


def test_a_partition_that_cannot_be_listed_counts_as_not_done(in_the_open: Path) -> None:
    """It is there, and its content unknown: a row that looks empty would suggest that all is well."""
    data = make_log_dir(in_the_open / "data")
    os.chmod(data / "users-0", 0)
    with powerless():
        row = describe_log_dir(LogDir(str(data))).partitions[2]
    os.chmod(data / "users-0", 0o755)
    assert row.incomplete
    assert "cannot be listed: Permission denied" in row.notes


def test_a_partition_that_vanishes_meanwhile_is_no_failure(tmp_path: Path) -> None:
    data = make_log_dir(tmp_path / "data")
    log_dir = LogDir(str(data))
    assert [len(partition.segments) for partition in log_dir.partitions] == [1, 1, 1]
    shutil.rmtree(data / "orders-1")
    row = describe_log_dir(log_dir).partitions[1]
    assert row.notes[0] == "vanished meanwhile"
    assert not row.incomplete
    fresh = LogDir(str(data))
    assert len(fresh.partitions) == 2
    shutil.rmtree(data / "orders-0")
    row = describe_log_dir(fresh).partitions[0]
    assert row.notes == ("cannot be listed: No such file or directory",)
    assert not row.incomplete


# partitions


@pytest.mark.parametrize("directory", ["modern/tx-0", "modern/gzip-0", "modern/logappend-0", "modern/idempotent-0"])
def test_the_rows_of_segments_agree_with_a_plain_reading_of_the_logs(directory: str) -> None:
    """Counted from headers alone, against an independent decoder that reads every record."""
    path = FIXTURES / directory
    rows = describe_partition(Partition(str(path))).segments
    assert len(rows) == len(list(path.glob("*.log")))
    for row in rows:
        batches = list(decode.scan((path / row.file).read_bytes()))
        whole = [batch for batch in batches if isinstance(batch, decode.Batch)]
        assert len(whole) == len(batches) == row.batches
        assert row.records == sum(len(batch.records) for batch in whole)
        assert row.bytes == (path / row.file).stat().st_size
        if not whole:
            continue
        assert row.last_offset == whole[-1].last_offset
        assert row.last_timestamp == max(batch.max_timestamp for batch in whole)
        assert row.first_timestamp == whole[0].records[0].timestamp
        assert row.codecs == tuple(
            name
            for number, name in enumerate(("none", "gzip", "snappy", "lz4", "zstd"))
            if number in {b.codec for b in whole}
        )
        assert ("transactional" in row.flags) == any(batch.transactional for batch in whole)
        assert ("control" in row.flags) == any(batch.control for batch in whole)
        assert ("log-append-time" in row.flags) == any(batch.timestamp_type == "LogAppendTime" for batch in whole)
        assert row.index_entries == (path / row.file).with_suffix(".index").stat().st_size // 8
        assert row.time_index_entries == (path / row.file).with_suffix(".timeindex").stat().st_size // 12
    assert [row.flags[:1] == ("active",) for row in rows] == [False] * (len(rows) - 1) + [True]


@pytest.mark.parametrize("directory", ["v0-gzip-0", "v1-none-0", "v1-lz4-0", "changing-0"])
def test_records_of_old_formats_are_counted_only_deep(directory: str) -> None:
    """The number of messages in a compressed one of old is unknown; no number is better than a wrong one."""
    path = FIXTURES / "legacy" / directory
    partition = Partition(str(path))
    shallow, deep = describe_partition(partition).segments, describe_partition(partition, deep=True).segments
    assert None in [row.records for row in shallow]
    for row in deep:
        batches = decode.scan((path / row.file).read_bytes())
        assert row.records == sum(len(batch.records) for batch in batches if isinstance(batch, decode.Batch))
    assert [row.flags for row in shallow] == [row.flags for row in deep]
    assert {"v0", "v1"} & set(shallow[0].flags)


def test_a_deep_look_counts_what_is_damaged() -> None:
    """No header contains a flipped bit in a value: only reading everything finds it."""
    partition = Partition(str(FIXTURES / "crash" / "flip-middle" / "torn-0"))
    shallow, deep = describe_partition(partition), describe_partition(partition, deep=True)
    assert [row.notes for row in shallow.segments] == [()] * len(shallow.segments)
    assert [row.notes for row in deep.segments if row.notes] == [("1 damaged stretches",)]
    missing = [(a.records or 0) - (b.records or 0) for a, b in zip(shallow.segments, deep.segments, strict=True)]
    assert sum(missing) > 0


def test_preallocated_files_are_told_from_torn_ones(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    batch = encode.batch([Record(0, NOW, b"k", b"v")])
    (partition / f"{0:020}.log").write_bytes(batch + bytes(5000))
    (partition / f"{0:020}.index").write_bytes(encode.offset_entries(0, [(5, 100)]) + bytes(10 << 20))
    (partition / f"{0:020}.timeindex").write_bytes(encode.time_entries(0, [(NOW, 0)]) + bytes(1200))
    (partition / f"{9:020}.log").write_bytes(encode.batch([Record(9, NOW, b"k", b"v")]) + bytes(5000))
    rows = describe_partition(Partition(str(partition))).segments
    assert (rows[0].index_entries, rows[0].time_index_entries, rows[0].aborted_transactions) == (1, 1, None)
    assert rows[0].notes == (f"zeroed tail at {len(batch)}, 5000 bytes",)
    assert rows[1].notes == ("no .index", "no .timeindex", f"preallocated zeros at {len(batch)}, 5000 bytes")


def test_segments_that_cannot_be_read_or_vanish_are_rows_too(tmp_path: Path) -> None:
    data = make_log_dir(tmp_path / "data")
    partition = Partition(str(data / "orders-0"))
    assert partition.segments
    os.unlink(data / "orders-0" / f"{0:020}.log")
    os.mkfifo(data / "orders-0" / f"{0:020}.log")
    row = describe_partition(partition).segments[0]
    assert row.incomplete
    assert "FIFO" in row.notes[0]
    assert (row.base_offset, row.records, row.last_offset) == (0, None, None)


def test_a_log_appended_to_a_delete_horizon_does_not_take_it_for_a_time(tmp_path: Path) -> None:
    """Compaction keeps its own date where the first record's time was."""
    (tmp_path / "t-0").mkdir()
    batch = encode.batch([Record(0, NOW, b"k", None)], delete_horizon_ms=NOW + 86_400_000)
    (tmp_path / "t-0" / f"{0:020}.log").write_bytes(batch)
    row = describe_partition(Partition(str(tmp_path / "t-0"))).segments[0]
    assert (row.first_timestamp, row.last_timestamp) == (NOW, NOW)
    assert row.flags == ("active", "delete-horizon")


# files


def test_a_log_is_described_by_its_first_and_last_batch() -> None:
    path = MODERN / "tx-0" / f"{16:020}.log"
    facts = file_facts(path)
    batches = [batch for batch in decode.scan(path.read_bytes()) if isinstance(batch, decode.Batch)]
    assert facts.facts["batches"] == len(batches)
    assert facts.facts["first_offset"] == batches[0].base_offset
    assert facts.facts["last_offset"] == batches[-1].last_offset
    rows = [dict(zip(facts.columns, entry, strict=True)) for entry in facts.entries]
    for row, batch in zip(rows, (batches[0], batches[-1]), strict=True):
        assert row | {"batch": ""} == {
            "batch": "",
            "position": batch.position,
            "size": batch.size,
            "magic": 2,
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "records": batch.count,
            "max_timestamp": batch.max_timestamp,
            "leader_epoch": batch.leader_epoch,
        }


def test_the_first_producer_of_a_cluster_has_id_0(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    for producer, flags in (((0, 0, 0), ("idempotent",)), ((-1, -1, -1), ())):
        path.write_bytes(encode.batch([Record(0, NOW, b"k", b"v")], producer=producer))
        assert file_facts(path).facts["flags"] == flags


def test_a_batch_that_is_first_and_last_is_shown_once(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(encode.batch([Record(0, NOW, b"k", b"v")]))
    assert [entry[0] for entry in file_facts(path).entries] == ["first"]


def test_a_compressed_message_of_old_has_no_first_offset_to_show(tmp_path: Path) -> None:
    records = [Record(100 + n, NOW, b"k", b"v") for n in range(5)]
    (tmp_path / f"{100:020}.log").write_bytes(encode.wrapper(records, 1, "gzip"))
    facts = file_facts(tmp_path / f"{100:020}.log")
    assert (facts.facts["first_offset"], facts.facts["last_offset"], facts.facts["records"]) == (None, 104, None)
    assert file_facts(tmp_path / f"{100:020}.log", deep=True).facts["records"] == 5


def test_indexes_are_described_by_their_first_and_last_entry(tmp_path: Path) -> None:
    (tmp_path / f"{50:020}.index").write_bytes(encode.offset_entries(50, [(54, 4158), (108, 8316)]) + bytes(24) + b"\0")
    facts = file_facts(tmp_path / f"{50:020}.index")
    assert facts.facts == {"base_offset": 50, "entries": 2, "zero_entries": 3}
    assert facts.columns == ("entry", "relative_offset", "position", "offset")
    assert facts.entries == (("first", 4, 4158, 54), ("last", 58, 8316, 108))
    assert facts.notes == (
        "1 bytes at the end are not a complete entry",
        "3 entries at the end are zeros, as in a preallocated index",
    )
    (tmp_path / f"{50:020}.timeindex").write_bytes(encode.time_entries(50, [(NOW, 54)]))
    facts = file_facts(tmp_path / f"{50:020}.timeindex")
    assert (facts.entries, facts.notes) == ((("first", NOW, 4, 54),), ())
    (tmp_path / f"{50:020}.txnindex").write_bytes(encode.aborted_entries([(7, 10, 60, 61), (8, 62, 70, 71)]))
    facts = file_facts(tmp_path / f"{50:020}.txnindex")
    assert facts.entries == (("first", 0, 7, 10, 60, 61), ("last", 0, 8, 62, 70, 71))


def test_an_index_without_entries_has_none_to_show(tmp_path: Path) -> None:
    for content in (b"", bytes(80), b"\1"):
        (tmp_path / f"{0:020}.index").write_bytes(content)
        facts = file_facts(tmp_path / f"{0:020}.index")
        assert (facts.facts["entries"], facts.entries) == (0, ())


def test_an_index_larger_than_any_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / f"{0:020}.index").touch()
    os.truncate(tmp_path / f"{0:020}.index", 1 << 40)
    with pytest.raises(UnsupportedError, match="an index has at most 2147483647"):
        file_facts(tmp_path / f"{0:020}.index")
    (tmp_path / f"{0:020}.snapshot").touch()
    os.truncate(tmp_path / f"{0:020}.snapshot", 1 << 40)
    with pytest.raises(UnsupportedError, match="too large for a file"):
        file_facts(tmp_path / f"{0:020}.snapshot")


def test_small_files_are_described_whole() -> None:
    snapshot = file_facts(MODERN / "tx-0" / f"{648:020}.snapshot")
    assert snapshot.facts["producers"] == len(snapshot.entries) == 3
    assert snapshot.notes == ()
    epochs = file_facts(MODERN / "tx-0" / "leader-epoch-checkpoint")
    assert (epochs.columns, epochs.entries) == (("epoch", "start_offset"), ((2, 0), (4, 504)))
    points = file_facts(MODERN / "recovery-point-offset-checkpoint")
    assert ("tx", 0, 648) in points.entries
    assert file_facts(MODERN / "tx-0" / "partition.metadata").facts == {
        "version": 0,
        "topic_id": "8kvIP8qpQlSlTHGWq6Hd1Q",
    }
    assert file_facts(MODERN / ".kafka_cleanshutdown").facts == {"broker_epoch": 568}
    assert file_facts(MODERN / "meta.properties").facts["node_id"] == 1
    quorum = file_facts(MODERN / "__cluster_metadata-0" / "quorum-state").facts
    assert (quorum["leader_id"], quorum["leader_epoch"], quorum["voted_id"], quorum["voters"]) == (1, 3, None, ("1",))


def test_kraft_snapshots_are_described_as_logs() -> None:
    for path in (MODERN / "__cluster_metadata-0").glob("*.checkpoint"):
        facts = file_facts(path)
        assert facts.facts["end_offset"] == int(path.name[:20])
        assert facts.facts["epoch"] == int(path.name[21:31])
        assert facts.facts["first_offset"] == 0
        assert facts.notes == ()
    assert file_facts(MODERN / "bootstrap.checkpoint").facts["batches"] == 3


def test_files_that_a_broker_would_refuse_say_why(tmp_path: Path) -> None:
    for name, content, note in (
        ("leader-epoch-checkpoint", b"0\n2\n3 0\n", "line 2: 2 entries announced, 1 found"),
        ("replication-offset-checkpoint", b"0\n1\nt 0\n", "line 3: 't 0': 2 fields, expected topic, partition, offset"),
        ("partition.metadata", b"version: 0", "line 2: there is no line with a topic id"),
        ("meta.properties", b"version=1", "no node.id"),
        ("quorum-state", b"{", "line 1: no JSON object"),
        (f"{5:020}.snapshot", b"\0", "Snapshot failed schema validation: null"),
        ("leader-epoch-checkpoint", b"0\n2\n9 60\n4 50\n", "1 entries are out of order; a broker drops them"),
        (f"{0:020}.log", b"\xff" * 40, "bad length at 0: 40 bytes that do not begin with a complete entry"),
        ("5.index", b"", "not a name that a broker would write"),
    ):
        (tmp_path / name).write_bytes(content)
        assert file_facts(tmp_path / name).notes == (note,)


def test_the_lock_file_tells_who_holds_it(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    assert file_facts(tmp_path / ".lock").facts == {"held": False, "pid": None}
    with held(tmp_path / ".lock") as pid:
        assert file_facts(tmp_path / ".lock").facts == {"held": True, "pid": pid}


def test_a_log_of_another_program_is_not_kafkas(tmp_path: Path, klog: Klog) -> None:
    (tmp_path / "kern.log").write_text("[    0.000000] Linux version 6.1.0\n" * 100)
    with pytest.raises(NotKafkaError, match="not a Kafka log"):
        file_facts(tmp_path / "kern.log")
    assert klog("describe", tmp_path / "kern.log").exit_code == 8


def test_a_file_that_vanished_cannot_be_described(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / "quorum-state").touch()
    opened = [open_path(str(tmp_path / name)) for name in (".lock", "quorum-state")]
    shutil.rmtree(tmp_path)
    for file in opened:
        assert isinstance(file, KafkaFile)
        with pytest.raises(UnreadableError, match="No such file"):
            describe_file(file)


def test_every_file_of_the_fixtures_is_described_without_a_complaint() -> None:
    """Brokers of three versions wrote them and stopped cleanly; a note would be a false alarm."""
    seen = 0
    for name in ("modern", "legacy", "v39", "compaction"):
        for path in sorted((FIXTURES / name).rglob("*")):
            if path.is_file():
                assert file_facts(path).notes == (), path
                seen += 1
    assert seen > 300


@pytest.mark.parametrize("form", ["text", "json", "jsonl", "csv"])
def test_every_kind_of_path_is_shown_in_every_form(klog: Klog, form: str) -> None:
    tx = MODERN / "tx-0"
    files = [
        path
        for path in (*tx.iterdir(), *MODERN.iterdir(), *(MODERN / "__cluster_metadata-0").iterdir())
        if path.is_file()
    ]
    ran = klog("describe", MODERN, tx, *files, "--output", form)
    assert (ran.stderr, ran.exit_code) == (b"", 0)
    if form == "json":
        assert len(json.loads(ran.stdout)) == 2 + len(files)
    elif form == "jsonl":
        assert all(isinstance(json.loads(line), dict) for line in ran.stdout.decode().splitlines())
    else:
        assert b"8kvIP8qpQlSlTHGWq6Hd1Q" in ran.stdout


def test_names_that_are_not_utf8_do_not_break_the_output(klog: Klog, tmp_path: Path) -> None:
    data = make_log_dir(tmp_path / "data")
    os.rename(data / "users-0", os.path.join(os.fsencode(data), b"caf\xe9-0"))
    for form in ("text", "json", "jsonl", "csv"):
        ran = klog("describe", data, "--output", form)
        assert (ran.stderr, ran.exit_code) == (b"", 0)
        assert b"caf" in ran.stdout
