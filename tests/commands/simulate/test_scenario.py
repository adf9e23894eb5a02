"""The refusals of a scenario, by name; and that nothing in it ends in a traceback or takes for ever."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from klog.base.errors import UsageError
from klog.commands.simulate.scenario import MAX_BATCHES, MAX_BYTES, MAX_EVENTS, MAX_REPLICAS, read_scenario
from klog.commands.simulate.simulation import Simulation

from tests.conftest import FIXTURES

SCENARIOS = [path.read_bytes() for path in sorted((FIXTURES / "replicas" / "simulate").glob("*.json"))]
ONE: dict[str, Any] = {"replicas": [1, 2], "events": []}
FETCH = {"do": "fetch", "node": 2}


def refused(content: bytes) -> str:
    with pytest.raises(UsageError) as error:
        read_scenario(content)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    return str(error.value)


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"replica": [1]}, 'the scenario has a member "replica": expected replicas, leader'),
        ({"replica": [1]}, "did you mean replicas?"),
        ({"settings": {"min.isr": 1}}, 'settings has a member "min.isr"'),
        ({"settings": {"min.insync.replica": 1}}, "did you mean min.insync.replicas"),
        (
            {"settings": {"truncation": "epochs"}},
            'settings.truncation is "epochs", expected one of fetch, epoch, high-watermark',
        ),
        ({"settings": {"confirm": True}}, "settings.confirm is true"),
        ({"settings": {"replica.fetch.wait.max.ms": 1.5}}, "is 1.5, expected a whole number from 0"),
        ({"settings": {"leader.replication.throttled.rate": -1}}, "is -1, expected a whole number"),
        ({"settings": {"throttled.replicas": [3]}}, "settings.throttled.replicas[0]: there is no replica 3, only 1, 2"),
        ({"replicas": []}, "replicas is empty"),
        ({"replicas": [1, 1]}, "replicas: 1 is there twice"),
        ({"replicas": [1, "2"]}, 'replicas[1] is "2", expected a whole number'),
        ({"replicas": [1, True]}, "replicas[1] is true"),
        ({"replicas": list(range(MAX_REPLICAS + 1))}, f"replicas has 17 entries: at most {MAX_REPLICAS} are simulated"),
        ({"leader": 3}, "leader: there is no replica 3, only 1, 2"),
        ({"leader": None}, "leader is null"),
        ({"isr": [2]}, "isr: the leader 1 is missing"),
        ({"isr": [1, 9]}, "isr[1]: there is no replica 9"),
        ({"epoch": 2**31}, "epoch is 2147483648"),
        ({"start": {"7": {}}}, 'start: there is no replica "7", only 1, 2'),
        ({"start": {"1": {"logs": []}}}, "did you mean log or log_start?"),
        ({"start": {"1": []}}, "start.1 is a list, expected an object"),
        ({"start": {"1": {"log": [[0]]}}}, "start.1.log[0]: expected [epoch, records]"),
        ({"start": {"1": {"log": [[0, 0]]}}}, "start.1.log[0][1] is 0"),
        ({"start": {"1": {"log": [[3, 1], [2, 1]]}}}, "start.1.log[1]: epoch 2 after epoch 3"),
        ({"start": {"1": {"log": [[0, 1]] * (MAX_BATCHES + 1)}}}, f"at most {MAX_BATCHES} are simulated"),
        ({"start": {n: {"log": [[0, 1]] * 501} for n in "12"}}, "start.2.log has 501 entries: at most 499"),
        ({"remote": {"1": {}}}, 'remote: there is no replica "1", only 2'),
        ({"remote": {"2": {"log_end": -2}}}, "remote.2.log_end is -2"),
        ({"events": {}}, "events is an object, expected a list"),
        ({"events": [FETCH] * (MAX_EVENTS + 1)}, f"at most {MAX_EVENTS} are simulated"),
        ({"events": [7]}, "events[0] is 7, expected an object"),
        ({"events": [{"do": "fetc", "node": 2}]}, "did you mean fetch?"),
        ({"events": [{"node": 2}]}, "events[0].do is null"),
        ({"events": [{"do": ["fetch"]}]}, "events[0].do is a list"),
        ({"events": [{"do": "fetch"}]}, "events[0] (fetch): node is missing"),
        ({"events": [{"do": "elect", "node": 1}]}, 'events[0] (elect) has a member "node": expected at, do, leader'),
        ({"events": [{"do": "fetch", "node": 2, "records": 1}]}, 'events[0] (fetch) has a member "records"'),
        ({"events": [{"do": "wait", "when": 1}]}, 'events[0] has a member "when"'),
        ({"events": [FETCH, {"do": "crash", "node": 5}]}, "events[1].node: there is no replica 5"),
        ({"events": [{"do": "append", "acks": 2}]}, 'events[0].acks is 2, expected 0, 1 or "all"'),
        ({"events": [{"do": "append", "acks": "one"}]}, 'events[0].acks is "one"'),
        ({"events": [{"do": "append", "records": 10**15}]}, "events[0].records is 1000000000000000"),
        (
            {"events": [{**FETCH, "at": 5}, {**FETCH, "at": 4}]},
            "events[1].at is 4, before the 5",
        ),
    ],
)
def test_what_is_wrong_is_named(members: dict[str, Any], said: str) -> None:
    """A slip that is played as if it had not been written teaches the wrong thing."""
    assert said in refused(json.dumps({**ONE, **members}).encode())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[]", "the scenario is a list, expected an object"),
        (b'{"events": []}', "replicas is missing"),
        (b'{"replicas": [1]}', "events is missing"),
        (b'{"replicas": [1], "replicas": [1], "events": []}', '"replicas" is there twice in one object'),
        (b'{"replicas": [NaN], "events": []}', "NaN is no number"),
        (b'{"replicas": [1e999], "events": []}', "replicas[0] is Infinity"),
        (b'{"replicas": [' + b"9" * 5000 + b'], "events": []}', "a number of more than 20 digits"),
        (b"[" * 200_000, "no JSON"),
        (b'{"replicas":' + b"[" * 900 + b"]" * 900 + b', "events": []}', "replicas[0] is a list"),
        (b'{"\\ud800": 1}', "has a member"),
        (b" " * (MAX_BYTES + 1), f"larger than {MAX_BYTES} bytes"),
    ],
    ids=lambda value: repr(value[:20]) if isinstance(value, bytes) else "",
)
def test_what_is_no_scenario_at_all_is_refused(content: bytes, said: str) -> None:
    assert said in refused(content)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["all", "fetch", "elect"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=6,
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every container in *value* with each of its keys."""
    keys = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    found = [(value, key) for key in keys]
    return found + [place for _, key in found for place in places(value[key])]


