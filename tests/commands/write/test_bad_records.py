"""Records that cannot be written: exit code 8 with file and line, and no output; or left out, and reported."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from klog.kernel import RecordLines

from tests.commands.write.sources import lines
from tests.conftest import Ran, run_klog

Klog = Callable[..., Ran]
GOOD: dict[str, Any] = {"topic": "t", "partition": 0, "key": "k", "value": "v", "timestamp": 5, "offset": 3}
TX = {"producer_id": 7, "producer_epoch": 1, "sequence": 0, "transactional": True}


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in GOOD.items() if name not in names}


BAD: dict[str, tuple[str | dict[str, Any], list[str], str]] = {
    "no JSON": ("{", [], "column 2: not in the form of 'klog dump'"),
    "an array": ("[]", [], "column 1: not in the form of 'klog dump'"),
    "two objects": (json.dumps(GOOD) * 2, [], "not in the form of 'klog dump'"),
    "a string without end": ('{"topic":"t","value":"v', [], "not in the form of 'klog dump'"),
    "half a surrogate": ('{"topic":"t","key":"\\ud800","value":"v"}', [], "column 21: key: not UTF-8"),
    "no UTF-8": ('{"topic":"t","key":"\udcff","value":"v"}', [], "not UTF-8"),
    "a number for text": (GOOD | {"value": 5}, [], "a value of another type"),
    "text for a number": (GOOD | {"offset": "5"}, [], "a value of another type"),
    "a broken number": (GOOD | {"offset": 5.5}, [], "a value of another type"),
    "a huge number": (GOOD | {"offset": 1 << 70}, [], "a value of another type"),
    "a number of twenty digits": (GOOD | {"timestamp": (1 << 64) + 5}, [], "a value of another type"),
    "a partition beyond int32": (GOOD | {"partition": 1 << 31}, [], "a value of another type"),
    "a header that is no pair": (GOOD | {"headers": ["k"]}, [], "a value of another type"),
    "a header without a key": (GOOD | {"headers": [[None, "v"]]}, [], "a value of another type"),
    "bad base64": (without("value") | {"value_base64": "a"}, [], "not base64"),
    "bad base64 in a header": (GOOD | {"headers": [["k", {"base64": "$$$$"}]]}, [], "not base64"),
    "damage": ({"damage": "bad CRC", "position": 8192}, [], "a line about damage"),
    "no topic": (without("topic"), [], "no topic"),
    "an illegal topic": (GOOD | {"topic": "../x"}, [], "no topic can have the name ../x"),
    "a topic of 300 letters": (GOOD | {"topic": "x" * 300}, [], "no topic"),
    "no such partition": (
        GOOD | {"partition": 3},
        ["--partitions", "1"],
        "no such partition 3: t has 1 partition (--partitions N for a new log dir)",
    ),
    "a partition beyond those that a new topic may get": (
        GOOD | {"partition": 100_000},
        [],
        "no such partition 100000: t has 1 partition (--partitions N for a new log dir)",
    ),
    "no key": (without("key"), [], "no key"),
    "no value": (without("value"), [], "no value"),
    "a timestamp below -1": (GOOD | {"timestamp": -2}, [], "a timestamp below -1"),
    "too large": (
        GOOD | {"value": "x" * 2000},
        ["--set", "max.message.bytes=1000"],
        "larger than max.message.bytes",
    ),
    "larger than a segment": (GOOD | {"value": "x" * 2000}, ["--set", "segment.bytes=1000"], "or than a segment"),
    "too large when compressed": (
        without("value") | {"value_base64": base64.b64encode(Random(1).randbytes(2000)).decode()},
        ["--set", "max.message.bytes=1000", "--codec", "gzip"],
        "larger than max.message.bytes",
    ),
    "a null key": (GOOD | {"key": None}, ["--set", "cleanup.policy=compact"], "a null key"),
    "an offset that goes back": (GOOD | {"offset": 1}, ["--keep-offsets"], "an offset that is not above"),
    "no offset": (without("offset"), ["--keep-offsets"], "no offset"),
    "no position": (GOOD, ["--batches", "keep"], "no position"),
    "a leader epoch that falls": (GOOD | {"leader_epoch": 1}, [], "a leader epoch below"),
    "a marker without a transaction": (GOOD | TX | {"control": "COMMIT", "offset": 1}, [], "no open transaction"),
    "a marker without a producer": (GOOD | {"control": "ABORT"}, [], "without a producer id"),
    "an unknown marker": (GOOD | TX | {"control": "LEADER_CHANGE"}, [], "a value of another type"),
    "a transaction without a producer": (GOOD | {"transactional": True}, [], "without a producer id"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_record_is_told_by_its_line_and_nothing_is_written(name: str, klog: Klog, tmp_path: Path) -> None:
    """The others are fine; with --skip-bad they are there."""
    bad, options, why = BAD[name]
    epoch = {"leader_epoch": 2} if "epoch" in name else {}
    # After a gap, a cleaner may have left only a marker.
    first = json.dumps(GOOD | {"offset": 0 if "marker" in name else 2, "position": 0} | epoch)
    text = bad if isinstance(bad, str) else json.dumps(bad)
    last = json.dumps(GOOD | {"offset": 9, "position": 1} | epoch)
    file = tmp_path / "in.jsonl"
    file.write_bytes("\n".join((first, text, last)).encode("utf-8", "surrogateescape"))
    if "--keep-offsets" in options or "epoch" in name:
        options = [*options, "--leader-epoch", "keep"]
    done = klog("write", file, "--to", tmp_path / "out", *options)
    said = done.stderr.decode()
    assert (done.exit_code, said.count("\n")) == (8, 1), said
    assert said.startswith(f"klog: {file}, line 2"), said
    assert why in said
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]
    done = klog("write", file, "--to", tmp_path / "out", *options, "--skip-bad")
    assert done.exit_code == 4, done.stderr
    assert [one["value"] for one in lines(klog, [tmp_path / "out/t-0"])] == ["v", "v"]
    assert klog("verify", "--deep", tmp_path / "out").exit_code in (0, 4 * ("--keep-offsets" in options))


def test_a_marker_of_a_lower_epoch_is_refused(klog: Klog, tmp_path: Path) -> None:
    """A coordinator never writes one; the transaction stays open."""
    file = tmp_path / "in.jsonl"
    marker = GOOD | TX | {"control": "COMMIT", "producer_epoch": 0}
    file.write_text(f"{json.dumps(GOOD | TX)}\n{json.dumps(marker)}\n")
    done = klog("write", file, "--to", tmp_path / "out")
    assert done.exit_code == 8
    assert b"line 2: a marker of producer epoch 0, but the transaction is of epoch 1" in done.stderr


@pytest.mark.parametrize("columns", ["key", "", "a,b,c"])
def test_csv_without_the_names_of_columns_is_refused(columns: str, klog: Klog, tmp_path: Path) -> None:
    file = tmp_path / "in.csv"
    file.write_text(f"{columns}\nx\n")
    done = klog("write", file, "--to", tmp_path / "out", "--topic", "t")
    assert done.exit_code == 8
    assert b"line 1: expected the names of columns" in done.stderr


def test_a_file_that_is_no_parquet_is_refused(klog: Klog, tmp_path: Path) -> None:
    file = tmp_path / "in.parquet"
    file.write_bytes(b"PAR1 and no more")
    done = klog("write", file, "--to", tmp_path / "out", "--topic", "t")
    assert (done.exit_code, done.stderr.count(b"\n")) == (8, 1), done
    assert not (tmp_path / "out").exists()


# any text

TEXTS = st.text(st.characters(codec="utf-8"), max_size=30)
BYTES = st.binary(max_size=40)
HEADERS = st.lists(st.tuples(TEXTS, st.none() | TEXTS | BYTES), max_size=4)


def as_json(value: str | bytes | None) -> object:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


@settings(max_examples=150, deadline=None)
@given(
    records=st.lists(
        st.tuples(st.none() | TEXTS | BYTES, st.none() | TEXTS | BYTES, HEADERS, st.integers(-1, 2**62), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    codec=st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    size=st.sampled_from([61, 200, 16384]),
    spaced=st.booleans(),
)
def test_any_record_comes_back(
    records: list[tuple[Any, ...]], codec: str, size: int, spaced: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Empty, null, no UTF-8, with times that jump and offsets that skip; escaped and spaced in any way."""
    folder = tmp_path_factory.mktemp("any")
    wanted, text, offset = [], "", 0
    for key, value, headers, timestamp, skips in records:
        offset += 1 + 5 * skips
        one: dict[str, Any] = {
            "topic": "t",
            "offset": offset,
            "timestamp": timestamp,
            "nobody": [{"knows": ["it"]}, 1.5e3],
        }
        for name, part in (("key", key), ("value", value)):
            if isinstance(part, bytes):
                one[f"{name}_base64"] = base64.b64encode(part).decode()
            else:
                one[name] = part
        one["headers"] = [[name, as_json(part)] for name, part in headers]
        text += json.dumps(one, ensure_ascii=spaced, separators=(" , ", "\t: ") if spaced else None) + "\n"
        pairs = [(name, part.encode() if isinstance(part, str) else part) for name, part in headers]
        wanted.append((offset, timestamp, _raw(key), _raw(value), pairs))
    (folder / "in.jsonl").write_text(text, encoding="utf-8")
    words = ("--keep-offsets", "--codec", codec, "--batch-size", str(size))
    done = run_klog("write", folder / "in.jsonl", "--to", folder / "out", *words)
    assert done.exit_code == 0, done.stderr
    found = lines(run_klog, [folder / "out/t-0"], "--values", "base64")
    assert [(one["offset"], one["timestamp"], _content(one, "key"), _content(one, "value")) for one in found] == [
        one[:4] for one in wanted
    ]
    assert [[(name, _raw(_plain(part))) for name, part in one["headers"]] for one in found] == [
        one[4] for one in wanted
    ]


