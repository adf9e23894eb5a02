"""Internal topics: the content of their records, compared with the output of Kafka 4.3.1's own dump tool."""

from __future__ import annotations

import random
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog.formats import internal_topics
from klog.formats.control import control_record
from klog.formats.internal_topics import (
    CLUSTER_METADATA,
    CONSUMER_OFFSETS,
    DECODERS,
    REMOTE_LOG_METADATA,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
    CoordinatorRecord,
    MetadataRecord,
    MissingKeyError,
    TextOf,
    Undecodable,
    cluster_metadata,
    coordinator_record,
    metadata_record,
    offsets,
    remote_log_metadata,
    remote_log_record,
    share_group_state,
    transactions,
    unreadable_value,
)
from klog.formats.structs.json import EmbeddedStruct
from klog.formats.structs.schema import Schema, load, names_by_key

from tests.brokers import kafka
from tests.conftest import FIXTURES
from tests.formats.struct_writer import damaged, made_up_struct, write
from tests.oracles.plain import decode, encode
from tests.support import goldens

FLAGS = goldens.DECODERS | {REMOTE_LOG_METADATA: "--remote-log-metadata-decoder"}
FILES = {CONSUMER_OFFSETS: "coordinator", TRANSACTION_STATE: "transaction", SHARE_GROUP_STATE: "share"}

COMMIT_KEY = bytes.fromhex("0001 0008 6d792d67726f7570 0006 6f7264657273 00000003")
COMMIT_VALUE = bytes.fromhex("0003 0000000000003039 00000007 0000 0000018bcfe56800")
GROUP_KEY = bytes.fromhex("0002 0008 6d792d67726f7570")
# a group of the protocol "consumer" with one member; its subscription and assignment follow
GROUP_VALUE = (
    "0003 0008636f6e73756d6572 00000005 000572616e6765 0007 63312d75756964 0000018bcfe56800 00000001"
    " 000763312d75756964 ffff 00026331 00092f31302e302e302e31 000493e0 0000afc8"
)
SUBSCRIPTION = "00000016 0001 00000001 00066f7264657273 ffffffff 00000000"
ASSIGNMENT = "0000001e 0001 00000001 00066f7264657273 00000002 00000000 00000001 ffffffff"


def payload(value: str, key: bytes = GROUP_KEY) -> str:
    text = offsets(key, bytes.fromhex(value), 0)[1]
    assert text is not None
    return text


# ---------------------------------------------------------------- coordinators


def test_a_committed_offset() -> None:
    assert offsets(COMMIT_KEY, COMMIT_VALUE, 5) == (
        '{"type":"1","data":{"group":"my-group","topic":"orders","partition":3}}',
        '{"version":"3","data":{"offset":12345,"leaderEpoch":7,"metadata":"","commitTimestamp":1700000000000}}',
    )
    record = coordinator_record(CONSUMER_OFFSETS, COMMIT_KEY, COMMIT_VALUE)
    assert isinstance(record, CoordinatorRecord)
    assert (record.type, record.name, record.version) == (1, "OffsetCommit", 3)
    assert record.key == {"group": "my-group", "topic": "orders", "partition": 3}
    assert record.value is not None
    assert record.value["offset"] == 12345


def test_a_tombstone_deletes() -> None:
    assert offsets(COMMIT_KEY, None, 5)[1] == "<DELETE>"
    record = coordinator_record(CONSUMER_OFFSETS, COMMIT_KEY, None)
    assert isinstance(record, CoordinatorRecord)
    assert (record.version, record.value) == (None, None)


def test_bytes_after_key_and_value_do_not_disturb() -> None:
    assert offsets(COMMIT_KEY + b"x", COMMIT_VALUE + b"y", 5) == offsets(COMMIT_KEY, COMMIT_VALUE, 5)


