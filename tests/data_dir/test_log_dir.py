"""A log dir: its owner, its last stop, its lock, and the objects of a path."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from klog.base.errors import KlogError, NotKafkaError, UnreadableError, UsageError
from klog.data_dir.log_dir import Lock, LogDir, lock_state
from klog.data_dir.partition import Partition
from klog.data_dir.root_files import RootFiles
from klog.data_dir.selection import KafkaFile, open_path, select
from klog.formats.checkpoint import Malformed
from klog.formats.names import FileKind
from klog.formats.properties import CleanShutdown

from tests.conftest import FIXTURES

UNIQUE = "0f8fad5bd9cb469fa16570867728950e"
HOLDER = """
import fcntl, sys
with open(sys.argv[1], "r+b") as lock:
    getattr(fcntl, sys.argv[2])(lock, fcntl.LOCK_EX)
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held(lock: Path, call: str = "lockf") -> Iterator[int]:
    """Hold *lock* as another process, which a JVM's FileLock does with lockf; yields its pid."""
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(lock), call], stdin=-1, stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        process.communicate()


@contextmanager
def powerless() -> Iterator[None]:
    """Become the user `nobody` for a while, if the tests run as root, for whom everything is readable."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def in_the_open() -> Iterator[Path]:
    """A directory that the user `nobody`, too, can reach."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def names(log_dir: LogDir) -> list[str]:
    return [partition.directory for partition in log_dir.partitions]


# whose it is, how it was left


@pytest.mark.parametrize(
    ("name", "version", "is_kraft", "epoch"),
    [("modern", "4.0", True, 568), ("v39/data1", "3.7", True, 118), ("legacy", "0.11", False, None)],
)
def test_what_small_files_tell_of_a_log_dir(name: str, version: str, is_kraft: bool, epoch: int | None) -> None:
    log_dir = LogDir(str(FIXTURES / name))
    assert (log_dir.node_id, log_dir.oldest_version, log_dir.is_kraft) == (1, version, is_kraft)
    assert log_dir.cluster_id is not None
    assert (log_dir.directory_id is not None) == is_kraft
    assert log_dir.clean_shutdown is not None
    assert log_dir.clean_shutdown.broker_epoch == epoch
    assert (log_dir.foreign_directories, log_dir.others, log_dir.leftovers) == ((), (), ())
    assert (log_dir.metadata_log is not None) == (name == "modern")


def test_a_log_dir_after_a_crash_has_no_marker() -> None:
    assert LogDir(str(FIXTURES / "crash" / "torn-in-batch")).clean_shutdown is None


def test_partitions_come_by_topic_and_number(tmp_path: Path) -> None:
    for name in ("b-10", "b-2", "a-1", f"b-2.{UNIQUE}-delete", "remote-log-index-cache", "old.bak", "lost+found"):
        (tmp_path / name).mkdir()
    (tmp_path / "c-1").touch()
    (tmp_path / "d-1").symlink_to(tmp_path / "a-1")
    (tmp_path / "e-1").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "f-1")
    log_dir = LogDir(str(tmp_path))
    assert names(log_dir) == ["a-1", "b-2", f"b-2.{UNIQUE}-delete", "b-10", "d-1"]
    assert log_dir.foreign_directories == ("lost+found", "old.bak")
    assert [file.name for file in log_dir.files] == ["c-1"]
    assert log_dir.others == ("e-1", "f-1")


def test_a_link_to_itself_is_neither_file_nor_directory(tmp_path: Path) -> None:
    """One such link must not keep anybody from reading the partitions beside it."""
    (tmp_path / "a-1").mkdir()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    log_dir = LogDir(str(tmp_path))
    assert names(log_dir) == ["a-1"]
    assert log_dir.others == ("loop",)