def _raw(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def _plain(part: Any) -> str | bytes | None:
    return base64.b64decode(part["base64"]) if isinstance(part, dict) else part


def _content(one: dict[str, Any], name: str) -> bytes | None:
    encoded = one.get(f"{name}_base64")
    return _raw(one[name]) if encoded is None else base64.b64decode(encoded)


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=300), st.integers(1, 40), st.booleans())
def test_no_bytes_make_the_reader_fall(noise: bytes, step: int, is_csv: bool) -> None:
    """Whatever comes, in pieces of any size: rows with errors, and as many as there are lines."""
    good = json.dumps(GOOD | {"headers": [["k", "v"]]}).encode()
    content = bytearray(good + b"\n" + noise + b"\n" + good)
    for seed in range(3):
        content[Random(seed + len(noise)).randrange(len(content))] ^= 0x11
    reader = RecordLines([b"key", b"value", b"headers", b"offset"], 512) if is_csv else RecordLines(None, 512)
    at = rows = 0
    while True:
        while reader.parse():
            rows += reader.count
            for i in range(reader.count):
                assert reader.error(i) in ("", "syntax", "type", "base64", "utf-8", "damage", "columns")
                reader.topic(i), reader.partition(i), reader.place(i), reader.producer(i)
        if at > len(content):
            break
        buffer = reader.buffer()
        piece = bytes(content[at : at + min(step, len(buffer))])
        buffer[: len(piece)] = piece
        reader.loaded(len(piece))
        at += len(piece) or 1
    assert rows <= content.count(b"\n") + 1


