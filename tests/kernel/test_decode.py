"""From batch rows to record rows: whole records are read, a broken one ends its batch at the right record."""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

import pytest
from klog.formats.codec import CodecError
from klog.kernel import BAD_COUNT, BAD_LENGTH, BAD_RECORD, DONE, MORE, Window

from tests.kernel.windows import CODECS, all_rows, begun, filled, plain_rows, rows, scanned
from tests.oracles.plain import compress, encode, shapes
from tests.oracles.plain.encode import BatchHeader, Record, batch, message, raw_batch, record, varint, varlong, wrapper
from tests.oracles.plain.shapes import MS, some_records

LOGS = shapes.all_logs()
GOOD = record(offset_delta=0, key=b"k", value=b"v")
LAST = record(offset_delta=2, key=b"k", value=b"v")


def around(*records: bytes, count: int | None = None, codec: str = "none", **fields: int) -> bytes:
    """Return a v2 batch whose checksum holds around whatever *records* are."""
    header = BatchHeader(base_offset=10, codec=compress.CODECS.index(codec), last_offset_delta=9, base_timestamp=MS)
    header = replace(header, count=len(records) if count is None else count, **fields)  # type: ignore[arg-type]
    return raw_batch(header, compress.compress(codec, b"".join(records)))


def body(*fields: bytes) -> bytes:
    """Return a record of these fields: attributes, timestamp delta, offset delta, key, value, headers."""
    content = b"".join(fields)
    return varint(len(content)) + content


# the whole records


@pytest.mark.parametrize("room", [1, 2, 3, 7, 64, 8192])
def test_records_do_not_depend_on_how_many_rows_there_is_room_for(room: int) -> None:
    """Decoding stops when the rows are full and continues from there, in the middle of a batch or between two."""
    for name, data in LOGS.items():
        found, status = all_rows(begun(data, records=room))
        assert status == DONE, name
        assert found == plain_rows(data), name


def test_each_row_knows_its_batch() -> None:
    data = batch(some_records(0)) + message(3, 1, None, b"v") + batch(some_records(4), codec="lz4")
    window = filled(data)
    assert [window.record(i)[6] for i in range(window.records)] == [0, 0, 0, 1, 2, 2, 2]


@pytest.mark.parametrize("whole", [False, True])
def test_batches_that_were_left_out_are_not_decoded(whole: bool) -> None:
    data = b"".join(batch(some_records(3 * i), codec=codec) for i, codec in enumerate(compress.CODECS))
    window = scanned(data)
    for i in (0, 2, 4):
        window.skip(i)
    assert window.decompress(0, 5, CODECS) == 5
    window.begin(0, 5, whole)
    assert [row[0] for row in all_rows(window)[0]] == [3, 4, 5, 9, 10, 11]


def test_a_part_of_the_batches_may_be_decoded() -> None:
    window = scanned(b"".join(batch(some_records(3 * i)) for i in range(4)))
    window.begin(1, 3)
    assert [row[0] for row in all_rows(window)[0]] == [3, 4, 5, 6, 7, 8]
    window.begin(2, 2)
    assert all_rows(window) == ([], DONE)


def test_null_and_empty_are_different() -> None:
    """A compacted topic's tombstone is a null value; an empty one is data."""
    records = [Record(0, MS, None, b""), Record(1, MS, b"", None), Record(2, MS, b"", b"", ((b"", None), (b"", b"")))]
    assert [row[2:5] for row in rows(filled(batch(records)))] == [
        (None, b"", ()),
        (b"", None, ()),
        (b"", b"", ((b"", None), (b"", b""))),
    ]


@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_any_length_below_zero_is_null(length: int) -> None:
    """Kafka's reader asks only for the sign."""
    null = varint(length)
    odd = body(b"\0", varlong(0), varint(0), null, null, varint(1), varint(1), b"h", null)
    (row,) = rows(filled(around(odd)))
    assert row[2:5] == (None, None, ((b"h", None),))


