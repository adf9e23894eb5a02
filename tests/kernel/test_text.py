"""Lines as Kafka's dump tool prints them, and text as Java prints it."""

from __future__ import annotations

import itertools
import subprocess
import sys
from random import Random

import pytest
from klog.kernel import DONE, MORE, TEXT_BARE, TEXT_CONTENT, TEXT_LAZY, TEXT_RECORDS, Window, java_string

from tests.kernel.windows import begun, loaded, scanned
from tests.oracles.plain import dump_text, shapes
from tests.oracles.plain.compress import gzip_stream
from tests.oracles.plain.encode import BatchHeader, Record, batch, message, raw_batch, wrapper
from tests.oracles.plain.shapes import MS, some_records

DEEP = TEXT_RECORDS | TEXT_CONTENT
LOGS = {name: data for name, data in shapes.all_logs().items() if name != "KRaft"}


def text(data: bytes, flags: int = DEEP, *, output: int = 1 << 18, records: int = 8192) -> tuple[bytes, int]:
    """Return all lines of *data*, and how often the output had to be emptied."""
    window = begun(data, output=output, records=records)
    made, taken = b"", 0
    status = MORE
    while status == MORE:
        status = window.decode()
        at = 0
        while (at := window.text_lines(at, window.records, flags)) < window.records:
            made, taken = made + bytes(window.output()), taken + 1
            assert len(window.output()), "no room, and nothing to take"
            window.flushed()
    assert status == DONE
    while not window.batch_lines(window.count, flags):
        made += bytes(window.output())
        window.flushed()
    return made + bytes(window.output()), taken


@pytest.mark.parametrize("name", LOGS)
def test_every_shape_prints_as_an_independent_printer_has_it(name: str) -> None:
    data = LOGS[name]
    expected = "\n".join([*dump_text.lines(data), ""]).encode()
    assert text(data)[0] == expected
    assert text(data, output=4096, records=3)[0] == expected


def test_output_grows_for_a_line_that_is_larger_than_all_of_it() -> None:
    """Batches of many megabytes exist; a line is never cut."""
    big = [
        Record(0, MS, b"k" * 300_000, b"\xff" * 200_000),
        Record(1, MS, b"small", b"v"),
        Record(2, MS, None, "é".encode() * 99_999),
    ]
    data = batch(big) + batch(some_records(3))
    made, taken = text(data, output=2048)
    assert made == "\n".join([*dump_text.lines(data), ""]).encode()
    assert taken


def test_output_grows_for_many_header_keys() -> None:
    headers = tuple((b"\xff" * 100, None) for _ in range(5000))
    data = batch([Record(0, MS, None, None, headers), Record(1, MS, None, None, ((b"h", b"v"),))])
    assert text(data, output=2048)[0] == "\n".join([*dump_text.lines(data), ""]).encode()


_SMALL = """
from klog.kernel import Window
from tests.kernel.windows import begun
from tests.oracles.plain.encode import batch
from tests.oracles.plain.shapes import some_records
window = begun(batch(some_records(0)), output=1)
window.decode()
at = 0
while (at := window.text_lines(at, window.records, 3)) < window.records:
    window.flushed()
"""


