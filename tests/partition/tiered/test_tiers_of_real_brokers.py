"""One log over two tiers: the offsets, times and records that Kafka's clients got from the brokers that wrote them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from klog.data_dir.partition import Partition
from klog.partition.tiered.mounts import MountRequest, mounted

from tests.partition.tiered import checks
from tests.partition.tiered.checks import both_tiers, records, tier_of, told
from tests.support.tiers import IMAGES, situation

ANSWERED = [one for one in IMAGES if one[0] != "damaged"]


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), ANSWERED)
def test_offsets_are_those_of_list_offsets(image: Callable[[str], Path], name: str, moment: str) -> None:
    """Earliest, earliest local, highest remote and latest; a partition that copies nothing after a restart says -1."""
    checks.check_offsets(situation(image, name, moment))


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), ANSWERED)
def test_records_are_those_of_consumers(image: Callable[[str], Path], name: str, moment: str) -> None:
    """Both isolation levels, each record once, in order; where a broker served a dead branch, the live records."""
    checks.check_records(situation(image, name, moment))


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), [one for one in ANSWERED if not one[0].startswith("aiven")])
def test_times_are_those_of_list_offsets(image: Callable[[str], Path], name: str, moment: str) -> None:
    checks.check_times(situation(image, name, moment))


@pytest.mark.corpora
@pytest.mark.parametrize(("name", "moment"), [one for one in ANSWERED if one[0] not in checks.UNTIMELY])
def test_any_time_leads_to_the_first_record_that_is_due(image: Callable[[str], Path], name: str, moment: str) -> None:
    """200 random times, and 200 offsets, in the records that consumers got."""
    checks.check_any_time(situation(image, name, moment))


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
