"""`klog lookup --remote`: the tier and the segment of an offset or a time, as brokers find them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Ran, writable_copy
from tests.support.tiers import Situation, situation

Klog = Callable[..., Ran]


def answers(klog: Klog, found: Situation, partition: str, file: Path, *options: str) -> list[dict[str, Any]]:
    """The answers for the numbers in *file*, in one run."""
    topic, _, number = partition.rpartition("-")
    where = (found.leader, "--remote", found.tier, "-t", topic, "-p", number)
    done = klog("lookup", *where, "--batch", file, "-o", "jsonl", *options)
    return [json.loads(line) for line in done.stdout.splitlines()]


def numbers(folder: Path, found: Iterable[int]) -> Path:
    """A file with a number on each line."""
    file = folder / "numbers"
    file.write_text("".join(f"{one}\n" for one in found))
    return file


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["house", "house391", "gappy", "aiven-zstd"])
def test_each_offset_is_in_the_tier_that_has_it(
    klog: Klog, image: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    found = situation(image, name)
    segments = {one["segment_id"]: one for one in found.truth["segments"][found.moment]}
    for partition, told in found.clients.items():
        local, rows = told["offsets"].get("earliest_local"), told["uncommitted"]
        if not isinstance(local, int) or not rows:
            continue
        shown = answers(klog, found, partition, numbers(tmp_path, (row[0] for row in rows)))
        assert [one["record"]["timestamp"] for one in shown] == [row[1] for row in rows]
        for one in shown:
            is_remote = one["tier"]["name"] == "remote"
            if "latest_tiered" in told["offsets"]:
                assert is_remote == (one["offset"] < local)
            if is_remote:
                segment = segments[one["tier"]["segment_id"]]
                assert segment["start_offset"] <= one["offset"] <= segment["end_offset"]
                assert (segment["start_offset"], segment["end_offset"]) == (
                    one["tier"]["start_offset"],
                    one["tier"]["end_offset"],
                )
                assert str(one["tier"]["epoch"]) in segment["epochs"]


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["house", "gappy", "unclean-tail", "killed"])
def test_times_are_answered_as_brokers_do(klog: Klog, image: Callable[[str], Path], tmp_path: Path, name: str) -> None:
    """Also where that is not the first record that is due."""
    found = situation(image, name, "after" if name == "killed" else "before")
    for partition, told in found.clients.items():
        if told.get("times"):
            shown = answers(
                klog, found, partition, numbers(tmp_path, (time for time, *_ in told["times"])), "--timestamp"
            )
            offsets = [-1 if one["offset"] is None else one["offset"] for one in shown]
            assert offsets == [offset for _, offset, _ in told["times"]]


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["gappy", "house"])
def test_the_first_record_is_named_where_a_broker_finds_another(
    klog: Klog, image: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """A broker looks in one remote segment, and then in the local log; in a log with gaps it passes records over."""
    found = situation(image, name)
    missed = 0
    for partition, told in found.clients.items():
        if not told.get("times") or partition == "tx-0":  # a consumer is not handed the markers
            continue
        times = [time for time, *_ in told["times"]]
        shown = answers(klog, found, partition, numbers(tmp_path, times), "--timestamp")
        for (time, offset, *_), one in zip(told["times"], shown, strict=True):
            due = next(((row[0], row[1]) for row in told["uncommitted"] if row[1] >= time), None)
            if due is None or due[0] == offset:
                assert one["first_record"] is None
                continue
            missed += 1
            assert one["first_record"] == {"offset": due[0], "timestamp": due[1]}
            topic, _, number = partition.rpartition("-")
            where = (found.leader, "--remote", found.tier, "-t", topic, "-p", number)
            alone = klog("lookup", *where, "--timestamp", str(time))
            assert f"the first record that is not earlier has offset {due[0]}" in alone.stderr.decode()
    assert bool(missed) == (name == "gappy")


@pytest.mark.corpora
def test_the_trail_begins_with_the_tier(klog: Klog, image: Callable[[str], Path]) -> None:
    found = situation(image, "house")
    where = (found.leader, "--remote", found.tier, "-t", "plain", "-p", "0")
    first = klog("lookup", *where, "--offset", "5").stdout.decode().splitlines()[0]
    assert re.fullmatch(r"tier +remote, segment \S{22} \(0–\d+\), epoch 0 → chain of 12 segments", first)
    assert klog("lookup", *where, "--offset", "150").stdout.decode().splitlines()[0].split() == ["tier", "local"]
    alone = klog("lookup", "--remote", found.tier, "-t", "plain", "-p", "0", "--offset", "5", "-o", "json")
    assert json.loads(alone.stdout)["tier"]["name"] == "remote"
    without = klog("lookup", found.leader / "plain-0", "--offset", "150").stdout.decode()
    assert without.startswith("segment")


def test_a_place_is_needed(klog: Klog, tmp_path: Path) -> None:
    assert klog("lookup", "--offset", "5").exit_code == 16
    assert klog("lookup", tmp_path, "--tier", "remote", "--offset", "5").exit_code == 16


@pytest.mark.corpora
def test_a_record_whose_transaction_ends_in_a_missing_segment(
    klog: Klog, image: Callable[[str], Path], tmp_path: Path
) -> None:
    """The end of its transaction is the only thing that is not known."""
    found = situation(image, "house")
    tier = writable_copy(found.tier, tmp_path / "tier")
    where = (found.leader, "--remote", tier, "-t", "tx", "-p", "0", "--offset", "77", "-o", "json")
    whole = klog("lookup", *where)
    (log,) = tier.glob(f"*/tx-0-*/{80:020}-*.log")
    log.unlink()
    ran = klog("lookup", *where)
    shown = json.loads(ran.stdout)
    assert (whole.exit_code, ran.exit_code) == (0, 4)
    assert shown["record"] == json.loads(whole.stdout)["record"]
    (problem,) = shown["problems"]
    assert "the end of its transaction is not known" in problem
    assert log.name in problem
