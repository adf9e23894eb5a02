"""The job that counts, against the plain decoder's records counted by hand."""

from __future__ import annotations

import os
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.jobs import stats as module
from klog.jobs.slices import LogSlice, slice_partition
from klog.jobs.stats import Stats, StatsMerger, StatsOptions, stats

from tests.conftest import FIXTURES
from tests.oracles.plain import decode
from tests.partition.verify.partitions import Damageable, flipped

OPTIONS = StatsOptions(b"0123456789abcdef")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def counted(units: Sequence[Sequence[LogSlice | str]], partitions: Sequence[Partition]) -> list[Stats]:
    sent = [pickle.loads(pickle.dumps(unit)) for unit in units]
    merger = StatsMerger(partitions)
    for unit in sent:
        for result in stats(unit, OPTIONS):
            merger.take(result)
    return merger.merged()


def by_hand(partition: Partition) -> tuple[object, ...]:
    """Count exact figures."""
    start = partition.log_start_offset or 0
    batches = [
        batch
        for files in partition.segments
        for batch in decode.scan((Path(partition.path) / files.log).read_bytes())
        if isinstance(batch, decode.Batch)
    ]
    records = [(batch, record) for batch in batches for record in batch.records if record.offset >= start]
    data = [record for batch, record in records if not batch.control]
    times = [record.timestamp for record in data]
    return (
        len(data),
        len(records) - len(data),
        sum(record.key is None for record in data),
        sum(record.value is None for record in data),
        dict(Counter(CODECS[batch.codec] for batch, _ in records if not batch.control)),
        min(times, default=None),
        max(times, default=None),
        min((record.offset for record in data), default=None),
        max((record.offset for record in data), default=None),
        {record.key for record in data} - {None},
    )


PARTITIONS = LogDir(str(FIXTURES / "modern")).partitions


@pytest.mark.parametrize("partition", PARTITIONS, ids=lambda partition: partition.directory)
@pytest.mark.parametrize("split_bytes", [4 << 10, 64 << 20])
def test_counts_are_those_of_the_plain_decoder(partition: Partition, split_bytes: int) -> None:
    """However a partition is cut, and whoever counts which part of it."""
    parts = slice_partition(partition, split_bytes)
    (found,) = counted([parts[::2], parts[1::2]], [partition])
    *exact, keys = by_hand(partition)
    assert (
        found.records, found.markers, found.null_keys, found.null_values, found.codecs,
        found.first_timestamp, found.last_timestamp, found.first_offset, found.last_offset,
    ) == tuple(exact)  # fmt: skip
    assert isinstance(keys, set)
    assert abs(found.keys - len(keys)) <= max(1, 0.03 * len(keys))
    assert (found.topic, found.partition, found.damages) == (partition.topic, partition.number, 0)
    assert found.bytes == sum(part.bytes for part in parts)
    assert len(found.largest) == min(10, found.records)


def test_frequent_keys_and_large_records_are_the_true_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SENT_KEYS", 1000)
    partition = LogDir(str(FIXTURES / "modern")).partition("zstd-0")
    parts = slice_partition(partition, 4 << 10)
    (found,) = counted([[part] for part in parts], [partition])
    log = (FIXTURES / "modern" / "zstd-0" / f"{0:020}.log").read_bytes()
    records = [record for batch in decode.scan(log) if isinstance(batch, decode.Batch) for record in batch.records]
    truth = Counter(record.key for record in records if record.key is not None)
    assert {key.more for key in found.top_keys} == {0}
    assert [key.records for key in found.top_keys] == [count for _, count in truth.most_common(10)]
    assert all(truth[key.start] == key.records for key in found.top_keys)
    first = max(records, key=lambda record: len(record.value or b""))
    assert found.largest[0].offset == first.offset
    assert found.largest[0].bytes > len(first.value or b"")
    assert [large.bytes for large in found.largest] == sorted((large.bytes for large in found.largest), reverse=True)


