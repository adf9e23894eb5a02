"""The facts about any assignment: distinct brokers, racks, how even it is."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st
from klog.cluster.placement.assignment_checks import UsableBroker, assess
from klog.cluster.placement.striped_placer import place_striped

from tests.cluster.placement.kafka_placers import some_brokers
from tests.support.examples import examples

IN_RACKS = [UsableBroker(node, rack) for node, rack in enumerate("aabbc")]


def test_what_brokers_lead_and_have_is_counted_also_nothing() -> None:
    facts = assess({0: (0, 2), 1: (2, 0), 2: (0, 4)}, IN_RACKS, {})
    assert facts.leaders == {0: 2, 1: 0, 2: 1, 3: 0, 4: 0}
    assert facts.replicas == {0: 3, 1: 0, 2: 2, 3: 0, 4: 1}
    assert (facts.leaders_spread, facts.replicas_spread) == (2, 3)
    assert (facts.distinct, facts.racks_covered, facts.is_sound) == (True, True, True)


def test_a_doubled_broker_is_found() -> None:
    facts = assess({0: (0, 2), 5: (1, 2, 1)}, IN_RACKS, {})
    assert (facts.doubled, facts.distinct, facts.is_sound) == ((5,), False, False)
    # Two brokers allow at most two racks.
    assert facts.narrow == {}


def test_fewer_racks_than_there_could_be_are_found() -> None:
    facts = assess({0: (0, 1), 1: (2, 3, 0), 2: (0, 2, 4), 3: (3,)}, IN_RACKS, {})
    assert facts.narrow == {0: (1, 2), 1: (2, 3)}
    assert (facts.racks_covered, facts.is_sound) == (False, False)


def test_without_racks_there_are_none_to_cover() -> None:
    facts = assess({0: (0, 1)}, [UsableBroker(node) for node in range(3)], {})
    assert (facts.racks_covered, facts.is_sound) == (None, True)


def test_brokers_without_a_rack_are_one_rack_beside_others() -> None:
    """As they are to a controller."""
    brokers = [UsableBroker(1, "a"), UsableBroker(2), UsableBroker(3)]
    assert assess({0: (1, 2), 1: (2, 3)}, brokers, {}).narrow == {1: (1, 2)}


def test_a_broker_that_is_gone_still_has_its_rack() -> None:
    """A broker that was unregistered does not make a partition narrow, nor does an unknown one."""
    two = [UsableBroker(1, "a"), UsableBroker(2, "b")]
    assert assess({0: (1, 7)}, two, {7: "c"}).racks_covered
    assert assess({0: (1, 7)}, two, {7: "a"}).narrow == {0: (1, 2)}
    assert assess({0: (1, 7)}, two, {}).racks_covered
    assert assess({0: (1, 7)}, two, {}).replicas == {1: 1, 2: 0, 7: 1}


def test_nothing_at_all_is_sound() -> None:
    facts = assess({}, [], {})
    assert (facts.is_sound, facts.leaders_spread, facts.replicas_spread) == (True, 0, 0)


@given(st.integers(0, 2**32))
@examples(60)
def test_what_a_controller_places_is_without_fault(seed: int) -> None:
    """Any racks, fencing and seed: otherwise an operator would chase a false alarm."""
    chance = random.Random(seed)
    brokers = some_brokers(chance, most=8)
    brokers[-1] = brokers[-1]._replace(fenced=False)
    placed = place_striped(brokers, chance.randint(1, 60), chance.randint(1, len(brokers)), seed)
    assert assess(dict(enumerate(placed)), brokers, {}).is_sound
