"""Files beside the records of a metadata log on which a node stops: snapshots, `bootstrap.checkpoint`, its topic id."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from klog.commands.doctor.broker_start import diagnose
from klog.commands.doctor.diagnosis import Diagnosis
from klog.commands.doctor.start_request import StartRequest

from tests.commands.doctor.disks import follow
from tests.conftest import FIXTURES, writable_copy

METADATA = "__cluster_metadata-0"
OTHER_ID = "BBBBBBBBBBBBBBBBBBBBBA"
Harm = Callable[[bytes], bytes]


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    return writable_copy(FIXTURES / "modern", tmp_path / "disk")


def told(disk: Path) -> Diagnosis:
    return diagnose(StartRequest((str(disk),)))


def snapshots(disk: Path) -> list[Path]:
    return sorted((disk / METADATA).glob("*.checkpoint"))


def harm(path: Path, change: Harm) -> None:
    path.write_bytes(change(path.read_bytes()))


def flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0x10]) + content[middle + 1 :]


def with_other_magic(content: bytes) -> bytes:
    return content[:16] + bytes([content[16] ^ 0x10]) + content[17:]


def halved(content: bytes) -> bytes:
    return content[: len(content) // 2]


def emptied(_: bytes) -> bytes:
    return b""


def is_failure(found: Diagnosis, reason: str) -> bool:
    return found.failure is not None and found.failure.id == reason and not found.is_harmless


@pytest.mark.parametrize("change", [flipped, halved, emptied])
def test_a_node_stops_on_its_newest_snapshot(disk: Path, tmp_path: Path, change: Harm) -> None:
    """It reads no older one, although that and the log have everything; without the file it starts."""
    newest = snapshots(disk)[-1]
    harm(newest, change)
    found = told(disk)
    assert is_failure(found, "metadata-snapshot-damaged")
    assert {row.fate.value for row in found.partitions} == {"unreached"}
    assert [step.manual for step in found.next] == [f"move {newest} out: older files of the directory have all of it"]
    follow(found.next, tmp_path / "aside")
    assert told(disk).is_harmless


def test_nothing_else_has_what_the_newest_snapshot_had(disk: Path) -> None:
    """The log begins behind the older snapshots: the step is another controller, or a backup."""
    *older, newest = snapshots(disk)
    for path in older:
        path.unlink()
    end, logs = int(newest.name[:20]), sorted((disk / METADATA).glob("*.log"))
    first = max(int(path.stem) for path in logs if int(path.stem) <= end)
    for path in (disk / METADATA).glob("*.*"):
        if path.suffix in (".log", ".index", ".timeindex") and int(path.stem) < first:
            path.unlink()
    harm(newest, flipped)
    found = told(disk)
    assert is_failure(found, "metadata-snapshot-damaged")
    assert [(step.manual or "").partition(" from ")[0] for step in found.next] == [f"restore {disk / METADATA}"]


def test_an_older_snapshot_is_read_by_nobody(disk: Path) -> None:
    """Nothing is wrong."""
    for path in snapshots(disk)[:-1]:
        harm(path, flipped)
    assert told(disk).is_harmless


def test_a_snapshot_without_its_end_counts_as_complete(disk: Path) -> None:
    """A node starts with it, and has no topics that were in the part that is missing."""
    newest = snapshots(disk)[-1]
    content, heads, at = newest.read_bytes(), list[int](), 0
    while at < len(content):
        heads.append(at)
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    newest.write_bytes(content[: heads[-1]])
    found = told(disk)
    assert (found.starts, found.unsafe, found.is_harmless) == (True, ("metadata-log-damaged",), False)


@pytest.mark.parametrize("change", [halved, emptied, lambda _: b"x" * 100])
def test_a_node_stops_on_a_bootstrap_file_that_is_cut_short(disk: Path, tmp_path: Path, change: Harm) -> None:
    """It reads the file at each start, and needs nothing of it; without the file it starts."""
    harm(disk / "bootstrap.checkpoint", change)
    found = told(disk)
    assert is_failure(found, "bootstrap-malformed")
    follow(found.next, tmp_path / "aside")
    assert told(disk).is_harmless


@pytest.mark.parametrize("change", [flipped, with_other_magic])
def test_it_computes_no_checksum_of_that_file(disk: Path, change: Harm) -> None:
    """Nor does it need the file."""
    harm(disk / "bootstrap.checkpoint", change)
    assert told(disk).is_harmless
    (disk / "bootstrap.checkpoint").unlink()
    assert told(disk).is_harmless


def test_a_node_stops_on_a_metadata_log_with_the_id_of_another_topic(disk: Path) -> None:
    """One without an id gets it at the start."""
    file = disk / METADATA / "partition.metadata"
    file.write_text(f"version: 0\ntopic_id: {OTHER_ID}\n")
    found = told(disk)
    assert is_failure(found, "metadata-log-refused")
    assert found.failure is not None
    assert "AAAAAAAAAAAAAAAAAAAAAQ" in found.failure.message
    file.unlink()
    assert told(disk).is_harmless
