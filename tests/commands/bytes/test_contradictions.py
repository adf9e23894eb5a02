"""Each contradiction inside of a batch whose checksum matches: the field that has it, and its words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from klog.commands.bytes.byte_view import ByteChoice

from tests.commands.bytes.covering import fields_of
from tests.conftest import FIXTURES, writable_copy
from tests.oracles.plain import compress
from tests.oracles.plain.encode import BatchHeader, message, raw_batch, record

ONE = BatchHeader(count=1, base_timestamp=10, max_timestamp=10)
TWO = replace(ONE, count=2, last_offset_delta=1)
GOOD = record(key=b"k", value=b"v")
SECOND = record(offset_delta=1, key=b"k", value=b"v")
CASES: dict[str, tuple[bytes, str, str]] = {
    "a negative count": (raw_batch(replace(ONE, count=-1), GOOD), "records_count", "a count of -1"),
    "more records than offsets": (raw_batch(replace(ONE, count=2), GOOD), "records_count", "of the batch are 1"),
    "a negative delta": (raw_batch(replace(ONE, last_offset_delta=-1), GOOD), "last_offset_delta", "below zero"),
    "an unknown codec": (raw_batch(replace(ONE, codec=5), GOOD), "attributes", "no such codec"),
    "no records": (raw_batch(ONE, b""), "records_count", "the batch has 0"),
    "fewer records": (raw_batch(TWO, GOOD), "headers", "the header counts 2 records, the batch has 1"),
    "more bytes": (raw_batch(ONE, GOOD + b"\0\0"), "bytes", "bytes behind the last record"),
    "an offset outside": (raw_batch(ONE, SECOND), "offset_delta", "the offsets of the batch are 0–0"),
    "an offset twice": (raw_batch(TWO, GOOD + GOOD), "offset_delta", "not above that of the record before it"),
    "a late record": (raw_batch(ONE, record(timestamp_delta=1)), "timestamp_delta", "later than the max timestamp"),
    "a long record": (raw_batch(ONE, record(length=99)), "length", "a length of 99, but only 6 left"),
    "a short record": (raw_batch(ONE, record(length=1)), "length", "its fields take more"),
    "a record with a rest": (raw_batch(ONE, record(length=8) + b"\0\0"), "bytes", "behind the last field"),
    "a long key": (raw_batch(ONE, b"\x0e\0\0\0\x7e\0\0\0"), "bytes", "a length of 63, but only"),
    "a broken stream": (raw_batch(replace(ONE, codec=4), b"zstd"), "records", "cannot be decompressed: zstd"),
    "a wrong checksum": (raw_batch(ONE, GOOD, crc=1), "crc", "computed 0x"),
    "an epoch that falls": (
        raw_batch(replace(ONE, leader_epoch=3), GOOD) + raw_batch(replace(ONE, base_offset=1), GOOD),
        "leader_epoch", "lower than 3"),
    "offsets that go back": (raw_batch(replace(ONE, base_offset=5), GOOD) + raw_batch(ONE, GOOD), "base_offset", "5"),
    "a wrapper in a wrapper": (
        message(1, 1, None, compress.gzip_stream(message(0, 1, None, b"x", timestamp=1, attributes=1)), timestamp=1,
                attributes=1),
        "attributes", "a message in a wrapper is not compressed itself"),
    "an empty wrapper": (message(1, 1, None, b"", timestamp=1, attributes=1), "value_length", "without messages"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_contradiction_is_marked_at_its_field(name: str, tmp_path: Path) -> None:
    """And the same bytes without it have no problem: `test_coverage` shows that for all fixtures."""
    content, field, words = CASES[name]
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(content)
    found = [(one.field.name, one.field.problem) for one in fields_of(path) if one.field.problem]
    assert any(at == field and words in problem for at, problem in found if problem), found


def test_a_batch_without_a_fault_has_none(tmp_path: Path) -> None:
    """The batches that the cases above are made of."""
    path = tmp_path / "t-0" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(raw_batch(TWO, GOOD + SECOND) + raw_batch(replace(ONE, base_offset=2, leader_epoch=1), GOOD))
    assert [one.field.problem for one in fields_of(path) if one.field.problem] == []


def test_a_batch_that_contradicts_the_ones_before_it_is_marked(tmp_path: Path) -> None:
    """Bytes of the file and of the one batch: the batch before it, of the same producer, is cut out."""
    folder = writable_copy(FIXTURES / "modern/plain-1", tmp_path / "plain-1")
    log = folder / "00000000000000000000.log"
    content = log.read_bytes()
    log.write_bytes(content[:6392] + content[6392 + 621 :])
    for choice in (ByteChoice(), ByteChoice(position=6392)):
        found = [one.field for one in fields_of(log, choice) if one.field.problem and not one.inside]
        assert found[0].position == 6392
        assert "68–76 are missing (offset-gap)" in str(found[0].problem)


def test_an_entry_without_a_marker_is_marked(tmp_path: Path) -> None:
    """An entry of `.txnindex` that says another beginning of its transaction than the log."""
    folder = writable_copy(FIXTURES / "modern/tx-0", tmp_path / "tx-0")
    index = next(path for path in sorted(folder.glob("*.txnindex")) if path.stat().st_size)
    content = bytearray(index.read_bytes())
    content[17] ^= 1
    index.write_bytes(content)
    found = [one.field.problem for one in fields_of(index) if one.field.problem]
    assert len(found) == 1
    assert "(txn-index-disagrees)" in str(found[0])
