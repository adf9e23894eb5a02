"""The end of a log after the next start, where an index or the order of offsets misleads the broker."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from klog.commands.doctor.broker_start import diagnose
from klog.commands.doctor.start_request import StartRequest
from klog.data_dir.log_dir import LogDir
from klog.partition.start.kept_log import NextStarts

from tests.commands.recover.like_broker import RECOVERY_POINTS, offsets
from tests.conftest import FIXTURES, run_klog, writable_copy
from tests.oracles.broker_load import Loader
from tests.support.rolled_back import data as rows
from tests.support.rolled_back import metadata, partition

INDEX = f"dense-0/{98:020}.index"
LAST_POSITION = 11306
NOW_MS = 1_780_000_000_000


@pytest.fixture(scope="module")
def loader() -> Iterator[Loader]:
    with Loader() as one:
        yield one


def lead_astray(data: Path, by: int) -> None:
    """Make the last entry of an index point to other bytes than the beginning of a batch."""
    index = bytearray((data / INDEX).read_bytes())
    index[-4:] = (LAST_POSITION + by).to_bytes(4, "big")
    (data / INDEX).write_bytes(index)


def say_a_later_offset(data: Path) -> None:
    """Make the last entry of an index name an offset behind the log end."""
    index = bytearray((data / INDEX).read_bytes())
    index[-8:-4] = (500).to_bytes(4, "big")
    (data / INDEX).write_bytes(index)


def append_an_earlier_batch(data: Path) -> None:
    """Append a copy of a batch, whose offsets and checksum are right, to a log that was not closed cleanly."""
    log = data / f"logappend-0/{0:020}.log"
    content = log.read_bytes()
    log.write_bytes(content + content[3908 : 3908 + 1752])
    (data / ".kafka_cleanshutdown").unlink()


@pytest.mark.kafka
@pytest.mark.parametrize("by", [-300, -7, 0, 1, 5, 12, 57, 300, 2000])
def test_a_start_that_an_index_leads_astray_is_that_of_kafkas_loader(by: int, loader: Loader, tmp_path: Path) -> None:
    """The log is clean, and its batches are intact: the broker believes the last entry."""
    data = writable_copy(FIXTURES / "modern", tmp_path / "data")
    lead_astray(data, by)
    compare(data, "dense-0", loader)


@pytest.mark.kafka
def test_an_index_that_names_a_later_offset(loader: Loader, tmp_path: Path) -> None:
    data = writable_copy(FIXTURES / "modern", tmp_path / "data")
    say_a_later_offset(data)
    compare(data, "dense-0", loader)


@pytest.mark.kafka
@pytest.mark.parametrize("is_clean", [False, True])
def test_a_batch_with_lower_offsets_at_the_end(is_clean: bool, loader: Loader, tmp_path: Path) -> None:
    data = writable_copy(FIXTURES / "modern", tmp_path / "data")
    append_an_earlier_batch(data)
    if is_clean:
        (data / ".kafka_cleanshutdown").touch()
    compare(data, "logappend-0", loader)


def small_log(folder: Path) -> Path:
    """Write the log of a broker that was killed: without index entries, and its last batch repeats earlier offsets."""
    metadata(folder, 0, None)
    (folder / ".kafka_cleanshutdown").unlink()
    return partition(folder, [rows(0), rows(2), rows(4), rows(2)], [(0, 0)])


@pytest.mark.kafka
def test_a_small_log_that_ends_with_lower_offsets(loader: Loader, tmp_path: Path) -> None:
    compare(tmp_path / "data", small_log(tmp_path / "data").name, loader)


def test_the_highest_offset_counts_not_the_last(tmp_path: Path) -> None:
    """The broker takes 4 for the log end: the batch of offset 4 is not served, and clients skip the one behind it."""
    path = small_log(tmp_path / "data")
    told = diagnose(StartRequest((str(tmp_path / "data"),)))
    assert [(row.directory, row.log_end, row.lost_records) for row in told.partitions if row.lost_records] == [
        (path.name, 4, 4)
    ]
    assert not told.is_harmless


def compare(data: Path, directory: str, loader: Loader) -> None:
    found = LogDir(str(data))
    kept = NextStarts().kept(found.partition(directory), found.clean_shutdown is not None)
    for path in data.iterdir():
        if path.is_dir() and path.name != directory:
            shutil.rmtree(path)
    outcome = loader.load(data, now_ms=NOW_MS)
    assert outcome.ok == (kept.fails is None), outcome
    if outcome.ok:
        assert offsets(data / RECOVERY_POINTS)[directory] == kept.log_end


@pytest.mark.parametrize(
    ("harm", "directory", "records"),
    [
        (lambda data: lead_astray(data, 12), "dense-0", 52),
        (say_a_later_offset, "dense-0", 52),
        (append_an_earlier_batch, "logappend-0", 145),
    ],
)
def test_records_that_are_on_disk_and_not_served_are_named(
    harm: object, directory: str, records: int, tmp_path: Path
) -> None:
    """`doctor` names them, and `recover --like-broker`, which leaves them where they are."""
    data = writable_copy(FIXTURES / "modern", tmp_path / "data")
    assert callable(harm)
    harm(data)
    told = diagnose(StartRequest((str(data),)))
    lost = {row.directory: row.lost_records for row in told.partitions if row.lost_records}
    assert (lost, told.is_harmless) == ({directory: records}, False)
    plan = run_klog("recover", data / directory, "--like-broker")
    assert f"; loses {records} records ({directory}, offsets " in plan.stdout.decode().splitlines()[0]
    assert plan.exit_code == 4


def test_a_rebuilt_index_brings_the_records_back(tmp_path: Path) -> None:
    data = writable_copy(FIXTURES / "modern", tmp_path / "data")
    lead_astray(data, 12)
    assert run_klog("recover", data / "dense-0", "--apply").exit_code == 1
    assert diagnose(StartRequest((str(data),))).is_harmless
