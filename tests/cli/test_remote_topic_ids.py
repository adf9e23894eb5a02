"""Readers of both tiers, if the log dir does not show which segments in remote storage are a partition's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.support import tiers

Klog = Callable[..., Ran]


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, Path]:
    """The log dir and the tier of the fixture."""
    return tiers.unpack(tmp_path / "tiered")


def dumped(klog: Klog, place: tuple[Path, Path], exit_code: int) -> tuple[int, bytes]:
    """The number of lines of a dump of `fine`, and its messages."""
    ran = klog("dump", place[0], "--remote", place[1], "-t", "fine", "-o", "jsonl")
    assert ran.exit_code == exit_code, ran.stderr
    return ran.stdout.count(b"\n"), ran.stderr


def test_the_cluster_has_the_id_of_a_topic(klog: Klog, place: tuple[Path, Path]) -> None:
    """Without partition.metadata only the local records were read, exit code 0."""
    assert dumped(klog, place, 0) == (110, b"")
    (place[0] / "fine-0/partition.metadata").unlink()
    assert dumped(klog, place, 0) == (110, b"")


def test_a_partition_of_another_topic_lacks_its_beginning(klog: Klog, place: tuple[Path, Path]) -> None:
    """Its log start is in remote storage, and no segment there is of this id."""
    (place[0] / "fine-0/partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    count, message = dumped(klog, place, 4)
    assert (count, b"fine-0: offsets 0\xe2\x80\x9399: in neither tier" in message) == (10, True)


def test_a_partition_whose_events_and_objects_are_gone(klog: Klog, place: tuple[Path, Path]) -> None:
    for path in [*place[0].glob("__remote_log_metadata-*/*"), *place[1].rglob("fine-0-*/*")]:
        path.unlink()
    count, message = dumped(klog, place, 4)
    assert (count, b"fine-0: offsets 0\xe2\x80\x9399: in neither tier" in message) == (10, True)
