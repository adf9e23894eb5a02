"""Kafka's cleaner without its broker: leaves what the whole broker left."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

import pytest

from tests.broker_load import differences
from tests.cleaner.oracle import CleanerOracle, Round, Step, clock_step, rounds_said, rounds_step
from tests.conftest import CORPORA, writable_copy
from tests.test_broker_load import HIGH_WATERMARKS, as_before_its_leader

HOME = CORPORA / "compaction/v4.3.1"
BEGINNING = re.compile(r"^(\S+ \S+) \[.*Beginning cleaning of log (\S+)$", re.MULTILINE)
CLEANED = re.compile(
    r"cleaned log (\S+) \(dirty section = \[(\d+), (\d+)\]\).*?"
    r"Start size: .*?\(([\d,]+) messages\).*?End size: .*?\(([\d,]+) messages\)",
    re.DOTALL,
)


@pytest.fixture(scope="module")
def oracle() -> Iterator[CleanerOracle]:
    with CleanerOracle() as one:
        yield one


def said_by_the_cleaner(number: int) -> str:
    """Return what the real cleaner logged between one `before` and its `after`."""
    return re.split(r"^== between .*\n", (HOME / "golden/cleaner.log").read_text(), flags=re.MULTILINE)[number]


def beginnings(log: str) -> list[tuple[int, str]]:
    """Return when, in ms, the cleaner began with which partition: horizons of tombstones and markers follow from it."""
    found = []
    for time, partition in BEGINNING.findall(log):
        moment = datetime.strptime(time + "000+0000", "%Y-%m-%d %H:%M:%S.%f%z")
        found.append((round((moment - datetime(1970, 1, 1, tzinfo=timezone.utc)).total_seconds() * 1000), partition))
    return found


def figures(log: str) -> list[tuple[str, int, int, int, int]]:
    """Return partition, dirty section, messages in and out of each round that the cleaner logged."""
    found = []
    for partition, *numbers in CLEANED.findall(log):
        first, end, read, written = (int(number.replace(",", "")) for number in numbers)
        found.append((partition, first, end, read, written))
    return found


@pytest.mark.kafka
@pytest.mark.corpora
@pytest.mark.parametrize("number", [1, 2, 3])
def test_the_cleaner_alone_leaves_what_a_whole_broker_left(
    number: int, oracle: CleanerOracle, image: Callable[[str], Path], tmp_path: Path
) -> None:
    """Every file of every partition, and the order in which they were taken: else klog is held against nothing."""
    suffix = "" if number == 1 else str(number)
    before = image(f"compaction/v4.3.1/before{suffix}.tar.gz")
    cleaned = writable_copy(before, tmp_path / "cleaned")
    after = writable_copy(image(f"compaction/v4.3.1/after{suffix}.tar.gz"), tmp_path / "after")
    settings = json.loads((HOME / "settings.json").read_text())
    topics = settings["topics"]
    topics["switched"]["cleanup.policy"] = "compact"  # what it was switched to before the cleaner ran
    log = said_by_the_cleaner(number)
    begun = beginnings(log)
    steps: list[Step] = []
    for ms, _ in begun:
        steps += [clock_step(ms), rounds_step(1, retention=True)]
    steps.append(rounds_step(retention=True))
    said = oracle.visit(cleaned, steps, now_ms=begun[0][0], topic_settings=topics, broker_settings=settings["broker"])
    rounds = [one for each in (*said[1::2], said[-1]) for one in rounds_said(each)]
    assert [figures_of(one) for one in rounds] == figures(log)
    assert len(rounds) == len(begun) >= 18
    # The images leave out the internal topics, which the checkpoints of that broker name.
    written, recorded = ((folder / HIGH_WATERMARKS).read_text().splitlines()[2:] for folder in (cleaned, after))
    assert sorted(written) == sorted(line for line in recorded if not line.startswith("__"))
    as_before_its_leader(after, before)
    (cleaned / HIGH_WATERMARKS).unlink()
    (after / HIGH_WATERMARKS).unlink()
    assert differences(cleaned, after) == []


def figures_of(one: Round) -> tuple[str, int, int | None, int, int]:
    return one.partition, one.first_dirty, one.next_dirty, one.messages_read, one.messages_written
