"""Records that a search has found, as short JSON objects: a line each, for a view that shows them to people."""

from __future__ import annotations

import json
import os
from base64 import b64encode
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from klog.jobs.slices import LogSlice
from klog.kernel import VALUES, Window, is_utf8
from klog.log.records import RecordFilter

if TYPE_CHECKING:
    from klog.schemas.decoded_rows import DecodedRows

_MOST_BYTES, _BYTES_BEFORE = 400, 100
_WHOLE = (0, 1 << 62)


class Excerpt(NamedTuple):
    """A short part of a text: the part *before* the hit, the *hit*, which may be empty, and the part *after* it."""

    before: str
    hit: str
    after: str


class HitStyle(NamedTuple):
    """How hits are shown: parts that *wanted* asks for are marked.  *values*: their form, a place in kernel.VALUES."""

    wanted: RecordFilter
    values: int


def hit_lines(rows: Window, part: LogSlice, style: HitStyle, decoded: DecodedRows | None = None) -> Iterator[bytes]:
    """Yield the line of each of *rows*, which are those of *part*; *decoded*: its keys and values, decoded."""
    name = os.path.basename(os.path.dirname(part.path)) if part.topic is None else f"{part.topic}-{part.partition}"
    for i in range(rows.records):
        record = rows.record(i, style.wanted.header is not None or decoded is not None)
        offset, timestamp, key, value, headers, _, batch = record
        if decoded is not None:
            key, value = decoded.contents(record)
        facts = {
            "partition": name,
            "offset": offset,
            "timestamp": timestamp,
            "key": None if key is None else _excerpt(key, _WHOLE if style.wanted.keys is not None else (0, 0), "text"),
            "value": None if value is None else _value(value, style),
            "header": _header(headers or (), style),
            "file": os.path.basename(part.path),
            "position": rows.batch(batch).position,
        }
        yield json.dumps(facts, ensure_ascii=True).encode() + b"\n"


def _value(value: bytes, style: HitStyle) -> Excerpt:
    found = None if style.wanted.pattern is None else style.wanted.pattern.search(value)
    return _excerpt(value, (0, 0) if found is None else found.span(), VALUES[style.values])


def _header(headers: tuple[tuple[bytes, bytes | None], ...], style: HitStyle) -> Excerpt | None:
    for name, value in headers if style.wanted.header is not None else ():
        wanted, content = style.wanted.header or (b"", None)
        if name == wanted and content in (None, value):
            return _excerpt(name if value is None else name + b"=" + value, _WHOLE, "text")
    return None


def _excerpt(content: bytes, hit: tuple[int, int], form: str) -> Excerpt:
    """Return the part of *content* around the bytes of *hit*: text, or hex with 0x if it is not UTF-8."""
    if form in ("redacted", "none"):
        return Excerpt(f"({len(content)} bytes)" if form == "redacted" else "", "", "")
    if form == "base64":
        return Excerpt(b64encode(content[:_MOST_BYTES]).decode() + "…" * (len(content) > _MOST_BYTES), "", "")
    is_text = form == "text" and is_utf8(content)
    first, end = _bounds(content, hit[0], is_text)
    begin = min(max(first, hit[0]), end)
    stop = min(max(begin, hit[1]), end)
    before, found, after = (
        part.decode("utf-8", "backslashreplace") if is_text else part.hex()
        for part in (content[first:begin], content[begin:stop], content[stop:end])
    )
    sign = "" if is_text or not content else "0x"
    return Excerpt("…" * (first > 0) + sign + before, found, after + "…" * (end < len(content)))


def _bounds(content: bytes, hit: int, is_text: bool) -> tuple[int, int]:
    """Return the bytes from which and up to which to show *content*, with the byte *hit*; never inside a character."""
    first = max(0, hit - _BYTES_BEFORE)
    end = min(len(content), first + _MOST_BYTES)
    while is_text and first > 0 and content[first] & 0xC0 == 0x80:
        first -= 1
    while is_text and end < len(content) and content[end] & 0xC0 == 0x80:
        end -= 1
    return first, end