def test_varints_may_be_longer_than_they_need_to_be() -> None:
    """Overlong forms and surplus bits of the last byte are taken as Kafka's ByteUtils takes them."""
    overlong = b"\x82\x80\x80\x80\x00"
    surplus = b"\x82\x80\x80\x80\x70"
    for one in (overlong, surplus):
        odd = body(b"\0", b"\x8a" + b"\x80" * 8 + b"\x00", one, one, b"k", one, b"v", b"\x80\x80\x00")
        assert rows(filled(around(odd))) == [(11, MS + 5, b"k", b"v", (), -1)]


@pytest.mark.parametrize("place", ["length", "timestamp", "offset", "key", "value", "headers"])
def test_a_varint_of_more_bytes_than_it_can_have_breaks_the_record(place: str) -> None:
    """Five, and ten for a timestamp: who reads on shows records that no broker and no consumer sees."""

    def overlong(name: str, value: int, more: int) -> bytes:
        most = 10 if name == "timestamp" else 5
        return bytes((varint(value)[0] | 0x80,)) + b"\x80" * (most - 2 + more * (name == place)) + b"\0"

    def written(more: int) -> bytes:
        names = ("timestamp", "offset", "key", "value", "headers")
        content = b"\0" + b"".join(overlong(name, 0, more) for name in names)
        return overlong("length", len(content), more) + content

    assert rows(filled(around(written(0)))) == [(10, MS, b"", b"", (), -1)]
    assert all_rows(begun(around(written(1)))) == ([], BAD_RECORD)


@pytest.mark.parametrize(
    ("base", "delta", "timestamp"),
    [(2**63 - 1, 1, -(2**63)), (-(2**63), -1, 2**63 - 1), (0, 2**63 - 1, 2**63 - 1), (0, -(2**63), -(2**63))],
)
def test_timestamps_wrap_as_javas_do(base: int, delta: int, timestamp: int) -> None:
    data = around(record(timestamp_delta=delta, key=b"k"), base_timestamp=base)
    assert rows(filled(data))[0][1] == timestamp


def test_offsets_wrap_as_javas_do() -> None:
    data = around(record(offset_delta=2**31 - 1), base_offset=2**63 - 1)
    assert rows(filled(data))[0][0] == -(2**63) + 2**31 - 2


@pytest.mark.parametrize(
    ("base", "delta", "sequence"),
    [
        (0, 5, 5),
        (2**31 - 1, 0, 2**31 - 1),
        (2**31 - 1, 1, 0),
        (2**31 - 3, 5, 2),
        (-1, 5, -1),
        (10, -150994935, 1996488723),
    ],
)
def test_sequences_wrap_as_javas_do(base: int, delta: int, sequence: int) -> None:
    """After 2^31 - 1 comes 0; sums are of 32 bits, also for a delta below zero, which only damage brings."""
    data = around(record(offset_delta=delta), base_sequence=base, producer_id=5)
    assert rows(filled(data))[0][5] == sequence


def test_a_batch_without_records_has_none() -> None:
    """Compaction leaves these; for any other content, a count of 0 is an end.  Unknown codecs included."""
    data = encode.empty_batch(0, 4) + around(b"garbage", count=0) + around(b"garbage", count=0, codec="gzip")
    window = scanned(data + raw_batch(BatchHeader(codec=6), b"garbage"))
    assert window.decompress(0, 4, CODECS) == 4
    window.begin(0, 4, True)
    assert all_rows(window) == ([], DONE)


# the broken part

