"""The facts about the cluster beside the logs of a copy: groups, settings and ids, even if they are deleted or
forged."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from klog.formats.follow_file import is_setting
from klog.formats.structs.schema import Data
from klog.formats.wire_messages import ApiRequest

from tests.commands.follow.scripted import CLUSTER, ScriptedCluster, of_fixture
from tests.conftest import Ran

Klog = Callable[..., Ran]
GOOD = of_fixture("plain-2")


def kept(copy: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((copy / "klog-follow.json").read_text())
    return found


def offsets(copy: Path) -> dict[str, list[int]]:
    return {group: [one["offset"] for one in rows] for group, rows in kept(copy)["groups"].items()}


def test_a_group_that_is_deleted_goes_the_last_one_too(klog: Klog, tmp_path: Path) -> None:
    """Two groups, one, none: an empty answer is an answer."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": GOOD}) as cluster:
        for groups in ({"a": [("orders", 7)], "b": [("orders", 9)]}, {"b": [("orders", 9)]}, {}):
            cluster.groups = dict(groups)
            assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == 0
            assert not cluster.failed
            assert offsets(copy) == {group: [at for _, at in rows] for group, rows in groups.items()}


@pytest.mark.parametrize("unseen", [{"a"}, {"a", "b"}])
def test_a_group_that_may_not_be_seen_any_more_keeps_what_it_had(klog: Klog, tmp_path: Path, unseen: set[str]) -> None:
    """A broker does not list it, and reports no error; the other groups' commits are new."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": GOOD}) as cluster:
        cluster.groups = {"a": [("orders", 7)], "b": [("orders", 9)]}
        assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == 0
        cluster.groups, cluster.unseen = {"a": [("orders", 8)], "b": [("orders", 10)]}, unseen
        ran = klog("follow", cluster.bootstrap, "--to", copy)
        assert (ran.exit_code, cluster.failed) == (0, [])
        assert b"group a: not authorized; its offsets are those of the last run" in ran.stderr
    assert offsets(copy) == {"a": [7], "b": [9 if "b" in unseen else 10]}


def test_groups_that_cannot_be_asked_for_keep_what_they_had(klog: Klog, tmp_path: Path) -> None:
    """An answer with an error is none."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": GOOD}) as cluster:
        cluster.groups = {"a": [("orders", 7)]}
        assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == 0
        cluster.changes["ListGroups"] = lambda _, body: {"errorCode": 15, "groups": []}
        assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == 0
    assert offsets(copy) == {"a": [7]}


def test_a_topic_stays_in_the_file_as_long_as_its_directory(klog: Klog, tmp_path: Path) -> None:
    """The copy of a deleted topic is read by its settings; without the copy they are not needed."""
    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": GOOD, "bills": GOOD}) as cluster:
        assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == 0
        del cluster.topics["bills"]
        assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == 0
        assert set(kept(copy)["topics"]) == {"orders", "bills"}
        (copy / "bills-0").rename(tmp_path / "bills-0")
        assert klog("follow", cluster.bootstrap, "--to", copy).exit_code == 0
        assert set(kept(copy)["topics"]) == {"orders"}


CLUSTER_IDS = [
    "abc\nnode.id=7\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ\nlog.dirs=/etc", "abc\rnode.id=7", "a b", "a\\", "x" * 30_000,
    "\x1b]0;pwned\x07", "\u2028", "caf\u00e9", "a\0b",
]  # fmt: skip


@pytest.mark.parametrize("cluster_id", CLUSTER_IDS)
def test_a_cluster_id_that_is_none_is_written_nowhere(klog: Klog, tmp_path: Path, cluster_id: str) -> None:
    """A line end in it would be a line of `meta.properties`: another node, another directory."""
    with ScriptedCluster({"orders": GOOD}, {"Metadata": lambda _, body: body | {"clusterId": cluster_id}}) as cluster:
        ran = klog("follow", cluster.bootstrap, "--to", tmp_path / "copy", "--timeout", "1s")
        assert (ran.exit_code, cluster.failed) == (8, []), ran
        assert b"is not a valid cluster id" in ran.stderr
        assert ran.stderr.count(b"\n") == 1
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("cluster_id", [CLUSTER, "lies", "a=b:c#!", "", "kafka_1.prod-2"])
def test_a_cluster_id_of_letters_is_written(klog: Klog, tmp_path: Path, cluster_id: str) -> None:
    """Whatever a cluster may be called in one line, the next run finds it again."""
    with ScriptedCluster({"orders": GOOD}, {"Metadata": lambda _, body: body | {"clusterId": cluster_id}}) as cluster:
        for _ in range(2):
            ran = klog("follow", cluster.bootstrap, "--to", tmp_path / "copy")
            assert (ran.exit_code, cluster.failed) == (0, []), ran
    assert f"\ncluster.id={cluster_id}\n" in (tmp_path / "copy" / "meta.properties").read_text()


def test_a_host_that_is_none_is_not_asked(klog: Klog, tmp_path: Path) -> None:
    """Its partitions have no leader that can be reached; the others are copied."""

    def forged(_: ApiRequest, body: Data) -> Data:
        hosts = ("a\nb", "", "\x1b[2J", "a b", "h" * 300)
        return body | {"brokers": body["brokers"] + [{"nodeId": 7, "host": host, "port": 9092} for host in hosts]}

    with ScriptedCluster({"orders": GOOD}, {"Metadata": forged}) as cluster:
        ran = klog("follow", cluster.bootstrap, "--to", tmp_path / "copy")
        assert (ran.exit_code, cluster.failed) == (0, []), ran


def test_what_the_file_may_not_hold_is_left_out(klog: Klog, tmp_path: Path) -> None:
    """Names of topics that are none, and texts without end: the next run could not read its own file."""

    def settings(_: ApiRequest, body: Data) -> Data:
        config = {"name": "retention.ms", "value": "5\x1b", "configSource": 1}
        return {"results": [one | {"configs": [config]} for one in body["results"]]}

    copy = tmp_path / "copy"
    with ScriptedCluster({"orders": GOOD}, {"DescribeConfigs": settings}) as cluster:
        cluster.groups = {"a": [("../evil\x1b", 5), ("orders", 7)], "g" * 30_000: [("orders", 1)], "b": [("..", 1)]}
        for _ in range(2):
            ran = klog("follow", cluster.bootstrap, "--to", copy)
            assert (ran.exit_code, cluster.failed) == (0, []), ran
    assert kept(copy)["topics"]["orders"]["config"] == {"retention.ms": "5\x1b"}
    assert {group[:9]: at for group, at in offsets(copy).items()} == {"a": [7], "g" * 9: [1]}
    assert [is_setting("orders", "segment.bytes", value) for value in ("1" * 70_000, "\ud800", "1")] == [
        False,
        False,
        True,
    ]