_NAMES = [
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "key",
    "offset",
    "p\\u0061rtition",
    "partitiom",
    "x",
    "",
]
_FIELDS = st.tuples(
    st.sampled_from([*_NAMES, "coordinator_epoch", "coordinator_epocs", "a_name_of_more_than_24_bytes"]),
    st.sampled_from(
        ["0", "7", "31", "1234567", "12345678", "123456789", "2147483647", "2147483648", "-1", "-", "1.5", "1e3"]
    )
    | st.integers(-(1 << 65), 1 << 65).map(str)
    | st.sampled_from(['"t"', '"a\\n\\u00e9"', "null", "true", "[]", '{"a":[1]}', "", "0x1"]),
    st.sampled_from([":", ":", ": ", " : "]),
    st.sampled_from([",", ",", ", ", ",,", " ,"]),
)


def _rows(content: bytes) -> list[tuple[Any, ...]]:
    """Return the content of rows for the lines of *content*, which are read at once."""
    reader = RecordLines()
    buffer = reader.buffer()
    buffer[: len(content)] = content
    reader.loaded(len(content))
    found: list[tuple[Any, ...]] = []
    while reader.parse():
        tells = reader.error, reader.topic, reader.partition, reader.place, reader.producer
        found += [tuple(tell(i) for tell in tells) for i in range(reader.count)]
    return found