def play(content: bytes) -> None:
    try:
        scenario = read_scenario(content)
    except UsageError:
        return
    rows = list(Simulation(scenario).rows())
    assert len(rows) == len(scenario.events)
    json.dumps(rows, allow_nan=False)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SCENARIOS), st.data())
def test_a_scenario_with_anything_in_any_place_is_played_or_refused(content: bytes, data: st.DataObject) -> None:
    """Only UsageError is raised; an accepted scenario is played to its end."""
    members = json.loads(content)
    for _ in range(data.draw(st.integers(1, 3))):
        holder, key = data.draw(st.sampled_from(places(members)))
        value = data.draw(JSON | st.integers(-2, 30))
        if data.draw(st.booleans()):
            holder[key] = value
        elif isinstance(holder, dict):
            holder[data.draw(st.sampled_from(["node", "at", "keep", "epoch", "log"]))] = value
        else:
            holder.insert(key, holder[data.draw(st.integers(0, len(holder) - 1))])
        members = json.loads(json.dumps(members))
    play(json.dumps(members).encode())


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(SCENARIOS), st.data())
def test_flipped_bytes_are_played_or_refused(content: bytes, data: st.DataObject) -> None:
    damaged = bytearray(content)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    play(bytes(damaged))


def test_the_largest_scenario_is_played_in_seconds() -> None:
    """Batches are counted, not their records: two billion of these are a number like any other."""
    replicas = list(range(MAX_REPLICAS))
    events: list[dict[str, Any]] = [{"do": "fetch", "node": node} for node in replicas[1:]]
    while len(events) < MAX_EVENTS:
        events.append({"do": "append", "records": 2**31 - 1, "bytes": 2**31 - 1, "acks": "all"})
        events.append({"do": "elect", "leader": len(events) % 16})
        events += [{"do": "fetch", "node": node} for node in replicas[:2]]
    start = {"log": [[epoch, 2**31 - 1] for epoch in range(MAX_BATCHES // 16)], "log_start": 2**60}
    scenario = {
        "replicas": replicas,
        "epoch": 10_000,
        "settings": {"truncation": "epoch", "replica.fetch.min.bytes": 2**31 - 1, "replica.fetch.max.bytes": 2**31 - 1},
        "start": {str(node): start for node in replicas},
        "events": events[:MAX_EVENTS],
    }
    begun = time.process_time()
    simulation = Simulation(read_scenario(json.dumps(scenario).encode()))
    assert sum(1 for _ in simulation.rows()) == MAX_EVENTS
    assert time.process_time() - begun < 10
