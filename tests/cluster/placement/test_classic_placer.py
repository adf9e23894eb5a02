"""The placer of ZooKeeper's time: what 3.9.1's own classes place, and the way back from an assignment to its start."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.base.errors import UsageError
from klog.cluster.placement.assignment_checks import Assignment, UsableBroker
from klog.cluster.placement.classic_placer import MOST_SEARCHED, ClassicStart, find_classic, place_classic
from klog.cluster.placement.striped_placer import JavaRandom

from tests.brokers import kafka
from tests.cluster.placement.kafka_placers import ask, some_brokers
from tests.conftest import CORPORA
from tests.support.examples import examples

FIVE = [UsableBroker(node) for node in range(5)]


@pytest.mark.corpora
def test_the_recorded_lists_come_out() -> None:
    """Starts, first partitions, racks and replications, recorded from the class of 3.9.1."""
    vectors = (CORPORA / "replicas" / "placer-vectors.txt").read_text().splitlines()
    pattern = r"A[12] (\{.*\}) start (\d+) shift (\d+) from (\d+) rf (\d) (.*)"
    matches = [match for line in vectors if (match := re.match(pattern, line))]
    assert len(matches) == 18
    for match in matches:
        brokers = [UsableBroker(int(node), rack) for node, rack in json.loads(match[1]).items()]
        start, shift, first, replication = map(int, match.groups()[1:5])
        recorded = [tuple(json.loads(replicas)) for replicas in re.findall(r"\[[^]]*]", match[6])]
        assert place_classic(brokers, len(recorded), replication, start, shift, first) == recorded, match[0]
        if not first:
            racks = brokers[0].rack is not None
            assert find_classic(recorded, brokers) == ClassicStart(start, shift, racks, tuple(b.id for b in brokers))


def all_or_none(chance: random.Random, most: int = 30) -> list[UsableBroker]:
    """Return brokers that all have racks, or none of them."""
    brokers = sorted(some_brokers(chance, most))
    have = chance.random() < 0.7
    return [broker._replace(rack=(broker.rack or "") if have else None, fenced=False) for broker in brokers]


@pytest.mark.kafka
def test_kafkas_own_class_places_the_same() -> None:
    """Starts that are given and drawn, any first partition, racks of all shapes."""
    chance = random.Random(7)
    requests, ours = [], []
    for _ in range(1500):
        brokers = all_or_none(chance)
        start, seed = chance.choice((-1, chance.randrange(40))), chance.getrandbits(48)
        first, partitions = chance.choice((0, chance.randrange(70))), chance.randint(1, 80)
        replication = chance.randint(1, len(brokers))
        requests.append(("classic", seed, start, first, partitions, replication, *brokers))
        drawn = JavaRandom(seed)
        index, shift = (drawn.next_int(len(brokers)), drawn.next_int(len(brokers))) if start < 0 else (start, start)
        ours.append(place_classic(brokers, partitions, replication, index, shift, first))
    assert ask(kafka.BEFORE, requests) == ours


@pytest.mark.kafka
def test_the_start_of_what_zookeepers_controller_grew_is_found() -> None:
    """A topic that was grown twice is shown with its first start and the starts of the additions."""
    chance = random.Random(3)
    brokers = [all_or_none(chance, most=12) for _ in range(300)]
    starts = [(chance.randrange(len(each)), chance.randrange(len(each))) for each in brokers]
    topics: list[Assignment] = [
        place_classic(each, chance.randint(3, 30), chance.randint(1, len(each)), *start)
        for each, start in zip(brokers, starts, strict=True)
    ]
    for more in (8, 20):
        requests = [
            ("grow", len(topic) + more, lines(topic), *each) for each, topic in zip(brokers, topics, strict=True)
        ]
        topics = [topic for topic in ask(kafka.BEFORE, requests) if isinstance(topic, list)]
        assert len(topics) == len(requests)
    for topic, each in zip(topics, brokers, strict=True):
        found = find_classic(topic, each)
        assert found is not None
        assert len(found.grown_at) <= 2
        assert replayed(found, each, len(topic), len(topic[0])) == topic


def lines(assignment: Assignment) -> str:
    """Return an assignment as a field of a request."""
    return ";".join(",".join(map(str, replicas)) for replicas in assignment)


def replayed(start: ClassicStart, brokers: Sequence[UsableBroker], partitions: int, replication: int) -> Assignment:
    """Return the assignment of *start*: created, then grown as ZooKeeper's controller does."""
    known = {broker.id: broker if start.rack_aware else UsableBroker(broker.id) for broker in brokers}
    row = [known[node] for node in start.brokers]
    ends = [*start.grown_at, partitions]
    made = place_classic(row, ends[0], replication, start.start_index, start.shift)
    later = next((at for at, node in enumerate(start.brokers) if node >= made[0][0]), 0)
    for first, end in pairwise(ends):
        made += place_classic(row, end - first, replication, later, later, first)
    return made