@settings(max_examples=600, deadline=None)
@given(st.lists(st.tuples(st.lists(_FIELDS, max_size=5), st.integers(1, 3)), min_size=1, max_size=6), st.booleans())
def test_a_line_is_read_alike_whatever_came_before(made: list[tuple[list[Any], int]], is_long: bool) -> None:
    """The bytes between the values of a line are expected in the next; one that differs is read too."""
    content = []
    for fields, count in made:
        text = "".join(
            f'{comma}"{name}"{colon}{value}' for name, value, colon, comma in fields * (12 if is_long else 1)
        )
        content += ["{" + text[1:] + "}\n"] * count
    alone = [row for line in content for row in _rows(line.encode())]
    assert len(alone) == len(content)
    assert _rows("".join(content).encode()) == alone
    for line, (error, _, partition, _, producer) in zip(content, alone, strict=True):
        said = {} if error else _said(line)
        assert said.get("partition", partition) == partition
        assert said.get("producer_id", producer[0]) == producer[0]


def _said(line: str) -> dict[str, Any]:
    """Return what Python reads of a line, null as the last of a name left out; nothing if it is no JSON."""
    try:
        pairs = json.loads(line, object_pairs_hook=list)
    except ValueError:
        return {}
    return {name: value for name, value in pairs if value is not None}


# CSV and JSON from elsewhere


def test_a_quote_within_a_csv_field_swallows_no_line(klog: Klog, tmp_path: Path) -> None:
    """Two quotes that do not begin their fields pair over lines: those in between were once left out in silence."""
    file = tmp_path / "in.csv"
    file.write_text('topic,key,value\nt,k1,ab"c\nt,k2,x\nt,k3,d"e\nt,k4,y\n')
    done = klog("write", file, "--to", tmp_path / "out")
    assert (done.exit_code, b"line 2" in done.stderr) == (8, True), done.stderr


def test_lines_are_counted_as_editors_count_them(klog: Klog, tmp_path: Path) -> None:
    """Also behind quoted fields with newlines in them, which are part of the value, and beyond CRLF."""
    file = tmp_path / "in.csv"
    file.write_bytes(b'topic,key,value\r\nt,k1,"a\n""b""\n\nc"\r\n\r\nt,k2\r\n')
    done = klog("write", file, "--to", tmp_path / "out")
    assert (done.exit_code, b"line 7, column 1: not as many fields" in done.stderr) == (8, True), done.stderr
    assert klog("write", file, "--to", tmp_path / "out", "--skip-bad").exit_code == 4
    assert [one["value"] for one in lines(klog, [tmp_path / "out/t-0"])] == ['a\n"b"\n\nc']


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv"])
def test_a_byte_order_mark_and_crlf_are_no_part_of_records(name: str, klog: Klog, tmp_path: Path) -> None:
    """Files from Windows."""
    text = {"in.jsonl": '{"topic":"t","key":"k","value":"v"}\r\n\r\n', "in.csv": "topic,key,value\r\nt,k,v\r\n"}[name]
    (tmp_path / name).write_bytes(b"\xef\xbb\xbf" + text.encode())
    done = klog("write", tmp_path / name, "--to", tmp_path / "out")
    assert done.exit_code == 0, done.stderr
    assert [(one["key"], one["value"]) for one in lines(klog, [tmp_path / "out/t-0"])] == [("k", "v")]
