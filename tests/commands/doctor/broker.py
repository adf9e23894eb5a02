"""A broker with two log dirs: the disk it leaves behind, and what its start does with a copy that was changed."""

from __future__ import annotations

import contextlib
import re
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tests.brokers import clients, kafka

if TYPE_CHECKING:
    from confluent_kafka import Consumer

TOPIC, PARTITIONS = "orders", 24
OTHER = "small"
DELETE_DELAY_MS = 1500
SHORT_SESSION_MS, ZOOKEEPER_FORGETS_S = 6000, 9
"""After these seconds such a session of a broker that was killed has run out, and the broker may register again."""
LONG_SESSION_MS = 60_000
"""A broker whose session runs out while it starts gives up: on a machine that stalls, 6 s are not enough."""
LEGACY_DELETES_S = 35
"""Before 4.x it is fixed when a broker deletes the marked directory: 30 s after its start."""
LEADERS_S = 12
"""How long partitions without a leader are waited for: on a busy machine they have one seconds after the start."""
NAMES = ("data", "data1")
STARTED = r"Kafka Server started|KafkaServer id=\d+\] started"

FATAL = {
    "cluster-id-differs": "Invalid cluster.id in|InconsistentClusterIdException|InconsistentBrokerMetadataException",
    "node-id-differs": "Stored node id|InconsistentBrokerIdException|InconsistentBrokerMetadataException",
    "meta-properties-missing": "No `meta.properties` found in|No readable meta.properties files found",
    "meta-properties-malformed": "node ID not found in|cluster ID not found in|I/O error in metadata log directory|"
    "Found unexpected version in loaded|InconsistentBrokerMetadataException|Malformed .uxxxx encoding|Failed to parse",
    "directory-id-twice": "Duplicate directory ID",
    "directory-id-reserved": "Invalid res(?:erv|rv)ed directory ID",
    "metadata-log-elsewhere": "Found unexpected metadata location",
    "lock-held": "Failed to acquire lock on file .lock",
    "foreign-directory": "is not in the form of topic-partition",
    "duplicate-partition": "Duplicate log directories",
    "future-beside-current": "DirectoryNotEmptyException",
    "metadata-dir-offline": "because the metadata log dir",
    "log-dirs-offline": "because all log dirs in|because none of the specified log dirs",
    "foreign-log-name": "NumberFormatException: For input string",
    "metadata-malformed": "CharSequence.length|Invalid topic ID|IllegalArgumentException|"
    "reading partition metadata file",
    "checkpoint-malformed": "The log dir .* is already offline due to",
    "quorum-state-malformed": "Error while reading the Quorum status",
    "bootstrap-malformed": "No FeatureLevelRecord for metadata.version",
    "metadata-snapshot-damaged": "CorruptRecordException|MetadataLoader#handleLoadSnapshot",
    "metadata-log-refused": "InconsistentTopicIdException",
    "epochs-malformed": "NumberFormatException|Received invalid partition leader epoch|"
    "reading checkpoint file .*/leader-epoch-checkpoint",
}
"""The log lines of a broker that stops for a reason, by the doctor's ids."""


@dataclass
class Started:
    """The result of a start.

    *fatal*: ids of reasons in the log, if it stopped.  *fates*: by path of a directory before the start.  *made*: new
    directories.  *served*: earliest, latest and number of records by partition; None: no leader.
    """

    starts: bool
    log: str
    fatal: set[str] = field(default_factory=set)
    fates: dict[str, str] = field(default_factory=dict)
    made: set[str] = field(default_factory=set)
    served: dict[tuple[str, int], tuple[int, int, int] | None] = field(default_factory=dict)
    offline: set[str] = field(default_factory=set)

    @property
    def errors(self) -> str:
        """The first lines of each error in its log, and its end."""
        found = re.findall(r"^\[.*\] (?:ERROR|FATAL) .*\n(?:[^\[].*\n){0,3}", self.log, re.M)
        return "".join(found[:9]) + self.log[-500:]


