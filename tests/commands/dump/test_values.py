"""The files that are no logs, as JSON lines: an object an entry."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from klog.commands.dump.dump_request import CSV, JSON_LINES, DumpRequest

from tests.commands.dump.sinks import Kept, Object, dump_file
from tests.conftest import FIXTURES
from tests.oracles.plain import encode, vectors
from tests.oracles.plain.encode import Producer, batch
from tests.oracles.plain.shapes import MS, some_records

LINES = DumpRequest(output=JSON_LINES)


def lines(path: Path, content: bytes, request: DumpRequest = LINES) -> list[Object]:
    """Return the objects of a file that is whole."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    code, kept = dump_file(path, request)
    assert (code, kept.reports) == (0, [])
    return kept.objects


def said(path: Path, content: bytes, request: DumpRequest = LINES) -> tuple[int, Kept]:
    path.write_bytes(content)
    return dump_file(path, request)


@pytest.fixture
def stem(tmp_path: Path) -> Path:
    return tmp_path / f"{1000:020}"


# indexes


def test_an_index_has_absolute_offsets(stem: Path) -> None:
    """The file's name is what its entries count from."""
    entries = [(1006, 4096), (1010, 8300)]
    found = lines(stem.with_suffix(".index"), encode.offset_entries(1000, entries))
    assert found == [{"offset": offset, "position": position} for offset, position in entries]


def test_a_time_index_has_absolute_offsets(stem: Path) -> None:
    entries = [(MS, 1006), (MS + 5, 1010), (-1, 1011)]
    found = lines(stem.with_suffix(".timeindex"), encode.time_entries(1000, entries))
    assert found == [{"offset": offset, "timestamp": timestamp} for timestamp, offset in entries]


def test_aborted_transactions_are_entries(stem: Path) -> None:
    (found,) = lines(stem.with_suffix(".txnindex"), encode.aborted_entries([(98304, 1000, 1003, 1004)]))
    assert found == {
        "version": 0, "producer_id": 98304, "first_offset": 1000, "last_offset": 1003, "last_stable_offset": 1004,
    }  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 8191, 8192, 8193, 20_000])
def test_an_index_of_any_length_is_shown_whole(stem: Path, count: int) -> None:
    entries = [(1001 + i, 100 * i + 1) for i in range(count)]
    assert len(lines(stem.with_suffix(".index"), encode.offset_entries(1000, entries))) == count


@pytest.mark.parametrize("count", [1, 100, 8192, 10_000])
def test_the_zeros_of_a_preallocated_index_are_no_entries(stem: Path, count: int) -> None:
    """A broker makes it ten megabytes large and fills it from the front."""
    entries = [(1001 + i, 100 * i + 1) for i in range(count)]
    found = lines(stem.with_suffix(".index"), encode.offset_entries(1000, entries) + bytes(8 * 30_000))
    assert [one["offset"] for one in found] == [offset for offset, _ in entries]
    times = [(MS + i, 1001 + i) for i in range(count)]
    found = lines(stem.with_suffix(".timeindex"), encode.time_entries(1000, times) + bytes(12 * 30_000))
    assert [one["offset"] for one in found] == [offset for _, offset in times]


def test_bytes_left_over_are_damage(stem: Path) -> None:
    path = stem.with_suffix(".index")
    code, kept = said(path, encode.offset_entries(1000, [(1006, 4096)]) + b"\1\2\3")
    assert code == 4
    assert kept.objects[0] == {"offset": 1006, "position": 4096}
    assert kept.objects[1] == {"damage": "3 bytes left over: 11 is not a multiple of 8", "file": str(path)}
    assert kept.reports == [f"{path}: 3 bytes left over: 11 is not a multiple of 8"]


def test_an_index_under_any_name_is_shown_when_it_is_said_to_be_one(tmp_path: Path) -> None:
    """Its offsets stay relative: their base is unknown."""
    path = tmp_path / "copy.bin"
    assert lines(path, struct.pack(">ii", 6, 4096), LINES._replace(kind="index")) == [{"offset": 6, "position": 4096}]


# snapshots


def test_a_snapshot_is_shown_producer_by_producer(stem: Path) -> None:
    producers = [Producer(98304, 3, 41, 1041, 9, MS, 7, -1), Producer(98305, transaction_start=1042)]
    first, second = lines(stem.with_suffix(".snapshot"), encode.snapshot(producers))
    assert first == {
        "producer_id": 98304, "producer_epoch": 3, "last_sequence": 41, "last_offset": 1041, "offset_delta": 9,
        "timestamp": MS, "coordinator_epoch": 7, "current_txn_first_offset": -1,
    }  # fmt: skip
    assert (second["producer_id"], second["current_txn_first_offset"]) == (98305, 1042)
    assert lines(stem.with_suffix(".snapshot"), vectors.SNAPSHOT_EMPTY) == []


def test_a_snapshot_that_a_broker_throws_away_is_damage(stem: Path) -> None:
    for content in (
        encode.snapshot([Producer(1)], crc=5),
        encode.snapshot([Producer(1)])[:-1],
        b"",
        encode.snapshot([], version=9),
    ):
        code, kept = said(stem.with_suffix(".snapshot"), content)
        assert code == 4
        assert [list(found) for found in kept.objects] == [["damage", "file"]]
        assert len(kept.reports) == 1


