"""Producer snapshots, against the document's vectors and against Kafka's dump tool."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from crc32c import crc32c
from klog.formats.producer_snapshot import HEADER, Producer, Snapshot, read_snapshot, write_snapshot

from tests.brokers import kafka
from tests.conftest import FIXTURES
from tests.support import goldens

EMPTY = bytes.fromhex("0001 48674bc7 00000000")
ONE = bytes.fromhex(
    "0001 bafd7f53 00000001 00000000000003e8 0003 00000029 0000000000000411 00000009"
    "0000018bcfe5687b 00000007 ffffffffffffffff"
)
PRODUCER = Producer(1000, 3, 41, 1041, 9, 1700000000123, 7, -1)


def printed(snapshot: Snapshot) -> Iterator[str]:
    """The dump tool's lines about a snapshot."""
    for producer in () if snapshot.problem else snapshot.producers:
        first = producer.current_txn_first_offset
        text = f"producerId: {producer.producer_id} producerEpoch: {producer.producer_epoch}"
        text += f" coordinatorEpoch: {producer.coordinator_epoch}"
        text += f" currentTxnFirstOffset: {f'OptionalLong[{first}]' if first >= 0 else 'OptionalLong.empty'}"
        text += f" lastTimestamp: {producer.timestamp}"
        if producer.last_offset >= 0:
            text += f" firstSequence: {producer.first_sequence} lastSequence: {producer.last_sequence}"
            text += f" lastOffset: {producer.last_offset} offsetDelta: {producer.offset_delta}"
            text += f" timestamp: {producer.timestamp}"
        yield text


def test_a_snapshot_without_producers() -> None:
    assert read_snapshot(EMPTY, crc32c) == Snapshot((), None, 0x48674BC7, 0x48674BC7)
    assert write_snapshot((), crc32c) == EMPTY


def test_a_snapshot_with_one_producer() -> None:
    assert read_snapshot(ONE, crc32c) == Snapshot((PRODUCER,), None, 0xBAFD7F53, 0xBAFD7F53)
    assert write_snapshot([PRODUCER], crc32c) == ONE
    assert PRODUCER.first_sequence == 32


def test_the_first_sequence_of_a_batch_that_wrapped() -> None:
    assert PRODUCER._replace(last_sequence=1, offset_delta=3).first_sequence == 2**31 - 2


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "Snapshot failed schema validation: null"),
        (b"\0", "Snapshot failed schema validation: null"),
        (b"\0\1\0\0\0\0", "Snapshot failed schema validation: null"),
        (b"\0\2", "Snapshot failed schema validation: Snapshot contained an unknown file version 2"),
        (b"\xff\xff" + ONE[2:], "Snapshot failed schema validation: Snapshot contained an unknown file version -1"),
        (
            HEADER.write(1, 0, -1),
            "Snapshot failed schema validation: non-nullable field producerEntries was serialized as null",
        ),
        (
            HEADER.write(1, 0, 100),
            "Snapshot failed schema validation: "
            "Tried to allocate a collection of size 100, but there are only 0 bytes remaining.",
        ),
        (HEADER.write(1, 0, 20) + bytes(46), "Snapshot failed schema validation: null"),
        (ONE[:-5], "Snapshot failed schema validation: null"),
        (
            HEADER.write(1, 0, 0),
            "Snapshot is corrupt (CRC is no longer valid). Stored crc: 0. Computed crc: 1214729159",
        ),
        (
            ONE + b"\0",
            "Snapshot is corrupt (CRC is no longer valid). "
            f"Stored crc: {0xBAFD7F53}. Computed crc: {crc32c(ONE[6:] + bytes(1))}",
        ),
    ],
)
def test_a_snapshot_that_a_broker_throws_away_says_why_in_the_brokers_words(content: bytes, problem: str) -> None:
    """The sentences were taken from Kafka 4.3.1: they are what its dump tool prints on stderr."""
    assert read_snapshot(content, crc32c).problem == problem


def test_every_flipped_byte_is_noticed() -> None:
    for at in range(len(ONE)):
        damaged = bytearray(ONE)
        damaged[at] ^= 0xFF
        assert read_snapshot(bytes(damaged), crc32c).problem is not None, at


def test_what_can_be_read_of_a_torn_snapshot_is_there_for_people() -> None:
    whole = write_snapshot([PRODUCER, PRODUCER._replace(producer_id=1001)], crc32c)
    found = read_snapshot(whole[:-1], crc32c)
    assert found.producers == (PRODUCER,)
    assert found.problem == "Snapshot failed schema validation: null"


def test_a_count_that_promises_the_moon_costs_no_memory() -> None:
    assert read_snapshot(HEADER.write(1, 0, 2**31 - 1) + ONE[10:], crc32c).producers == (PRODUCER,)


def test_real_snapshots_are_read_as_kafkas_dump_tool_reads_them() -> None:
    """Line by line what Kafka 4.3.1 printed, and written back byte for byte."""
    compared = producers = 0
    for file, said in goldens.read(FIXTURES / "golden" / "plain.gz"):
        if not file.endswith(".snapshot"):
            continue
        content = (FIXTURES / file).read_bytes()
        snapshot = read_snapshot(content, crc32c)
        lines = [f"Dumping {file}", *printed(snapshot)]
        assert said.stdout.decode() == "".join(f"{line}\n" for line in lines), file
        assert said.stderr.decode() == (f"{snapshot.problem}\n" if snapshot.problem else ""), file
        if snapshot.problem is None:
            assert write_snapshot(snapshot.producers, crc32c) == content
        compared += 1
        producers += len(snapshot.producers)
    assert compared > 30
    assert producers > 20


@pytest.mark.kafka
def test_damaged_snapshots_are_refused_as_by_kafka(tmp_path: Path, dump_tool: kafka.DumpTool) -> None:
    """Every length, and every byte flipped: the same lines, the same complaint."""
    whole = write_snapshot([PRODUCER, PRODUCER._replace(last_offset=-1, current_txn_first_offset=7)], crc32c)
    contents = [whole[:size] for size in range(len(whole) + 1)] + [whole + b"\0"]
    contents += [whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in range(len(whole))]
    path = tmp_path / "00000000000000001052.snapshot"
    for content in contents:
        path.write_bytes(content)
        said = dump_tool.run("--files", str(path))
        snapshot = read_snapshot(content, crc32c)
        assert said.stdout.decode().splitlines()[1:] == list(printed(snapshot)), content.hex()
        assert said.stderr.decode().splitlines() == ([snapshot.problem] if snapshot.problem else []), content.hex()