def test_malformed_files_are_values(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=9\n")
    (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0\n")
    (tmp_path / "recovery-point-offset-checkpoint").touch()
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"\xff")
    (tmp_path / "cleaner-offset-checkpoint.tmp").touch()
    (tmp_path / "t-0").mkdir()
    log_dir = LogDir(str(tmp_path))
    assert isinstance(log_dir.meta, Malformed)
    assert (log_dir.cluster_id, log_dir.node_id, log_dir.directory_id, log_dir.is_kraft) == (None, None, None, None)
    found = log_dir.checkpoints.file(FileKind.HIGH_WATERMARKS)
    assert found is not None
    assert found.malformed is not None
    assert log_dir.partition("t-0").high_watermark is None
    empty = log_dir.checkpoints.file(FileKind.RECOVERY_POINTS)
    assert empty is not None
    assert empty.malformed is None
    assert log_dir.checkpoints.file(FileKind.LOG_STARTS) is None
    assert log_dir.clean_shutdown is not None
    assert [file.name for file in log_dir.leftovers] == ["cleaner-offset-checkpoint.tmp"]


def test_a_marker_of_a_clean_stop_that_cannot_be_read_is_one_all_the_same(in_the_open: Path) -> None:
    """That the file is there is what counts to a broker, and keeps it from recovering every log."""
    marker = in_the_open / ".kafka_cleanshutdown"
    marker.write_text('{"version":0,"brokerEpoch":5}')
    marker.chmod(0)
    with powerless():
        assert LogDir(str(in_the_open)).clean_shutdown == CleanShutdown(None)


def test_a_log_dir_that_is_not_there_cannot_be_listed(tmp_path: Path) -> None:
    log_dir = LogDir(str(tmp_path / "data"))
    with pytest.raises(UnreadableError, match="No such file or directory"):
        _ = log_dir.partitions
    with pytest.raises(UnreadableError, match="No such file or directory"):
        _ = LogDir(str(tmp_path / "data")).cluster_id  # nor is it one without an id


def test_a_partition_that_cannot_be_listed_leaves_the_others_alone(in_the_open: Path) -> None:
    for name in ("a-0", "b-0"):
        (in_the_open / name).mkdir()
        (in_the_open / name / f"{0:020}.log").touch()
    os.chmod(in_the_open / "a-0", 0)
    log_dir = LogDir(str(in_the_open))
    with powerless():
        first, second = log_dir.partitions
        assert first.unreadable == "cannot be listed: Permission denied"
        assert first.segments == ()
        assert second.unreadable is None
        assert len(second.segments) == 1
    os.chmod(in_the_open / "a-0", 0o700)


def test_files_that_may_not_be_read_are_values(in_the_open: Path) -> None:
    (in_the_open / "meta.properties").write_text("version=1\n")
    (in_the_open / ".lock").touch()
    for name in ("meta.properties", ".lock"):
        os.chmod(in_the_open / name, 0)
    log_dir = LogDir(str(in_the_open))
    assert lock_state(str(in_the_open / "no.lock")) == Lock(False)
    with powerless():
        assert isinstance(log_dir.meta, Malformed)
        assert "Permission denied" in log_dir.meta.reason
        assert log_dir.lock.held is None
        assert "Permission denied" in str(log_dir.lock.reason)


# who holds it


def test_a_lock_that_another_process_holds_is_seen(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    with held(tmp_path / ".lock") as pid:
        assert LogDir(str(tmp_path)).lock == Lock(True, pid)
    assert LogDir(str(tmp_path)).lock == Lock(False)


def test_a_lock_of_the_other_family_is_none(tmp_path: Path) -> None:
    """flock and fcntl do not see each other; a JVM takes the latter."""
    (tmp_path / ".lock").touch()
    with held(tmp_path / ".lock", "flock"):
        assert LogDir(str(tmp_path)).lock == Lock(False)


def test_asking_for_the_lock_creates_and_takes_nothing(tmp_path: Path) -> None:
    assert LogDir(str(tmp_path)).lock == Lock(False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / ".lock").touch()
    assert LogDir(str(tmp_path)).lock == Lock(False)
    with (tmp_path / ".lock").open("r+b") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_reading_leaves_no_trace(tmp_path: Path) -> None:
    """Not even an access time, where the system can do without."""
    data = tmp_path / "data"
    shutil.copytree(FIXTURES / "modern", data)
    paths = [data, *data.rglob("*")]
    for path in paths:
        os.utime(path, (1_000_000, 1_000_000_000))
    before = {path: path.stat() for path in paths}
    log_dir = LogDir(str(data))
    for partition in log_dir.partitions:
        _ = (partition.log_end, partition.topic_id, partition.leader_epoch, partition.high_watermark)
    _ = (log_dir.meta, log_dir.lock, log_dir.clean_shutdown, log_dir.oldest_version)
    # rglob itself would list the directories, so the paths are those from before.
    assert {path: path.stat() for path in paths} == before
    assert sorted([data, *data.rglob("*")]) == sorted(paths)


# the objects of a path


def test_a_path_names_a_log_dir_a_partition_or_a_file() -> None:
    modern = FIXTURES / "modern"
    assert isinstance(open_path(str(modern)), LogDir)
    assert isinstance(open_path(f"{modern}/"), LogDir)
    partition = open_path(f"{modern}/tx-0/")
    assert isinstance(partition, Partition)
    assert (partition.topic, partition.high_watermark) == ("tx", 648)
    file = open_path(str(modern / "tx-0" / f"{0:020}.log"))
    assert isinstance(file, KafkaFile)
    assert (file.name.kind, file.name.offset) == (FileKind.LOG, 0)


def test_the_current_directory_is_known_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FIXTURES / "modern" / "tx-0")
    partition = open_path(".")
    assert isinstance(partition, Partition)
    assert (partition.topic, partition.number, partition.recovery_point) == ("tx", 0, 648)


@pytest.mark.parametrize("content", ["meta.properties", "cleaner-offset-checkpoint", ".lock", "orders-3/"])
def test_a_log_dir_may_be_called_like_a_partition(tmp_path: Path, content: str) -> None:
    """kafka-logs-1 is a popular name for a log dir."""
    path = tmp_path / "kafka-logs-1"
    path.mkdir()
    if content.endswith("/"):
        (path / content).mkdir()
    else:
        (path / content).touch()
    assert isinstance(open_path(str(path)), LogDir)


@pytest.mark.parametrize("content", [f"{7:020}.log", f"{7:020}.index.deleted", "partition.metadata", "5.log"])
def test_a_partition_may_be_called_anything(tmp_path: Path, content: str) -> None:
    """Somebody copied it aside: its content shows its kind."""
    path = tmp_path / "copy of orders"
    path.mkdir()
    (path / content).touch()
    partition = open_path(str(path))
    assert isinstance(partition, Partition)
    assert (partition.topic, partition.number) == (None, None)


def test_an_empty_directory_is_a_partition_only_inside_a_log_dir(tmp_path: Path) -> None:
    (tmp_path / "orders-3").mkdir()
    with pytest.raises(NotKafkaError):
        open_path(str(tmp_path / "orders-3"))
    (tmp_path / "meta.properties").touch()
    assert isinstance(open_path(str(tmp_path / "orders-3")), Partition)


def test_logs_of_other_programs_are_no_kafka_data(tmp_path: Path) -> None:
    (tmp_path / "kern.log").write_text("[0.0] Linux version\n")
    (tmp_path / "notes.txt").touch()
    with pytest.raises(NotKafkaError, match="is not a Kafka log dir"):
        open_path(str(tmp_path))
    for path in (tmp_path / "notes.txt", tmp_path / "missing", Path("/dev/null")):
        with pytest.raises(UsageError, match="expected a log dir") as raised:
            open_path(str(path))
        assert str(path) in str(raised.value)
        assert "\n" not in str(raised.value)


def test_directories_with_names_like_partitions_make_no_log_dir(tmp_path: Path) -> None:
    """/etc has dbus-1 and polkit-1; a broker's directories hold its files, or nothing while they are new."""
    (tmp_path / "dbus-1/system.d").mkdir(parents=True)
    (tmp_path / "orders-3").mkdir()
    message = f"{tmp_path} is not a Kafka log dir (no meta.properties, no checkpoints, no partitions)"
    with pytest.raises(NotKafkaError, match=re.escape(message)):
        open_path(str(tmp_path))
    (tmp_path / f"orders-3/{0:020}.log").touch()
    assert isinstance(open_path(str(tmp_path)), LogDir)


def test_a_partition_that_cannot_be_listed_may_be_a_brokers(in_the_open: Path) -> None:
    (in_the_open / "data/orders-3").mkdir(parents=True)
    (in_the_open / "data/dbus-1/system.d").mkdir(parents=True)
    os.chmod(in_the_open / "data/orders-3", 0)
    with powerless():
        assert isinstance(open_path(str(in_the_open / "data")), LogDir)


def test_a_pipe_is_refused_without_waiting_for_a_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f"{0:020}.log")
    with pytest.raises(UsageError, match="neither a file nor a directory"):
        open_path(str(tmp_path / f"{0:020}.log"))


