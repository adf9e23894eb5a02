"""Records, batches and damage as JSON lines and CSV: each in its place, each readable by anybody's parser."""

from __future__ import annotations

import base64
import csv
import io
import json
import os
import struct
from pathlib import Path

import pytest
from klog.commands.dump.dump_files import dump_lines
from klog.commands.dump.dump_request import CSV, JSON_LINES, DumpRequest, DumpTarget
from klog.commands.dump.log_lines import CSV_BATCH_COLUMNS, CSV_COLUMNS, damage_csv
from klog.formats.damage import Damage, DamageKind, Location
from klog.kernel import VALUES
from klog.log.json_lines import LineStyle, RecordOrigin, damage_json

from tests.commands.dump.sinks import Kept, Object, dump
from tests.oracles.plain import decode, json_lines, shapes
from tests.oracles.plain.compress import gzip_stream
from tests.oracles.plain.encode import BatchHeader, Record, batch, message, raw_batch, record
from tests.oracles.plain.shapes import MS, some_records, varied_records

LINES = DumpRequest(output=JSON_LINES)
ROWS = DumpRequest(output=CSV, line_style=LineStyle(csv=True))
LOGS = shapes.all_logs()
A, B, C, D = (batch(some_records(3 * i)) for i in range(4))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "orders-3"
    folder.mkdir()
    return folder / f"{0:020}.log"


def table(kept: Kept, columns: str = CSV_COLUMNS) -> list[dict[str, str]]:
    """Return the CSV rows; each must have every column and no other."""
    csv.field_size_limit(1 << 30)
    found = []
    for row in csv.DictReader(io.StringIO(f"{columns}\n{kept.data.decode()}", newline=""), strict=True):
        assert None not in row
        assert None not in row.values()
        found.append(row)
    return found


def flipped(data: bytes, at: int = -1) -> bytes:
    at %= len(data)
    return data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]


# records


@pytest.mark.parametrize("name", LOGS)
def test_a_log_in_a_partition_s_directory_says_whose_it_is(path: Path, name: str) -> None:
    """Each line has topic and partition, in the order of the contract."""
    path.write_bytes(LOGS[name])
    code, kept = dump([path], LINES)
    expected = [
        line
        for b in decode.scan(LOGS[name])
        if isinstance(b, decode.Batch)
        for line in json_lines.record_lines(b, "orders", 3)
    ]
    assert (code, kept.reports) == (0, [])
    assert kept.data.decode().splitlines() == expected
    code, kept = dump([path], ROWS)
    assert (code, len(table(kept))) == (0, len(expected))
    assert {(row["topic"], row["partition"]) for row in table(kept)} <= {("orders", "3")}


@pytest.mark.parametrize("folder", ["data", "orders", "-3", "orders-x"])
def test_a_directory_that_does_not_tell_leaves_topic_and_partition_out(tmp_path: Path, folder: str) -> None:
    path = tmp_path / folder / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(A)
    _, kept = dump([path], LINES)
    assert all("topic" not in found and "partition" not in found for found in kept.objects)
    _, kept = dump([path], ROWS)
    assert all((row["topic"], row["partition"]) == ("", "") for row in table(kept))


@pytest.mark.parametrize(
    ("name", "topic", "partition"),
    [("orders-3", "orders", 3), ("orders-3.0f8fad5bd9cb469fa16570867728950e-delete", "orders", 3), ("a-b-7", "a-b", 7)],
)
def test_a_directory_on_its_way_out_tells_as_well(tmp_path: Path, name: str, topic: str, partition: int) -> None:
    path = tmp_path / name / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(A)
    _, kept = dump([path], LINES)
    assert {(found["topic"], found["partition"]) for found in kept.objects} == {(topic, partition)}


@pytest.mark.parametrize("topic", ['quo"te', "back\\slash", "új", "new\nline", "tab\t", "\udcff"])
def test_a_topic_of_any_name_keeps_the_lines_readable(tmp_path: Path, topic: str) -> None:
    """Kafka would not create it; a directory may be called so."""
    path = tmp_path / f"{topic}-0" / f"{0:020}.log"
    path.parent.mkdir()
    path.write_bytes(A)
    _, kept = dump([os.fspath(path)], LINES)
    assert [found["topic"] for found in kept.objects] == [topic] * 3
    _, kept = dump([os.fspath(path)], ROWS)
    assert [row["topic"] for row in table(kept)] == [topic.encode("utf-8", "replace").decode()] * 3


ODD = [
    *varied_records(0),
    Record(8, -1, b'"', b"\\"),
    Record(9, 2**62, b"\x00", b"\x1f\x7f\xc2\x80"),
    Record(10, -(2**62), b"\xed\xa0\x80", b"\xff" * 300),
    Record(11, 0, "日本語".encode(), b"a,b\r\nc", ((b"\xff", b"\xff"), (b"dup", None), (b"dup", b""), (b'"', b","))),
    Record(12, 0, b"'", b"=cmd()", ((b"", None),)),
]


