"""Any size of slices gives the same records and the same damage, also where a log is wrecked on purpose."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest
from klog.base.read_only import ReadOnlyFile
from klog.data_dir.partition import Partition
from klog.jobs import slices
from klog.jobs.slices import slice_partition
from klog.jobs.spark_rows import RowQuery, read, schema
from klog.log import reader
from klog.partition.transactions.isolation import Isolation

from tests.conftest import FIXTURES
from tests.oracles.plain import encode
from tests.oracles.plain.encode import Record
from tests.oracles.plain.shapes import MS

SPLITS = (4 << 10, 10_000, 64 << 10, 300_000, 1 << 20)
WHOLE = 1 << 40
COLUMNS = ("key", "value", "offset", "producer_id", "position", "damage")
TOPICS = (
    "modern/plain-1",
    "modern/dense-0",
    "modern/idempotent-0",
    "modern/gzip-0",
    "modern/zstd-0",
    "modern/lz4-broker-0",
    "modern/tx-0",
    "legacy/v0-none-0",
    "legacy/v0-gzip-0",
    "legacy/v1-lz4-0",
    "legacy/changing-0",
    "legacy/v1-none-0",
)


def starts(log: bytes | bytearray) -> list[int]:
    """Return where the batches of *log* begin, as far as their sizes lead."""
    found, position = [], 0
    while position + 17 <= len(log):
        size = 12 + int(struct.unpack_from(">i", log, position + 8)[0])
        if size < 26:
            break
        found.append(position)
        position += size
    return found


def flip(chance: Random, log: bytearray) -> None:
    for _ in range(chance.choice((1, 3, 40))):
        log[chance.randrange(len(log))] ^= 1 << chance.randrange(8)


def cut(chance: Random, log: bytearray) -> None:
    del log[chance.randrange(len(log) // 2, len(log)) :]


def remove(chance: Random, log: bytearray) -> None:
    at = chance.randrange(len(log))
    del log[at : at + chance.choice((1, 7, 100, 5000))]


def repeat(chance: Random, log: bytearray) -> None:
    """Batches that were there come again: offsets go backwards."""
    places = [*starts(log), len(log)]
    first, end = sorted(chance.choices(places, k=2))
    at = chance.choice(places)
    log[at:at] = log[first:end][: 1 << 20]


def repeat_bytes(chance: Random, log: bytearray) -> None:
    first, at = chance.randrange(len(log)), chance.randrange(len(log))
    log[at:at] = log[first : first + chance.choice((10, 300, 20_000))]


def zero(chance: Random, log: bytearray) -> None:
    at = chance.randrange(len(log))
    size = min(chance.choice((1, 61, 4096, 70_000)), len(log) - at)
    log[at : at + size] = bytes(size)


def forge_length(chance: Random, log: bytearray) -> None:
    """A size that is wrong: it leads anywhere, into another batch, or just in front of one."""
    places = starts(log)
    for at in chance.choices(places, k=chance.choice((1, 4)) if places else 0):
        later = chance.choice([place for place in places if place >= at])
        size = chance.choice((later - at - 12, later - at - 12, chance.randrange(-5, 1 << 17), 1 << 30, 14))
        struct.pack_into(">i", log, at + 8, size)


def forge_header(chance: Random, log: bytearray) -> None:
    """Overwritten but for its size: the walk continues behind it."""
    places = starts(log)
    for at in chance.choices(places, k=chance.choice((1, 1, 5)) if places else 0):
        place = at + chance.choice((0, 4, 16, 17, 21, 23))
        log[place : place + 4] = chance.randbytes(len(log[place : place + 4]))


def break_first(chance: Random, log: bytearray) -> None:
    """The batch at the very start: nothing is in front of it to hold others against."""
    places = [*starts(log), len(log)]
    log[chance.randrange(17, max(places[:2][-1], 18))] ^= 0xFF


def break_all(chance: Random, log: bytearray) -> None:
    """A stretch of batches, none of which is intact: more of them than a window has."""
    places = starts(log)
    first, end = sorted(chance.choices(range(len(places) + 1), k=2))
    for at in places[first:end]:
        log[min(at + 30, len(log) - 1)] ^= 0xFF


def swallow(chance: Random, log: bytearray) -> None:
    """Whole batches as the value of one whose checksum fails, as anybody may write them."""
    places = [*starts(log), len(log)]
    first, end = sorted(chance.choices(places, k=2))
    at = chance.choice(places)
    host = bytearray(encode.batch([Record(chance.randrange(2000), MS, b"k", bytes(log[first:end][: 1 << 19]))]))
    host[30] ^= chance.choice((0, 0xFF, 0xFF))
    log[at:at] = host


WAYS: tuple[Callable[[Random, bytearray], None], ...] = (
    flip,
    cut,
    remove,
    repeat,
    repeat_bytes,
    zero,
    forge_length,
    forge_header,
    break_first,
    break_all,
    swallow,
)


def wreck(seed: int, folder: Path) -> str:
    """Make a wrecked partition of some segments of a real one, as *folder*; return its damage."""
    chance = Random(seed)
    origin = FIXTURES / chance.choice(TOPICS)
    folder.mkdir()
    for file in origin.iterdir():
        if file.suffix in (".log", ".index", ".txnindex", ".snapshot"):
            (folder / file.name).write_bytes(file.read_bytes())
    logs = sorted(folder.glob("*.log"))
    larger = chance.random() < 0.5
    for path in chance.choices(logs, k=chance.choice((1, 2))):
        log = bytearray(path.read_bytes())
        while larger and 0 < len(log) < 200_000:
            log += bytes(log)
        for way in chance.choices(WAYS, k=chance.choice((1, 1, 2, 3, 5))):
            if len(log) > 100:
                way(chance, log)
        path.write_bytes(log)
    return f"seed {seed}: {origin.name}"


def table(folder: Path, split: int, isolation: Isolation) -> pa.Table:
    query = RowQuery(COLUMNS, isolation=isolation, damage="column")
    unit = slice_partition(Partition(str(folder)), split, query.wanted, isolation)
    return pa.Table.from_batches(list(read(unit, query)), schema(COLUMNS))


def differences(folder: Path) -> list[str]:
    """Yield the slices whose result differs from the whole's."""
    found = []
    isolations: tuple[Isolation, ...] = ("read_uncommitted", "read_committed")
    for isolation in isolations:
        whole = table(folder, WHOLE, isolation)
        for split in SPLITS:
            parts = table(folder, split, isolation)
            if not parts.equals(whole):
                found.append(f"{isolation} in slices of {split}: {parts.num_rows} rows, {whole.num_rows} in one")
    return found


