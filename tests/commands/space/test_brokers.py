"""A real broker deletes and cleans the segments that klog predicts, keeps the others, and nothing before its date."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from klog.commands.space.disk_usage import DiskUsage, SegmentUsage, SpaceSettings
from klog.commands.space.free_plan import find_gains
from klog.commands.space.kept_reasons import Reason
from klog.data_dir.selection import PartitionQuery

from tests.brokers import clients, kafka
from tests.conftest import run_klog

if TYPE_CHECKING:
    from confluent_kafka import Producer

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

HOUR, DAY = 3_600_000, 86_400_000
GONE = (Reason.RETENTION_DUE, Reason.BELOW_LOG_START)
SECONDS = 120
BASE = {"retention.ms": "-1", "cleanup.policy": "delete", "min.cleanable.dirty.ratio": "0.01"}
QUIET = BASE | {
    "internal.segment.bytes": "2500",
    "segment.ms": str(90 * DAY),
    "message.timestamp.after.max.ms": str(10_000 * DAY),
}
BROKER = {
    "log.retention.check.interval.ms": "500",
    "log.segment.delete.delay.ms": "200",
    "log.cleaner.backoff.ms": "500",
    "log.initial.task.delay.ms": "500",
    "log.message.timestamp.before.max.ms": str(10_000 * DAY),
}
OLD = 240 * HOUR + HOUR // 2
"""The age of the first of 120 records; an hour lies between two of them."""
SETTINGS = {
    "by-time": {"retention.ms": str(190 * HOUR)},
    "by-size": {"retention.bytes": "9000"},
    "by-both": {"retention.ms": str(210 * HOUR), "retention.bytes": "20000"},
    "all-due": {"retention.ms": str(HOUR)},
    "from-the-future": {"retention.ms": str(HOUR)},
    "cut": {},
    "open": {"retention.ms": str(190 * HOUR)},
    # Held back from the cleaner: a segment that it empties is as old as its file, and stops the later ones.
    "both-policies": {
        "cleanup.policy": "compact,delete",
        "retention.ms": str(190 * HOUR),
        "min.compaction.lag.ms": str(1000 * DAY),
    },
    "dates": {},
}
COMPACTED = {"compacted": {"cleanup.policy": "compact"}, "compacted-open": {"cleanup.policy": "compact"}}


class Shelf:
    """A broker whose topics keep everything until their settings change."""

    def __init__(self, cluster: kafka.Cluster) -> None:
        self.cluster, self.data = cluster, cluster.data
        self.now = int(time.time() * 1000)
        self.admin = clients.admin(cluster.bootstrap)
        clients.create(cluster.bootstrap, dict.fromkeys([*SETTINGS, *COMPACTED], QUIET))
        self.open: list[Producer] = []
        for topic in (*SETTINGS, *COMPACTED):
            self._fill(topic)

    def _fill(self, topic: str) -> None:
        """Send 120 records in batches of one, an hour apart; the last 40 in a transaction where it is to stay open."""
        from confluent_kafka import Producer

        is_open = topic in ("open", "compacted-open")
        common = {"bootstrap.servers": self.cluster.bootstrap, "batch.num.messages": 1, **clients.SILENT}
        plain, sender = Producer(common), None
        if is_open:
            sender = Producer({**common, "transactional.id": topic, "transaction.timeout.ms": 600_000})
            sender.init_transactions(clients.WAIT_S)
            self.open.append(sender)
        failed: list[object] = []
        for at in range(120):
            if at == 80:
                plain.flush(clients.WAIT_S)
                if sender is not None:
                    sender.begin_transaction()
            producer = sender if sender is not None and at >= 80 else plain
            producer.produce(
                topic,
                key=b"key %d" % (at % 25),
                value=b"x" * 150,
                timestamp=self.timestamp(topic, at),
                on_delivery=lambda error, _: failed.append(error) if error is not None else None,
            )
            producer.flush(clients.WAIT_S)
        assert not failed, failed[:3]

    def timestamp(self, topic: str, at: int) -> int:
        if topic == "from-the-future" and at == 50:
            return self.now + 40 * DAY
        return self.now - OLD + at * HOUR

    def usage(self, topic: str, settings: dict[str, str]) -> DiskUsage:
        query = PartitionQuery([str(self.data)], [topic])
        return DiskUsage(query, SpaceSettings(settings, None, {}), int(time.time() * 1000))

    def rows(self, topic: str, settings: dict[str, str]) -> list[SegmentUsage]:
        return list(self.usage(topic, settings).segments())

    def bases(self, topic: str) -> list[int]:
        return sorted(int(path.stem) for path in (self.data / f"{topic}-0").glob("*.log"))

    def log_bytes(self, topic: str) -> int:
        return sum(path.stat().st_size for path in (self.data / f"{topic}-0").glob("*.log"))

    def set(self, topic: str, settings: dict[str, str]) -> None:
        from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for future in self.admin.incremental_alter_configs([resource]).values():
            future.result(clients.WAIT_S)

    def delete_records(self, topic: str, offset: int) -> None:
        from confluent_kafka import TopicPartition

        for future in self.admin.delete_records([TopicPartition(topic, 0, offset)]).values():
            future.result(clients.WAIT_S)


def until(holds: Callable[[], bool]) -> bool:
    """Whether that comes true."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shelf]:
    with kafka.Cluster(kafka.NEWEST, tmp_path_factory.mktemp("shelf"), settings=BROKER) as cluster:
        yield Shelf(cluster)


