"""Records and batches as JSON lines and as CSV, whatever their bytes are."""

from __future__ import annotations

import base64
import csv
import io
import json
import struct
from collections.abc import Callable
from random import Random

import pytest
from klog.commands.dump.log_lines import CSV_BATCH_COLUMNS, CSV_COLUMNS
from klog.kernel import MORE, VALUES, Window, is_utf8, json_text

from tests.kernel.windows import begun, loaded, plain_batches, scanned
from tests.oracles.plain import decode, json_lines, shapes
from tests.oracles.plain.decode import sequence_after
from tests.oracles.plain.encode import BatchHeader, Record, batch, marker, message, raw_batch
from tests.oracles.plain.shapes import MS, some_records

LOGS = shapes.all_logs()
JSON_ORIGIN = b',"partition":3,"topic":"orders"'
CSV_ORIGIN = b'3,"orders"'
TEXT, BASE64, HEX, REDACTED, NONE = range(len(VALUES))


def made(data: bytes, write: Callable[[Window, int], int], output: int = 1 << 18, records: int = 8192) -> bytes:
    """Return all lines that *write* makes of the records of *data*."""
    window = begun(data, output=output, records=records)
    whole, status = b"", MORE
    while status == MORE:
        status = window.decode()
        at = 0
        while (at := write(window, at)) < window.records:
            assert len(window.output()), "no room, and nothing to take"
            whole += bytes(window.output())
            window.flushed()
    return whole + bytes(window.output())


def as_json(
    data: bytes, values: int = TEXT, *, origin: bytes = b"", output: int = 1 << 18, records: int = 8192
) -> list[str]:
    """Return the JSON lines of *data*'s records."""
    whole = made(data, lambda window, at: window.json_lines(at, origin, values), output, records)
    assert whole.endswith(b"\n") or not whole
    return whole.decode().split("\n")[:-1]


def as_csv(
    data: bytes, values: int = TEXT, *, origin: bytes = CSV_ORIGIN, output: int = 1 << 18
) -> list[dict[str, str]]:
    """Return the CSV rows of *data*'s records, by column."""
    whole = made(data, lambda window, at: window.csv_lines(at, origin, values), output)
    return parsed(CSV_COLUMNS, whole)


def parsed(columns: str, whole: bytes) -> list[dict[str, str]]:
    """Return the rows of CSV, each of which must have every column and no other."""
    found = []
    csv.field_size_limit(1 << 30)
    for row in csv.DictReader(io.StringIO(f"{columns}\n{whole.decode()}", newline=""), strict=True):
        assert None not in row
        assert None not in row.values()
        found.append(row)
    return found


def one(key: bytes | None = None, value: bytes | None = None, *headers: tuple[bytes, bytes | None]) -> bytes:
    return batch([Record(5, MS, key, value, headers)], leader_epoch=-1)


def value_of(data: bytes) -> dict[str, object]:
    (line,) = as_json(one(b"k", data))
    return dict(json.loads(line))


# JSON


@pytest.mark.parametrize("name", LOGS)
def test_every_shape_is_rendered_as_an_independent_renderer_has_it(name: str) -> None:
    data = LOGS[name]
    expected = [line for b in plain_batches(data) for line in json_lines.record_lines(b, "orders", 3)]
    assert as_json(data, origin=JSON_ORIGIN) == expected
    assert as_json(data, origin=JSON_ORIGIN, output=1, records=3) == expected


def test_every_byte_at_every_place_is_escaped_or_encoded() -> None:
    """Sixteen bytes are checked at once: a special one may be anywhere among them."""
    chance = Random(4)
    for byte in range(256):
        for at in (*range(18), 31, 32, 33):
            data = bytearray(b"abcdefghijklmnop" * 3)
            data[at] = byte
            found = value_of(bytes(data))
            if byte < 0x80:
                assert found["value"] == data.decode()
            else:
                assert base64.b64decode(str(found["value_base64"])) == data
    special = b'"\\\x00\x01\x1f\x08\t\n\x0c\r\x7f /a'
    for _ in range(2000):
        data = bytearray(chance.choices(special, k=chance.randrange(70)))
        assert value_of(bytes(data))["value"] == data.decode()


