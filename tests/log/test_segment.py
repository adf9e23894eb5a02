"""The library: segments, their batches, their records."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path

import klog
import pytest
from klog.base.errors import KlogError, NotKafkaError, UnreadableError
from klog.formats.codec import Decompressor
from klog.formats.damage import Damage, DamageKind
from klog.formats.record import Record
from klog.log.segment import MAX_RELATIVE_OFFSET, Batch, BatchTotals, Segment

from tests.kernel.windows import plain_batches
from tests.oracles.plain import shapes
from tests.oracles.plain.decode import sequence_after
from tests.oracles.plain.encode import BatchHeader, batch, message, raw_batch, record
from tests.oracles.plain.shapes import MS, some_records

LOGS = shapes.all_logs()
BASE = 1000
A, B, C, D = (batch(some_records(BASE + 3 * i)) for i in range(4))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / f"{BASE:020}.log"


def batches(path: Path, data: bytes) -> list[Batch]:
    path.write_bytes(data)
    found = list(Segment(str(path)).batches())
    assert all(isinstance(part, Batch) for part in found), found
    return [part for part in found if isinstance(part, Batch)]


# its name


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("00000000000000001841.log", 1841),
        ("00000000000000000000.log", 0),
        ("5.log", 5),
        ("00000000000000001841.log.deleted", 1841),
        ("00000000000000000312-0000000007.checkpoint", None),
        ("09223372036854775807.log", 2**63 - 1),
        ("09223372036854775808.log", None),
        ("copy of 5.log", None),
        ("-5.log", None),
        ("٣.log", None),
        (".log", None),
    ],
)
def test_a_segment_s_name_is_its_base_offset(name: str, base: int | None) -> None:
    """Any other name shows no base offset, and any offset may be in it."""
    segment = Segment(f"somewhere/{name}")
    assert segment.base_offset == base
    if base is None:
        assert (segment.span.min_offset, segment.span.max_offset) == (0, 2**63 - 1)
    else:
        assert (segment.span.min_offset, segment.span.max_offset) == (base, min(base + MAX_RELATIVE_OFFSET, 2**63 - 1))


# its batches


@pytest.mark.parametrize("name", LOGS)
def test_a_batch_answers_for_each_of_its_fields(path: Path, name: str) -> None:
    for found, plain in zip(batches(path, LOGS[name]), plain_batches(LOGS[name]), strict=True):
        assert (found.position, found.size, found.magic) == (plain.position, plain.size, plain.magic)
        assert found.codec == ("none", "gzip", "snappy", "lz4", "zstd")[plain.codec]
        assert (found.crc_checked, found.crc_holds, found.crc) == (True, True, plain.crc)
        assert (found.is_control, found.is_transactional) == (plain.control, plain.transactional)
        assert found.timestamp_type == (plain.timestamp_type if plain.magic else None)
        assert found.delete_horizon_ms == plain.delete_horizon_ms
        steps = plain.last_offset - plain.base_offset
        assert found.last_sequence == (-1 if plain.base_sequence == -1 else sequence_after(plain.base_sequence, steps))
        assert found.content() == LOGS[name][plain.position : plain.position + plain.size]
        assert found.file == str(path)


@pytest.mark.parametrize("name", LOGS)
def test_records_are_what_an_independent_decoder_reads(path: Path, name: str) -> None:
    for found, plain in zip(batches(path, LOGS[name]), plain_batches(LOGS[name]), strict=True):
        assert list(found.records()) == [
            Record(r.offset, r.timestamp, r.key, r.value, r.headers, r.sequence) for r in plain.records
        ]


def test_batches_can_be_kept_and_read_in_turns(path: Path) -> None:
    """Each holds its own data; reading one does not disturb another, nor does the file's disappearance."""
    data = b"".join(batch(some_records(10 * i, 10), codec=codec) for i, codec in enumerate(("none", "lz4", "zstd")))
    kept = batches(path, data * 400)
    path.unlink()
    iterators = [found.records(Decompressor()) for found in (*kept[:3], kept[-1], kept[-1])]
    for step in range(10):
        offsets = [next(records).offset for records in iterators]  # type: ignore[union-attr]
        assert offsets == [step, 10 + step, 20 + step, 20 + step, 20 + step]


