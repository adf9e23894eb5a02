"""The doctor's prediction is the broker's action, state by state, after both kinds of stop.

The marker `long` runs every state with both versions, and a hundred combinations of states.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from klog.commands.doctor.diagnosis import Fate, NextStep
from klog.commands.doctor.partition_fates import MAY_LOAD_FIRST

from tests.brokers import kafka
from tests.commands.doctor.broker import TOPIC, build_disks, copy_disk, start
from tests.commands.doctor.comparison import differences
from tests.commands.doctor.disks import all_partition_states, ask, can_follow, combination, follow
from tests.commands.doctor.states import DISK_STATES, PARTITION_STATES, Disk

pytestmark = pytest.mark.kafka

VERSIONS = (kafka.NEWEST, kafka.BEFORE)
STOPS = ("killed", "clean")
Disks = Callable[[str, str], Path]
TOGETHER = {4, 7, 16}
COPY_STOPS = (
    "recovery-points-malformed", "log-starts-malformed", "cleaner-offsets-malformed", "epochs-malformed",
    "partition-metadata-malformed",
)  # fmt: skip
SAMPLE = {
    (kafka.NEWEST, "killed", "version-9"),
    (kafka.NEWEST, "clean", "same-directory-id"),
    (kafka.NEWEST, "clean", "future-beside-current"),
    (kafka.BEFORE, "clean", "directory-id-changed-and-partitions-gone"),
}


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> Disks:
    """Return a function that gives the disk of a version as a kind of stop left it."""
    built: dict[str, dict[str, Path]] = {}

    def disk(version: str, stop: str) -> Path:
        if version not in built:
            built[version] = build_disks(version, tmp_path_factory.mktemp("disks"))
        return built[version][stop]

    return disk


def everything() -> list[object]:
    """Return each state of a disk with each version and kind of stop; a sample is not `long`."""
    cases = [(version, stop, name) for version in VERSIONS for stop in STOPS for name in DISK_STATES]
    return [
        pytest.param(*case, marks=[] if case in SAMPLE else [pytest.mark.long], id="-".join(case)) for case in cases
    ]


@pytest.mark.parametrize(("version", "stop", "name"), everything())
def test_a_state_of_the_disk(disks: Disks, tmp_path: Path, version: str, stop: str, name: str) -> None:
    """A broker that stops at the format renames nothing; one that continues does exactly the predicted actions."""
    folder = copy_disk(disks(version, stop), tmp_path / "disk")
    DISK_STATES[name](Disk(folder))
    told = ask(folder, version)
    assert differences(told, start(version, folder)) == []


@pytest.mark.parametrize("version", [kafka.NEWEST, pytest.param(kafka.BEFORE, marks=pytest.mark.long)])
@pytest.mark.parametrize("stop", ["killed", pytest.param("clean", marks=pytest.mark.long)])
def test_the_states_of_partitions(disks: Disks, tmp_path: Path, version: str, stop: str) -> None:
    """One start shows twenty-three states: fates, log starts and ends, and how many records a consumer gets."""
    folder = copy_disk(disks(version, stop), tmp_path / "disk")
    all_partition_states(Disk(folder))
    told = ask(folder, version)
    assert told.loses > 0
    assert differences(told, start(version, folder)) == []


@pytest.mark.parametrize("version", [kafka.NEWEST, pytest.param(kafka.BEFORE, marks=pytest.mark.long)])
@pytest.mark.parametrize("stop", [pytest.param("killed", marks=pytest.mark.long), "clean"])
def test_after_the_steps_nothing_is_lost(disks: Disks, tmp_path: Path, version: str, stop: str) -> None:
    """Who follows the steps gets a start that renames, deletes and loses nothing, and all records are served."""
    folder = copy_disk(disks(version, stop), tmp_path / "disk")
    all_partition_states(Disk(folder))
    before = ask(folder, version)
    follow(before.next, tmp_path / "aside")
    told = ask(folder, version)
    assert told.is_harmless, [row for row in told.partitions if row.lost_records]
    assert told.next == ()
    did = start(version, folder)
    assert differences(told, did) == []
    assert not {"stray", "delete"} & set(did.fates.values()), did.fates


@pytest.mark.long
@pytest.mark.parametrize("fault", COPY_STOPS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_in_an_offline_log_dir(disks: Disks, tmp_path: Path, version: str, fault: str) -> None:
    """A copy that becomes the partition has to be renamed, and the broker stops where that fails."""
    folder = copy_disk(disks(version, "killed"), tmp_path / "disk")
    disk = Disk(folder)
    PARTITION_STATES["future-alone"](disk, int(disk.logs1[2].name.removeprefix(f"{TOPIC}-")))
    DISK_STATES[fault](disk)
    told = ask(folder, version)
    assert not told.starts
    assert differences(told, start(version, folder)) == []


@pytest.mark.long
@pytest.mark.parametrize("stop", STOPS)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_copy_beside_its_partition(disks: Disks, tmp_path: Path, version: str, stop: str) -> None:
    """The broker ignores it while the metadata have the other log dir, and says that it is this one: then it stops."""
    folder = copy_disk(disks(version, stop), tmp_path / "disk")
    for name in ("future-beside-current", "directory-ids-swapped"):
        DISK_STATES[name](Disk(folder))
    told = ask(folder, version)
    assert {row.fate for row in told.partitions if row.reason == "future-beside-current"} == {Fate.KEEPS}
    assert differences(told, start(version, folder)) == []
    told = ask(folder, version)
    assert told.failure is not None
    assert told.failure.id == "future-beside-current"
    assert differences(told, start(version, folder)) == []


@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.long)])
def test_strays_in_a_log_dir_that_a_partition_takes_offline(disks: Disks, tmp_path: Path, is_first: bool) -> None:
    """The broker stops at a stray that it loads later; it loads directories in the order of their file system."""
    folder = copy_disk(disks(kafka.NEWEST, "clean"), tmp_path / "disk")
    disk = Disk(folder)
    listed = [name for name in os.listdir(disk.data1) if (disk.data1 / name / "partition.metadata").exists()]
    fault, strays = (listed[0], listed[-3:]) if is_first else (listed[-1], listed[:1])
    (disk.data1 / fault / "leader-epoch-checkpoint").write_text("nothing\nof that kind")
    for stray in strays:
        (disk.data1 / stray / "partition.metadata").unlink()
    told, did = ask(folder, kafka.NEWEST), start(kafka.NEWEST, folder)
    assert told.failure is not None
    assert (
        told.failure.message
        == f"{disk.data1 / told.failure.directory}: it would be renamed to -stray: {MAY_LOAD_FIRST}"
    )
    assert told.failure.directory in strays
    assert did.starts is not is_first
    assert differences(told, did) == []


def seeds() -> list[object]:
    """Return a hundred seeds of combinations; a sample is not `long`."""
    return [pytest.param(seed, marks=[] if seed in TOGETHER else [pytest.mark.long]) for seed in range(100)]


@pytest.mark.parametrize("seed", seeds())
def test_states_together(disks: Disks, tmp_path: Path, seed: int) -> None:
    """A state that hides another one does so in the answer, too."""
    version, stop = VERSIONS[seed % 2], STOPS[seed // 2 % 2]
    folder = copy_disk(disks(version, stop), tmp_path / "disk")
    name, change = combination(seed)
    change(Disk(folder))
    told = ask(folder, version)
    assert differences(told, start(version, folder)) == [], name


def is_later(step: NextStep) -> bool:
    """Whether it is one for a transaction that nothing ends."""
    return "end the transaction after the start" in (step.manual or "")


@pytest.mark.parametrize("seed", seeds())
def test_the_way_out_of_states_together(disks: Disks, tmp_path: Path, seed: int) -> None:
    """One list has the steps about the faults that stop a broker, and about all later ones.

    A transaction that nothing ends is left: an operator ends it after the start.
    """
    version, stop = VERSIONS[seed % 2], STOPS[seed // 2 % 2]
    folder = copy_disk(disks(version, stop), tmp_path / "disk")
    name, change = combination(seed)
    change(Disk(folder))
    before = ask(folder, version)
    if not before.is_whole_way or not can_follow(before.next):
        assert before.next, name  # a metadata log to restore, a disk to mount: missing here
        return
    later = tuple(step for step in before.next if is_later(step))
    follow([step for step in before.next if step not in later], tmp_path / "aside")
    told = ask(folder, version)
    assert (told.is_harmless or bool(later), told.next) == (True, later), (name, before.next, told)
    did = start(version, folder)
    assert differences(told, did) == [], name
    assert "stray" not in did.fates.values(), (name, did.fates)
