"""The leader after brokers return."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from klog.cluster.election import (
    LOST_DIRECTORY,
    MIGRATING_DIRECTORY,
    UNASSIGNED_DIRECTORY,
    BrokerDisks,
    ElectionReason,
    ElectionRules,
    ReplicaSet,
    elect,
    outcomes,
)

from tests.support.examples import examples

EPOCHS = {1: 11, 2: 12, 3: 13}


def rules(
    unclean: bool = False, elr: int = 1, clean: tuple[int, ...] = (1, 2, 3), old: tuple[int, ...] = ()
) -> ElectionRules:
    """Rules for three brokers: those in *clean* have markers of their last registration, in *old* of one before."""
    disks = {
        node: BrokerDisks(epoch - (node in old) if node in clean else None, frozenset({f"d{node}"}))
        for node, epoch in EPOCHS.items()
    }
    return ElectionRules(unclean, elr, EPOCHS, disks)


def without_ids() -> ElectionRules:
    """Rules for brokers whose log dirs have no ids."""
    known = rules()
    return known._replace(disks={node: BrokerDisks(disks.epoch) for node, disks in known.disks.items()})


def partition(
    isr: tuple[int, ...] = (),
    elr: tuple[int, ...] = (),
    last: tuple[int, ...] = (),
    leader: int = -1,
    directories: tuple[str, ...] = (),
) -> ReplicaSet:
    return ReplicaSet((1, 2, 3), isr, elr, last, leader, directories)


ALL = (1, 2, 3)


@pytest.mark.parametrize(
    ("state", "up", "given_rules", "expected"),
    [
        (partition(isr=(3, 2)), ALL, rules(), (2, "isr")),
        (partition(isr=(3, 2)), (1, 3), rules(), (3, "isr")),
        (partition(isr=(3,), elr=(1,)), (1, 2), rules(), (None, "none")),
        (partition(elr=(3, 2)), ALL, rules(), (2, "elr")),
        (partition(elr=(2, 3)), (3,), rules(), (3, "elr")),
        (partition(elr=(2, 3)), (1,), rules(), (None, "none")),
        (partition(elr=(2, 3)), (1,), rules(unclean=True), (1, "unclean")),
        # Without its marker a broker is struck from ISR and ELR.
        (partition(elr=(2, 3)), ALL, rules(clean=(1, 3)), (3, "elr")),
        (partition(elr=(3,), last=(3,)), ALL, rules(clean=()), (3, "last known leader")),
        (partition(elr=(3,), last=(3,)), (1, 2), rules(clean=()), (None, "none")),
        # A marker of an earlier registration is none; nor is one of a broker that is unknown to the controller.
        (partition(elr=(2, 3)), ALL, rules(old=(2,)), (3, "elr")),
        (partition(elr=(2, 3)), (2, 3), rules(clean=(3,))._replace(broker_epochs={3: 13}), (3, "elr")),
        # The last known leader counts only when ISR and ELR are empty.
        (partition(elr=(2, 3), last=(1,)), (1,), rules(), (None, "none")),
        (partition(isr=(3,), last=(1, 2)), ALL, rules(clean=()), (None, "none")),
        # It was killed together with the controller: the last member of the ISR is unknown.
        (partition(isr=ALL, leader=2), ALL, rules(clean=()), (None, "last known leader")),
        (partition(isr=(2,), leader=2), ALL, rules(clean=()), (2, "last known leader")),
        (partition(last=(1, 2)), ALL, rules(), (None, "none")),
        # Before the feature nothing is struck.
        (partition(isr=(2,)), ALL, rules(elr=0, clean=()), (2, "isr")),
        (partition(last=(2,)), ALL, rules(elr=0), (None, "none")),
        (partition(isr=(1, 3), directories=("d9", "d2", "d3")), (1, 3), rules(clean=()), (None, "last known leader")),
        # A disk that the assignment does not name cannot lead; before 3.7 disks have no ids.
        (partition(elr=(1,), directories=("d1", "d2", "d3")), ALL, without_ids(), (1, "elr")),
        (partition(elr=(1,), directories=("d9", "d2", "d3")), ALL, rules(), (None, "none")),
        (partition(elr=(1,), directories=("d9", "d2", "d3")), ALL, rules(unclean=True), (2, "unclean")),
        (partition(elr=(1,), directories=(LOST_DIRECTORY, "d2", "d3")), ALL, rules(), (None, "none")),
        (partition(elr=(1,), directories=(UNASSIGNED_DIRECTORY, "d2", "d3")), ALL, rules(), (1, "elr")),
        (partition(elr=(1,), directories=(MIGRATING_DIRECTORY, "d2", "d3")), ALL, rules(), (1, "elr")),
    ],
)
def test_the_rule(
    state: ReplicaSet, up: tuple[int, ...], given_rules: ElectionRules, expected: tuple[int | None, str]
) -> None:
    assert elect(state, up, given_rules) == expected


def test_without_unclean_election_a_start_order_has_one_outcome() -> None:
    assert outcomes(partition(elr=(3,)), [(1,), (2, 3)], rules()) == [(3, ElectionReason.ELR)]
    assert outcomes(partition(elr=(3,)), [(1,), (2,)], rules()) == [(None, ElectionReason.NONE)]


def test_a_cluster_that_was_killed_as_a_whole_comes_back_with_one_of_its_isr() -> None:
    """Real controllers have chosen the one whose session ran out last, whoever led before."""
    state = partition(isr=(3, 1), leader=3)
    found = [(1, ElectionReason.LAST_KNOWN_LEADER), (3, ElectionReason.LAST_KNOWN_LEADER)]
    assert outcomes(state, [ALL], rules(clean=())) == found
    assert outcomes(state, [(1, 2), (3,)], rules(clean=())) == found
    assert outcomes(state, [(1, 2)], rules(clean=())) == [(None, ElectionReason.NONE)]
    assert {result.leader for result in outcomes(state, [ALL], rules(unclean=True, clean=()))} == {1, 2, 3}
    lost = state._replace(directories=("d1", "d2", "d9"))
    assert outcomes(lost, [ALL], rules(clean=())) == [found[0], (None, ElectionReason.NONE)]
    both = state._replace(directories=("d9", "d2", "d9"))
    assert outcomes(both, [ALL], rules(clean=())) == [(None, ElectionReason.NONE)]


def test_with_it_whoever_registers_first_may_lead() -> None:
    """The clean leader is among them when it may be first."""
    state = partition(elr=(3,))
    assert outcomes(state, [ALL], rules(unclean=True)) == [(1, "unclean"), (2, "unclean"), (3, "elr")]
    assert outcomes(state, [(3,), (1, 2)], rules(unclean=True)) == [(3, "elr")]
    assert outcomes(state, [(2, 1), (3,)], rules(unclean=True)) == [(1, "unclean"), (2, "unclean")]
    # A broker of an earlier group that cannot lead has been struck by then.
    struck = partition(elr=(1,), last=(2,), directories=("d9", "d2", "d3"))
    found = outcomes(struck, [(1,), (2, 3)], rules(unclean=True, clean=()))
    assert found == [(2, "last known leader"), (3, "unclean")]


NODES = st.lists(st.sampled_from([1, 2, 3]), unique=True).map(tuple)


@examples(300)
@given(NODES, NODES, NODES, st.booleans(), st.integers(0, 1), NODES, NODES)
def test_laws(
    isr: tuple[int, ...],
    elr: tuple[int, ...],
    last: tuple[int, ...],
    unclean: bool,
    version: int,
    clean: tuple[int, ...],
    up: tuple[int, ...],
) -> None:
    state = partition(isr, tuple(node for node in elr if node not in isr), last)
    found = outcomes(state, [up], rules(unclean, version, clean))
    assert found
    assert unclean or len(found) == 1 or {because for _, because in found} <= {"last known leader", "none"}
    for leader, because in found:
        assert leader is None or leader in up
        assert (leader is None) == (because is ElectionReason.NONE)
        assert because is not ElectionReason.UNCLEAN or unclean
        assert because is not ElectionReason.ISR or leader in isr
        assert because is not ElectionReason.ELR or leader in elr
    if unclean and up:
        assert all(leader is not None for leader, _ in found)
    one_by_one = outcomes(state, [(node,) for node in up], rules(unclean, version, clean))
    assert len(one_by_one) == 1 or {because for _, because in one_by_one} == {"last known leader"}
