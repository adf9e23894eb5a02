"""The kernel's way through records of partitions, against the rules for one record after another."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.cluster.metadata.metadata_image import MetadataImage
from klog.cluster.metadata.metadata_replay import Problems, Replay
from klog.cluster.metadata.topics_image import PartitionRegistration, merged, partition_of
from klog.formats.internal_topics import MetadataRecord, metadata_record
from klog.kernel import PartitionTable, Window

from tests.support.examples import examples
from tests.support.metadata_logs import MetadataLog, topic, uuid, value

NODES = st.lists(st.integers(-1, 4), max_size=4)
DIRECTORIES = st.lists(st.sampled_from([uuid(0), uuid(1), uuid(7), uuid(8)]), max_size=4)
KEYS = {"partitionId": st.integers(0, 2), "topicId": st.sampled_from([uuid(1), uuid(2), uuid(3)])}
PARTITIONS = st.fixed_dictionaries(
    {
        **KEYS,
        "replicas": st.just([1, 2, 3]) | NODES,
        "isr": NODES,
        "addingReplicas": NODES,
        "removingReplicas": NODES,
        "leader": st.integers(-2, 4),
        "leaderEpoch": st.sampled_from([0, 7, 2**31 - 1]),
        "partitionEpoch": st.sampled_from([0, 9, -1]),
        "leaderRecoveryState": st.integers(-1, 2),
        "directories": st.just([uuid(7), uuid(8), uuid(7)]) | DIRECTORIES,
        "eligibleLeaderReplicas": st.none() | NODES,
        "lastKnownElr": st.none() | NODES,
    }
).map(lambda fields: value("Partition", **fields))
CHANGES = st.fixed_dictionaries(
    KEYS,
    optional={
        "isr": NODES,
        "leader": st.integers(-2, 4),
        "replicas": NODES,
        "removingReplicas": NODES,
        "addingReplicas": NODES,
        "leaderRecoveryState": st.integers(-1, 2),
        "directories": DIRECTORIES,
        "eligibleLeaderReplicas": NODES,
        "lastKnownElr": NODES,
    },
).map(lambda fields: value("PartitionChange", **fields))
OTHERS = st.one_of(
    st.builds(topic, st.sampled_from("tuv"), st.integers(1, 3)),
    st.sampled_from([1, 2, 3]).map(lambda number: value("RemoveTopic", topicId=uuid(number))),
    st.sampled_from(["", "t", "u"]).map(lambda name: value("ClearElr", topicName=name)),
    st.sampled_from(
        [value("NoOp"), value("BeginTransaction", name="x"), value("EndTransaction"), value("AbortTransaction")]
    ),
)


def spoilt(record: bytes, at: int, byte: int | None) -> bytes:
    """Return a record with one byte changed, or taken away, or cut there."""
    at %= len(record) or 1
    return record[:at] if byte is None else record[:at] + bytes([byte]) + record[at + (byte % 3 > 0) :]


RECORDS = st.lists(st.one_of(PARTITIONS, CHANGES, CHANGES, OTHERS), max_size=30)
SPOILT = st.lists(st.tuples(st.integers(0, 29), st.integers(0, 200), st.none() | st.integers(0, 255)), max_size=4)


class OneByOne(Replay):
    """Takes every record by the rules."""

    def pass_over(self, rows: Window, first: int, until: int) -> int:
        return first


def replayed(log: MetadataLog, kind: type[Replay]) -> tuple[MetadataImage, tuple[str, ...], int]:
    replay = kind(MetadataImage(), Problems())
    replay.log(str(log.log), 0, 2**62, is_in_use=False)
    return replay.state, replay.problems.sentences(), replay.expected


@given(RECORDS, SPOILT, st.integers(1, 7))
@examples(150)
def test_both_ways_lead_to_the_same_state_and_say_the_same(
    tmp_path_factory: pytest.TempPathFactory, records: list[bytes], spoils: list[tuple[int, int, int | None]], size: int
) -> None:
    """Whatever is unusual about a record must be left to the rules, before anything has changed."""
    records = [topic("t", 1), topic("u", 2), *records]
    for number, at, byte in spoils:
        records[number % len(records)] = spoilt(records[number % len(records)], at, byte)
    log = MetadataLog(tmp_path_factory.mktemp("log"))
    for first in range(0, len(records), size):
        log.add(*records[first : first + size])
    quick, slow = replayed(log, Replay), replayed(log, OneByOne)
    assert quick == slow
    for topic_id, partitions in quick[0].topics.partitions.items():
        assert list(partitions) == sorted(partitions)
        assert quick[0].topics.table.json(_bytes(topic_id)).count(b'"partition"') == len(partitions)


class _Plain:
    """Partitions in a dict, as plainly as possible."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[str, int], PartitionRegistration] = {}

    def take(self, record: MetadataRecord) -> None:
        key = (record.data.get("topicId", ""), record.data.get("partitionId", -1))
        if record.name == "PARTITION_RECORD":
            self.put(key, partition_of(record.data))
        elif record.name == "PARTITION_CHANGE_RECORD" and key in self.partitions:
            self.put(key, merged(self.partitions[key], record.data))

    def put(self, key: tuple[str, int], one: PartitionRegistration) -> None:
        if not one.directories or len(one.directories) == len(one.replicas):
            self.partitions[key] = one


