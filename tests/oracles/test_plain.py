"""The plain encoder and decoder against worked examples, real brokers' data, and Kafka's own reader."""

from __future__ import annotations

import gzip
import re
import struct
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.brokers import kafka
from tests.brokers.kafka import Dumped, DumpTool
from tests.oracles.plain import (
    compress,
    control,
    decode,
    decompress,
    dump_text,
    encode,
    json_lines,
    mutate,
    shapes,
    streams,
    vectors,
)
from tests.oracles.plain.decode import Batch, Damage, scan
from tests.oracles.plain.encode import Record
from tests.oracles.plain.streams import Stream
from tests.oracles.plain.xxh32 import xxh32

MS = 1_700_000_000_000


def batches(data: bytes) -> list[Batch]:
    """Return the batches of *data*, all of which must be intact."""
    found = []
    for batch in scan(data):
        assert isinstance(batch, Batch), batch
        assert batch.fault is None, batch
        found.append(batch)
    return found


def only(data: bytes) -> Batch:
    (batch,) = batches(data)
    return batch


def facts(batch: Batch) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(r.offset, r.timestamp, r.key, r.value) for r in batch.records]


# worked examples: read, and written again


def test_e1_two_messages_of_magic_0() -> None:
    first, second = batches(vectors.E1)
    assert (first.crc, first.timestamp_type, first.size, second.position) == (1911510896, "NoTimestampType", 33, 33)
    assert facts(first) == [(7, -1, b"k1", b"hello")]
    assert facts(second) == [(8, -1, None, b"")]
    assert encode.message(7, 0, b"k1", b"hello") + encode.message(8, 0, None, b"") == vectors.E1


def test_e2_broken_lz4_header_checksum() -> None:
    batch = only(vectors.E2)
    assert (batch.last_offset, batch.crc) == (41, 682449909)
    assert facts(batch) == [(40, -1, b"a", b"first value"), (41, -1, b"b", b"first value again")]
    assert [record.crc for record in batch.records] == [1693684349, 566529145]
    records = [Record(40, -1, b"a", b"first value"), Record(41, -1, b"b", b"first value again")]
    assert encode.wrapper(records, 0, "lz4", stream=vectors.E2[26:]) == vectors.E2
    assert compress.compress("lz4", bytes(82), magic=0)[:7] == vectors.E2[26:33]


def test_e3_relative_inner_offsets() -> None:
    expected = [(100, MS, b"k0", b"v0"), (101, MS + 5, None, b"v1"), (102, MS + 3, b"k2", None)]
    assert facts(only(vectors.E3)) == expected
    again = encode.wrapper([Record(*fact) for fact in expected], 1, "gzip", stream=vectors.E3[34:])
    assert again == vectors.E3


def test_e4_log_append_time_of_a_wrapper() -> None:
    batch = only(vectors.E4)
    assert batch.timestamp_type == "LogAppendTime"
    assert facts(batch) == [(103, MS + 900, b"k0", b"v0"), (104, MS + 900, None, b"v1")]
    records = [Record(103, MS, b"k0", b"v0"), Record(104, MS + 5, None, b"v1")]
    assert encode.wrapper(records, 1, "snappy", append_time_ms=MS + 900, stream=vectors.E4[34:]) == vectors.E4


def test_e5_headers_and_a_sequence_that_wraps() -> None:
    batch = only(vectors.E5)
    headers = ((b"trace", b"\x01\x02"), (b"empty", b""), (b"nul", None))
    assert [record.sequence for record in batch.records] == [2147483647, 0]
    assert batch.records[0].headers == headers
    records = [Record(500, MS, b"user-1", b'{"n":1}', headers), Record(501, MS + 7, b"user-2", b'{"n":2}')]
    assert encode.batch(records, leader_epoch=4, producer=(9001, 3, 2147483647)) == vectors.E5


def test_e6_lz4() -> None:
    records = [Record(1000 + i, MS + 10 * i, b"key", b"value-value-value") for i in range(3)]
    assert facts(only(vectors.E6)) == [(r.offset, r.timestamp, r.key, r.value) for r in records]
    assert encode.batch(records, codec="lz4", stream=vectors.E6[61:]) == vectors.E6
    payload = encode.records_payload(records, 1000, MS)
    assert decompress.decompress(3, vectors.E6[61:]) == payload
    assert compress.lz4_stream(payload)[:7] == vectors.E6[61:68]


def test_e7_commit_marker() -> None:
    batch = only(vectors.E7)
    assert (batch.transactional, batch.control, batch.producer_id, batch.producer_epoch) == (True, True, 98323, 99)
    assert control.control_type(batch.records[0].key) == "COMMIT"
    assert control.coordinator_epoch(batch.records[0].value) == 12
    again = encode.marker(
        1003, commit=True, timestamp=MS + 50, producer_id=98323, producer_epoch=99, coordinator_epoch=12, leader_epoch=7
    )
    assert again == vectors.E7