def test_a_consumer_group_shows_what_its_members_sent() -> None:
    text = payload(GROUP_VALUE + SUBSCRIPTION + ASSIGNMENT)
    assert '"subscription":{"topics":["orders"],"userData":null,"ownedPartitions":[]}' in text
    assert '"assignment":{"assignedPartitions":[{"topic":"orders","partitions":[0,1]}],"userData":null}' in text
    record = coordinator_record(CONSUMER_OFFSETS, GROUP_KEY, bytes.fromhex(GROUP_VALUE + SUBSCRIPTION + ASSIGNMENT))
    assert isinstance(record, CoordinatorRecord)
    assert record.value is not None
    subscription = record.value["members"][0]["subscription"]
    assert isinstance(subscription, EmbeddedStruct)
    assert subscription.value["topics"] == ["orders"]


@pytest.mark.parametrize(
    ("subscription", "text"),
    [
        ("00000000", '""'),
        ("00000001 00", '"AA=="'),
        ("00000003 0001 ff", '"AAH/"'),
        # a newer version is read as far as it is known, unless it holds a struct that Kafka refuses to read in it
        ("0000000e 0005 00000000 ffffffff 00000000", '"AAUAAAAA/////wAAAAA="'),
        ("00000012 0009 00000000 ffffffff 00000000 00000007", '"AAkAAAAA/////wAAAAAAAAAH"'),
        ("00000014 0009 00000000 ffffffff 00000000 00000007 ffff",
         '{"topics":[],"userData":null,"ownedPartitions":[],"generationId":7,"rackId":null}'),
        ("00000014 0009 00000000 ffffffff 00000001 00000007 ffff", '"AAkAAAAA/////wAAAAEAAAAH//8="'),
        ("0000000a ffff 00000000 ffffffff", '{"topics":[],"userData":null}'),
    ],
)  # fmt: skip
def test_what_is_no_subscription_stays_as_it_is(subscription: str, text: str) -> None:
    assert f'"subscription":{text},' in payload(GROUP_VALUE + subscription + ASSIGNMENT)


def test_groups_of_other_protocols_stay_as_they_are() -> None:
    for protocol_type in ("0007 636f6e6e656374", "0002 7372", "0000"):
        front = f"0000 {protocol_type} 00000001 ffff ffff 00000001 000161 0000 0000 00000001 "
        text = payload(front + SUBSCRIPTION + ASSIGNMENT)
        assert '"subscription":"AAEAAAABAAZvcmRlcnP/////AAAAAA==","assignment":"AAEA' in text


def test_types_that_kafka_does_not_know_are_named() -> None:
    assert offsets(b"\x00\x09rest", b"", 7) == ("Unknown record type 9 at offset 7, skipping.", None)
    assert offsets(b"\xff\xff", None, 7) == ("Unknown record type -1 at offset 7, skipping.", None)
    record = coordinator_record(CONSUMER_OFFSETS, b"\x00\x09", None)
    assert isinstance(record, Undecodable)
    assert record.unknown_type == 9


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (b"", b"", "Could not read version from key's buffer."),
        (b"\0", b"", "Could not read version from key's buffer."),
        (COMMIT_KEY, b"\0", "Could not read version from value's buffer."),
        (COMMIT_KEY, b"\0\x05", "Found an unknown record version 5 for 1 type"),
        (COMMIT_KEY, b"\xff\xff", "Found an unknown record version -1 for 1 type"),
        (COMMIT_KEY[:-1], None, "Could not read record with version 1 from key's buffer due to: null."),
        (
            COMMIT_KEY[:12],
            None,
            "Could not read record with version 1 from key's buffer due to: null.",
        ),
        (
            b"\0\x01\xff\xff",
            None,
            "Could not read record with version 1 from key's buffer due to: non-nullable field group was serialized as"
            " null.",
        ),
        (
            COMMIT_KEY,
            COMMIT_VALUE[:14] + b"\0\x63abc",
            "Could not read record with version 3 from value's buffer due to: Error reading byte array of 99 byte(s):"
            " only 3 byte(s) available.",
        ),
    ],
)
def test_what_cannot_be_decoded_says_why_in_kafkas_words(key: bytes, value: bytes | None, message: str) -> None:
    assert offsets(key, value, 41) == (f"Error at offset 41, skipping. {message}", None)


@pytest.mark.parametrize("text_of", [offsets, transactions, share_group_state])
def test_a_missing_key_ends_the_file(text_of: TextOf) -> None:
    with pytest.raises(MissingKeyError) as caught:
        text_of(None, COMMIT_VALUE, 12)
    assert str(caught.value) == (
        "Failed to decode message at offset 12 using the specified decoder (message had a missing key)"
    )