def test_thousands_of_partitions_are_as_a_dict_has_them(tmp_path: Path) -> None:
    """The table grows, the lists move, and batches end in the middle of a look ahead."""
    chance, log, plain = random.Random(3), MetadataLog(tmp_path / "data"), _Plain()
    log.add(*(topic(f"t{number}", number) for number in range(1, 9)))
    records = [
        value("Partition", partitionId=number, topicId=uuid(each), replicas=[1, 2], isr=[1], leader=1)
        for each in range(1, 9)
        for number in range(300)
    ]
    for _ in range(4000):
        nodes = [chance.sample(range(50), chance.randrange(12)) for _ in range(3)]
        change: dict[str, Any] = {"isr": nodes[0], "eligibleLeaderReplicas": nodes[1]}
        if chance.random() < 0.3:
            change |= {"replicas": nodes[2], "directories": [uuid(node + 9) for node in nodes[2]]}
        if chance.random() < 0.3:
            change["leader"] = chance.randrange(-1, 50)
        key = {"partitionId": chance.randrange(310), "topicId": uuid(chance.randrange(1, 10))}
        records.append(value("PartitionChange", **key, **change))
    for first in range(0, len(records), 37):
        log.add(*records[first : first + 37])
    for record in map(metadata_record, records):
        assert isinstance(record, MetadataRecord)
        plain.take(record)
    found = replayed(log, Replay)[0].topics.partitions
    assert {(each, number): one for each, some in found.items() for number, one in some.items()} == plain.partitions


def test_an_elr_is_cleared_without_a_look_at_every_partition() -> None:
    """A log may have a clearing after each change."""
    table = PartitionTable()
    table.add_topic(bytes(16))
    ints = b"\0\0\0\1"
    for number in range(20_000):
        table.put(bytes(16), number, (ints, ints, b"", b"", b"", b"", b""), 1, 0, 0, False)
    for _ in range(20_000):
        table.put(bytes(16), 7, (ints, ints, ints, b"", b"", b"", b""), 1, 0, 5, False)
        table.clear_elr()
        table.put(bytes(16), 8, (ints, ints, ints, ints, b"", b"", b""), 1, 0, 5, False)
        table.clear_elr(bytes(16))
    found = [table.get(bytes(16), number) for number in (7, 8, 9)]
    assert [None if one is None else (one[4], one[5], one[6]) for one in found] == [
        (6, (), ()),
        (6, (), ()),
        (0, (), ()),
    ]


def test_what_is_not_there_is_not_found() -> None:
    table = PartitionTable()
    assert (table.get(bytes(16), 0), table.numbers(bytes(16)), table.count(b""), table.json(bytes(16))) == (
        None,
        [],
        0,
        b"[]",
    )
    table.remove_topic(bytes(16))
    with pytest.raises(ValueError, match="16 bytes"):
        table.add_topic(b"x")
    with pytest.raises(KeyError):
        table.put(bytes(16), 0, (b"", b"", b"", b"", b"", b"", b""), 1, 0, 0, False)
    table.add_topic(bytes(16))
    with pytest.raises(OverflowError):
        table.put(bytes(16), 0, (bytes(40_000), b"", b"", b"", b"", b"", b""), 1, 0, 0, False)


def _bytes(letters: str) -> bytes:
    from base64 import urlsafe_b64decode

    return urlsafe_b64decode(f"{letters}==")