def test_one_decompressor_serves_all_batches(path: Path) -> None:
    decompressor = Decompressor(1000)
    small, large = batch(some_records(BASE), codec="gzip"), batch(some_records(BASE + 3, 100, words=9), codec="gzip")
    (first, second, third) = batches(path, small + large + small)
    assert len(list(first.records(decompressor))) == 3
    (damage,) = second.records(decompressor)
    assert isinstance(damage, Damage)
    assert (damage.kind, damage.place.position) == (DamageKind.BAD_COMPRESSION, len(small))
    assert "more than 1000 bytes" in damage.detail
    assert len(list(third.records(decompressor))) == 3


def test_records_end_with_what_is_broken(path: Path) -> None:
    header = BatchHeader(base_offset=BASE, last_offset_delta=9, base_timestamp=MS, count=3)
    good = record(offset_delta=0, value=b"v")
    for payload, count, kept, said in (
        (good + good + record(length=99), 3, 2, "record 2 of the batch: its structure is broken"),
        (good + good + good, 2, 1, "record 1 of the batch: more or fewer bytes than the records take"),
        (good, -1, 0, "record 0 of the batch: more or fewer bytes than the records take"),
    ):
        (found,) = batches(path, raw_batch(replace(header, count=count), payload))
        *records, damage = found.records()
        assert all(isinstance(one, Record) for one in records)
        assert len(records) == kept
        assert isinstance(damage, Damage)
        assert (damage.kind, damage.detail, damage.size) == (DamageKind.BAD_RECORD, said, found.size)
        assert str(damage).startswith(f"{path} @ 0 (offset {BASE}): bad record: ")


def test_a_codec_that_does_not_exist_has_a_name_all_the_same(path: Path) -> None:
    (found,) = batches(path, raw_batch(BatchHeader(base_offset=BASE, codec=6, count=1), b"x"))
    assert found.codec == "unknown (6)"
    (damage,) = found.records()
    assert isinstance(damage, Damage)
    assert damage.kind is DamageKind.BAD_COMPRESSION


def test_bits_that_mean_nothing_in_message_sets_mean_nothing(path: Path) -> None:
    (found,) = batches(path, message(BASE, 1, b"k", b"v", attributes=0x70))
    assert (found.is_control, found.is_transactional, found.delete_horizon_ms) == (False, False, None)


def test_a_walk_may_begin_at_any_batch(path: Path) -> None:
    path.write_bytes(A + B + C)
    found = [part for part in Segment(str(path)).batches(len(A)) if isinstance(part, Batch)]
    assert [part.position for part in found] == [len(A), len(A) + len(B)]
    assert list(Segment(str(path)).batches(len(A + B + C))) == []
    assert list(Segment(str(path)).batches(10**12)) == []


def test_a_generator_that_is_left_closes_the_file(path: Path) -> None:
    path.write_bytes(A * 100)
    before = len(os.listdir("/proc/self/fd"))
    walk = Segment(str(path)).batches()
    next(walk)
    assert len(os.listdir("/proc/self/fd")) == before + 1
    walk.close()  # type: ignore[attr-defined]
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path: Path) -> None:
    """Content never raises; there being nothing to read does, when it is read."""
    missing, directory = Segment(str(tmp_path / "0.log")), Segment(str(tmp_path))
    for call in (lambda segment: list(segment.batches()), lambda segment: segment.totals()):
        with pytest.raises(UnreadableError):
            call(missing)
        with pytest.raises(NotKafkaError):
            call(directory)


# totals


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes((data[at] ^ 0xFF,)) + data[at + 1 :]


def lying(data: bytes, more: int) -> bytes:
    return data[:8] + (len(data) - 12 + more).to_bytes(4, "big") + data[12:]


@pytest.mark.parametrize("name", LOGS)
def test_totals_of_a_whole_segment(path: Path, name: str) -> None:
    data = LOGS[name]
    plain = list(plain_batches(data))
    segment = Segment(str(path.with_name(f"{0:020}.log")))
    Path(segment.path).write_bytes(data)
    assert segment.totals() == BatchTotals(len(plain), None, len(data), 0)
    assert segment.totals(deep=True) == BatchTotals(len(plain), sum(len(b.records) for b in plain), len(data), 0)


