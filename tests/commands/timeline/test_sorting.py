"""Events are yielded in their order, each once, for any number of them, in little memory."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from klog.base.errors import UsageError
from klog.commands.timeline.timeline_event import KINDS, EventFilter, EventSort, TimelineEvent
from klog.data_dir.disk.disk_changes import Disk

from tests.support.measure import measured


def event(time: int, kind: str = "roll", **more: object) -> TimelineEvent:
    return TimelineEvent(time, "broker", kind, "said", **more)  # type: ignore[arg-type] # for the purpose of the test


def out_of(events: Sequence[TimelineEvent], most: int | None = None, room: int = 4) -> list[TimelineEvent]:
    sort = EventSort(Disk(), most, room)
    for one in events:
        sort.add(one)
    found = list(sort)
    sort.close()
    return found


@pytest.mark.parametrize("room", [1, 2, 7, 1000])
def test_what_goes_to_temporary_files_comes_back_whole(room: int) -> None:
    """All fields, any text, in order; the same event of three disks once."""
    chance = random.Random(7)
    events = [
        event(chance.randrange(50), chance.choice(KINDS), topic=f"t\udc80{chance.randrange(3)}", offset=number)
        for number in range(300)
    ]
    given = [one._replace(log_dir=disk) for disk in ("b", "a", "c") for one in events]
    chance.shuffle(given)
    found = out_of(given, room=room)
    kept = {
        one.identity: one for one in given if one.log_dir == "a" or one.kind in ("damage", "log-start", "compacted")
    }
    assert [one.identity for one in found] == sorted(kept)
    assert {one.log_dir for one in found if one.kind == "roll"} == {"a"}


@pytest.mark.parametrize("most", [0, 1, 5, 10_000])
def test_a_limit_gives_the_first_events(most: int) -> None:
    """It also holds if copies of an event precede it, and more than fit into memory."""
    events = [event(number // 2, offset=number, log_dir=disk) for number in range(400) for disk in ("a", "b")]
    random.Random(3).shuffle(events)
    found = out_of(events, most, room=16)
    assert [one.offset for one in found] == list(range(400))[:most]


def test_two_epochs_at_one_offset_are_two_events() -> None:
    """The first had no record."""
    events = [event(5, "epoch", topic="t", partition=0, offset=7, epoch=epoch) for epoch in (2, 1, 2)]
    assert [one.epoch for one in out_of(events)] == [1, 2]


def test_equal_times_are_told_by_what_causes_what() -> None:
    """Metadata, epochs, transactions, groups, data."""
    kinds = ["damage", "commit", "txn-commit", "epoch", "topic-created", "roll", "broker-fenced"]
    found = out_of([event(1, kind) for kind in kinds])
    families = ["broker-fenced", "topic-created", "epoch", "txn-commit", "commit", "roll", "damage"]
    assert [one.kind for one in found] == families


def test_no_temporary_file_lies_in_a_log_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker would not start over it."""
    (tmp_path / "meta.properties").write_text("version=1\n")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with pytest.raises(UsageError):
        out_of([event(1, offset=number) for number in range(4)])


def test_a_filter_takes_times_kinds_topics_and_groups() -> None:
    """A time is included, the end is not; an event without a topic is not one of the topic's."""
    wanted = EventFilter(5, 10, {"roll", "commit"}, ["or*"], ["g?"])
    assert wanted.wants(event(5, "commit", topic="orders", group="g1"))
    for no in (
        event(4, "commit", topic="orders", group="g1"),
        event(10, "commit", topic="orders", group="g1"),
        event(5, "rebalance", topic="orders", group="g1"),
        event(5, "commit", topic="pairs", group="g1"),
        event(5, "commit", topic="orders", group="other"),
        event(5, "roll", topic="orders"),
    ):
        assert not wanted.wants(no), no
    assert not EventFilter(topics=["*"]).wants(event(5, "broker-fenced", node=1))
    assert EventFilter(topics=["orders"]).wants(event(5, "commit", group="g1"))  # of several topics, chosen before


def test_many_events_take_little_memory(tmp_path: Path) -> None:
    """Memory is bounded by the number of open transactions, not by that of events."""
    script = tmp_path / "many.py"
    script.write_text(
        "import random\n"
        "from klog.data_dir.disk.disk_changes import Disk\n"
        "from klog.commands.timeline.timeline_event import TimelineEvent\n"
        "from klog.commands.timeline.timeline_event import EventSort\n"
        "sort, chance = EventSort(Disk()), random.Random(1)\n"
        "for number in range(150_000):\n"
        "    sort.add(TimelineEvent(chance.getrandbits(40), 'broker', 'roll', 'segment %d' % number, offset=number))\n"
        "before = -1\n"
        "for count, event in enumerate(sort, 1):\n"
        "    assert before <= event.time\n"
        "    before = event.time\n"
        "assert count == 150_000\n"
    )
    done = measured([sys.executable, str(script)], tmp_path)
    assert done.exit_code == 0, done.stderr
    assert done.rss < 120 << 20