def test_text_of_any_script_stays_as_it_is() -> None:
    for char in ("é", "中", "😀", "\u2028", "\ufffd", "\x7f", "\u0080", "\U0010ffff", "\ud7ff", "\ue000"):
        for length in range(34):
            text = "x" * length + char + '"'
            (line,) = as_json(one(None, text.encode()))
            assert json.loads(line)["value"] == text
            assert char in line, "not escaped"


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",
        b"\xc0\xaf",
        b"\xc2",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\xf5\x80\x80\x80",
        b"\xff",
    ],
)
def test_what_is_no_utf_8_is_never_taken_for_it(data: bytes) -> None:
    """Overlong forms, surrogates and code points beyond the last: a reader of JSON would refuse the line."""
    for padding in (b"", b"x" * 15, b"x" * 16, "é".encode() * 20):
        found = value_of(padding + data)
        assert "value" not in found
        assert base64.b64decode(str(found["value_base64"])) == padding + data


def test_null_and_empty_are_told_apart() -> None:
    (line,) = as_json(one(None, b"", (b"", None), (b"", b"")))
    assert json.loads(line) == {
        "offset": 5,
        "timestamp": MS,
        "key": None,
        "value": "",
        "headers": [["", None], ["", ""]],
        "position": 0,
    }


def test_values_are_shown_as_asked() -> None:
    """Keys and header names are not: an operator searches by them."""
    data = one(b"key", b"\x00v", (b"h", b"x"), (b"nul", None), (b"\xff", b"\xff"))
    shown = {option: json.loads(as_json(data, option)[0]) for option in range(5)}
    assert all(found["key"] == "key" for found in shown.values())
    assert shown[TEXT]["value"] == "\x00v"
    assert shown[BASE64]["value_base64"] == "AHY="
    assert shown[HEX]["value_hex"] == "0076"
    assert shown[REDACTED]["value_size"] == 2
    assert [list(shown[option])[3] for option in range(5)] == [
        "value",
        "value_base64",
        "value_hex",
        "value_size",
        "headers",
    ]
    name = {"base64": "/w=="}
    assert shown[TEXT]["headers"] == [["h", "x"], ["nul", None], [name, {"base64": "/w=="}]]
    assert shown[BASE64]["headers"] == [["h", {"base64": "eA=="}], ["nul", None], [name, {"base64": "/w=="}]]
    assert shown[HEX]["headers"] == [["h", {"hex": "78"}], ["nul", None], [name, {"hex": "ff"}]]
    redacted = [["h", {"size": 1}], ["nul", None], [name, {"size": 1}]]
    assert shown[REDACTED]["headers"] == shown[NONE]["headers"] == redacted


def test_redacted_shows_no_byte_of_any_value() -> None:
    secret = b"s3cret-of-some-length"
    for codec in ("none", "lz4"):
        data = batch([Record(0, MS, b"k", secret, ((b"h", secret),))], codec=codec)
        for option in (REDACTED, NONE):
            assert "s3cret" not in "".join(as_json(data, option))
            assert "s3cret" not in str(as_csv(data, option))


def test_a_null_value_is_null_however_values_are_shown() -> None:
    for option in (TEXT, BASE64, HEX, REDACTED):
        assert json.loads(as_json(one(b"k", None), option)[0])["value"] is None


