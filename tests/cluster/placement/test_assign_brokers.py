"""Real clusters: their controllers' placements have no fault, and they accept klog's proposals."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import kafka
from tests.brokers.quorum import BROKERS, CONTROLLER, Brokers
from tests.conftest import Ran

pytestmark = pytest.mark.kafka
Klog = Callable[..., Ran]
WAIT_S = 60
RACKS = {1: "a", 2: "b", 3: "a"}


@pytest.fixture(scope="module", params=[kafka.NEWEST, pytest.param(kafka.BEFORE, marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers in racks a, b, a."""
    with Brokers(request.param, tmp_path_factory.mktemp("cluster"), racks=RACKS) as brokers:
        brokers.start(*BROKERS)
        yield brokers


def admin(cluster: Brokers) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 2})


def create(cluster: Brokers, *topics: Any) -> None:
    """Create topics, or raise."""
    client = admin(cluster)
    for done in client.create_topics(list(topics), operation_timeout=WAIT_S).values():
        done.result(WAIT_S)


def placed(cluster: Brokers, topic: str) -> list[list[int]]:
    """Return the replicas of a topic as the controller has them."""
    found = admin(cluster).list_topics(topic, timeout=WAIT_S).topics[topic].partitions
    return [found[number].replicas for number in range(len(found))]


def checked(klog: Klog, cluster: Brokers, *words: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the exit code of `klog assign --check` on the controller's disk, and its verdict on each topic."""
    done = klog("assign", "--check", cluster.disk(CONTROLLER), *words, "--output", "json")
    return done.exit_code, {topic["topic"]: topic for topic in json.loads(done.stdout)["topics"]}


def proposed(klog: Klog, cluster: Brokers, words: str) -> bytes:
    """Return what `klog assign` prints for the brokers in the controller's log."""
    return klog("assign", "--metadata", cluster.disk(CONTROLLER), *words.split()).stdout


def await_true(holds: Callable[[], bool], what: str) -> None:
    """Wait until *holds* does."""
    ends = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < ends, what
        time.sleep(0.3)


def fenced(klog: Klog, cluster: Brokers) -> list[int]:
    """Return the brokers that the controller has fenced."""
    found = json.loads(proposed(klog, cluster, "--partitions 1 --replication 1 --seed 1 --output json"))
    assert found["racks"] == {str(broker): rack for broker, rack in RACKS.items()}
    return list(found["fenced"])


def test_what_controllers_placed_is_without_fault_and_what_hands_placed_is_not(klog: Klog, cluster: Brokers) -> None:
    """Topics of all sizes, grown ones, and some that were made while a broker was away; then one by hand."""
    from confluent_kafka.admin import NewPartitions, NewTopic

    made = [NewTopic(f"all-{n}-{r}", num_partitions=n, replication_factor=r) for n in (1, 4, 13) for r in (1, 2, 3)]
    create(cluster, *made)
    client = admin(cluster)
    for done in client.create_partitions([NewPartitions("all-4-2", 17)]).values():
        done.result(WAIT_S)
    cluster.kill(2)
    await_true(lambda: fenced(klog, cluster) == [2], "broker 2 is not fenced")
    create(cluster, NewTopic("without-2", num_partitions=9, replication_factor=2))
    code, topics = checked(klog, cluster)
    assert code == 0
    sizes = {f"all-{n}-{r}": n for n in (1, 4, 13) for r in (1, 2, 3)}
    assert {name: one["partitions"] for name, one in topics.items()} == {**sizes, "all-4-2": 17, "without-2": 9}
    for name, one in topics.items():
        assert (one["distinct"], one["racks_covered"]) == (True, True), name
        counts = [sum(ids.count(node) for ids in placed(cluster, name)) for node in BROKERS]
        assert one["replicas"] == dict(zip("123", counts, strict=True)), name
        assert one["replicas_spread"] == max(counts) - min(counts)
    # A fenced broker gets replicas where its rack is needed, and leads nothing.
    assert (topics["without-2"]["leaders"]["2"], topics["without-2"]["replicas"]["2"]) == (0, 9)
    cluster.start(2)
    create(cluster, NewTopic("by-hand", num_partitions=2, replica_assignment=[[1, 2], [3, 1]]))
    code, topics = checked(klog, cluster)
    assert code == 4
    assert [(name, one["narrow"]) for name, one in topics.items() if one["narrow"]] == [("by-hand", [1])]
    assert checked(klog, cluster, "--topic", "all-*")[0] == 0


def test_a_topic_that_the_old_placer_gave_is_told_with_its_start(klog: Klog, cluster: Brokers) -> None:
    from confluent_kafka.admin import NewTopic

    words = "--partitions 11 --replication 2 --algorithm classic --start-index 1 --shift 1 --output json"
    replicas = json.loads(proposed(klog, cluster, words))["assignment"]
    create(cluster, NewTopic("classic", num_partitions=11, replica_assignment=replicas))
    _, topics = checked(klog, cluster, "--topic", "classic")
    found = topics["classic"]["classic"]
    assert found == {"start_index": 1, "shift": 1, "rack_aware": True, "brokers": [1, 2, 3], "grown_at": []}


def test_the_reassignment_is_carried_out_by_kafkas_own_tool(klog: Klog, cluster: Brokers, tmp_path: Path) -> None:
    """Partitions move to where klog would place them; the tool's own check then finds them there."""
    from confluent_kafka.admin import NewTopic

    create(cluster, NewTopic("moved", num_partitions=5, replica_assignment=[[1, 3]] * 5))
    words = "--partitions 5 --replication 2 --seed 42 --topic moved --output reassignment"
    plan = tmp_path / "reassignment.json"
    plan.write_bytes(proposed(klog, cluster, words))
    wanted = [part["replicas"] for part in json.loads(plan.read_bytes())["partitions"]]
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    common = ("--bootstrap-server", cluster.bootstrap, "--reassignment-json-file", str(plan))
    done = kafka.Tools(kafka.NEWEST).run_class(tool, *common, "--execute")
    assert (done.exit_code, done.died) == (0, ""), done
    assert b"Successfully started partition reassignments" in done.stdout
    await_true(lambda: placed(cluster, "moved") == wanted, f"not moved to {wanted}")
    done = kafka.Tools(kafka.NEWEST).run_class(tool, *common, "--verify")
    assert done.stdout.count(b"is completed.") == 5, done
    code, topics = checked(klog, cluster, "--topic", "moved")
    counts = {str(node): sum(ids.count(node) for ids in wanted) for node in BROKERS}
    assert (code, topics["moved"]["replicas"]) == (0, counts)
