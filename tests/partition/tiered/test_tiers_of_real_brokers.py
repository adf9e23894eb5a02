"""One log over two tiers: the offsets, times and records that Kafka's clients got from the brokers that wrote them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from klog.data_dir.log_dir import LogDir
from klog.data_dir.partition import Partition
from klog.formats.damage import Damage
from klog.jobs.slice_scan import SliceScan
from klog.jobs.slices import slice_partition
from klog.log.records import RecordFilter
from klog.partition.lookup import Lookup, TrailDetail
from klog.partition.tiered.mounts import Mounted, MountRequest, mounted
from klog.partition.transactions.isolation import Isolation
from klog.tier.tier import Tier, open_tier

from tests.conftest import CORPORA
from tests.support.tiers import IMAGES, Situation, situation

ANSWERED = [one for one in IMAGES if one[0] != "damaged"]
UNTIMELY = ("gappy", "unclean-tail")
"""Situations in which a broker's answer for a time is not the first record that is due."""


def tier_of(found: Situation) -> Tier:
    return open_tier(str(found.tier), None, {"key1": str(CORPORA / "tiered/make/keys/private.pem")})


@contextmanager
def both_tiers(found: Situation, part: str = "both") -> Iterator[Mounted]:
    with mounted(MountRequest(tier_of(found), [str(found.leader)], part=part)) as result:
        yield result


def told(found: Situation) -> Iterator[tuple[Partition, dict[str, Any]]]:
    """Each partition, and what clients were told about it."""
    for name, answers in found.clients.items():
        if isinstance(answers["offsets"]["earliest"], int):
            yield LogDir(str(found.leader)).partition(name), answers


def records(partition: Partition, isolation: Isolation) -> tuple[list[tuple[Any, ...]], list[Damage]]:
    rows, damages = [], []
    for part in slice_partition(partition, isolation=isolation):
        for one in SliceScan(RecordFilter()).read(part):
            if isinstance(one, Damage):
                damages.append(one)
                continue
            for i in range(one.records):
                offset, timestamp, key, value, _, _, batch = one.record(i)
                texts = [None if text is None else bytes(text).decode() for text in (key, value)]
                rows.append((offset, timestamp, *texts, one.batch(batch).leader_epoch))
    return rows, damages


def first_after(lookup: Lookup, timestamp: int) -> int:
    trail = lookup.timestamp(timestamp)
    assert not trail.problems
    return trail.offset if trail.found and trail.offset is not None else -1


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), ANSWERED)
def test_offsets_are_those_of_list_offsets(image: Callable[[str], Path], name: str, moment: str) -> None:
    """Earliest, earliest local, highest remote and latest; a partition that copies nothing after a restart says -1."""
    found = situation(image, name, moment)
    with both_tiers(found) as result:
        for partition, answers in told(found):
            log, offsets = result.logs.get(partition.path), answers["offsets"]
            assert partition.log_end is not None
            assert partition.log_end.offset == offsets["latest"]
            if log is None:
                assert partition.log_start_offset == offsets["earliest"]
                continue
            assert log.local_start is not None
            assert (log.log_start, max(log.local_start, log.log_start)) == (
                offsets["earliest"],
                offsets["earliest_local"],
            )
            if partition.topic != "stopped":
                assert log.remote_end_offset == offsets["latest_tiered"]
            assert log.holes() == []
            ranges = list(log.ranges(offsets["latest"]))
            assert [one.first for one in ranges[1:]] == [one.last + 1 for one in ranges[:-1]]
            assert (ranges[0].first, ranges[-1].last) == (offsets["earliest"], offsets["latest"] - 1)


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), ANSWERED)
def test_records_are_those_of_consumers(image: Callable[[str], Path], name: str, moment: str) -> None:
    """Both isolation levels, each record once, in order; where a broker served a dead branch, the live records."""
    found = situation(image, name, moment)
    with both_tiers(found):
        for partition, answers in told(found):
            rows, damages = records(partition, "read_uncommitted")
            theirs = [(*row[:4], row[5]) for row in answers["uncommitted"]]
            if name == "unclean-tail":
                assert partition.epochs is not None
                starts = [(one.start_offset, one.epoch) for one in partition.epochs.entries]
                wrong = [row for row in theirs if row[4] != max(one for one in starts if one[0] <= row[0])[1]]
                assert [row[0] for row in wrong] == [row[0] for row in rows if row not in theirs]
                theirs = [row for row in theirs if row not in wrong]
                rows = [row for row in rows if row[0] not in {one[0] for one in wrong}]
            assert (rows, damages) == (theirs, [])
            rows, damages = records(partition, "read_committed")
            assert ([row[0] for row in rows], damages) == (answers["committed"], [])


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), [one for one in ANSWERED if not one[0].startswith("aiven")])
def test_times_are_those_of_list_offsets(image: Callable[[str], Path], name: str, moment: str) -> None:
    found = situation(image, name, moment)
    with both_tiers(found):
        for partition, answers in told(found):
            with Lookup(partition, wanted=TrailDetail(explains=False)) as lookup:
                asked = [(time, first_after(lookup, time)) for time, *_ in answers["times"]]
            assert asked == [(time, offset) for time, offset, _ in answers["times"]]


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), [one for one in ANSWERED if one[0] not in UNTIMELY])
def test_any_time_leads_to_the_first_record_that_is_due(image: Callable[[str], Path], name: str, moment: str) -> None:
    """200 random times, and 200 offsets, in the records that consumers got."""
    found, draw = situation(image, name, moment), random.Random(7)
    with both_tiers(found):
        for partition, answers in told(found):
            rows = [row[:2] for row in answers["uncommitted"]]
            if not rows:
                continue
            lowest, highest = min(row[1] for row in rows), max(row[1] for row in rows)
            with Lookup(partition, wanted=TrailDetail(explains=False)) as lookup:
                has_markers = (
                    len(rows) < rows[-1][0] + 1 - rows[0][0]
                )  # a consumer gets none, a broker's answer may be one
                for time in () if has_markers else (draw.randint(lowest - 10, highest) for _ in range(200)):
                    assert first_after(lookup, time) == next(offset for offset, stamp in rows if stamp >= time)
                for offset, stamp in draw.choices(rows, k=200):
                    trail = lookup.offset(offset)
                    assert (trail.offset, trail.record and trail.record.timestamp) == (offset, stamp)