LONG = varint(1000)
OPEN = b"\x80" * 5
OPEN_LONG = b"\x80" * 10
BROKEN = {
    "no length": b"",
    "length without an end": OPEN,
    "length of nothing": varint(0),
    "length below zero": varint(-1),
    "length beyond the batch": record(value=b"v", length=1000),
    "length short of its fields": record(key=b"key", value=b"value", length=8),
    "length longer than its fields": record(key=b"key", value=b"value") + b"\0",
    "timestamp without an end": body(b"\0", OPEN_LONG, b"\0" * 9),
    "offset without an end": body(b"\0", b"\0", OPEN, b"\0" * 9),
    "key without an end": body(b"\0\0\0", OPEN, b"\0" * 9),
    "key beyond the record": body(b"\0\0\0", LONG, b"k", b"\1\0"),
    "key up to the record's end": body(b"\0\0\0", varint(1), b"k"),
    "value without an end": body(b"\0\0\0\1", OPEN, b"\0" * 9),
    "value beyond the record": body(b"\0\0\0\1", LONG, b"v\0"),
    "no count of headers": body(b"\0\0\0\1\1"),
    "count of headers below zero": body(b"\0\0\0\1\1", varint(-1)),
    "more headers than bytes": body(b"\0\0\0\1\1", varint(3), b"\0\1"),
    "header key of length below zero": body(b"\0\0\0\1\1", varint(1), b"\1\1"),
    "header key that would be its own value": body(b"\0\0\0\1\1", varint(1), varint(-1)),
    "header key beyond the record": body(b"\0\0\0\1\1", varint(1), LONG, b"k\1"),
    "header value beyond the record": body(b"\0\0\0\1\1", varint(1), varint(1), b"k", LONG, b"v"),
    "header value without an end": body(b"\0\0\0\1\1", varint(1), varint(1), b"k", OPEN),
    "header without a value": body(b"\0\0\0\1\1", varint(1), varint(1), b"k"),
    "a byte behind the headers": body(b"\0\0\0\1\1", varint(1), varint(1), b"k", b"\1", b"!"),
}


@pytest.mark.parametrize("room", [1, 8192])
@pytest.mark.parametrize("codec", ["none", "lz4"])
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_record_ends_its_batch_there(name: str, codec: str, room: int) -> None:
    """The records before it are kept, and it is known which one it was; the next batch is none the worse."""
    broken = BROKEN[name]
    if name == "length longer than its fields":
        broken = varint(broken[0] // 2 + 1) + broken[1:]
    good = batch(some_records(100))
    data = good + around(GOOD, GOOD, broken, LAST if broken else b"", count=4, codec=codec) + good
    window = begun(data, records=room)
    found, status = all_rows(window)
    assert status == BAD_RECORD
    assert (window.decoding, window.decoding_record) == (1, 2)
    assert [row[0] for row in found] == [100, 101, 102, 10, 10]
    window.begin(window.decoding + 1, window.count)
    assert len(all_rows(window)[0]) == 3


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_bytes_behind_the_last_record_are_a_wrong_count(codec: str) -> None:
    """A count that was damaged, or a record that was not counted: either way the batch contradicts itself."""
    window = begun(around(GOOD, LAST, GOOD, count=2, codec=codec))
    found, status = all_rows(window)
    assert (len(found), status, window.decoding_record) == (1, BAD_COUNT, 1)


def test_a_count_below_zero_is_a_wrong_count() -> None:
    window = begun(around(GOOD, count=-1))
    assert all_rows(window) == ([], BAD_COUNT)


def test_a_count_beyond_all_bytes_reads_no_further_than_these() -> None:
    window = begun(around(GOOD, GOOD, count=2**31 - 1))
    found, status = all_rows(window)
    assert (len(found), status, window.decoding_record) == (2, BAD_RECORD, 2)


def test_of_a_compressed_batch_all_records_or_none() -> None:
    """Kafka's reader decompresses a batch whole before it returns the first record, and reads a plain one lazily."""
    for codec, kept in (("none", 2), ("gzip", 0)):
        data = around(GOOD, GOOD, b"", count=3, codec=codec)
        found, status = all_rows(begun(data, whole=True))
        assert (len(found), status) == (kept, BAD_RECORD), codec
        assert len(all_rows(begun(data))[0]) == 2


# decompressing


def test_decompressing_stops_once_much_has_been_made() -> None:
    """A window of 1 MiB may hold a thousand bombs, each within its limit: together they would fill the memory."""
    bomb = batch([Record(0, MS, None, bytes(100_000))], codec="zstd")
    window = scanned(bomb * 10)
    assert window.decompress(0, 10, CODECS, 250_000) == 3
    window.begin(0, 3)
    assert len(all_rows(window)[0]) == 3
    assert window.decompress(3, 10, CODECS, 1) == 4
    window.begin(3, 4)
    assert rows_lengths(all_rows(window)[0]) == [100_000]


def rows_lengths(
    found: list[tuple[int, int, bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...], int]],
) -> list[int]:
    return [len(row[3] or b"") for row in found]


