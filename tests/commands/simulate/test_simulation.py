"""Replication step by step: the rows of recorded scenarios, and the worked examples of the rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from klog.commands.simulate.scenario import read_scenario
from klog.commands.simulate.simulation import Simulation

from tests.conftest import FIXTURES

SCENARIOS = sorted((FIXTURES / "replicas" / "simulate").glob("*.json"))
Row = dict[str, object]
Step = tuple[object, ...]


def play(scenario: dict[str, object]) -> list[Row]:
    """Return the rows of *scenario*, after a round through JSON."""
    rows = Simulation(read_scenario(json.dumps(scenario).encode())).rows()
    return [json.loads(json.dumps(row)) for row in rows]


def recorded(name: str) -> list[Row]:
    path = FIXTURES / "replicas" / "simulate" / f"{name}.json"
    return play(json.loads(path.read_bytes()))


def ends(rows: list[Row], *nodes: int) -> list[tuple[str, ...]]:
    """Return log end / high watermark of *nodes* in each of *rows*."""
    return [
        tuple(f"{one['log_end']}/{one['high_watermark']}" for one in (row["replicas"][str(node)] for node in nodes))  # type: ignore[index]
        for row in rows
    ]


def events(*steps: Step) -> list[dict[str, object]]:
    """Return events from (at, do, node or records, …) as the tests below write them."""
    made: list[dict[str, object]] = []
    for at, do, *rest in steps:
        event: dict[str, object] = {"at": at, "do": do}
        if do == "append":
            event |= {"records": rest[0], "acks": rest[1]}
        elif rest:
            event |= {"leader" if do == "elect" else "node": rest[0], **dict(rest[1:])}  # type: ignore[arg-type]
        made.append(event)
    return made


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_every_row_is_the_recorded_one(path: Path) -> None:
    """Whole rows, with their members in the same order."""
    rows = list(Simulation(read_scenario(path.read_bytes())).rows())
    wanted = [json.loads(line) for line in path.with_suffix(".jsonl").read_bytes().splitlines()]
    assert rows == wanted
    assert [list(row) for row in rows] == [list(row) for row in wanted]


def test_all_scenarios_are_there() -> None:
    assert len(SCENARIOS) == 14


@pytest.mark.corpora
def test_the_fixtures_are_those_of_the_corpora(corpora: Path) -> None:
    for path in (corpora / "replicas" / "simulate").iterdir():
        assert path.read_bytes() == (FIXTURES / "replicas" / "simulate" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("shown", "follower", "leader"),
    [("before", ("3/0", "5/0", "5/5"), ("3/0", "5/3", "5/5")), ("after", ("3/0", "5/3", "5/5"), ("3/0", "5/3", "5/5"))],
)
def test_three_rounds(shown: str, follower: tuple[str, ...], leader: tuple[str, ...]) -> None:
    """A record is committed only by the fetch after the one that returned it; brokers report it a round later still."""
    rows = recorded(f"three-rounds-{shown}")
    assert tuple(ends([rows[step] for step in (2, 5, 8)], 2)) == tuple((one,) for one in follower)
    assert tuple(ends([rows[step] for step in (2, 5, 8)], 1)) == tuple((one,) for one in leader)
    assert (rows[6]["waits"], rows[7]["answer"]) == (
        {"of": 2, "until": 506},
        {"to": 2, "records": None, "high_watermark": 5},
    )


def test_truncation_at_the_high_watermark_loses_what_was_acknowledged() -> None:
    """The follower restarts, forgets its records beyond its late high watermark, and is elected."""
    rows = recorded("loss-high-watermark")
    assert ends(rows[4:6], 1) == [("2/1",), ("1/1",)]
    assert [row.get("broken") for row in rows[6:8]] == [None, [1]]
    assert ends(rows[-1:], 1, 2) == [("1/1", "1/1")]


@pytest.mark.parametrize("rule", ["epoch", "fetch"])
def test_truncation_by_epochs_loses_nothing(rule: str) -> None:
    rows = recorded(f"loss-{rule}")
    assert not any("broken" in row for row in rows)
    assert ends(rows[-1:], 1, 2) == [("2/2", "2/2")]


def test_at_the_high_watermark_a_fork_stays() -> None:
    """Both hold two records and a high watermark of 2; the second record differs, and no error shows it."""
    scenario = json.loads((FIXTURES / "replicas/simulate/fork-high-watermark.json").read_bytes())
    simulation = Simulation(read_scenario(json.dumps(scenario).encode()))
    assert not any("error" in row.get("answer", {}) for row in simulation.rows())
    assert simulation.differences() == [(1, 2, 1)]


@pytest.mark.parametrize("rule", ["epoch", "fetch"])
def test_epochs_end_a_fork(rule: str) -> None:
    simulation = Simulation(read_scenario((FIXTURES / f"replicas/simulate/fork-{rule}.json").read_bytes()))
    list(simulation.rows())
    assert simulation.differences() == []


def test_a_replica_joins_only_with_the_new_leaders_epoch() -> None:
    """Had epoch 5 begun at 103, the replica's record at 100 could still be another leader's."""
    scenario = json.loads((FIXTURES / "replicas/simulate/isr-expand.json").read_bytes())
    assert [row["pending"] for row in play(scenario)] == [[]] * 3 + [["+3"]] * 6 + [[]]
    scenario["epoch_start"] = 103
    assert [row["pending"] for row in play(scenario)] == [[]] * 8 + [["+3"], []]


# cases beyond the recorded scenarios


def test_a_replica_that_lags_leaves_and_stops_holding_the_others_back() -> None:
    """Until the controller has confirmed it, the one that lags still counts."""
    steps = events(
        (0, "append", 2, "all"),
        (1, "fetch", 2),
        (2, "response", 2),
        (3, "fetch", 2),
        (40_000, "isr-check"),
        (40_001, "confirm"),
        (40_002, "append", 1, "all"),
    )
    settings = {"confirm": "when told", "min.insync.replicas": 3}
    rows = play({"replicas": [1, 2, 3], "settings": settings, "events": steps})
    assert [row["pending"] for row in rows[4:6]] == [["-3"], []]
    assert [row["isr"] for row in rows[4:6]] == [[1, 2, 3], [1, 2]]
    assert ends(rows[4:6], 1) == [("2/0",), ("2/0",)]
    assert rows[6]["error"] == "NOT_ENOUGH_REPLICAS"
    settings["min.insync.replicas"] = 2
    rows = play({"replicas": [1, 2, 3], "settings": settings, "events": steps})
    assert ends(rows[4:6], 1) == [("2/0",), ("2/2",)]
    assert (rows[4]["acked"], rows[5]["acked"]) == ([], [1])


def test_one_outside_the_isr_that_is_nearly_there_holds_the_high_watermark_back() -> None:
    """Else it could never join: the high watermark would run before it."""
    steps = events(
        (0, "fetch", 2), (1, "response", 2), (2, "append", 1, 1), (20_000, "append", 1, 1), (31_000, "append", 1, 1)
    )
    start = {"1": {"log": [[0, 4]], "high_watermark": 3}}
    rows = play({"replicas": [1, 2], "isr": [1], "start": start, "events": steps})
    assert ends(rows, 1) == [("4/3",), ("4/3",), ("5/3",), ("6/3",), ("7/7",)]


def test_what_a_crash_keeps() -> None:
    """Whole batches below the disk's end, and the high watermark of its checkpoint."""
    start = {"1": {"log": [[0, 2], [0, 3], [0, 2]], "high_watermark": 7}}
    steps = events((0, "crash", 1, ("keep", 6), ("high_watermark", 3)), (1, "restart", 1), (2, "elect", 1))
    rows = play({"replicas": [1, 2], "isr": [1], "start": start, "events": steps})
    assert ends(rows, 1) == [("5/3",), ("5/3",), ("5/5",)]
    assert (rows[2]["isr"], rows[2]["epoch"], rows[2]["unclean"]) == ([1], 1, False)


