"""A fresh real cluster that is killed: `klog metadata show` of its disks shows an administrator's last answers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import kafka
from tests.brokers.quorum import BROKERS, CONTROLLER, Brokers
from tests.conftest import run_klog

pytestmark = pytest.mark.kafka
RACKS = {1: "a", 2: "b", 3: "a"}
AUTHORIZED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


class RackBrokers(Brokers):
    """Brokers with racks."""

    def _properties(self, node: int) -> dict[str, str]:
        rack = {"broker.rack": RACKS[node]} if node in RACKS else {}
        return {**super()._properties(node), **rack}


def facts(version: str, bootstrap: str, *words: str) -> list[str]:
    done = subprocess.run(
        kafka.program(version, "AdminFacts", bootstrap, *words),
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def shown(disk: Path, *options: str) -> dict[str, Any]:
    ran = run_klog("metadata", "show", disk, "--output", "json", *options)
    assert ran.exit_code == 0, ran.stderr
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def as_lines(found: dict[str, Any]) -> list[str]:
    """Return klog's output in the words of AdminFacts."""
    lines = [f"cluster {found['cluster_id']}", f"quorum {found['quorum']['leader']} {found['quorum']['epoch']}"]
    for one in found["brokers"]:
        if not one["fenced"]:
            (endpoint,) = one["endpoints"]
            lines.append(f"broker {one['id']} {one['rack']} {endpoint.removeprefix('PLAINTEXT://')}")
    for topic in found["topics"]:
        lines.append(f"topic {topic['topic']} {topic['topic_id']}")
        for one in topic["partitions"]:
            sets = " ".join(str(one[name]) for name in ("replicas", "isr", "elr", "last_known_elr"))
            lines.append(f"partition {topic['topic']}-{one['partition']} {one['leader']} {sets}")
    for kind, resources in found["configs"].items():
        for name, texts in resources.items():
            lines += [f"config {kind} {name} {key}={text}" for key, text in texts.items()]
    lines += [f"feature {name} {level}" for name, level in found["features"].items()]
    if found["kraft_version"]:
        lines.append(f"feature kraft.version {found['kraft_version']}")
    for one in found["quotas"]:
        entity, values = (
            {key: "null" if text is None else text for key, text in one[part].items()} for part in ("entity", "values")
        )
        lines.append(
            "quota " + " ".join("{" + ", ".join(f"{k}={v}" for k, v in part.items()) + "}" for part in (entity, values))
        )
    lines += [f"scram {one['user']} {one['mechanism']} {one['iterations']}" for one in found["scram"]]
    for one in found["acls"]:
        lines.append("acl " + " ".join(text for name, text in one.items() if name != "id"))
    return sorted(lines)


@pytest.mark.parametrize("version", [kafka.NEWEST, pytest.param(kafka.BEFORE, marks=pytest.mark.long)])
def test_the_disks_say_what_the_administrator_was_told(version: str, tmp_path: Path) -> None:
    """Two brokers die, then the controller and the last one, right after somebody looked."""
    with RackBrokers(version, tmp_path, settings=AUTHORIZED) as cluster:
        cluster.start(*BROKERS)
        facts(version, cluster.bootstrap, "prepare")
        cluster.kill(3)
        cluster.kill(2)
        told = facts(version, f"localhost:{cluster.port + 1}", "tell", "1")
        cluster.kill(CONTROLLER)
        cluster.kill(1)
        found = shown(cluster.disk(CONTROLLER))
        assert as_lines(found) == told
        assert {one.split()[0] for one in told} == {
            *("acl", "broker", "cluster", "config", "feature", "partition", "quorum", "quota", "scram", "topic")
        }
        assert {one["id"]: one["rack"] for one in found["brokers"]} == RACKS
        assert (found["metadata_version"], found["unknown"], found["damage"]) == (
            {kafka.NEWEST: "4.3-IV0", kafka.BEFORE: "3.9-IV0"}[version],
            {},
            [],
        )
        assert any(one["elr"] for topic in found["topics"] for one in topic["partitions"]) == (version == kafka.NEWEST)
        # A broker has the same log, a record or two behind.
        behind = shown(cluster.disk(1))
        same = shown(cluster.disk(CONTROLLER), "--at-offset", str(behind["at"]))
        for part in ("topics", "brokers", "configs", "features", "quotas", "scram", "acls", "quorum", "controllers"):
            assert behind[part] == same[part], part
        assert found["at"] - behind["at"] < 50