def test_output_grows_for_a_line_that_is_larger_than_all_of_it() -> None:
    """Values that escape to six times their size, that only turn out to be no UTF-8 at their end, and so on."""
    values = [
        b"\x01" * 300_000,
        b"x" * 300_000 + b"\xff",
        b'"' * 4095,
        b"\x02" * 4096,
        b"\xff" * 4095,
        b"",
        b"y" * 200_001,
    ]
    records = [Record(i, MS, value, value, ((value, value),)) for i, value in enumerate(values)]
    for option in range(5):
        lines = as_json(batch(records), option, output=1)
        rows = as_csv(batch(records), option, output=1)
        assert len(lines) == len(rows) == len(values)
        for record, line, row in zip(records, lines, rows, strict=True):
            found = json.loads(line)
            assert record.key is not None
            key = base64.b64decode(found["key_base64"]) if "key_base64" in found else found["key"].encode()
            assert key == record.key
            name = found["headers"][0][0]
            assert (base64.b64decode(name["base64"]) if isinstance(name, dict) else name.encode()) == record.key
            assert (base64.b64decode(row["key_base64"]) or row["key"].encode()) == record.key
            assert json.loads(row["headers"]) == found["headers"]


def test_output_that_is_nearly_full_is_never_overrun() -> None:
    """Rows of many sizes into outputs of many sizes: each line is whole."""
    chance = Random(8)
    records = [
        Record(
            i,
            MS,
            chance.randbytes(chance.randrange(60)),
            b"\x01" * chance.randrange(900),
            ((b"\xff" * chance.randrange(9), b'"' * chance.randrange(50)),),
        )
        for i in range(60)
    ]
    data = batch(records)
    whole = as_json(data)
    rows = as_csv(data)
    for output in range(1, 9000, 517):
        assert as_json(data, output=output) == whole
        assert as_csv(data, output=output) == rows


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 12), {"control": "ABORT", "coordinator_epoch": 12}),
        (struct.pack(">hh", 0, 1), struct.pack(">hi", 0, -5), {"control": "COMMIT", "coordinator_epoch": -5}),
        (struct.pack(">hhb", 7, 1, 9), struct.pack(">hib", 3, 4, 9), {"control": "COMMIT", "coordinator_epoch": 4}),
        (struct.pack(">hh", 0, 2), b"\0\0", {"control": "LEADER_CHANGE"}),
        (struct.pack(">hh", 0, 3), b"", {"control": "SNAPSHOT_HEADER"}),
        (struct.pack(">hh", 0, 4), None, {"control": "SNAPSHOT_FOOTER"}),
        (struct.pack(">hh", 0, 5), b"\0\0", {"control": "KRAFT_VERSION"}),
        (struct.pack(">hh", 0, 6), b"\0\0", {"control": "KRAFT_VOTERS"}),
        (struct.pack(">hh", 0, 7), b"\0\0", {"control": "UNKNOWN(7)"}),
        (struct.pack(">hh", 0, -9), b"\0\0", {"control": "UNKNOWN(-9)"}),
        (struct.pack(">hh", 0, 1), b"\0\0\0\0\0", {"control": "COMMIT"}),
        (struct.pack(">hh", 0, 1), None, {"control": "COMMIT"}),
        (b"\0\0\0", struct.pack(">hi", 0, 12), {"control": "UNKNOWN(-1)"}),
        (None, struct.pack(">hi", 0, 12), {"control": "UNKNOWN(-1)"}),
    ],
)
def test_control_records_say_what_they_are(key: bytes | None, value: bytes | None, expected: dict[str, object]) -> None:
    """And show no key, value or headers, which are Kafka's own; a short one is not read beyond its end."""
    data = batch([Record(5, MS, key, value, ((b"h", b"v"),))], control=True, transactional=True, producer=(9, 1, -1))
    (line,) = as_json(data)
    rest = {"leader_epoch": 0, "producer_id": 9, "producer_epoch": 1, "transactional": True, "position": 0}
    assert json.loads(line) == {"offset": 5, "timestamp": MS} | expected | rest
    (row,) = as_csv(data)
    assert (row["control"], row["coordinator_epoch"]) == (
        expected["control"],
        str(expected.get("coordinator_epoch", "")),
    )
    assert (row["key"], row["value"], row["headers"], row["key_base64"], row["value_base64"]) == ("",) * 5