def test_an_unclean_leader_breaks_what_was_acknowledged_and_a_clean_one_mends_it() -> None:
    steps = events(
        (0, "append", 3, "all"),
        (1, "elect", 2),
        (2, "append", 1, 1),
        (3, "elect", 1),
        (4, "fetch", 2),
        (5, "response", 2),
    )
    rows = play({"replicas": [1, 2], "isr": [1], "events": steps})
    assert [row.get("unclean") for row in rows] == [None, True, None, True, None, None]
    assert [row.get("broken") for row in rows] == [None, [1], [1], None, None, None]
    assert rows[4]["answer"] == {"to": 2, "records": None, "high_watermark": 3, "diverging": [0, 3]}
    assert rows[5]["truncation"] == {"2": [{"leader": [0, 3], "local": [0, 0], "to": 0}]}
    assert ends(rows[-1:], 2) == [("0/0",)]


def test_a_lost_answer_is_asked_for_again() -> None:
    """The leader keeps the facts of the request."""
    steps = events(
        (0, "append", 3, "all"), (1, "fetch", 2), (2, "lose", 2), (3, "fetch", 2), (4, "response", 2), (5, "lose", 2)
    )
    rows = play({"replicas": [1, 2], "events": steps})
    assert rows[1]["answer"] == rows[3]["answer"] == {"to": 2, "records": [0, 2], "high_watermark": 0}
    assert rows[5]["note"] == "no fetch is under way"
    assert ends(rows, 2)[-1] == ("3/0",)