def left(found: list[SegmentUsage]) -> list[int]:
    """The base offsets that klog expects after a check; -1: one that is rolled."""
    if "rolls it" in str(found[-1].because):
        return [-1]
    return [one.base_offset for one in found if one.reason not in GONE]


def test_what_is_due_goes_and_the_rest_stays(shelf: Shelf) -> None:
    """Time, size, both, a record from the future, an open transaction, two policies: one broker, one check."""
    expected = {}
    topics = [topic for topic in SETTINGS if not topic.startswith(("cut", "dates"))]
    for topic in topics:
        found = shelf.rows(topic, BASE | SETTINGS[topic])
        assert len(found) > 8, topic
        expected[topic] = left(found)
    assert {one.reason for one in shelf.rows("from-the-future", BASE | SETTINGS["from-the-future"])} == {
        *(Reason.RETENTION_DUE, Reason.FUTURE_TIMESTAMP, Reason.BEHIND, Reason.ACTIVE)
    }
    for topic in topics:
        shelf.set(topic, SETTINGS[topic])

    def differing() -> list[str]:
        return [topic for topic in topics if not _same(shelf.bases(topic), expected[topic])]

    assert until(lambda: not differing()), [(topic, expected[topic], shelf.bases(topic)) for topic in differing()]
    time.sleep(3)
    assert differing() == [], "what klog says stays, stays"
    for topic in topics:
        assert not any(one.reason in GONE for one in shelf.rows(topic, {})), "its settings come from the metadata log"


def _same(bases: list[int], expected: list[int]) -> bool:
    return len(bases) == 1 and bases[0] >= 120 if expected == [-1] else bases == expected


def test_deleted_records_go_with_their_segments(shelf: Shelf) -> None:
    """A segment wholly below the log start is deleted, the one around it stays."""
    before = shelf.bases("cut")
    shelf.delete_records("cut", before[3] + 1)
    assert until(lambda: shelf.bases("cut") == before[3:]), shelf.bases("cut")
    assert [one.base_offset for one in shelf.rows("cut", {})] == before[3:]


def test_no_segment_goes_before_its_date(shelf: Shelf) -> None:
    """The date is the largest timestamp plus retention.ms, to the millisecond."""
    found = shelf.rows("dates", {})
    oldest = found[0].last_timestamp
    assert oldest is not None
    retention = {"retention.ms": str(int(time.time() * 1000) + 4000 - oldest)}
    rows = shelf.rows("dates", retention)
    first = rows[0]
    assert first.reason is Reason.RETENTION_TIME
    assert first.due is not None
    shelf.set("dates", retention)
    seen_at: list[int] = []

    def is_gone() -> bool:
        now = int(time.time() * 1000)
        gone = first.base_offset not in shelf.bases("dates")
        if gone:
            seen_at.append(int(time.time() * 1000))
        assert not gone or now > first.due - 200, "too early"
        return gone

    assert until(is_gone)
    assert seen_at[0] > first.due
    assert shelf.bases("dates") == [one.base_offset for one in rows[1:]]


def test_the_cleaner_leaves_what_klog_expects(shelf: Shelf) -> None:
    """Also where an open transaction holds it back."""
    expected = {}
    for topic, settings in COMPACTED.items():
        usage = shelf.usage(topic, BASE | settings)
        (gain,) = find_gains(usage, 1.0)
        expected[topic] = gain.bytes_after
        reasons = {one.base_offset: one.reason for one in usage.segments()}
        assert Reason.DIRTY in reasons.values()
        if topic == "compacted-open":
            held = [base for base, reason in reasons.items() if reason is Reason.OPEN_TRANSACTION]
            assert held
            assert min(held) <= 80 < held[1]
        assert gain.bytes > 1000
    for topic, settings in COMPACTED.items():
        shelf.set(topic, settings)

    def near(topic: str) -> bool:
        return abs(shelf.log_bytes(topic) - expected[topic]) <= 0.1 * expected[topic]

    assert until(lambda: all(map(near, COMPACTED))), [
        (topic, expected[topic], shelf.log_bytes(topic)) for topic in COMPACTED
    ]
    time.sleep(2)
    assert all(map(near, COMPACTED))
    after = {one.base_offset: one.reason for one in shelf.rows("compacted-open", {})}
    assert {base for base, reason in after.items() if reason is Reason.OPEN_TRANSACTION} == set(held)


def test_klog_answers_beside_the_broker_and_after_it(shelf: Shelf, tmp_path: Path) -> None:
    """Without a lock, without a trace; after a stop it adds up to the byte."""
    assert run_klog("space", shelf.data, "--by", "segment").exit_code == 0
    plan = run_klog("space", shelf.data, "--free", "1T")
    assert plan.exit_code == 4
    shelf.cluster.stop()
    usage = DiskUsage(PartitionQuery([str(shelf.data)]), SpaceSettings({}, None, {}), shelf.now)
    total = sum(one.bytes + one.index_bytes for one in usage.segments()) + sum(one.bytes for one in usage.others())
    assert total == sum(path.stat().st_size for path in shelf.data.rglob("*") if path.is_file())
