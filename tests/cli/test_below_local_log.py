"""Offsets that are in remote storage alone: commands without `--remote` name the option, and exit with 4."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.support.tiers import unpack

Klog = Callable[..., Ran]
FINE = "fine-0: offsets 0 to 99 are in remote storage: --remote TIER"
SHORT = "short-0: offsets 61 to 83 are in remote storage: --remote TIER"


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return unpack(tmp_path_factory.mktemp("tiered"))


def said(ran: Ran) -> list[str]:
    return [line for line in ran.stderr.decode().splitlines() if "remote storage" in line]


@pytest.mark.parametrize("command", ["dump", "records", "search", "export"])
def test_a_range_that_begins_below_the_local_log(
    klog: Klog, disk: tuple[Path, Path], tmp_path: Path, command: str
) -> None:
    """The local records are printed, and the others are named; with --remote there is nothing to name."""
    data, tier = disk
    where = ["-t", "fine", "--from-offset", "95", "--to-offset", "103", "-q"]
    to = ["--to", str(tmp_path / "out"), "-o", "jsonl"] if command == "export" else ["-o", "jsonl"]
    ran = klog(command, data, *where, *to)
    assert ran.exit_code == 4
    assert said(ran) == [f"klog: {data}/{FINE}"]
    if command != "export":
        assert [json.loads(line)["offset"] for line in ran.stdout.splitlines()] == [100, 101, 102]
    to[1:2] = [str(tmp_path / "both")] if command == "export" else [to[1]]
    both = klog(command, data, "--remote", tier, *where, *to)
    assert (both.exit_code, said(both)) == (0, [])


def test_every_partition_is_named(klog: Klog, disk: tuple[Path, Path]) -> None:
    """As far as it has some of the requested offsets; the checkpoint's log start is the first one."""
    data, _ = disk
    ran = klog("dump", data, "-t", "fine", "-t", "short", "--from-offset", "5", "-o", "jsonl")
    assert (ran.exit_code, said(ran)) == (4, [f"klog: {data}/{FINE}", f"klog: {data}/{SHORT}"])
    ran = klog("dump", data, "-t", "fine", "-t", "short", "--from-offset", "5", "--to-offset", "50", "-o", "jsonl")
    assert (ran.exit_code, said(ran), ran.stdout) == (4, [f"klog: {data}/{FINE}"], b"")


@pytest.mark.parametrize(
    "wanted", [["--from-offset", "-20"], ["--from-offset", "-999"], ["--from-offset", "0", "--to-offset", "-30"]]
)
def test_offsets_that_count_from_the_log_end(klog: Klog, disk: tuple[Path, Path], wanted: list[str]) -> None:
    """The log ends at 110, and the local one begins at 100."""
    ran = klog("dump", disk[0], "-t", "fine", "-o", "jsonl", *wanted)
    assert (ran.exit_code, said(ran)) == (4, [f"klog: {disk[0]}/{FINE}"])


@pytest.mark.parametrize("wanted", [[], ["--from-offset", "100"], ["--from-offset", "-3"], ["--from-time", "5"]])
def test_other_ranges_are_read_as_before(klog: Klog, disk: tuple[Path, Path], wanted: list[str]) -> None:
    ran = klog("dump", disk[0], "-t", "fine", "-o", "jsonl", *wanted)
    assert (ran.exit_code, said(ran)) == (0, [])


def test_a_topic_without_remote_storage_has_no_such_offsets(
    klog: Klog, disk: tuple[Path, Path], tmp_path: Path
) -> None:
    """Beside no metadata log, and where a file is named, nothing shows that there is more."""
    shutil.copytree(disk[0] / "fine-0", tmp_path / "fine-0")
    for path in (tmp_path / "fine-0", disk[0] / "fine-0" / f"{100:020}.log"):
        ran = klog("dump", path, "--from-offset", "5", "--to-offset", "103", "-o", "jsonl")
        assert (ran.exit_code, said(ran)) == (0, [])


def test_a_lookup_answers_with_the_option(klog: Klog, disk: tuple[Path, Path], tmp_path: Path) -> None:
    data, _ = disk
    ran = klog("lookup", data / "fine-0", "--offset", "5")
    assert ran.exit_code == 4
    assert ran.stdout.decode().split() == ["answer", *FINE.split()[1:]]
    ran = klog("lookup", data / "fine-0", "--offset", "5", "-o", "json")
    assert json.loads(ran.stdout)["notes"] == [FINE.partition(": ")[2]]
    (tmp_path / "numbers").write_text("5\n100\n")
    ran = klog("lookup", data / "fine-0", "--batch", tmp_path / "numbers", "-o", "jsonl")
    assert [json.loads(line)["notes"] for line in ran.stdout.splitlines()] == [[FINE.partition(": ")[2]], []]
    assert said(klog("bytes", data / "fine-0", "--offset", "5")) == [
        f"klog: {data}/fine-0: offset 5: {FINE.partition(': ')[2]}"
    ]
    below = klog("lookup", data / "short-0", "--offset", "60").stdout.decode()
    assert "OffsetOutOfRange" in below, "it was deleted from both tiers"


def test_a_partition_without_a_directory_is_read_from_remote_storage(
    klog: Klog, disk: tuple[Path, Path], tmp_path: Path
) -> None:
    """Its disk was replaced: only the entries, the metadata log and the objects show that there is such a partition."""
    data = tmp_path / "data"
    shutil.copytree(disk[0], data)
    shutil.rmtree(data / "fine-0")
    ran = klog("dump", data, "--remote", disk[1], "-t", "fine", "-o", "jsonl")
    assert ran.exit_code == 0
    assert [json.loads(line)["offset"] for line in ran.stdout.splitlines()] == [*range(100)]
    assert f"{data}/fine-0: there is no local log" in ran.stderr.decode()
    every = klog("stats", data, "--remote", disk[1], "-o", "jsonl")
    topics = {row["topic"]: row["records"] for row in map(json.loads, every.stdout.splitlines())}
    assert topics["fine"] == 100
    assert "gone" not in topics, "its topic was deleted: its objects are orphans"
    assert klog("dump", data, "-t", "fine", "-o", "jsonl").exit_code == 16