def test_the_state_of_a_transaction() -> None:
    key = bytes.fromhex("0000 0005 74786e2d31")
    value = "0001 0000000000000007 0003 0000ea60 01 02 02 74 02 00000000 00 0000018bcfe56800 0000018bcfe56800"
    assert transactions(key, bytes.fromhex(value + "02 00 08 0000000000000006 02 02 0002"), 0) == (
        '{"type":"0","data":{"transactionalId":"txn-1"}}',
        '{"version":"1","data":{"producerId":7,"previousProducerId":6,"producerEpoch":3,"transactionTimeoutMs":60000,'
        '"transactionStatus":1,"transactionPartitions":[{"topic":"t","partitionIds":[0]}],'
        '"transactionLastUpdateTimestampMs":1700000000000,"transactionStartTimestampMs":1700000000000,'
        '"clientTransactionVersion":2}}',
    )


def test_the_state_of_a_share_group() -> None:
    key = bytes.fromhex("0001 0003 736731 00112233445566778899aabbccddeeff 00000000")
    batch = "0000000000000064 000000000000006d 02 0001 00"
    assert share_group_state(key, bytes.fromhex(f"0000 00000001 00000002 0000000000000064 02 {batch} 00"), 0) == (
        '{"type":"1","data":{"groupId":"sg1","topicId":"ABEiM0RVZneImaq7zN3u_w","partition":0}}',
        '{"version":"0","data":{"snapshotEpoch":1,"leaderEpoch":2,"startOffset":100,"stateBatches":['
        '{"firstOffset":100,"lastOffset":109,"deliveryState":2,"deliveryCount":1}]}}',
    )


# ---------------------------------------------------------------- metadata


def test_a_metadata_record() -> None:
    value = bytes.fromhex("01 02 00 07 6f7264657273 00112233445566778899aabbccddeeff 00")
    assert cluster_metadata(b"ignored", value, 0) == (
        None,
        '{"type":"TOPIC_RECORD","version":0,"data":{"name":"orders","topicId":"ABEiM0RVZneImaq7zN3u_w"}}',
    )
    topic = {"name": "orders", "topicId": "ABEiM0RVZneImaq7zN3u_w"}
    assert metadata_record(value) == MetadataRecord(2, "TOPIC_RECORD", 0, topic)


def test_metadata_records_are_named_as_kafka_names_them() -> None:
    named = {2: "TOPIC", 5: "PARTITION_CHANGE", 20: "NO_OP", 21: "ZK_MIGRATION_STATE", 28: "CLEAR_ELR"}
    for record_type, name in named.items():
        schema = load("metadata", names_by_key("metadata")[record_type][0])
        value = b"\1" + encode.unsigned_varint(record_type) + b"\0" + write(schema, schema.struct.default(), 0)
        record = metadata_record(value)
        assert isinstance(record, MetadataRecord)
        assert record.name == f"{name}_RECORD"


def test_a_metadata_record_of_a_version_that_kafka_does_not_know_is_read_all_the_same() -> None:
    """Kafka checks versions only where a struct in the record does."""
    text = cluster_metadata(None, bytes.fromhex("01 0c 63 01 0014 00"), 0)[1]
    assert text == '{"type":"FEATURE_LEVEL_RECORD","version":99,"data":{"name":"","featureLevel":20}}'
    # The three numbers in front are cut to 16 bits, which makes 1 of -2147483647 and 20 of -2147483628.
    assert cluster_metadata(None, bytes.fromhex("8180808008 9480808008 8080808008 00"), 0)[1] == (
        '{"type":"NO_OP_RECORD","version":0,"data":{}}'
    )
    quota = "01 0e 01 02 01 01 00 01 0000000000000000 00 00"
    assert cluster_metadata(None, bytes.fromhex(quota), 0)[1] == (
        "Error at 0, skipping. Failed to deserialize record with type 14"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "Error while reading frame version"),
        ("", "Error while reading frame version"),
        ("ffffffffff01", "Error while reading frame version"),
        ("01", "Error while reading type"),
        ("01 02 80", "Error while reading version"),
        ("01 808002 00", "Value for type was too large."),
        (
            "02",
            "Could not deserialize metadata record due to unknown frame version 2(only frame version 1 is supported)",
        ),
        ("01 06 00 00", "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id 6"),
        ("01 ffffffff0f 00", "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id -1"),
        ("01 02 00 07", "Failed to deserialize record with type 2"),
        ("01 14 00 00 0102", "Found 2 byte(s) of garbage after 20"),
        ("01 14 00 00 00", "Found 1 byte(s) of garbage after 20"),
    ],
)
def test_what_is_no_metadata_record_says_why(value: str | None, message: str) -> None:
    data = None if value is None else bytes.fromhex(value)
    assert cluster_metadata(None, data, 9) == (None, f"Error at 9, skipping. {message}")
    unknown = message.rpartition("Unknown metadata id ")[2]
    assert metadata_record(data) == Undecodable(message, int(unknown) if unknown != message else None)


