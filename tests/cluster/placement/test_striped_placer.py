"""The controller's placer: what Kafka's own class places from equal seeds."""

from __future__ import annotations

import json
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.base.errors import UsageError
from klog.cluster.placement.assignment_checks import UsableBroker
from klog.cluster.placement.striped_placer import JavaRandom, place_striped

from tests.brokers import kafka
from tests.cluster.placement.kafka_placers import ask, some_brokers
from tests.conftest import CORPORA
from tests.support.examples import examples

CLUSTERS = {
    "none5": [None] * 5,
    "AB2C2": [*"AABBCC"],
    "mod3x9": [*"ABCABCABC"],
    "fenced1,4": [*"AABBCC"],
    "uneven": [*"AAABC"],
    "somenoracks": ["A", None, "B", None, "A"],
    "three": [None] * 3,
}


@pytest.mark.corpora
def test_the_recorded_lists_come_out() -> None:
    """Seven clusters, three seeds each, with reshuffles: recorded from the class of 4.3.1."""
    vectors = (CORPORA / "replicas" / "placer-vectors.txt").read_text().splitlines()
    seen = set()
    for line in vectors:
        if match := re.match(r"A3 (\S+) seed (\d+) (.*)", line):
            name, seed = match[1], int(match[2])
            recorded = [tuple(json.loads(replicas)) for replicas in re.findall(r"\[[^]]*]", match[3])]
            fenced = {1, 4} if name == "fenced1,4" else set()
            brokers = [UsableBroker(node, rack, node in fenced) for node, rack in enumerate(CLUSTERS[name])]
            assert place_striped(brokers, len(recorded), 3, seed) == recorded, line
            seen.add((name, seed))
    assert len(seen) == 21


@pytest.mark.kafka
@pytest.mark.parametrize("version", [kafka.NEWEST, kafka.BEFORE])
def test_kafkas_own_class_places_the_same(version: str) -> None:
    """Racks in the order of a HashMap, whose table doubles twice; equal hashes; fenced brokers; any seed."""
    chance = random.Random(19)
    requests, ours = [], []
    for _ in range(1500):
        brokers = some_brokers(chance)
        brokers[0] = brokers[0]._replace(fenced=False)
        seed = chance.choice((chance.getrandbits(64) - 2**63, chance.randrange(100)))
        partitions, replication = chance.randint(1, 80), chance.randint(1, len(brokers))
        requests.append(("striped", seed, partitions, replication, *sorted(brokers)))
        ours.append(place_striped(brokers, partitions, replication, seed))
    assert ask(version, requests) == ours


@pytest.mark.kafka
def test_what_the_controller_refuses_is_refused() -> None:
    refused = [
        ("striped", 1, 1, 3, UsableBroker(1), UsableBroker(2)),
        ("striped", 1, 1, 0, UsableBroker(1)),
        ("striped", 1, 1, 1, UsableBroker(1, None, True), UsableBroker(2, "a", True)),
    ]
    assert ask(kafka.NEWEST, refused) == ["InvalidReplicationFactorException"] * 3
    for _, seed, partitions, replication, *brokers in refused:
        with pytest.raises(UsageError, match=r"INVALID_REPLICATION_FACTOR \(38\)"):
            place_striped(brokers, partitions, replication, seed)  # type: ignore[arg-type]


@given(st.integers(0, 2**32), st.integers(1, 60))
@examples(60)
def test_what_a_controller_places_is_spread_as_far_as_it_can_be(seed: int, partitions: int) -> None:
    """Distinct brokers, as many racks as there are, an unfenced leader; also right behind a reshuffle."""
    chance = random.Random(seed)
    brokers = some_brokers(chance, most=9)
    brokers[-1] = brokers[-1]._replace(fenced=False)
    replication = chance.randint(1, len(brokers))
    racks = {broker.id: broker.rack for broker in brokers}
    unfenced = {broker.id for broker in brokers if not broker.fenced}
    for replicas in place_striped(brokers, partitions, replication, seed):
        assert len(set(replicas)) == replication
        assert len({racks[broker] for broker in replicas}) == min(replication, len(set(racks.values())))
        assert replicas[0] in unfenced


def test_numbers_are_those_of_java_util_random() -> None:
    """Bounds that are powers of two and others, and one that throws away almost every second number."""
    chance = JavaRandom(42)
    assert [chance.next_int(bound) for bound in (10, 10, 16, 1 << 30, (1 << 30) + 1, 1, 2**31 - 1)] == [
        *(0, 3, 10, 51474442, 662969970, 0, 595021505)
    ]
    items = list(range(10))
    JavaRandom(-7).shuffle(items)
    assert items == [1, 4, 7, 8, 9, 0, 3, 5, 6, 2]