def test_a_directory_that_may_not_be_listed_is_no_question_of_usage(in_the_open: Path) -> None:
    (in_the_open / "closed" / "data").mkdir(parents=True)
    os.chmod(in_the_open / "closed", 0)
    with powerless():
        for path in ("closed", "closed/data"):
            with pytest.raises(KlogError, match="Permission denied") as raised:
                open_path(str(in_the_open / path))
            assert raised.value.exit_code == 8
    os.chmod(in_the_open / "closed", 0o700)


# a choice of partitions


def make(root: Path, *directories: str) -> LogDir:
    for name in directories:
        (root / name).mkdir()
    return LogDir(str(root))


def test_topics_are_chosen_by_name_or_glob_and_partitions_by_number(tmp_path: Path) -> None:
    log_dir = make(tmp_path, "orders-0", "orders-1", "orders-eu-0", "users-0", "users-1")
    for topics, numbers, expected in (
        ((), (), ["orders-0", "orders-1", "orders-eu-0", "users-0", "users-1"]),
        (("orders",), (), ["orders-0", "orders-1"]),
        (("orders*",), (0,), ["orders-0", "orders-eu-0"]),
        (("users", "orders-eu"), (), ["orders-eu-0", "users-0", "users-1"]),
        ((), (1,), ["orders-1", "users-1"]),
        (("?sers",), (0, 1), ["users-0", "users-1"]),
    ):
        assert [partition.directory for partition in select(log_dir.partitions, topics, numbers)] == expected