@pytest.mark.parametrize("values", range(len(VALUES)), ids=VALUES)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_every_odd_record_comes_back_from_json_and_from_csv(path: Path, codec: str, values: int) -> None:
    """Any content of keys, values and headers is equal in both forms, in every way of showing values."""
    path.write_bytes(batch(ODD, codec=codec))
    _, as_json = dump([path], LINES._replace(line_style=LineStyle(values=values)))
    _, as_csv = dump([path], ROWS._replace(line_style=LineStyle(csv=True, values=values)))
    assert len(as_json.objects) == len(table(as_csv)) == len(ODD)
    for wanted, found, row in zip(ODD, as_json.objects, table(as_csv), strict=True):
        assert (found["offset"], found["timestamp"]) == (wanted.offset, wanted.timestamp)
        assert (row["offset"], row["timestamp"]) == (str(wanted.offset), str(wanted.timestamp))
        assert bytes_of(found, "key") == wanted.key
        assert (base64.b64decode(row["key_base64"]) or row["key"].encode()) == (wanted.key or b"")
        check_value(VALUES[values], wanted.value, found, row)
        assert json.loads(row["headers"] or "[]") == found["headers"]
        names = [json_text(pair[0]) for pair in found["headers"]]  # type: ignore[attr-defined]
        assert names == [name for name, _ in wanted.headers]


def json_text(shown: object) -> bytes:
    """Return the bytes of a header's name or value in JSON."""
    if isinstance(shown, dict):
        return base64.b64decode(shown["base64"])
    assert isinstance(shown, str)
    return shown.encode()


def bytes_of(found: Object, name: str) -> bytes | None:
    """Return the bytes of a member of a JSON line."""
    if name + "_base64" in found:
        assert name not in found
        return base64.b64decode(str(found[name + "_base64"]))
    value = found[name]
    assert value is None or isinstance(value, str)
    return None if value is None else value.encode()


def check_value(values: str, wanted: bytes | None, found: Object, row: dict[str, str]) -> None:
    members = {name for name in found if name.startswith("value")}
    if values == "none":
        assert members == set()
        assert (row["value"], row["value_base64"]) == ("", "")
    elif wanted is None:
        assert (members, found["value"], row["value"], row["value_base64"]) == ({"value"}, None, "", "")
    elif values == "text":
        assert bytes_of(found, "value") == wanted
        assert (base64.b64decode(row["value_base64"]) or row["value"].encode()) == wanted
    elif values == "base64":
        assert members == {"value_base64"}
        assert base64.b64decode(str(found["value_base64"])) == base64.b64decode(row["value_base64"]) == wanted
    elif values == "hex":
        assert members == {"value_hex"}
        assert found["value_hex"] == row["value"] == wanted.hex()
    else:
        assert (members, found["value_size"], row["value"]) == ({"value_size"}, len(wanted), f"<{len(wanted)} bytes>")


HUGE = {
    "text": b"x" + "ß日😀".encode() * 2_000_000,  # so that the seams of the pieces fall into characters
    "controls": b"\x01" * 3_000_000,
    "quotes": b'"' * 9_000_000,
    "wide": b"x" + "😀".encode() * 4_300_000,
    "not utf-8 at the end": b"x" * 17_000_000 + b"\xff",
    "binary": b"\xff\xfe\xfd" * 4_300_000,
}


@pytest.mark.parametrize("name", HUGE)
def test_a_huge_value_is_shown_as_any_other(path: Path, name: str) -> None:
    """Escaped it would be six times as large: it is written in pieces, and the line is none the worse."""
    records = [
        Record(0, MS, b"before", b"v"),
        Record(1, MS, b"huge", HUGE[name], ((b"h", b"v"),)),
        Record(2, MS, b"after", b"v"),
    ]
    path.write_bytes(batch(records, codec="zstd"))
    for values in (0, 2):
        _, kept = dump([path], LINES._replace(line_style=LineStyle(values=values)))
        assert [found["key"] for found in kept.objects] == ["before", "huge", "after"]
        found = kept.objects[1]
        assert (found["headers"][0][0], found["position"]) == ("h", 0)  # type: ignore[index]
        shown = bytes.fromhex(str(found["value_hex"])) if values else bytes_of(found, "value")
        assert shown == HUGE[name]
        assert max(len(event) for event in kept.events) < 17 << 20
    _, kept = dump([path], ROWS)
    row = table(kept)[1]
    assert (base64.b64decode(row["value_base64"]) or row["value"].encode()) == HUGE[name]
    assert (row["position"], json.loads(row["headers"])) == ("0", [["h", "v"]])
    _, kept = dump([path], LINES._replace(line_style=LineStyle(values=VALUES.index("redacted"))))
    assert kept.objects[1]["value_size"] == len(HUGE[name])


