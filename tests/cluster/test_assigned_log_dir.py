"""A partition in a log dir that is not given is not missing: a second directory would keep the broker from starting."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.cluster.assigned_log_dir import AssignedLogDir, assigned_log_dir
from klog.cluster.election import LOST_DIRECTORY, MIGRATING_DIRECTORY, UNASSIGNED_DIRECTORY
from klog.data_dir.log_dir import LogDir

from tests.oracles.plain.encode import Record, batch
from tests.support import metadata_logs
from tests.support.metadata_logs import uuid

Run = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("hasty")
FIRST, SECOND = uuid(101), uuid(201)
"""The directory ids of node 1's two log dirs; node 2 has those of the numbers behind."""


class Cluster:
    """Two nodes with two log dirs each.  Node 1 has t-0 in its first log dir and t-1 in its second; node 2 has both.

    *directories*: of the replicas on node 1, instead of those where they are.
    """

    def __init__(self, root: Path, directories: tuple[str, str] | None = (FIRST, SECOND)) -> None:
        self.root = root
        for node in (1, 2):
            self._metadata(self.place(node, 0), directories)
            for number in (0, 1):
                place = self.place(node, number)
                place.mkdir(parents=True, exist_ok=True)
                directory_id = uuid(number * 100 + 100 + node)
                properties = f"version=1\ncluster.id=x\nnode.id={node}\ndirectory.id={directory_id}\n"
                (place / "meta.properties").write_text(properties)
                (place / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":11}')
        for node, log_dir, number in ((1, 0, 0), (1, 1, 1), (2, 0, 0), (2, 0, 1)):
            path = self.place(node, log_dir) / f"t-{number}"
            path.mkdir()
            (path / f"{0:020d}.log").write_bytes(batch([Record(0, 1, b"k", b"v"), Record(1, 1, b"k", b"w")]))
            (path / f"{0:020d}.index").touch()
            (path / f"{0:020d}.timeindex").touch()
            (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid(7)}")

    def _metadata(self, place: Path, directories: tuple[str, str] | None) -> None:
        log = metadata_logs.MetadataLog(place)
        level = 30 if directories is not None else 16
        log.add(metadata_logs.value("FeatureLevel", name="metadata.version", featureLevel=level))
        for node in (1, 2):
            register = {"brokerId": node, "brokerEpoch": 10 + node, "incarnationId": uuid(node)}
            log.add(metadata_logs.value("RegisterBroker", **register, logDirs=[uuid(100 + node), uuid(200 + node)]))
        log.add(metadata_logs.topic("t", 7))
        for number in (0, 1):
            fields = {"replicas": [1, 2], "isr": [1, 2], "leader": 2, "leaderEpoch": 3, "partitionEpoch": 5}
            places = [] if directories is None else [directories[number], uuid(102)]
            partition = {"topicId": uuid(7), "partitionId": number, "directories": places}
            log.add(metadata_logs.value("Partition", **fields, **partition))

    def place(self, node: int, number: int) -> Path:
        return self.root / f"broker-{node}" / f"data{number}"

    def disks(self, *without: Path) -> list[Path]:
        every = [self.place(node, number) for node in (1, 2) for number in (0, 1)]
        return [one for one in every if one not in without]


def compared(klog: Run, disks: list[Path], code: int) -> dict[int, dict[str, Any]]:
    done = klog("replicas", "diff", *disks, "--output", "json")
    assert done.exit_code == code, done.stderr
    return {one["partition"]: one for one in json.loads(done.stdout)["partitions"]}


def directories(cluster: Cluster) -> set[str]:
    return {str(path.relative_to(cluster.root)) for path in cluster.root.glob("broker-*/data*/t-*")}


def test_all_log_dirs_are_given_and_nothing_is_wrong(klog: Run, tmp_path: Path) -> None:
    found = compared(klog, Cluster(tmp_path / "disks").disks(), 0)
    assert {(one["verdict"], *one["missing"], *one["not_given"]) for one in found.values()} == {("same",)}


@pytest.mark.parametrize(("absent", "number"), [(0, 0), (1, 1)])
def test_a_log_dir_that_is_not_given_is_not_missing(klog: Run, tmp_path: Path, absent: int, number: int) -> None:
    """Node 1 has a metadata log in its first log dir, and node 2 has one, too."""
    cluster = Cluster(tmp_path / "disks")
    disks = cluster.disks(cluster.place(1, absent))
    found = compared(klog, disks, 4)
    assert {one: found[one]["verdict"] for one in found} == {0: "same", 1: "same"}
    assert {one: (found[one]["missing"], found[one]["not_given"]) for one in found} == {
        number: ([], [1]),
        1 - number: ([], []),
    }
    assert found[number]["absent_log_dirs"] == {"1": [(FIRST, SECOND)[absent]]}
    before = directories(cluster)
    for options in ((), ("--keep", "newest")):
        done = klog("replicas", "plan", *disks, *options, "--apply")
        assert done.exit_code == 8
        assert (FIRST, SECOND)[absent] in done.stderr.decode()
        assert directories(cluster) == before


def test_a_plan_stops_until_the_log_dir_is_given_or_left_out(klog: Run, tmp_path: Path) -> None:
    """The copy that is behind is filled up without a second directory for the one that is not given."""
    cluster = Cluster(tmp_path / "disks")
    log = cluster.place(2, 0) / "t-1" / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + batch([Record(2, 1, b"k", b"x")]))
    disks = cluster.disks(cluster.place(1, 1))
    before = directories(cluster)
    third = tmp_path / "third"
    shutil.copytree(cluster.place(2, 0), third)
    (third / "meta.properties").write_text(f"version=1\ncluster.id=x\nnode.id=3\ndirectory.id={uuid(103)}\n")
    (third / "t-1" / f"{0:020d}.log").write_bytes(batch([Record(0, 1, b"k", b"v"), Record(1, 1, b"k", b"w")]))
    done = klog("replicas", "plan", *disks, third, "--apply")
    assert done.exit_code == 8
    assert f"the log dir of node 1 with directory.id={SECOND} is not given" in done.stderr.decode()
    assert klog("replicas", "plan", *disks, third, "--without", FIRST).exit_code == 16
    assert klog("replicas", "plan", *disks, third, "--without", "1").exit_code == 16
    assert klog("replicas", "plan", *disks, third, "--without", "x").exit_code == 16
    done = klog("replicas", "plan", *disks, third, "--without", SECOND, "--apply")
    assert done.exit_code == 0, done.stderr
    assert f"the log dir with directory.id={SECOND} must not come up with its old copies" in done.stderr.decode()
    assert (third / "t-1" / f"{2:020d}.log").exists()
    assert directories(cluster) == before