def test_e8_null_is_not_empty() -> None:
    records = [
        Record(1004, MS, None, b"x"),
        Record(1005, MS + 1, b"gone", None),
        Record(1006, MS + 1, None, None),
        Record(1007, MS + 2, b"", b""),
    ]
    assert facts(only(vectors.E8)) == [(r.offset, r.timestamp, r.key, r.value) for r in records]
    assert encode.batch(records, leader_epoch=7) == vectors.E8


def test_e9_delete_horizon() -> None:
    batch = only(vectors.E9)
    assert (batch.last_offset, batch.delete_horizon_ms, batch.count) == (2009, MS + 86_400_000, 2)
    assert [record.sequence for record in batch.records] == [12, 15]
    records = [Record(2002, MS, b"gone", None), Record(2005, MS + 1, b"live", b"z")]
    again = encode.batch(
        records,
        base_offset=2000,
        last_offset=2009,
        delete_horizon_ms=MS + 86_400_000,
        leader_epoch=7,
        producer=(77, 0, 10),
    )
    assert again == vectors.E9


def test_e10_empty_batch() -> None:
    batch = only(vectors.E10)
    assert (batch.base_offset, batch.last_offset, batch.records) == (2010, 2014, ())
    header = encode.BatchHeader(2010, 7, last_offset_delta=4, base_timestamp=-1, max_timestamp=MS + 2, producer_id=77)
    assert encode.raw_batch(replace(header, producer_epoch=0, base_sequence=20), b"") == vectors.E10


def test_e11_log_append_time_hides_the_deltas() -> None:
    batch = only(vectors.E11)
    assert facts(batch) == [(3000, MS + 5000, b"k", b"a" * 24), (3001, MS + 5000, b"k", b"a" * 24)]
    records = [Record(3000, MS, b"k", b"a" * 24), Record(3001, MS - 100, b"k", b"a" * 24)]
    again = encode.batch(records, codec="zstd", stream=vectors.E11[61:], append_time_ms=MS + 5000, leader_epoch=1)
    assert again[23:] == vectors.E11[23:]


def test_e12_and_e13_kraft_control_records() -> None:
    kinds = [control.control_type(record.key) for record in only(vectors.E12).records]
    assert kinds == ["LEADER_CHANGE", "KRAFT_VERSION", "KRAFT_VOTERS"]
    assert [control.control_type(record.key) for record in only(vectors.E13).records] == ["SNAPSHOT_HEADER"]
    value = bytes.fromhex("0000000000000000271000")
    assert encode.batch([Record(0, MS, b"\0\0\0\3", value)], control=True) == vectors.E13


def test_batches_that_brokers_wrote() -> None:
    assert facts(only(vectors.BROKER_V0)) == [(3, -1, None, b"123")]
    assert facts(only(vectors.BROKER_V1)) == [(0, 1503648000942, None, b"123")]
    two = only(vectors.BROKER_V2)
    assert [(r.offset, r.timestamp) for r in two.records] == [(1, 1503229959532), (2, 1503229959700)]
    assert (two.leader_epoch, two.crc) == (2, 3361520931)
    assert only(vectors.BROKER_HEADER).records[0].headers == ((b"hkey", b"hval"),)


def test_snapshots_and_index_entries() -> None:
    assert encode.snapshot([]) == vectors.SNAPSHOT_EMPTY
    one = encode.Producer(1000, 3, 41, 1041, 9, 1700000000123, 7)
    assert encode.snapshot([one]) == vectors.SNAPSHOT_ONE
    three = [
        encode.Producer(1001, 0, 4, 7, 1, 130, 7),
        encode.Producer(1002, 0, 3, 11, 1, 150, 7, 10),
        encode.Producer(1003, 0, 0, 5, 0, 115),
    ]
    assert encode.snapshot(three) == vectors.SNAPSHOT_THREE
    assert encode.aborted_entries([(98323, 1000, 1003, 1004)]) == vectors.ABORTED
    assert encode.offset_entries(100, [(108, 461)]) == struct.pack(">ii", 8, 461)
    assert encode.time_entries(100, [(MS, 108)]) == struct.pack(">qi", MS, 8)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "00"), (-1, "01"), (1, "02"), (63, "7e"), (-64, "7f"), (64, "8001"), (-65, "8101"), (8191, "fe7f"),
        (8192, "808001"), (2147483647, "feffffff0f"), (-2147483648, "ffffffff0f"),
    ],
)  # fmt: skip
def test_varints(value: int, text: str) -> None:
    assert encode.varint(value).hex() == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2147483648, "8080808010"), (-2147483649, "8180808010"), (1700000000000, "80a0abfef962"),
        (2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01"),
    ],
)  # fmt: skip
def test_varlongs(value: int, text: str) -> None:
    assert encode.varlong(value).hex() == text


