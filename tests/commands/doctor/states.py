"""States in which an operator may find a disk, each a function that brings a stopped disk into it.

`DISK_STATES` change a log dir or the node; each may stop the broker.  `PARTITION_STATES` change one partition, so that
one start shows many of them.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from klog.data_dir.partition import Partition

from tests.brokers.kafka import cluster_identity
from tests.commands.doctor.broker import TOPIC
from tests.oracles.plain.encode import Record, batch

RESERVED = "AAAAAAAAAAAAAAAAAAAAYA"
ZERO = "AAAAAAAAAAAAAAAAAAAAAA"
METADATA = "__cluster_metadata-0"


class Disk:
    """The two log dirs of a stopped broker."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.data1 = folder, folder / "data", folder / "data1"

    @property
    def dirs(self) -> list[Path]:
        return [self.data, self.data1]

    def path(self, number: int, topic: str = TOPIC) -> Path:
        """Return the directory of a partition."""
        return next(one / f"{topic}-{number}" for one in self.dirs if (one / f"{topic}-{number}").is_dir())

    def other(self, path: Path) -> Path:
        """The log dir in which a partition is not."""
        return self.data1 if path.parent == self.data else self.data

    @property
    def logs1(self) -> list[Path]:
        """The partitions of the second log dir that have a log; none if another state took the log dir away."""
        return sorted(path for path in self.data1.glob(f"{TOPIC}-*") if logs(path))

    def set_property(self, log_dir: Path, name: str, value: str | None) -> None:
        """Change a line of `meta.properties`, or remove it."""
        file = log_dir / "meta.properties"
        lines = [line for line in file.read_text().splitlines() if not line.startswith(f"{name}=")]
        file.write_text("\n".join([*lines, *([f"{name}={value}"] if value is not None else [])]) + "\n")

    def property_of(self, log_dir: Path, name: str) -> str:
        """Return a value of `meta.properties`."""
        found = re.search(rf"(?m)^{re.escape(name)}=(.*)$", (log_dir / "meta.properties").read_text())
        assert found
        return found[1]


def unique() -> str:
    return uuid.uuid4().hex


def set_checkpoint(log_dir: Path, name: str, topic: str, number: int, offset: int | None) -> None:
    """Set the line of a partition in a checkpoint of a log dir, or remove it."""
    file = log_dir / name
    lines = file.read_text().splitlines()[2:] if file.exists() else []
    lines = [line for line in lines if line.split()[:2] != [topic, str(number)]]
    lines += [f"{topic} {number} {offset}"] if offset is not None else []
    file.write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


