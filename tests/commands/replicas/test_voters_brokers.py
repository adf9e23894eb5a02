"""Real controllers elect a leader again once `klog metadata plan --voters` has given them their addresses.

Three nodes, each broker and controller, with their voters in the metadata log, are killed one after another, so that
their logs are of different lengths; then their controllers move to other ports.
"""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from klog.cluster.metadata.metadata_loader import read_metadata
from klog.data_dir.log_dir import LogDir
from klog.data_dir.replicas import log_end

from tests.brokers import kafka
from tests.brokers.quorum import BROKERS, Combined
from tests.commands.replicas import serving
from tests.commands.replicas.test_copy_plan_brokers import WAIT_S, await_full_isr
from tests.commands.replicas.test_metadata_plan import content, metadata_log
from tests.support.power import tree

pytestmark = [pytest.mark.kafka]
TOPICS = {"orders": (3, 3), "pairs": (2, 2)}
PLACES = [(topic, number) for topic, (count, _) in TOPICS.items() for number in range(count)]
NO_LEADER_S = 30
"""From the start of the nodes: several elections."""


class Killed(NamedTuple):
    """The disks of a killed cluster, and its acknowledged records."""

    folder: Path
    written: dict[serving.Key, list[serving.Record]]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """A cluster whose node 2 missed the last things that happened."""
    folder = tmp_path_factory.mktemp("killed")
    with Combined(kafka.NEWEST, folder) as cluster:
        cluster.start(*BROKERS)
        serving.create(cluster.bootstrap, TOPICS)
        await_full_isr(cluster.bootstrap, tuple(TOPICS))
        written = serving.write(cluster.bootstrap, PLACES, 40, "before")
        cluster.kill(2)
        serving.await_fenced(cluster.bootstrap, 2)
        serving.create(cluster.bootstrap, {"late": (1, 1)})
        for place, records in serving.write(cluster.bootstrap, [*PLACES, ("late", 0)], 10, "after").items():
            written.setdefault(place, []).extend(records)
        cluster.kill(1, 3)
    return Killed(folder, written)


def moved(killed: Killed, folder: Path, kind: type[Combined] = Combined) -> Combined:
    """Return the cluster on a copy of its disks, its controllers at other ports."""
    for node in BROKERS:
        shutil.copytree(killed.folder / f"broker-{node}", folder / f"broker-{node}")
    shutil.copy(killed.folder / "cluster-id", folder)
    cluster = kind(kafka.NEWEST, folder)
    cluster.controller_port += 20
    return cluster


def planned(klog: Callable[..., Any], cluster: Combined, *options: str) -> Any:
    disks = [cluster.disk(node) for node in BROKERS]
    return klog("metadata", "plan", *disks, "--voters", cluster.voters, *options, "--output", "json")


def comes_up(cluster: Combined, written: dict[serving.Key, list[serving.Record]], name: str) -> None:
    """See that all partitions are led and in sync, that every record is there, and that writes and new topics work."""
    cluster.start(*BROKERS)
    await_full_isr(cluster.bootstrap, (*TOPICS, "late"))
    assert serving.is_in(written, serving.read(cluster.bootstrap, written))
    serving.create(cluster.bootstrap, {name: (2, 3)})
    await_full_isr(cluster.bootstrap, (name,))
    for place, records in serving.write(cluster.bootstrap, [*PLACES, (name, 0), (name, 1)], 5, name).items():
        written.setdefault(place, []).extend(records)


def is_one_history(cluster: Combined) -> bool:
    """Whether the metadata logs are one, byte for byte, as far as each reaches."""
    logs = [content(cluster.disk(node)) for node in BROKERS]
    least = min(map(len, logs))
    return len({log[:least] for log in logs}) == 1


@pytest.mark.long
def test_at_new_ports_no_leader_comes_by_itself(killed: Killed, tmp_path: Path) -> None:
    """The addresses in the log are used, whatever the configuration contains: that is the purpose of the plan."""
    cluster = moved(killed, tmp_path)
    before = {node: read_metadata(LogDir(str(cluster.disk(node)))) for node in BROKERS}
    with cluster:
        marks = cluster.launch(*BROKERS)
        launched = time.monotonic()
        until = launched + WAIT_S
        while not all("Completed transition to " in cluster.log(node)[marks[node] :] for node in BROKERS):
            assert time.monotonic() < until, "not all of them began"
            time.sleep(0.2)
        time.sleep(max(NO_LEADER_S / 3, launched + NO_LEADER_S - time.monotonic()))
        for node in BROKERS:
            said = cluster.log(node)[marks[node] :]
            assert not re.search(r"Completed transition to LeaderState|Kafka Server started", said), node
        cluster.kill(*BROKERS)
    assert {node: read_metadata(LogDir(str(cluster.disk(node)))) for node in BROKERS} == before