def test_the_metadata_of_the_preview_of_2_8_is_told_apart() -> None:
    text = cluster_metadata(None, b"\0\2\0", 9)[1]
    assert text is not None
    assert "frame version 0. Note that upgrades from the preview release of KRaft in 2.8 to newer versions" in text


REMOTE_PARTITION = "02 74 00112233445566778899aabbccddeeff 00000003 00"
REMOTE_ID = f"{REMOTE_PARTITION} 0102030405060708090a0b0c0d0e0f10 00"


def remote_segment(
    start: int = 0, end: int = 9, state: int = 0, epochs: str = "02 00000000 0000000000000000 00"
) -> str:
    numbers = f"{start & (1 << 64) - 1:016x} {end:016x} 00000001 {5:016x} {6:016x}"
    return f"01 00 00 {REMOTE_ID} {numbers} {epochs} 00000064 00 {state:02x} 00"


def test_a_segment_in_remote_storage() -> None:
    epochs = "03 00000002 0000000000000005 00 00000000 0000000000000000 00"
    assert remote_log_metadata(None, bytes.fromhex(remote_segment(state=1, epochs=epochs)), 0)[1] == (
        "RemoteLogSegmentMetadata{remoteLogSegmentId=RemoteLogSegmentId{topicIdPartition="
        "ABEiM0RVZneImaq7zN3u_w:t-3, id=AQIDBAUGBwgJCgsMDQ4PEA}, startOffset=0, endOffset=9, brokerId=1,"
        " maxTimestampMs=5, eventTimestampMs=6, segmentLeaderEpochs={0=0, 2=5}, segmentSizeInBytes=100,"
        " customMetadata=Optional.empty, state=COPY_SEGMENT_FINISHED, txnIdxEmpty=false}"
    )
    single = remote_log_metadata(None, bytes.fromhex(remote_segment(start=9)), 0)[1]
    assert single is not None
    assert "startOffset=9, endOffset=9," in single, "a segment of one record is one"
    record = remote_log_record(bytes.fromhex(remote_segment()))
    assert isinstance(record, MetadataRecord)
    assert record.name == "REMOTE_LOG_SEGMENT_METADATA_RECORD"


def test_a_value_that_cannot_be_taken_from_its_message_is_said_by_each_decoder_in_its_words() -> None:
    said = "Error at offset 5, skipping. why"
    assert unreadable_value(cluster_metadata, None, 5, "why") == (None, "Error at 5, skipping. why")
    assert unreadable_value(remote_log_metadata, None, 5, "why") == (None, said)
    assert unreadable_value(offsets, b"\0\1", 5, "why") == (said, None)
    with pytest.raises(MissingKeyError, match="at offset 5 using the specified decoder"):
        unreadable_value(offsets, None, 5, "why")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (remote_segment(state=4), "state can not be null"),
        (remote_segment(epochs="01"), "segmentLeaderEpochs can not be null or empty"),
        (
            remote_segment(start=-3),
            "Unexpected start offset = -3. StartOffset for a remote segment cannot be negative",
        ),
        (
            remote_segment(start=10),
            "Unexpected end offset = 9. EndOffset for a remote segment cannot be less than startOffset = 10",
        ),
        ("01 09 00", "org.apache.kafka.common.errors.UnsupportedVersionException: Unknown metadata id 9"),
        (f"01 02 00 {REMOTE_PARTITION} 00000001 {7:016x} 03 00", "null"),
    ],
)
def test_what_remote_storage_refuses(value: str, message: str) -> None:
    text = remote_log_metadata(None, bytes.fromhex(value), 3)[1]
    assert text == f"Error at offset 3, skipping. {message}"