def test_a_broken_stream_is_kept_as_an_error_and_the_others_are_made() -> None:
    good = batch(some_records(0), codec="gzip")
    bad = batch(some_records(3), codec="gzip", stream=b"no gzip at all, and long enough")
    window = scanned(good + bad + good)
    assert window.decompress(0, 3, CODECS) == 1
    assert isinstance(window.error, CodecError)
    assert window.decompress(2, 3, CODECS) == 3
    assert window.error is None
    window.begin(2, 3)
    assert len(all_rows(window)[0]) == 3


def test_an_error_that_is_not_the_stream_s_is_not_kept() -> None:
    """A mistake in a codec must not pass for damage."""

    def fails(data: memoryview, magic: int) -> bytes:
        raise ZeroDivisionError

    window = scanned(batch(some_records(0), codec="gzip"))
    with pytest.raises(ZeroDivisionError):
        window.decompress(0, 1, (fails,) * 8)


def test_the_codec_is_told_the_format_and_gets_only_the_compressed_bytes() -> None:
    told: list[tuple[int, bytes]] = []

    def listens(data: memoryview, magic: int) -> bytes:
        told.append((magic, bytes(data)))
        raise CodecError("enough")

    window = scanned(
        batch(some_records(0), codec="gzip", stream=b"two") + wrapper(some_records(3), 0, "lz4", stream=b"nil")
    )
    assert window.decompress(0, 2, (listens,) * 8) == 0
    assert window.decompress(1, 2, (listens,) * 8) == 1
    assert told == [(2, b"two"), (0, b"nil")]


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_a_codec_may_return_either_kind_of_bytes(kind: type) -> None:
    records = some_records(0)
    data = batch(records, codec="gzip")
    payload = encode.records_payload(records, 0, MS)
    window = scanned(data)
    assert window.decompress(0, 1, (lambda data, magic: kind(payload),) * 8) == 1
    window.begin(0, 1)
    assert all_rows(window)[0] == plain_rows(data)


# message sets


def inner(*messages: bytes, magic: int = 1, offset: int = 9, tail: bytes = b"", flags: int = 0) -> bytes:
    """Return a gzip wrapper around *messages* at *offset*."""
    value = compress.gzip_stream(b"".join(messages) + tail)
    return message(offset, magic, None, value, timestamp=MS + 99, attributes=1 | flags)


def test_relative_offsets_count_from_the_last_message() -> None:
    """The wrapper's offset is its last message's, whatever compaction has taken out between."""
    data = inner(message(0, 1, b"a", b"1"), message(3, 1, b"b", b"2"), offset=1003)
    window = filled(data)
    assert [row[0] for row in rows(window)] == [1000, 1003]
    assert window.batch(0).base_offset == 1000, "known once it has been decoded"


def test_absolute_offsets_stay() -> None:
    assert [row[0] for row in rows(filled(inner(message(5, 0, b"a", b"1"), message(7, 0, b"b", b"2"), magic=0)))] == [
        5,
        7,
    ]


def test_a_wrapper_at_offset_0_begins_there() -> None:
    """Old librdkafka wrote 0 instead of the last message's."""
    data = inner(message(0, 1, b"a", b"1"), message(1, 1, b"b", b"2"), offset=0)
    assert [row[0] for row in rows(filled(data))] == [0, 1]


def test_the_wrapper_s_time_counts_where_the_broker_set_it() -> None:
    data = inner(message(0, 1, b"a", b"1", timestamp=5), message(1, 1, b"b", b"2", timestamp=6), flags=8)
    assert [row[1] for row in rows(filled(data))] == [MS + 99, MS + 99]


def test_a_message_of_the_first_format_has_no_time_also_inside_a_wrapper_that_has() -> None:
    """Kafka: LegacyRecord.timestamp."""
    assert [row[1] for row in rows(filled(inner(message(0, 0, b"a", b"1"), flags=8)))] == [-1]


def test_a_message_that_the_end_cuts_off_is_dropped_in_silence() -> None:
    """As brokers of old dropped it: their fetches ended anywhere."""
    whole, cut = message(0, 1, b"a", b"1"), message(1, 1, b"b", b"2")
    for missing in (1, 10, len(cut) - 12, len(cut) - 1):
        data = inner(whole, tail=cut[:-missing])
        assert [row[0] for row in rows(filled(data))] == [9], missing


