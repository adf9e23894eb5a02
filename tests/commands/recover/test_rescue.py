"""Rescue: the readable records of a damaged batch are written down for people, marked, and never taken for good."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from klog.base.errors import UnreadableError
from klog.commands.dump.dump_files import dump_lines
from klog.commands.dump.dump_request import JSON_LINES, DumpRequest, DumpTarget
from klog.commands.recover.rescued_records import RescueCount, rescue
from klog.commands.recover.segment_ranges import salvage_ranges
from klog.data_dir.partition import Partition
from klog.log.json_lines import RecordOrigin
from klog.partition.repair.recover_outcome import SalvageOptions

from tests.commands.dump.sinks import Kept
from tests.commands.recover.salvaged import only, partition_of
from tests.oracles.plain.encode import Record, batch, message
from tests.oracles.plain.mutate import with_crc
from tests.oracles.plain.shapes import MS, varied_records

LARGEST = 128 << 20
A, B, C = (batch(varied_records(10 * i), leader_epoch=3, producer=(7, 1, 10 * i)) for i in range(3))


def spoiled(data: bytes, at: int = 20) -> bytes:
    """Return the batch with a byte changed that its checksum covers, or of the checksum itself."""
    return data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]


def rescued(partition: Partition) -> tuple[RescueCount, list[dict[str, object]], bytes]:
    sink = Kept()
    origin = RecordOrigin("shown", "orders", 3)
    found = rescue(partition.path, only(partition), origin, sink, LARGEST)
    assert not sink.reports
    return found, [json.loads(line) for line in sink.data.splitlines()], bytes(sink.data)


def dumped(path: Path) -> list[dict[str, object]]:
    sink = Kept()
    dump_lines([DumpTarget(str(path))], DumpRequest(output=JSON_LINES), sink)
    return [json.loads(line) for line in sink.data.splitlines()]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_are_written_as_a_dump_writes_them(tmp_path: Path, codec: str) -> None:
    """Only the checksum was hit: each record is unchanged, and has two members more."""
    middle = batch(varied_records(10), codec=codec, leader_epoch=3, producer=(7, 1, 10))
    partition = partition_of(tmp_path, _0=A + middle + C)
    (log,) = Path(partition.path).iterdir()
    expected = [line for line in dumped(log) if line["position"] == len(A)]
    assert len(expected) == 8
    broken = spoiled(middle)
    log.write_bytes(A + broken + C)
    found, lines, _ = rescued(partition)
    assert found == RescueCount(1, 8)
    stored, computed = struct.unpack(">I", broken[17:21])[0], struct.unpack(">I", middle[17:21])[0]
    for line in lines:
        assert line.pop("rescued") is True
        assert line.pop("why") == f"bad CRC: CRC-32C 0x{stored:08x}, computed 0x{computed:08x}"
    assert lines == expected


def test_what_the_damage_changed_is_written_as_it_is_now(tmp_path: Path) -> None:
    """That is why nothing of it goes back into a log."""
    broken = batch([Record(10, MS, b"k", b"balance: 100")]).replace(b"100", b"900")
    found, lines, _ = rescued(partition_of(tmp_path, _0=A + broken + C))
    assert found == RescueCount(1, 1)
    assert lines[0]["value"] == "balance: 900"


@pytest.mark.parametrize(
    "broken",
    [
        B[:61] + b"\xff" * 20 + B[81:],
        spoiled(B, 61),
        B[:-1],
        spoiled(spoiled(B), 57),
        b"\0" * len(B),
        spoiled(batch(varied_records(10), codec="gzip"), 90),
        spoiled(message(10, 1, b"k", b"v", timestamp=MS), 14),
    ],
)
def test_what_does_not_decode_wholly_gives_nothing(tmp_path: Path, broken: bytes) -> None:
    """Half a batch of records, or records of guesswork, would look like the truth."""
    found, lines, _ = rescued(partition_of(tmp_path, _0=A + broken + C))
    assert (found, lines) == (RescueCount(0, 0), [])


def test_offsets_that_others_have_give_nothing(tmp_path: Path) -> None:
    for offset in (0, 5, 15, 20, 1000, -1):
        broken = spoiled(struct.pack(">q", offset) + B[8:])
        found, _, _ = rescued(partition_of(tmp_path, _0=A + broken + C))
        assert found == RescueCount(0, 0), offset


def test_each_of_several_damaged_batches_is_rescued(tmp_path: Path) -> None:
    log = [batch(varied_records(10 * i)) for i in range(9)]
    for i in (0, 3, 4, 5, 8):
        log[i] = spoiled(log[i])
    log[4] = spoiled(log[4], 57)  # … but this one
    found, lines, _ = rescued(partition_of(tmp_path, _0=b"".join(log)))
    assert found == RescueCount(4, 32)
    assert [line["offset"] for line in lines] == [10 * i + j for i in (0, 3, 5, 8) for j in range(8)]


def test_where_damage_is_only_summed_up_nothing_intact_is_taken_for_rescued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("klog.commands.recover.kept_batches.MOST_LEFT", 2)
    monkeypatch.setattr("klog.commands.recover.segment_ranges.MOST_LEFT", 2)
    log = [batch(varied_records(10 * i)) for i in range(12)]
    log = [spoiled(one) if i % 2 else one for i, one in enumerate(log)]
    partition = partition_of(tmp_path, _0=b"".join(log))
    (segment,) = salvage_ranges(partition, SalvageOptions()).segments
    assert [cut.reason for cut in segment.cuts] == ["bad-crc", "bad-crc", "more-damage"]
    assert rescue(partition.path, segment, RecordOrigin("x"), Kept(), LARGEST) == RescueCount(2, 16)


def test_copies_and_healthy_logs_are_no_business_of_a_rescue(tmp_path: Path) -> None:
    assert rescued(partition_of(tmp_path, _0=A + B + B + C))[0] == RescueCount(0, 0)
    assert rescued(partition_of(tmp_path, _0=A + B + C))[0] == RescueCount(0, 0)


def test_a_huge_value_is_written_whole(tmp_path: Path) -> None:
    """Larger than any line that is made in one piece, and with characters that JSON must escape."""
    value = b'"\\' * (6 << 20)
    broken = spoiled(batch([Record(10, MS, b"k", value), Record(11, MS, b"k", b"v")]))
    found, lines, _ = rescued(partition_of(tmp_path, _0=A + broken + C))
    assert found == RescueCount(1, 2)
    assert str(lines[0]["value"]).encode() == value
    assert lines[1]["offset"] == 11


def test_a_log_that_is_gone_says_so(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, _0=A + spoiled(B) + C)
    segment = only(partition)
    (log,) = Path(partition.path).iterdir()
    log.unlink()
    with pytest.raises(UnreadableError):
        rescue(partition.path, segment, RecordOrigin("x"), Kept(), LARGEST)


def test_a_file_that_has_changed_since_gives_nothing_that_is_broken(tmp_path: Path) -> None:
    partition = partition_of(tmp_path, _0=A + spoiled(B) + C)
    segment = only(partition)
    (log,) = Path(partition.path).iterdir()
    for data in (b"", A, A + b"\xff" * 500, A + with_crc(B)[:100]):
        log.write_bytes(data)
        assert rescue(partition.path, segment, RecordOrigin("x"), Kept(), LARGEST) == RescueCount(0, 0)