def test_what_the_batch_does_not_have_is_left_out() -> None:
    (line,) = as_json(
        batch([Record(5, MS, b"k", b"v")], leader_epoch=4, append_time_ms=7, producer=(9001, 3, 17)), origin=JSON_ORIGIN
    )
    assert line == (
        '{"offset":5,"timestamp":7,"timestamp_type":"LogAppendTime","key":"k","value":"v","headers":[],"partition":3,'
        '"topic":"orders","leader_epoch":4,"producer_id":9001,"producer_epoch":3,"sequence":17,"position":0}'
    )
    assert as_json(message(5, 0, b"k", b"v")) == [
        '{"offset":5,"timestamp":-1,"key":"k","value":"v","headers":[],"position":0}'
    ]
    assert as_json(message(5, 0, b"k", b"v", attributes=0x38)) == as_json(message(5, 0, b"k", b"v"))


def test_rows_left_of_the_first_cannot_be_asked_for() -> None:
    window = begun(one())
    window.decode()
    with pytest.raises(IndexError):
        window.json_lines(-1, b"", TEXT)
    with pytest.raises(IndexError):
        window.csv_lines(-1, b"", TEXT)
    assert window.json_lines(7, b"", TEXT) == 7


# CSV


@pytest.mark.parametrize("name", LOGS)
def test_csv_says_what_json_says(name: str) -> None:
    """Column for column, for every shape; null and empty differ by their quotes, which a parser does not keep."""
    data = LOGS[name]
    expected = [json.loads(line) for line in as_json(data, origin=JSON_ORIGIN)]
    rows = as_csv(data)
    assert len(rows) == len(expected)
    for row, found in zip(rows, expected, strict=True):
        for column in (
            "offset",
            "timestamp",
            "partition",
            "topic",
            "leader_epoch",
            "producer_id",
            "producer_epoch",
            "sequence",
            "control",
            "coordinator_epoch",
            "position",
        ):
            assert row[column] == str(found.get(column, "")), column
        for column in ("key", "value", "key_base64", "value_base64"):
            assert row[column] == (found.get(column) or ""), column
        assert row["transactional"] == ("true" if found.get("transactional") else "")
        assert (json.loads(row["headers"]) if row["headers"] else []) == found.get("headers", [])
        assert row["damage"] == ""


def test_csv_tells_the_type_of_a_timestamp() -> None:
    data = message(0, 0, None, b"v") + message(1, 1, None, b"v") + message(2, 1, None, b"v", attributes=8)
    data += batch(some_records(3, 1)) + batch(some_records(4, 1), append_time_ms=9)
    assert [row["timestamp_type"] for row in as_csv(data)] == [
        "",
        "CreateTime",
        "LogAppendTime",
        "CreateTime",
        "LogAppendTime",
    ]


def test_null_and_empty_differ_in_csv_by_their_quotes() -> None:
    lines = made(one(None, b"") + one(b"", None), lambda window, at: window.csv_lines(at, b",", TEXT)).split(b"\n")
    assert lines[0].startswith(b'5,%d,CreateTime,,,"",,,' % MS)
    assert lines[1].startswith(b'5,%d,CreateTime,"",,,,,' % MS)


@pytest.mark.parametrize("text", ['"', '""', "a,b", "line\nline", "\r\n", '","', "é😀", "'", "", "x" * 5000 + '"'])
def test_any_text_comes_back_from_csv(text: str) -> None:
    (row,) = as_csv(one(text.encode(), text.encode(), (text.encode(), text.encode())))
    assert row["key"] == row["value"] == text
    assert json.loads(row["headers"]) == [[text, text]]


