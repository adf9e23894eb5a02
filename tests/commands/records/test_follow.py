"""`klog records --follow`: each record that is appended is printed once, in order."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from klog.commands.dump.dump_request import DumpRequest, DumpTarget, LogInput, LogInputs
from klog.commands.records.appended_records import AppendedRecords
from klog.commands.records.record_rows import RecordRow, RecordRows
from klog.data_dir.partition import Partition
from klog.log.records import RecordFilter

from tests.brokers import clients, kafka
from tests.conftest import FIXTURES, run_klog, writable_copy
from tests.oracles.plain.encode import Record, batch
from tests.schemas.small_registry import ORDER, make, order

PATIENCE_S = 120
OFFSETS = ("--format", "%o\\n")


def offsets(followed: AppendedRecords[RecordRow]) -> list[int]:
    found = list(followed.read())
    assert all(isinstance(row, RecordRow) for row in found), found
    return [row.record.offset for row in found if isinstance(row, RecordRow)]


def snapshots_after(log: Path, logs: list[Path]) -> list[Path]:
    """Return the snapshot that a broker writes when it rolls *log*: it has the base offset of the next segment."""
    return [each.with_suffix(".snapshot") for each in logs[logs.index(log) + 1 :][:1]]


@pytest.mark.parametrize("committed", [False, True])
def test_a_log_that_grows_in_pieces(tmp_path: Path, committed: bool) -> None:
    """A batch that is half written is no damage; it is printed when it is complete.  Segments roll.

    The broker has written the transaction index and the snapshot of a segment when it begins the next one.
    """
    source = FIXTURES / "modern/tx-0"
    logs = sorted(source.glob("*.log"))
    folder = tmp_path / "tx-0"
    folder.mkdir()
    (folder / logs[0].name).touch()
    followed = AppendedRecords(Partition(str(folder)), RecordRows(DumpRequest("jsonl", committed=committed)), 0)
    found: list[int] = []
    for log in logs:
        content = log.read_bytes()
        for at in range(0, len(content) + 1, 997):
            (folder / log.name).write_bytes(content[: at + 997])
            found += offsets(followed)
        for path in (folder / f"{log.stem}.txnindex", *snapshots_after(log, logs)):
            if (source / path.name).exists():
                shutil.copy(source / path.name, folder)
    assert offsets(followed) == []
    everything = AppendedRecords(Partition(str(source)), RecordRows(DumpRequest("jsonl", committed=committed)), 0)
    assert found == offsets(everything) == sorted(set(found))
    assert len(found) > 300


def test_with_a_filter_nothing_is_read_twice(tmp_path: Path) -> None:
    """Records that do not match are passed as well."""
    folder = writable_copy(FIXTURES / "modern/plain-1", tmp_path / "plain-1")
    followed = AppendedRecords(
        Partition(str(folder)), RecordRows(DumpRequest("jsonl", wanted=RecordFilter(to_time=1))), 0
    )
    assert offsets(followed) == []
    assert followed.next_offset == 113


def test_segments_that_are_merged_while_they_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction puts the second segment into the first one, which has been read; the clock of the disk is coarse."""
    folder = tmp_path / "t-0"
    folder.mkdir()
    for base in (0, 10, 20):
        (folder / f"{base:020}.log").write_bytes(batch([Record(base + i, 10**12, b"k", b"v") for i in range(10)]))
    first, second = folder / f"{0:020}.log", folder / f"{10:020}.log"
    given = LogInputs.open

    def merge(self: LogInputs, target: DumpTarget) -> AbstractContextManager[LogInput]:
        if target.path == str(second) and second.exists():
            times = folder.stat()
            merged = tmp_path / "merged"
            merged.write_bytes(first.read_bytes() + second.read_bytes())
            merged.rename(first)
            second.unlink()
            os.utime(folder, ns=(times.st_atime_ns, times.st_mtime_ns))
        return given(self, target)

    monkeypatch.setattr(LogInputs, "open", merge)
    followed = AppendedRecords(Partition(str(folder)), RecordRows(DumpRequest("jsonl")), 0)
    assert offsets(followed) == [*range(10)]
    assert offsets(followed) == [*range(10, 30)]
    assert offsets(followed) == []


def test_a_partition_that_vanishes_is_an_error(tmp_path: Path) -> None:
    folder = writable_copy(FIXTURES / "modern/plain-1", tmp_path / "plain-1")
    process = follow(folder, *OFFSETS)
    begun = read_until(process, 112)
    folder.rename(tmp_path / "plain-1.gone-delete")
    out, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 8
    assert said == f"klog: {folder}: the partition is gone\n".encode()
    assert (len(begun), out) == (10, b"")


def follow(*words: str | Path) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-m", "klog_cli.app", "records", "-f", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment)