def test_a_rescue_does_not_take_it_for_empty(klog: Run, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "disks")
    disks = cluster.disks(cluster.place(1, 1))
    done = klog("replicas", "rescue", *disks, "--if-leads", "1", "--to", "-")
    assert (done.exit_code, done.stdout) == (4, b"")
    assert f"t-1: the log dir of node 1 with directory.id={SECOND} is not given" in done.stderr.decode()


@pytest.mark.parametrize("assigned", [(FIRST, SECOND), None], ids=["assigned", "version 0"])
def test_a_directory_that_is_gone_is_made_again_where_it_was(
    klog: Run, tmp_path: Path, assigned: tuple[str, str] | None
) -> None:
    """Before 3.7 no assignment names a log dir, and a broker has only one."""
    cluster = Cluster(tmp_path / "disks", assigned)
    shutil.rmtree(cluster.place(1, 1) / "t-1")
    disks = cluster.disks() if assigned else cluster.disks(cluster.place(1, 1))
    found = compared(klog, disks, 4)
    assert (found[1]["verdict"], found[1]["missing"], found[1]["not_given"]) == ("missing", [1], [])
    assert klog("replicas", "plan", *disks, "--apply").exit_code == 0
    assert (cluster.place(1, 1 if assigned else 0) / "t-1" / f"{0:020d}.log").stat().st_size


@pytest.mark.parametrize(("absent", "number"), [(0, 0), (1, 1)])
def test_only_broker_makes_no_partition_twice(klog: Run, tmp_path: Path, absent: int, number: int) -> None:
    """With the log dir left out for good the partition gets another one, and the assignment with it."""
    cluster = Cluster(tmp_path / "disks")
    if absent == 0:
        shutil.move(cluster.place(1, 0) / "__cluster_metadata-0", cluster.place(1, 1))
    disks, before = cluster.disks(cluster.place(1, absent)), directories(cluster)
    words = ("metadata", "plan", *disks, "--only-broker", "1")
    done = klog(*words, "--apply")
    assert done.exit_code == 8
    assert (FIRST, SECOND)[absent] in done.stderr.decode()
    assert directories(cluster) == before
    done = klog(*words, "--without", (FIRST, SECOND)[absent], "--apply")
    assert done.exit_code == 0, done.stderr
    assert directories(cluster) == before | {f"broker-1/data{1 - absent}/t-{number}"}


def test_only_broker_does_not_need_the_log_dirs_of_others(klog: Run, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "disks")
    disks, before = cluster.disks(cluster.place(1, 1), cluster.place(1, 0)), directories(cluster)
    assert klog("metadata", "plan", *disks, "--only-broker", "2", "--apply").exit_code == 0
    assert directories(cluster) == before


@pytest.mark.parametrize(
    ("assigned", "registered", "given", "found"),
    [
        (FIRST, (FIRST, SECOND), (FIRST, SECOND), AssignedLogDir(0)),
        (SECOND, (FIRST, SECOND), (FIRST, SECOND), AssignedLogDir(1)),
        (SECOND, (FIRST, SECOND), (FIRST,), AssignedLogDir(None, (SECOND,))),
        (SECOND, (), (FIRST,), AssignedLogDir(None, (SECOND,))),
        (LOST_DIRECTORY, (FIRST,), (FIRST,), AssignedLogDir(None, (LOST_DIRECTORY,))),
        # Its log dir is unknown: one of those that are not given, if the broker has others.
        (UNASSIGNED_DIRECTORY, (FIRST, SECOND), (FIRST,), AssignedLogDir(None, (SECOND,))),
        (UNASSIGNED_DIRECTORY, (FIRST, SECOND), (SECOND, FIRST), AssignedLogDir(0)),
        (MIGRATING_DIRECTORY, (FIRST,), (FIRST,), AssignedLogDir(0)),
        (None, (FIRST, SECOND), (FIRST,), AssignedLogDir(0)),
        (None, (), (None,), AssignedLogDir(0)),
        # A log dir without an id may be any.
        (SECOND, (FIRST, SECOND), (FIRST, None), AssignedLogDir(1)),
        (UNASSIGNED_DIRECTORY, (FIRST, SECOND), (FIRST, None), AssignedLogDir(1)),
    ],
)
def test_the_log_dir_of_an_assignment(
    tmp_path: Path, assigned: str | None, registered: tuple[str, ...], given: tuple[str | None, ...], found: object
) -> None:
    log_dirs = []
    for number, one in enumerate(given):
        place = tmp_path / str(number)
        place.mkdir()
        line = f"directory.id={one}\n" if one is not None else ""
        (place / "meta.properties").write_text(f"version=1\ncluster.id=x\nnode.id=1\n{line}")
        log_dirs.append(LogDir(str(place)))
    assert assigned_log_dir(assigned, log_dirs, registered) == found
