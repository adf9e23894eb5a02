"""A directory that appears whole, over an empty one and on a mount of its own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from klog.data_dir.disk.disk_changes import Disk
from klog.data_dir.whole_directory import whole_directory


def fill(building: str) -> None:
    for name in ("a", "meta.properties", "z"):
        (Path(building) / name).write_text(name)


def test_an_empty_directory_keeps_its_mode(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir(mode=0o755)
    with whole_directory(str(out), Disk(), "nothing was written") as building:
        fill(building)
        assert os.listdir(out) == []
    assert sorted(os.listdir(out)) == ["a", "meta.properties", "z"]
    assert out.stat().st_mode & 0o777 == 0o755
    assert os.listdir(tmp_path) == ["out"]


def test_a_mount_point_is_filled_and_its_identity_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume of a container cannot be replaced."""
    out = tmp_path / "out"
    out.mkdir()
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(out))
    renamed: list[str] = []

    class Noted(Disk):
        def rename(self, source: str, target: str) -> None:
            renamed.append(os.path.basename(target))
            super().rename(source, target)

    with whole_directory(str(out), Noted(), "nothing was written") as building:
        fill(building)
    assert renamed == ["a", "z", "meta.properties"]
    assert sorted(os.listdir(out)) == ["a", "meta.properties", "z"]


def test_nothing_remains_when_the_block_raises(tmp_path: Path) -> None:
    def fail() -> None:
        with whole_directory(str(tmp_path / "a/b/out"), Disk(), "nothing was written") as building:
            fill(building)
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        fail()
    assert os.listdir(tmp_path) == []