# damage


@pytest.mark.parametrize("style", [LINES, ROWS], ids=["json", "csv"])
def test_damage_stands_in_its_place_among_the_lines(path: Path, style: DumpRequest) -> None:
    """It is also on stderr, once each, in the same order; the exit code reports it."""
    bad_stream = batch(some_records(20), codec="lz4", stream=b"no lz4")
    bad_record = raw_batch(
        BatchHeader(base_offset=30, base_timestamp=MS, last_offset_delta=2, count=3), record() + record(length=99)
    )
    path.write_bytes(
        A + flipped(B) + C + bad_stream + bad_record + b"garbage in between" + batch(some_records(40)) + D[:50]
    )
    code, kept = dump([path], style)
    kinds = ["bad CRC", "bad compression", "bad record", "bad length", "torn tail"]
    if style is LINES:
        shown = [found.get("damage", found["offset"]) for found in kept.objects]
        offsets: list[object] = [0, 1, 2, kinds[0], 6, 7, 8, kinds[1], 30, kinds[2], kinds[3], 40, 41, 42, kinds[4]]
        assert [one for one in shown if one != kinds[3]] == [one for one in offsets if one != kinds[3]]
    else:
        shown_csv = [row["damage"].split(":")[0] or int(row["offset"]) for row in table(kept)]
        assert [one for one in shown_csv if isinstance(one, int)] == [0, 1, 2, 6, 7, 8, 30, 40, 41, 42]
        assert len([one for one in shown_csv if isinstance(one, str)]) == 5
    assert code == 4
    assert len(kept.reports) == 5
    assert all(report.startswith(f"{path} @ ") for report in kept.reports)


def test_a_damage_object_has_the_fields_of_the_contract(path: Path) -> None:
    path.write_bytes(A + flipped(B) + C)
    plain = decode.entry_damage(A + flipped(B), len(A))
    assert plain is not None
    _, kept = dump([path], LINES)
    (damage,) = (found for found in kept.objects if "damage" in found)
    assert list(damage)[:5] == ["damage", "position", "offset", "stored", "computed"]
    expected = {
        "damage": "bad CRC", "position": len(A), "offset": 3, "stored": plain.stored, "computed": plain.computed,
        "file": str(path), "size": len(B),
    }  # fmt: skip
    assert {name: damage[name] for name in expected} == expected
    assert str(plain.stored) not in str(damage["detail"]), "in hexadecimal, as in Kafka's own words"


def in_csv(damage: Damage) -> str:
    return damage_csv(damage, LineStyle(True)).decode()


def test_what_is_not_known_of_a_damage_is_left_out() -> None:
    damage = Damage(DamageKind.ZEROED_TAIL, Location("f.log", 7), "zeros")
    assert json.loads(damage_json(damage)) == {
        "damage": "zeroed tail",
        "position": 7,
        "detail": "zeros",
        "file": "f.log",
    }
    row = next(csv.DictReader(io.StringIO(f"{CSV_COLUMNS}\n{in_csv(damage)}", newline="")))
    assert (row["offset"], row["position"], row["damage"]) == ("", "7", "zeroed tail: zeros")


def test_damage_in_a_file_of_any_name_is_one_readable_line() -> None:
    damage = Damage(DamageKind.BAD_CRC, Location('a"b\n\udcff.log', 1, 2), 'said "so", twice', 3, 4, 5)
    assert damage_json(damage).count(b"\n") == 1
    assert json.loads(damage_json(damage))["file"] == 'a"b\n\udcff.log'
    row = next(csv.DictReader(io.StringIO(f"{CSV_COLUMNS}\n{in_csv(damage)}", newline="")))
    assert row["damage"] == 'bad CRC: said "so", twice'


def test_a_message_inside_whose_checksum_does_not_hold_is_shown_and_said(path: Path) -> None:
    """The wrapper around it is intact: the record is there, and an operator should see it."""
    inner = message(0, 1, b"a", b"1") + message(1, 1, b"b", b"2", crc=5) + message(2, 1, b"c", b"3")
    path.write_bytes(message(2, 1, None, gzip_stream(inner), attributes=1) + C)
    code, kept = dump([path], LINES)
    assert code == 4
    shown = [found.get("damage", found["offset"]) for found in kept.objects]
    assert [one for one in shown if one != "bad CRC"] == [0, 1, 2, 6, 7, 8]
    assert shown.index(1) < shown.index("bad CRC") < shown.index(6), "in its place"
    (damage,) = (found for found in kept.objects if "damage" in found)
    assert (damage["offset"], damage["position"]) == (1, 0)
    code, kept = dump([path], ROWS)
    assert (code, sum(bool(row["damage"]) for row in table(kept))) == (4, 1)


