"""Equal names that are not copies: refused by every command that would take one of them, until the ids choose."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Ran
from tests.support.identities import CLUSTER, OTHER_CLUSTER, OTHER_TOPIC, TOPIC, partition, refusal, two_clusters

Klog = Callable[..., Ran]
NOTE = b"klog: 1 of 2 partition directories are of other ids: left out\n"


def values(done: Ran) -> set[str]:
    return {json.loads(line)["value"] for line in done.stdout.splitlines()}


def exported(folder: Path) -> set[str]:
    return {
        json.loads(line)["value"] for file in folder.rglob("*.jsonl") for line in file.read_text().splitlines() if line
    }


@pytest.mark.parametrize("replicas", ["longest", "leader-epoch", "all"])
def test_search_refuses_two_clusters(klog: Klog, tmp_path: Path, replicas: str) -> None:
    """The longer log would win in silence, and its records would replace those of the other topic."""
    paths = two_clusters(tmp_path)
    done = klog("search", "-o", "jsonl", *paths, "--replicas", replicas)
    assert (done.exit_code, done.stdout, done.stderr) == (8, b"", refusal(paths))


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        (("--cluster", CLUSTER), "b1"),
        (("--cluster", OTHER_CLUSTER), "other"),
        (("--topic-id", TOPIC), "b1"),
        (("--topic-id", OTHER_TOPIC, "--cluster", OTHER_CLUSTER), "other"),
    ],
)
def test_search_takes_the_chosen_one(klog: Klog, tmp_path: Path, choice: tuple[str, ...], found: str) -> None:
    done = klog("search", "-o", "jsonl", *two_clusters(tmp_path), *choice)
    assert (done.exit_code, values(done), done.stderr) == (0, {found}, NOTE)
    assert klog("search", "-o", "jsonl", *two_clusters(tmp_path / "quiet"), *choice, "--quiet").stderr == b""


def test_an_unknown_id_is_refused_with_what_it_may_have_been(klog: Klog, tmp_path: Path) -> None:
    done = klog("search", "-o", "jsonl", *two_clusters(tmp_path), "--cluster", CLUSTER[:-1])
    assert (done.exit_code, done.stdout) == (16, b"")
    assert f"did you mean {CLUSTER}".encode() in done.stderr


def test_export_writes_nothing_of_two_clusters(klog: Klog, tmp_path: Path) -> None:
    paths, out = two_clusters(tmp_path), tmp_path / "out"
    asked = ("export", *paths, "--output", "jsonl", "--to", out)
    done = klog(*asked)
    assert (done.exit_code, done.stdout, done.stderr) == (8, b"", refusal(paths))
    assert not out.exists()
    assert klog(*asked, "--cluster", OTHER_CLUSTER).exit_code == 0
    assert exported(out) == {"other"}


def test_a_topic_that_was_created_again_is_another_one(klog: Klog, tmp_path: Path) -> None:
    """A broker that was away keeps the directory of the topic that was deleted meanwhile."""
    paths = [partition(tmp_path / "b1", TOPIC, CLUSTER), partition(tmp_path / "b2", OTHER_TOPIC, CLUSTER)]
    done = klog("search", "-o", "jsonl", *paths, "--by-name")
    assert (done.exit_code, done.stderr.count(b"\n")) == (8, 1)
    assert values(klog("search", "-o", "jsonl", *paths, "--topic-id", OTHER_TOPIC)) == {"b2"}


def test_each_name_has_a_line_up_to_ten(klog: Klog, tmp_path: Path) -> None:
    """Two clusters may have thousands of partitions in common."""
    for name, topic_id in (("b1", TOPIC), ("b2", OTHER_TOPIC)):
        for number in range(12):
            partition(tmp_path / name, topic_id, CLUSTER, f"orders-{number}")
    lines = klog("search", "-o", "jsonl", tmp_path / "b1", tmp_path / "b2").stderr.decode().splitlines()
    assert [line.startswith("klog: orders-") for line in lines] == [True] * 10 + [False]
    assert lines[-1] == "klog: 2 more names like these"


@pytest.mark.parametrize("named", ["", "orders-3"], ids=["before 2.8", "bare directories"])
def test_directories_without_ids_are_copies_by_name(klog: Klog, tmp_path: Path, named: str) -> None:
    paths = [partition(tmp_path / name, None, None) / named for name in ("b1", "b2")]
    done = klog("search", "-o", "jsonl", *paths)
    assert (done.exit_code, done.stdout) == (8, b"")
    assert b"orders-3 exists 2 times, and no file has its topic id" in done.stderr
    assert b"--by-name takes equal names for equal" in done.stderr
    assert values(klog("search", "-o", "jsonl", *paths, "--by-name")) == {"b1"}
    assert len(klog("search", "-o", "jsonl", *paths, "--by-name", "--replicas", "all").stdout.splitlines()) == 6


def test_one_disk_without_ids_needs_no_choice(klog: Klog, tmp_path: Path) -> None:
    assert values(klog("search", "-o", "jsonl", partition(tmp_path / "b1", None, None))) == {"b1"}


def test_a_topic_that_is_not_read_is_not_compared(klog: Klog, tmp_path: Path) -> None:
    paths = two_clusters(tmp_path)
    partition(paths[0], TOPIC, CLUSTER, "payments-0")
    assert values(klog("search", "-o", "jsonl", *paths, "--topic", "payments")) == {"b1"}


def test_stats_counts_each_directory_by_itself(klog: Klog, tmp_path: Path) -> None:
    """It need not choose; rows of equal names have different ids."""
    paths = two_clusters(tmp_path)
    rows = [json.loads(line) for line in klog("stats", *paths, "--output", "jsonl").stdout.splitlines()]
    assert [(row["topic_id"], row["cluster_id"], row["records"]) for row in rows] == [
        (TOPIC, CLUSTER, 3),
        (OTHER_TOPIC, OTHER_CLUSTER, 3),
    ]
    text = klog("stats", *paths).stdout.decode()
    assert all(one in text for one in (TOPIC, CLUSTER, OTHER_TOPIC, OTHER_CLUSTER))
    assert TOPIC not in klog("stats", paths[0]).stdout.decode()
    one = klog("stats", *paths, "--cluster", OTHER_CLUSTER, "--output", "jsonl")
    assert json.loads(one.stdout)["topic_id"] == OTHER_TOPIC
    assert one.stderr == NOTE


def test_serve_refuses_two_clusters(klog_process: Klog, tmp_path: Path) -> None:
    paths = two_clusters(tmp_path)
    done = klog_process("serve", *paths, "--listen", "127.0.0.1:0")
    assert (done.exit_code, done.stdout, done.stderr) == (8, b"", refusal(paths))


@pytest.mark.parametrize("command", ["describe", "verify", "dump", "recover"])
def test_commands_on_directories_go_on(klog: Klog, tmp_path: Path, command: str) -> None:
    """They answer for each directory by itself."""
    assert b"two things" not in klog(command, *two_clusters(tmp_path)).stderr