class TwoDirBroker(kafka.Cluster):
    """One node, broker and controller, with the log dirs `data` and `data1`."""

    def __init__(self, version: str, folder: Path, port: int = kafka.PORT, session_ms: int = LONG_SESSION_MS) -> None:
        settings = {
            "log.dirs": ",".join(str(folder / name) for name in NAMES),
            "log.segment.delete.delay.ms": str(DELETE_DELAY_MS),
            "log.initial.task.delay.ms": "500",
            "log.cleaner.backoff.ms": "300",
            "broker.session.timeout.ms": "3000",
            "broker.heartbeat.interval.ms": "500",
            "zookeeper.session.timeout.ms": str(session_ms),
        }
        super().__init__(version, folder, port=port, settings=settings)

    @property
    def dirs(self) -> list[Path]:
        return [self.folder / name for name in NAMES]

    def _format(self) -> None:
        if not any(one.exists() for one in self.dirs):  # else a disk that is to be started as it is
            super()._format()

    def wait_for(self, seconds: float, pattern: str) -> bool:
        """Wait until the broker has logged something, or has ended; return whether it is there."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if re.search(pattern, self.log()):
                return True
            if self._broker is None or self._broker.poll() is not None:
                return bool(re.search(pattern, self.log()))
            time.sleep(0.1)
        return False

    def power_off(self) -> None:
        """End the broker and its cluster's store, without a word to either."""
        self.kill()
        self.end_session()
        self.__exit__()

    def end_session(self) -> None:
        """Wait until ZooKeeper has forgotten the broker, which may have ended without a word to it."""
        if self._zookeeper is not None:
            time.sleep(ZOOKEEPER_FORGETS_S)

    @property
    def is_running(self) -> bool:
        return self._broker is not None and self._broker.poll() is None


def build_disks(version: str, folder: Path, port: int = kafka.PORT) -> dict[str, Path]:
    """Return two disks of one broker: as a kill left it, and as a clean stop did."""
    from confluent_kafka import Producer

    broker = TwoDirBroker(version, folder / "broker", port, SHORT_SESSION_MS)
    name = "internal.segment.bytes" if version == kafka.NEWEST else "segment.bytes"
    with broker:
        config = {name: "1400", "index.interval.bytes": "256"}
        clients.create(broker.bootstrap, {TOPIC: config}, partitions=PARTITIONS)
        clients.create(broker.bootstrap, {OTHER: {}}, partitions=2)
        producer = Producer(clients.SILENT | {"bootstrap.servers": broker.bootstrap, "linger.ms": 0})
        for number in range(PARTITIONS):
            for i in range(20 + number):
                producer.produce(TOPIC, f"record {i} of {number} ".encode() * 3, partition=number)
                if i % 3 == 0:
                    producer.flush()
        producer.produce(OTHER, b"one", partition=0)
        assert producer.flush(clients.WAIT_S) == 0
        time.sleep(1)
        broker.power_off()
        found = {"killed": copy_disk(broker.folder, folder / "killed")}
    with TwoDirBroker(version, broker.folder, port, SHORT_SESSION_MS) as again:
        assert again.wait_for(60, STARTED)
        again.stop()
        again.end_session()
    return {**found, "clean": copy_disk(broker.folder, folder / "clean")}


def copy_disk(source: Path, target: Path) -> Path:
    """Copy both log dirs into a new folder, and the ZooKeeper's data."""
    target.mkdir(parents=True)
    for name in (*NAMES, "zookeeper"):
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, symlinks=True)
    return target


def start(version: str, folder: Path, port: int = kafka.PORT) -> Started:
    """Start a broker on the disk in *folder*, and report its actions.  The disk is as it is after that."""
    broker = TwoDirBroker(version, folder, port)
    (folder / "broker.log").unlink(missing_ok=True)
    before = _inodes(broker.dirs)
    started = True
    try:
        broker.start()
        started = broker.wait_for(90, STARTED)
        if started:
            time.sleep(DELETE_DELAY_MS / 1000 + 2.5 + _fixed_delay(broker))
        started = started and broker.is_running
        served = _served(broker) if started else {}
        if started:
            time.sleep(0.5)
        started = started and broker.is_running
    except RuntimeError:
        started, served = False, {}
    finally:
        broker.kill()
        broker.__exit__()
    log = broker.log()
    found = Started(started, log, served=served if started else {})
    if not started:
        found.fatal = {name for name, pattern in FATAL.items() if re.search(pattern, log)}
    found.offline = {str(one) for one in broker.dirs if _is_offline(log, one)}
    _compare(before, _inodes(broker.dirs), found)
    return found