# text files


def test_checkpoints_are_shown_entry_by_entry(tmp_path: Path) -> None:
    expected = [{"topic": "orders", "partition": 3, "offset": 1844}, {"topic": "größe", "partition": 0, "offset": 5}]
    for name in (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    ):
        assert lines(tmp_path / name, "0\n2\norders 3 1844\ngröße 0 5\n".encode()) == expected
        assert lines(tmp_path / f"{name}.tmp", b"0\n1\norders 3 1844\n") == expected[:1]
    found = lines(tmp_path / "leader-epoch-checkpoint", b"0\n2\n0 0\n4 1844\n")
    assert found == [{"epoch": 0, "start_offset": 0}, {"epoch": 4, "start_offset": 1844}]


def test_a_malformed_checkpoint_shows_what_can_be_read_and_what_cannot(tmp_path: Path) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    code, kept = said(path, b"0\n2\norders 3 1844\norders x 1\n")
    assert code == 4
    assert kept.objects[0]["offset"] == 1844
    assert list(kept.objects[-1]) == ["damage", "file"]


@pytest.mark.parametrize(
    ("name", "content", "members"),
    [
        ("partition.metadata", b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n",
         {"topic_id": 21 * "A" + "Q"}),
        ("meta.properties", b"#\n#Sat\nversion=1\nnode.id=1\ncluster.id=abc\n", {"node.id": "1", "cluster.id": "abc"}),
        (".kafka_cleanshutdown", b'{"version":0,"brokerEpoch":17}', {"broker_epoch": 17}),
        (
            "quorum-state",
            b'{"leaderId":1,"leaderEpoch":4,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
            {"leader_id": 1, "leader_epoch": 4},
        ),
    ],
)  # fmt: skip
def test_small_files_are_one_object(tmp_path: Path, name: str, content: bytes, members: Object) -> None:
    (found,) = lines(tmp_path / name, content)
    assert {member: found[member] for member in members} == members


@pytest.mark.parametrize("name", ["partition.metadata", "quorum-state", "meta.properties"])
def test_a_small_file_that_makes_no_sense_is_damage(tmp_path: Path, name: str) -> None:
    content = b"\\uZZZZ=1" if name == "meta.properties" else b"garbage"
    code, kept = said(tmp_path / name, content)
    assert code == 4
    assert list(kept.objects[0]) == ["damage", "file"]


def test_a_lock_says_nothing(tmp_path: Path) -> None:
    assert lines(tmp_path / ".lock", b"") == []


def test_every_small_file_of_real_brokers_can_be_shown(tmp_path: Path) -> None:
    """Whatever version wrote them; the fixtures are read where they are."""
    names = {
        path
        for path in FIXTURES.rglob("*")
        if path.is_file() and path.suffix not in (".log", ".checkpoint", ".gitattributes")
    }
    real = sorted(path for path in names if path.parent != FIXTURES and "expected" not in path.parts)
    shown = 0
    for path in real:
        code, kept = dump_file(path, LINES)
        if "not a Kafka file" in "".join(kept.reports):
            continue
        assert (code, kept.reports) == (0, []), path
        shown += 1
    assert shown > 50


# none of these


def test_a_file_of_no_known_name_is_no_kafka_file(tmp_path: Path) -> None:
    for name in ("notes.txt", "README", "00000000000000000000.bak"):
        code, kept = said(tmp_path / name, b"text")
        assert (code, kept.objects) == (8, [])
        assert "not a Kafka file by its name (--as gives its kind)" in kept.reports[0]


def test_csv_is_for_logs(stem: Path) -> None:
    code, kept = said(stem.with_suffix(".index"), encode.offset_entries(1000, [(1006, 1)]), DumpRequest(output=CSV))
    assert (code, kept.data) == (8, b"")
    assert "CSV is for logs; --output jsonl shows it" in kept.reports[0]


def test_a_text_file_larger_than_any_is_not_read(tmp_path: Path) -> None:
    """64 MiB of it would be taken into memory."""
    path = tmp_path / "meta.properties"
    with path.open("wb") as file:
        file.truncate((64 << 20) + 1)
    code, kept = dump_file(path, LINES)
    assert (code, kept.objects) == (8, [])
    assert "more than such a file can have" in kept.reports[0]


@pytest.mark.parametrize("stage", [".deleted", ".cleaned", ".swap"])
@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex"])
def test_a_leftover_of_an_operation_is_not_passed_over_in_silence(stem: Path, kind: str, stage: str) -> None:
    """They may hold the only copy of some records: shown, or refused with a word about --as, but never just nothing."""
    content = {
        "log": batch(some_records(1000)),
        "index": encode.offset_entries(1000, [(1006, 4096)]),
        "timeindex": encode.time_entries(1000, [(MS, 1006)]),
        "txnindex": encode.aborted_entries([(1, 1000, 1003, 1004)]),
    }[kind]
    code, kept = said(stem.with_name(f"{stem.name}.{kind}{stage}"), content)
    assert kept.objects or (code and kept.reports)