def flip(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 0xFF
    file.write_bytes(content)


def logs(path: Path) -> list[Path]:
    return sorted(path.glob("*.log"))


def in_one(which: int, name: str, value: str | None) -> Callable[[Disk], None]:
    return lambda disk: disk.set_property(disk.dirs[which], name, value)


def everywhere(name: str, value: str | None) -> Callable[[Disk], None]:
    def change(disk: Disk) -> None:
        for one in disk.dirs:
            disk.set_property(one, name, value)

    return change


def _without_meta(*which: int) -> Callable[[Disk], None]:
    def change(disk: Disk) -> None:
        for one in which:
            (disk.dirs[one] / "meta.properties").unlink()

    return change


def _empty_meta(disk: Disk) -> None:
    (disk.data1 / "meta.properties").write_bytes(b"")


def _same_directory_id(disk: Disk) -> None:
    disk.set_property(disk.data1, "directory.id", disk.property_of(disk.data, "directory.id"))


def _swapped_ids(disk: Disk) -> None:
    ids = [disk.property_of(one, "directory.id") for one in disk.dirs]
    for one, directory in zip(disk.dirs, reversed(ids), strict=True):
        disk.set_property(one, "directory.id", directory)


def _of_an_absent_log_dir(disk: Disk) -> None:
    """A log dir has another id, and neither it nor the other has two of the partitions that were in it.

    A third, whose topic id is deleted, has to be set aside.
    """
    first, second, third = disk.logs1[:3]
    shutil.rmtree(first)
    shutil.rmtree(second)
    (third / "partition.metadata").unlink()
    disk.set_property(disk.data1, "directory.id", cluster_identity())


def _version_0(disk: Disk) -> None:
    for one in disk.dirs:
        cluster = disk.property_of(one, "cluster.id")
        (one / "meta.properties").write_text(f"version=0\nbroker.id=1\ncluster.id={cluster}\n")


def _directory(which: int, name: str) -> Callable[[Disk], None]:
    def change(disk: Disk) -> None:
        (disk.dirs[which] / name).mkdir()

    return change


def _plain_files(disk: Disk) -> None:
    for name in ("orders-55", "README", "lost+found"):
        (disk.data / name).write_text("x")


def _duplicate(disk: Disk) -> None:
    path = disk.path(3)
    shutil.copytree(path, disk.other(path) / path.name)


def _two_futures(disk: Disk) -> None:
    path = disk.path(3)
    for log_dir in disk.dirs:
        shutil.copytree(path, log_dir / f"{path.name}.{unique()}-future")


def _future_beside(disk: Disk) -> None:
    path = disk.path(4)
    shutil.copytree(path, path.parent / f"{path.name}.{unique()}-future")


def _checkpoint(which: int, name: str, content: bytes) -> Callable[[Disk], None]:
    return lambda disk: (disk.dirs[which] / name).write_bytes(content) and None


def _open_transaction_in_a_failed_dir(disk: Disk) -> None:
    """A log dir that is offline before its logs are loaded, with an open transaction in one of them."""
    path = disk.logs1[0]
    log, end = logs(path)[-1], Partition(str(path)).log_end
    assert end is not None
    assert end.last is not None
    record = Record(end.offset, end.last.max_timestamp, b"k", b"v")
    with open(log, "ab") as file:
        file.write(batch([record], transactional=True, producer=(0, 0, 0), leader_epoch=end.last.leader_epoch))
    (disk.data1 / "recovery-point-offset-checkpoint").write_bytes(b"0\n2\norders 1 2\n")


def _without_checkpoints(disk: Disk) -> None:
    for one in disk.dirs:
        for file in one.glob("*-checkpoint"):
            file.unlink()


def _one_marker(disk: Disk) -> None:
    """One log dir has the clean-shutdown marker, the other not."""
    marker = disk.data / ".kafka_cleanshutdown"
    marker.unlink() if marker.exists() else marker.write_text('{"version":0,"brokerEpoch":-1}')


def _other_epoch(disk: Disk) -> None:
    for one in disk.dirs:
        if (one / ".kafka_cleanshutdown").exists():
            (one / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":4711}')


def _without_dir(disk: Disk) -> None:
    shutil.rmtree(disk.data1)


def _empty_dir(disk: Disk) -> None:
    _without_dir(disk)
    disk.data1.mkdir()


def _dir_is_file(disk: Disk) -> None:
    _without_dir(disk)
    disk.data1.write_text("no directory")


def _foreign_log(disk: Disk) -> None:
    (disk.path(6) / "foo.log").write_bytes(b"")


def _partition_metadata(content: str) -> Callable[[Disk], None]:
    return lambda disk: (disk.path(9) / "partition.metadata").write_text(content) and None


def _partition_metadata_in(which: int, content: str) -> Callable[[Disk], None]:
    def change(disk: Disk) -> None:
        path = next(one for one in sorted(disk.dirs[which].glob(f"{TOPIC}-*")))
        (path / "partition.metadata").write_text(content)

    return change


def _epochs_in(which: int, content: str) -> Callable[[Disk], None]:
    def change(disk: Disk) -> None:
        path = next(one for one in sorted(disk.dirs[which].glob(f"{TOPIC}-*")))
        (path / "leader-epoch-checkpoint").write_text(content)

    return change


def _no_metadata_log(disk: Disk) -> None:
    shutil.rmtree(disk.data / METADATA)


def _emptied_metadata_log(disk: Disk) -> None:
    for file in (disk.data / METADATA).iterdir():
        if file.suffix in (".log", ".index", ".timeindex", ".snapshot", ".checkpoint"):
            file.write_bytes(b"") if file.suffix == ".log" else file.unlink()


def _torn_metadata_log(disk: Disk) -> None:
    log = logs(disk.data / METADATA)[-1]
    log.write_bytes(log.read_bytes()[:-5])


def _damaged_metadata_log(disk: Disk) -> None:
    log = logs(disk.data / METADATA)[-1]
    flip(log, log.stat().st_size // 2)


def _quorum_state(content: str | None) -> Callable[[Disk], None]:
    def change(disk: Disk) -> None:
        file = disk.data / METADATA / "quorum-state"
        file.unlink() if content is None else file.write_text(content)

    return change


def _metadata_elsewhere(disk: Disk) -> None:
    (disk.data1 / METADATA).mkdir()


def _zookeeper_dirs(disk: Disk) -> None:
    _version_0(disk)
    _no_metadata_log(disk)


def _bootstrap(change: Callable[[bytes], bytes]) -> Callable[[Disk], None]:
    def harm(disk: Disk) -> None:
        file = disk.data / "bootstrap.checkpoint"
        file.write_bytes(change(file.read_bytes()))

    return harm


def _other_metadata_id(disk: Disk) -> None:
    (disk.data / METADATA / "partition.metadata").write_text("version: 0\ntopic_id: BBBBBBBBBBBBBBBBBBBBBA")


DISK_STATES: dict[str, Callable[[Disk], None]] = {
    "untouched": lambda disk: None,
    "cluster-id-of-one": in_one(1, "cluster.id", "AAAAAAAAQACAAAAAAAAAAA"),
    "cluster-id-of-all": everywhere("cluster.id", "AAAAAAAAQACAAAAAAAAAAA"),
    "node-id-of-one": in_one(1, "node.id", "7"),
    "node-id-of-all": everywhere("node.id", "7"),
    "node-id-missing": in_one(1, "node.id", None),
    "node-id-missing-in-metadata-dir": in_one(0, "node.id", None),
    "cluster-id-missing": in_one(1, "cluster.id", None),
    "empty-meta": _empty_meta,
    "no-meta-in-metadata-dir": _without_meta(0),
    "no-meta-in-other": _without_meta(1),
    "no-meta": _without_meta(0, 1),
    "version-9": in_one(1, "version", "9"),
    "version-9-in-metadata-dir": in_one(0, "version", "9"),
    "same-directory-id": _same_directory_id,
    "reserved-directory-id": in_one(1, "directory.id", RESERVED),
    "directory-id-no-uuid": in_one(1, "directory.id", "short"),
    "directory-id-changed": lambda disk: disk.set_property(disk.data1, "directory.id", cluster_identity()),
    "directory-id-changed-and-partitions-gone": _of_an_absent_log_dir,
    "directory-id-missing": in_one(1, "directory.id", None),
    "directory-ids-missing": everywhere("directory.id", None),
    "directory-ids-swapped": _swapped_ids,
    "meta-version-0": _version_0,
    "bootstrap-empty": _bootstrap(lambda content: b""),
    "bootstrap-cut": _bootstrap(lambda content: content[: len(content) // 2]),
    "bootstrap-no-log": _bootstrap(lambda content: b"x" * 100),
    "bootstrap-missing": lambda disk: (disk.data / "bootstrap.checkpoint").unlink(),
    "metadata-log-of-another-topic": _other_metadata_id,
    "lost+found": _directory(0, "lost+found"),
    "snapshot-dir": _directory(1, ".snapshot"),
    "name-that-parses": _directory(1, "backup-2026-11-21"),
    "plain-files": _plain_files,
    "duplicate": _duplicate,
    "two-futures": _two_futures,
    "future-beside-current": _future_beside,
    "recovery-points-malformed": _checkpoint(1, "recovery-point-offset-checkpoint", b"0\n2\norders 1 2\n"),
    "recovery-points-malformed-beside-an-open-transaction": _open_transaction_in_a_failed_dir,
    "log-starts-malformed": _checkpoint(1, "log-start-offset-checkpoint", b"\0" * 40),
    "high-watermarks-malformed": _checkpoint(1, "replication-offset-checkpoint", b"0\n1\norders\n"),
    "cleaner-offsets-malformed": _checkpoint(1, "cleaner-offset-checkpoint", b"0\n1\n1 2\n"),
    "recovery-points-malformed-in-metadata-dir": _checkpoint(0, "recovery-point-offset-checkpoint", b"x\n"),
    "checkpoint-number": _checkpoint(1, "recovery-point-offset-checkpoint", b"0\n1\norders 1 many\n"),
    "log-starts-number": _checkpoint(1, "log-start-offset-checkpoint", b"0\n1\norders 1 many\n"),
    "high-watermarks-number": _checkpoint(1, "replication-offset-checkpoint", b"0\n1\norders 1 many\n"),
    "high-watermarks-number-in-metadata-dir": _checkpoint(0, "replication-offset-checkpoint", b"0\n1\norders 1 many\n"),
    "cleaner-offsets-number": _checkpoint(1, "cleaner-offset-checkpoint", b"0\n1\norders 1 many\n"),
    "checkpoints-missing": _without_checkpoints,
    "one-marker": _one_marker,
    "marker-of-other-epoch": _other_epoch,
    "log-dir-missing": _without_dir,
    "log-dir-empty": _empty_dir,
    "log-dir-is-file": _dir_is_file,
    "foreign-log-name": _foreign_log,
    "partition-metadata-empty": _partition_metadata(""),
    "partition-metadata-one-line": _partition_metadata("version: 0\n"),
    "partition-metadata-no-uuid": _partition_metadata("version: 0\ntopic_id: short"),
    "partition-metadata-zero": _partition_metadata_in(1, f"version: 0\ntopic_id: {ZERO}"),
    "partition-metadata-malformed": _partition_metadata_in(1, "nothing\nof that kind"),
    "partition-metadata-zero-in-metadata-dir": _partition_metadata_in(0, f"version: 0\ntopic_id: {ZERO}"),
    "epochs-malformed": _epochs_in(1, "0\n2\n0 0\n"),
    "epochs-malformed-in-metadata-dir": _epochs_in(0, "x"),
    "epochs-number": _epochs_in(1, "0\n1\nzero 0\n"),
    "metadata-log-missing": _no_metadata_log,
    "metadata-log-emptied": _emptied_metadata_log,
    "metadata-log-torn": _torn_metadata_log,
    "metadata-log-damaged": _damaged_metadata_log,
    "metadata-log-elsewhere": _metadata_elsewhere,
    "zookeeper-dirs": _zookeeper_dirs,
    "quorum-state-missing": _quorum_state(None),
    "quorum-state-unreadable": _quorum_state("no json"),
    "quorum-state-other-leader": _quorum_state(
        '{"leaderId":3,"leaderEpoch":9,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    ),
}

LOGS_NEEDED = {
    "directory-id-changed-and-partitions-gone": 3,
    "recovery-points-malformed-beside-an-open-transaction": 1,
}
"""How many logs a state of the disk changes in the second log dir: it does not go together with one that has fewer."""


# partitions


def topic_id_missing(disk: Disk, number: int) -> None:
    (disk.path(number) / "partition.metadata").unlink()


def topic_id_other(disk: Disk, number: int) -> None:
    (disk.path(number) / "partition.metadata").write_text(f"version: 0\ntopic_id: {cluster_identity()}")


def unknown_topic(disk: Disk, number: int) -> None:
    target = disk.path(number).parent / f"foreign-{number}"
    shutil.copytree(disk.path(number), target)
    (target / "partition.metadata").write_text(f"version: 0\ntopic_id: {cluster_identity()}")


def partition_beyond(disk: Disk, number: int) -> None:
    shutil.copytree(disk.path(number), disk.path(number).parent / f"{TOPIC}-{100 + number}")


def gone(disk: Disk, number: int) -> None:
    shutil.rmtree(disk.path(number))


def _renamed(suffix: str) -> Callable[[Disk, int], None]:
    def change(disk: Disk, number: int) -> None:
        path = disk.path(number)
        path.rename(path.parent / f"{path.name}.{unique()}-{suffix}")

    return change


def _copied(suffix: str) -> Callable[[Disk, int], None]:
    def change(disk: Disk, number: int) -> None:
        path = disk.path(number)
        shutil.copytree(path, path.parent / f"{path.name}.{unique()}-{suffix}")

    return change


def future_in_other_dir(disk: Disk, number: int) -> None:
    path = disk.path(number)
    shutil.copytree(path, disk.other(path) / f"{path.name}.{unique()}-future")


def shorter_future(disk: Disk, number: int) -> None:
    path = disk.path(number)
    target = disk.other(path) / f"{path.name}.{unique()}-future"
    shutil.copytree(path, target)
    for log in logs(target)[1:]:
        for file in target.glob(f"{log.stem}.*"):
            file.unlink()


def future_alone_elsewhere(disk: Disk, number: int) -> None:
    path = disk.path(number)
    path.rename(disk.other(path) / f"{path.name}.{unique()}-future")


def moved(disk: Disk, number: int) -> None:
    path = disk.path(number)
    path.rename(disk.other(path) / path.name)


def linked(disk: Disk, number: int) -> None:
    path = disk.path(number)
    target = disk.folder / f"elsewhere-{number}"
    path.rename(target)
    path.symlink_to(target)


def epochs_beyond(disk: Disk, number: int) -> None:
    (disk.path(number) / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 99999\n")


def checkpoints_beyond(disk: Disk, number: int) -> None:
    """High watermark and recovery point beyond the end."""
    for name in ("replication-offset-checkpoint", "recovery-point-offset-checkpoint"):
        set_checkpoint(disk.path(number).parent, name, TOPIC, number, 99999)


def log_start_beyond(disk: Disk, number: int) -> None:
    set_checkpoint(disk.path(number).parent, "log-start-offset-checkpoint", TOPIC, number, 99999)


def log_start_inside(disk: Disk, number: int) -> None:
    set_checkpoint(disk.path(number).parent, "log-start-offset-checkpoint", TOPIC, number, 7)


def index_missing(disk: Disk, number: int) -> None:
    sorted(disk.path(number).glob("*.index"))[0].unlink()


def small_files_missing(disk: Disk, number: int) -> None:
    """No producer snapshot, and no leader epochs."""
    for file in (*disk.path(number).glob("*.snapshot"), disk.path(number) / "leader-epoch-checkpoint"):
        file.unlink()


def torn(disk: Disk, number: int) -> None:
    log = next(log for log in reversed(logs(disk.path(number))) if log.stat().st_size)
    for later in logs(disk.path(number)):
        if later.name > log.name:
            for file in later.parent.glob(f"{later.stem}.*"):
                file.unlink()
    log.write_bytes(log.read_bytes()[:-5])


def damaged(disk: Disk, number: int) -> None:
    """A flipped bit in the first batch of the second segment: an unclean start drops it and all behind."""
    flip(logs(disk.path(number))[1], 70)


PARTITION_STATES: dict[str, Callable[[Disk, int], None]] = {
    "topic-id-missing": topic_id_missing,
    "topic-id-other": topic_id_other,
    "unknown-topic": unknown_topic,
    "partition-beyond": partition_beyond,
    "gone": gone,
    "delete-alone": _renamed("delete"),
    "delete-beside": _copied("delete"),
    "stray-alone": _renamed("stray"),
    "stray-beside": _copied("stray"),
    "future-alone": _renamed("future"),
    "future-in-other-dir": future_in_other_dir,
    "shorter-future": shorter_future,
    "moved": moved,
    "linked": linked,
    "future-alone-elsewhere": future_alone_elsewhere,
    "epochs-beyond": epochs_beyond,
    "checkpoints-beyond": checkpoints_beyond,
    "log-start-beyond": log_start_beyond,
    "log-start-inside": log_start_inside,
    "index-missing": index_missing,
    "small-files-missing": small_files_missing,
    "torn": torn,
    "damaged": damaged,
}
