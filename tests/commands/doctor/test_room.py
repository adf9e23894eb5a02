"""`klog doctor` on a file system without room: a broker writes small files from its start on.

Seen with 4.3.1: without a free block, in a log dir with the metadata log, it stops with "No space left on device".
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran
from tests.support.rolled_back import data, metadata, partition

Klog = Callable[..., Ran]
NAMES = ("f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree", "f_favail", "f_flag")


def ask(klog: Klog, folder: Path, monkeypatch: pytest.MonkeyPatch, **changed: int) -> tuple[dict[str, Any], int]:
    """Return the answer if the file system had these facts, and the exit code."""
    metadata(folder, leader_epoch=0, next_producer_id=None)
    partition(folder, [data(0)], [(0, 0)])
    real = os.statvfs(folder)
    facts = {name: getattr(real, name) for name in NAMES} | changed
    made = os.statvfs_result([*(facts[name] for name in NAMES), real.f_namemax])
    monkeypatch.setattr(os, "statvfs", lambda path: made)
    done = klog("doctor", "--output", "json", folder)
    found: dict[str, Any] = json.loads(done.stdout)
    return found, done.exit_code


@pytest.mark.parametrize("changed", [{"f_bavail": 0, "f_bfree": 0}, {"f_files": 1000, "f_favail": 0, "f_ffree": 0}])
def test_no_room(changed: dict[str, int], klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, code = ask(klog, tmp_path / "data", monkeypatch, **changed)
    assert (found["starts"], found["fatal"]["id"], code) == (False, "log-dir-unusable", 4)
    assert "no room left" in found["fatal"]["message"]
    assert "free room in it" in found["next"][0]["manual"]


@pytest.mark.parametrize(
    "changed",
    [{"f_bavail": 1}, {"f_files": 0, "f_favail": 0, "f_ffree": 0}, {"f_blocks": 0, "f_bavail": 0, "f_bfree": 0}],
)
def test_some_room(changed: dict[str, int], klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that counts no inodes, or no blocks, has none that could be used up."""
    found, code = ask(klog, tmp_path / "data", monkeypatch, **changed)
    assert (found["starts"], found["notes"], code) == (True, [], 0)


def test_only_reserved_blocks(klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker of a log dir that root owns may use them."""
    found, _ = ask(klog, tmp_path / "data", monkeypatch, f_bavail=0, f_bfree=1000)
    assert found["starts"] == (os.stat(tmp_path / "data").st_uid == 0)


def test_a_copy_that_cannot_be_written(klog: Klog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Images of disks have no free block; the answer is about the start where they can be written."""
    found, code = ask(klog, tmp_path / "data", monkeypatch, f_bavail=0, f_flag=os.ST_RDONLY)
    assert (found["starts"], code) == (True, 0)
    assert [one["id"] for one in found["notes"]] == ["log-dir-read-only"]
