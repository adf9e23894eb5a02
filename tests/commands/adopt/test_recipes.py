"""The recipes of docs/adopt.md, one after the other on one disk, and then a real broker that serves all of it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests.brokers import clients, kafka
from tests.commands.adopt.disks import FOREIGN_ID, adopted, doctor, refused
from tests.conftest import ROOT, run_klog

pytestmark = pytest.mark.kafka

TOPICS = ("deleted", "recreated", "strayed", "restored", "lost", "mounted", "cloned")
UNIQUE = "0123456789abcdef0123456789abcdef"
SETTINGS = {"retention.ms": "-1", "max.message.bytes": "987654"}
Served = list[tuple[int, bytes | None, bytes | None]]


def served(bootstrap: str, topic: str) -> Served:
    """Return the records of a consumer."""
    return [(one.offset, one.key, one.value) for one in clients.consume(bootstrap, topic, "read_committed")]


class Disk:
    """A disk with all topics; *snapshot*: as it was last night, *wanted*: what consumers got then."""

    def __init__(self, folder: Path) -> None:
        settings = {"log.segment.delete.delay.ms": "500"}
        self.cluster = kafka.Cluster(kafka.NEWEST, folder / "broker", settings=settings)
        self.data, self.snapshot, self.aside = self.cluster.data, folder / "snapshot", folder / "aside"
        self.aside.mkdir()
        with self.cluster:
            clients.create(self.cluster.bootstrap, dict.fromkeys(TOPICS, SETTINGS))
            for topic in TOPICS:
                clients.with_librdkafka(self.cluster.bootstrap, topic, "none", clients.records(topic, 30))
            self.wanted = {topic: served(self.cluster.bootstrap, topic) for topic in TOPICS}
        shutil.copytree(self.data, self.snapshot)
        with self.cluster:
            client = clients.admin(self.cluster.bootstrap)
            for future in client.delete_topics(["deleted", "recreated", "strayed"]).values():
                future.result(clients.WAIT_S)
            until = time.monotonic() + 60
            while any(list(self.data.glob(f"{topic}-0*")) for topic in ("deleted", "recreated", "strayed")):
                assert time.monotonic() < until, "what was deleted is still there"
                time.sleep(0.3)
            clients.create(self.cluster.bootstrap, dict.fromkeys(("recreated", "strayed"), SETTINGS))
            clients.with_librdkafka(self.cluster.bootstrap, "restored", "none", clients.records("wrong", 5))

    def tool(self, line: str) -> None:
        """Run a kafka-topics command as it was printed."""
        words = shlex.split(line.replace("HOST:PORT", self.cluster.bootstrap))
        assert words[0] == "kafka-topics"
        command = kafka.java(kafka.NEWEST, "org.apache.kafka.tools.TopicCommand", *words[1:])
        subprocess.run(command, check=True, capture_output=True, timeout=180)


def the_topic_was_deleted_an_hour_ago(disk: Disk) -> None:
    rescued = disk.aside / f"deleted-0.{UNIQUE}-delete"
    shutil.copytree(disk.snapshot / "deleted-0", rescued)
    (one,) = refused(rescued, "--to", disk.data)
    assert one["id"] == "topic-unknown"
    assert "--config max.message.bytes=987654 --config retention.ms=-1" in one["next"]
    with disk.cluster:
        disk.tool(one["next"])
    adopted(rescued, "--to", disk.data, "--apply")


def the_operators_tool_recreated_it(disk: Disk) -> None:
    shutil.rmtree(disk.data / "recreated-0")
    shutil.copytree(disk.snapshot / "recreated-0", disk.data / "recreated-0")
    (step,) = [one["command"] for one in doctor(disk.data)["next"] if "recreated-0" in one.get("command", "")]
    assert run_klog(*shlex.split(step)[1:]).exit_code == 0


def everything_is_stray(disk: Disk) -> None:
    stray = disk.data / f"strayed-0.{UNIQUE}-stray"
    shutil.copytree(disk.snapshot / "strayed-0", stray)
    adopted(disk.data, "--to", disk.data, "--apply")
    stray.rename(disk.aside / "strayed-0")


def one_topic_of_last_nights_snapshot(disk: Disk) -> None:
    adopted(disk.snapshot, "--topic", "restored", "--to", disk.data, "--replace", "--apply")


def lost_and_found(disk: Disk) -> None:
    place = disk.aside / "lost+found/#131073"
    place.parent.mkdir()
    (disk.data / "lost-0").rename(place)
    assert run_klog("describe", place).exit_code == 0
    adopted(place, "--as", "lost-0", "--to", disk.data, "--apply")


def invalid_cluster_id(disk: Disk) -> None:
    other = disk.aside / "foreign"
    shutil.copytree(disk.snapshot, other)
    meta = other / "meta.properties"
    meta.write_text(re.sub("cluster.id=.*", f"cluster.id={FOREIGN_ID}", meta.read_text()))
    shutil.rmtree(disk.data / "mounted-0")
    found = doctor(disk.data, other)
    assert found["fatal"]["id"] == "cluster-id-differs"
    assert "remove it from log.dirs" in found["next"][0]["manual"]
    adopted(other, "--topic", "mounted", "--to", disk.data, "--apply")


def the_disk_was_cloned(disk: Disk) -> None:
    shutil.rmtree(disk.data / "cloned-0")
    found = doctor(disk.data, disk.snapshot)
    assert found["fatal"]["id"] == "directory-id-twice"
    words = ("--topic", "cloned", "--partition", "0", "--to", disk.data, "--replace", "--apply")
    adopted(disk.snapshot, *words)


RECIPES = {
    "The topic was deleted an hour ago": the_topic_was_deleted_an_hour_ago,
    "The operator's tool recreated it": the_operators_tool_recreated_it,
    "Everything is -stray after the upgrade": everything_is_stray,
    "One topic of last night's snapshot, into the running cluster": one_topic_of_last_nights_snapshot,
    "lost+found": lost_and_found,
    "Invalid cluster.id": invalid_cluster_id,
    "The disk was cloned": the_disk_was_cloned,
}


def test_every_recipe_brings_its_records_back(tmp_path: Path) -> None:
    """All steps of the page, followed to the letter; then doctor reports no loss, and the broker agrees."""
    page = (ROOT / "docs/adopt.md").read_text(encoding="utf-8").partition("## Recipes")[2]
    assert re.findall(r"^### (.*)$", page, re.MULTILINE) == list(RECIPES)
    disk = Disk(tmp_path)
    for recipe in RECIPES.values():
        recipe(disk)
    found = doctor(disk.data)
    assert (found["starts"], found["loses"]) == (True, 0)
    log = disk.cluster.folder / "broker.log"
    log.unlink()
    with disk.cluster:
        for topic in TOPICS:
            assert served(disk.cluster.bootstrap, topic) == disk.wanted[topic], topic
    assert not re.search(r"marked stray|Loaded stray|Deleting all segments|is offline", disk.cluster.log())