def test_partitions_in_one_unit_stay_apart() -> None:
    partitions = PARTITIONS
    alone = [counted([slice_partition(partition)], [partition])[0] for partition in partitions]
    together = counted([[part for partition in partitions for part in slice_partition(partition)]], partitions)
    assert together == alone
    # Hashes decide which of many equally frequent keys are shown.
    paths = counted([[partition.path for partition in partitions]], partitions)
    assert [one._replace(top_keys=()) for one in paths] == [one._replace(top_keys=()) for one in alone]
    assert [[key.records for key in one.top_keys] for one in paths] == [
        [key.records for key in one.top_keys] for one in alone
    ]


def test_what_is_not_known_of_a_frequent_key_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of a partition reports only so many keys: the others have at most as many records as the last."""
    monkeypatch.setattr(module, "_SENT_KEYS", 3)
    partition = LogDir(str(FIXTURES / "modern")).partition("idempotent-0")
    (found,) = counted([[part] for part in slice_partition(partition, 4 << 10)], [partition])
    truth: Counter[bytes | None] = Counter()
    for files in partition.segments:
        for batch in decode.scan((Path(partition.path) / files.log).read_bytes()):
            truth.update(record.key for record in batch.records if isinstance(batch, decode.Batch))
    assert any(truth[key.start] > key.records for key in found.top_keys)
    assert all(key.records <= truth[key.start] <= key.records + key.more for key in found.top_keys)


def test_damage_is_counted_and_told_and_what_is_around_it_counts(tmp_path: Path) -> None:
    damageable = Damageable(tmp_path, "idempotent-0")
    damageable.change("idempotent-0/00000000000000000375.log", flipped(100))
    partition = Partition(str(tmp_path / "idempotent-0"))
    (found,) = counted([slice_partition(partition)], [partition])
    assert found.damages == len(found.damage) == 1
    assert "00000000000000000375.log @ 0 (offset " in found.damage[0]
    intact = LogDir(str(FIXTURES / "modern")).partition("idempotent-0")
    (whole,) = counted([slice_partition(intact)], [intact])
    assert 0 < whole.records - found.records < 100


@pytest.mark.parametrize(
    "gone", [lambda path: path.rename(path.parent / "elsewhere"), lambda path: (path / f"{0:020}.log").unlink()]
)
def test_what_vanishes_before_it_is_counted_is_damage(tmp_path: Path, gone: Callable[[Path], object]) -> None:
    """Files are created and deleted while a fleet is read; the other partitions' numbers still count."""
    Damageable(tmp_path, "zstd-0", "plain-1")
    partitions = LogDir(str(tmp_path)).partitions
    parts = [part for partition in partitions for part in slice_partition(partition)]
    gone(tmp_path / "zstd-0")
    plain, zstd = counted([parts], partitions)
    assert (plain.records, plain.damages) == (113, 0)
    assert (zstd.records, zstd.damages) == (0, 1)
    assert "zstd-0" in zstd.damage[0]


def test_a_directory_that_was_never_there_is_damage_of_its_own(tmp_path: Path) -> None:
    partition = Partition(str(tmp_path / "gone-0"))
    (found,) = counted([slice_partition(partition)], [partition])
    assert (found.path, found.records, found.damages) == (str(tmp_path / "gone-0"), 0, 1)


def test_the_same_logs_have_the_same_secret_and_others_another(tmp_path: Path) -> None:
    """Else two runs would disagree about the number of keys, and about which of equally frequent ones are shown."""
    shutil.copytree(FIXTURES / "modern", tmp_path / "copy")

    def secret(folder: Path) -> bytes:
        return StatsOptions.of(LogDir(str(folder)).partitions, 1 << 20).secret

    assert secret(FIXTURES / "modern") == secret(tmp_path / "copy")
    log = next(iter((tmp_path / "copy").glob("zstd-0/*.log")))
    os.utime(log, ns=(0, log.stat().st_mtime_ns + 1))
    assert secret(FIXTURES / "modern") != secret(tmp_path / "copy")
