"""Which producers stay known where a partition is adopted: those that the target's metadata log has handed out.

A metadata log that is made anew assigns the same ids again, also in a cluster of the same id: a broker with the former
producer of an id treats records of the next one as a repetition, acknowledges them, and drops them.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.adopt.made import (
    FORMER,
    NOW,
    ORDERS,
    UNKNOWN,
    made_home,
    made_source,
    producers_known,
    sent,
)
from tests.conftest import Ran

Klog = Callable[..., Ran]
DAY_MS = 86_400_000
SHIFTED = (1 << 62) + 3


@pytest.fixture
def run(klog: Klog) -> Callable[..., dict[str, Any]]:
    def adopt(*words: object) -> dict[str, Any]:
        done = klog("adopt", *words, NOW, "--output", "json")
        assert done.exit_code == 0, (done.stdout[-2000:], done.stderr)
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return adopt


Adopt = Callable[..., dict[str, Any]]


@pytest.mark.parametrize("topic_number", [ORDERS, FORMER])
def test_ids_on_both_sides_are_decided_one_by_one(topic_number: int, tmp_path: Path, run: Adopt) -> None:
    """Below the next id they are those of this topic's producers; from it on they are handed out again."""
    data = made_home(tmp_path / "data", 1000)
    batches = [sent(at, producer) for at, producer in enumerate((7, 999, 1000, 1001, SHIFTED))]
    source = made_source(tmp_path / "copy/orders-0", topic_number, *batches)
    (one,) = run(source, "--to", data, "--apply")["adopted"]
    assert (one["producers"], one["producers_kept"], one["producers_forgotten"]) == ("drop", 3, 2)
    assert producers_known(data / "orders-0") == {7, 999, SHIFTED}
    assert (data / f"orders-0/{5:020}.log").stat().st_size == 0


def test_an_intact_metadata_log_keeps_all(tmp_path: Path, run: Adopt) -> None:
    """Nothing is added, and there is no message: the last assigned id is one below the next."""
    data = made_home(tmp_path / "data", 1000)
    source = made_source(tmp_path / "copy/orders-0", ORDERS, *(sent(at, at + 990) for at in range(10)))
    done = run(source, "--to", data, "--apply")
    (one,) = done["adopted"]
    assert (one["producers"], one["producers_kept"], one["producers_forgotten"]) == ("keep", 10, 0)
    assert [path.name for path in (data / "orders-0").glob("*.log")] == [f"{0:020}.log"]
    assert done["notes"] == []


@pytest.mark.parametrize("next_id", [None, 1000])
def test_a_topic_that_this_metadata_log_never_had(next_id: int | None, tmp_path: Path, run: Adopt) -> None:
    """The cluster's id proves nothing: its metadata log was lost, and the present one begins at id 0."""
    data = made_home(tmp_path / "data", next_id)
    shutil.copy(data / "meta.properties", (tmp_path / "copy").mkdir() or tmp_path / "copy")
    source = made_source(tmp_path / "copy/orders-0", UNKNOWN, sent(0, 0), sent(1, 1))
    (one,) = run(source, "--to", data, "--apply")["adopted"]
    assert one["producers"] == "drop"
    assert producers_known(data / "orders-0") == set()


def test_a_source_that_does_not_say_its_topic(tmp_path: Path, run: Adopt) -> None:
    """Without a topic id nothing is certain."""
    data = made_home(tmp_path / "data", 1000)
    source = made_source(tmp_path / "copy/orders-0", None, sent(0, 0))
    assert run(source, "--to", data, "--apply")["adopted"][0]["producers"] == "drop"
    assert producers_known(data / "orders-0") == set()


def test_no_id_was_handed_out_yet(tmp_path: Path, run: Adopt) -> None:
    """A metadata log from a backup that is older than the first producer."""
    data = made_home(tmp_path / "data", None)
    source = made_source(tmp_path / "copy/orders-0", ORDERS, sent(0, 0))
    assert run(source, "--to", data, "--apply")["adopted"][0]["producers_forgotten"] == 1
    assert producers_known(data / "orders-0") == set()


def test_a_producer_that_was_idle_for_long_is_forgotten_as_well(tmp_path: Path, run: Adopt) -> None:
    """A start forgets it, but a recovery reads it from the active segment again."""
    data = made_home(tmp_path / "data", 1000)
    old = sent(0, 1000, age_ms=3 * DAY_MS)
    source = made_source(tmp_path / "copy/orders-0", ORDERS, old, sent(1, 7))
    (one,) = run(source, "--to", data, "--apply")["adopted"]
    assert one["producers_forgotten"] == 1
    assert producers_known(data / "orders-0") == {7}


