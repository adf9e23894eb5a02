"""`klog timeline` on disks of real brokers, against the output of Kafka's tools and the clients while they lived."""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from klog.commands.timeline.timeline import Timeline
from klog.commands.timeline.timeline_event import METADATA_KINDS, EventFilter, TimelineEvent
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.selection import PartitionQuery

pytestmark = pytest.mark.corpora
Image = Callable[[str], Path]


def told(*log_dirs: Path, wanted: EventFilter | None = None, most: int | None = None) -> list[TimelineEvent]:
    selections = PartitionQuery([str(path) for path in log_dirs]).selections()
    with Timeline(selections, wanted or EventFilter(), Disk(), most) as timeline:
        timeline.read()
        return list(timeline.events())


def named(events: Sequence[TimelineEvent], *kinds: str) -> list[TimelineEvent]:
    return [event for event in events if event.kind in kinds]


@pytest.fixture(scope="module")
def insight(image: Image) -> Path:
    return image("answers/insight.tar.xz") / "data"


@pytest.fixture(scope="module")
def events(insight: Path) -> list[TimelineEvent]:
    return told(insight)


@pytest.fixture(scope="module")
def truth(corpora: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((corpora / "answers/insight.truth.json").read_text())
    return found


def test_events_come_in_the_order_of_their_times_each_once(events: Sequence[TimelineEvent]) -> None:
    """One order is the whole point; equal times go by what causes what."""
    identities = [event.identity for event in events]
    assert identities == sorted(identities)
    assert len(set(identities)) == len(identities) > 150


def test_every_transaction_is_told_once_inside_its_clients_clock(
    events: Sequence[TimelineEvent], truth: dict[str, Any]
) -> None:
    """Begin and end of each, by the name that the client gave it, and no other transaction."""
    by_id: dict[str, list[TimelineEvent]] = defaultdict(list)
    for event in named(events, "txn-begin", "txn-commit", "txn-abort", "txn-fenced", "txn-open"):
        assert event.transactional_id is not None, event
        by_id[event.transactional_id].append(event)
    expected = Counter()
    for given in truth["transactions"]:
        begin, end, *_ = by_id[given["transactional_id"]][2 * given["round"] :]
        kind = "txn-fenced" if given.get("fenced") else f"txn-{given['state']}"
        expected.update(("txn-begin", kind))
        assert (begin.kind, end.kind) == ("txn-begin", kind), given
        assert given["from"] <= begin.time <= given["to"], given
        assert given.get("fenced") or given["state"] == "open" or begin.time <= end.time <= given["to"], given
        for number in given["partitions"]:
            assert f"ledger-{number}" in begin.message
            assert f"ledger-{number}" in end.message
    assert Counter(event.kind for event in named(events, *expected)) == expected
    assert {event.clock for event in named(events, *expected)} == {"broker"}


def test_without_the_coordinators_log_the_markers_tell(insight: Path, truth: dict[str, Any]) -> None:
    """One partition's directory may be all that is left; each marker in it is an event."""
    found = told(insight / "ledger-0", insight / "ledger-1")
    wanted = Counter()
    for given in truth["transactions"]:
        kind = f"txn-{given['state']}"
        wanted.update({kind: len(given["partitions"]), "txn-begin": len(given["partitions"])})
    kinds = Counter(event.kind for event in found)
    assert {kind: kinds[kind] for kind in wanted} == wanted
    assert all(event.producer_id is not None and event.transactional_id is None for event in named(found, *wanted))
    (hung,) = named(found, "txn-open")
    assert (hung.topic, hung.partition, hung.offset) == ("ledger", 0, 22)


def test_commits_are_those_that_the_tool_lists(events: Sequence[TimelineEvent], truth: dict[str, Any]) -> None:
    """The last commit of each group and partition is the offset of `kafka-consumer-groups --describe`."""
    for moment, at in (("groups", truth["stopped"]), ("earlier", truth["moments"][0]["at"])):
        groups = truth["groups"] if moment == "groups" else truth["moments"][0]["groups"]
        for group, rows in groups.items():
            messages = [event.message for event in named(events, "commit") if event.group == group and event.time <= at]
            for topic, number, offset, *_ in rows:
                texts = [text for text in messages if f"{topic}-{number} = " in text]
                assert offset is None or f"{topic}-{number} = {offset}" in texts[-1], (group, texts)


def test_groups_come_and_go(events: Sequence[TimelineEvent], truth: dict[str, Any]) -> None:
    """A deleted group is deleted once, after its last rebalance; the member that was alive still is one."""
    (deleted,) = named(events, "group-deleted")
    assert deleted.group == "g-gone"
    assert truth["moments"][0]["at"] < deleted.time < truth["stopped"]
    rebalances = {event.group: event for event in named(events, "rebalance")}
    assert set(rebalances) == {"g-classic", "g-848", "g-gone", "g-share", "g-live"}  # g-simple has only commits
    assert rebalances["g-gone"].time < deleted.time
    assert "1 member" in rebalances["g-live"].message
    assert "0 members" in rebalances["g-848"].message


def test_the_record_from_the_future_holds_its_segment(events: Sequence[TimelineEvent], truth: dict[str, Any]) -> None:
    """The point at which retention stopped, and the record because of which it did."""
    stuck = truth["stuck"]
    (start,) = named(events, "log-start")
    assert (start.topic, start.offset, start.clock) == ("stuck", stuck["future_offset"], "file")
    first = next(event for event in named(events, "first-record") if event.topic == "stuck")
    assert (first.time, first.offset, first.clock) == (stuck["future_timestamp"], stuck["future_offset"], "producer")
    (retention,) = [event for event in named(events, "config-changed") if "retention.ms = 3600000" in event.message]
    assert (retention.topic, retention.clock) == ("stuck", "broker")


def test_the_cluster_is_told_from_its_start_to_its_stop(events: Sequence[TimelineEvent], truth: dict[str, Any]) -> None:
    """Leader of the quorum, registration, topics, and the controlled shutdown at the end."""
    (leader,) = [event for event in named(events, "epoch") if event.topic == "__cluster_metadata"]
    (registered,), (unfenced,), (fenced,) = (
        named(events, f"broker-{what}") for what in ("registered", "unfenced", "fenced")
    )
    created = named(events, "topic-created")
    assert leader.time < registered.time < unfenced.time < created[0].time
    assert {event.topic for event in created if not str(event.topic).startswith("__")} == {
        "clicks", "ledger", "skew", "state", "stuck",
    }  # fmt: skip
    assert "controlled shutdown" in fenced.message
    assert abs(fenced.time - truth["stopped"]) < 5000
    lost = [event for event in named(events, "partition-changed") if "leader 1 → none" in event.message]
    assert len(lost) == len({(event.topic, event.partition) for event in lost}) == 17


def test_the_ends_of_logs_are_the_last_records(events: Sequence[TimelineEvent], truth: dict[str, Any]) -> None:
    """An end that is not the broker's would be false."""
    last = {f"{event.topic}-{event.partition}": event.offset for event in named(events, "last-record")}
    for partition, (_, end) in truth["ends"].items():
        open_end = {"ledger-0": 26}.get(partition, end)  # the tool printed the last stable offset
        assert last[partition] == open_end - 1


@pytest.mark.parametrize("name", ["in-sync", "split", "compacted", "killed"])
def test_three_replicas_are_told_once(image: Image, name: str) -> None:
    """Nothing of a disk is missing in the story of all three, and nothing is there twice."""
    disks = sorted(image(f"replicas/{name}.tar.xz").glob("*-[1-9]"))
    assert len(disks) >= 3
    together = told(*disks)
    alone = [told(disk) for disk in disks]
    identities = [event.identity for event in together]
    assert len(set(identities)) == len(identities)
    assert identities == sorted({event.identity for events in alone for event in events})
    created = Counter(event.topic for event in named(together, "topic-created"))
    assert set(created.values()) == {1}
    assert {"orders", "pairs"} <= set(created)
    if name == "in-sync":
        of_orders = [event for event in named(together, "first-record") if event.topic == "orders"]
        assert len(of_orders) == 3  # its partitions


def test_planted_damage_is_told_in_its_place(image: Image, corpora: Path) -> None:
    """After earlier batches, before later ones; on the disk that has it alone."""
    folder = image("replicas/damage.tar.xz")
    truth = json.loads(gzip.decompress((corpora / "replicas/damage.truth.json.gz").read_bytes()))
    planted = {key: value for key, value in truth["damage"].items() if isinstance(value, dict)}
    assert len(planted) == 3
    disks = sorted(folder.glob("broker-*"))
    found = named(told(*disks), "damage")
    assert len(found) == len(planted)
    for place, where in planted.items():
        partition, _, node = place.split()[0].partition("@")
        (event,) = [one for one in found if f"{one.topic}-{one.partition}" == partition]
        assert str(event.log_dir).endswith(f"broker-{node}")
        assert event.file == f"{partition}/{where['file']}"
        assert event.message.startswith("bad-crc: ")
        batches = truth["replicas"][partition][node]["batches"]
        damaged = next(batch for batch in batches if batch[0] == event.offset)
        assert damaged is not batches[0]
        before = told(folder / f"broker-{node}" / partition, wanted=EventFilter(end=event.time))
        assert "last-record" not in {one.kind for one in before}


def test_between_two_moments_of_a_quorum_is_told_what_changed(image: Image, corpora: Path) -> None:
    """Leaders, ISRs, topics created, grown, deleted and created anew, in clients' answers before and after."""
    disks = sorted(image("replicas/quorum.tar.xz").glob("broker-[1-9]"))
    truth = json.loads(gzip.decompress((corpora / "replicas/quorum.truth.json.gz").read_bytes()))
    events = told(*disks, wanted=EventFilter(kinds=METADATA_KINDS))
    assert len(truth["moments"]) == 5
    for before, after in zip(truth["moments"], truth["moments"][1:], strict=False):
        between = [
            event for event in events if before["high_watermark"] <= (event.offset or 0) < after["high_watermark"]
        ]
        ids = [set(moment["topic_ids"].values()) for moment in (before, after)]
        assert {event.topic_id for event in named(between, "topic-deleted")} == ids[0] - ids[1]
        assert {event.topic_id for event in named(between, "topic-created")} == ids[1] - ids[0]
        for partition, state in after["partitions"].items():
            topic, _, number = partition.rpartition("-")
            was = before["partitions"].get(partition)
            if topic in {event.topic for event in named(between, "topic-created")}:
                continue
            changes = [
                event
                for event in named(between, "partition-changed")
                if (event.topic, event.partition) == (topic, int(number))
            ]
            assert bool(changes) >= (was != state), (after["label"], partition)
            assert not changes or changes[-1].node == state["leader"], (after["label"], partition)
            isr = ",".join(map(str, state["isr"]))
            if was is not None and set(was["isr"]) != set(state["isr"]):
                told_isr = [event.message for event in changes if "ISR " in event.message][-1]
                assert f"→ {isr}" in told_isr.partition("ISR ")[2], (after["label"], partition, told_isr)
            if was is None:
                assert "created" in changes[0].message


def test_the_cleaners_checkpoint_says_how_far_it_has_been(image: Image) -> None:
    """An event for each partition in it, at the time when the file was written."""
    data = image("compaction/v4.3.1/after.tar.gz")
    data = next(path.parent for path in data.rglob("cleaner-offset-checkpoint"))
    checkpoint = data / "cleaner-offset-checkpoint"
    lines = [line.split() for line in checkpoint.read_text().splitlines()[2:]]
    expected = {(topic, int(number)): int(offset) for topic, number, offset in lines if int(offset)}
    found = named(told(data), "compacted")
    here = {(event.topic, event.partition) for event in named(told(data), "last-record", "compacted")}
    assert {(event.topic, event.partition): event.offset for event in found} == {
        place: offset for place, offset in expected.items() if place in here
    }
    assert len(found) > 5
    assert {event.time for event in found} == {checkpoint.stat().st_mtime_ns // 1_000_000}
