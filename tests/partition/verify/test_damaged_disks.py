"""Bad sectors, random bytes, directories that cannot be read: each is a finding, and the rest is still checked."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.partition.verify.partitions import Damageable
from tests.support import bad_sectors


def test_a_bad_sector_in_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The byte range is reported, and everything behind it is checked."""
    damageable = Damageable(tmp_path, "idempotent-0")
    bad_sectors.spoil(monkeypatch, range(8192, 12288))
    found = [finding for finding in damageable.findings() if finding.id == "unreadable"]
    logs = sorted(path.name for path in (tmp_path / "idempotent-0").glob("*.log") if path.stat().st_size > 8192)
    assert [finding.file.rpartition("/")[2] for finding in found] == logs
    for finding in found:
        assert finding.position is not None
        assert finding.position <= 8192
        assert "bytes are lost" in finding.message
        if finding.file.endswith(f"{750:020}.log"):
            assert "nothing intact follows" in finding.message
        else:
            assert "intact batches" in finding.message


def test_a_bad_sector_in_small_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damageable = Damageable(tmp_path, "idempotent-0")
    bad_sectors.spoil(monkeypatch, range(4096))
    found = {finding.file.rpartition(".")[2] for finding in damageable.findings() if finding.id == "unreadable"}
    assert found >= {"log", "index", "timeindex"}


@pytest.mark.parametrize("seed", range(6))
def test_no_bytes_make_it_crash(tmp_path: Path, seed: int) -> None:
    """Files of a partition overwritten at random, many times over."""
    chance = Random(seed)
    damageable = Damageable(tmp_path, "tx-0", clean=bool(seed % 2))
    files = [path for path in sorted((tmp_path / "tx-0").iterdir()) if path.stat().st_size]
    for _ in range(40):
        path = chance.choice(files)
        data = bytearray(path.read_bytes())
        for _ in range(chance.randrange(1, 6)):
            at, size = chance.randrange(len(data) + 1), chance.randrange(1, 40)
            what = chance.choice((bytes(size), b"\xff" * size, chance.randbytes(size), b"\x7f" * size))
            data[at : at + chance.choice((0, size))] = what
        path.write_bytes(data)
        for finding in damageable.findings(deep=bool(chance.randrange(2))):
            assert finding.message
            assert finding.kind.id == finding.id
            finding.json()