def test_each_partition_for_itself(tmp_path: Path, run: Adopt) -> None:
    """One has producers to come, the other none."""
    data = made_home(tmp_path / "data", 1000, [("orders", ORDERS, 2)])
    sources = [
        made_source(tmp_path / f"copy/orders-{number}", ORDERS, sent(0, producer), sent(1, 7))
        for number, producer in ((0, 6), (1, 2000))
    ]
    found = run(*sources, "--to", data, "--apply")["adopted"]
    assert [one["producers"] for one in found] == ["keep", "drop"]
    assert producers_known(data / "orders-1") == {7}


def test_kept_as_asked_with_a_note(tmp_path: Path, run: Adopt) -> None:
    """It contains the number of ids that will be assigned again."""
    data = made_home(tmp_path / "data", 1000)
    source = made_source(tmp_path / "copy/orders-0", ORDERS, sent(0, 7), sent(1, 1000), sent(2, 1001))
    done = run(source, "--to", data, "--producers", "keep", "--apply")
    assert done["adopted"][0]["producers"] == "keep"
    (note,) = done["notes"]
    assert "of 3 producers that are kept 2 ids will be handed out again (the next is 1000)" in note


def test_kept_as_asked_where_all_is_well(tmp_path: Path, run: Adopt) -> None:
    """No note where nothing is handed out again."""
    data = made_home(tmp_path / "data", 1000)
    source = made_source(tmp_path / "copy/orders-0", ORDERS, sent(0, 7))
    assert run(source, "--to", data, "--producers", "keep", "--apply")["notes"] == []


def test_a_second_run_has_nothing_to_do(tmp_path: Path, run: Adopt) -> None:
    data = made_home(tmp_path / "data", 1000)
    source = made_source(tmp_path / "copy/orders-0", ORDERS, sent(0, 7), sent(1, 1000))
    run(source, "--to", data, "--apply")
    again = run(source, "--to", data, "--apply")
    assert (again["actions"], again["adopted"][0]["done_before"]) == ([], True)


# klog write


def written(klog: Klog, source: Path, data: Path, *words: object) -> list[str]:
    """Write a log into the target's orders-0, and return the notes."""
    made_source(data / "orders-0", ORDERS)
    (data / "orders-0" / f"{0:020}.log").touch()
    done = klog("write", source, "--to", data, NOW, "--output", "json", "--apply", *words)
    assert done.exit_code == 0, done.stderr
    notes: list[str] = json.loads(done.stdout)["notes"]
    return notes


def test_write_says_which_of_the_kept_ids_will_be_handed_out_again(tmp_path: Path, klog: Klog) -> None:
    data = made_home(tmp_path / "data", 1000)
    source = made_source(tmp_path / "copy/orders-0", ORDERS, sent(0, 7), sent(1, 1000))
    (note,) = written(klog, source, data, "--producers", "keep")
    assert "orders-0: of 2 producers that are kept 1 id will be handed out again (the next is 1000)" in note


def test_write_says_which_of_the_kept_ids_are_perhaps_anothers(tmp_path: Path, klog: Klog) -> None:
    data = made_home(tmp_path / "data", 1000)
    source = made_source(tmp_path / "copy/orders-0", UNKNOWN, sent(0, 7))
    (note,) = written(klog, source, data, "--producers", "keep")
    assert "1 id may be those of other producers" in note


@pytest.mark.parametrize("words", [(), ("--producers", "shift"), ("--producers", "drop")])
def test_write_is_silent_where_no_id_is_kept(words: tuple[str, ...], tmp_path: Path, klog: Klog) -> None:
    data = made_home(tmp_path / "data", None)
    source = made_source(tmp_path / "copy/orders-0", UNKNOWN, sent(0, 7))
    assert written(klog, source, data, *words) == []


def test_write_is_silent_where_the_kept_ids_are_this_topics(tmp_path: Path, klog: Klog) -> None:
    data = made_home(tmp_path / "data", 1000)
    source = made_source(tmp_path / "copy/orders-0", ORDERS, sent(0, 7), sent(1, SHIFTED))
    assert written(klog, source, data, "--producers", "keep") == []