def test_csv_shows_values_as_asked() -> None:
    data = one(b"k", b"v\xff")
    shown = [as_csv(data, option)[0] for option in range(5)]
    assert [row["value"] for row in shown] == ["", "", "76ff", "<2 bytes>", ""]
    assert [row["value_base64"] for row in shown] == ["dv8=", "dv8=", "", "", ""]
    assert {row["key"] for row in shown} == {"k"}


@pytest.mark.parametrize("letter", [b"\x01", b'"'], ids=["control", "quote"])
def test_large_headers_find_room_in_csv(letter: bytes) -> None:
    """Each byte may become six in JSON, and the JSON is moved to its quoted field within the same room."""
    for key, value in ((letter * 300_000, b""), (b"k", letter * 300_000), (letter * 150_000, letter * 150_000)):
        (row,) = as_csv(one(None, None, (key, value)))
        assert json.loads(row["headers"]) == [[key.decode(), value.decode()]]


def test_headers_of_every_kind_come_back_from_csv() -> None:
    """They are written over their own source while their quotes are doubled."""
    chance = Random(9)
    for _ in range(300):
        headers = tuple(
            (
                bytes(chance.choices(b'"\\\xff\x01a', k=chance.randrange(6))),
                chance.choice((None, b"", b'""""', chance.randbytes(5))),
            )
            for _ in range(chance.randrange(1, 40))
        )
        data = one(None, None, *headers)
        (row,), (line,) = as_csv(data), as_json(data)
        assert json.loads(row["headers"]) == json.loads(line)["headers"]


# batches


def expected_batch(plain: decode.Batch) -> dict[str, object]:
    """Return the content of *plain*'s batch row."""
    old, wrapped = plain.magic < 2, plain.magic < 2 and plain.codec
    sequenced = plain.base_sequence != -1
    return {
        "base_offset": None if wrapped else plain.base_offset,
        "last_offset": plain.last_offset,
        "records": None if wrapped else 1 if old else plain.count,
        "position": plain.position,
        "size": plain.size,
        "magic": plain.magic,
        "codec": decode.CODECS[plain.codec],
        "crc": plain.crc,
        "crc_holds": True,
        "leader_epoch": None if plain.leader_epoch == -1 else plain.leader_epoch,
        "producer_id": None if plain.producer_id == -1 else plain.producer_id,
        "producer_epoch": None if plain.producer_epoch == -1 else plain.producer_epoch,
        "base_sequence": plain.base_sequence if sequenced else None,
        "last_sequence": sequence_after(plain.base_sequence, plain.last_offset - plain.base_offset)
        if sequenced
        else None,
        "max_timestamp": plain.max_timestamp,
        "timestamp_type": plain.timestamp_type if plain.magic else None,
        "transactional": plain.transactional,
        "control": plain.control,
        "delete_horizon_ms": plain.delete_horizon_ms,
        "partition": 3,
        "topic": "orders",
    }


def batch_rows(data: bytes, as_rows_of_csv: bool, origin: bytes, output: int = 1 << 18) -> bytes:
    window = scanned(data, output=output)
    whole, at = b"", 0
    while (at := window.batch_rows(at, window.count, as_rows_of_csv, origin)) < window.count:
        assert len(window.output())
        whole += bytes(window.output())
        window.flushed()
    return whole + bytes(window.output())


@pytest.mark.parametrize("name", LOGS)
def test_batches_as_rows(name: str) -> None:
    """The fields of the contract in their order, in JSON and in CSV."""
    data = LOGS[name]
    expected = [expected_batch(plain) for plain in plain_batches(data)]
    lines = batch_rows(data, False, JSON_ORIGIN).decode().splitlines()
    assert [json.loads(line) for line in lines] == expected
    assert [list(json.loads(line)) for line in lines] == [CSV_BATCH_COLUMNS.split(",")] * len(expected)
    shown = {None: "", True: "true", False: "false"}
    for row, fields in zip(parsed(CSV_BATCH_COLUMNS, batch_rows(data, True, CSV_ORIGIN)), expected, strict=True):
        for column, value in fields.items():
            assert row[column] == (shown[value] if value is None or isinstance(value, bool) else str(value)), column