@given(st.integers(0, 2**32))
@examples(80)
def test_the_way_back_leads_to_the_same_assignment(seed: int) -> None:
    """It also works for a topic on some of the brokers."""
    chance = random.Random(seed)
    brokers = all_or_none(chance, most=9)
    replication = chance.randint(1, len(brokers))
    start, shift = chance.randrange(len(brokers)), chance.randrange(len(brokers))
    placed = place_classic(brokers, chance.randint(1, 40), replication, start, shift)
    others = [UsableBroker(200, brokers[0].rack), UsableBroker(201, None)]
    # Later brokers are distinguished from those of the beginning once each of these has a partition.
    for there in [brokers, brokers + others[: chance.randint(1, 2)]][: 1 + (len(placed) >= len(brokers))]:
        found = find_classic(placed, there)
        assert found is not None
        assert replayed(found, there, len(placed), replication) == placed
    assert find_classic(placed, brokers).start_index == start  # type: ignore[union-attr]


def test_an_assignment_with_two_replicas_changed_is_not_the_classic_one() -> None:
    placed = place_classic(FIVE, 20, 3, 2, 4)
    assert find_classic(placed, FIVE) == ClassicStart(2, 0, False, (0, 1, 2, 3, 4))
    placed[13] = (placed[13][0], placed[13][2], placed[13][1])
    assert find_classic(placed, FIVE) is None


@pytest.mark.parametrize(
    "strange",
    [[], [()], [(1, 2), (2,)], [(7,), (1, 2)], [(1, 1), (2, 2)], [(1, 2, 3, 4, 5, 6, 1)]],
)
def test_what_nobody_places_is_nobodys(strange: Assignment) -> None:
    """Metadata may contain anything: no replica, the same twice, more than there are brokers."""
    assert find_classic(strange, FIVE) is None


def test_a_growth_that_began_where_the_first_pattern_goes_on_by_chance() -> None:
    """The first partitions of an addition may continue the old ones: the border lies before the first difference."""
    made = place_classic(FIVE, 4, 2, 0, 0)
    made += place_classic(FIVE, 30, 2, 0, 0, 4)  # the same start and shift: at 5 the shift moves as it would have
    made += place_classic(FIVE, 30, 2, 0, 0, 34)
    found = find_classic(made, FIVE)
    assert found is not None
    assert (found.start_index, found.shift, len(found.grown_at)) == (0, 0, 1)
    assert 30 < found.grown_at[0] <= 35
    assert replayed(found, FIVE, len(made), 2) == made


def test_a_search_in_a_cluster_beyond_reason_is_not_made() -> None:
    crowd = [UsableBroker(node) for node in range(MOST_SEARCHED + 1)]
    assert find_classic([tuple(range(MOST_SEARCHED + 1))], crowd) is None


def test_a_long_topic_that_almost_fits_is_searched_at_once() -> None:
    """Each addition is tried from each partition on; a comparison is never repeated."""
    placed = place_classic(FIVE[:3], 30_000, 2, 1, 0)
    placed[-1] = placed[-1][::-1]
    assert find_classic(placed, FIVE[:3]) is None


@pytest.mark.kafka
def test_what_the_old_class_refuses_is_refused() -> None:
    some = (UsableBroker(1, "a"), UsableBroker(2))
    refused = {
        ("classic", 1, 0, 0, 0, 1, *FIVE): ("InvalidPartitionsException", r"INVALID_PARTITIONS \(37\)"),
        ("classic", 1, 0, 0, 1, 0, *FIVE): ("InvalidReplicationFactorException", "INVALID_REPLICATION_FACTOR"),
        ("classic", 1, 0, 0, 1, 6, *FIVE): ("InvalidReplicationFactorException", r"6 replicas on 5 brokers.* \(38\)"),
        ("classic", 1, 0, 0, 1, 1, *some): (
            "AdminOperationException",
            "broker 2 has no rack but.*AdminOperationException",
        ),
    }
    assert ask(kafka.BEFORE, refused) == [name for name, _ in refused.values()]
    for (_, _, start, first, partitions, replication, *brokers), (_, reason) in refused.items():
        with pytest.raises(UsageError, match=reason):
            place_classic(brokers, partitions, replication, start, start, first)  # type: ignore[arg-type]