# ---------------------------------------------------------------- real logs


def record_lines(data: bytes, text_of: TextOf) -> Iterator[str]:
    """Yield the lines that the dump tool prints for the records of a log, read by the plain decoder."""
    for batch in decode.scan(data):
        assert isinstance(batch, decode.Batch), batch
        for record in batch.records:
            sizes = [-1 if part is None else len(part) for part in (record.key, record.value)]
            line = f"| offset: {record.offset} {batch.timestamp_type}: {record.timestamp} keySize: {sizes[0]}"
            line += f" valueSize: {sizes[1]} sequence: {record.sequence} headerKeys: []"
            if batch.control:
                yield line + control_record(record.key, record.value).text
                continue
            key, value = text_of(record.key, record.value, record.offset)
            yield line + ("" if key is None else f" key: {key}") + ("" if value is None else f" payload: {value}")


def lines_of(stdout: bytes) -> list[str]:
    return [line for line in stdout.decode().split("\n") if line.startswith("|")]


def test_logs_of_real_brokers_print_as_kafka_prints_them() -> None:
    """Logs and snapshots written by 4.3.1 and 3.9.1, against the dump tool's own answers."""
    compared = 0
    for file, said in goldens.read(FIXTURES / "golden" / "decoded.gz"):
        topic = file.split("/")[-2].rpartition("-")[0]
        if (FIXTURES / file).stat().st_size:
            expected = lines_of(said.stdout)
            assert list(record_lines((FIXTURES / file).read_bytes(), DECODERS[topic])) == expected, file
            compared += len(expected)
    assert compared > 1500


@pytest.mark.corpora
@pytest.mark.kafka
def test_all_internal_topics_of_the_corpora(corpora: Path, dump_tool: kafka.DumpTool, tmp_path: Path) -> None:
    """Every internal topic of every version there is, also 2.8 and a cluster of 3.0; the tool works on copies."""
    compared = 0
    for pattern in ("*/data*/__*/*.log", "*/data*/__*/*.checkpoint", "public/*/data/*/__*/*.log"):
        for file in sorted(corpora.glob(pattern)):
            topic = file.parent.name.rpartition("-")[0]
            if topic not in FLAGS or not file.stat().st_size:
                continue
            copy = tmp_path / file.name
            shutil.copy(file, copy)
            expected = lines_of(dump_tool.run("--files", str(copy), FLAGS[topic]).stdout)
            assert list(record_lines(file.read_bytes(), DECODERS[topic])) == expected, file
            compared += len(expected)
    assert compared > 5000


# ---------------------------------------------------------------- made-up records, right and wrong


def sent_by_a_consumer(chance: random.Random) -> bytes:
    """Return a subscription or assignment, now and then one that is none."""
    name = chance.choice(("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"))
    schema = load("consumer_protocol", name)
    version = chance.randrange(4)
    claimed = version if chance.random() < 0.7 else chance.choice((4, 5, -1, 100))
    data = struct.pack(">h", claimed) + write(schema, made_up_struct(schema.struct, version, chance), version)
    return damaged(data, chance) if chance.random() < 0.3 else data


