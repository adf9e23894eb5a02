"""`klog dump --remote`: the records of both tiers that Kafka's consumers got, damage in the tier, ranges, one tier."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import CORPORA, Ran
from tests.support.tiers import Situation, situation

Klog = Callable[..., Ran]
KEYS = ("--remote-keys", f"key1={CORPORA / 'tiered/make/keys/private.pem'}")


def lines(klog: Klog, found: Situation, *options: str, exit_code: int = 0) -> list[dict[str, Any]]:
    done = klog("dump", found.leader, "--remote", found.tier, *KEYS, "-o", "jsonl", *options)
    assert done.exit_code == exit_code, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["house", "house391", "gappy", "aiven-plain", "aiven-zstd", "aiven-encrypted"])
def test_the_records_of_both_tiers(klog: Klog, image: Callable[[str], Path], name: str) -> None:
    """In both isolation levels; each remote record names its segment, which has its offset."""
    found = situation(image, name)
    segments = {one["segment_id"]: one for one in found.truth["segments"][found.moment]}
    for partition, answers in found.clients.items():
        topic, _, number = partition.rpartition("-")
        where = ("-t", topic, "-p", number)
        rows = lines(klog, found, *where, "--no-control")
        shown = [(row["offset"], row["timestamp"], row["key"], row["value"], row["leader_epoch"]) for row in rows]
        assert shown == [(*row[:4], row[5]) for row in answers["uncommitted"]]
        local = answers["offsets"]["earliest_local"] if "latest_tiered" in answers["offsets"] else 0
        for row in rows:
            assert ("tier" in row) == (isinstance(local, int) and row["offset"] < local)
            if "tier" in row:
                segment = segments[row["segment_id"]]
                assert segment["start_offset"] <= row["offset"] <= segment["end_offset"]
        committed = lines(klog, found, *where, "--isolation", "read_committed")
        assert [row["offset"] for row in committed] == answers["committed"]


@pytest.mark.corpora
def test_a_range_and_the_offsets_below_the_log_start(klog: Klog, image: Callable[[str], Path]) -> None:
    """DeleteRecords can end inside a remote segment: its first offsets are read if a range asks for them."""
    found = situation(image, "house")
    cut = found.clients["cut-0"]["offsets"]["earliest"]
    first = min(one["start_offset"] for one in found.truth["segments"]["before"] if one["topic"] == "cut")
    assert first < cut
    assert lines(klog, found, "-t", "cut")[0]["offset"] == cut
    assert lines(klog, found, "-t", "cut", "--from-offset", str(first))[0]["offset"] == first
    rows = lines(klog, found, "-t", "plain", "-p", "0", "--from-offset", "140", "--to-offset", "152")
    assert [row["offset"] for row in rows] == [*range(140, 152)]
    rows = lines(klog, found, "-t", "plain", "-p", "0", "--from-time", "1750000100000", "-n", "1")
    assert rows[0]["timestamp"] >= 1750000100000


@pytest.mark.corpora
def test_damage_in_the_tier_is_a_line_with_the_key(klog: Klog, image: Callable[[str], Path]) -> None:
    found = situation(image, "damaged")
    for topic, kind in (("d-log-missing", "unreadable"), ("d-log-cut-clean", "unreadable"), ("d-log-flip", "bad CRC")):
        rows = lines(klog, found, "-t", topic, exit_code=4)
        (damage,) = [row for row in rows if "damage" in row]
        assert (damage["damage"], damage["tier"]) == (kind, "remote")
        assert damage["file"].startswith(f"kafka-tiered-storage/{topic}-0-")
        assert damage["file"].endswith(f"-{damage['segment_id']}.log")
        read = [row["offset"] for row in rows if "offset" in row and "damage" not in row]
        theirs = [row[0] for row in found.clients[f"{topic}-0"]["uncommitted"]]
        assert set(read) < set(theirs)
        assert read == sorted(set(read))
        assert read[-1] == theirs[-1]


@pytest.mark.corpora
def test_csv_has_columns_of_the_tier(klog: Klog, image: Callable[[str], Path]) -> None:
    found = situation(image, "damaged")
    done = klog("dump", found.leader, "--remote", found.tier, "-t", "d-log-cut-clean", "-o", "csv", "--batch-offsets")
    rows = list(csv.DictReader(io.StringIO(done.stdout.decode())))
    assert {None} - {key for row in rows for key in row} == {None}, "no row has more fields than the header"
    assert {row["tier"] for row in rows if not row["damage"]} == {"remote", "local"}
    assert [row["damage"] != "" for row in rows].count(True) == 1
    plain = list(
        csv.reader(io.StringIO(klog("dump", found.leader, "-t", "d-log-cut-clean", "-o", "csv").stdout.decode()))
    )
    assert "tier" not in plain[0]


@pytest.mark.corpora
def test_text_is_that_of_a_local_log(klog: Klog, image: Callable[[str], Path]) -> None:
    """Local segments byte for byte; a remote one as its object would be printed under a broker's name."""
    found = situation(image, "house")
    local = klog("dump", found.leader, "-t", "plain", "-p", "0", "--print-data-log").stdout
    done = klog("dump", found.leader, "--remote", found.tier, "-t", "plain", "-p", "0", "--print-data-log").stdout
    assert done.endswith(local)
    assert done.startswith(b"Dumping kafka-tiered-storage/plain-0-")
    assert done.count(b"| offset: ") == len(found.clients["plain-0"]["uncommitted"])


@pytest.mark.corpora
def test_one_tier(klog: Klog, image: Callable[[str], Path]) -> None:
    found = situation(image, "house")
    end = found.clients["plain-0"]["offsets"]["latest_tiered"] + 1
    offsets = [row["offset"] for row in lines(klog, found, "-t", "plain", "-p", "0", "--tier", "remote")]
    assert offsets == [*range(end)]
    assert lines(klog, found, "-t", "plain", "-p", "0", "--tier", "local")[0]["offset"] == end
    alone = klog("dump", "--remote", found.tier, "-t", "plain", "-p", "0", "-o", "jsonl")
    assert [json.loads(line)["offset"] for line in alone.stdout.splitlines()] == offsets


def test_options_that_lead_to_nothing_are_refused(klog: Klog, tmp_path: Path) -> None:
    assert klog("dump", tmp_path, "--tier", "remote").exit_code == 16
    assert klog("dump", "--remote", tmp_path).exit_code == 16
    assert klog("dump", "--remote", tmp_path / "none", "-t", "x", "-p", "0").exit_code == 8
    done = klog("dump", "--remote", tmp_path, "-t", "x", "-p", "0")
    assert (done.exit_code, done.stdout) == (16, b"")
    assert "no partition of x" in done.stderr.decode()