@pytest.mark.parametrize(
    ("data", "intact", "records", "damaged"),
    [
        (b"", 0, 0, 0),
        (A + flipped(B, 90) + C, 2, 6, 1),
        (flipped(A, 90) + flipped(B, 90), 0, 0, 2),
        (A + b"garbage that is no batch" + B, 2, 6, 1),
        (A + B[:50], 1, 3, 1),
        (A + bytes(5000), 1, 3, 1),
        (A + lying(B, 5) + C + D, 3, 9, 1),
        (A + lying(B, len(C)) + C + D, 3, 9, 1),
        (lying(A, len(B + C + D)) + B + C + D, 3, 9, 1),
    ],
    ids=["nothing", "one", "all", "garbage", "torn", "zeroed", "a length", "a length that fits", "a length to the end"],
)
def test_totals_count_what_is_intact_and_what_is_not(
    path: Path, data: bytes, intact: int, records: int, damaged: int
) -> None:
    """The same with and without a look at the records."""
    path.write_bytes(data)
    assert Segment(str(path)).totals(deep=True) == BatchTotals(intact, records, len(data), damaged)
    assert Segment(str(path)).totals() == BatchTotals(intact, None, len(data), damaged)


def test_totals_keep_to_the_limit_on_a_batch_s_size(path: Path) -> None:
    """Who counts with little memory must not be handed a batch of 128 MiB."""
    big = batch(some_records(BASE + 3, 20_000))
    path.write_bytes(A + big + C)
    assert Segment(str(path)).totals(max_batch_bytes=len(big)) == BatchTotals(3, None, len(A + big + C), 0)
    assert Segment(str(path)).totals(max_batch_bytes=len(big) - 1) == BatchTotals(2, None, len(A + big + C), 1)


def test_totals_count_batches_whose_records_are_broken_as_damage_only_when_they_are_read(path: Path) -> None:
    bad = batch(some_records(BASE + 3), codec="gzip", stream=b"no gzip, though the checksum holds")
    path.write_bytes(A + bad + C)
    assert Segment(str(path)).totals() == BatchTotals(3, None, len(A + bad + C), 0)
    assert Segment(str(path)).totals(deep=True) == BatchTotals(3, 6, len(A + bad + C), 1)


# the front door


def test_the_example_of_the_documentation_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Word for word, as a user would copy it."""
    partition = tmp_path / "data" / "orders-3"
    partition.mkdir(parents=True)
    (partition / f"{0:020}.log").write_bytes(batch(some_records(0)) + flipped(batch(some_records(3)), 80))
    monkeypatch.chdir(tmp_path)
    assert klog.__doc__
    code = textwrap.dedent(klog.__doc__.split("\n\n", 1)[1].rsplit("\n\n", 1)[0])
    assert code.startswith("import klog\n")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "example", "exec"), {})
    *records, damage = printed.getvalue().splitlines()
    assert records == [f"{i} b'key-{i}' b'value value value {i}'" for i in range(3)]
    assert damage.startswith("damaged: data/orders-3/00000000000000000000.log @ ")


def run_python(code: str) -> str:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_importing_klog_loads_next_to_nothing() -> None:
    """Neither the command line's libraries nor Spark nor pyarrow: these cost up to a second, or are not installed."""
    out = run_python("import sys; before = set(sys.modules); import klog; print(*sorted(set(sys.modules) - before))")
    assert {name for name in out.split() if name.startswith("klog")} == {"klog"}
    assert {name.split(".")[0] for name in out.split()} <= {"klog"} | set(sys.stdlib_module_names)


def test_reading_a_segment_needs_no_heavy_library(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(batch(some_records(0)))
    code = f"""
import sys, klog
for batch in klog.Segment({str(path)!r}).batches():
    print(len(list(batch.records())))
heavy = {{"typer", "rich", "pyarrow", "pyspark", "numpy", "click", "json", "zstandard", "lz4", "snappy", "klog_cli"}}
heavy.add("inspect")  # Cython asks for it under the limited API
print(*sorted(heavy & set(sys.modules)))
"""
    assert run_python(code).split() == ["3"]


def test_every_name_of_the_front_door_leads_somewhere() -> None:
    for name in klog.__all__:
        assert getattr(klog, name) is not None
    assert klog.KlogError is KlogError
    assert klog.Segment is Segment
    assert klog.Damage is Damage
    with pytest.raises(AttributeError, match="module 'klog' has no attribute 'Segmant'"):
        klog.Segmant  # noqa: B018