def test_a_message_inside_whose_own_checksum_does_not_hold_is_named() -> None:
    bad = message(1, 1, b"b", b"2", crc=5)
    window = filled(inner(message(0, 1, b"a", b"1"), bad, message(2, 1, b"c", b"3")))
    assert window.bad_inner_crcs() == [1]
    assert window.records == 3


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (inner(), BAD_COUNT),
        (inner(tail=message(0, 1, b"a", b"1")[:-1]), BAD_COUNT),
        (inner(message(0, 1, b"a", b"1"), struct.pack(">qi", 1, 13) + bytes(13)), BAD_LENGTH),
        (inner(message(0, 1, b"a", b"1"), message(10, 1, b"b", b"2"), offset=9), BAD_RECORD),
        (inner(message(0, 1, b"a", compress.gzip_stream(b""), attributes=1)), BAD_RECORD),
        (inner(struct.pack(">qiIbbqi", 0, 21, 0, 1, 0, 5, -1) + bytes(3)), BAD_RECORD),
    ],
    ids=["nothing", "only a part", "a size of 13", "offset above the wrapper's", "a wrapper inside", "too small"],
)
def test_a_broken_set_of_messages_is_said_to_be(data: bytes, status: int) -> None:
    window = begun(data)
    found, ended = all_rows(window)
    assert ended == status
    assert (window.decoding, len(found) <= 1) == (0, True)


@pytest.mark.parametrize("magic", [0, 1])
def test_lengths_of_messages_stay_inside_them(magic: int) -> None:
    """Key or value lengths that reach beyond the message, in the log or inside a wrapper."""
    good = message(0, magic, b"key", b"value")
    at = 26 if magic else 18
    for field, length in ((at, 2**31 - 1), (at, 12), (at + 7, 2**31 - 1), (at + 7, 6)):
        bad = good[:field] + struct.pack(">i", length) + good[field + 4 :]
        assert all_rows(begun(bad))[1] == BAD_RECORD
        assert all_rows(begun(inner(bad, magic=magic)))[1] == BAD_RECORD
    greedy = good[:at] + struct.pack(">i", 12) + good[at + 4 :]
    behind = message(-(2**63), magic, None, None)  # its first bytes would be the value's length: below zero, as if null
    assert all_rows(begun(inner(greedy, behind, magic=magic)))[1] == BAD_RECORD
    kept = good[: at + 7] + struct.pack(">i", -7) + good[at + 11 :]
    assert all_rows(begun(kept))[0][0][2:4] == (b"key", None)


@pytest.mark.parametrize("value", [None, b"", b"no gzip"], ids=["null", "empty", "garbage"])
def test_a_wrapper_whose_value_is_no_stream_does_not_decompress(value: bytes | None) -> None:
    window = scanned(message(0, 1, None, value, attributes=1))
    assert window.decompress(0, 1, CODECS) == 0
    assert isinstance(window.error, CodecError)


def test_a_wrapper_whose_lengths_lie_does_not_decompress() -> None:
    good = inner(message(0, 1, b"a", b"1"))
    for at, length in ((26, 2**31 - 1), (26, 1000), (30, 2**31 - 1), (30, len(good) - 33)):
        window = scanned(good[:at] + struct.pack(">i", length) + good[at + 4 :])
        assert window.decompress(0, 1, CODECS) == 0, (at, length)
        assert "claims" in str(window.error)
    for length in (len(good) - 30, len(good) - 33):  # not four bytes are left for the value's length
        window = scanned(good[:26] + struct.pack(">i", length) + good[30:])
        assert window.decompress(0, 1, CODECS) == 0
        assert str(window.error) == f"the wrapper's key claims {length} bytes"


def test_zstd_is_not_for_message_sets() -> None:
    window = scanned(message(0, 1, None, compress.zstd_stream(b""), attributes=4))
    assert window.decompress(0, 1, CODECS) == 0
    assert "zstd" in str(window.error)


