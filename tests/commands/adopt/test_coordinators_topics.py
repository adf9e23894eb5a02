"""The coordinators' topics, and the messages of commands that create or widen a topic.

Groups and transactional ids are hashed over the number of partitions, and keys of ordinary topics, too: with another
number their data is not found.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.adopt.made import NOW, ORDERS, UNKNOWN, made_home, made_source, sent
from tests.commands.serve.coordinator_logs import COMPLETE_COMMIT, commit_of, state, write_records
from tests.conftest import Ran
from tests.support.group_records import DAY_MS

Klog = Callable[..., Ran]
Adopt = Callable[..., dict[str, Any]]
UNIQUE = "0123456789abcdef0123456789abcdef"
OFFSETS, STATES = "__consumer_offsets", "__transaction_state"
OF_OFFSETS = 6
"""The number of the topic id of the cluster's own coordinators' topic."""


@pytest.fixture
def run(klog: Klog) -> Adopt:
    def adopt(*words: object, code: int = 0) -> dict[str, Any]:
        done = klog("adopt", *words, NOW, "--output", "json")
        assert done.exit_code == code, (done.exit_code, done.stdout[-3000:], done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return adopt


def strays(data: Path, topic: str, *numbers: int, topic_number: int = UNKNOWN) -> list[Path]:
    """Put partitions into a log dir that a broker has set aside: their metadata log is lost."""
    found = []
    for number in numbers:
        directory = made_source(data / f"{topic}-{number}.{UNIQUE}-stray", topic_number)
        write_records(directory, [commit_of(4, 0, group=f"g{number}", topic="orders")])
        found.append(directory)
    return found


def with_offsets(folder: Path, count: int, topic: str = OFFSETS) -> Path:
    """Make a broker that has made one of the coordinators' topics anew."""
    return made_home(folder, 1000, [("orders", ORDERS, 1), (topic, OF_OFFSETS, count)])


SETTINGS = {
    OFFSETS: {"cleanup.policy=compact", "compression.type=producer", "segment.bytes=104857600"},
    STATES: {
        "cleanup.policy=compact",
        "compression.type=uncompressed",
        "segment.bytes=104857600",
        "unclean.leader.election.enable=false",
    },
    "__share_group_state": {
        "cleanup.policy=delete",
        "compression.type=producer",
        "retention.ms=-1",
        "segment.bytes=104857600",
    },
}


@pytest.mark.parametrize("topic", SETTINGS)
def test_a_coordinators_topic_is_made_with_its_own_settings(topic: str, tmp_path: Path, run: Adopt) -> None:
    """Without compaction the positions of idle groups would go; the number of partitions is called a guess."""
    data = made_home(tmp_path / "data", 1000)
    strays(data, topic, 0, 1, 2)
    found = run(data, "--to", data, code=8)["refused"]
    assert {one["id"] for one in found} == {"topic-unknown"}
    words = shlex.split(found[0]["next"])
    assert words[words.index("--partitions") + 1] == "3"
    assert {words[at + 1] for at, word in enumerate(words) if word == "--config"} == SETTINGS[topic]
    assert "3 is a guess" in found[0]["message"]


def test_a_guess_is_called_one_for_ordinary_topics_too(tmp_path: Path, run: Adopt) -> None:
    """Keys would go to other partitions than before."""
    data = made_home(tmp_path / "data", 1000)
    source = made_source(tmp_path / "copy/payments-1", UNKNOWN, sent(0, 1))
    (one,) = run(source, "--to", data, code=8)["refused"]
    assert "2 is a guess" in one["message"]
    assert "keys go to other partitions" in one["message"]
    assert "--config" not in one["next"]


def test_more_partitions_are_advised_for_ordinary_topics_alone(tmp_path: Path, run: Adopt) -> None:
    """More partitions would separate groups from their data."""
    data = with_offsets(tmp_path / "data", 4)
    (stray,) = strays(data, OFFSETS, 7)
    (one,) = run(stray, "--to", data, code=8)["refused"]
    assert one["id"] == "internal-topic"
    assert "--alter" not in one["next"]
    assert one["next"].startswith("klog groups ")
    (other,) = run(made_source(tmp_path / "copy/orders-3", ORDERS), "--to", data, code=8)["refused"]
    assert other["next"].endswith("--alter --topic orders --partitions 4")
    assert "another partition" in other["message"]