def test_lz4_frames_of_all_three_kinds() -> None:
    """Seen from Kafka's own writer; the header's checksum of magic 0 is computed over too much."""
    text = b"hello hello hello hello hello"
    plain = "04224d186040820f0000006e68656c6c6f2006005068656c6c6f00000000"
    assert compress.lz4_stream(text).hex() == plain
    assert compress.lz4_stream(text, broken_header_checksum=True).hex() == plain[:12] + "1a" + plain[14:]
    checked = "04224d187040ad0f0000006e68656c6c6f2006005068656c6c6f98f6dc6d00000000"
    assert compress.lz4_stream(text, block_checksum=True).hex() == checked
    assert (xxh32(b""), xxh32(b"123456789")) == (0x02CC5D05, 0x937BAD67)
    assert decompress.decompress(3, bytes.fromhex(checked)) == text
    with pytest.raises(decompress.BadStreamError):
        decompress.decompress(3, bytes.fromhex(plain[:12] + "1a" + plain[14:]))


# every shape, and streams that are too large


@pytest.mark.parametrize("name", shapes.all_logs())
def test_every_shape_is_read_back(name: str) -> None:
    data = shapes.all_logs()[name]
    found = batches(data)
    assert sum(batch.size for batch in found) == len(data)
    assert all(batch.records or batch.count == 0 for batch in found)


@pytest.mark.parametrize("codec", compress.CODECS[1:])
def test_a_bomb_is_refused_at_its_limit(codec: str) -> None:
    """The decoder that others are judged by must not be the one that eats the memory."""
    stream = compress.compress(codec, bytes(8 << 20))
    with pytest.raises(decompress.TooLargeError):
        decompress.decompress(compress.CODECS.index(codec), stream, limit=1 << 20)


def test_damage_between_intact_batches_is_found() -> None:
    """Every byte is tried, so that nothing intact can hide."""
    one, two = (encode.batch(shapes.some_records(offset)) for offset in (0, 3))
    torn = one + one[:70] + two + bytes(40)
    found = list(scan(torn))
    assert [type(part) for part in found] == [Batch, Damage, Batch, Damage]
    assert [part.kind for part in found if isinstance(part, Damage)] == ["bad CRC", "zeroed tail"]
    assert found[2].position == len(one) + 70


def test_a_line_of_json_says_what_the_record_is() -> None:
    (line, *_) = json_lines.record_lines(only(vectors.E5), "orders", 3)
    assert line == (
        '{"offset":500,"timestamp":1700000000000,"key":"user-1","value":"{\\"n\\":1}",'
        '"headers":[["trace","\\u0001\\u0002"],["empty",""],["nul",null]],"partition":3,"topic":"orders","leader_epoch":4,'
        '"producer_id":9001,"producer_epoch":3,"sequence":2147483647,"position":0}'
    )


# what Kafka makes of the same bytes


LINES = "deep-iteration", "print-data-log"


def dumped(tool: DumpTool, path: Path, data: bytes) -> tuple[Dumped, str]:
    """Return the output of Kafka's dump tool for *data*, and its text behind the head line."""
    path.write_bytes(data)
    answer = tool.run("--files", str(path), *(f"--{flag}" for flag in LINES))
    return answer, answer.stdout.decode("utf-8", "surrogateescape").partition("Log starting offset: 0\n")[2]


