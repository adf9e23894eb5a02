"""A disk under a broker 2.8.2 with ZooKeeper, and the doctor's prediction."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.brokers import kafka
from tests.commands.doctor.broker import build_disks, copy_disk, start
from tests.commands.doctor.comparison import differences
from tests.commands.doctor.disks import ask, follow
from tests.commands.doctor.states import DISK_STATES, PARTITION_STATES, Disk, everywhere, in_one

pytestmark = pytest.mark.kafka

VERSION = kafka.LEGACY
OTHER_CLUSTER = "AAAAAAAAQACAAAAAAAAAAA"


def meta_is_directory(disk: Disk) -> None:
    (disk.data1 / "meta.properties").unlink()
    (disk.data1 / "meta.properties").mkdir()


def broken_escape(disk: Disk) -> None:
    (disk.data1 / "meta.properties").write_text("version=0\nbroker.id=\\u12\n")


def lines_in_other_order(disk: Disk) -> None:
    file = disk.data1 / "meta.properties"
    file.write_text("\n".join(reversed(file.read_text().splitlines())) + "\n")


SHARED = (
    "untouched", "empty-meta", "no-meta-in-metadata-dir", "no-meta-in-other", "no-meta", "lost+found",
    "name-that-parses", "plain-files", "duplicate", "two-futures", "future-beside-current", "recovery-points-malformed",
    "log-starts-malformed", "high-watermarks-malformed", "cleaner-offsets-malformed",
    "recovery-points-malformed-in-metadata-dir", "checkpoint-number", "checkpoints-missing", "one-marker",
    "log-dir-missing", "log-dir-empty", "log-dir-is-file", "foreign-log-name", "partition-metadata-empty",
    "partition-metadata-one-line", "partition-metadata-no-uuid", "partition-metadata-zero",
    "partition-metadata-malformed", "epochs-malformed", "epochs-malformed-in-metadata-dir", "epochs-number",
    "metadata-log-elsewhere",
)  # fmt: skip
STATES: dict[str, Callable[[Disk], object]] = {
    **{name: DISK_STATES[name] for name in SHARED},
    "cluster-id-of-one": in_one(1, "cluster.id", OTHER_CLUSTER),
    "cluster-id-of-all": everywhere("cluster.id", OTHER_CLUSTER),
    "cluster-id-missing": in_one(1, "cluster.id", None),
    "cluster-ids-missing": everywhere("cluster.id", None),
    "broker-id-of-one": in_one(1, "broker.id", "7"),
    "broker-id-of-all": everywhere("broker.id", "7"),
    "broker-id-missing": in_one(1, "broker.id", None),
    "broker-ids-missing": everywhere("broker.id", None),
    "broker-ids-no-number": everywhere("broker.id", "one"),
    "version-missing": in_one(1, "version", None),
    "versions-missing": everywhere("version", None),
    "version-1": in_one(1, "version", "1"),
    "versions-1": everywhere("version", "1"),
    "meta-is-directory": meta_is_directory,
    "broken-escape": broken_escape,
    "lines-in-other-order": lines_in_other_order,
    "stray-alone": lambda disk: PARTITION_STATES["stray-alone"](disk, 5),
    "stray-beside": lambda disk: PARTITION_STATES["stray-beside"](disk, 5),
}
SAMPLE = {("killed", "checkpoint-number"), ("clean", "epochs-malformed")}
NOT_HERE = {
    "topic-id-missing",
    "topic-id-other",
    "stray-alone",
    "stray-beside",
    "future-alone",
    "future-alone-elsewhere",
}
"""No file has a topic id here; a stray stops it; where a future alone leads depends on how many logs are where."""


@pytest.fixture(scope="module")
def disks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The disk as each kind of stop left it."""
    return build_disks(VERSION, tmp_path_factory.mktemp("disks"))


def cases() -> list[object]:
    """Return each state with each kind of stop; a sample is not `long`."""
    found = [(stop, name) for stop in ("killed", "clean") for name in STATES]
    return [
        pytest.param(*case, marks=[] if case in SAMPLE else [pytest.mark.long], id="-".join(case)) for case in found
    ]


@pytest.mark.parametrize(("stop", "name"), cases())
def test_a_state_of_the_disk(disks: dict[str, Path], tmp_path: Path, stop: str, name: str) -> None:
    """It compares whole files, has no strays, and stops where later ones take a log dir offline."""
    folder = copy_disk(disks[stop], tmp_path / "disk")
    cluster_id = Disk(folder).property_of(folder / "data", "cluster.id")
    STATES[name](Disk(folder))
    told = ask(folder, VERSION, cluster_id)
    assert differences(told, start(VERSION, folder)) == []


@pytest.mark.parametrize("stop", ["killed", pytest.param("clean", marks=pytest.mark.long)])
def test_the_states_of_partitions(disks: dict[str, Path], tmp_path: Path, stop: str) -> None:
    """One start shows seventeen states; none strays, whatever the directory is called."""
    folder = copy_disk(disks[stop], tmp_path / "disk")
    for number, (name, change) in enumerate(PARTITION_STATES.items()):
        if name not in NOT_HERE:
            change(Disk(folder), number)
    told = ask(folder, VERSION)
    assert not any(row.fate.value in ("strays", "leaderless", "creates") for row in told.partitions)
    assert differences(told, start(VERSION, folder)) == []


@pytest.mark.parametrize("stop", ["clean", pytest.param("killed", marks=pytest.mark.long)])
def test_after_the_steps_it_starts(disks: dict[str, Path], tmp_path: Path, stop: str) -> None:
    """Faults that hide one another are all in one list of steps."""
    folder = copy_disk(disks[stop], tmp_path / "disk")
    disk = Disk(folder)
    for name in ("lost+found", "version-missing", "epochs-malformed", "duplicate", "partition-metadata-one-line"):
        STATES[name](disk)
    follow(ask(folder, VERSION).next, tmp_path / "aside")
    told = ask(folder, VERSION)
    assert (told.is_harmless, told.next) == (True, ()), told
    assert differences(told, start(VERSION, folder)) == []
