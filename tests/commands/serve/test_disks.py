"""Disks that change or fail while clients read, and a process that may open little: reported once, and others
continue."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.commands.serve.serving import Serving, Wire
from tests.conftest import FIXTURES, writable_copy

MODERN = FIXTURES / "modern"
SOMEBODY = 65534
BATCH = (MODERN / "zstd-0" / f"{0:020}.log").read_bytes()
SIZE = 12 + int.from_bytes(BATCH[8:12], "big")
RECORDS = int.from_bytes(BATCH[57:61], "big")


def log_dir(folder: Path, segments: int, batches: int = 1) -> Path:
    """Make a log dir with one partition, `long-0`, of so many segments of so many batches each."""
    (folder / "long-0").mkdir(parents=True)
    shutil.copyfile(MODERN / "meta.properties", folder / "meta.properties")
    for number in range(segments):
        base = number * batches * RECORDS
        each = (struct.pack(">q", base + each * RECORDS) + BATCH[8:SIZE] for each in range(batches))
        (folder / "long-0" / f"{base:020}.log").write_bytes(b"".join(each))
    return folder


def read(port: int, until: int) -> list[int]:
    """Return the base offsets of all batches of `long-0`; at each step the last one of the answer is read."""
    found, offset = [], 0
    with Wire(port) as wire:
        while offset < until:
            answer = wire.fetch("long", offset, partition_max_bytes=1)
            assert not answer["errorCode"], (offset, answer["errorCode"])
            if not answer["records"]:
                break
            found.append(int.from_bytes(answer["records"][:8], "big"))
            offset = found[-1] + RECORDS
    return found


STORAGE = 56  # KAFKA_STORAGE_ERROR


def _without_rights() -> None:
    """Give up root's right to read everything: for the next process."""
    for capability in (1, 2):  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
        ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)  # PR_CAPBSET_DROP


