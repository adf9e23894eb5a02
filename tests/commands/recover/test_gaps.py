"""A log with a gap, as salvage leaves it: facts that only the old files have are kept through every later repair."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Ran, writable_copy

ENTRY = struct.Struct(">hqqqq")
NOW = "--now=1750000000000"


@pytest.fixture
def salvaged(tmp_path: Path, klog: Callable[..., Ran]) -> Path:
    """A log dir in which a segment has lost its end, and with it the markers of three aborted transactions."""
    data = writable_copy(FIXTURES / "crash/torn-in-batch", tmp_path / "data")
    log = data / "torn-0/00000000000000000090.log"
    log.write_bytes(log.read_bytes()[:2016])
    assert klog("recover", data, "--salvage", NOW, "--apply").exit_code == 1
    return data


def aborted(data: Path) -> list[tuple[int, int]]:
    """Return first and last offset of the aborted transactions of that segment."""
    content = (data / "torn-0/00000000000000000090.txnindex").read_bytes()
    return [entry[2:4] for entry in ENTRY.iter_unpack(content)]


def test_aborted_transactions_whose_markers_are_lost_stay_aborted(salvaged: Path, klog: Callable[..., Ran]) -> None:
    """Without their entries a consumer would receive aborted records."""
    assert aborted(salvaged) == [(104, 117), (118, 134), (140, 153)]
    assert b"txn-index" not in klog("verify", "--deep", salvaged).stdout
    assert klog("recover", salvaged, NOW).exit_code == 0


def test_an_index_that_is_made_anew_keeps_them(salvaged: Path, klog: Callable[..., Ran]) -> None:
    """A wrong entry, about offsets before the gap, is one that the log can judge; the others it cannot."""
    index = salvaged / "torn-0/00000000000000000090.txnindex"
    index.write_bytes(ENTRY.pack(0, 4711, 95, 100, 101) + index.read_bytes())
    assert b"txn-index-disagrees" in klog("verify", "--deep", salvaged).stdout
    assert klog("recover", salvaged, NOW, "--apply").exit_code == 1
    assert aborted(salvaged) == [(104, 117), (118, 134), (140, 153)]
