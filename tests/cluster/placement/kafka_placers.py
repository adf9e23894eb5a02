"""Kafka's own placers, asked many times in one JVM, and random brokers to ask them about."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Iterable, Sequence

from klog.cluster.placement.assignment_checks import Assignment, UsableBroker

from tests.brokers import kafka

# Equal hashes (with more of them Java itself takes another order each time), tables that double, letters beyond the
# first plane, which sort by their halves.
RACKS: tuple[tuple[str | None, ...], ...] = (
    (None,),
    ("a", "b"),
    ("rack1", "rack2", "rack10"),
    (None, "a", "b", "c"),
    tuple(f"eu-west-{number}" for number in range(12)),
    tuple(f"eu-west-{number}" for number in range(13)),
    tuple(f"zone {number}" for number in range(40)),
    tuple("".join("BB" if number >> bit & 1 else "Aa" for bit in range(4)) for number in range(10)),
    ("é", "\uffee", "😀", "東", "z"),
)


def some_brokers(chance: random.Random, most: int = 30) -> list[UsableBroker]:
    """Return brokers in no order, of a few racks or many, with gaps between their ids, some fenced."""
    racks = chance.choice(RACKS)
    fenced = chance.choice((0, 0, 0.2, 0.6))
    ids = chance.sample(range(100), chance.randint(1, most))
    return [UsableBroker(broker, chance.choice(racks), chance.random() < fenced) for broker in ids]


def as_field(broker: UsableBroker) -> str:
    """Return a broker as the program takes it."""
    return f"{broker.id}{'f' * broker.fenced}{'' if broker.rack is None else f'={broker.rack}'}"


def ask(version: str, requests: Iterable[Sequence[object]]) -> list[Assignment | str]:
    """Return Kafka's answer to each request: the replicas, or the name of the exception."""
    lines = [
        "\t".join(as_field(each) if isinstance(each, UsableBroker) else str(each) for each in request)
        for request in requests
    ]
    done = subprocess.run(
        kafka.program(version, "PlaceReplicas"), input="\n".join(lines).encode(), capture_output=True, timeout=300
    )
    assert done.returncode == 0, done.stderr.decode()
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(lines)
    return [line[1:] if line.startswith("!") else as_assignment(line) for line in answers]


def as_assignment(line: str) -> Assignment:
    """Return the replicas in a line of the program."""
    return [tuple(map(int, replicas.split(","))) for replicas in line.split(";")]