def test_an_unfinished_end_of_a_log_that_a_broker_is_writing_is_no_damage(path: Path) -> None:
    """And anything else is, broker or not."""
    for tail, live_code in ((B[:50], 0), (bytes(500), 0), (flipped(B), 4), (b"\xff" * 100 + C, 4)):
        path.write_bytes(A + tail)
        for live, code in ((True, live_code), (False, 4)):
            sink = Kept()
            assert dump_lines([DumpTarget(str(path), live=live)], LINES, sink) == code
            assert bool(sink.reports) == bool(code)


def test_a_file_that_cannot_be_read_does_not_end_the_dump(path: Path) -> None:
    """Exit codes add up: one missing (16), one no file at all (8), one whole."""
    path.write_bytes(A)
    sink = Kept()
    missing = str(path.with_name("00000000000000000009.log"))
    targets = [DumpTarget(missing), DumpTarget(str(path.parent)), DumpTarget(str(path))]
    assert dump_lines(targets, LINES._replace(kind="log"), sink) == 24
    assert sink.offsets == [0, 1, 2]
    assert len(sink.reports) == 2


# batches


def test_batches_as_rows_show_those_that_are_damaged(path: Path) -> None:
    """With `crc_holds` false; bytes that are no batch are an object of their own."""
    path.write_bytes(A + flipped(B) + C + b"garbage!" * 5 + D)
    style = LineStyle(batches=True)
    code, kept = dump([path], LINES._replace(line_style=style))
    assert code == 4
    shown = [(found.get("base_offset"), found.get("crc_holds"), found.get("damage")) for found in kept.objects]
    assert [one[:2] for one in shown if one[2] is None] == [(0, True), (3, False), (6, True), (9, True)]
    assert len([one for one in shown if one[2]]) == 1
    assert len(kept.reports) == 2
    code, kept = dump([path], ROWS._replace(line_style=LineStyle(csv=True, batches=True)))
    rows = table(kept, CSV_BATCH_COLUMNS)
    assert [(row["base_offset"], row["crc_holds"]) for row in rows] == [
        ("0", "true"),
        ("3", "false"),
        ("6", "true"),
        ("9", "true"),
    ]
    assert len(kept.reports) == 2


def test_batches_that_a_damaged_length_has_swallowed_are_rows_too(path: Path) -> None:
    lying = B[:8] + struct.pack(">i", len(B + C) - 12) + B[12:]
    path.write_bytes(A + lying + C + D)
    _, kept = dump([path], LINES._replace(line_style=LineStyle(batches=True)))
    assert [found["base_offset"] for found in kept.objects if found.get("crc_holds")] == [0, 6, 9]
    _, kept = dump([path], LINES)
    assert kept.offsets == [0, 1, 2, *range(6, 12)]


def test_batches_need_not_be_decompressible(path: Path) -> None:
    path.write_bytes(A + batch(some_records(3), codec="lz4", stream=b"no lz4"))
    code, kept = dump([path], LINES._replace(line_style=LineStyle(batches=True)))
    assert (code, [found["codec"] for found in kept.objects]) == (0, ["none", "lz4"])


@pytest.mark.parametrize("jobs", [1, 4])
def test_many_workers_write_what_one_writes(tmp_path: Path, jobs: int) -> None:
    """Damage included."""
    path = tmp_path / "t-0" / f"{0:020}.log"
    path.parent.mkdir()
    parts = [batch([Record(i, MS, None, bytes([i % 256]) * 9000)]) for i in range(2200)]
    for i in range(0, 2200, 100):
        parts[i] = flipped(parts[i])
    path.write_bytes(b"".join(parts))
    code, kept = dump([path], LINES._replace(jobs=jobs))
    assert code == 4
    offsets = [found["offset"] for found in kept.objects]
    assert offsets == list(range(2200))
    assert [found["offset"] for found in kept.objects if "damage" in found] == list(range(0, 2200, 100))


def test_only_so_many_bytes_of_each_log_are_looked_at(path: Path) -> None:
    """The part behind them is not damage, and neither is the batch that they cut."""
    path.write_bytes(A + B + C)
    for size, offsets in ((len(A), [0, 1, 2]), (len(A + B), [0, 1, 2, 3, 4, 5]), (len(A) + 100, [0, 1, 2])):
        code, kept = dump([path], LINES._replace(max_bytes=size))
        assert (code, kept.offsets, kept.reports) == (0, offsets, []), size


def test_the_members_that_every_line_carries() -> None:
    assert RecordOrigin("f").json() == b""
    assert RecordOrigin("f").csv() == b","
    assert RecordOrigin("f", "orders", 3).json() == b',"partition":3,"topic":"orders"'
    assert RecordOrigin("f", "orders", 3).csv() == b'3,"orders"'