def test_a_follower_before_the_leaders_log_start_begins_again_there() -> None:
    start = {
        "1": {"log": [[2, 5]], "log_start": 100, "high_watermark": 105},
        "2": {"log": [[0, 4]], "high_watermark": 4},
    }
    steps = events((0, "fetch", 2), (1, "response", 2), (2, "fetch", 2), (3, "response", 2))
    rows = play({"replicas": [1, 2], "epoch": 2, "isr": [1], "start": start, "events": steps})
    assert rows[0]["answer"]["error"] == "OFFSET_OUT_OF_RANGE"  # type: ignore[index]
    assert rows[1]["truncation"] == {"2": [{"to": 100}]}
    assert ends(rows[1:], 2) == [("100/100",), ("100/100",), ("105/105",)]


def test_a_follower_throttles_itself_only_while_it_lags() -> None:
    settings = {
        "follower.replication.throttled.rate": 400,
        "throttled.replicas": [2],
        "replica.fetch.max.bytes": 500,
        "replica.fetch.wait.max.ms": 0,
    }
    start = {"1": {"log": [[0, 5], [0, 5]], "high_watermark": 10}}
    steps = events(
        (0, "fetch", 2),
        (1, "response", 2),
        (2, "fetch", 2),
        (1300, "fetch", 2),
        (1301, "response", 2),
        (1302, "fetch", 2),
    )
    rows = play({"replicas": [1, 2], "isr": [1], "settings": settings, "start": start, "events": steps})
    assert rows[2]["note"] == "2 is throttled and leaves the partition out of its request"
    assert ends(rows, 2)[4] == ("10/10",)
    assert rows[5]["answer"]["records"] is None  # type: ignore[index]


def test_who_lags_is_decided_to_the_millisecond_and_only_members_leave() -> None:
    """One outside the ISR cannot leave it, however far behind it is."""
    start = {"1": {"log": [[0, 4]], "high_watermark": 0}}
    members = {"replicas": [1, 2, 3], "isr": [1, 2], "start": start}
    rows = play({**members, "events": events((30_000, "isr-check"), (30_001, "isr-check"))})
    assert [row["isr"] for row in rows] == [[1, 2], [1]]
    rows = play({**members, "settings": {"confirm": "when told"}, "events": events((30_001, "isr-check"))})
    assert rows[0]["pending"] == ["-2"]