@pytest.mark.kafka
def test_kafka_reads_every_shape_as_we_do(dump_tool: DumpTool, tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    for name, data in shapes.all_logs().items():
        answer, text = dumped(dump_tool, path, data)
        assert (answer.died, answer.exit_code) == ("", 0), name
        assert text.split("\n") == [*"\n".join(dump_text.lines(data)).split("\n"), ""], name


def _ours(data: bytes) -> str | None:
    try:
        return "\n".join(dump_text.lines(data)) + "\n"
    except (ValueError, decode.BadRecordError):
        return None


@pytest.mark.kafka
def test_kafka_refuses_what_we_refuse(dump_tool: DumpTool, tmp_path: Path) -> None:
    """Entries broken behind a CRC that holds: the same ones are read, with the same text, and the same ones are not."""
    chance = Random(20261121)
    path = tmp_path / "00000000000000000000.log"
    logs = (data for name, data in shapes.all_logs().items() if name != "KRaft")
    entries = [data[part.position : part.position + (part.size or 0)] for data in logs for part in scan(data)]
    read = 0
    for _ in range(2500):
        entry = mutate.mutate_inside(chance.choice(entries), chance, chance.choice((1, 1, 2)))
        answer, text = dumped(dump_tool, path, entry)
        if "OutOfMemoryError" in answer.died:  # a partial inner message that announces gigabytes
            continue
        refused = bool(answer.died or answer.exit_code)
        assert (None if refused else text) == _ours(entry), f"{entry.hex()}: {answer.died}"
        read += not refused
    assert read > 300


def _kafka_reads(jvm: subprocess.Popen[bytes], stream: Stream) -> bytes | None:
    """Return what Kafka's own reader makes of *stream*, None if it throws."""
    assert jvm.stdin is not None
    assert jvm.stdout is not None
    jvm.stdin.write(struct.pack(">iii", stream.codec, stream.magic, len(stream.data)) + stream.data)
    jvm.stdin.flush()
    good, size = struct.unpack(">?i", jvm.stdout.read(5))
    content = jvm.stdout.read(size)
    return content if good else None


def _we_read(stream: Stream) -> bytes | None:
    try:
        return decompress.decompress(stream.codec, stream.data, magic=stream.magic)
    except (decompress.BadStreamError, decompress.TooLargeError):
        return None


@pytest.mark.kafka
def test_kafka_s_streams_end_where_ours_do() -> None:
    """Framings broken in thousands of ways: the same are read, to the same bytes, and the same are not."""
    with subprocess.Popen(
        kafka.program(kafka.NEWEST, "Decompress"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as jvm:
        for stream in [*streams.whole_streams(), *streams.broken_streams(Random(31), 6000)]:
            theirs, ours = _kafka_reads(jvm, stream), _we_read(stream)
            # Java does not notice that a later frame is cut short if it has yielded no output.
            if stream.codec != 4 or theirs is None or ours is not None:
                assert ours == theirs, f"{stream.codec}, magic {stream.magic}: {stream.data[:60].hex()}"
        jvm.kill()


# corpora


def _sections(golden: Path) -> dict[str, str]:
    """Return what Kafka's tool printed of each file of an image."""
    text = gzip.decompress(golden.read_bytes()).decode("utf-8", "surrogateescape")
    parts = re.split(r"^(?=Dumping \S+/\d{20}\S*\.[a-z]+$)", text, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0].removeprefix("Dumping "): part for part in parts}


SAMPLE = ("plain-0", "gzip-0", "snappy-1", "lz4-0", "zstd-broker-0", "logappend-0", "tx-0", "idempotent-0", "trimmed-0")


@pytest.mark.corpora
@pytest.mark.parametrize("partition", SAMPLE)
def test_logs_of_a_real_broker_are_read_as_its_own_tool_did(corpora: Path, partition: str) -> None:
    sections = _sections(corpora / "modern" / "golden" / "data.deep.txt.gz")
    files = sorted((corpora / "modern" / "data" / partition).glob("*.log"))
    assert files
    for path in files:
        text = "\n".join(dump_text.lines(path.read_bytes())) + "\n"
        section = sections[f"{partition}/{path.name}"].split("\n", 2)[2]
        assert text.split("\n") == section.split("\n"), path


OLD_LINE = re.compile(
    r"^\| offset: (\d+) isValid: true crc: \w+ keySize: (-?\d+) valueSize: (-?\d+) \w+: (-?\d+) ", re.MULTILINE
)


@pytest.mark.corpora
@pytest.mark.parametrize(
    "partition",
    ["v0-none-0", "v0-lz4-0", "v0-gzip-broker-0", "v1-lz4-broker-0", "v1-snappy-0", "v1-append-time-0", "changing-0"],
)
def test_old_messages_of_a_real_broker(corpora: Path, partition: str) -> None:
    sections = _sections(corpora / "legacy" / "golden" / "data.deep.txt.gz")
    for path in sorted((corpora / "legacy" / "data" / partition).glob("*.log")):
        printed = [tuple(map(int, found)) for found in OLD_LINE.findall(sections[f"{partition}/{path.name}"])]
        read = [(r.offset, *r.lengths, r.timestamp) for batch in batches(path.read_bytes()) for r in batch.records]
        assert read == printed, path


@pytest.mark.corpora
def test_all_of_a_broker_s_logs_are_whole(corpora: Path) -> None:
    """Fewer and more records than the golden text counts would both be wrong."""
    sections = _sections(corpora / "v39" / "golden" / "data.deep.txt.gz")
    for path in sorted((corpora / "v39" / "data").glob("*/*.log")):
        name = f"{path.parent.name}/{path.name}"
        if name in sections:
            assert sum(len(batch.records) for batch in batches(path.read_bytes())) == sections[name].count(
                "\n| offset: "
            ), name
