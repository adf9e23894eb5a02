"""The scenario of a simulation: the replicas, their initial state, the settings, the events; JSON is read with
distrust.

Each member has its type and its range; an unknown one is refused by name, so that a typing error is not ignored.  Sizes
are bounded, because each event adds a row to the output.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Final, NoReturn

from klog.base.errors import UsageError, near_misses
from klog.formats.java_integers import INT_MAX

MAX_BYTES: Final = 1 << 20
"""The largest scenario that is read, in bytes of JSON."""

MAX_EVENTS: Final = 1000
MAX_REPLICAS: Final = 16
MAX_BATCHES: Final = 1000
"""The most batches of all logs together at the start."""

_FAR: Final = 1 << 60
"""The greatest offset or time that is accepted: later sums still fit into 64 bits."""

RECORD_SIZE: Final = 100
"""The bytes of a record without a size."""

_EVENTS: Final = {
    "append": {"records", "bytes", "acks"},
    "fetch": {"node"},
    "response": {"node"},
    "lose": {"node"},
    "crash": {"node", "keep", "high_watermark"},
    "restart": {"node"},
    "elect": {"leader"},
    "isr-check": set[str](),
    "confirm": set[str](),
    "wait": set[str](),
}
_CHOICES: Final = {
    "hw_in_response": ("before", "after"),
    "truncation": ("fetch", "epoch", "high-watermark"),
    "confirm": ("at once", "when told"),
}


@dataclass(frozen=True)
class ReplicationSettings:
    """How the simulation plays, and settings of brokers; the names are Kafka's with `_` for `.`."""

    hw_in_response: str = "before"
    truncation: str = "fetch"
    confirm: str = "at once"
    min_insync_replicas: int = 1
    replica_lag_time_max_ms: int = 30_000
    replica_fetch_min_bytes: int = 1
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_max_bytes: int = 1 << 20
    leader_replication_throttled_rate: int | None = None
    follower_replication_throttled_rate: int | None = None
    throttled_replicas: frozenset[int] = frozenset()


@dataclass(frozen=True)
class SimulationEvent:
    """One event at the time *at*, in ms; *node*: its replica, -1 for none.

    *acks*: 0, 1 or -1 for all.  *keep*, *high_watermark*: the part that survives a crash; None is all of it.
    """

    at: int
    do: str
    node: int = -1
    records: int = 1
    record_size: int = RECORD_SIZE
    acks: int = 1
    keep: int | None = None
    high_watermark: int | None = None


@dataclass(frozen=True)
class ReplicaStart:
    """The log of a replica at the start: batches of (epoch, number of records) from *log_start* on."""

    batches: tuple[tuple[int, int], ...] = ()
    high_watermark: int = 0
    log_start: int = 0


@dataclass(frozen=True)
class RemoteStart:
    """The leader's initial state about a replica; *last_caught_up*: a time in ms, None for never."""

    log_end: int
    last_caught_up: int | None


@dataclass(frozen=True)
class Scenario:
    """The input of a simulation.  *epoch_start*: the start of the leader's epoch, None for the one in its log."""

    replicas: tuple[int, ...]
    leader: int
    epoch: int
    isr: frozenset[int]
    epoch_start: int | None
    settings: ReplicationSettings
    starts: Mapping[int, ReplicaStart]
    remotes: Mapping[int, RemoteStart]
    events: tuple[SimulationEvent, ...]


def read_scenario(content: bytes) -> Scenario:
    """Return the scenario in *content*.  Raises UsageError that names the fault."""
    if len(content) > MAX_BYTES:
        raise UsageError(f"larger than {MAX_BYTES} bytes")
    try:
        found = json.loads(
            content.decode("utf-8"), parse_int=_integer, parse_constant=_no_number, object_pairs_hook=_object
        )
    except (ValueError, RecursionError) as error:
        raise UsageError(f"no JSON: {str(error)[:100]}") from error
    return _scenario(
        _members(
            found,
            "the scenario",
            ("replicas", "leader", "epoch", "isr", "epoch_start", "settings", "start", "remote", "events"),
        )
    )


def _integer(digits: str) -> int:
    if len(digits) > 20:
        raise UsageError("a number of more than 20 digits")
    return int(digits)


