"""Control records: the dump tool's output for them, and the exceptions of which it dies."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from klog.formats.control import END_TXN_MARKER, KEY, Control, control_record
from klog.formats.structs.schema import load

from tests.brokers import kafka
from tests.formats.struct_writer import damaged, made_up_struct, write
from tests.oracles.plain import encode

SCHEMAS = {
    2: "LeaderChangeMessage",
    3: "SnapshotHeaderRecord",
    4: "SnapshotFooterRecord",
    5: "KRaftVersionRecord",
    6: "VotersRecord",
}


def said(type_id: int, value: str | None, version: int = 0) -> Control:
    return control_record(KEY.write(version, type_id), None if value is None else bytes.fromhex(value))


@pytest.mark.parametrize(("type_id", "name"), [(0, "ABORT"), (1, "COMMIT")])
def test_the_end_of_a_transaction(type_id: int, name: str) -> None:
    found = said(type_id, "0000 0000000c")
    assert (found.type_id, found.name, found.coordinator_epoch, found.failure) == (type_id, name, 12, "")
    assert found.text == f" endTxnMarker: {name} coordinatorEpoch: 12"


def test_newer_versions_are_read_as_the_newest_known_and_what_follows_is_ignored() -> None:
    found = said(1, "0007 ffffffff 0102", version=9)
    assert found.text == " endTxnMarker: COMMIT coordinatorEpoch: -1"
    assert control_record(bytes.fromhex("0000 0001 ff"), END_TXN_MARKER.write(0, 3)).coordinator_epoch == 3


KRAFT = [
    (2, "0000 00000001 04 00000001 00 00000002 00 00000003 00 03 00000001 00 00000002 00 00",
     ' LeaderChange: {"version":0,"leaderId":1,"voters":[{"voterId":1},{"voterId":2},{"voterId":3}],'
     '"grantingVoters":[{"voterId":1},{"voterId":2}]}'),
    (3, "0000 0000018bcfe56800 00", ' SnapshotHeader {"version":0,"lastContainedLogTimestamp":1700000000000}'),
    (4, "0000 00", ' SnapshotFooter {"version":0}'),
    (5, "0000 0001 00", ' KRaftVersion {"version":0,"kRaftVersion":1}'),
    (6, "0000 02 00000001 b69c7ca5dd48403a89c0c7c6cd78fa18 02 0b 434f4e54524f4c4c4552 0a 6c6f63616c686f7374 2385 00"
        " 0000 0001 00 00 00",
     ' KRaftVoters {"version":0,"voters":[{"voterId":1,"voterDirectoryId":"tpx8pd1IQDqJwMfGzXj6GA","endpoints":['
     '{"name":"CONTROLLER","host":"localhost","port":9093}],"kRaftVersionFeature":'
     '{"minSupportedVersion":0,"maxSupportedVersion":1}}]}'),
]  # fmt: skip


@pytest.mark.parametrize(("type_id", "value", "text"), KRAFT)
def test_the_records_of_the_quorum(type_id: int, value: str, text: str) -> None:
    found = said(type_id, value)
    assert (found.text, found.failure, found.coordinator_epoch) == (text, "", None)
    assert found.data["version"] == 0


def test_the_version_inside_decides_how_it_prints_not_how_it_is_read() -> None:
    """Kafka reads a leader change as version 0, whatever it contains, and prints the directory ids it does not have."""
    found = said(2, "0001 00000001 02 00000001 00 01 00")
    zero = "AAAAAAAAAAAAAAAAAAAAAA"
    assert found.text == (
        f' LeaderChange: {{"version":1,"leaderId":1,"voters":[{{"voterId":1,"voterDirectoryId":"{zero}"}}],'
        '"grantingVoters":[]}'
    )


@pytest.mark.parametrize("type_id", [7, -1, 300])
def test_types_that_kafka_does_not_know(type_id: int) -> None:
    found = said(type_id, None)
    assert (found.name, found.text) == ("UNKNOWN", f" controlType: UNKNOWN({type_id})")


NULL = "java.lang.NullPointerException: Cannot invoke "
INVALID = "org.apache.kafka.common.InvalidRecordException: Invalid "
KEY_SIZE = "value size found for control record key. Must have at least 4 bytes, but found only 3"
VERSION = "version found for {}: -2. May indicate data corruption"
DEATHS = [
    (None, "00", f'{NULL}"java.nio.ByteBuffer.duplicate()" because "key" is null'),
    ("000000", "00", INVALID + KEY_SIZE),
    ("fffe 0001", "0000 00000001", INVALID + VERSION.format("control record")),
    ("0000 0001", None, f'{NULL}"java.nio.ByteBuffer.getShort()" because "value" is null'),
    ("0000 0001", "fffe", INVALID + VERSION.format("end transaction marker")),
    ("0000 0000", "00", "java.nio.BufferUnderflowException"),
    ("0000 0000", "ff", "java.nio.BufferUnderflowException"),
    ("0000 0000", "0000 000000", "java.nio.BufferUnderflowException"),
    ("0000 0004", None, f'{NULL}"java.nio.ByteBuffer.slice()" because "data" is null'),
    ("0000 0004", "0000", "java.nio.BufferUnderflowException"),
    ("0000 0006", "0000 00", "java.lang.RuntimeException: non-nullable field voters was serialized as null"),
]


@pytest.mark.parametrize(("key", "value", "failure"), DEATHS)
def test_what_the_dump_tool_dies_of(key: str | None, value: str | None, failure: str) -> None:
    """Nothing of the control record is printed then: the caller prints the metadata and stops the file."""
    found = control_record(key if key is None else bytes.fromhex(key), value if value is None else bytes.fromhex(value))
    assert (found.text, found.failure) == ("", failure)


def control_batch(chance: random.Random) -> list[encode.Record]:
    """Return a dozen control records, some of which the dump tool does not survive."""
    records = []
    for offset in range(12):
        type_id = chance.choice((0, 1, 2, 3, 4, 5, 6, 0, 1, 7, -1, 300))
        key: bytes | None = KEY.write(chance.choice((0, 0, 1)), type_id)
        value: bytes | None = END_TXN_MARKER.write(chance.choice((0, 3)), chance.randrange(-5, 1 << 31))
        if type_id in SCHEMAS:
            schema = load("control", SCHEMAS[type_id])
            content = made_up_struct(schema.struct, 0, chance) | {"version": chance.choice((0, 0, 1, 2, -3))}
            value = write(schema, content, 0)
        fate = chance.random()
        if fate < 0.15:
            value = damaged(value or b"", chance)
        elif fate < 0.2:
            key = damaged(KEY.write(0, type_id), chance)
        elif fate < 0.22:
            value = None
        elif fate < 0.23:
            key = None
        records.append(encode.Record(offset, 1000 + offset, key, value))
    return records


@pytest.mark.kafka
def test_the_dump_tool_prints_the_same_and_dies_of_the_same(dump_tool: kafka.DumpTool, tmp_path: Path) -> None:
    """Control records of all kinds, one in five damaged: the same text up to the same exception."""
    file = tmp_path / "00000000000000000000.log"
    died = 0
    for seed in range(400):
        records = control_batch(random.Random(seed))
        header = encode.BatchHeader(
            base_timestamp=1000, max_timestamp=1012, last_offset_delta=11, count=12, control=True, transactional=True
        )
        file.write_bytes(encode.raw_batch(header, encode.records_payload(records, 0, 1000)))
        printed = dump_tool.run("--files", str(file), "--deep-iteration")
        expected, failure = "", ""
        for record in records:
            found = control_record(record.key, record.value)
            sizes = [-1 if part is None else len(part) for part in (record.key, record.value)]
            expected += f"| offset: {record.offset} CreateTime: {record.timestamp} keySize: {sizes[0]}"
            expected += f" valueSize: {sizes[1]} sequence: -1 headerKeys: []{found.text}"
            failure = found.failure
            if failure:
                died += 1
                break
            expected += "\n"
        assert printed.stdout.split(b"\n", 3)[3].decode() == expected, seed
        # A JVM that has met a null often enough no longer names it.
        assert printed.died == failure or (printed.died and failure.startswith(f"{printed.died}: Cannot invoke")), seed
    assert died > 100