def test_they_elect_once_the_log_has_the_new_addresses(
    killed: Killed, tmp_path: Path, klog: Callable[..., Any], state_home: Path
) -> None:
    cluster = moved(killed, tmp_path)
    disks = {node: cluster.disk(node) for node in BROKERS}
    ends = {node: log_end(metadata_log(disk)) for node, disk in disks.items()}
    assert ends[2] < max(ends.values())
    before = {node: tree(disk) for node, disk in disks.items()}
    made = planned(klog, cluster, "--apply")
    assert made.exit_code == 0, made.stderr
    plan = json.loads(made.stdout)
    assert plan["metadata"]["extended"]["2"] == max(ends.values()) - ends[2]
    assert [one["records"] for one in plan["metadata"]["appended"]] == [["VOTERS"]]
    assert len({content(disk) for disk in disks.values()}) == 1
    assert klog("undo", plan["backup"], "--apply").exit_code == 0
    assert {node: tree(disk) for node, disk in disks.items()} == before
    plan = json.loads(planned(klog, cluster, "--apply").stdout)
    written = {place: list(records) for place, records in killed.written.items()}
    with cluster:
        comes_up(cluster, written, "fresh")
        cluster.stop(*BROKERS)
        assert is_one_history(cluster)
        comes_up(cluster, written, "again")
        cluster.stop(*BROKERS)
    assert is_one_history(cluster)
    undone = klog("undo", plan["backup"], "--apply")
    assert undone.exit_code == 8
    assert is_one_history(cluster)


@pytest.mark.long
def test_they_elect_on_disks_with_other_directory_ids(
    killed: Killed, tmp_path: Path, klog: Callable[..., Any], state_home: Path
) -> None:
    """Disks that were restored and formatted anew: the log has the old ids, as voters and as places of partitions."""
    cluster = moved(killed, tmp_path)
    for node in BROKERS:
        properties = cluster.disk(node) / "meta.properties"
        text, count = re.subn(
            r"(?m)^directory\.id=.*", f"directory.id={kafka.cluster_identity()}", properties.read_text()
        )
        assert count == 1
        properties.write_text(text)
    before = {node: tree(cluster.disk(node)) for node in BROKERS}
    refused = planned(klog, cluster, "--apply")
    assert refused.exit_code == 8
    assert b"--directory-ids disks" in refused.stderr
    assert {node: tree(cluster.disk(node)) for node in BROKERS} == before
    made = planned(klog, cluster, "--directory-ids", "disks", "--apply")
    assert made.exit_code == 0, made.stderr
    batches = [one["records"] for one in json.loads(made.stdout)["metadata"]["appended"]]
    assert batches[0] == ["VOTERS"]
    assert batches[1] == ["PARTITION_CHANGE"] * len(batches[1])
    assert len(batches[1]) >= len(PLACES)
    written = {place: list(records) for place, records in killed.written.items()}
    with cluster:
        comes_up(cluster, written, "fresh")
        cluster.stop(*BROKERS)
    assert is_one_history(cluster)


class OnlyVoter(Combined):
    """One node is the only controller; the other nodes are brokers on the disks that they had."""

    only = 1

    @property
    def voters(self) -> str:
        return f"{self.only}@localhost:{self.controller_port + self.only}"

    def _properties(self, node: int) -> dict[str, str]:
        found = super()._properties(node)
        own = {"process.roles": "broker", "listeners": found["advertised.listeners"]}
        return found if node == self.only else found | own


@pytest.mark.parametrize("is_given", [True, False], ids=["all disks", "not the last leader's"])
def test_one_controller_that_is_left_leads_the_brokers(
    killed: Killed, tmp_path: Path, klog: Callable[..., Any], state_home: Path, is_given: bool
) -> None:
    """Two of three controllers are lost; the brokers keep their disks, one of them far behind.

    The one that led last would ask the voters in its log for their votes, for ever.
    """
    cluster = moved(killed, tmp_path, OnlyVoter)
    last = json.loads(Path(metadata_log(cluster.disk(1)).path, "quorum-state").read_text())["leaderId"]
    cluster.only = 4 - last
    disks = [cluster.disk(node) for node in BROKERS if is_given or node != last]
    address = cluster.voters.partition("@")[2]
    words = ("--only-voter", str(cluster.only), "--voter", address, "--apply", "--output", "json")
    made = klog("metadata", "plan", *disks, *words)
    assert made.exit_code == 0, made.stderr
    found = json.loads(made.stdout)["metadata"]
    assert [one["records"] for one in found["appended"]] == [["VOTERS"]]
    said = f"first move __cluster_metadata-0 away on nodes whose log the plan leaves as it is ({last})"
    assert any(said in line for line in found["next"]) is not is_given
    if not is_given:
        shutil.rmtree(metadata_log(cluster.disk(last)).path)
    written = {place: list(records) for place, records in killed.written.items()}
    with cluster:
        comes_up(cluster, written, "fresh")
        cluster.stop(*(node for node in BROKERS if node != cluster.only))
        cluster.stop(cluster.only)
        assert is_one_history(cluster)
        comes_up(cluster, written, "again")