@pytest.mark.parametrize(
    ("topics", "numbers", "message"),
    [
        (("order",), (), "no topic order; did you mean orders?"),
        (("zzz*",), (), "no topic zzz*"),
        (("users", "ordrs"), (), "no topic ordrs; did you mean orders?"),
        (("orders",), (0, 7), "no partition 7 of orders"),
        (("users",), (0, 1), "no partition 1 of users"),
        ((), (9,), "no partition 9 of any topic"),
        (("Orders",), (), "no topic Orders; did you mean orders?"),
    ],
)
def test_a_choice_that_nothing_matches_is_said_with_near_misses(
    tmp_path: Path, topics: tuple[str, ...], numbers: tuple[int, ...], message: str
) -> None:
    log_dir = make(tmp_path, "orders-0", "orders-1", "users-0")
    with pytest.raises(UsageError) as raised:
        select(log_dir.partitions, topics, numbers)
    assert str(raised.value) == message
    assert raised.value.exit_code == 16


def test_leftovers_of_one_partition_come_by_name(tmp_path: Path) -> None:
    """A listing that changes from call to call cannot be compared with yesterday's."""
    expected = [f"orders-0.{digit * 32}-delete" for digit in "0123456789abcdef"]
    assert names(make(tmp_path, *expected[::-1])) == expected


def test_a_partition_is_found_by_its_directory(tmp_path: Path) -> None:
    log_dir = make(tmp_path, "orders-0", "orders-1", f"orders-1.{UNIQUE}-delete")
    assert log_dir.partition("orders-1").number == 1
    with pytest.raises(UsageError, match=r"no partition order-1; did you mean orders-1 or orders-0\?"):
        log_dir.partition("order-1")


def test_a_checkpoint_of_a_million_lines_still_tells_of_the_partitions_that_are_here(tmp_path: Path) -> None:
    """Only entries about a directory of the log dir are kept of it, whichever name the directory has meanwhile."""
    for name in ("orders-3", f"orders-4.{UNIQUE}-delete"):
        (tmp_path / name).mkdir()
    others = [f"topic-{i} 0 7" for i in range(100_000)]
    lines = ["orders 3 1", *others, "orders 4 18", "orders 5 19", "orders 3 41"]
    (tmp_path / "log-start-offset-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")
    found = RootFiles(str(tmp_path))
    assert [found.offset(FileKind.LOG_STARTS, "orders", number) for number in (3, 4, 5)] == [41, 18, None]
    assert found.malformed(FileKind.LOG_STARTS) is None
    (tmp_path / "log-start-offset-checkpoint").write_text("\n".join(["0", str(len(lines) + 1), *lines]) + "\n")
    malformed = RootFiles(str(tmp_path))
    assert malformed.offset(FileKind.LOG_STARTS, "orders", 3) is None
    assert malformed.malformed(FileKind.LOG_STARTS) is not None
