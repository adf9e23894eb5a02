"""Writes into a directory that its broker sets aside: it has no topic id."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import FIXTURES, Ran, writable_copy
from tests.support.power import tree

pytestmark = pytest.mark.usefixtures("state_home")
Klog = Callable[..., Ran]


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return writable_copy(FIXTURES / "modern", tmp_path / "disk")


@pytest.fixture
def records(tmp_path: Path) -> Path:
    file = tmp_path / "records.jsonl"
    file.write_text('{"key":"a","value":"b","partition":1}\n')
    return file


def test_nothing_is_written_into_a_directory_without_a_topic_id(klog: Klog, disk: Path, records: Path) -> None:
    """The broker renames it to -stray at its next start: no consumer would receive the records."""
    (disk / "plain-1" / "partition.metadata").unlink()
    before = tree(disk)
    done = klog("write", records, "--to", disk, "--topic", "plain", "--apply")
    assert done.exit_code == 8, done
    assert b"no partition.metadata: the broker sets the directory aside" in done.stderr
    assert {**tree(disk), ".lock": None} == {**before, ".lock": None}


def test_with_its_topic_id_it_takes_them(klog: Klog, disk: Path, records: Path) -> None:
    done = klog("write", records, "--to", disk, "--topic", "plain", "--apply")
    assert done.exit_code == 0, done
    assert b"wrote 1 record" in done.stdout
