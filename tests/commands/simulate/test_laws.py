"""Laws of every simulation, whatever happens in it; and the damage of truncation at the high watermark."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, find, given, settings
from hypothesis import strategies as st
from klog.commands.simulate.replica_log import first_difference
from klog.commands.simulate.scenario import Scenario, read_scenario
from klog.commands.simulate.simulation import Simulation
from klog.commands.simulate.simulation_rows import StepRow

from tests.conftest import FIXTURES

Json = dict[str, Any]
RULES = ("epoch", "fetch", "high-watermark")
NODES = st.integers(1, 3)
OFFSETS = st.integers(0, 12)
BRIEF = settings(max_examples=60, deadline=None)
SEARCH = settings(max_examples=3000, derandomize=True, database=None, deadline=None, phases=[Phase.generate])


def event(do: str, **members: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """Return events of one kind; their time is how long they are after the event before."""
    pause = st.sampled_from([0, 1, 5, 600, 20_000])
    return st.fixed_dictionaries({"do": st.just(do), "at": pause, **members})


FETCHES = event("fetch", node=NODES) | event("response", node=NODES)
APPENDS = event("append", records=st.integers(1, 3), acks=st.sampled_from([0, 1, "all", "all"]))
KEEPING = event("crash", node=NODES)
LOSING = event("crash", node=NODES, keep=OFFSETS, high_watermark=OFFSETS)
OTHERS = (
    event("restart", node=NODES)
    | event("elect", leader=NODES)
    | event("lose", node=NODES)
    | st.sampled_from(["isr-check", "confirm", "wait"]).flatmap(event)
)


@st.composite
def scenarios(draw: st.DrawFn, rule: str, crashes: st.SearchStrategy[Json], most: int = 40) -> Json:
    """Draw a scenario that begins with empty logs, whose content is entirely the result of the events."""
    replicas = list(range(1, draw(st.integers(2, 3)) + 1))
    events = draw(st.lists(FETCHES | FETCHES | FETCHES | APPENDS | crashes | OTHERS, max_size=most))
    now = 0
    kept = []
    for one in events:
        if one.get("node", one.get("leader", 1)) in replicas:
            now += one["at"]
            kept.append({**one, "at": now})
    how = {
        "truncation": rule,
        "hw_in_response": draw(st.sampled_from(["before", "after"])),
        "confirm": draw(st.sampled_from(["at once", "when told"])),
        "min.insync.replicas": draw(st.integers(1, 2)),
        "replica.fetch.min.bytes": draw(st.sampled_from([0, 1, 250])),
        "replica.fetch.max.bytes": draw(st.sampled_from([150, 1000])),
    }
    return {"replicas": replicas, "settings": how, "events": kept}


def scenario_of(members: Json) -> Scenario:
    return read_scenario(json.dumps(members).encode())


def without_unclean_elections(members: Json) -> Json:
    """Return the scenario without the elections of replicas outside the ISR."""
    rows = list(Simulation(scenario_of(members)).rows())
    unclean = next((index for index, row in enumerate(rows) if row.get("unclean")), None)
    if unclean is None:
        return members
    events = members["events"]
    return without_unclean_elections({**members, "events": events[:unclean] + events[unclean + 1 :]})


def steps(members: Json, law: Callable[[Simulation, StepRow, StepRow], bool]) -> bool:
    """Play; return whether *law* holds after each step, given the row before it and its own."""
    simulation = Simulation(scenario_of(members))
    before = simulation.state()
    for row in simulation.rows():
        if not law(simulation, before, row):
            return False
        before = row
    return True


# the laws


def high_watermark_is_held_by_the_isr(_: Simulation, before: StepRow, row: StepRow) -> bool:
    """When it moves, it stays at or below the log end of each replica that counts, according to the leader."""
    if any(not 0 <= one["high_watermark"] <= one["log_end"] for one in row["replicas"].values()):
        return False
    if row["leader"] is None:
        return True
    leader = str(row["leader"])
    then, now = (one["replicas"][leader]["high_watermark"] for one in (before, row))
    counting = {str(node) for node in row["isr"]} | {one[1:] for one in row["pending"] if one[0] == "+"}
    known = [row["remote"][node]["log_end"] for node in counting - {leader}]
    return now == then or (now > then and now <= min([row["replicas"][leader]["log_end"], *known]))


def followers_agree(simulation: Simulation, _: StepRow, row: StepRow) -> bool:
    """Whoever has begun to follow has nothing that its leader has not; below its high watermark, or anywhere."""
    leader = simulation.leader
    if leader is None:
        return True
    for node, broker in simulation.brokers.items():
        # Before its first fetch, a follower by the rule of fetches may still have another leader's records.
        if node == leader.node or (simulation.settings.truncation == "fetch" and leader.remotes[node].log_end < 0):
            continue
        if broker.is_up and first_difference(broker.log, leader.log) is not None:
            return False
    return True


def nothing_is_broken(_: Simulation, __: StepRow, row: StepRow) -> bool:
    return "broken" not in row


@pytest.mark.parametrize("rule", RULES)
@given(data=st.data())
@BRIEF
def test_the_high_watermark_never_passes_the_least_log_end_of_the_isr(rule: str, data: st.DataObject) -> None:
    """Consumers read up to it: lower records must be on every replica that may be elected."""
    assert steps(data.draw(scenarios(rule, KEEPING | LOSING)), high_watermark_is_held_by_the_isr)


@pytest.mark.parametrize("rule", ["epoch", "fetch"])
@given(data=st.data())
@BRIEF
def test_with_epochs_followers_agree_with_their_leader(rule: str, data: st.DataObject) -> None:
    """After any crash, with any loss, and after unclean elections, too: that is what epochs are for."""
    assert steps(data.draw(scenarios(rule, KEEPING | LOSING)), followers_agree)


@pytest.mark.parametrize("rule", ["epoch", "fetch"])
@given(data=st.data())
@BRIEF
def test_with_epochs_nothing_acknowledged_is_lost(rule: str, data: st.DataObject) -> None:
    """As long as disks keep their content, and leaders are from the ISR."""
    members = without_unclean_elections(data.draw(scenarios(rule, KEEPING)))
    assert steps(members, nothing_is_broken)


def of_two(crash: Json) -> st.SearchStrategy[Json]:
    """Return scenarios by the rule of old of a leader, 1, and the follower that will take over, 2."""
    some = [{"do": "append", "acks": "all"}, {"do": "elect", "leader": 2}, {"do": "crash", "node": 2, **crash}]
    some += [{"do": do, "node": 2} for do in ("fetch", "response", "restart")]
    how = {"truncation": "high-watermark"}
    lists = st.lists(st.sampled_from(some), min_size=10, max_size=30)
    return lists.map(lambda events: {"replicas": [1, 2], "settings": how, "events": events})


def test_at_the_high_watermark_a_loss_is_found() -> None:
    """The law above is not empty: by the rule of old it does not hold, and chance finds an example."""
    found = find(of_two({}), lambda members: not steps(members, nothing_is_broken), settings=SEARCH)
    assert without_unclean_elections(found) == found


def test_at_the_high_watermark_a_fork_is_found() -> None:
    assert find(of_two({"keep": 0}), lambda members: not steps(members, followers_agree), settings=SEARCH)


@pytest.mark.parametrize(
    ("name", "law", "kept"),
    [("loss", nothing_is_broken, {"epoch", "fetch"}), ("fork", followers_agree, {"epoch", "fetch"})],
)
def test_the_examples_break_the_laws_only_at_the_high_watermark(
    name: str, law: Callable[[Simulation, StepRow, StepRow], bool], kept: set[str]
) -> None:
    """The smallest ways there: an answer that a crash outran, and a disk that lost its tail."""
    held = set()
    for rule in RULES:
        members = json.loads((FIXTURES / "replicas" / "simulate" / f"{name}-{rule}.json").read_bytes())
        held |= {rule} if steps(members, law) else set()
    assert held == kept