def _fixed_delay(broker: TwoDirBroker) -> int:
    is_due = any(path.name.endswith("-delete") for one in broker.dirs if one.is_dir() for path in one.iterdir())
    return LEGACY_DELETES_S if is_due and not broker.kraft else 0


def _is_offline(log: str, log_dir: Path) -> bool:
    path = re.escape(str(log_dir))
    return bool(
        re.search(rf"Stopping serving logs in dir {path}$|Failed to load {path} during broker startup", log, re.M)
    )


def _inodes(dirs: list[Path]) -> dict[int, Path]:
    return {
        one.lstat().st_ino: one for log_dir in dirs if log_dir.is_dir() for one in log_dir.iterdir() if one.is_dir()
    }


def _compare(before: dict[int, Path], after: dict[int, Path], found: Started) -> None:
    for inode, old in before.items():
        new = after.get(inode)
        if new is None:
            found.fates[str(old)] = "gone"
        elif new == old:
            found.fates[str(old)] = "stays"
        elif new.name.endswith(("-stray", "-delete", "-future")):
            found.fates[str(old)] = new.name.rpartition("-")[2]
        else:
            found.fates[str(old)] = "promoted"
    found.made = {str(path) for inode, path in after.items() if inode not in before}


def _served(broker: TwoDirBroker) -> dict[tuple[str, int], tuple[int, int, int] | None]:
    """Return what clients get up to the log end, which an open transaction hides from the default isolation level."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "doctor", "enable.auto.commit": False}
    reading = {"isolation.level": "read_uncommitted", "auto.offset.reset": "earliest", "enable.partition.eof": True}
    consumer = Consumer(clients.SILENT | settings | reading)
    found: dict[tuple[str, int], tuple[int, int, int] | None] = {}
    try:
        for key in _leaders(consumer, found):
            with contextlib.suppress(KafkaException):
                low, high = consumer.get_watermark_offsets(TopicPartition(*key), timeout=clients.WAIT_S)
                found[key] = (low, high, 0)
        wanted = {key: ends for key, ends in found.items() if ends is not None and ends[0] < ends[1]}
        _count(consumer, wanted, found)
    finally:
        consumer.close()
    return found


def _leaders(consumer: Consumer, found: dict[tuple[str, int], tuple[int, int, int] | None]) -> list[tuple[str, int]]:
    """Return the partitions that have a leader, some time after the start; add all to *found*."""
    end = time.monotonic() + LEADERS_S
    while True:
        topics = consumer.list_topics(timeout=clients.WAIT_S).topics
        leaders = {
            (topic, number): partition.leader
            for topic, about in topics.items()
            for number, partition in about.partitions.items()
            if not topic.startswith("__")
        }
        if (leaders and min(leaders.values()) >= 0) or time.monotonic() > end:
            found.update(dict.fromkeys(leaders))
            return [key for key, leader in leaders.items() if leader >= 0]
        time.sleep(0.5)


def _count(consumer: object, wanted: dict[tuple[str, int], tuple[int, int, int]], found: dict) -> None:  # type: ignore[type-arg]
    from confluent_kafka import TopicPartition

    consumer.assign([TopicPartition(*key, ends[0]) for key, ends in wanted.items()])  # type: ignore[attr-defined]
    counts, left = dict.fromkeys(wanted, 0), set(wanted)
    end = time.monotonic() + clients.WAIT_S
    while left and time.monotonic() < end:
        message = consumer.poll(0.5)  # type: ignore[attr-defined]
        if message is None:
            continue
        key = message.topic(), message.partition()
        if message.error():
            left.discard(key)
        else:
            counts[key] += 1
    for key, count in counts.items():
        found[key] = (*wanted[key][:2], count)