def test_one_that_is_to_join_counts_however_long_the_controller_takes() -> None:
    """No other request is sent meanwhile."""
    settings = {"confirm": "when told", "replica.fetch.wait.max.ms": 0}
    steps = events(
        (0, "fetch", 3),
        (1, "fetch", 2),
        (2, "append", 1, "all"),
        (50_000, "isr-check"),
        (50_001, "append", 1, 1),
        (50_002, "crash", 1),
        (50_003, "elect", 1),
    )
    rows = play({"replicas": [1, 2, 3], "isr": [1], "settings": settings, "events": steps})
    assert [row["pending"] for row in rows] == [["+3"]] * 5 + [[]] * 2
    assert ends(rows[:5], 1) == [("0/0",)] * 2 + [("1/0",)] * 2 + [("2/0",)]


def test_a_followers_high_watermark_falls_to_that_of_a_late_leader() -> None:
    log = [[0, 5]]
    start = {"1": {"log": log, "high_watermark": 3}, "2": {"log": log, "high_watermark": 5}}
    settings = {"replica.fetch.min.bytes": 0}
    steps = events((0, "fetch", 2), (1, "response", 2))
    rows = play({"replicas": [1, 2], "settings": settings, "start": start, "events": steps})
    assert ends(rows, 1, 2) == [("5/5", "5/5"), ("5/5", "5/3")]


def test_a_follower_takes_over_the_leaders_log_start() -> None:
    start = {
        "1": {"log": [[1, 2]], "log_start": 4, "high_watermark": 6},
        "2": {"log": [[0, 2], [1, 4]], "high_watermark": 4},
    }
    settings = {"replica.fetch.min.bytes": 0}
    steps = events((0, "fetch", 2), (1, "response", 2), (2, "crash", 2, ("keep", 0)))
    rows = play({"replicas": [1, 2], "epoch": 1, "settings": settings, "start": start, "events": steps})
    assert rows[1]["replicas"]["2"]["epochs"] == [[1, 4]]  # type: ignore[index]
    assert ends(rows[2:], 2) == [("4/4",)]


def test_what_only_the_leader_knew_ends_with_it() -> None:
    """No client receives the acknowledgement of an append; and an answer of the old leader is lost."""
    steps = events(
        (0, "append", 1, "all"),
        (1, "fetch", 2),
        (2, "crash", 1),
        (3, "response", 2),
        (4, "restart", 1),
        (5, "elect", 1),
        (6, "fetch", 2),
        (7, "response", 2),
        (8, "fetch", 2),
    )
    rows = play({"replicas": [1, 2], "events": steps})
    assert rows[3]["note"] == "no fetch is under way"
    assert ends(rows[-1:], 1, 2) == [("1/1", "1/0")]
    assert rows[-1]["acked"] == []


def test_a_restart_forgets_the_quota() -> None:
    settings = {"follower.replication.throttled.rate": 1, "throttled.replicas": [2], "replica.fetch.max.bytes": 100}
    start = {"1": {"log": [[0, 5], [0, 5]], "high_watermark": 10}}
    fetches = ((0, "fetch", 2), (1, "response", 2), (2, "fetch", 2))
    steps = events(*fetches, (3, "crash", 2), (4, "restart", 2), (5, "fetch", 2))
    rows = play({"replicas": [1, 2], "settings": settings, "start": start, "events": steps})
    assert "throttled" in rows[2]["note"]  # type: ignore[operator]
    assert rows[5]["answer"]["records"] == [5, 9]  # type: ignore[index]