def given_away(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        if os.getuid() == 0:
            os.chown(path, SOMEBODY, SOMEBODY)
        path.chmod(0o555 if path.is_dir() else 0o444)


def said(serving: Serving, what: str) -> bool:
    return serving.says(what) and serving.said.count(what) == 1


def test_300_segments_and_clients_without_end_where_64_files_may_be_open(tmp_path: Path) -> None:
    """A file that could not be opened for lack of descriptors was skipped as if it were damaged: records were lost."""
    folder = log_dir(tmp_path / "data", 300)
    code = "import resource,sys; resource.setrlimit(resource.RLIMIT_NOFILE,(64,64)); import runpy; sys.argv[0]='klog'"
    with Serving(folder, start=f"{code}; runpy.run_module('klog_cli.app', run_name='__main__')") as serving:
        found: list[list[int]] = []
        turned_away = []

        def reader() -> None:
            try:
                found.append(read(serving.port, 300 * RECORDS))
            except (EOFError, ConnectionError):
                turned_away.append(1)

        threads = [threading.Thread(target=reader) for _ in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert all(one == [number * RECORDS for number in range(300)] for one in found)
        assert len(found) >= 16
        assert serving.says("only 16 connections at a time")
        assert "Too many open files" not in serving.said


def test_what_must_not_be_read_is_said_and_the_rest_is_served(tmp_path: Path) -> None:
    """A directory that cannot be listed looked empty: a consumer would take its end for the end of the log."""
    folder = writable_copy(MODERN, tmp_path / "data")
    given_away(folder)
    (folder / "zstd-0").chmod(0)
    (log,) = (folder / "gzip-0").glob("*000.log")
    log.chmod(0)
    try:
        for damaged in ("skip", "stop"):
            with Serving(folder, "--damaged", damaged, before=_without_rights) as serving, Wire(serving.port) as wire:
                assert len(wire.ask("Metadata", 12, {"topics": None})["topics"]) == 12
                for _ in range(3):
                    for topic in ("zstd", "gzip"):
                        assert (wire.fetch(topic, 0)["errorCode"], wire.fetch(topic, 0)["records"]) == (STORAGE, b"")
                        asked = {"name": topic, "partitions": [{"partitionIndex": 0, "timestamp": -1}]}
                        told = wire.ask("ListOffsets", 5, {"replicaId": -1, "isolationLevel": 0, "topics": [asked]})
                        assert told["topics"][0]["partitions"][0]["errorCode"] == STORAGE
                assert wire.fetch("tx", 0)["records"]
                assert said(serving, f"{folder}/zstd-0: cannot be listed: Permission denied")
                assert said(serving, f"{log}: cannot open: Permission denied")
                assert serving.end() & 8
    finally:
        (folder / "zstd-0").chmod(0o755)


@pytest.mark.parametrize("damaged", ["skip", "stop", "serve"])
def test_files_that_shrink_vanish_or_are_replaced(tmp_path: Path, damaged: str) -> None:
    """Whole batches or nothing, never another file's bytes; and another topic's reader continues."""
    folder = log_dir(tmp_path / "data", 3, 20)
    writable_copy(MODERN / "gzip-0", folder / "gzip-0")
    logs = sorted((folder / "long-0").glob("*.log"))
    with Serving(folder, "--damaged", damaged) as serving, Wire(serving.port) as other:
        assert read(serving.port, RECORDS) == [0]
        expected = other.fetch("gzip", 0)
        os.truncate(logs[0], SIZE * 3 + 7)
        logs[1].rename(tmp_path / "away")
        logs[2].with_suffix(".new").write_bytes(b"\xff" * logs[2].stat().st_size)
        logs[2].with_suffix(".new").rename(logs[2])
        with Wire(serving.port) as wire:
            for offset in range(0, 60 * RECORDS, RECORDS):
                try:
                    answer = wire.fetch("long", offset, partition_max_bytes=1)
                except EOFError:
                    wire = Wire(serving.port)
                    continue
                data = answer["records"]
                assert not data or data[8:] == BATCH[8:SIZE] or damaged == "serve", offset
            wire.socket.close()
        assert other.fetch("gzip", 0) == expected
        assert "Traceback" not in serving.said
        assert said(serving, f"{logs[0]}: it became shorter")


def test_what_is_appended_meanwhile_is_not_seen(tmp_path: Path) -> None:
    """A live broker's log: half a batch, then the rest of it, under a reader."""
    folder = log_dir(tmp_path / "data", 1, 5)
    log = folder / "long-0" / f"{0:020}.log"
    with Serving(folder) as serving:
        assert len(read(serving.port, 5 * RECORDS)) == 5
        more = struct.pack(">q", 5 * RECORDS) + BATCH[8:SIZE]
        for part in (more[:100], more[100:]):
            with log.open("ab") as file:
                file.write(part)
            assert len(read(serving.port, 9 * RECORDS)) == 5
        assert "left out" not in serving.said
    with Serving(folder) as serving:
        assert len(read(serving.port, 9 * RECORDS)) == 6


EIO = """
import errno, os, sys
name = {name!r}
real = getattr(os, name)
def failing(*given):
    at = given[2]
    if os.readlink(f"/proc/self/fd/{{given[1 if name == 'sendfile' else 0]}}").endswith('/long-0/{log}') and at >= {at}:
        raise OSError(errno.EIO, os.strerror(errno.EIO))
    return real(*given)
setattr(os, name, failing)
sys.argv[0] = 'klog'
import runpy
runpy.run_module('klog_cli.app', run_name='__main__')
"""


@pytest.mark.parametrize(("name", "damaged"), [("preadv", "skip"), ("preadv", "stop"), ("sendfile", "serve")])
def test_a_disk_that_fails_in_the_middle_of_a_log(tmp_path: Path, name: str, damaged: str) -> None:
    folder = log_dir(tmp_path / "data", 2, 20)
    writable_copy(MODERN / "gzip-0", folder / "gzip-0")
    start = EIO.format(name=name, log=f"{0:020}.log", at=SIZE * 10)
    with Serving(folder, "--damaged", damaged, start=start) as serving, Wire(serving.port) as wire:
        with Wire(serving.port) as other:
            for _ in range(2):
                try:
                    answer = other.fetch("long", 10 * RECORDS)
                except EOFError:
                    assert name == "sendfile"
                    break
                if damaged == "stop":
                    assert answer["errorCode"] in (2, 56)
                else:
                    assert int.from_bytes(answer["records"][:8], "big") >= 20 * RECORDS
        assert wire.fetch("gzip", 0)["records"]
        assert wire.fetch("long", 20 * RECORDS)["records"]
        assert said(serving, "Input/output error")
        assert "Traceback" not in serving.said


WRITES = """
import os, sys
def told(event, given):
    if event == 'open':
        path, mode, flags = given
        if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND):
            print('WRITES', path, flags, file=sys.stderr)
    elif event in {'os.rename', 'os.remove', 'os.link', 'os.symlink', 'os.mkdir', 'os.rmdir', 'os.truncate', 'os.chmod',
                   'os.chown', 'os.utime', 'os.setxattr', 'os.removexattr', 'fcntl.lockf', 'fcntl.flock'}:
        print('WRITES', event, given, file=sys.stderr)
sys.dont_write_bytecode = True
sys.addaudithook(told)
sys.argv[0] = 'klog'
import runpy
runpy.run_module('klog_cli.app', run_name='__main__')
"""


def test_nothing_is_written(tmp_path: Path) -> None:
    """All of a disk is read, by time and in a group, on which this process may not write; and it does not try."""
    from tests.commands.serve.readers import READERS

    folder = writable_copy(MODERN, tmp_path / "data")
    given_away(folder)

    def facts() -> dict[str, tuple[int, ...]]:
        found = {}
        for path in (folder, *folder.rglob("*")):
            one = path.lstat()
            times = one.st_mtime_ns, one.st_ctime_ns
            found[str(path)] = (one.st_ino, one.st_mode, one.st_nlink, one.st_size, *times)
        return found

    before, content = facts(), {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with Serving(folder, "--internal", start=WRITES, before=_without_rights) as serving:
        with Wire(serving.port) as wire:
            topics = [one["name"] for one in wire.ask("Metadata", 12, {"topics": None})["topics"]]
            rows = [{"partitionIndex": 0, "timestamp": at} for at in (-1, -2, -3, 0, 1_700_000_000_000)]
            wanted = [{"name": name, "partitions": rows} for name in topics]
            wire.ask("ListOffsets", 7, {"replicaId": -1, "isolationLevel": 1, "topics": wanted})
            wire.ask("DescribeLogDirs", 1, {"topics": None})
            wire.ask("ListGroups", 5, {})
        assert len(topics) > 12
        for topic in topics:
            READERS["librdkafka"](serving.bootstrap, topic, "read_committed", None)
        READERS["kafka-python"](serving.bootstrap, "zstd", "read_committed", "readers")
        assert serving.says("commits offsets")
    assert "WRITES" not in serving.said
    assert facts() == before
    assert {path: path.read_bytes() for path in content} == content


@pytest.mark.parametrize(
    "name",
    [
        "tx-0/*000.log", "tx-0/leader-epoch-checkpoint", "tx-0/partition.metadata", "__cluster_metadata-0",
        "__transaction_state-1", "meta.properties", "log-start-offset-checkpoint",
    ],
)  # fmt: skip
def test_each_path_that_it_asks_for_and_may_not_read_is_named(name: str, tmp_path: Path) -> None:
    """Its exit code has it, as that of every command, and clients get an error where a partition would look empty."""
    folder = writable_copy(MODERN, tmp_path / "data")
    given_away(folder)
    (path,) = folder.glob(name)
    path.chmod(0)
    try:
        with Serving(folder, "--damaged", "skip", before=_without_rights) as serving, Wire(serving.port) as wire:
            wire.ask("Metadata", 12, {"topics": None})
            answer = wire.fetch("tx", 0)
            assert answer["records"] or answer["errorCode"] == STORAGE
            code = serving.end()
        assert code & 8
        assert not code & 1
        assert str(path) in serving.said
    finally:
        path.chmod(0o755)


def test_a_log_dir_that_may_not_be_listed_is_refused(tmp_path: Path) -> None:
    folder = writable_copy(MODERN, tmp_path / "data")
    given_away(folder)
    folder.chmod(0)
    try:
        command = [sys.executable, "-m", "klog_cli.app", "serve", str(folder), "--listen", "127.0.0.1:0"]
        ended = subprocess.run(command, capture_output=True, text=True, preexec_fn=_without_rights, check=False)
        assert ended.returncode & 8
        assert str(folder) in ended.stderr
    finally:
        folder.chmod(0o755)