@pytest.mark.corpora
@pytest.mark.parametrize("name", ["house", "aiven-zstd", "aiven-encrypted"])
def test_one_tier_alone(image: Callable[[str], Path], name: str) -> None:
    """The remote tier ends at its highest offset, the local one begins at its first segment; each is read alone."""
    found = situation(image, name)
    for partition, answers in told(found):
        offsets, rows = answers["offsets"], [row[0] for row in answers["uncommitted"]]
        if "latest_tiered" not in offsets or offsets["latest_tiered"] < 0:
            continue
        topic, number = partition.topic or "", partition.number or 0
        remote = [offset for offset in rows if offset <= offsets["latest_tiered"]]
        with both_tiers(found, "remote"):
            again = Partition(partition.path)
            read = [row[0] for row in records(again, "read_uncommitted")[0]]
            assert [offset for offset in read if offset >= offsets["earliest"]] == remote
        with both_tiers(found, "local"):
            read = [row[0] for row in records(Partition(partition.path), "read_uncommitted")[0]]
            assert read == [offset for offset in rows if offset >= offsets["earliest_local"]]
        with mounted(MountRequest(tier_of(found), (), [topic], [number])) as alone:
            (path,) = alone.paths
            read = [row[0] for row in records(Partition(path), "read_uncommitted")[0]]
            assert [offset for offset in read if offset >= offsets["earliest"]] == remote


@pytest.mark.corpora
def test_records_around_damage_are_read_and_the_damage_is_told(image: Callable[[str], Path]) -> None:
    """A broker stops at some of these, and skips others without an error."""
    found = situation(image, "damaged")
    lost = {
        "d-log-missing-0": range(36, 48),
        "d-log-cut-0": range(30, 36),
        "d-log-cut-clean-0": range(21, 24),
        "d-log-empty-0": range(24, 36),
        "d-all-missing-0": range(36, 48),
        "d-first-missing-0": range(12),
        "d-swapped-0": range(36, 60),
        "d-log-flip-0": range(21, 24),
        "d-log-grown-0": range(0),
    }
    with both_tiers(found):
        for partition, answers in told(found):
            rows, damages = records(partition, "read_uncommitted")
            missing = lost.get(partition.directory)
            read = [row[0] for row in rows]
            assert read == [row[0] for row in answers["uncommitted"] if row[0] not in (missing or ())]
            assert bool(damages) == (missing is not None)
            assert all(".log" in damage.place.file and "-" in damage.place.file.split("/")[-1] for damage in damages)
            committed = [row[0] for row in records(partition, "read_committed")[0]]
            assert committed == [offset for offset in answers["committed"] if offset not in (missing or ())]


@pytest.mark.corpora
def test_nothing_remains_afterwards(image: Callable[[str], Path]) -> None:
    found = situation(image, "house")
    before = Partition(str(found.leader / "plain-0")).files
    with both_tiers(found):
        assert len(Partition(str(found.leader / "plain-0")).files) > len(before)
    assert Partition(str(found.leader / "plain-0")).files == before
