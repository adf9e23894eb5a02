"""Fixed structures, declared once: their reading and writing, and that the kernel has the same declarations."""

from __future__ import annotations

import struct
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from klog.formats.batch import BATCH, CRC_START, ENTRY, MIN_SIZE, OVERHEAD
from klog.formats.index import ABORTED_TXN, OFFSET_ENTRY, TIME_ENTRY
from klog.formats.layout import Layout
from klog.formats.message_set import CRC_START as MESSAGE_CRC_START
from klog.formats.message_set import MESSAGE_V0, MESSAGE_V1

from tests.oracles.plain import encode, vectors
from tests.oracles.plain.encode import BatchHeader

ROOT = Path(__file__).resolve().parents[2]
LAYOUTS = (ENTRY, BATCH, MESSAGE_V0, MESSAGE_V1, OFFSET_ENTRY, TIME_ENTRY, ABORTED_TXN)


def test_the_kernel_is_built_from_these_declarations() -> None:
    """Its byte offsets are written by a tool; one that was not run would have the kernel read other bytes."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools/make_layouts.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, "run tools/make_layouts.py and build again" + done.stderr


def test_the_python_face_of_the_kernel_is_written_from_its_declarations() -> None:
    """A stub that says something else than the kernel is worse than none."""
    done = subprocess.run(
        [sys.executable, ROOT / "tools/make_kernel_face.py", "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, "run tools/make_kernel_face.py" + done.stderr


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_what_is_written_is_read_back(layout: Layout) -> None:
    """Every field with its lowest and highest value, so that none is read as unsigned or narrower."""
    bounds = {
        "int8": (-(2**7), 2**7 - 1),
        "int16": (-(2**15), 2**15 - 1),
        "int32": (-(2**31), 2**31 - 1),
        "uint32": (0, 2**32 - 1),
        "int64": (-(2**63), 2**63 - 1),
    }
    for end in (0, 1):
        values = tuple(bounds[field.type][end] for field in layout.fields)
        data = layout.write(*values)
        assert len(data) == layout.size
        assert layout.read(data) == values
        assert layout.read(b"###" + data, 3) == values
        assert layout.read(memoryview(bytearray(data))) == values


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.name)
def test_fields_follow_one_another_without_gaps(layout: Layout) -> None:
    """Each one's place is that of its value, and each has a meaning."""
    data = bytes(range(1, layout.size + 1))
    places = [*layout.offsets.values(), layout.size]
    values = [int.from_bytes(data[at:end], "big") for at, end in pairwise(places)]
    assert list(layout.offsets) == list(layout.names)
    assert tuple(values) == layout.read(data)
    assert all(field.meaning for field in layout.fields)


def test_sizes_are_kafkas() -> None:
    assert [layout.size for layout in LAYOUTS] == [17, 61, 22, 30, 8, 12, 34]
    assert (OVERHEAD, MIN_SIZE, CRC_START, MESSAGE_CRC_START) == (12, 14, 21, 16)


def test_a_batch_header_field_by_field() -> None:
    """Against bytes that somebody else has put together."""
    header = BatchHeader(
        1, 2, codec=3, last_offset_delta=4, base_timestamp=5, max_timestamp=6, producer_id=7, producer_epoch=8,
        base_sequence=9, count=10,
    )  # fmt: skip
    data = encode.raw_batch(header, b"x", crc=0xFFFFFFFE)
    assert dict(zip(BATCH.names, BATCH.read(data), strict=True)) == {
        "base_offset": 1, "size": 50, "leader_epoch": 2, "magic": 2, "crc": 0xFFFFFFFE, "attributes": 3,
        "last_offset_delta": 4, "base_timestamp": 5, "max_timestamp": 6, "producer_id": 7, "producer_epoch": 8,
        "base_sequence": 9, "records_count": 10,
    }  # fmt: skip
    assert ENTRY.read(data) == (1, 50, 2, 2)


def test_message_headers_field_by_field() -> None:
    assert MESSAGE_V0.read(encode.message(7, 0, b"key", b"v", attributes=2, crc=5)) == (7, 18, 5, 0, 2, 3)
    assert MESSAGE_V1.read(encode.message(7, 1, None, b"v", timestamp=9, crc=5)) == (7, 23, 5, 1, 0, 9, -1)


def test_index_entries_field_by_field() -> None:
    assert OFFSET_ENTRY.read(encode.offset_entries(1000, [(1006, 4096)])) == (6, 4096)
    assert TIME_ENTRY.read(encode.time_entries(1000, [(1_700_000_000_000, 1006)])) == (1_700_000_000_000, 6)
    assert ABORTED_TXN.read(encode.aborted_entries([(98304, 1000, 1003, 1004)])) == (0, 98304, 1000, 1003, 1004)
    assert ABORTED_TXN.read(vectors.ABORTED[: ABORTED_TXN.size])[0] == 0


def test_structures_in_a_row_are_read_one_after_another() -> None:
    """A torn last one is left out: the reader reports it, by the size."""
    data = encode.offset_entries(0, [(1, 10), (2, 20), (3, 30)])
    assert list(OFFSET_ENTRY.read_all(data)) == [(1, 10), (2, 20), (3, 30)]
    for missing in range(1, 8):
        assert list(OFFSET_ENTRY.read_all(memoryview(data)[:-missing])) == [(1, 10), (2, 20)]
    assert list(OFFSET_ENTRY.read_all(b"")) == []


def test_too_few_bytes_are_an_error_of_ours() -> None:
    """Whoever reads compares first."""
    with pytest.raises(struct.error):
        BATCH.read(bytes(60))
    with pytest.raises(struct.error):
        OFFSET_ENTRY.read(bytes(8), 1)
