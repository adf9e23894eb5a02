"""Lines of records that are too large to be made in one piece: the same bytes as in one piece, in bounded memory."""

from __future__ import annotations

import csv
import functools
import io
import json
import resource
from base64 import b64encode
from random import Random

import pytest
from klog.kernel import VALUES, Window
from klog.log.json_lines import LineStyle, RecordOrigin, record_lines

from tests.kernel.windows import begun
from tests.oracles.plain.encode import BatchHeader, Record, batch, raw_batch, varint
from tests.oracles.plain.shapes import MS

MIB = 1 << 20
ORIGIN = RecordOrigin("", "orders", 3)
NOISE = Random(3).randbytes(3 * MIB)
TEXT = '"quoted", ä and \n'.encode() * (MIB // 4)
MANY = tuple((b'k"%d' % at + b"x" * 60, None if at % 3 else b"\xff%d" % at) for at in range(24_000))
CONTENTS = {
    "key": Record(1, MS, TEXT, b"v", ((b"h", b"v"),)),
    "key that is no text": Record(1, MS, NOISE, None, ((b"h", None),)),
    "value": Record(1, MS, b"k", TEXT, ()),
    "key and value": Record(1, MS, NOISE, TEXT, ((b"h", b"v"),)),
    "headers": Record(1, MS, b"k", b"v", MANY),
    "large headers": Record(1, MS, b"k", None, ((b"a", TEXT), (TEXT, NOISE), (b"b", None), (NOISE, b""), *MANY[:9])),
}


@functools.cache
def batch_of(name: str) -> bytes:
    return batch([Record(0, MS, b"k", b"v"), CONTENTS[name], Record(2, MS, b"k", b"v")])


def window_of(name: str) -> Window:
    window = begun(batch_of(name))
    window.decode()
    return window


def lines(window: Window, style: LineStyle) -> tuple[bytes, int]:
    """Return all lines, and the size of the largest piece."""
    fields = ORIGIN.csv() if style.csv else ORIGIN.json()
    made = bytearray()
    largest = 0
    for piece in record_lines(window, 0, window.records, fields, style):
        made += piece
        largest = max(largest, len(piece))
    made += window.output()
    return bytes(made), largest


def shown(content: bytes | None, values: str) -> object:
    """A header's key or value as a line has it."""
    if content is None:
        return None
    if values in ("redacted", "none"):
        return {"size": len(content)}
    if values == "hex":
        return {"hex": content.hex()}
    if values == "text":
        try:
            return content.decode()
        except UnicodeDecodeError:
            pass
    return {"base64": b64encode(content).decode()}


@pytest.mark.parametrize("values", VALUES)
@pytest.mark.parametrize("name", CONTENTS)
@pytest.mark.parametrize("as_csv", [False, True])
def test_a_huge_line_says_what_a_small_one_would(name: str, values: str, as_csv: bool) -> None:
    record = CONTENTS[name]
    made, largest = lines(window_of(name), LineStyle(as_csv, values=VALUES.index(values)))
    assert largest < 40 * MIB
    pairs = [[shown(key, "text"), shown(value, values)] for key, value in record.headers]
    headers = json.dumps(pairs, ensure_ascii=False, separators=(",", ":"))
    if as_csv:
        csv.field_size_limit(1 << 30)
        row = list(csv.reader(io.StringIO(made.decode())))[1]
        assert (row[0], row[8:10]) == ("1", ["3", "orders"])
        is_same = (row[7] or "[]") == headers
        found = {"key": row[3], "key_base64": row[4], "value": row[5], "value_base64": row[6]}
    else:
        line = made.split(b"\n")[1].decode()
        start = line.index(',"headers":') + len(',"headers":')
        before, after = line[:start], line[start + len(headers) :]
        is_same = line[start : start + len(headers)] == headers
        found = json.loads(f"{before}[]{after}")
        assert (found["offset"], found["topic"], found["headers"]) == (1, "orders", [])
    assert is_same  # no difference of megabytes is made
    for member, content, how in (("key", record.key, "text"), ("value", record.value, values)):
        if content is None or how in ("redacted", "none") or (how == "hex" and as_csv):
            continue
        told = shown(content, how)
        expected = told if isinstance(told, str) else next(iter(told.values())) if isinstance(told, dict) else told
        suffix = "" if isinstance(told, str) else f"_{next(iter(told))}" if isinstance(told, dict) else ""
        is_same = found[member + suffix] == expected
        assert is_same


def test_millions_of_headers_are_written_within_bounds() -> None:
    """A batch of 11 KB took four gigabytes."""
    count = 6_000_000
    body = b"\0\0\0" + varint(1) + b"k" + varint(1) + b"v" + varint(count) + b"\0\1" * count
    header = BatchHeader(count=1, base_timestamp=MS, max_timestamp=MS)
    window = begun(raw_batch(header, varint(len(body)) + body))
    window.decode()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    made = largest = 0
    for piece in record_lines(window, 0, 1, ORIGIN.json(), LineStyle()):
        made += len(piece)
        largest = max(largest, len(piece))
    assert made > 10 * count
    assert largest < MIB
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10