def test_output_too_small_for_a_batch_line_grows_as_well() -> None:
    """A window may be made with next to no output; writing lines from it must still end.  In a process: it may hang."""
    path = ":".join(entry for entry in sys.path if entry)
    try:
        done = subprocess.run([sys.executable, "-c", _SMALL], env={"PYTHONPATH": path}, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        pytest.fail("text_lines of a window with one byte of output never returns")
    assert done.returncode == 0


def test_batch_lines_alone() -> None:
    data = LOGS["all magics"] + LOGS["compacted"]
    window = scanned(data)
    assert window.batch_lines(2)
    assert bytes(window.output()).count(b"\n") == 2
    assert window.batch_lines(window.count)
    expected = [line for line in dump_text.lines(data) if not line.startswith("|")]
    assert bytes(window.output()).decode().splitlines() == expected
    assert window.batch_lines(1), "they have been written"
    with pytest.raises(IndexError):
        window.batch_lines(window.count + 1)


def test_batch_lines_stop_where_output_is_full() -> None:
    window = scanned(batch(some_records(0)) * 20, output=2048)
    made = b""
    while not window.batch_lines(20):
        assert len(window.output())
        made += bytes(window.output())
        window.flushed()
    assert (made + bytes(window.output())).count(b"baseOffset: 0 lastOffset: 2 ") == 20


def test_the_head_of_a_batch_line_is_what_kafka_writes_first() -> None:
    """If Kafka's tool dies of a codec, that much has been printed."""
    data = LOGS["transaction"] + LOGS["compacted"] + LOGS["v1 gzip"]
    window = scanned(data)
    lines = [line for line in dump_text.lines(data) if not line.startswith("|")]
    for i, line in enumerate(lines):
        head = window.batch_head(i).decode()
        assert line.startswith(head + " position: ")


def test_a_batch_whose_checksum_does_not_hold_is_printed_as_invalid() -> None:
    data = batch(some_records(0))
    window = loaded(data[:-1] + bytes((data[-1] ^ 0xFF,)))
    window.scan(0)
    window.check(0, 1)
    window.batch_lines(1)
    assert bytes(window.output()).endswith(b" isvalid: false\n")


def test_metadata_without_content_and_content_without_metadata() -> None:
    data = batch([Record(0, MS, b"k", b"v"), Record(1, MS, None, b"v"), Record(2, MS, b"k", None), Record(3, MS)])
    full = [line for line in dump_text.lines(data) if line.startswith("|")]
    metadata = text(data, TEXT_RECORDS)[0].decode().splitlines()[1:]
    assert metadata == [line.partition(" key:")[0].partition(" payload:")[0] for line in full]
    bare = text(data, DEEP | TEXT_BARE)[0].decode().splitlines()[1:]
    assert bare == ["| key: k payload: v", "| payload: v", "| key: k", ""]
    assert text(data, TEXT_RECORDS | TEXT_BARE)[0].decode().splitlines()[1:] == [""] * 4


def test_a_batch_without_a_wanted_record_has_no_line_when_records_are_picked() -> None:
    window = begun(batch(some_records(0)) + batch(some_records(3)) + batch(some_records(6)))
    window.decode()
    assert window.keep(4, 5, -1, 2**62, True, None) == 1
    assert window.text_lines(0, 1, DEEP | TEXT_LAZY) == 1
    assert window.batch_lines(3, TEXT_LAZY)
    lines = bytes(window.output()).decode().splitlines()
    assert [line.split()[1] for line in lines] == ["3", "offset:"]


def test_a_batch_that_is_left_out_has_no_line() -> None:
    window = scanned(batch(some_records(0)) + batch(some_records(3)))
    window.skip(0)
    window.begin(0, 2)
    window.decode()
    window.text_lines(0, window.records, DEEP)
    assert (
        bytes(window.output()).decode().splitlines()
        == list(dump_text.lines(batch(some_records(0)) + batch(some_records(3))))[4:]
    )


def test_given_content_stands_where_key_and_payload_would() -> None:
    """The output of the decoders of internal topics, of any size."""
    data = batch(some_records(0))
    window = begun(data, output=2048)
    window.decode()
    contents = [b" key: decoded", None, b" payload: " + b"x" * 100_000]
    made, at = b"", 0
    while (at := window.text_lines(at, 3, DEEP, contents)) < 3:
        made += bytes(window.output())
        window.flushed()
    lines = (made + bytes(window.output())).decode().splitlines()
    full = list(dump_text.lines(data))
    assert lines[1] == full[1].partition(" key:")[0] + " key: decoded"
    assert lines[2] == full[2]
    assert lines[3] == full[3].partition(" key:")[0] + " payload: " + "x" * 100_000


def test_given_content_must_be_bytes_for_each_row() -> None:
    window = begun(batch(some_records(0)))
    window.decode()
    for wrong in ([b"one"], [1, 2, 3]):
        with pytest.raises((IndexError, TypeError, ValueError)):
            window.text_lines(0, 3, DEEP, wrong)  # type: ignore[arg-type]


def test_rows_that_are_not_there_cannot_be_printed() -> None:
    window = begun(batch(some_records(0)))
    window.decode()
    with pytest.raises(IndexError):
        window.text_lines(0, 4, DEEP)
    with pytest.raises(IndexError):
        window.text_lines(-1, 3, DEEP)
    assert window.text_lines(5, 3, DEEP) == 5


def test_numbers_of_any_size_are_printed_whole() -> None:
    """A damaged field has twenty digits."""
    header = BatchHeader(
        base_offset=-(2**63), leader_epoch=-(2**31), last_offset_delta=2**31 - 1, base_timestamp=-(2**63),
        max_timestamp=-(2**63), producer_id=-(2**63), producer_epoch=-(2**15), base_sequence=-(2**31),
        count=-(2**31), delete_horizon=True, transactional=True, control=True,
    )  # fmt: skip
    window = scanned(raw_batch(header, b""))
    window.batch_lines(1)
    line = bytes(window.output()).decode()
    for number in (-(2**63), -(2**31), -(2**15), -(2**63) + 2**31 - 1):
        assert f" {number} " in line or f"[{number}]" in line, number
    for value in (0, 9, 10, 99, 100, 12345, 10**18, 2**63 - 1):
        window = scanned(raw_batch(BatchHeader(base_offset=value), b""))
        window.batch_lines(1)
        assert bytes(window.output()).startswith(b"baseOffset: %d " % value)


def test_messages_tell_whether_they_are_valid_each_for_itself() -> None:
    bad = message(1, 1, b"b", b"2", crc=5)
    data = wrapper(some_records(5), 1, "gzip") + message(8, 0, None, b"v")
    assert text(data)[0].count(b"isValid: true") == 4
    window_data = message(1, 1, None, gzip_stream(message(0, 1, b"a", b"1") + bad), attributes=1)
    assert [line.split("isValid: ")[1].split()[0] for line in text(window_data)[0].decode().splitlines()[1:]] == [
        "true",
        "false",
    ]


# text as Java prints it

TELLING = bytes((0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0, 0xE1, 0xEC, 0xED,
                 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xFF))  # fmt: skip


def test_what_is_no_utf_8_becomes_what_java_makes_of_it() -> None:
    """Every sequence of up to three telling bytes, and many longer ones."""
    for length in (0, 1, 2, 3):
        for data in map(bytes, itertools.product(TELLING, repeat=length)):
            assert java_string(data).decode() == dump_text.java_text(data), data
    chance = Random(11)
    for _ in range(20_000):
        data = bytes(chance.choices(TELLING, k=chance.randrange(4, 24)))
        assert java_string(data).decode() == dump_text.java_text(data), data


def test_one_sign_stands_for_an_encoded_surrogate_cut_or_whole() -> None:
    """Python alone would write one for each byte."""
    for data, shown in (
        (b"\xed\xa0\x80", "\ufffd"),
        (b"\xed\xa0A", "\ufffdA"),
        (b"\xed\xa0", "\ufffd"),
        (b"\xed\xbf\xbf.", "\ufffd."),
    ):
        assert java_string(data).decode() == shown


def test_utf_8_stays_as_it_is_at_any_length() -> None:
    """Sixteen bytes are looked at at once where all are ASCII; the seams must not show."""
    for length in range(70):
        for char in ("a", "é", "中", "😀"):
            whole = "x" * length + char + "y" * 17
            assert java_string(whole.encode()).decode() == whole
            assert java_string(whole.encode()[:-1] + b"\xff").decode() == whole[:-1] + "\ufffd"


def test_nothing_is_nothing() -> None:
    assert java_string(b"") == b""
    assert isinstance(java_string(bytearray(b"a")), bytes)


def test_a_window_without_rows_prints_nothing() -> None:
    window = Window(10)
    assert window.text_lines(0, 0, DEEP) == 0
    assert window.batch_lines(0)
    assert len(window.output()) == 0