def test_equal_numbers_are_adopted(tmp_path: Path, run: Adopt) -> None:
    """All of them are there, and the cluster has as many: no doubt, no note."""
    data = with_offsets(tmp_path / "data", 3)
    strays(data, OFFSETS, 0, 1, 2)
    done = run(data, "--to", data, "--apply")
    assert [one["partition"] for one in done["adopted"]] == [0, 1, 2]
    assert done["notes"] == []


def test_committed_offsets_that_have_expired_meanwhile(tmp_path: Path, run: Adopt) -> None:
    """Coordinators would remove them ten minutes after the start: the note has the setting that keeps them."""
    data = with_offsets(tmp_path / "data", 3)
    for number, stray in enumerate(strays(data, OFFSETS, 0, 1, 2)):
        write_records(stray, [commit_of(4, -8 * DAY_MS if number else -6 * DAY_MS, group=f"g{number}")])
    (note,) = [one for one in run(data, "--to", data)["notes"] if "offsets.retention" in one]
    assert "the coordinators remove 2 committed offsets of 2 groups (g1, g2)" in note
    assert "first: set offsets.retention.minutes=2147483647 in server.properties" in note


def test_equal_numbers_by_a_guess_are_adopted_with_a_note(tmp_path: Path, run: Adopt) -> None:
    """The highest number is here, others are on other brokers."""
    data = with_offsets(tmp_path / "data", 3)
    strays(data, OFFSETS, 0, 2)
    done = run(data, "--to", data)
    assert [one["partition"] for one in done["adopted"]] == [0, 2]
    assert all("3 is a guess" in note for note in done["notes"])
    assert len(done["notes"]) == 2


@pytest.mark.parametrize(("numbers", "count"), [((0, 1, 2), 2), ((0, 1, 2), 50), ((1,), 3)])
def test_other_numbers_are_refused_within_the_cluster_as_well(
    numbers: tuple[int, ...], count: int, tmp_path: Path, run: Adopt
) -> None:
    """The group would not be found in the partition in which it is."""
    data = with_offsets(tmp_path / "data", count)
    strays(data, OFFSETS, *numbers)
    found = run(data, "--to", data, code=8)["refused"]
    assert {one["id"] for one in found} == {"internal-topic"}
    assert "groups are in other partitions" in found[0]["message"]


def test_other_numbers_as_asked_with_a_note(tmp_path: Path, run: Adopt) -> None:
    data = with_offsets(tmp_path / "data", 50)
    (stray,) = strays(data, OFFSETS, 1)
    (note,) = run(stray, "--as", f"{OFFSETS}-1", "--to", data)["notes"]
    assert "groups are in other partitions" in note


def test_a_partition_of_the_topic_that_the_cluster_has_fits(tmp_path: Path, run: Adopt) -> None:
    """It is in lost+found: its topic id is enough."""
    data = with_offsets(tmp_path / "data", 50)
    source = made_source(tmp_path / "lost+found/#131073", OF_OFFSETS)
    write_records(source, [commit_of(4, 0)])
    done = run(source, "--as", f"{OFFSETS}-7", "--to", data)
    assert (len(done["adopted"]), done["notes"]) == (1, [])


def test_transactional_ids_whose_producers_are_handed_out_again(tmp_path: Path, run: Adopt) -> None:
    """They would write with the ids of other producers; only as asked, with a note."""
    data = with_offsets(tmp_path / "data", 1, STATES)
    source = made_source(data / f"{STATES}-0.{UNIQUE}-stray", UNKNOWN)
    write_records(
        source, [state(COMPLETE_COMMIT, 0, 0, producer=7), state(COMPLETE_COMMIT, 0, 0, producer=1007, name="b")]
    )
    (one,) = run(source, "--to", data, code=8)["refused"]
    assert one["id"] == "internal-topic"
    assert "1 id will be handed out again (the next is 1000) and 1 id may be those of other producers" in one["message"]
    assert len(run(source, "--as", f"{STATES}-0", "--to", data)["notes"]) == 1


def test_an_empty_log_of_transactional_ids_is_adopted(tmp_path: Path, run: Adopt) -> None:
    """There is no producer in it."""
    data = with_offsets(tmp_path / "data", 1, STATES)
    source = made_source(data / f"{STATES}-0.{UNIQUE}-stray", UNKNOWN)
    done = run(source, "--to", data)
    assert (len(done["adopted"]), done["notes"]) == (1, [])