def test_messages_of_old_have_no_delete_horizon() -> None:
    """The flag is one of format 2; there, the bit means nothing."""
    for magic in (0, 1):
        data = message(0, magic, b"k", b"v", timestamp=MS, attributes=0x40)
        assert json.loads(batch_rows(data, False, b""))["delete_horizon_ms"] is None


def test_batch_rows_stop_where_output_is_full() -> None:
    data = batch(some_records(0)) * 30
    assert batch_rows(data, False, JSON_ORIGIN, 3000) == batch_rows(data, False, JSON_ORIGIN)
    assert batch_rows(data, True, CSV_ORIGIN, 3000) == batch_rows(data, True, CSV_ORIGIN)


def test_a_row_says_that_a_checksum_does_not_hold() -> None:
    data = batch(some_records(0))
    window = loaded(data[:-1] + bytes((data[-1] ^ 0xFF,)))
    window.scan(0)
    window.check(0, 1)
    window.batch_rows(0, 1, False, b"")
    assert json.loads(bytes(window.output()))["crc_holds"] is False


def test_numbers_of_any_size_are_written_whole() -> None:
    low = BatchHeader(
        base_offset=-(2**63), leader_epoch=-(2**31), base_timestamp=-(2**63), max_timestamp=-(2**63),
        producer_id=-(2**63), producer_epoch=-(2**15), base_sequence=-(2**31), count=-(2**31), delete_horizon=True,
    )  # fmt: skip
    found = json.loads(batch_rows(raw_batch(low, b""), False, b""))
    assert (found["base_offset"], found["producer_id"], found["delete_horizon_ms"]) == (-(2**63),) * 3
    assert (found["leader_epoch"], found["base_sequence"], found["records"]) == (-(2**31),) * 3
    end = marker(
        2**63 - 1,
        commit=True,
        timestamp=2**63 - 1,
        producer_id=2**63 - 1,
        producer_epoch=2**15 - 1,
        coordinator_epoch=-(2**31),
        leader_epoch=2**31 - 1,
    )
    assert json.loads(as_json(end)[0]) == {
        "offset": 2**63 - 1, "timestamp": 2**63 - 1, "control": "COMMIT", "coordinator_epoch": -(2**31),
        "leader_epoch": 2**31 - 1, "producer_id": 2**63 - 1, "producer_epoch": 2**15 - 1, "transactional": True,
        "position": 0,
    }  # fmt: skip


# pieces


def test_rows_are_written_up_to_where_it_is_wanted() -> None:
    """A record's fault is shown behind it, and lines stop there."""
    window = begun(batch(some_records(0, 9)))
    window.decode()
    for write in (window.json_lines, window.csv_lines):
        assert write(2, b"", TEXT, 5) == 5
        assert write(5, b"", TEXT, 100) == 9
        assert bytes(window.output()).count(b"\n") == 7
        window.flushed()
        assert write(0, b"", TEXT, 0) == 0
        assert len(window.output()) == 0