def test_a_schema_that_is_registered_meanwhile_is_known(tmp_path: Path) -> None:
    """A producer registers it and sends the first record at once."""
    make(tmp_path, [("orders-value", 1, 7, ORDER)], [Record(0, value=order(1, "a"))])
    with follow(tmp_path / "orders-0", "--schemas", "auto", "--format", "%v\\n") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b'{"id":1,"tags":["a"]}\n'
        key = {"keytype": "SCHEMA", "subject": "orders-value", "version": 2, "magic": 1}
        value = {"subject": "orders-value", "version": 2, "id": 8, "schema": '"string"'}
        registered = Record(1, key=json.dumps(key).encode(), value=json.dumps(value).encode())
        for name, record in (("_schemas-0", registered), ("orders-0", Record(1, value=b"\0\0\0\0\x08\x04hi"))):
            with (tmp_path / name / f"{0:020}.log").open("ab") as log:
                log.write(batch([record], base_offset=1))
        assert process.stdout.readline() == b"hi\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 0
        assert process.stderr is not None
        assert process.stderr.read() == b""


def test_a_log_that_is_cut_is_said_once(tmp_path: Path) -> None:
    """Its broker follows another leader; what it appends then is printed."""
    folder = writable_copy(FIXTURES / "modern/plain-1", tmp_path / "plain-1")
    log = folder / f"{0:020}.log"
    content = log.read_bytes()
    followed = AppendedRecords(Partition(str(folder)), RecordRows(DumpRequest("jsonl")), 113)
    assert (offsets(followed), followed.is_cut) == ([], False)
    log.write_bytes(content[:7646])
    assert (offsets(followed), followed.is_cut, followed.next_offset) == ([], True, 85)
    assert (offsets(followed), followed.is_cut) == ([], False)
    log.write_bytes(content)
    assert offsets(followed) == [*range(85, 113)]


def test_the_end_of_a_pipe_ends_it() -> None:
    """`klog records -f | head -n 1` does not wait for the next record."""
    with follow(FIXTURES / "modern/plain-1", *OFFSETS) as process:
        assert process.stdout is not None
        process.stdout.read(4)
        process.stdout.close()
        assert process.wait(PATIENCE_S) == 0


@pytest.mark.kafka
def test_beside_a_broker(tmp_path: Path) -> None:
    """All codecs and transactions, across rolls and compaction; ^C ends it with exit code 0.

    Compaction may remove a record before it is read, so only those that are left have to be among the printed ones.
    """
    settings = {"log.cleaner.backoff.ms": "200", "log.initial.task.delay.ms": "100"}
    rolled = {"internal.segment.bytes": "100000"}
    topics = {"kept": rolled, "cleaned": rolled | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}}
    with kafka.Cluster(kafka.NEWEST, tmp_path, port=kafka.PORT + 60, settings=settings) as cluster:
        clients.create(cluster.bootstrap, topics)
        processes = {topic: follow(cluster.data / f"{topic}-0", "--from-offset", "0", *OFFSETS) for topic in topics}
        rows = follow(cluster.data / "kept-0", "--from-offset", "0", "--output", "jsonl")
        sent = 0
        for turn, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd", "none")):
            given = [one for one in clients.records(f"turn {turn}", 90) if one.key is not None]
            sent += len(given)
            for topic in topics:
                transaction = f"follow-{topic}" if turn % 2 else ""
                clients.with_librdkafka(cluster.bootstrap, topic, codec, given, transaction=transaction)
        found = {}
        for topic, process in processes.items():
            partition = cluster.data / f"{topic}-0"
            left = dumped(partition)
            lines = read_until(process, left[-1])
            assert len(list(partition.glob("*.log"))) > 1
            process.send_signal(signal.SIGINT)
            out, said = process.communicate(timeout=PATIENCE_S)
            assert (process.returncode, said) == (0, b"")
            found[topic] = list(map(int, [*lines, *out.splitlines()]))
            assert found[topic] == sorted(set(found[topic]))
            assert set(left) <= set(found[topic])
        every = run_klog("dump", cluster.data / "kept-0", "--output", "jsonl").stdout
        assert interrupted(rows, len(every)) == every
    assert len(found["kept"]) == sent
    assert len(left) < sent, "compaction has removed records"


def interrupted(process: subprocess.Popen[bytes], size: int) -> bytes:
    """Return the output of a process that ^C ends once it has written *size* bytes."""
    assert process.stdout is not None
    read, until = b"", time.monotonic() + PATIENCE_S
    while len(read) < size and time.monotonic() < until:
        if select.select([process.stdout], [], [], 0.5)[0]:
            read += os.read(process.stdout.fileno(), 1 << 16)
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, said) == (0, b"")
    return read + out


def dumped(partition: Path) -> list[int]:
    """Return the offsets of the data records that a partition has."""
    done = run_klog("dump", partition, "--no-control", "--output", "jsonl", "--values", "none")
    return [json.loads(line)["offset"] for line in done.stdout.splitlines()]


def read_until(process: subprocess.Popen[bytes], offset: int) -> list[bytes]:
    """Return the lines of a process, up to that of *offset* at least."""
    assert process.stdout is not None
    read, until = b"", time.monotonic() + PATIENCE_S
    while f"\n{offset}\n".encode() not in b"\n" + read and time.monotonic() < until:
        if select.select([process.stdout], [], [], 0.5)[0]:
            read += os.read(process.stdout.fileno(), 1 << 16)
    assert read.endswith(b"\n")
    return read.splitlines()