@pytest.fixture(params=["windows as they are", "small windows"])
def windows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones end within damage as they would in logs of gigabytes, where indexes propose the cuts."""
    if request.param == "small windows":
        small_windows(monkeypatch)


def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("FIRST_WINDOW", 1), ("WINDOW", 4), ("LARGE_WINDOW", 16), ("REACH", 16)):
        monkeypatch.setattr(reader, f"{name}_BYTES", size << 10)
    monkeypatch.setattr(slices, "CONFIRM_BYTES", 16 << 10)
    monkeypatch.setattr(slices, "_INDEX_PAYS", 0)


@pytest.mark.usefixtures("windows")
@pytest.mark.parametrize("first", [0, 10, *(pytest.param(first, marks=pytest.mark.long) for first in (20, 30))])
def test_wrecked_logs_read_the_same_in_slices_of_any_size(first: int, tmp_path: Path) -> None:
    """A record that is there with one size and not with another is lost, or is there twice."""
    for seed in range(first, first + 10):
        what = wreck(seed, tmp_path / f"{seed}-0")
        assert not differences(tmp_path / f"{seed}-0"), what


def test_broken_batches_around_whole_ones_are_not_read_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each leads to another broken one, for megabytes: the part in reach from one is not read anew for the next."""
    image = encode.batch([Record(7, MS, None, bytes(5))])
    one = bytearray(image[:61]) + image  # ends where the other does
    struct.pack_into(">i", one, 8, len(one) - 12)
    folder = tmp_path / "orders-0"
    folder.mkdir()
    (folder / f"{0:020}.log").write_bytes(one * 3000)
    monkeypatch.setattr(reader, "REACH_BYTES", 128 << 10)
    total = 0
    original = ReadOnlyFile.read_into

    def counted(source: ReadOnlyFile, position: int, view: memoryview) -> int:
        nonlocal total
        total += (size := original(source, position, view))
        return size

    monkeypatch.setattr(ReadOnlyFile, "read_into", counted)
    found = table(folder, WHOLE, "read_uncommitted")
    assert found["damage"].null_count > 1000
    assert total < 3000 * 40_000


def test_transactions_that_come_again_are_hidden_in_slices_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slice then has offsets of others, whose aborts none of its own markers shows."""
    monkeypatch.setattr("tests.jobs.test_split_points.TOPICS", ("modern/tx-0",))
    monkeypatch.setattr("tests.jobs.test_split_points.WAYS", (repeat,))
    for seed in range(8):
        what = wreck(seed, tmp_path / f"{seed}-0")
        assert not differences(tmp_path / f"{seed}-0"), what


@pytest.mark.long
@pytest.mark.usefixtures("windows")
def test_a_thousand_wrecked_logs_read_the_same_in_slices_of_any_size(tmp_path: Path) -> None:
    """Remaining mistakes would be rare."""
    for seed in range(1000, 2000):
        what = wreck(seed, tmp_path / f"{seed}-0")
        assert not differences(tmp_path / f"{seed}-0"), what
        shutil.rmtree(tmp_path / f"{seed}-0")
