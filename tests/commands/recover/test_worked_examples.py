"""The examples that the project was given, where a repair has to come to the same numbers."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from klog.formats.producer_snapshot import Producer, read_snapshot
from klog.kernel import crc32c

from tests.conftest import Ran
from tests.oracles.plain.encode import Record
from tests.support.lookup_logs import MS, batches_of, of_records, write_segment

Klog = Callable[..., Ran]
ENTRIES = [(54, 4158), (108, 8316), (162, 12474), (216, 16632), (270, 20790), (324, 24948), (378, 29106), (432, 33264)]
ENTRIES += [(486, 37422)]
NOW = "--now=2023-11-14T23:00:00Z"
"""Three quarters of an hour after the records were written."""


def log_dir_of(folder: Path, batches: Sequence[tuple[int, int, bytes]]) -> Path:
    """Make a log dir with one partition, whose log has *batches* and whose indexes are as an append makes them."""
    partition = folder / "data" / "orders-3"
    partition.mkdir(parents=True)
    (folder / "data" / "meta.properties").touch()
    write_segment(partition, 0, batches)
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    return folder / "data"


def offset_index(log_dir: Path) -> list[tuple[int, int]]:
    content = (log_dir / "orders-3" / f"{0:020}.index").read_bytes()
    return list(struct.iter_unpack(">ii", content))


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """500 batches of one record, 77 bytes each."""
    return log_dir_of(tmp_path, batches_of((offset, offset, 77) for offset in range(500)))


@pytest.mark.parametrize("harm", ["missing", "ragged", "flipped", "of another log"])
@pytest.mark.parametrize("way", [(), ("--indexes-only",), ("--like-broker",), ("--salvage",)], ids=" ".join)
def test_4_a_repaired_index_has_the_entries_of_an_append(
    klog: Klog, real: Path, way: tuple[str, ...], harm: str
) -> None:
    """Whoever compares it with a replica's finds no difference."""
    path = real / "orders-3" / f"{0:020}.index"
    times = path.with_suffix(".timeindex").read_bytes()
    assert offset_index(real) == ENTRIES
    content = path.read_bytes()
    harmed = {
        "ragged": content[:20],
        "flipped": content[:4] + bytes([content[4] ^ 0x40]) + content[5:],
        "of another log": struct.pack(">ii", 1, 5_000_000),
    }
    if harm == "missing":
        path.unlink()
        path.with_suffix(".timeindex").unlink()
    else:
        path.write_bytes(harmed[harm])
    assert klog("recover", real, *way, NOW, "--apply").exit_code == 1
    assert offset_index(real) == ENTRIES
    assert path.with_suffix(".timeindex").read_bytes() == times
    assert klog("recover", real, *way, NOW).stdout == b"1 partition: nothing to do\n"


def test_4_a_torn_log_keeps_the_entries_of_what_is_left(klog: Klog, real: Path) -> None:
    """The batch that the last entry leads to is torn: the entry goes with it."""
    log = real / "orders-3" / f"{0:020}.log"
    log.write_bytes(log.read_bytes()[: 37422 + 76])
    assert klog("recover", real, NOW, "--apply").exit_code == 1
    assert log.stat().st_size == 37422 == 486 * 77
    assert offset_index(real) == ENTRIES[:-1]


@pytest.mark.parametrize(("to_offset", "left"), [(487, 9), (486, 8), (485, 8), (271, 5), (270, 4), (54, 0), (0, 0)])
def test_4_a_cut_log_keeps_the_entries_of_what_is_left(klog: Klog, real: Path, to_offset: int, left: int) -> None:
    done = klog("truncate", real / "orders-3", "--to-offset", str(to_offset), NOW, "--apply")
    assert done.exit_code == 0
    assert offset_index(real) == ENTRIES[:left]
    assert (real / "orders-3" / f"{0:020}.log").stat().st_size == 77 * to_offset


def sent(*batches: tuple[int, int, int], producer: int = 9001) -> list[tuple[int, int, bytes]]:
    """Return batches of (first offset, first sequence, records) of one producer."""
    made = []
    for offset, sequence, count in batches:
        records = [Record(offset + i, MS + offset + i, None, b"v") for i in range(count)]
        made += of_records([records], producer=(producer, 0, sequence))
    return made


def audit(klog: Klog, log_dir: Path) -> list[tuple[str, int, str]]:
    """Return the findings of `klog verify` about sequences: id, offset, message."""
    found = json.loads(klog("verify", "--deep", log_dir, "--output", "json").stdout)["findings"]
    return [(one["id"], one["offset"], one["message"]) for one in found if one["id"].startswith("sequence")]


def producers_at(log_dir: Path, offset: int) -> tuple[Producer, ...]:
    return read_snapshot((log_dir / "orders-3" / f"{offset:020}.snapshot").read_bytes(), crc32c).producers


def test_9_sequences_that_rise_from_zero_are_in_order(klog: Klog, tmp_path: Path) -> None:
    """And a repair hands the broker the last one: the producer's next batch is neither a duplicate nor a gap."""
    log_dir = log_dir_of(tmp_path, sent((0, 0, 10), (10, 10, 5), (15, 15, 1), (16, 16, 4)))
    assert audit(klog, log_dir) == []
    (log_dir / "orders-3" / f"{20:020}.snapshot").write_bytes(b"damaged")
    assert klog("recover", log_dir, NOW, "--apply").exit_code == 1
    (producer,) = producers_at(log_dir, 20)
    assert (producer.producer_id, producer.producer_epoch) == (9001, 0)
    assert (producer.last_sequence, producer.last_offset, producer.offset_delta) == (19, 19, 3)


def test_9_a_gap_is_out_of_order_and_no_repair_closes_it(klog: Klog, tmp_path: Path) -> None:
    """The missing part exists nowhere else; the broker continues from the rest."""
    log_dir = log_dir_of(tmp_path, sent((0, 0, 10), (10, 15, 5), (15, 20, 5)))
    assert audit(klog, log_dir) == [("sequence-gap", 10, "producer 9001 continues with 15, expected 10")]
    assert klog("verify", log_dir).exit_code == 4
    (log_dir / "orders-3" / f"{20:020}.snapshot").write_bytes(b"damaged")
    assert klog("recover", log_dir, NOW, "--apply").exit_code == 1
    assert [one.last_sequence for one in producers_at(log_dir, 20)] == [24]
    assert klog("recover", log_dir, NOW).stdout == b"1 partition: nothing to do\n"
    assert [found[0] for found in audit(klog, log_dir)] == ["sequence-gap"]


def test_9_a_duplicate_is_no_gap(klog: Klog, tmp_path: Path) -> None:
    """A batch with the sequences of one of the last five is a retry that was appended twice; an older one goes back."""
    first = [(n, n, 1) for n in range(6)]
    log_dir = log_dir_of(tmp_path, sent(*first, (6, 1, 1), (7, 2, 1)))
    assert audit(klog, log_dir) == []


def test_9_a_cut_takes_the_producer_back_to_its_last_batch(klog: Klog, tmp_path: Path) -> None:
    log_dir = log_dir_of(tmp_path, sent((0, 0, 10), (10, 10, 5), (15, 15, 1), (16, 16, 4)))
    assert klog("truncate", log_dir / "orders-3", "--to-offset", "17", NOW, "--apply").exit_code == 0
    (producer,) = producers_at(log_dir, 16)
    assert (producer.last_sequence, producer.last_offset, producer.offset_delta) == (15, 15, 0)