def test_a_throttled_fetch_waits_as_if_there_were_nothing() -> None:
    settings = {"leader.replication.throttled.rate": 1, "throttled.replicas": [2], "replica.fetch.max.bytes": 100}
    start = {"1": {"log": [[0, 5], [0, 5]], "high_watermark": 10}}
    steps = events((0, "fetch", 2), (1, "response", 2), (2, "fetch", 2), (3, "append", 1, 1), (502, "wait"))
    rows = play({"replicas": [1, 2], "isr": [1], "settings": settings, "start": start, "events": steps})
    assert rows[2]["waits"] == {"of": 2, "until": 502}
    assert "answer" not in rows[3]
    assert rows[4]["answer"] == {"to": 2, "records": None, "high_watermark": 10, "throttled": True}
    rows = play({"replicas": [1, 2], "settings": settings, "start": start, "events": steps})
    assert rows[2]["answer"] == {"to": 2, "records": [5, 9], "high_watermark": 10}, (
        "members of the ISR are not throttled"
    )


def test_a_leader_whose_epoch_has_no_batch_yet_knows_where_it_began() -> None:
    start = {"1": {"log": [[0, 5]], "high_watermark": 5}, "2": {"log": [[0, 5], [1, 2]]}}
    rows = play({"replicas": [1, 2], "epoch": 3, "start": start, "events": events((0, "fetch", 2))})
    assert rows[0]["replicas"]["1"]["epochs"] == [[0, 0], [3, 5]]  # type: ignore[index]
    assert rows[0]["answer"]["diverging"] == [0, 5]  # type: ignore[index]


def test_two_fetches_answered_in_one_step_are_both_shown() -> None:
    steps = events((0, "fetch", 2), (0, "fetch", 3), (1, "append", 1, 1))
    (*_, row) = play({"replicas": [1, 2, 3], "events": steps})
    assert row["answer"] == {"to": 2, "records": [0, 0], "high_watermark": 0}
    assert [one["to"] for one in row["answers"]] == [2, 3]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("before", "step", "note"),
    [
        ((), (1, "fetch", 1), "1 is the leader"),
        (((0, "crash", 2),), (1, "fetch", 2), "2 is down"),
        (((0, "crash", 2),), (1, "crash", 2), "2 is down"),
        (((0, "crash", 2),), (1, "elect", 2), "2 is down"),
        (((0, "crash", 1),), (1, "fetch", 2), "no leader"),
        (((0, "crash", 1),), (1, "append", 1, 1), "no leader"),
        (((0, "crash", 1),), (1, "isr-check"), "no leader"),
        ((), (1, "restart", 2), "2 is up"),
        ((), (1, "confirm"), "nothing is pending"),
        ((), (1, "response", 2), "no fetch is under way"),
        (((0, "fetch", 2), (0, "crash", 2), (0, "restart", 2)), (1, "response", 2), "no fetch is under way"),
    ],
)
def test_a_step_that_cannot_be_is_a_note(
    before: tuple[tuple[object, ...], ...], step: tuple[object, ...], note: str
) -> None:
    """The rest of the scenario still teaches; and nothing moves."""
    rows = play({"replicas": [1, 2], "events": events((0, "wait"), *before, step)})
    assert rows[-1]["note"] == note
    unmoved = [
        {name: value for name, value in row.items() if name in ("replicas", "isr", "leader", "epoch")}
        for row in rows[-2:]
    ]
    assert unmoved[0] == unmoved[1]


def test_the_example_of_the_manual_plays() -> None:
    """A log with a later epoch than the leader's is odd; it is played as it is given."""
    scenario = {
        "replicas": [1, 2],
        "start": {"1": {"log": [[0, 10], [1, 5]], "high_watermark": 10, "log_start": 0}},
        "remote": {"2": {"log_end": 15, "last_caught_up": 0}},
        "epoch": 0,
        "events": events((0, "append", 3, "all"), (1, "fetch", 2), (2, "response", 2)),
    }
    assert ends(play(scenario), 1, 2) == [("18/15", "0/0"), ("18/15", "0/0"), ("18/15", "18/15")]