def _no_number(name: str) -> NoReturn:
    raise UsageError(f"{name} is no number")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise UsageError(f"{_shown(name)} is there twice in one object")
        members[name] = value
    return members


def _shown(value: object) -> str:
    """Return *value* as a message quotes it."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:40]}…"


def _members(value: object, where: str, known: Collection[str]) -> dict[str, object]:
    if not isinstance(value, dict):
        raise UsageError(f"{where} is {_shown(value)}, expected an object")
    for name in value:
        if name not in known:
            expected = f"expected {', '.join(known)}" if known else "expected no more members"
            raise UsageError(f"{where} has a member {_shown(name)}: {expected}{near_misses(name[:60], known)}")
    return value


def _list(value: object, where: str, most: int) -> list[object]:
    if not isinstance(value, list):
        raise UsageError(f"{where} is {_shown(value)}, expected a list")
    if len(value) > most:
        raise UsageError(f"{where} has {len(value)} entries: at most {most} are simulated")
    return value


def _number(value: object, where: str, least: int = 0, most: int = _FAR) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise UsageError(f"{where} is {_shown(value)}, expected a whole number from {least} to {most}")
    return value


def _maybe(value: object, where: str) -> int | None:
    return None if value is None else _number(value, where)


def _choice(value: object, where: str, choices: Collection[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        near = near_misses(value[:60], choices) if isinstance(value, str) else ""
        raise UsageError(f"{where} is {_shown(value)}, expected one of {', '.join(choices)}{near}")
    return value


def _node(value: object, where: str, replicas: Collection[int]) -> int:
    node = _number(value, where, most=INT_MAX)
    if node not in replicas:
        raise UsageError(f"{where}: there is no replica {node}, only {', '.join(map(str, replicas))}")
    return node


def _nodes(value: object, where: str, replicas: Collection[int] | None = None) -> tuple[int, ...]:
    """Return a list of nodes, each once; if *replicas* is given, only of these."""
    nodes: list[int] = []
    for index, one in enumerate(_list(value, where, MAX_REPLICAS)):
        here = f"{where}[{index}]"
        node = _number(one, here, most=INT_MAX) if replicas is None else _node(one, here, replicas)
        if node in nodes:
            raise UsageError(f"{where}: {node} is there twice")
        nodes.append(node)
    return tuple(nodes)


def _by_node(value: object, where: str, replicas: Collection[int]) -> dict[int, object]:
    """Return the members of an object whose names are nodes."""
    names = {str(node): node for node in replicas}
    if isinstance(value, dict):
        for name in value:
            if name not in names:
                raise UsageError(f"{where}: there is no replica {_shown(name)}, only {', '.join(names)}")
    return {names[name]: member for name, member in _members(value, where, names).items()}


def _scenario(members: Mapping[str, object]) -> Scenario:
    if "replicas" not in members or "events" not in members:
        raise UsageError(f"{'events' if 'replicas' in members else 'replicas'} is missing")
    replicas = _nodes(members["replicas"], "replicas")
    if not replicas:
        raise UsageError("replicas is empty")
    leader = _node(members.get("leader", replicas[0]), "leader", replicas)
    isr = frozenset(_nodes(members.get("isr", list(replicas)), "isr", replicas))
    if leader not in isr:
        raise UsageError(f"isr: the leader {leader} is missing")
    others = [node for node in replicas if node != leader]
    remotes = {
        node: _remote(value, f"remote.{node}", node in isr)
        for node, value in _by_node(members.get("remote", {}), "remote", others).items()
    }
    return Scenario(
        replicas,
        leader,
        _number(members.get("epoch", 0), "epoch", most=INT_MAX - MAX_EVENTS),
        isr,
        _maybe(members.get("epoch_start"), "epoch_start"),
        _settings(members.get("settings", {}), replicas),
        _starts(members.get("start", {}), replicas),
        {node: remotes.get(node, _remote({}, "", node in isr)) for node in others},
        _events(members["events"], replicas),
    )


def _remote(value: object, where: str, in_isr: bool) -> RemoteStart:
    members = _members(value, where, ("log_end", "last_caught_up"))
    log_end = _number(members.get("log_end", -1), f"{where}.log_end", least=-1)
    return RemoteStart(log_end, _maybe(members.get("last_caught_up", 0 if in_isr else None), f"{where}.last_caught_up"))


def _settings(value: object, replicas: Collection[int]) -> ReplicationSettings:
    names = {
        one.name if one.name in _CHOICES else one.name.replace("_", "."): one.name
        for one in fields(ReplicationSettings)
    }
    found: dict[str, object] = {}
    for name, given in _members(value, "settings", names).items():
        where = f"settings.{name}"
        if name in _CHOICES:
            found[name] = _choice(given, where, _CHOICES[name])
        elif name == "throttled.replicas":
            found[names[name]] = frozenset(_nodes(given, where, replicas))
        elif name.endswith(".rate"):
            found[names[name]] = _maybe(given, where)
        else:
            found[names[name]] = _number(given, where, most=_FAR if name.endswith(".ms") else INT_MAX)
    return ReplicationSettings(**found)  # type: ignore[arg-type]  # each was examined above


def _starts(value: object, replicas: Collection[int]) -> dict[int, ReplicaStart]:
    starts = {node: ReplicaStart() for node in replicas}
    room = MAX_BATCHES
    for node, given in _by_node(value, "start", replicas).items():
        where = f"start.{node}"
        members = _members(given, where, ("log", "high_watermark", "log_start"))
        batches: list[tuple[int, int]] = []
        for index, one in enumerate(_list(members.get("log", []), f"{where}.log", room)):
            batches.append(_batch(one, f"{where}.log[{index}]", batches[-1][0] if batches else 0))
        room -= len(batches)
        log_start = _number(members.get("log_start", 0), f"{where}.log_start")
        high_watermark = _number(members.get("high_watermark", 0), f"{where}.high_watermark")
        starts[node] = ReplicaStart(tuple(batches), high_watermark, log_start)
    return starts


def _batch(value: object, where: str, earlier: int) -> tuple[int, int]:
    entries = _list(value, where, 2)
    if len(entries) != 2:
        raise UsageError(f"{where}: expected [epoch, records]")
    epoch = _number(entries[0], f"{where}[0]", most=INT_MAX)
    if epoch < earlier:
        raise UsageError(f"{where}: epoch {epoch} after epoch {earlier}; epochs of a log never fall")
    return epoch, _number(entries[1], f"{where}[1]", least=1, most=INT_MAX)


def _events(value: object, replicas: Collection[int]) -> tuple[SimulationEvent, ...]:
    events: list[SimulationEvent] = []
    for index, one in enumerate(_list(value, "events", MAX_EVENTS)):
        events.append(_event(one, f"events[{index}]", replicas, events[-1].at if events else 0))
    return tuple(events)


def _event(value: object, where: str, replicas: Collection[int], earlier: int) -> SimulationEvent:
    anything = {"at", "do"}.union(*_EVENTS.values())
    do = _choice(_members(value, where, sorted(anything)).get("do"), f"{where}.do", _EVENTS)
    members = _members(value, f"{where} ({do})", ["at", "do", *sorted(_EVENTS[do])])
    at = _number(members.get("at", earlier), f"{where}.at")
    if at < earlier:
        raise UsageError(f"{where}.at is {at}, before the {earlier} of the event before it")
    node = -1
    for name in {"node", "leader"} & _EVENTS[do]:
        if name not in members:
            raise UsageError(f"{where} ({do}): {name} is missing")
        node = _node(members[name], f"{where}.{name}", replicas)
    acks = members.get("acks", 1)
    if acks != "all" and _number(acks, f"{where}.acks", most=INT_MAX) > 1:
        raise UsageError(f'{where}.acks is {_shown(acks)}, expected 0, 1 or "all"')
    return SimulationEvent(
        at,
        do,
        node,
        _number(members.get("records", 1), f"{where}.records", least=1, most=INT_MAX),
        _number(members.get("bytes", RECORD_SIZE), f"{where}.bytes", least=1, most=INT_MAX),
        -1 if acks == "all" else int(str(acks)),
        _maybe(members.get("keep"), f"{where}.keep"),
        _maybe(members.get("high_watermark"), f"{where}.high_watermark"),
    )
