"""The digest of a file's content: holes count as the zeros that they are, and are not read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from klog.change.plan.model import file_state, states_around

from tests.support.reads import count_reads


@pytest.mark.parametrize("size", [40 << 20, (40 << 20) + 12345])
def test_holes_are_digested_without_being_read(tmp_path: Path, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse index of a terabyte was read to its end; its digest is that of its zeros."""
    sparse, full = tmp_path / "sparse", tmp_path / "full"
    with open(sparse, "wb") as file:
        file.write(b"begin")
        file.seek(25 << 20)
        file.write(b"middle")
        file.truncate(size)
    full.write_bytes(sparse.read_bytes())
    reads = count_reads(monkeypatch)
    state, expected = file_state(str(sparse)), file_state(str(full))
    assert state is not None
    assert expected is not None
    assert (state.size, state.digest) == (size, expected.digest)
    assert reads.of(sparse)[1] < 20 << 20
    before, cut = states_around(str(sparse), 30 << 20)
    assert (before.digest, cut.digest) == tuple(one.digest for one in states_around(str(full), 30 << 20))


def test_a_terabyte_of_nothing_takes_no_time(tmp_path: Path) -> None:
    sparse = tmp_path / "sparse"
    with open(sparse, "wb") as file:
        file.truncate(1 << 40)
    start = time.process_time()
    state = file_state(str(sparse))
    assert state is not None
    assert state.size == 1 << 40
    assert time.process_time() - start < 2