def of_a_coordinator(file: str, chance: random.Random) -> tuple[bytes, bytes | None]:
    types = names_by_key(file)
    record_type = chance.choice(sorted(types)) if chance.random() < 0.9 else chance.choice((9, 18, 24, -1, 99))
    key_schema, value_schema = (load(file, name) for name in sorted(types.get(record_type, types[0])))
    key = struct.pack(">h", record_type) + write(key_schema, made_up_struct(key_schema.struct, 0, chance), 0)
    if chance.random() < 0.15:
        key = damaged(key, chance)
    if chance.random() < 0.05:
        return key, None
    version = chance.randint(value_schema.lowest, value_schema.highest)
    content = made_up_struct(value_schema.struct, version, chance)
    if value_schema.name == "GroupMetadataValue":
        content["protocolType"] = chance.choice(("consumer", "consumer", "connect"))
        for member in content["members"]:
            member |= {"subscription": sent_by_a_consumer(chance), "assignment": sent_by_a_consumer(chance)}
    claimed = version if chance.random() < 0.9 else chance.choice((-1, 0, value_schema.highest, 5, 300))
    value = struct.pack(">h", claimed) + write(value_schema, content, version)
    return key, damaged(value, chance) if chance.random() < 0.5 else value


def of_metadata(file: str, chance: random.Random) -> tuple[bytes | None, bytes | None]:
    record_type = chance.choice(sorted(names_by_key(file)))
    schema: Schema = load(file, names_by_key(file)[record_type][0])
    version = chance.randint(schema.lowest, schema.highest)
    content = made_up_struct(schema.struct, version, chance)
    if file == "remote_log" and chance.random() < 0.8:  # else next to nothing passes Kafka's own checks
        for name in {"startOffset", "endOffset", "remoteLogSegmentState", "remotePartitionDeleteState"} & set(content):
            content[name] = 99 if name == "endOffset" else chance.randrange(4)
    wrong = chance.choice((0, version + 1, 32767, 32768, (1 << 32) - 3, (1 << 16) + version))
    numbers = (
        1 if chance.random() < 0.97 else chance.choice((0, 2, 65537, (1 << 32) - 65535)),
        record_type if chance.random() < 0.95 else chance.choice((6, 13, 16, 29, 40000, (1 << 32) - 1)),
        version if chance.random() < 0.85 else wrong,
    )
    value = b"".join(map(encode.unsigned_varint, numbers)) + write(schema, content, version)
    # Null values of remote log metadata are left out: a JVM that meets many no longer names them.
    if file == "metadata" and chance.random() < 0.03:
        return None, None
    return None, damaged(value, chance) if chance.random() < 0.5 else value


def made_up(topic: str, count: int, chance: random.Random) -> list[encode.Record]:
    records = []
    for offset in range(count):
        if topic in FILES:
            key, value = of_a_coordinator(FILES[topic], chance)
        else:
            key, value = of_metadata("metadata" if topic == CLUSTER_METADATA else "remote_log", chance)  # type: ignore[assignment]
        records.append(encode.Record(offset, 1000 + offset, key, value))
    return records


@pytest.mark.kafka
@pytest.mark.parametrize("topic", FLAGS)
def test_damaged_records_print_as_kafka_prints_them(topic: str, dump_tool: kafka.DumpTool, tmp_path: Path) -> None:
    """Every type and version with any content, half of them damaged: every byte of the tool's text is the same."""
    file = tmp_path / "00000000000000000000.log"
    for seed in range(3):
        records = made_up(topic, 2000, random.Random(f"{topic} {seed}"))
        header = encode.BatchHeader(base_timestamp=1000, max_timestamp=3000, last_offset_delta=1999, count=2000)
        data = encode.raw_batch(header, encode.records_payload(records, 0, 1000))
        file.write_bytes(data)
        printed = dump_tool.run("--files", str(file), FLAGS[topic])
        assert printed.died == ""
        expected = "".join(f"{line}\n" for line in record_lines(data, DECODERS[topic]))
        assert printed.stdout.split(b"\n", 3)[3].decode() == expected, seed


@pytest.mark.parametrize("topic", DECODERS)
def test_no_bytes_are_too_much(topic: str) -> None:
    """For any content of a log, the decoders answer with text."""
    chance = random.Random(4)
    prefixes = [struct.pack(">h", number) for number in range(-1, 25)]
    for offset in range(3000):
        key = chance.choice(prefixes) + chance.randbytes(chance.randrange(30))
        value = chance.choice((b"\0\0", b"\0\1", b"\1" + bytes([chance.randrange(30)]))) + chance.randbytes(40)
        texts = internal_topics.DECODERS[topic](key, value, offset)
        assert any(texts)
        assert all(text is None or isinstance(text, str) for text in texts)