@pytest.mark.parametrize("as_rows_of_csv", [False, True])
@pytest.mark.parametrize("values", [TEXT, BASE64, HEX])
def test_a_huge_line_is_given_in_parts(values: int, as_rows_of_csv: bool) -> None:
    """The text before its value, the unchanged value, the text behind it: nothing of six times its size is made."""
    huge = b"\x01" * (3 << 20)
    window = begun(batch([Record(0, MS, b"k", b"v"), Record(1, MS, b"k", huge, ((b"h", b"v"),))]), output=1)
    window.decode()
    write = window.csv_lines if as_rows_of_csv else window.json_lines
    origin = CSV_ORIGIN if as_rows_of_csv else JSON_ORIGIN
    assert write(0, origin, values) == 1
    with pytest.raises(ValueError, match="waiting"):
        window.split_line(1, as_rows_of_csv, origin, values)
    window.flushed()
    is_huge = [window.is_huge(i, origin, values) for i in (-1, 0, 1, 2)]
    assert is_huge == [False, False, True, False]
    ((before, name, value),), after = window.split_line(1, as_rows_of_csv, origin, values)
    assert (name, not isinstance(value, int) and bytes(value)) == ("value", huge)
    null = b',"value":null' if not as_rows_of_csv else b",,"
    small = begun(batch([Record(0, MS, b"k", b"v"), Record(1, MS, b"k", None, ((b"h", b"v"),))]))
    small.decode()
    (small.csv_lines if as_rows_of_csv else small.json_lines)(1, origin, values)
    assert before + null + after == bytes(small.output())


def test_redacted_values_make_no_huge_line() -> None:
    window = begun(batch([Record(0, MS, b"k", b"\x01" * (3 << 20))]))
    window.decode()
    for values in (REDACTED, NONE):
        assert not window.is_huge(0, b"", values)
        assert window.json_lines(0, b"", values) == 1
        window.flushed()


def escaped_plainly(text: bytes) -> bytes:
    """The shortest escapes, one byte after the other."""
    letters = {0x22: b'\\"', 0x5C: b"\\\\", 8: b"\\b", 9: b"\\t", 10: b"\\n", 12: b"\\f", 13: b"\\r"}
    return b"".join(letters.get(c) or (bytes([c]) if c >= 32 else b"\\u%04x" % c) for c in text)


@pytest.mark.parametrize("portable", [False, True])
def test_every_pattern_of_escapes_in_a_word(portable: bool) -> None:
    """Eight bytes are escaped by one table: each of its rows, at the start, in the middle and at the end of a text."""
    for pattern in range(256):
        word = bytes(b'"\\'[i & 1] if pattern >> i & 1 else 97 + i for i in range(8))
        for before in range(17):
            text = b"=" * before + word
            assert json_text(text, portable) == escaped_plainly(text)
            assert json_text(word + text, portable) == escaped_plainly(word + text)


@pytest.mark.parametrize("portable", [False, True])
def test_every_byte_at_every_place(portable: bool) -> None:
    """None is mistaken for its neighbour, in a whole word or in the rest."""
    for length in range(1, 36):
        for at in range(length):
            for special in (*range(32), 34, 92, 33, 35, 91, 93, 127, 0x80):
                text = b"~" * at + bytes([special]) + b"\x20" * (length - at - 1)
                assert json_text(text, portable) == (escaped_plainly(text) if special < 128 else None), text


def test_every_length_of_a_number() -> None:
    """Digits are counted first, by a table of powers of ten."""
    powers = [10**digits for digits in range(1, 19)]
    offsets = sorted(
        {0, 1, 2**63 - 1, *powers, *(power - 1 for power in powers), *(9 * power for power in powers[:-1])}
    )
    for offset in offsets:
        window = begun(batch([Record(offset, MS, b"k", b"v")]))
        window.decode()
        window.json_lines(0, b"", TEXT)
        assert json.loads(bytes(window.output()))["offset"] == offset


def test_text_between_the_quotes_of_json() -> None:
    chance = Random(3)
    for _ in range(300):
        text = "".join(chance.choices('a"\\\n\x01é中😀', k=chance.randrange(60)))
        escaped = json_text(text.encode())
        assert escaped == json_text(text.encode(), portable=True)
        assert escaped is not None
        assert json.loads(b'"' + escaped + b'"') == text
    for data in (b"\xff", b"a" * 20 + b"\xc3", b"\xed\xa0\x80"):
        assert json_text(data) is None
        assert not is_utf8(data)
    for data in (b"", b"a", "é中😀".encode() * 20):
        assert is_utf8(memoryview(data))
