"""`search`, `records`, `stats` and `export` with `--remote`: the records of both tiers that Kafka's consumers got."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CORPORA, Ran
from tests.support import tiers
from tests.support.tiers import Situation, situation

Klog = Callable[..., Ran]
KEYS = ("--remote-keys", f"key1={CORPORA / 'tiered/make/keys/private.pem'}")
SITUATIONS = ("house", "aiven-encrypted")


def rows(klog: Klog, command: str, found: Situation, *options: str) -> list[dict[str, Any]]:
    done = klog(command, found.leader, "--remote", found.tier, *KEYS, "-o", "jsonl", *options)
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.corpora
@pytest.mark.parametrize("name", SITUATIONS)
def test_a_key_is_found_in_either_tier(klog: Klog, image: Callable[[str], Path], name: str) -> None:
    found = situation(image, name)
    for partition, answers in found.clients.items():
        topic, _, number = partition.rpartition("-")
        for row in (*answers["uncommitted"][:1], *answers["uncommitted"][-1:]):
            same = [other[0] for other in answers["uncommitted"] if other[2] == row[2]]
            if row[2] is None:
                continue
            shown = rows(klog, "search", found, "-t", topic, "-p", number, "--key", row[2])
            assert [one["offset"] for one in shown] == same
            remote = answers["offsets"].get("earliest_local")
            if isinstance(remote, int) and "latest_tiered" in answers["offsets"]:
                assert ["tier" in one for one in shown] == [offset < remote for offset in same]


@pytest.mark.corpora
@pytest.mark.parametrize("name", SITUATIONS)
def test_records_of_a_range_and_the_last_ones(klog: Klog, image: Callable[[str], Path], name: str) -> None:
    found = situation(image, name)
    for partition, answers in found.clients.items():
        topic, _, number = partition.rpartition("-")
        where, theirs = ("-t", topic, "-p", number), [row[0] for row in answers["uncommitted"]]
        if not theirs:
            continue
        shown = rows(klog, "records", found, *where, "--from-offset", str(theirs[0]), "-n", "1000")
        assert [row["offset"] for row in shown if "control" not in row] == theirs
        shown = rows(klog, "records", found, *where, "-n", "3")
        assert [row["offset"] for row in shown if "control" not in row] == [
            offset for offset in theirs if offset >= shown[0]["offset"]
        ]


@pytest.mark.corpora
@pytest.mark.parametrize("name", SITUATIONS)
def test_counts_and_files_of_both_tiers(klog: Klog, image: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    found = situation(image, name)
    counted = {f"{one['topic']}-{one['partition']}": one for one in rows(klog, "stats", found)}
    assert (
        klog("export", found.leader, "--remote", found.tier, *KEYS, "--to", tmp_path / "x", "-o", "jsonl").exit_code
        == 0
    )
    for partition, answers in found.clients.items():
        theirs = [row[0] for row in answers["uncommitted"]]
        assert counted[partition]["records"] == len(theirs)
        topic, _, number = partition.rpartition("-")
        files = sorted((tmp_path / "x").glob(f"**/*{topic}*/**/*{number}*/*.jsonl"))
        lines = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        assert sorted(line["offset"] for line in lines if "control" not in line) == theirs


def test_a_missing_object_is_damage_in_each_form(klog: Klog, tmp_path: Path) -> None:
    """The text of records had the exit code of a file that the system refuses."""
    data, tier = tiers.unpack(tmp_path / "tiered")
    sorted(tier.glob("kafka-tiered-storage/fine-0-*/*.log"))[1].unlink()
    for form in ("text", "json", "jsonl", "csv"):
        done = klog("records", data, "--remote", tier, "-t", "fine", "--head", "-n", "20", "-o", form)
        assert done.exit_code == 4, (form, done.stderr)
        assert b"no such object" in done.stdout + done.stderr


def test_a_segment_without_any_object_is_named_by_the_key_that_its_log_had(klog: Klog, tmp_path: Path) -> None:
    """As in `klog remote verify`: below the folder of the partition's other objects."""
    data, tier = tiers.unpack(tmp_path / "tiered")
    gone = sorted(tier.glob("kafka-tiered-storage/fine-0-*/*.log"))[1]
    for path in gone.parent.glob(f"{gone.stem}.*"):
        path.unlink()
    key = str(gone.relative_to(tier))
    done = klog("dump", data, "--remote", tier, "-t", "fine", "-o", "jsonl")
    (damage,) = [one for one in map(json.loads, done.stdout.splitlines()) if "damage" in one]
    assert (damage["file"], done.exit_code) == (key, 4)
    fetched = klog("remote", "fetch", data, "--remote", tier, "-t", "fine", "--to", tmp_path / "back", "-o", "json")
    (lost,) = json.loads(fetched.stdout)["partitions"][0]["damaged"]
    assert lost["file"] == key


def test_the_largest_records_are_in_files_that_there_are(klog: Klog, tmp_path: Path) -> None:
    """A record in remote storage is in an object, not in a file of the partition's directory."""
    data, tier = tiers.unpack(tmp_path / "tiered")
    (row,) = map(json.loads, klog("stats", data, "--remote", tier, "-t", "fine", "-o", "jsonl").stdout.splitlines())
    files = {one["file"] for one in row["largest_records"]}
    assert all((tier / file).is_file() or Path(file).is_file() for file in files)
    assert any((tier / file).is_file() for file in files)


def test_a_partition_that_a_tier_alone_does_not_have(klog: Klog, tmp_path: Path) -> None:
    """A topic that is there is no near miss of itself."""
    _, tier = tiers.unpack(tmp_path / "tiered")
    for words, message in (
        (("-t", "fine", "-p", "7"), "no partition 7 of fine"),
        (("-t", "finr"), "no partition of finr; did you mean fine?"),
    ):
        done = klog("stats", "--remote", tier, *words)
        assert (done.exit_code, done.stderr.decode()) == (16, f"klog: {tier}: {message}\n")