@pytest.mark.parametrize(("magic", "size"), [(2, 14), (2, 48), (1, 14), (1, 21)])
def test_an_entry_too_small_for_what_it_says_does_not_decompress(magic: int, size: int) -> None:
    """Only a lenient walk accepts it; its compressed bytes would begin behind its end, or behind the window's."""
    short = raw_batch(BatchHeader(base_offset=5, codec=1, count=3), b"", length=size)
    if magic == 1:
        short = struct.pack(">qiIbb", 5, size, 0, magic, 1) + b"\xff" * 61
    short = short[: 12 + size]
    window = Window(200)
    follows = batch(some_records(50))[: 61 if magic == 2 else 40]
    data = short + follows
    window.buffer(len(data))[: len(data)] = data
    window.load(0, len(data))
    window.scan(0, True)
    assert window.count
    assert window.batch(0).size == 12 + size
    stopped = window.decompress(0, 1, CODECS)
    if stopped == 1:
        window.begin(0, 1)
        assert all_rows(window) == ([], BAD_COUNT)
    else:
        assert isinstance(window.error, CodecError)


# looking at rows


def test_offsets_that_do_not_follow_one_another_are_found() -> None:
    """Kafka's dump tool lists these as non-consecutive."""
    window = filled(batch([Record(o, MS, None, b"") for o in (1, 2, 5, 6, 9)], base_offset=1))
    pairs = window.gaps()
    assert [struct.unpack_from("=qq", pairs, at) for at in range(0, len(pairs), 16)] == [(2, 5), (6, 9)]
    assert window.ends() == (1, 9)
    pairs = filled(batch([Record(7, MS, None, b"")]) + batch([Record(3, MS, None, b"")])).gaps()
    assert struct.unpack("=qq", pairs) == (7, 3), "going back is not following either"


def test_rows_can_be_cut_at_their_end() -> None:
    window = filled(batch(some_records(0, 10)))
    window.cut_records(2)
    assert [row[0] for row in rows(window)] == [0, 1]
    window.cut_records(100)
    assert window.records == 2
    window.cut_records(-1)
    assert window.records == 0
    with pytest.raises(IndexError):
        window.ends()


def test_the_youngest_of_the_rows() -> None:
    records = [Record(0, MS, None, b""), Record(1, MS + 50, None, b""), Record(2, MS - 5, None, b"")]
    assert filled(batch(records)).times() == MS + 50
    assert filled(message(0, 0, None, b"v")).times() == -1


def test_control_records_that_are_no_plain_markers_are_found() -> None:
    """Only these need the slow way; a marker whose value is too short is one of them."""
    end = {"transactional": True, "control": True, "producer": (1, 0, -1)}
    keys = [struct.pack(">hh", *pair) for pair in ((0, 0), (0, 1), (0, 3), (0, 9), (-1, 1), (0, -1))]
    values = [struct.pack(">hi", 0, 7)] * 6
    keys += [b"\0\0\0", struct.pack(">hh", 0, 1), struct.pack(">hh", 0, 1)]
    values += [values[0], values[0][:5], struct.pack(">hi", -1, 7)]
    records = [Record(i, MS, key, value) for i, (key, value) in enumerate(zip(keys, values, strict=True))]
    window = filled(batch(records, **end) + batch([Record(99, MS, b"k", b"v")]))  # type: ignore[arg-type]
    assert window.unknown_controls() == [2, 3, 4, 5, 6, 7, 8]


def test_a_row_that_is_not_there_cannot_be_asked_for() -> None:
    window = begun(batch(some_records(0)))
    for i in (-1, 0):
        with pytest.raises(IndexError):
            window.record(i)
    assert window.decode() == DONE
    with pytest.raises(IndexError):
        window.record(3)


def test_a_bit_for_control_means_nothing_in_message_sets() -> None:
    """Bit 5 of a v0 or v1 message is unused: treated as a marker, it would be read beyond its end."""
    window = filled(message(0, 1, b"", b"", attributes=0x30))
    assert window.unknown_controls() == []
    assert window.keep(0, 9, -(2**63), 2**63 - 1, False, None) == 1


def test_decoding_again_from_the_start_says_the_same() -> None:
    data = LOGS["compacted"]
    window = begun(data)
    first = all_rows(window)
    window.begin(0, window.count)
    assert all_rows(window) == first
    assert window.decode() == DONE
    assert window.records == 0


def test_rows_are_full_exactly_at_a_batch_s_end() -> None:
    window = begun(batch(some_records(0)) + batch(some_records(3)), records=3)
    statuses = [(window.decode(), window.records) for _ in range(3)]
    assert statuses in ([(MORE, 3), (MORE, 3), (DONE, 0)], [(MORE, 3), (DONE, 3), (DONE, 0)])


def test_a_message_s_value_that_claims_too_much_is_printed_as_kafka_prints_it_and_read_by_nobody() -> None:
    """Kafka's tool prints its metadata before it dies of the value: `begin(whole)` accepts the row."""
    good = message(0, 1, b"key", b"value")
    liar = good[:33] + struct.pack(">i", 1000) + good[37:]
    liar = liar[:12] + struct.pack(">I", zlib.crc32(liar[16:])) + liar[16:]
    old = message(0, 0, b"key", b"value")
    old_liar = old[:25] + struct.pack(">i", 6) + old[29:]
    for data, claimed in (
        (liar, 1000),
        (inner(good, liar), 1000),
        (inner(liar, good), 1000),
        (old_liar, 6),
        (inner(old_liar, magic=0), 6),
    ):
        assert all_rows(begun(data))[1] == BAD_RECORD
        window = begun(data, whole=True)
        found, status = all_rows(window)
        assert status == DONE
        ((row, said, there),) = window.overlong_values()
        assert (said, there) == (claimed, 5)
        assert found[row][2:4] == (b"key", None)
        with pytest.raises(ValueError, match="claims more bytes than there are"):
            window.json_lines(0, b"", 0)
        with pytest.raises(ValueError, match="claims more bytes than there are"):
            window.csv_lines(0, b"", 0)
        with pytest.raises(ValueError, match="claims more bytes than there are"):
            window.binary(True, bytearray(4000), memoryview(bytearray(40)).cast("i"), bytearray(2))
    assert begun(good, whole=True).overlong_values() == []


# whether there is a finding, without rows


def row_path(data: bytes) -> bool:
    """Whether decoding into rows finds nothing wrong with the records of *data*."""
    window = begun(data, records=8)
    return window.decode() == DONE and not window.stray_records() and not window.bad_inner_crcs()


def test_sound_batches_are_passed_over_and_messages_are_not() -> None:
    """A sound batch needs no rows, an omitted one no look; messages are only judged by their rows."""
    data = b"".join(batch(some_records(3 * i), codec=codec) for i, codec in enumerate(compress.CODECS))
    window = begun(data + around(body(b"\xff")) + batch(some_records(30)))
    assert window.first_unsound(0, 7) == 5
    assert window.first_unsound(0, 5) == 5
    window.skip(5)
    assert window.first_unsound(0, 7) == 7
    assert window.first_unsound(7, 7) == 7
    assert begun(batch(some_records(0)) + message(3, 1, None, b"v")).first_unsound(0, 2) == 1
    with pytest.raises(IndexError):
        window.first_unsound(0, 8)


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_a_batch_is_sound_exactly_if_its_rows_are(codec: str) -> None:
    """A deep check makes rows only of faulty batches: for any changed byte, no fault may be missed."""
    records = b"".join(record(offset_delta=3 * i, key=b"k", value=b"v", headers=((b"h", b"w"),)) for i in range(3))
    judged = set()
    for at in range(len(records)):
        for flips in (0xFF, *(1 << bit for bit in range(8))):
            data = around(records[:at] + bytes((records[at] ^ flips,)) + records[at + 1 :], count=3, codec=codec)
            sound = begun(data, records=8).first_unsound(0, 1) == 1
            assert sound == row_path(data), (at, flips)
            judged.add(sound)
    assert judged == {True, False}


@pytest.mark.parametrize("count", [-1, 0, 1, 2, 3])
def test_the_number_of_records_is_part_of_being_sound(count: int) -> None:
    data = around(GOOD, LAST, count=count)
    assert (begun(data).first_unsound(0, 1) == 1) == row_path(data) == (count in (0, 2))
